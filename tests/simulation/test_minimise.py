"""The minimiser: on conditions made up for it, where the smallest plan is known, and on guards taken away from the real code."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import attrs
import pytest

from replog.partition.partition import Partition
from replog.testing.simulator.ledger import Violation
from replog.testing.simulator.minimise import Fails, fails, minimise
from replog.testing.simulator.plan import Fault, Plan, Shape, draw

pytestmark = pytest.mark.simulation

SHAPE = Shape(
    brokers=5,
    replicas=3,
    min_isr=2,
    partitions=3,
    flush="os",
    clients=3,
    drop=0.05,
    repeat=0.1,
    slow=0.05,
    slow_ms=2_000,
    delay_ms=15,
    unsure=0.1,
    session_ms=3_000,
    lag_ms=1_000,
    fetch_partition_bytes=1_024,
    think_ms=20,
)
FAULTS = tuple(Fault(517 * n, ("kill", "cut", "pause", "expire")[n % 4], "leader", 800 + 7 * n, 2) for n in range(1, 41))
PLAN = Plan(7, SHAPE, FAULTS, 27_311)


def broken(condition: Any, invariant: str = "S1") -> Fails:
    """A condition on plans, as something that fails."""
    return lambda plan: Violation(invariant, "as asked") if condition(plan) else None


def test_the_faults_that_matter_remain() -> None:
    wanted = {FAULTS[3].at_ms, FAULTS[17].at_ms, FAULTS[38].at_ms}
    found = minimise(PLAN, fails=broken(lambda plan: wanted <= {fault.at_ms for fault in plan.faults}))
    assert {fault.at_ms for fault in found.plan.faults} == wanted
    assert found.violation.invariant == "S1"
    assert found.runs < 400


def test_a_failure_that_needs_no_fault_has_none() -> None:
    found = minimise(PLAN, fails=broken(lambda plan: True))
    assert found.plan.faults == ()
    assert found.plan.seed == PLAN.seed


def test_the_time_of_faults_ends_where_the_failure_shows() -> None:
    found = minimise(PLAN, fails=broken(lambda plan: plan.safety_ms >= 6_400))
    assert found.plan.safety_ms == 7_000


def test_the_surroundings_become_simple() -> None:
    shape = minimise(PLAN, fails=broken(lambda plan: plan.shape.partitions >= 2)).plan.shape
    assert (shape.brokers, shape.replicas, shape.min_isr, shape.partitions, shape.clients) == (1, 1, 1, 2, 1)
    assert (shape.drop, shape.repeat, shape.slow, shape.unsure) == (0.0, 0.0, 0.0, 0.0)


def test_what_matters_of_the_surroundings_remains() -> None:
    found = minimise(PLAN, fails=broken(lambda plan: plan.shape.unsure > 0 and plan.shape.clients > 1 and plan.shape.replicas == 3))
    shape = found.plan.shape
    assert (shape.unsure, shape.clients, shape.replicas, shape.brokers, shape.drop) == (SHAPE.unsure, 2, 3, 3, 0.0)


def test_a_fault_becomes_short_and_round() -> None:
    found = minimise(PLAN, fails=broken(lambda plan: any(f.kind == "pause" and f.length_ms >= 50 and f.at_ms > 3_300 for f in plan.faults)))
    (fault,) = found.plan.faults
    assert (fault.kind, fault.length_ms, fault.other) == ("pause", 100, 0)
    assert fault.at_ms % 100 == 0


def test_faults_stay_in_order() -> None:
    """Neither may be rounded past the other, or past the end."""
    close = attrs.evolve(PLAN, faults=(Fault(1_600, "kill", "leader", 5), Fault(1_700, "cut", "leader", 5)), safety_ms=1_720)
    found = minimise(close, fails=broken(lambda plan: _follows(plan, "kill", "cut") and plan.safety_ms == 1_720))
    assert [(fault.at_ms, fault.kind) for fault in found.plan.faults] == [(1_600, "kill"), (1_700, "cut")]


def _follows(plan: Plan, first: str, second: str) -> bool:
    times = [fault.at_ms for fault in plan.faults]
    assert [*times, plan.safety_ms] == sorted([*times, plan.safety_ms])
    kinds = [fault.kind for fault in plan.faults]
    return first in kinds and second in kinds[kinds.index(first) :]


def test_another_invariant_is_another_failure() -> None:
    def either(plan: Plan) -> Violation | None:
        return Violation("S1" if len(plan.faults) >= 10 else "S2", "as asked")

    kept = minimise(PLAN, fails=either)
    assert (len(kept.plan.faults), kept.violation.invariant) == (10, "S1")
    loose = minimise(PLAN, fails=either, any_invariant=True)
    assert (len(loose.plan.faults), loose.violation.invariant) == (0, "S2")


def test_only_clusters_that_can_be_built_are_tried() -> None:
    named = attrs.evolve(PLAN, faults=(Fault(5, "kill", "4", 10), Fault(6, "cut", "leader", 10, other=3)))

    def legal(plan: Plan) -> bool:
        assert plan.shape.min_isr <= plan.shape.replicas <= plan.shape.brokers
        return len(plan.faults) == 2 and plan.faults[0].target == "4"

    assert minimise(named, fails=broken(legal)).plan.shape.brokers == 4


def test_a_cluster_keeps_what_it_needs_to_survive_its_faults() -> None:
    """Losses on every broker at once are survived only where all is flushed first: without, the failure would be another one."""
    power = attrs.evolve(PLAN, shape=attrs.evolve(SHAPE, flush="ack"), faults=(Fault(5, "power_all", "all", 10),))
    assert minimise(power, fails=broken(lambda plan: plan.faults)).plan.shape.flush == "ack"
    wiped = attrs.evolve(PLAN, faults=(Fault(5, "wipe", "leader", 10),))
    assert minimise(wiped, fails=broken(lambda plan: plan.faults)).plan.shape.min_isr == 2


def test_many_faults_that_only_keep_in_step_give_way_to_another_seed() -> None:
    found = minimise(PLAN, fails=broken(lambda plan: len(plan.faults) == 40 or (plan.seed != PLAN.seed and len(plan.faults) >= 2)))
    assert len(found.plan.faults) == 2
    assert found.plan.seed != PLAN.seed


def test_runs_are_bounded_and_none_is_wasted() -> None:
    runs: list[Plan] = []

    def counting(plan: Plan) -> Violation | None:
        runs.append(plan)
        return Violation("S1", "as asked") if len(plan.faults) >= 7 else None

    assert minimise(PLAN, fails=counting, runs_max=30).runs == len(runs) == 30
    runs.clear()
    assert minimise(PLAN, fails=counting, runs_max=10_000).runs == len(runs) == len(set(runs)) < 1_000


def test_the_same_plan_gives_the_same_result() -> None:
    rule = broken(lambda plan: sum(fault.kind == "kill" for fault in plan.faults) >= 3)
    assert minimise(PLAN, fails=rule).plan == minimise(PLAN, fails=rule).plan


def test_a_plan_that_violates_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="the plan of seed 7 violates nothing"):
        minimise(PLAN, fails=lambda plan: None)


def test_an_exception_that_escapes_is_a_failure_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def bad(world: Any) -> None:
        raise AssertionError("on purpose")

    monkeypatch.setattr(import_module("replog.testing.simulator.running"), "boot", bad)
    violation = fails(draw(1))
    assert violation is not None
    assert str(violation) == "raised-AssertionError: on purpose"


def test_a_guard_taken_away_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """M01: a follower drops what lies above its high watermark at each change of leader (KIP-101)."""
    become = Partition.become

    def mutant(self: Partition, notice: Any, now_ms: int) -> int:
        epoch = self.leader_epoch
        error = become(self, notice, now_ms)
        if not error and self.following is not None and self.leader_epoch > epoch:
            self.log.truncate_to(max(self.high_watermark, self.log.start_offset))
        return error

    monkeypatch.setattr(Partition, "become", mutant)
    directed = {"only": ("kill",), "brokers": 3, "replicas": 3, "min_isr": 2}
    plan = next(plan for plan in (draw(seed, **directed) for seed in range(1, 40)) if fails(plan) is not None)
    assert len(plan.faults) > 5
    found = minimise(plan, runs_max=150)
    assert len(found.plan.faults) <= 2
    again = fails(found.plan)
    assert again is not None
    assert str(again) == str(found.violation)
