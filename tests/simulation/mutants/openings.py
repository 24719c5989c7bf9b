"""Bugs of the blocking side of a client: of batches that stay open, of the room that they share, and of what a consumer has buffered."""

from __future__ import annotations

from typing import Any

from tests.simulation.mutants.entry import Mutant, Patch

from replog.client.batches import Batch
from replog.client.followed import Followed
from replog.client.producer import Producer
from replog.client.queues import PartitionQueue
from replog.model import PartitionId
from replog.records import Record

__all__ = ["MUTANTS"]


def seals_over_the_last(patch: Patch) -> None:
    """What lingers is sealed while somebody adds to it: the last record of a batch whose time is up is lost, count and offsets stay."""
    seal_due = PartitionQueue._seal_due

    def mutant(self: PartitionQueue, now_ms: int) -> list[Batch]:
        found = seal_due(self, now_ms)
        for batch in found:
            batch.values[-1] = batch.values[0]
        return found

    patch.setattr(PartitionQueue, "_seal_due", mutant)


def leaves_open_what_lingers(patch: Patch) -> None:
    """A flush waits for what is under way, and leaves open what lingers."""

    def mutant(self: Producer) -> list[Batch]:
        return [batch for batch in self._writer.unsettled() if batch is not batch.queue.open]

    patch.setattr(Producer, "_send_open", mutant)


def keeps_what_was_buffered(patch: Patch) -> None:
    """A consumer that is moved elsewhere hands out what it had buffered before."""
    seek = Followed.seek

    def mutant(self: Followed, offset: int | None, wanted: int | None, seen: PartitionId | None) -> None:
        kept, unread = self.buffer[self.at :], list(self.unread)
        seek(self, offset, wanted, seen)
        self.buffer.extend(kept)
        self.unread.extend(unread)

    patch.setattr(Followed, "seek", mutant)


def stands_behind_what_it_has_fetched(patch: Patch) -> None:
    """The position of a consumer is that of its last answer, not of the last record that it has handed out."""

    def mutant(self: Followed, count: int) -> tuple[list[Record], int, int | None]:
        return self.buffer, self.at + count, self.fetch_offset

    patch.setattr(Followed, "behind", mutant)


_OPEN: dict[str, Any] = {"workloads": ("produce",), "retention_bytes": 0, "retention_ms": 0, "linger_ms": 20, "files": False}
_READ: dict[str, Any] = {"workloads": ("append", "consume"), "retention_bytes": 0, "retention_ms": 0, "files": False}

MUTANTS = (
    Mutant("X93", "the last record of a batch that lingered is lost", "own", seals_over_the_last, ("readable", "history"), _OPEN),
    Mutant("X94", "a flush leaves open batches", "own", leaves_open_what_lingers, ("producer",), {**_OPEN, "linger_ms": 2_000}),
    Mutant("X95", "a seek keeps what was buffered", "own", keeps_what_was_buffered, ("history", "consumer"), _READ),
    Mutant("X96", "a position is that of what was fetched", "own", stands_behind_what_it_has_fetched, ("history", "consumer"), _READ),
)
