"""What a partition does with a leader's answer: append as stored, or truncate where the logs part (PROTOCOL 4.1)."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from replog.config import BrokerConfig
from replog.errors import Code, LogCorrupt, LogFull
from replog.log.epochs import truncation_point
from replog.messages import FetchedEntry
from replog.model import PartitionId
from replog.ports import EpochEnd, Log
from replog.records import BadBatch, RecordBatch

__all__ = ["Followed", "Following", "Resets", "parsed", "whole_below"]


class Followed(Enum):
    """What came of an answer: what the fetcher does next."""

    DROPPED = "dropped"
    """It answers a question this replica no longer asks; no effect."""
    KEPT_UP = "kept up"
    """Nothing new, or appended: ask on from the (new) end."""
    APPENDED = "appended"
    TRUNCATED = "truncated"
    """The log was cut or reset: ask again from its new end, with a smaller last epoch."""
    RETRY = "retry"
    """Ask the same again after a pause."""
    WAIT = "wait"
    """Stop asking until newer metadata comes: this replica's epoch is old."""


class Resets:
    """How many logs may be emptied in this poll: each waits for a disk some ten times, and one answer may be about a thousand of them."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self) -> bool:
        """Whether one more may."""
        self.left -= 1
        return self.left >= 0


class Following:
    """One followership: from one leader epoch to the next."""

    __slots__ = ("agrees", "leader", "leader_epoch", "limits", "log", "resets", "told")

    def __init__(
        self, leader: int | None, leader_epoch: int, log: Log, limits: BrokerConfig, resets: Resets | None = None
    ) -> None:
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.log = log
        self.limits = limits
        self.resets = resets
        self.agrees = False
        """The leader has accepted this log as a prefix of its own in this epoch: only now does a flushed end mean anything to it."""
        self.told = -1
        """The leader's high watermark, as it said last in this epoch: this copy may know a higher one, from an earlier leader."""

    def take(self, entry: FetchedEntry, high_watermark: int) -> tuple[Followed, int]:
        """Apply one answer; returns what came of it and the new high watermark. What is trimmed may have yet to go (`Log.is_trimming`).

        An answer counts only while this replica still has the offset and the epoch it asked with (PROTOCOL 3.3).
        Divergence comes before the high watermark, and before anything is appended (KAFKA-14704, P-12).
        """
        log = self.log
        if entry.leader_epoch != self.leader_epoch or entry.offset != log.end_offset:
            return Followed.DROPPED, high_watermark
        if entry.error:
            return self._refused(entry, high_watermark)
        if entry.diverging_epoch >= 0:
            if 0 < entry.diverging_end <= entry.start_offset:
                # The leader has trimmed all that it could compare with: what is here may never have been committed.
                return self._reset_to(entry.start_offset, high_watermark, entry.start_offset)
            target, _ = truncation_point(log.epochs, log.end_offset, EpochEnd(entry.diverging_epoch, entry.diverging_end))
            log.truncate_to(target)
            return Followed.TRUNCATED, whole_below(log, min(high_watermark, log.end_offset))
        if not self._follow_start(entry, high_watermark):
            return Followed.RETRY, high_watermark
        self.agrees = True
        self.told = entry.high_watermark
        outcome = Followed.KEPT_UP
        if entry.slices:
            outcome = self._append(entry)
        # The leader's high watermark may be beyond what has arrived here (V3 G: S5), and never moves a follower back.
        theirs = entry.high_watermark if entry.high_watermark < log.end_offset else log.end_offset
        if theirs > high_watermark:
            try:
                high_watermark = max(high_watermark, log.group_floor(theirs))  # of a group that has not come whole, nothing counts here
            except (LogCorrupt, LogFull):  # the disk does not say, now: the leader tells only news, so it must be asked again
                outcome = Followed.RETRY if outcome is Followed.KEPT_UP else outcome
        return outcome, high_watermark

    def _append(self, entry: FetchedEntry) -> Followed:
        """Append whole batches exactly as stored. Whatever does not fit is a fault of the way here: fetched again, not a disk fault."""
        log = self.log
        expected = log.end_offset
        batches: list[RecordBatch] = []
        outcome = Followed.APPENDED
        try:
            for piece in entry.slices:
                known = piece.batches
                for batch in parsed(piece.view(), log.identity) if known is None else known:
                    if batch.base_offset != expected:
                        raise BadBatch(f"expected offset {expected}, found {batch.base_offset}")
                    if batch.leader_epoch > self.leader_epoch:
                        raise BadBatch(f"epoch {batch.leader_epoch} from a leader of epoch {self.leader_epoch}")
                    if batch.identity != log.identity:
                        raise BadBatch(f"batch of log {batch.identity!r} for log {log.identity!r}")
                    batches.append(batch)
                    expected += batch.count
        except BadBatch:
            outcome = Followed.RETRY
        if batches:
            log.append_many(batches)
        return outcome

    def _follow_start(self, entry: FetchedEntry, high_watermark: int) -> bool:
        """Start where the leader does, before anything is appended: below its start it cannot tell where the logs part, and what is here
        may never have been committed. Where that is all there is, no restart may bring it back: False until its files are gone."""
        log = self.log
        if entry.start_offset > log.start_offset:
            start = min(entry.start_offset, max(high_watermark, min(entry.high_watermark, log.end_offset)))
            if start >= log.end_offset:
                return self._removed(start)
            log.move_start(start)
        return log.start_offset < log.end_offset or not log.is_trimming

    def _removed(self, offset: int) -> bool:
        """Trim, and whether nothing of what is below `offset` is left. If not, it goes some files at a time, in retention's turns."""
        if self.log.is_trimming or not (self.resets is None or self.resets.take()):
            self.log.move_start(offset)
            return False
        self.log.trim_to(offset)
        return not self.log.is_trimming

    def _reset_to(self, offset: int, high_watermark: int, gone: int) -> tuple[Followed, int]:
        """Begin again at `offset`, once what the leader has trimmed, which is all below `gone`, is removed here as well: what is left then
        are few files, however many there were."""
        if not self._removed(gone):
            return Followed.RETRY, high_watermark
        self.log.reset_to(offset)
        return Followed.TRUNCATED, offset

    def _refused(self, entry: FetchedEntry, high_watermark: int) -> tuple[Followed, int]:
        if entry.error == Code.FENCED_LEADER_EPOCH:
            return Followed.WAIT, high_watermark
        if entry.error != Code.OFFSET_OUT_OF_RANGE or entry.start_offset < 0:
            return Followed.RETRY, high_watermark
        log = self.log
        if entry.end_offset < log.start_offset:  # all of it lies beyond the leader's end
            return self._reset_to(entry.end_offset, high_watermark, log.start_offset)
        if entry.end_offset < log.end_offset:
            log.truncate_to(entry.end_offset)
            return Followed.TRUNCATED, whole_below(log, min(high_watermark, log.end_offset))
        if entry.start_offset > log.end_offset:
            # Everything here is gone at the leader: both ends and the high watermark restart there (KAFKA-9491).
            return self._reset_to(entry.start_offset, high_watermark, log.end_offset)
        return Followed.RETRY, high_watermark  # in range by now: keep everything (KAFKA-2143)


def whole_below(log: Log, offset: int) -> int:
    """Where what is whole below `offset` ends: a high watermark is never inside a group. The start of the log, if that cannot be read:
    lower is always right."""
    try:
        return log.group_floor(offset)
    except (LogCorrupt, LogFull):
        return log.start_offset


def parsed(data: memoryview, identity: PartitionId) -> Iterator[RecordBatch]:
    """Stored batches, each verified in full. Raises BadBatch at the first that is not what it should be."""
    at = 0
    while at < len(data):
        batch = RecordBatch.parse(data, at, identity=identity)
        yield batch
        at += batch.length
