"""Bugs of topics that change: another min ISR, and numbers that are used again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve
from tests.simulation.mutants.entry import Mutant, Patch
from tests.simulation.mutants.followers import SAFETY

from replog.controller import election as election_module
from replog.controller import partitions as partitions_module
from replog.controller.changes import Topic
from replog.model import Assignment, PartitionState

__all__ = ["MUTANTS"]

_SHAPED: Mapping[str, Any] = {
    "workloads": ("append", "reshape"), "brokers": 3, "replicas": 3, "min_isr": 2, "partitions": 1, "think_ms": 250, "absent": 0,
}  # fmt: skip


def keeps_candidates(patch: Patch) -> None:
    """Whoever was electable under the old min ISR still is under a lower one, which lets the others commit without it."""

    def mutant(state: PartitionState, min_isr: int, *, replicas: Sequence[int]) -> PartitionState:
        return state if state.min_isr in (0, min_isr) else evolve(state, min_isr=min_isr)

    patch.setattr(election_module, "with_min_isr", mutant)


def adds_the_old_partition(patch: Patch) -> None:
    """A number that was removed and is added again gets the creation number that it had before."""

    def mutant(topic: Topic, added: Mapping[int, tuple[int, ...]]) -> Topic:
        fresh = {number: Assignment(replicas) for number, replicas in added.items()}
        return evolve(topic, assignments={**topic.assignments, **fresh}, version=topic.version + 1)

    patch.setattr(partitions_module, "_grown", mutant)


MUTANTS = (
    Mutant(
        "X40", "who was electable before min ISR was lowered still is", "KAFKA-16540", keeps_candidates,
        (*SAFETY, "S15"), {"only": ("kill", "isolate", "pause"), **_SHAPED},
        tests=("tests/unit/controller/test_min_isr.py::test_a_lower_min_isr_reaches_every_state_and_empties_its_elr",),
    ),
    Mutant(
        "S36b", "a number that is added again has its old creation number", "V3 H", adds_the_old_partition,
        (*SAFETY, "asked"), {"only": ("kill", "isolate", "pause"), **_SHAPED}, scenarios=("P-80b",),
        tests=("tests/unit/controller/test_partitions.py::test_a_number_that_is_added_again_is_another_log",),
    ),
)  # fmt: skip
