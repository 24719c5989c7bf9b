"""Questions about offsets and epochs, answered from what this broker leads; and why it does not know a partition."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from typing import Final

from replog.broker.routing import Routing
from replog.errors import Code, LogCorrupt, LogDamaged, LogFull
from replog.messages import (
    Epochs,
    EpochsEntry,
    EpochsResult,
    ListedOffset,
    ListedOffsets,
    ListOffsets,
    ListOffsetsEntry,
    OffsetsForLeaderEpoch,
    ReplicaState,
)
from replog.model import PartitionId
from replog.partition.partition import Partition
from replog.ports import Log, LogDirectory

__all__ = ["EARLIEST", "LATEST", "TIMES_MAX", "Offsets"]

EARLIEST: Final = -2
LATEST: Final = -1
TIMES_MAX: Final = 1_000
"""Partitions that one request may have searched for a time: a search reads the log, while everything else waits. Clients ask for one."""


class Offsets:
    """Reads partitions, changes nothing. `failed` hears of a copy that cannot be read, and why; `full` of one that cannot for now."""

    def __init__(
        self,
        partitions: Mapping[PartitionId, Partition],
        routing: Routing,
        *,
        failed: Callable[[Partition, str], None],
        full: Callable[[Partition, LogFull], None],
    ) -> None:
        self._partitions = partitions
        self._routing = routing
        self._failed = failed
        self._full = full

    def list(self, message: ListOffsets) -> ListedOffsets:
        """Earliest, latest, or the first batch with a record at or after a time, per entry: in order, and all of this moment.

        A second time for a partition is refused with INVALID_REQUEST, as Kafka refuses a partition that is named twice; a time for one
        more than `TIMES_MAX` partitions with QUOTA_EXCEEDED: it may be asked for in another request.
        """
        searched: set[PartitionId] = set()
        return ListedOffsets(message.request, [self._offset(entry, searched) for entry in message.entries])

    def _offset(self, entry: ListOffsetsEntry, searched: set[PartitionId]) -> ListedOffset:
        partition = self._partitions.get(entry.partition)
        if partition is None:
            return ListedOffset(entry.partition, self.unknown(entry.partition))
        error = partition.check_epoch(entry.leader_epoch)
        if not error and partition.leading is None:
            error = Code.STORAGE_ERROR if partition.failed else Code.NOT_LEADER_OR_FOLLOWER
        log = partition.log
        listed = ListedOffset(entry.partition, error, -1, -1, partition.leader_epoch, log.end_offset, log.start_offset)
        if error:
            return listed
        if entry.at == EARLIEST:
            listed.offset = log.start_offset
            return listed
        latest = partition.latest_offset()
        if latest is None:
            listed.error = Code.OFFSET_NOT_AVAILABLE
        elif entry.at == LATEST:
            listed.offset = latest
        elif entry.partition in searched:
            listed.error = Code.INVALID_REQUEST
        elif len(searched) >= TIMES_MAX:
            listed.error = Code.QUOTA_EXCEEDED
        else:
            searched.add(entry.partition)
            self._search(partition, entry.at, latest, listed)
        return listed

    def _search(self, partition: Partition, at: int, latest: int, listed: ListedOffset) -> None:
        try:
            found = partition.log.offset_for_time(at)
        except LogFull as problem:
            self._full(partition, problem)
            listed.error = Code.LOG_DIRECTORY_FULL
            return
        except (LogCorrupt, LogDamaged) as problem:  # found when read, as by a fetch: this copy leads no longer
            self._failed(partition, str(problem))
            listed.error = Code.STORAGE_ERROR
            return
        if found is not None and found[0] < latest:
            listed.offset, listed.timestamp_ms = found

    def ends(self, message: OffsetsForLeaderEpoch) -> Epochs:
        """Where an epoch ends in the leader's log, per entry (KIP-320)."""
        return Epochs(message.request, [self._end(entry) for entry in message.entries])

    def _end(self, entry: EpochsEntry) -> EpochsResult:
        partition = self._partitions.get(entry.partition)
        if partition is None:
            return EpochsResult(entry.partition, self.unknown(entry.partition))
        error = partition.check_epoch(entry.leader_epoch)
        if not error and partition.leading is None:
            error = Code.NOT_LEADER_OR_FOLLOWER
        if error:
            return EpochsResult(entry.partition, error)
        found = partition.log.epochs.end_offset_for(entry.epoch, partition.log.end_offset)
        return EpochsResult(entry.partition) if found is None else EpochsResult(entry.partition, Code.NONE, found.epoch, found.end)

    def states(
        self, identities: builtins.list[PartitionId], directory: LogDirectory, left: Mapping[PartitionId, Log]
    ) -> builtins.list[ReplicaState]:
        """How far copies here reach, served or not; -1 and 0 for one that is missing (KIP-966).

        Nothing of one that has failed: it is not empty. The question waits until the controller hears of that, or the broker restarts.
        `left`: those that failed with their directory while nobody served them.
        """
        states: builtins.list[ReplicaState] = []
        for identity in identities:
            partition = self._partitions.get(identity)
            log = partition.log if partition is not None else directory.get(identity)
            if (partition is not None and partition.failed) or (log is not None and left.get(identity) is log):
                continue
            if log is None:
                states.append(ReplicaState(identity, -1, 0))
                continue
            watermark = partition.high_watermark if partition is not None else -1
            states.append(ReplicaState(identity, log.last_epoch, log.end_offset, watermark))
        return states

    def unknown(self, identity: PartitionId) -> int:
        """Why there is no such partition here: its topic is gone, the number means another log now, or it lives elsewhere (P-82)."""
        if identity.topic_id not in self._routing.topics:
            return Code.UNKNOWN_TOPIC_ID
        known = self._routing.partition(identity.topic_id, identity.partition)
        if known is None:
            return Code.UNKNOWN_TOPIC_OR_PARTITION
        return Code.NOT_LEADER_OR_FOLLOWER if known.creation == identity.creation else Code.INCONSISTENT_TOPIC_ID
