"""Appends that wait: for the high watermark (acks=all), or for the leader's own flush (acks=1 under flush="ack")."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque

from attrs import define, field

from replog.broker.share import share_of
from replog.errors import Code
from replog.messages import Produced, ProducedEntry, Published
from replog.model import ACKS_ALL, Address, PartitionId
from replog.partition.partition import Partition
from replog.ports import Outbox

__all__ = ["WaitingAppend", "WaitingAppends", "answer", "published"]


@define
class WaitingAppend:
    """One appended entry of a Produce that cannot be answered yet."""

    client: Address
    request: int
    acks: int
    base_offset: int
    end_offset: int
    deadline_ms: int
    is_publication: bool = False
    """Answered by a Published, which says where the work ends."""


@define
class _Queue:
    """The waiting appends of one partition, in offset order."""

    committed: deque[WaitingAppend] = field(factory=deque)
    flushed: deque[WaitingAppend] = field(factory=deque)


class WaitingAppends:
    """Every waiting append of a broker. Work follows the partitions that moved, never how many there are."""

    def __init__(self, outbox: Outbox, limit: int) -> None:
        self._outbox = outbox
        self._limit = limit
        self._share = share_of(limit)
        self._of_client: dict[Address, int] = {}
        self._partitions: dict[PartitionId, Partition] = {}
        self.count = 0

    def park(self, partition: Partition, append: WaitingAppend) -> bool:
        """Let it wait; False if too many wait already, of all clients or of this one."""
        of_client = self._of_client.get(append.client, 0)
        if self.count >= self._limit or of_client >= self._share:
            return False
        self._of_client[append.client] = of_client + 1
        queue: _Queue | None = partition.waiting
        if queue is None:
            queue = partition.waiting = _Queue()
        if not queue.committed and not queue.flushed:
            self._partitions[partition.identity] = partition
        waiting = queue.committed if append.acks == ACKS_ALL else queue.flushed
        # In offset order: only a repetition, which waits for its original's end, has others behind that end before it.
        if not waiting or waiting[-1].end_offset <= append.end_offset:
            waiting.append(append)
        else:
            waiting.insert(bisect_right(waiting, append.end_offset, key=_end), append)
        self.count += 1
        return True

    def wake(self, partition: Partition) -> None:
        """The partition has moved: answer what is decided now. The one place that turns positions into answers."""
        queue: _Queue | None = partition.waiting
        if queue is None or not (queue.committed or queue.flushed):
            return
        leading = partition.leading
        done: list[tuple[WaitingAppend, int]] = []
        if leading is None:
            error = Code.STORAGE_ERROR if partition.failed else Code.NOT_LEADER_OR_FOLLOWER
            done += [(append, error) for append in (*queue.committed, *queue.flushed)]
            queue.committed.clear()
            queue.flushed.clear()
        else:
            _take(queue.committed, partition.high_watermark, done)
            _take(queue.flushed, partition.log.flushed_end, done)
            if not leading.has_enough_replicas:
                # Appended, and may still commit: the high watermark stands still until the ISR has grown (P-35).
                done += [(append, Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND) for append in queue.committed]
                queue.committed.clear()
        self._answer(partition, done)

    def expire(self, now_ms: int) -> None:
        """Answer what has waited long enough; it may still commit."""
        for partition in list(self._partitions.values()):
            queue: _Queue = partition.waiting
            done: list[tuple[WaitingAppend, int]] = []
            for waiting in (queue.committed, queue.flushed):
                late = [append for append in waiting if append.deadline_ms <= now_ms]
                if late:
                    kept = [append for append in waiting if append.deadline_ms > now_ms]
                    waiting.clear()
                    waiting.extend(kept)
                    done += [(append, Code.REQUEST_TIMED_OUT) for append in late]
            self._answer(partition, done)

    def _answer(self, partition: Partition, done: list[tuple[WaitingAppend, int]]) -> None:
        if not done:
            return
        self.count -= len(done)
        queue: _Queue = partition.waiting
        if not queue.committed and not queue.flushed:
            self._partitions.pop(partition.identity, None)
        by_client: dict[Address, list[ProducedEntry]] = {}
        for append, error in done:
            left = self._of_client.pop(append.client) - 1
            if left:
                self._of_client[append.client] = left
            if append.is_publication:
                self._outbox.messages.append((append.client, published(partition, append, error)))
            else:
                by_client.setdefault(append.client, []).append(answer(partition, append.request, error, append.base_offset))
        for client, entries in by_client.items():
            self._outbox.messages.append((client, Produced(entries)))


def answer(partition: Partition, request: int, error: int, base_offset: int = -1) -> ProducedEntry:
    """The answer to one entry of a Produce; a refusal for want of leadership names the leader this broker knows."""
    if error == Code.NOT_LEADER_OR_FOLLOWER:
        leader = -1 if partition.leader is None or partition.leader == partition.broker_id else partition.leader
        return ProducedEntry(request, error, -1, -1, leader, partition.leader_epoch)
    return ProducedEntry(request, error, base_offset if error == 0 else -1, partition.log.start_offset)


def published(partition: Partition, append: WaitingAppend, error: int = 0) -> Published:
    """The answer to a Publish."""
    if error:
        return Published(append.request, partition.identity, error)
    return Published(append.request, partition.identity, 0, append.base_offset, append.end_offset)


def _end(append: WaitingAppend) -> int:
    return append.end_offset


def _take(waiting: deque[WaitingAppend], end: int, done: list[tuple[WaitingAppend, int]]) -> None:
    while waiting and waiting[0].end_offset <= end:
        done.append((waiting.popleft(), Code.NONE))
