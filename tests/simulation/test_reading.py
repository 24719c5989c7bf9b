"""The workload that reads to the end: what it takes for wrong, and that it reads through changes of leaders."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.simulation.reading import Past, ReadToEnd, judge

from replog.testing.simulator.ledger import Violation
from replog.testing.simulator.plan import draw
from replog.testing.simulator.running import run

pytestmark = pytest.mark.simulation

PLAN = draw(
    1, only=("expire", "kill"), workloads=("append", ReadToEnd.name), brokers=3, replicas=3, min_isr=2, partitions=1, clients=2,
    files=False, codec=False, think_ms=60, drop=0.0, slow=0.0, delay_ms=3, retention_bytes=0, retention_ms=0,
)  # fmt: skip


@pytest.mark.parametrize("found", [[], [3, 4], [3, 4, 5, 6, 7], [3, 4, 6], [4, 5, 6]])
def test_a_read_that_does_not_bring_what_it_should(found: list[int]) -> None:
    with pytest.raises(Violation, match=r"from 3 to 7: a read to the end brings") as caught:
        judge(0, 3, 7, found)
    assert caught.value.invariant == "read"


def test_a_read_that_brings_all() -> None:
    judge(0, 3, 7, [3, 4, 5, 6])
    judge(0, 3, 3, [])


def test_what_is_played_again_sees_the_clock_as_it_was() -> None:
    world = SimpleNamespace(now_ms=5)
    client: Any = SimpleNamespace(core=None, world=world)
    times: list[int] = []
    for played in ([5], [5, 7], [5, 7, 9]):
        world.now_ms = played[-1]
        past = Past(client, times)
        assert [past.now_ms() for _ in played] == played


def test_it_reads_while_faults_happen_and_the_same_seed_is_the_same_run() -> None:
    first, second = run(1, plan=PLAN), run(1, plan=PLAN)
    assert first.violation is None
    assert first.marks["a read to the end"] >= 20
    assert (first.trace_hash, first.marks) == (second.trace_hash, second.marks)
