"""The fetch of a task: whole stored batches, nothing unpacked, from the leader or from a copy nearby."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from replog.client.fetching import FetchOp, committed_batches
from replog.client.results import Fetch as FetchResult
from replog.client.view import View
from replog.errors import Code, LogTruncated, OffsetOutOfRange
from replog.messages import EpochsResult, FetchedEntry
from replog.model import Address
from replog.records import BadBatch
from replog.spark.planning import OffsetRange

if TYPE_CHECKING:
    from replog.client.core import ClientCore

__all__ = ["RangeFetchOp", "Trimmed"]

_LEFT_ALONE_MS: Final = 300_000
"""So long is a copy that has not answered not asked: as Kafka keeps a preferred replica (`metadata.max.age.ms`, KIP-392)."""
_silent: WeakKeyDictionary[ClientCore, dict[Address, int]] = WeakKeyDictionary()
"""Of each client: the brokers that have not answered as copies nearby, and until when they are left alone."""


class Trimmed(OffsetOutOfRange):
    """The offset is below what the partition still holds; `start` is the first offset that it does, -1 if it has others altogether."""

    def __init__(self, message: str, *, start: int, topic: str, partition: int) -> None:
        super().__init__(message, topic=topic, partition=partition)
        self.start = start


class RangeFetchOp(FetchOp):
    """Fetch stored batches of a planned range from `offset` on. Result: `results.Fetch`, of which only what is in the range.

    Everything below the range's end was committed under the leader epoch of its plan. So under each later leader epoch it is enough to
    ask the new leader, once, whether that epoch reaches to the end of the range in its log (KIP-320): if it does not, an unclean
    election has removed something, and the error is LogTruncated.

    `rack`: ask an in-sync copy there first, if the leader is elsewhere. Whatever it cannot serve is asked of the leader; so is what it has
    not answered for `unanswered_ms`, and everything else of this client for a while.
    """

    def __init__(
        self, one: OffsetRange, offset: int, *, max_bytes: int, wait_ms: int, deadline_ms: int, known_epoch: int, rack: str | None
    ) -> None:
        super().__init__(
            one.place.topic,
            one.place.partition,
            offset,
            max_bytes=max_bytes,
            wait_ms=wait_ms,
            deadline_ms=deadline_ms,
            known_epoch=known_epoch,
            epochs=((one.leader_epoch, offset),),
            expected=one.identity,
        )
        self._stop = one.stop
        self._known_at = one.known_at
        self._rack = rack
        self._asked = -1
        """Number of the Metadata whose answer tells whether the log that was planned is still there; -1: that is not in doubt."""
        self._near: Address = None
        """The copy that is asked, and has not answered; None: nobody, or the leader."""

    def target(self, core: ClientCore, now_ms: int) -> Address | None:
        """The leader, or at the first try a copy in the rack."""
        self._give_up_near(core, now_ms)
        leader = super().target(core, now_ms) if self._view_is_fresh(core, now_ms) else None
        if leader is None or self._rack is None or self.failures or self._validating:
            return leader
        near = _near(core, self.topic, self.partition, leader, self._rack, now_ms)
        if near != leader:
            self._near = near
            self._slice_ms = min(self._slice_ms, core.config.unanswered_ms // 2)  # what it holds on purpose is not silence
        return near

    def _view_is_fresh(self, core: ClientCore, now_ms: int) -> bool:
        """Whether this client knows as much as who has planned the range.

        If it knows no log of that name, or another one, what it knows may be older, and so may be what the broker knows that it asks:
        then it asks the next one, after a pause.
        """
        place = core.view.place(self.topic, self.partition)
        if place is not None and place.identity == self.expected:
            return True
        if 0 <= self._asked <= core.answered_metadata:
            if (core.view.controller_epoch, core.view.version) >= self._known_at:
                return True
            self.failures += 1
            self.retry_at = now_ms + core.backoff_ms(self.failures)
            self._asked = -1
        if self._asked < 0:
            self._asked = core.refresh(now_ms)
        return False

    def has_moved(self, view: View) -> bool:
        """A copy that is silent for long need not be asked about: the leader has it all."""
        return self._near is not None or super().has_moved(view)

    def answered(self, core: ClientCore, answer: Any, now_ms: int) -> int:
        """What the leader, or the copy, has said."""
        code = super().answered(core, answer, now_ms)
        self._near = None
        return code

    def attended(self, core: ClientCore, now_ms: int, deadline_ms: int) -> None:
        """Somebody waits for it from now on. While Spark was busy with other rows nobody has listened: that was no silence."""
        self.deadline_ms = deadline_ms
        if self.address is not None and core._requests.pop(self.request, None) is self:
            core._requests[self.request] = self  # which are in the order of sending
            self.sent_ms = now_ms
            self.patience_at = now_ms + core.config.request_timeout_ms + self.wait_ms()

    def expire(self, core: ClientCore, now_ms: int) -> None:
        """Out of time: whoever asks again asks the leader."""
        self._give_up_near(core, now_ms)
        super().expire(core, now_ms)

    def _give_up_near(self, core: ClientCore, now_ms: int) -> None:
        if self._near is not None:
            _silent.setdefault(core, {})[self._near] = now_ms + _LEFT_ALONE_MS
            self._near = self._rack = None

    def _validated(self, result: EpochsResult, leader_epoch: int) -> int:
        if result.error:
            return result.error
        self.doubtful = result.epoch < 0
        if not self.doubtful and result.end_offset < self._stop:
            self.fail(LogTruncated(self.topic, self.partition, self.offset, result.end_offset))
            return Code.NONE
        self.known_epoch = leader_epoch
        return Code.NONE

    def _fetched(self, core: ClientCore, entry: FetchedEntry, leader_epoch: int, now_ms: int) -> int:
        if self._near is not None and entry.error == Code.OFFSET_OUT_OF_RANGE:
            return Code.REPLICA_NOT_AVAILABLE  # a copy may lag behind; the leader knows
        if self.doubtful and not entry.error and entry.start_offset < self._stop:  # it begins in the range, with later epochs
            self.fail(LogTruncated(self.topic, self.partition, self.offset, self.offset))
            for piece in entry.slices:
                piece.release()
            return Code.NONE
        return super()._fetched(core, entry, leader_epoch, now_ms)

    def _out_of_range(self, entry: FetchedEntry) -> Exception:
        start = entry.start_offset if entry.start_offset > self.offset else -1
        text = f"offset {self.offset} of {self.topic}-{self.partition} is out of range"
        return Trimmed(text, start=start, topic=self.topic, partition=self.partition)

    def _checked(self, entry: FetchedEntry, leader_epoch: int) -> FetchResult:
        """Every batch verified; those that have nothing of [offset, end of the range), or are not committed, left out. What is damaged is
        asked for again once what is in front of it was taken."""
        assert self.place is not None
        batches: list[Any] = []
        position, found = self.offset, committed_batches(entry, self.place.identity)
        try:
            while position < self._stop and (batch := next(found, None)) is not None:
                if not batch.is_control:
                    batches.append(batch)
                position = batch.end_offset
        except BadBatch:
            if not batches:
                raise
        return FetchResult(batches, position, leader_epoch, entry.high_watermark, self.epochs)


def _near(core: ClientCore, topic: str, partition: int, leader: Address, rack: str, now_ms: int) -> Address:
    """An in-sync copy in the rack that answers; the leader if that is there, or if there is none."""
    known = core.view.topics.get(topic)
    place = known.partitions.get(partition) if known is not None else None
    brokers, silent = core.view.brokers, _silent.get(core, {})
    copies = [broker for broker in place.isr if broker in brokers and brokers[broker].rack == rack] if place is not None else []
    return leader if leader in copies else next((broker for broker in copies if silent.get(broker, now_ms) <= now_ms), leader)
