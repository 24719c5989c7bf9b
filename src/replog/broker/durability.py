"""What a follower owes its leaders under flush="ack": how far its disk has come.

Nobody confirms a Flushed, so it is said again after each answer of the leader, an empty one included, until its effects
are seen: this leader says that the records are committed (it may be behind an earlier one), and this copy is in the ISR.
"""

from __future__ import annotations

from contextlib import suppress

from replog.errors import LogClosed, LogDamaged, LogFull
from replog.messages import Flushed, FlushedEntry
from replog.model import PartitionId
from replog.partition.partition import Partition
from replog.ports import FlushToken, Log, Outbox

__all__ = ["FlushReports", "flushed_aside"]


def flushed_aside(log: Log | None, token: FlushToken) -> bool:
    """A flush of a copy that is not served now, put away or failed. True if it failed: its disk is the others' disk all the same."""
    if log is not None:
        with suppress(LogDamaged, LogClosed, LogFull):
            log.flushed(token)
    return token.failed


class FlushReports:
    """The partitions followed here that are perhaps flushed further than their leader knows."""

    def __init__(self, broker_id: int, outbox: Outbox) -> None:
        self._broker_id = broker_id
        self._outbox = outbox
        self._owed: dict[PartitionId, Partition] = {}

    def owe(self, partition: Partition) -> None:
        """Something about this copy is new: its log, its disk, its leader or its place in the ISR."""
        if partition.config.flush == "ack":
            self._owed[partition.identity] = partition

    def forget(self, identity: PartitionId) -> None:
        """No longer served here."""
        self._owed.pop(identity, None)

    def send(self, leader: int | None, broker_epoch: int) -> None:
        """Tell a leader; it counts only what it has already accepted as a prefix of its own log."""
        if not self._owed:
            return
        entries: list[FlushedEntry] = []
        for identity, partition in list(self._owed.items()):
            following, end = partition.following, partition.log.flushed_end
            if following is None or partition.config.flush != "ack" or (end <= following.told and partition.in_sync):
                del self._owed[identity]
            elif following.leader == leader and following.agrees:
                entries.append(FlushedEntry(identity, partition.leader_epoch, end))
        if entries and leader is not None:
            self._outbox.messages.append((leader, Flushed(self._broker_id, broker_epoch, entries)))
