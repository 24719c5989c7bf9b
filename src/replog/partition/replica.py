"""How far one remote copy is, and when it was last caught up, as the leader of the current epoch knows it."""

from __future__ import annotations

from typing import Final

__all__ = ["NEVER", "UNKNOWN", "Contact", "Replica"]

UNKNOWN: Final = -1
"""No fetch of this leader epoch has come: not 0, and not what was true in an earlier leadership (PROTOCOL S3)."""


NEVER: Final = -(2**62)
"""Longer ago than any lag time, also on a clock that has just begun."""


class Contact:
    """When a follower last fetched anything from this broker: shared by all its partitions, because sessions are incremental."""

    __slots__ = ("last_fetch_ms", "parked")

    def __init__(self) -> None:
        self.last_fetch_ms = 0
        self.parked = 0
        """Fetches of this follower that wait here now: a follower that waits is present."""


NOBODY: Final = Contact()


class Replica:
    """A follower's progress. `position` is what counts for the high watermark: the end of its log, or of what it has flushed."""

    __slots__ = (
        "_left_end", "broker_epoch", "broker_id", "caught_up_ms", "contact", "end_offset", "flushes", "position", "told_end", "told_ms"
    )  # fmt: skip

    def __init__(self, broker_id: int, caught_up_ms: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = -1
        """Of the life that fetched; -1 before the first fetch (KIP-903)."""
        self.end_offset = UNKNOWN
        self.flushes = False
        """Whether it flushes before it may count, as it said last: it has perhaps yet to hear how the topic was altered."""
        self.position = UNKNOWN
        self.caught_up_ms = caught_up_ms
        self.told_ms = 0
        """When `position` was told last."""
        self.told_end = UNKNOWN
        """The leader's end then."""
        self.contact = NOBODY
        self._left_end = UNKNOWN

    @property
    def seen_end(self) -> int:
        """Where it was when it was heard last, also if that counts for nothing since its broker is gone: for people."""
        return self._left_end if self.end_offset == UNKNOWN else self.end_offset

    def reached(self, position: int, leader_end: int, now_ms: int) -> None:
        """Everything below `position` is there as it must be to count: stored (a fetch says so), or flushed.

        Caught up now if that is the leader's end; as of the report before if it is what was the end then
        (KAFKA-1546, KAFKA-4485): a burst or a steady trickle puts nobody out.
        """
        if position >= leader_end:
            self.caught_up_ms = now_ms
        elif self.told_end != UNKNOWN and position >= self.told_end and self.told_ms > self.caught_up_ms:
            self.caught_up_ms = self.told_ms
        self.position = position
        self.told_ms = now_ms
        self.told_end = leader_end

    def flushed(self, position: int, leader_end: int, now_ms: int) -> None:
        """A flush report has come (flush="ack"), which may say nothing new.

        A flush covers what had come when it began, never what was the end at the report before: what is to be reached
        stays the same until it is reached.
        """
        mark = (self.told_ms, self.told_end)
        self.reached(position, leader_end, now_ms)
        if position < mark[1]:
            self.told_ms, self.told_end = mark

    def is_equal(self, leader_end: int, high_watermark: int) -> bool:
        """Nothing of the leader's log is missing here: it counts in full, or all of it is stored, and committed long since.

        Nobody reports a flush of what an earlier leadership has committed.
        """
        return self.position == leader_end or self.end_offset == leader_end == high_watermark

    def left_behind(self, now_ms: int) -> None:
        """An append is about to end this replica's equality with the leader: it was caught up until its last sign of life."""
        seen = now_ms if self.contact.parked else self.contact.last_fetch_ms
        if seen > self.caught_up_ms:
            self.caught_up_ms = seen

    def lags(self, leader_end: int, high_watermark: int, now_ms: int, lag_ms_max: int) -> bool:
        """By time, never by bytes: not equal now (KAFKA-7152), nor at most `lag_ms_max` ago."""
        return now_ms - self.caught_up_ms > lag_ms_max and not self.is_equal(leader_end, high_watermark)

    def restarted(self, broker_epoch: int) -> None:
        """A new life of the broker: nothing its earlier life stored is known to be there any more (KIP-903)."""
        self.broker_epoch = broker_epoch
        self.end_offset = self.position = self.told_end = self._left_end = UNKNOWN
        self.flushes = False
        self.caught_up_ms = NEVER
        self.told_ms = 0

    def gone(self, leader_end: int, high_watermark: int, now_ms: int) -> None:
        """Its broker is not registered any more: what it stored is perhaps not there when it is back.

        If it is heard again as what it was, that counts. When it has to leave the ISR is the controller's to say, and time's: a leader that
        proposed it as well would only be in the way. Time in which nothing was appended is no lag.
        """
        if self.is_equal(leader_end, high_watermark):
            self.left_behind(now_ms)
        self._left_end = self.seen_end
        self.end_offset = self.position = self.told_end = UNKNOWN

    def __repr__(self) -> str:
        return f"Replica({self.broker_id}, end {self.end_offset}, position {self.position}, caught up at {self.caught_up_ms} ms)"
