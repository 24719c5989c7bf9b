"""Clients leave a leader that stands still, whichever of the two ends of the link goes quiet."""

from __future__ import annotations

import pytest
from attrs import evolve

from replog.testing.simulator.plan import Fault, Shape, draw
from replog.testing.simulator.running import run

pytestmark = pytest.mark.simulation

MARK = "a request leaves a silent leader for the new one"


@pytest.mark.parametrize("seed", range(1, 4))
def test_requests_leave_a_leader_that_stands_still(seed: int) -> None:
    shape = Shape(drop=0.0, repeat=0.0, slow=0.0, unsure=0.0)
    plan = evolve(draw(seed), seed=seed, shape=shape)
    paused = run(seed, plan=evolve(plan, faults=(Fault(2_000, "pause", "leader", 4 * shape.session_ms),)))
    assert paused.violation is None
    assert paused.befallen == {"pause": 1}
    assert paused.marks[MARK] > 0
    calm = run(seed, plan=evolve(plan, faults=()))
    assert calm.violation is None
    assert MARK not in calm.marks
