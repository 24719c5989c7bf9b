"""Limits that are drawn small: seldom, never below what a cluster needs, kept in files as everything else, and met."""

from __future__ import annotations

import attrs
import pytest
from attrs import evolve

from replog.errors import UsageError
from replog.testing.simulator.corpus import Failure, from_json, to_json
from replog.testing.simulator.limits import USUAL, Limits
from replog.testing.simulator.minimise import _simpler_values
from replog.testing.simulator.plan import Shape, draw
from replog.testing.simulator.plan_check import check_plan
from replog.testing.simulator.running import run

pytestmark = pytest.mark.simulation

PLANS = [draw(seed) for seed in range(400)]


def test_a_share_of_the_runs_has_some_and_each_is_drawn() -> None:
    small = [plan.shape.limits for plan in PLANS if plan.shape.limits != USUAL]
    assert 0.1 < len(small) / len(PLANS) < 0.2
    assert [name for name in attrs.asdict(USUAL) if not any(getattr(one, name) for one in small)] == []


def test_they_are_limits_of_the_configurations() -> None:
    shape = evolve(PLANS[0].shape, limits=Limits(slice_partitions_max=2, segment_ms=300))
    assert (shape.broker_config().slice_partitions_max, shape.topic_config().segment_ms) == (2, 300)
    without = evolve(shape, limits=USUAL)
    assert evolve(shape.broker_config(), slice_partitions_max=1_000) == without.broker_config()
    assert str(shape.limits) == "(slice_partitions_max 2, segment_ms 300)"


def test_writers_of_versions_are_remembered() -> None:
    for shape in (plan.shape for plan in PLANS if plan.shape.limits.producers_max and "once" in plan.shape.workloads):
        assert shape.limits.producers_max >= 2 * shape.clients


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (Limits(fetch_sessions_max=3), "fetch_sessions_max of the limits is 3, 3 brokers need 4"),
        (Limits(producers_max=-1), "producers_max of the limits is -1, and must be 0 or more"),
        (Limits(fetch_bytes_max=1), "fetch_bytes_max is 1; allowed are 4096 to"),
    ],
)
def test_what_no_cluster_can_do_with_is_refused(limits: Limits, says: str) -> None:
    plan = draw(1, brokers=3, replicas=3, min_isr=2, limits=limits)
    with pytest.raises(UsageError, match=says):
        check_plan(plan)


def test_they_are_kept_in_files_and_made_usual_one_by_one() -> None:
    limits = Limits(slice_partitions_max=2, producers_max=1)
    plan = draw(1, limits=limits)
    assert from_json(to_json(Failure(plan))).plan == plan
    assert from_json('{"seed": 1, "shape": {}, "faults": [], "safety_ms": 5}').plan.shape.limits == USUAL
    simpler = list(_simpler_values(attrs.fields(Shape).limits, limits))
    assert simpler[0] == USUAL
    assert {Limits(producers_max=1), Limits(slice_partitions_max=2)} <= set(simpler)


def test_they_are_met() -> None:
    """Fetches of clients find no room, and producers are forgotten: neither is a violation."""
    limits = Limits(1, 4_096, 4, 1, 4, 1, 20_000, 1, 5_000, 200)
    plan = draw(
        3, only=("kill", "isolate"), brokers=3, replicas=3, min_isr=2, partitions=3, clients=3, absent=0, limits=limits,
        workloads=("append", "follow", "reassign"), retention_ms=0, retention_bytes=0,
    )  # fmt: skip
    found = run(3, plan=plan)
    assert found.violation is None
    assert found.marks["Fetched says QuotaExceeded"] > 0
    assert found.acknowledged > 0
