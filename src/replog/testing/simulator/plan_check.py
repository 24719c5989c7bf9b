"""What a plan must be to be run: a plan may be written by hand, and one that cannot be run is no violation."""

from __future__ import annotations

from typing import Any, Final

from replog.config import check_rack
from replog.errors import UsageError
from replog.testing.simulator.kinds import ROLES, check_kinds, check_names, roles_of
from replog.testing.simulator.plan import UNCLEAN, Plan, Shape, check_sizes
from replog.testing.simulator.workloads import WORKLOADS

__all__ = ["check_least", "check_plan"]

_LEAST: Final = {
    "slow_ms": 1,
    "delay_ms": 1,
    "think_ms": 1,
    "retention_bytes": 0,
    "retention_ms": 0,
    "flush_heard_ms": 0,
    "slice_bytes": 0,
    "slice_ms": 0,
    "stage_ms": 0,
    "poll_ms": 0,
    "flush_takes_ms": 0,
    "linger_ms": 0,
    "batch_bytes": 0,
    "buffer_bytes": 0,
    "auto_create_topics_max": 0,
}
"""Field of a shape -> the least that it may be. The configurations refuse the others themselves."""
_SHARES: Final = {"drop": 0.5, "repeat": 1.0, "slow": 1.0, "unsure": 0.5, "drift": 0.5}
"""Field of a shape -> the most that it may be; from 0 on."""


def check_plan(plan: Plan) -> None:
    """Raise UsageError for a plan that cannot be run, naming what is wrong and what it may be.

    That is a kind of fault, a target or a workload that there is not, sizes that no cluster has, times before the beginning, and
    whatever the configurations of brokers, clients and topics refuse.
    """
    shape = plan.shape
    check_sizes(shape)
    _check_shape(shape)
    check_kinds(fault.kind for fault in plan.faults)
    check_names("workload", shape.workloads, WORKLOADS)
    check_least("safety_ms", plan.safety_ms, 0)
    numbers = [str(broker) for broker in range(1, shape.brokers + 1)]
    for fault in plan.faults:
        everybody = roles_of(fault.kind) == ("all",)
        check_names(f"target of {fault.kind}", [fault.target], ["all"] if everybody else [*dict.fromkeys(ROLES), *numbers])
        for name in ("at_ms", "length_ms", "other"):
            check_least(f"{name} of the fault {fault.kind}", getattr(fault, name), 0)


def _check_shape(shape: Shape) -> None:
    for name, least in _LEAST.items():
        check_least(name, getattr(shape, name), least)
    check_names("one who allows unclean elections", [shape.unclean], UNCLEAN)
    for name, most in _SHARES.items():
        share = getattr(shape, name)
        if not 0 <= share <= most:
            raise UsageError(f"{name} is {share}, and must be from 0 to {most:g}")
    if shape.slow_ms < shape.delay_ms:
        raise UsageError(f"slow_ms is {shape.slow_ms}, and must be at least delay_ms, which is {shape.delay_ms}")
    shape.limits.check(shape.brokers)
    for rack in shape.racks:
        check_rack(rack)
    for make in (shape.broker_config, shape.client_config, shape.producer_config, shape.topic_config):
        make()  # refuses what it must


def check_least(name: str, value: Any, least: int) -> None:
    """Raise UsageError for less than the least that a value may be."""
    if value < least:
        raise UsageError(f"{name} is {value}, and must be {least} or more")
