"""The command of the explorations, and the sizes of what is explored: what is refused, in which words."""

from __future__ import annotations

from typing import Any

import pytest

from replog.errors import UsageError
from replog.testing.exploration import __main__ as command
from replog.testing.exploration.real_budgets import Budgets
from replog.testing.exploration.rules import Bounds

pytestmark = pytest.mark.simulation

_CRASHES = "crashes are kill:BROKER, restart:BROKER, expire:BROKER"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["real", "--replicas", "0"], "replicas is 0; allowed are 1 to 9"),
        (["real", "--replicas", "10"], "replicas is 10; allowed are 1 to 9"),
        (["real", "--min-isr", "9"], "min_isr is 9; allowed are 1 to 3 (replicas)"),
        (["real", "--min-isr", "0"], "min_isr is 0; allowed are 1 and more"),
        (["real", "--records", "-1"], "records is -1; allowed are 0 and more"),
        (["real", "--epochs", "0"], "epochs is 0; allowed are 1 and more"),
        (["real", "--crashes", "-1"], "crashes is -1; allowed are 0 and more"),
        (["real", "--powers", "-1"], "powers is -1; allowed are 0 and more"),
        (["real", "--unknown", "-1"], "unknown is -1; allowed are 0 and more"),
        (["real", "--copies", "-1"], "copies is -1; allowed are 0 and more"),
        (["real", "--shrinks", "-1"], "shrinks is -1; allowed are 0 and more"),
        (["real", "--plan", "foo"], f"plan has 'foo'; {_CRASHES}"),
        (["real", "--plan", "kill:1,kill:x"], f"plan has 'kill:x'; {_CRASHES}"),
        (["real", "--plan", "explode:1"], "plan has explode:1; crashes are kill, restart, expire"),
        (["real", "--plan", "kill:1, kill:9"], "plan has kill:9; there are brokers 1 to 3"),
        (["real", "--isr", "x"], "isr has 'x'; brokers have numbers, as in 1,2"),
        (["real", "--isr", "7"], "isr has 7; there are brokers 1 to 3"),
        (["real", "--isr", "0,1"], "isr has 0; there are brokers 1 to 3"),
        (["real", "--isr", "1,2,1"], "isr is 1,2,1; a broker is in it once"),
        (["model", "--replicas", "5"], "replicas is 5; allowed are 1 to 4"),
        (["model", "--records", "7"], "records is 7; allowed are 1 to 6"),
        (["model", "--epochs", "0"], "epochs is 0; allowed are 1 and more"),
        (["model", "--restarts", "-1"], "restarts is -1; allowed are 0 and more"),
        (["model", "--broken", "no-epoch-start", "--replicas", "5"], "replicas is 5; allowed are 1 to 4"),
    ],
)
def test_sizes_that_cannot_be_are_refused(words: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(words) == 2
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"{line}\n")


def test_a_beginning_that_cannot_happen_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["real", "--begin", "append 1, nonsense"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("'nonsense' cannot happen next; possible are fetch 2 to 1: ")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["real", "--states", "0"], "--states: invalid positive value: '0'"),
        (["real", "--depth", "-1"], "--depth: invalid natural value: '-1'"),
        (["model", "--states", "-5"], "--states: invalid positive value: '-5'"),
    ],
)
def test_bounds_that_end_a_search_before_it_begins_are_refused(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(words)
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


def test_spaces_in_a_list_mean_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--records", "0", "--unknown", "0", "--shrinks", "0", "--plan", "kill:1, restart:2,", "--isr", "1, 2", "--begin", "kill 1, "]
    assert command.main(["real", *words, "--depth", "1"]) == 0
    assert "plan=(('kill', 1), ('restart', 2))" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("sizes", "refusal"),
    [
        ({"replicas": 0}, "replicas is 0;"),
        ({"replicas": 10}, "replicas is 10;"),
        ({"replicas": True}, "replicas is an int, not True"),
        ({"replicas": "3"}, "replicas is an int, not '3'"),
        ({"min_isr": 4}, "min_isr is 4;"),
        ({"replicas": 1}, "min_isr is 2;"),
        ({"crashes": -1}, "crashes is -1;"),
        ({"plan": (("explode", 1),)}, "plan has explode:1;"),
        ({"plan": (("kill", 9),)}, "plan has kill:9;"),
        ({"isr": (7,)}, "isr has 7;"),
        ({"isr": (2, 2)}, "isr is 2,2;"),
    ],
    ids=str,
)
def test_budgets_refuse_what_could_never_happen(sizes: dict[str, Any], refusal: str) -> None:
    with pytest.raises(UsageError, match=f"^{refusal}"):
        Budgets(**sizes)
    assert Budgets(replicas=1, min_isr=1, plan=(("kill", 1),), isr=(1,)).replicas == 1


@pytest.mark.parametrize("sizes", [{"replicas": 5}, {"records": 0}, {"epochs": 0}, {"restarts": -1}, {"epochs": 2.0}], ids=str)
def test_bounds_refuse_worlds_that_cannot_be(sizes: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"^{next(iter(sizes))} is"):
        Bounds(**sizes)
