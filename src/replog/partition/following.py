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

__all__ = ["Followed", "Following", "parsed", "whole_below"]


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


class Following:
    """One followership: from one leader epoch to the next."""

    __slots__ = ("agrees", "leader", "leader_epoch", "limits", "log", "told")

    def __init__(self, leader: int | None, leader_epoch: int, log: Log, limits: BrokerConfig) -> None:
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.log = log
        self.limits = limits
        self.agrees = False
        """The leader has accepted this log as a prefix of its own in this epoch: only now does a flushed end mean anything to it."""
        self.told = -1
        """The leader's high watermark, as it said last in this epoch: this copy may know a higher one, from an earlier leader."""

    def take(self, entry: FetchedEntry, high_watermark: int) -> tuple[Followed, int]:
        """Apply one answer; returns what came of it and the new high watermark.

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
                log.reset_to(entry.start_offset)
                return Followed.TRUNCATED, entry.start_offset
            target, _ = truncation_point(log.epochs, log.end_offset, EpochEnd(entry.diverging_epoch, entry.diverging_end))
            log.truncate_to(target)
            return Followed.TRUNCATED, whole_below(log, min(high_watermark, log.end_offset))
        self.agrees = True
        self.told = entry.high_watermark
        outcome = Followed.KEPT_UP
        if entry.start_offset > log.start_offset:
            # First: below its start the leader cannot tell where the logs part, and what is here may never have been committed.
            log.trim_to(min(entry.start_offset, max(high_watermark, min(entry.high_watermark, log.end_offset))))
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
        expected, epoch = log.end_offset, log.last_epoch
        batches: list[RecordBatch] = []
        outcome = Followed.APPENDED
        try:
            for piece in entry.slices:
                known = piece.batches
                for batch in parsed(piece.view(), log.identity) if known is None else known:
                    if batch.base_offset != expected:
                        raise BadBatch(f"expected offset {expected}, found {batch.base_offset}")
                    if not epoch <= batch.leader_epoch <= self.leader_epoch:
                        raise BadBatch(f"epoch {batch.leader_epoch} behind epoch {epoch}, from a leader of epoch {self.leader_epoch}")
                    if batch.identity != log.identity:
                        raise BadBatch(f"batch of log {batch.identity!r} for log {log.identity!r}")
                    batches.append(batch)
                    expected, epoch = expected + batch.count, batch.leader_epoch
        except BadBatch:
            outcome = Followed.RETRY
        if batches:
            log.append_many(batches)
        return outcome

    def _refused(self, entry: FetchedEntry, high_watermark: int) -> tuple[Followed, int]:
        if entry.error == Code.FENCED_LEADER_EPOCH:
            return Followed.WAIT, high_watermark
        if entry.error != Code.OFFSET_OUT_OF_RANGE or entry.start_offset < 0:
            return Followed.RETRY, high_watermark
        log = self.log
        if entry.end_offset < log.end_offset:
            log.truncate_to(max(entry.end_offset, log.start_offset))
            if log.end_offset > entry.end_offset:  # all of it lies beyond the leader's end
                log.reset_to(entry.end_offset)
            return Followed.TRUNCATED, whole_below(log, min(high_watermark, log.end_offset))
        if entry.start_offset > log.end_offset:
            # Everything here is gone at the leader: both ends and the high watermark restart there (KAFKA-9491).
            log.reset_to(entry.start_offset)
            return Followed.TRUNCATED, entry.start_offset
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
