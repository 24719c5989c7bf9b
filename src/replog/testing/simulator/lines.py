"""The lines of records that a partition's elections have parted it into, and which of them a reader may follow.

A reader follows one of them, until it is told that what it has read is gone; one that is shown records of two of them without that has
been shown other bytes for an offset.
"""

from __future__ import annotations

from typing import Final

from replog.testing.history.events import Poll
from replog.testing.simulator.ledger import NEVER_SEEN, Entry, Ledger, Violation

__all__ = ["MAIN", "Line", "Lines", "Reader"]

MAIN: Final = -1
"""The line in which it all ended; the others have the numbers of their forks."""

Line = dict[int, str]
"""Offset -> value, as far as they are known."""


class Lines:
    """What is known of each line of a partition, by its number."""

    def __init__(self, ledger: Ledger, lost: list[Line], last: Line) -> None:
        """`lost`: the values in each fork, from where it parts from what came next; `last`: those of the log of now."""
        self._ledger, forks = ledger, ledger.forks
        self.values = _lines_of(lost, [fork.end for fork in forks], last)
        self._ends = {MAIN: ledger.reach, **{number: fork.reach for number, fork in enumerate(forks)}}
        self._controls = {MAIN: _controls(ledger.entries, 0)}
        """Offsets at which no reader finds anything: nobody has sent what is there."""
        self._unseen = {MAIN: _unseen(ledger.entries, 0)}
        for number, fork in reversed(list(enumerate(forks))):
            after = MAIN if number + 1 == len(forks) else number + 1
            for each, own in ((self._controls, _controls(fork.entries, fork.end)), (self._unseen, _unseen(fork.entries, fork.end))):
                each[number] = {at for at in each[after] if at < fork.end} | own

    def told_by(self, epoch: int) -> int:
        """The line that a leadership of this epoch tells of."""
        fork = self._ledger.fork_of(epoch)
        return MAIN if fork is None else self._ledger.forks.index(fork)

    def is_nothing(self, offsets: set[int], number: int) -> bool:
        """Whether a reader of a line may find nothing at any of these."""
        return offsets <= self._controls[number] | self._unseen[number]

    def is_beyond(self, poll: Poll, number: int) -> bool:
        """Whether an answer tells of more than there ever was in a fork."""
        return number != MAIN and (poll.high_watermark or 0) > self._ends[number]

    def is_other(self, poll: Poll, number: int) -> bool:
        """Whether an answer has records that are not those of a line, or speaks of another one that has something else in their place."""
        line, controls, end = self.values[number], self._controls[number], self._ends[number]
        if any(at >= end or at in controls or line.get(at, value) != value for at, value in poll.records):
            return True
        if poll.epoch is None:
            return False
        own = self.values[self.told_by(poll.epoch)]
        return any(at in line and own.get(at, value) != value for at, value in poll.records)


class Reader:
    """One who reads on, and was told of no loss since it began."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._possible = set(lines.values)
        """The lines that it may follow."""
        self.polls: list[Poll] = []
        self._last: Poll | None = None
        """The last one that was answered, ..."""
        self._end: int | None = None
        """... and where it ended."""

    def take(self, poll: Poll) -> None:
        """Its next poll. Raises Violation if what it is shown is in no line that it may follow."""
        self.polls.append(poll)
        if poll.outcome != "ok":
            return
        before, self._last = self._last, poll
        between, within = self._pass_over(poll)
        self._follow(between, before)
        self._follow(within, poll)
        known = sorted(self._possible)
        self._possible -= {number for number in known if self._lines.is_other(poll, number)}
        if not self._possible:
            where = f"{poll.process} of {poll.key} at {poll.position}"
            raise Violation("history", f"{where} reads on in another log than {known}, and was not told: {poll.records}")

    @property
    def line(self) -> int:
        """Of those that it may follow, the one that has most of what it has read; where that is unknown, the one in which all ended."""
        read = dict(record for poll in self.polls if poll.outcome == "ok" for record in poll.records)
        values = self._lines.values
        return max(self._possible, key=lambda n: (sum(values[n].get(at) == value for at, value in read.items()), n == MAIN, n))

    def _pass_over(self, poll: Poll) -> tuple[set[int], set[int]]:
        """Offsets at which it has found nothing, and gone on: between the last answer and this one, and among the records of this one."""
        at = self._end if poll.position is None else poll.position
        between: set[int] = set() if self._end is None or at is None else set(range(self._end, at))
        within: set[int] = set()
        for offset, _ in poll.records:
            if at is not None:
                within.update(range(at, offset))
            at = offset + 1
        self._end = at
        return between, within

    def _follow(self, passed: set[int], teller: Poll | None) -> None:
        """It has passed over these, as an answer told it (None: no answer has): whether that says which lines it follows.

        In those in which there is a record it would have been shown that. Who is told by a leadership in whose line there is one is shown
        nothing by that: it has skipped it.
        """
        lines = self._lines
        contested = {at for at in passed if any(at in lines.values[number] for number in self._possible)}
        epoch = None if teller is None else teller.epoch
        if not contested or (epoch is not None and not lines.is_nothing(contested, lines.told_by(epoch))):
            return
        through = {number for number in self._possible if lines.is_nothing(contested, number)}
        if teller is not None:
            through -= {number for number in through if lines.is_beyond(teller, number)}
        if through:
            self._possible = through


def _lines_of(lost: list[Line], ends: list[int], last: Line) -> dict[int, Line]:
    """By number, of what each fork has from where it parts on, at `ends`, and of `last`, in which it all ended."""
    found, line = {MAIN: last}, last
    for number in range(len(lost) - 1, -1, -1):
        line = {offset: value for offset, value in line.items() if offset < ends[number]} | lost[number]
        found[number] = line
    return found


def _controls(entries: list[Entry], first: int) -> set[int]:
    return {at for at, entry in enumerate(entries, first) if entry.is_control}


def _unseen(entries: list[Entry], first: int) -> set[int]:
    return {at for at, entry in enumerate(entries, first) if entry is NEVER_SEEN}
