"""High watermarks as readers see them: one that began later sees no lower one."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from replog.testing.history.events import Poll
from replog.testing.history.evidence import Evidence
from replog.testing.history.report import Report

__all__ = ["judge_watermarks"]


class _Stair:
    """The highest watermark of every epoch up to a given one. Epochs and watermarks both rise."""

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._polls: list[Poll] = []

    def add(self, epoch: int, high_watermark: int, poll: Poll) -> None:
        """An answer came."""
        if self._epochs and self._epochs[-1] == epoch:  # nearly always
            if (self._polls[-1].high_watermark or 0) < high_watermark:
                self._polls[-1] = poll
            return
        at = bisect_right(self._epochs, epoch)
        if at and (self._polls[at - 1].high_watermark or 0) >= high_watermark:
            return
        at = bisect_left(self._epochs, epoch)
        end = at
        while end < len(self._polls) and (self._polls[end].high_watermark or 0) <= high_watermark:
            end += 1
        self._epochs[at:end] = [epoch]
        self._polls[at:end] = [poll]

    def highest(self, epoch: int) -> Poll | None:
        """The answer with the highest watermark, of leaders no newer than `epoch`."""
        at = bisect_right(self._epochs, epoch)
        return self._polls[at - 1] if at else None


def judge_watermarks(evidence: Evidence, report: Report, *, stale_reads: bool) -> None:
    """hw-regress. An answer of an epoch compares with answers of that epoch and of older ones: a deposed leader may be behind.

    With `stale_reads` only with those of the same epoch: a new leader learns by and by how far its predecessor had come.
    """
    stairs: dict[str | int | bool, _Stair] = {}
    answers = [poll for poll in evidence.polls if poll.high_watermark is not None]
    over = 0
    for poll in sorted(answers, key=lambda poll: poll.invoked):
        while answers[over].completed < poll.invoked:
            answer = answers[over]
            over += 1
            assert answer.high_watermark is not None
            stair = stairs.setdefault(_compared(answer, stale_reads), _Stair())
            stair.add(answer.epoch or 0, answer.high_watermark, answer)
        known = stairs.get(_compared(poll, stale_reads))
        before = None if known is None else known.highest(poll.epoch or 0)
        if before is not None and (before.high_watermark or 0) > (poll.high_watermark or 0):
            text = f"{poll.process} saw the high watermark {poll.high_watermark} {poll.span()}"
            report.add("hw-regress", evidence.key, f"{text}; {before.process} saw {before.high_watermark} before, {before.span()}")


def _compared(poll: Poll, stale_reads: bool) -> str | int | bool:
    """Which answers compare: those with an epoch (or with the same one); without one all, or those of the same process."""
    if poll.epoch is not None:
        return poll.epoch + 2 if stale_reads else True  # True is 1
    return poll.process if stale_reads else False
