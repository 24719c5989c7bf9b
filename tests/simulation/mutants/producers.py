"""Bugs of sequences: what was sent twice is stored twice, answered too soon, or taken for something else."""

from __future__ import annotations

from typing import Any

from tests.simulation.mutants.entry import Mutant, Patch

from replog.broker.appending import Appending
from replog.broker.waiting import answer
from replog.errors import Code
from replog.log.log import FileLog
from replog.log.memory import MemoryLog
from replog.messages import ProducedEntry
from replog.model import ACKS_ALL
from replog.partition import partition as partition_module
from replog.ports import Writer

__all__ = ["MUTANTS"]


def appends_twice(patch: Patch) -> None:
    """A repetition is appended again."""
    patch.setattr(partition_module, "judge_sequence", lambda log, batch: (Code.NONE, None))


def learns_no_producers(patch: Patch) -> None:
    """Followers do not keep the table of producers: whoever leads next knows nobody, and takes everything for new."""
    for kind in (MemoryLog, FileLog):

        def mutant(self: Any, batches: Any, append_many: Any = kind.append_many) -> None:
            append_many(self, batches)
            self.producers.clear()
            self.producers.forgetful = True

        patch.setattr(kind, "append_many", mutant)


def answers_repetitions_at_once(patch: Patch) -> None:
    """A repetition is confirmed although its original is not committed yet."""
    append = Appending._append

    def mutant(self: Appending, sender: Any, entry: Any, acks: int, timeout_ms: int, now_ms: int) -> ProducedEntry | None:
        partition = self._partitions.get(entry.partition)
        end = -1 if partition is None else partition.log.end_offset
        answered = append(self, sender, entry, acks, timeout_ms, now_ms)
        if answered is not None or partition is None or acks != ACKS_ALL or partition.log.end_offset != end:
            return answered
        waiting = partition.waiting.committed
        parked = next(one for one in waiting if one.client == sender and one.request == entry.request)
        waiting.remove(parked)
        self._waiting.count -= 1
        return answer(partition, entry.request, Code.NONE, parked.base_offset)

    patch.setattr(Appending, "_append", mutant)


def compares_sequences_alone(patch: Patch) -> None:
    """Other records under a used sequence are taken for a repetition."""
    judge = partition_module.judge_sequence

    def mutant(log: Any, batch: Any) -> tuple[int, Writer | None]:
        error, original = judge(log, batch)
        if error == Code.INVALID_RECORD:
            known = log.producers.get(batch.producer_id)
            return Code.NONE, next(one for one in known.recent if one.base_sequence == batch.base_sequence)
        return error, original

    patch.setattr(partition_module, "judge_sequence", mutant)


THREE: dict[str, Any] = {"brokers": 3, "replicas": 3, "min_isr": 2, "partitions": 1, "files": False}
MUTANTS = (
    Mutant("M29", "a repetition is appended again", "Jepsen, KIP-98", appends_twice, ("S17",), scenarios=("P-100", "P-101")),
    Mutant("P-101", "a new leader does not know the producers", "KIP-98", learns_no_producers, ("S17",), scenarios=("P-101",)),
    Mutant(
        "P-103", "a repetition is confirmed before its original is committed", "own", answers_repetitions_at_once,
        ("S12",), scenarios=("P-103",),
    ),
    Mutant(
        "X08", "a sequence alone makes a repetition", "own", compares_sequences_alone,
        ("S12",), {"only": ("kill", "isolate", "expire"), "workloads": ("append", "restored"), **THREE},
        tests=("tests/simulation/mutants/test_steps.py::test_other_records_under_a_used_sequence_are_refused",),
    ),
)
