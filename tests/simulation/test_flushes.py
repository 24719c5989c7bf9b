"""A flush with a beginning and an end: what happens in between, and what it proves."""

from __future__ import annotations

import pytest
from attrs import evolve
from tests.simulation.mutants.catalogue import by_name
from tests.simulation.mutants.engines import breaks

from replog.testing.simulator.plan import draw
from replog.testing.simulator.running import run

pytestmark = pytest.mark.simulation

LATE = by_name("X92")


@pytest.mark.parametrize(("seed", "files"), [(2, True), (4, False), (20, True)])
def test_an_end_that_is_read_after_the_fsync_is_noticed(seed: int, files: bool) -> None:
    """On both kinds of logs; and only where a flush takes time."""
    plan = draw(seed, **{**LATE.directed, "files": files})
    violation = breaks(LATE, plan)
    assert violation is not None
    assert violation.invariant == "S3"
    assert breaks(LATE, evolve(plan, shape=evolve(plan.shape, flush_takes_ms=0))) is None


@pytest.mark.parametrize(("seed", "files"), [(3, False), (3, True)])
def test_the_product_goes_on_during_its_flushes(seed: int, files: bool) -> None:
    shape = {"flush": "ack", "flush_takes_ms": 400, "segment_bytes": 1_024, "retention_bytes": 0, "brokers": 3, "replicas": 3, "min_isr": 2}
    plan = draw(seed, only=("kill", "power"), files=files, think_ms=60, **shape)
    plan = evolve(plan, safety_ms=15_000)
    outcome, again = run(seed, plan=plan), run(seed, plan=plan)
    assert outcome.violation is None
    assert outcome.marks["a log is appended to during an fsync"] >= 10
    assert outcome.marks["a log gets another segment during an fsync"] >= 1
    ends = ("a process is killed during an fsync", "a machine loses power during an fsync")
    assert sum(outcome.marks.get(name, 0) for name in ends) >= 1
    assert (outcome.trace_hash, outcome.state_hash) == (again.trace_hash, again.state_hash)
