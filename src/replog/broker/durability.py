"""What a follower owes its leaders under flush="ack": how far its disk has come.

Nobody confirms a Flushed, so it is said again, partition by partition, until its effects are seen: this leader says that the records
are committed (it may be behind an earlier one), and this copy is in the ISR.
"""

from __future__ import annotations

from contextlib import suppress

from replog.broker.due import Due
from replog.config import BrokerConfig
from replog.errors import LogClosed, LogDamaged, LogFull
from replog.messages import Flushed, FlushedEntry
from replog.model import PartitionId
from replog.partition.following import Following
from replog.partition.partition import Partition
from replog.ports import FlushToken, Log, Outbox

__all__ = ["FlushReports", "flushed_aside", "is_heard"]


def flushed_aside(log: Log | None, token: FlushToken) -> bool:
    """A flush of a copy that is not served now, put away or failed. True if it failed: its disk is the others' disk all the same."""
    if log is not None:
        with suppress(LogDamaged, LogClosed, LogFull):
            log.flushed(token)
    return token.failed


class FlushReports:
    """The partitions followed here that are perhaps flushed further than their leader knows."""

    def __init__(self, broker_id: int, outbox: Outbox, config: BrokerConfig) -> None:
        self._broker_id = broker_id
        self._outbox = outbox
        self._again_ms = 2 * config.fetch_wait_ms
        """An idle leader tells its high watermark with its next answer only: after one wait it has been heard of what is not lost."""
        self.owed: dict[PartitionId, Partition] = {}
        """There is news about them since the last `send`."""
        self._said: dict[PartitionId, FlushedEntry] = {}
        """What their leaders were told last, and have not confirmed yet."""
        self.again = Due()
        """The same partitions, by when they are told it again: `send` is due then even if nothing is owed. A broker looks at both in each
        turn, which saves it two calls of Python, or three."""

    def owe(self, partition: Partition) -> None:
        """Something about this copy is new: its log, its disk, its leader or its place in the ISR."""
        if partition.config.flush == "ack":
            self.owed[partition.identity] = partition

    def forget(self, identity: PartitionId) -> None:
        """No longer served here, or nothing to say."""
        self.owed.pop(identity, None)
        self._said.pop(identity, None)
        self.again.drop(identity)

    def send(self, now_ms: int, broker_epoch: int) -> None:
        """End of a poll: one message to each leader that has not heard an end, or has not confirmed it for so long.

        It counts only what it has already accepted as a prefix of its own log; once it has, there is news.
        """
        owed, self.owed = self.owed, {}
        for partition in self.again.take(now_ms):
            del self._said[partition.identity]
            owed[partition.identity] = partition
        by_leader: dict[int, list[FlushedEntry]] = {}
        for identity, partition in owed.items():
            following = partition.following
            if following is None or is_heard(partition, following):
                self.forget(identity)
            elif following.leader is not None and following.agrees:
                entry = FlushedEntry(identity, partition.leader_epoch, partition.log.flushed_end)
                if entry != self._said.get(identity):
                    self._said[identity] = entry
                    self.again.put(partition, now_ms + self._again_ms)
                    by_leader.setdefault(following.leader, []).append(entry)
        for leader, entries in by_leader.items():
            self._outbox.messages.append((leader, Flushed(self._broker_id, broker_epoch, entries)))


def is_heard(partition: Partition, following: Following) -> bool:
    """Whether nobody waits to hear how far this follower has flushed."""
    return partition.config.flush != "ack" or (partition.log.flushed_end <= following.told and partition.in_sync)
