"""Bugs of elections on demand and of controlled shutdown."""

from __future__ import annotations

from typing import Any

from attrs import evolve
from tests.simulation.mutants.entry import Mutant, Patch
from tests.simulation.mutants.followers import SAFETY

from replog.controller import elections as elections_module
from replog.controller import shutdown as shutdown_module
from replog.controller.controller import Controller
from replog.controller.decision import Decision
from replog.controller.shutdown import _drained
from replog.model import PartitionState

__all__ = ["MUTANTS"]


def prefers_outside_the_isr(patch: Patch) -> None:
    """The preferred leader takes over if it lives, in sync or not."""
    preferred = elections_module.preferred

    def mutant(state: PartitionState, *, replicas: Any, live: Any, **given: Any) -> PartitionState:
        first = replicas[0]
        if state.leader in (None, first) or first not in live:
            return preferred(state, replicas=replicas, live=live, **given)
        isr = tuple(r for r in replicas if r in state.isr or r == first)
        return evolve(state, leader=first, leader_epoch=state.leader_epoch + 1, isr=isr)

    patch.setattr(elections_module, "preferred", mutant)


def grants_before_it_is_stored(patch: Patch) -> None:
    """A broker that wants to leave is told that it may, before what it leads has been moved."""

    def mutant(controller: Controller, broker_id: int, event: Any) -> Decision | None:
        return _drained(controller, broker_id, event) if broker_id not in controller.cluster.leaving() else None

    patch.setattr(shutdown_module, "_drained", mutant)


MUTANTS = (
    Mutant(
        "P-92", "a preferred leader is elected although it is not in the ISR", "KAFKA-9866", prefers_outside_the_isr, SAFETY,
        {"only": ("kill", "isolate", "lag"), "workloads": ("append", "lead"), "brokers": 3, "replicas": 3, "min_isr": 2},
        scenarios=("P-92",),
        tests=("tests/unit/controller/test_elections.py::test_a_preferred_leader_that_is_not_in_sync_is_not_elected",),
    ),
    Mutant(
        "P-93", "a broker may leave before what it leads is stored as moved", "KAFKA-14292, PROTOCOL 4.9", grants_before_it_is_stored,
        scenarios=("P-93",),
        tests=("tests/unit/controller/test_shutdown.py::test_p_93_a_hundred_partitions_are_moved_before_it_is_granted",),
    ),
)  # fmt: skip
