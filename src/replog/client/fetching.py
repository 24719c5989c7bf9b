"""Reading one stretch of a partition: check that the position is still on the leader's history, then fetch and verify."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from replog.client.operations import PartitionOp
from replog.client.parting import Parting
from replog.client.results import Fetch as FetchResult
from replog.config import BATCH_RECORDS_MAX
from replog.errors import Code, LogTruncated, UndecodableBatch, rejection
from replog.messages import Epochs, EpochsEntry, EpochsResult, Fetch, Fetched, FetchedEntry, FetchEntry, OffsetsForLeaderEpoch
from replog.model import Address, PartitionId
from replog.records import BadBatch, RecordBatch
from replog.security.roles import READ

if TYPE_CHECKING:
    from replog.client.core import ClientCore

__all__ = ["FetchOp", "committed_batches"]

SLICE_MS_MAX: Final = 60_000
"""A broker is asked to hold a fetch for so long at most: a connection on which nothing moves for minutes is closed."""


class FetchOp(PartitionOp):
    """Fetch batches from `offset` on, committed ones only. Result: `results.Fetch`, whose batches are verified and not decoded: this runs
    under the lock of the driver, and a reader decodes what it wants without (`unpacking`).

    Who waits longer than a request may take asks again and again: in slices of the request timeout, `SLICE_MS_MAX` at most. A leader that
    holds as many fetches of this client as it may answers with nothing before the time is over: it is asked again after a pause. One for
    which too much waits to be sent to this client answers without the records that there are: they are asked for again after a pause,
    until the operation is given up on; then it has found nothing.

    `epochs`, of what was read before `offset`, is where each leader epoch began, oldest first; `known_epoch` is the leader epoch under
    which that was last confirmed. When leadership has changed since, the new leader is first asked where the last of them ends in its log
    (KIP-320): a log that grew past the position with other records is found out too (P-47), and LogTruncated names the first offset that
    has changed (`parting`). Where nothing was read yet it is asked where `known_epoch` ends, under which the position was looked up: what
    is appended below the position would be passed over.

    A damaged answer is asked for again until time runs out, with the wish that the leader check its disk: it may then give the
    lead to another broker. In the end the error is CorruptMessage. If there are batches in front of it, they are the result, and the next
    fetch finds what is behind them. A batch that matches its checksums and cannot be decoded is what its writer has sent, and is the same
    wherever it is asked for: whoever decodes it raises UndecodableBatch.
    """

    is_read = True
    action = READ

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int,
        wait_ms: int,
        deadline_ms: int,
        known_epoch: int = -1,
        epochs: Sequence[tuple[int, int]] = (),
        expected: PartitionId | None = None,
    ) -> None:
        super().__init__(f"a fetch at offset {offset}", topic, partition, deadline_ms, expected)
        self.offset = offset
        self.max_bytes = max_bytes
        self.left_ms = wait_ms
        """How long the first record may yet be waited for."""
        self._until_ms = -1
        """When that ends, whatever happens meanwhile; -1: it has not begun."""
        self._slice_ms = wait_ms
        self._left_out: FetchResult | None = None
        """The last answer, if it was one without the records that there are."""
        self.known_epoch = known_epoch
        self.epochs = epochs
        self._parting: Parting | None = None
        """Where the log of a leader, perhaps a former one, parts from what was read."""
        self.doubtful = False
        """The leader knows no epoch as old as ours: fine if the log now starts at our position, truncation if it starts below. Until it
        has said which, or another leader has been asked."""
        self.damage = ""
        """What was wrong with the last answer that was damaged; empty: none was."""

    def wait_ms(self) -> int:
        """The leader may hold an empty fetch."""
        return self._slice_ms

    def target(self, core: ClientCore, now_ms: int) -> Address | None:
        """The leader, for one slice."""
        if self._until_ms < 0:
            self._until_ms = now_ms + self.left_ms
        self.left_ms = max(0, self._until_ms - now_ms)
        self._slice_ms = min(self.left_ms, core.config.request_timeout_ms, SLICE_MS_MAX)
        leader = super().target(core, now_ms)
        if leader is not None and self.place is not None and self.place.leader_epoch < self.known_epoch:
            core.pause(self, now_ms)  # it was deposed before the caller read what it has: it may not know all of that
            return None
        return leader

    @property
    def _validating(self) -> bool:
        return self.known_epoch >= 0 and self.place is not None and self.place.leader_epoch > self.known_epoch

    @property
    def _found_out(self) -> Parting | None:
        """What the leader of now has said; None if that was nothing yet, or that its log goes on from what was read."""
        known, place = self._parting, self.place
        return known if known is not None and place is not None and known.leader_epoch == place.leader_epoch else None

    @property
    def _asks(self) -> int:
        """The epoch of which the leader has to say where it ends: the last one that was read, or an earlier one; that of the position if
        nothing was read."""
        found_out = self._found_out
        if found_out is not None:
            return found_out.asks
        return self.epochs[-1][0] if self.epochs else self.known_epoch

    def message(self, core: ClientCore) -> Fetch | OffsetsForLeaderEpoch:
        """The fetch, without a session; after a leader change first the question about our epoch."""
        place = self.place
        assert place is not None
        if self._validating:
            return OffsetsForLeaderEpoch(self.request, [EpochsEntry(place.identity, place.leader_epoch, self._asks)])
        entry = FetchEntry(place.identity, place.leader_epoch, self.offset, -1, self.max_bytes)
        return Fetch(self.request, -1, -1, 0, -1, self._slice_ms, 1, self.max_bytes, [entry], verify=bool(self.damage))

    def answered(self, core: ClientCore, answer: Any, now_ms: int) -> int:
        """Records, the verdict on our epoch, or a refusal."""
        place = self.place
        if place is None:
            return Code.UNKNOWN_TOPIC_ID
        if isinstance(answer, Epochs):
            for result in answer.entries:
                if result.partition == place.identity:
                    return self._validated(result, place.leader_epoch)
        elif isinstance(answer, Fetched):
            if answer.error:
                return answer.error
            for entry in answer.entries:
                if entry.partition == place.identity:
                    return self._fetched(core, entry, place.leader_epoch, now_ms)
        return Code.UNKNOWN_TOPIC_ID

    def _validated(self, result: EpochsResult, leader_epoch: int) -> int:
        if result.error:
            return result.error
        found_out = self._found_out
        if found_out is None:
            self.doubtful = result.epoch < 0
            same = not self.epochs or result.epoch == self.epochs[-1][0]  # who has read nothing has read nothing else
            if self.doubtful or (same and result.end_offset >= self.offset):
                self.known_epoch = leader_epoch
                return Code.NONE
            if not self.epochs:
                self.fail(LogTruncated(self.topic, self.partition, self.offset, result.end_offset))
                return Code.NONE
            found_out = self._parting = Parting(leader_epoch, self.epochs, self.offset)
        changed = found_out.answered(result.epoch, result.end_offset)
        if changed is not None:
            self.fail(LogTruncated(self.topic, self.partition, self.offset, changed))
        return Code.NONE

    def _fetched(self, core: ClientCore, entry: FetchedEntry, leader_epoch: int, now_ms: int) -> int:
        try:
            if entry.error == Code.OFFSET_OUT_OF_RANGE:
                self.fail(self._out_of_range(entry))
                return Code.NONE
            if entry.error:
                return entry.error
            if entry.offset != self.offset:
                return Code.UNKNOWN_SERVER_ERROR
            if entry.diverging_epoch >= 0:
                self.fail(LogTruncated(self.topic, self.partition, self.offset, min(entry.diverging_end, self.offset)))
                return Code.NONE
            if self.doubtful and entry.start_offset < self.offset:
                self.fail(LogTruncated(self.topic, self.partition, self.offset, entry.start_offset))
                return Code.NONE
            self.doubtful = False
            self._take(core, self._checked(entry, leader_epoch), now_ms)
        except UndecodableBatch as bad:  # of who looks into it at once: `OffsetOp`
            self.fail(bad)
        except BadBatch as bad:
            broker = self.place.leader if self.place is not None else None
            self.damage = f"broker {broker} answered with a damaged batch: {bad}"
            return Code.CORRUPT_MESSAGE
        finally:
            for piece in entry.slices:
                piece.release()
        return Code.NONE

    def _take(self, core: ClientCore, result: FetchResult, now_ms: int) -> None:
        """The result, or where to go on: after an empty slice that was not the last, an empty answer before its time, or one that left out
        what there is."""
        is_last = self._slice_ms == self.left_ms
        left_out = not result.batches and result.high_watermark > result.next_offset
        self.left_ms = max(0, self._until_ms - now_ms)
        # By whatever clock, the leader has not waited: it holds as many fetches of this client as it may.
        early = bool(self.left_ms) and result.next_offset == self.offset and 2 * (now_ms - self.sent_ms) < self._slice_ms and not left_out
        if result.batches or not (left_out or early or (self.left_ms and not is_last)):
            self.finish(result)
            return
        self._left_out = result if left_out else None
        self.offset = result.next_offset
        if result.epochs:  # of what was passed over, too: whoever began with none has read that by now
            self.epochs, self.known_epoch = result.epochs, result.known_epoch
        self.expected = self.place.identity if self.place is not None else self.expected  # in this log, not in one of its name
        if left_out or early:  # whoever sent it has too much under way to us already, or too many of our questions
            self._pause(core, now_ms)
        if early:
            self.retry_at = min(self.retry_at, self._until_ms)

    def _pause(self, core: ClientCore, now_ms: int) -> None:
        self.failures += 1
        self.retry_at = min(now_ms + core.backoff_ms(self.failures), self.deadline_ms)

    def expire(self, core: ClientCore, now_ms: int) -> None:
        """Out of time: damage that nobody could mend is what the caller has to know."""
        if not self.damage:
            return super().expire(core, now_ms) if self._left_out is None else self.finish(self._left_out)
        text = f"{self.damage} (tried for {(now_ms - self.started_ms) / 1000:g} s)"
        broker = self.place.leader if self.place is not None else None
        self.fail(rejection(Code.CORRUPT_MESSAGE, text, topic=self.topic, partition=self.partition, broker=broker))

    def _out_of_range(self, entry: FetchedEntry) -> Exception:
        held = f"it holds [{entry.start_offset}, {entry.high_watermark})" if entry.start_offset >= 0 else "it holds others"
        text = f"offset {self.offset} of {self.topic}-{self.partition} is out of range: {held}"
        broker, epoch = (self.place.leader, self.place.leader_epoch) if self.place is not None else (None, None)
        return rejection(Code.OFFSET_OUT_OF_RANGE, text, topic=self.topic, partition=self.partition, broker=broker, epoch=epoch)

    def _checked(self, entry: FetchedEntry, leader_epoch: int) -> FetchResult:
        """Every batch verified; those above the high watermark left out.

        What would be more than BATCH_RECORDS_MAX records in all is left to the next fetch: compressed, an answer may hold any number.
        """
        assert self.place is not None
        batches: list[RecordBatch] = []
        epochs = list(self.epochs)
        position, last_epoch, held = self.offset, epochs[-1][0] if epochs else -1, 0
        try:
            for batch in committed_batches(entry, self.place.identity):
                end = batch.end_offset
                if not batch.is_control:
                    if batches and held + batch.count > BATCH_RECORDS_MAX:
                        break
                    batches.append(batch)
                    held += end - position
                if batch.leader_epoch != last_epoch:
                    epochs.append((batch.leader_epoch, position))
                position, last_epoch = end, batch.leader_epoch
        except BadBatch:
            if not batches:
                raise
        return FetchResult(batches, position, leader_epoch, entry.high_watermark, epochs)


def committed_batches(entry: FetchedEntry, identity: PartitionId) -> Iterator[RecordBatch]:
    """The batches of an answer from its offset on (the first may begin below), control batches included, up to the high watermark. Each
    is verified when it is its turn. Raises BadBatch."""
    position = entry.offset
    for piece in entry.slices:
        view = piece.view()
        at = 0
        while at < len(view):
            batch = RecordBatch.parse(view, at, identity=identity)
            at += batch.length
            if batch.end_offset <= position:
                continue
            if batch.base_offset > position:
                raise BadBatch(f"a batch at offset {batch.base_offset} where {position} is expected")
            if batch.end_offset > entry.high_watermark:
                return
            yield batch
            position = batch.end_offset
