"""A bounded read: from here to there, partition by partition, then it ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from replog.client.fetching import FetchOp
from replog.client.offsets import OffsetOp
from replog.client.operations import AT_LATEST, recreated
from replog.client.results import Fetch
from replog.client.unpacking import unpack
from replog.errors import Code, TimedOut, rejection
from replog.messages import ListedOffset
from replog.model import PartitionId
from replog.records import Record

if TYPE_CHECKING:
    from replog.client.client import Client

__all__ = ["Reading"]

Bound = tuple[int | None, int | None]
"""(offset, None), or (None, what to ask the leader for)."""


class Reading:
    """Where a read begins and ends in each partition: decided here, once; `records` then yields what lies between."""

    def __init__(self, client: Client, topic: str, partitions: Sequence[int], start: Bound, stop: Bound, timeout_s: float | None) -> None:
        self._client = client
        self._topic = topic
        self._timeout_s = timeout_s
        self._ranges = self._resolve(partitions, start, stop)

    def _resolve(self, partitions: Sequence[int], start: Bound, stop: Bound) -> list[tuple[PartitionId, int, int, int]]:
        """(partition, first offset, offset after the last, leader epoch of who said so) for each; one round of questions to the leaders."""
        deadline_ms = self._client._deadline(self._timeout_s)
        wanted = [at for at in dict.fromkeys((AT_LATEST, start[1], stop[1])) if at is not None]
        asked = {number: {at: OffsetOp(self._topic, number, at, deadline_ms) for at in wanted} for number in partitions}
        questions = [op for ops in asked.values() for op in ops.values()]
        self._client._do_all(questions)
        for op in questions:
            if op.error is not None:
                raise op.error

        def offset(partition: int, bound: Bound) -> int:
            fixed, at = bound
            if fixed is not None or at is None:
                return fixed or 0
            op = asked[partition][at]
            listed: ListedOffset = op.result
            return op.latest if listed.offset < 0 else listed.offset

        ranges = []
        for partition in partitions:
            ops = asked[partition]
            latest: int = ops[AT_LATEST].result.offset
            first = offset(partition, start)
            if first > latest and start[0] is not None:  # a leader may have said where it begins after it said where records end
                text = f"offset {first} of {self._topic}-{partition} is out of range: records end at {latest}"
                raise rejection(Code.OFFSET_OUT_OF_RANGE, text, topic=self._topic, partition=partition)
            epoch = max(op.result.leader_epoch for op in ops.values())
            ranges.append((self._identity(partition, ops), first, min(offset(partition, stop), latest), epoch))
        return ranges

    def _identity(self, partition: int, ops: dict[int, OffsetOp]) -> PartitionId:
        """The one log that all answers about a partition came from."""
        places = [op.place for op in ops.values()]
        first = places[0]
        assert first is not None
        if any(place is None or place.identity != first.identity for place in places):
            raise recreated(self._topic, partition)
        return first.identity

    def records(self) -> Iterator[Record]:
        """The records, in order within each partition.

        Raises LogTruncated, OffsetOutOfRange (trimmed meanwhile), UnknownTopicId (deleted and created again), UndecodableBatch or TimedOut.
        """
        for identity, first, stop, epoch in self._ranges:
            yield from self._partition(identity, first, stop, epoch)

    def _partition(self, identity: PartitionId, offset: int, stop: int, known_epoch: int) -> Iterator[Record]:
        """`known_epoch`: whoever led before may not have all of it (KIP-320)."""
        epochs: Sequence[tuple[int, int]] = ()
        config = self._client._core.config
        waiting_since = -1
        while offset < stop:
            op = FetchOp(
                self._topic,
                identity.partition,
                offset,
                max_bytes=config.fetch_bytes,
                wait_ms=config.fetch_wait_ms,
                deadline_ms=self._client._deadline(self._timeout_s),
                known_epoch=known_epoch,
                epochs=epochs,
                expected=identity,
            )
            result: Fetch = self._client._do(op)
            for batch in result.batches:
                if batch.base_offset >= stop:
                    return
                for record in unpack(batch, self._topic, identity.partition, offset)[0]:
                    if record.offset >= stop:
                        return
                    yield record
            if result.next_offset == offset:
                # A new leader that does not yet know how much is committed: it will, or the time runs out.
                now_ms = self._client._driver.now_ms()
                waiting_since = now_ms if waiting_since < 0 else waiting_since
                if self._timeout_s is not None and now_ms - waiting_since >= self._timeout_s * 1000:
                    place = f"{self._topic}-{identity.partition}"
                    raise TimedOut(f"waited {self._timeout_s:g} s for {place} to serve offset {offset}, which was committed before")
            else:
                waiting_since = -1
            offset, known_epoch, epochs = result.next_offset, result.known_epoch, result.epochs
