"""The line of a simulated node to the store: in order whatever happens to it, and as troubled as the faults on it say."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.simulation.checks.situations import booted

from replog.metadata.memory import MemoryStore
from replog.ports import Create, StoreCall, StoreResult
from replog.testing.simulator.plan import Fault
from replog.testing.simulator.refusals import Refusals
from replog.testing.simulator.store import StoreLine


class Time:
    """Virtual time alone."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.refusals = Refusals()
        self.due: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = 0

    def at(self, delay_ms: int, what: Callable[..., None], *args: Any) -> None:
        self._order += 1
        self.due.append((self.now_ms + delay_ms, self._order, what, args))

    def applied(self, ops: list[Any]) -> None:
        """Nobody looks."""

    def note(self, text: str) -> None:
        """Nobody reads."""

    def run(self, until_ms: int) -> None:
        while self.due and min(self.due)[0] <= until_ms:
            one = min(self.due)
            self.due.remove(one)
            self.now_ms = one[0]
            one[2](*one[3])
        self.now_ms = until_ms


@pytest.mark.parametrize("seed", range(20))
def test_calls_and_answers_keep_their_order_over_outages(seed: int) -> None:
    """As those of one connection do: also what waits while the store is not reached, and what is asked for meanwhile."""
    time, heard, made = Time(), [], []
    store = MemoryStore()
    session = store.session()
    commit = session.commit

    def committed(ops: Any) -> Any:
        made.append(int(ops[0].path[2:]))
        return commit(ops)

    session.commit = committed  # type: ignore[method-assign]

    def deliver(address: Any, result: StoreResult) -> None:
        heard.append(result.call)

    line, chance = StoreLine(time, "1.1", session, deliver, chance=random.Random(seed)), random.Random(-seed)
    for call in range(60):
        line.call(1, StoreCall(call, "commit", [Create(f"/n{call}", b"")]))
        if call % 5 == 2:
            line.reachable = False
        if call % 5 == 4:
            line.mend()
        time.run(time.now_ms + chance.randint(0, 12))
    line.mend()
    time.run(10_000)
    assert heard == list(range(60))
    assert made == sorted(made)
    assert len(made) > 20, "some were not carried out: nobody heard what became of them"


def test_troubles_nest_and_outlive_a_session() -> None:
    world = booted(unsure=0.02)
    node = world.nodes[1]

    def troubles() -> tuple[float, int]:
        assert node.line is not None
        return node.line.unsure, node.line.slow_ms

    assert troubles() == (0.02, 0)
    for fault in (Fault(0, "unsure", "1", 500), Fault(0, "unsure", "1", 4_000), Fault(0, "slow_store", "1", 4_000)):
        world.nemesis._befall(fault)
    assert troubles() == (0.5, 1_000)
    world.run_until(world.now_ms + 1_000)
    assert troubles() == (0.5, 1_000), "one of two is over"
    before = node.line
    assert node.expire()
    world.run_until(world.now_ms + 2_000)
    assert node.line is not before
    assert troubles() == (0.5, 1_000), "the session after it has them, too"
    world.run_until(world.now_ms + 2_000)
    assert troubles() == (0.02, 0)
    world.nemesis._befall(Fault(0, "unsure", "1", 400))
    world.heal()
    assert troubles() == (0.0, 0)


def test_a_fault_that_finds_nobody_is_none() -> None:
    world = booted()
    world.nodes[1].kill()
    for kind in ("kill", "power", "wipe", "restore", "expire", "reset", "full"):
        world.nemesis._befall(Fault(0, kind, "1", 100))
    assert world.nemesis.befallen == {}
    world.nemesis._befall(Fault(0, "pause", "1", 5_000))  # whoever starts meanwhile stands still
    assert world.nemesis.befallen == {"pause": 1}
