"""A fixed set of seeds must pass, and a seed is the same run everywhere."""

from __future__ import annotations

from functools import cache

import attrs
import pytest

from replog.testing.simulator.kinds import FILES, KINDS
from replog.testing.simulator.plan import Fault, Shape, draw
from replog.testing.simulator.running import Outcome, run

pytestmark = pytest.mark.simulation

LONG = (3, 11, 25, 27, 28)
"""Of the first forty seeds those five that take as long as thirty others: they are run with the rest, by the ledger's campaigns."""
TOGETHER = [seed for seed in range(1, 21) if seed not in LONG]
"""Those that take a second or two, and are looked at together: by one process of the tests, then."""
ALONE = [seed for seed in range(21, 41) if seed not in LONG]


@cache
def outcome(seed: int) -> Outcome:
    """One run of a seed: several tests look at it."""
    return run(seed)


def is_sound(seed: int, found: Outcome) -> None:
    replay = f"replay: python -m replog.testing.simulator {seed}"
    assert found.violation is None, "\n".join([str(found.violation), str(found.plan), *found.tail, replay])
    assert found.acknowledged > 0


def test_the_first_seeds_violate_nothing_and_are_runs_of_their_own_with_every_kind_of_fault() -> None:
    outcomes = {seed: outcome(seed) for seed in TOGETHER}
    for seed, found in outcomes.items():
        is_sound(seed, found)
    assert len({found.trace_hash for found in outcomes.values()}) == len(TOGETHER)
    happened = {kind: sum(one.befallen.get(kind, 0) for one in outcomes.values()) for kind in KINDS if kind not in (*FILES, "strand")}
    assert all(happened.values()), happened
    assert sum(one.acknowledged for one in outcomes.values()) > 2_000


@pytest.mark.parametrize("seed", ALONE)
def test_seed_violates_nothing(seed: int) -> None:
    is_sound(seed, run(seed))


@pytest.mark.parametrize("kind", FILES)
def test_every_kind_of_fault_of_a_disk_happens(kind: str) -> None:
    """They are few in plans as they come: most runs keep their logs in memory."""
    plan = draw(1, only=(kind, "kill"), files=True, brokers=3, replicas=3, min_isr=2, partitions=1, clients=1)
    assert run(1, plan=plan).befallen[kind] > 0


def test_the_same_plan_is_the_same_run() -> None:
    assert run(1).summary == outcome(1).summary


def test_a_run_without_a_trace_is_the_same_run() -> None:
    told, untold = outcome(1), run(1, tail=0)
    assert (untold.trace_hash, untold.tail) == ("", [])
    assert attrs.evolve(untold, trace_hash=told.trace_hash, tail=told.tail) == told


def test_a_plan_can_be_run_without_some_of_its_faults() -> None:
    plan = attrs.evolve(draw(1), faults=(Fault(1_000, "kill", "leader", 500),))
    found = run(1, plan=plan)
    assert found.violation is None
    assert found.befallen == {"kill": 1}


def test_no_faults_leave_no_trace_in_the_store() -> None:
    """Nothing but the first state of each partition: what happens to an ISR has a cause in the plan."""
    shape = Shape(partitions=2, lag_ms=2_000)
    found = run(1, plan=attrs.evolve(draw(1), shape=shape, faults=()), tail=1_000_000)
    assert found.violation is None
    assert sum(" state " in line for line in found.tail) == shape.partitions


def test_the_time_of_faults_can_be_cut_short() -> None:
    whole, short = outcome(5), run(5, events_max=outcome(5).events // 2)
    assert short.violation is None
    assert short.events < whole.events
