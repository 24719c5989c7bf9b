"""`replog completion`: what bash offers behind a line, and that zsh's script says the same."""

from __future__ import annotations

import re
import subprocess

import pytest
from tests.unit.cli.conftest import run_with

from replog.cli.completion import SHELLS, script
from replog.cli.grammar import make_parser
from replog.cli.overview import verbs_of

ASK = """
set -u
{script}
COMP_WORDS=({words})
COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
_replog
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def offered(*words: str) -> list[str]:
    """What bash would offer for the last of these words."""
    quoted = " ".join(f"'{word}'" for word in ("replog", *words))
    asked = ASK.format(script=script(make_parser(), "bash"), words=quoted)
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("to",), ["top", "topic"][::-1]),
        (("topic", "cr"), ["create"]),
        (("topic", "create", "orders", "--rep"), ["--replication-factor"]),
        (("--bootstrap", "tcp://h:1", "reassign", "e"), ["execute"]),
        (("topic", "list", "--format", ""), ["table", "json"]),
        (("--format", "j"), ["json"]),
        (("broker", "--log-level", "w"), ["warning"]),
        (("broker", "dr"), ["drain"]),
        (("completion", "z"), ["zsh"]),
        (("produce", "orders", "--acks", ""), ["0", "1", "all"]),
        (("elect", "orders", "--pre"), ["--preferred"]),
        (("log", "verify", "data"), []),
        (("frobnicate", "read", "--off"), ["--offsets"]),
    ],
)
def test_bash_offers(words: tuple[str, ...], wanted: list[str]) -> None:
    assert sorted(offered(*words)) == sorted(wanted)


def test_every_command_is_offered() -> None:
    commands = list(verbs_of(make_parser()))
    assert [word for word in offered("") if not word.startswith("-")] == commands
    for name in ("topic", "reassign", "log", "store"):
        assert [word for word in offered(name, "") if not word.startswith("-")] == list(verbs_of(verbs_of(make_parser())[name]))


def test_both_scripts_know_the_same() -> None:
    bash, zsh = (run_with(None, "completion", shell).stdout for shell in SHELLS)
    tables = bash[bash.index("_replog_words()") : bash.index("_replog()")]
    assert tables in zsh
    assert zsh.startswith("#compdef replog\n")
    assert re.search(r"\bpath\b", zsh) is None, "that variable is PATH there"
    assert run_with(None, "completion", "bash", "--format", "json").json == {"shell": "bash", "script": bash}


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_with(None, "completion", "fish").status == 2
    assert "'fish' is not one of bash, zsh" in capsys.readouterr().err
