"""Which notices of the controller were applied: all up to one number, and runs of later ones behind the gaps.

A gap is a notice that got lost, or one that waits for room on a full disk, perhaps for days. The controller keeps each until
it is answered, so there are never more runs than notices that it waits for, however many were applied since.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

__all__ = ["Applied", "Run"]


class Run(NamedTuple):
    """Notices that were applied, one after the other."""

    first: int
    last: int


class Applied:
    """The numbers of notices that one life of a broker has applied for one controller."""

    def __init__(self) -> None:
        self.highest = -1
        """Highest one without a gap; -1 before the first complete one."""
        self.ahead: list[Run] = []
        """What is behind the gaps, in order; no two of them touch."""

    def note(self, notice: int, *, complete: bool) -> None:
        """This one was applied. A complete one closes every gap before it (V3 C: isInit)."""
        if complete:
            self.highest = max(self.highest, notice)
        else:
            self._add(notice)
        if self.highest >= 0:
            self._catch_up()

    def _add(self, notice: int) -> None:
        """To the run that it lies in or touches; it may join two."""
        ahead = self.ahead
        at = bisect_left(ahead, notice - 1, key=lambda run: run.last)
        end, first, last = at, notice, notice
        while end < len(ahead) and ahead[end].first <= notice + 1:
            first, last = min(first, ahead[end].first), max(last, ahead[end].last)
            end += 1
        ahead[at:end] = [Run(first, last)]

    def _catch_up(self) -> None:
        """Go on over the runs that no gap separates any more."""
        count = 0
        for run in self.ahead:
            if run.first > self.highest + 1:
                break
            self.highest = max(self.highest, run.last)
            count += 1
        del self.ahead[:count]
