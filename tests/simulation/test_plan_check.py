"""Plans written by hand: what cannot be run is refused before it runs, and is no violation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from replog.errors import UsageError
from replog.testing.simulator.corpus import load
from replog.testing.simulator.plan import Fault, Plan, Shape, draw
from replog.testing.simulator.plan_check import check_plan
from replog.testing.simulator.running import run

pytestmark = pytest.mark.simulation

PLAN = Plan(5, Shape(), (), 1_000)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("brokers", 2, "replicas is 3, brokers is 2"),
        ("brokers", 0, "brokers is 0, and must be from 1 to 100"),
        ("brokers", 101, "brokers is 101, and must be from 1 to 100"),
        ("partitions", 10_000_000, "partitions is 10000000, and must be from 1 to 200"),
        ("clients", 1_000_000, "clients is 1000000, and must be from 1 to 200"),
        ("min_isr", 4, "min_isr is 4, replicas is 3"),
        ("partitions", 0, "partitions is 0, and must be from 1 to 200"),
        ("clients", 0, "clients is 0, and must be from 1 to 200"),
        ("delay_ms", 0, "delay_ms is 0, and must be 1 or more"),
        ("slow_ms", 2, "slow_ms is 2, and must be at least delay_ms, which is 3"),
        ("think_ms", 0, "think_ms is 0, and must be 1 or more"),
        ("slice_ms", -1, "slice_ms is -1, and must be 0 or more"),
        ("retention_ms", -1, "retention_ms is -1, and must be 0 or more"),
        ("drop", 1.0, "drop is 1.0, and must be from 0 to 0.5"),
        ("drift", 2.0, "drift is 2.0, and must be from 0 to 0.5"),
        ("repeat", float("nan"), "repeat is nan, and must be from 0 to 1"),
        ("session_ms", 0, "session_ms is 0; allowed are 100 to"),
        ("fetch_partition_bytes", 1, "fetch_partition_bytes_max is 1; allowed are 1024 to"),
        ("flush", "never", "flush is 'never'; allowed are"),
        ("segment_bytes", 1, "segment_bytes is 1; allowed are 256 to"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(field: str, value: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        run(5, plan=evolve(PLAN, shape=evolve(PLAN.shape, **{field: value})))


def test_a_shape_that_is_too_large_is_not_drawn() -> None:
    with pytest.raises(UsageError, match="brokers is 1000000000, and must be from 1 to 100"):
        draw(5, brokers=10**9)


@pytest.mark.parametrize("size", [{"brokers": 100}, {"partitions": 200}, {"clients": 200}])
def test_the_largest_shapes_can_be_run(size: dict[str, int]) -> None:
    assert run(5, plan=evolve(PLAN, shape=evolve(PLAN.shape, **size)), tail=0).violation is None


@pytest.mark.parametrize("field", ["at_ms", "length_ms", "other"])
def test_a_fault_before_the_beginning_is_refused(field: str) -> None:
    fault = evolve(Fault(10, "cut", "1", 100, 2), **{field: -1})
    with pytest.raises(UsageError, match=f"{field} of the fault cut is -1, and must be 0 or more"):
        run(5, plan=evolve(PLAN, faults=(fault,)))


def test_a_time_of_faults_below_0_is_refused() -> None:
    with pytest.raises(UsageError, match="safety_ms is -1"):
        run(5, plan=evolve(PLAN, safety_ms=-1))


def test_what_is_drawn_and_what_is_kept_can_be_run() -> None:
    for seed in range(300):
        check_plan(draw(seed))
    kept = sorted(Path(__file__).with_name("corpus").glob("*.json"))
    assert kept
    for file in kept:
        check_plan(load(file).plan)
