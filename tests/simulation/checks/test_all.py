"""The table of invariants: how many there are, that each says what it is, and that each has been seen to fire and to hold."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from replog.testing.simulator import invariants
from replog.testing.simulator.checks import Checks
from replog.testing.simulator.directions import draw_directed
from replog.testing.simulator.invariants import INVARIANTS, Invariant
from replog.testing.simulator.liveness import PROMISES
from replog.testing.simulator.running import run

pytestmark = pytest.mark.simulation

HERE = Path(__file__).parent


def test_every_number_has_its_rule_and_at_least_twenty_look_at_every_event() -> None:
    assert {kind.name for kind in INVARIANTS} == {f"S{n}" for n in range(1, 27)}
    assert len(INVARIANTS) >= 20
    assert len(set(INVARIANTS)) == len(INVARIANTS)
    exported = [value for value in vars(invariants).values() if isinstance(value, type) and issubclass(value, Invariant)]
    assert set(exported) - {Invariant} == set(INVARIANTS)


@pytest.mark.parametrize("kind", INVARIANTS, ids=lambda kind: kind.__name__)
def test_each_says_what_it_is(kind: type[Invariant]) -> None:
    assert kind.__doc__
    assert kind.source
    assert all(number[0] in "IL" and number[1:].isdigit() for number in kind.protocol)
    assert kind.name in (invariants.__doc__ or "")


@pytest.mark.parametrize("kind", INVARIANTS, ids=lambda kind: kind.__name__)
def test_each_has_a_situation_in_which_it_fires_and_a_harmless_twin(kind: type[Invariant]) -> None:
    """By name: some test uses the class, says that it violates its number, and that it holds elsewhere."""
    for file in sorted(HERE.glob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith(f"test_{kind.name.lower()}_"):
                text = ast.unparse(node)
                if f"{kind.__name__}()" in text and f"violates('{kind.name}'" in text and "holds(" in text:
                    return
    pytest.fail(f"no test makes {kind.__name__} fire and hold")


def test_every_occasion_comes_in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever an invariant overrides is called: a rule without its occasion would be asleep."""
    called: set[str] = set()
    expected: set[str] = set()
    for kind in INVARIANTS:
        for occasion in [name for name, what in vars(kind).items() if name in vars(Invariant) and name[0] != "_" and callable(what)]:
            expected.add(f"{kind.__name__}.{occasion}")
            monkeypatch.setattr(kind, occasion, noting(vars(kind)[occasion], f"{kind.__name__}.{occasion}", called))
    for seed in range(1, 13):
        run(seed, plan=draw_directed(seed, "" if seed % 3 else "unclean"), events_max=6_000)
        if expected <= called:
            break
    assert not expected - called


def noting(method: object, name: str, called: set[str]) -> object:
    """The same method, which is noted when it is called."""

    def noted(*args: object, **named: object) -> object:
        called.add(name)
        return method(*args, **named)  # type: ignore[operator]

    return noted


def test_promises_say_what_they_are() -> None:
    assert [promise.name for promise in PROMISES] == ["L1", "L2", "L6", "L4", "L3", "L3", "L5", "L7"]
    assert all(promise.__doc__ and promise.source for promise in PROMISES)
    assert Checks.__doc__
