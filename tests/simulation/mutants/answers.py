"""Bugs of what clients are told: where an append went, and which record is the first at or after a time."""

from __future__ import annotations

from typing import Any

from tests.simulation.mutants.entry import Mutant, Patch

from replog.broker.appending import Appending
from replog.log.memory import MemoryLog
from replog.messages import ProduceEntry
from replog.model import ACKS_LEADER

__all__ = ["MUTANTS"]


def answers_with_the_end(patch: Patch) -> None:
    """An append under acks=1 is answered with the end of the log as it is by then."""
    append_one = Appending._append

    def mutant(self: Appending, sender: Any, entry: ProduceEntry, acks: int, timeout_ms: int, now_ms: int) -> Any:
        answered = append_one(self, sender, entry, acks, timeout_ms, now_ms)
        if answered is not None and not answered.error and acks == ACKS_LEADER:
            answered.base_offset = self._partitions[entry.partition].log.end_offset - 1
        return answered

    patch.setattr(Appending, "_append", mutant)


def finds_the_next_time(patch: Patch) -> None:
    """A time finds the first record after it, and passes over one of that very time."""
    offset_for_time = MemoryLog.offset_for_time
    patch.setattr(MemoryLog, "offset_for_time", lambda self, timestamp_ms: offset_for_time(self, timestamp_ms + 1))


_SHAPE: dict[str, Any] = {"brokers": 3, "replicas": 3, "partitions": 1, "files": False}

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "X32", "acks=1 is answered with another offset", "own", answers_with_the_end,
        ("S12",), {**_SHAPE, "flush": "os", "workloads": ("append", "burst")},
    ),
    Mutant(
        "X33", "a time does not find the record of that time", "own", finds_the_next_time,
        ("offsets",), {**_SHAPE, "retention_bytes": 0, "workloads": ("append", "offsets")},
    ),
)
