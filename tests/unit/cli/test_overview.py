"""`replog` without a word: every command, on one screen."""

from __future__ import annotations

import pytest
from tests.unit.cli.conftest import run_with

from replog.cli.grammar import make_parser
from replog.cli.overview import GROUPS, verbs_of

LINES = 24


@pytest.mark.parametrize("words", [(), ("help",)])
def test_every_command_is_on_one_screen(words: tuple[str, ...]) -> None:
    told = run_with(None, *words)
    assert (told.status, told.stderr) == (0, "")
    assert len(told.lines) < LINES
    assert max(map(len, told.lines)) < 80
    commands = verbs_of(make_parser())
    assert sorted(commands) == sorted(name for names in GROUPS.values() for name in names)
    for name, parser in commands.items():
        assert any(name in line.split() for line in told.lines), name
        if name != "broker":
            for verb in verbs_of(parser):
                assert verb in told.stdout, (name, verb)


def test_programs_get_the_same() -> None:
    plain = run_with(None, "help", "--format", "json").json
    assert plain["topics"]["topic"]["verbs"][:2] == ["create", "list"]
    assert plain["records"]["read"] == {"text": "print records", "verbs": [], "alone": True}
