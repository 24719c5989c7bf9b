"""Where leader epochs begin in a log, and from that, where two logs part (KIP-101, KIP-279; PROTOCOL 4.1)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from functools import lru_cache

from replog import ports
from replog.ports import EpochEnd, EpochStart

__all__ = ["EpochTable", "truncation_point"]


class EpochTable:
    """Leader epoch -> start offset, strictly increasing in both; short, because a leadership is rare.

    Epoch 0 is an epoch like any other (KAFKA-10432 skipped it).
    """

    __slots__ = ("_epochs", "_starts", "below")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: tuple[int, ...] = ()
        self._starts: tuple[int, ...] = ()
        self.below = -1
        """The epoch of the record in front of the log's start, which was trimmed; -1 if there is none, or if nobody knows."""
        for epoch, start in entries:
            self.assign(epoch, start)

    @property
    def latest(self) -> EpochStart | None:
        """The newest entry; None while there is none."""
        return EpochStart(self._epochs[-1], self._starts[-1]) if self._epochs else None

    def entries(self) -> tuple[EpochStart, ...]:
        """All of them, oldest first."""
        return tuple(map(EpochStart, self._epochs, self._starts))

    def __len__(self) -> int:
        return len(self._epochs)

    def assign(self, epoch: int, start: int) -> None:
        """`epoch` begins at `start`: entries at or above either are gone. The same latest epoch again changes nothing."""
        epochs, starts = self._epochs, self._starts
        if epochs and epochs[-1] == epoch and starts[-1] <= start:
            return
        keep = min(bisect_left(epochs, epoch), bisect_left(starts, start))
        if keep:
            self._epochs, self._starts = (*epochs[:keep], epoch), (*starts[:keep], start)
        else:
            self._epochs, self._starts = _alone(epoch), _alone(start)

    def truncate(self, offset: int, *, cut: bool = True) -> None:
        """The log ends at `offset` now. Also when it did before: two epochs without records would conflict (KAFKA-10706).

        A log of which nothing is left is still of the epoch of what was trimmed; but not if nothing was `cut` and that was its latest
        already: then it is what the leader does not know.
        """
        keep = bisect_left(self._starts, offset)
        if not keep and self._epochs and self.below >= 0:
            if cut or self._epochs[0] != self.below:
                self._epochs, self._starts = (self.below,), (offset,)
                return
            self.below = -1
        self._epochs, self._starts = self._epochs[:keep], self._starts[:keep]

    def trim(self, offset: int) -> None:
        """The log starts at `offset` now: the entry in force there stays, as if it began there."""
        below = bisect_left(self._starts, offset) - 1
        if below >= 0:
            self.below = self._epochs[below]
        drop = bisect_right(self._starts, offset) - 1
        if drop >= 0:
            self._epochs, self._starts = self._epochs[drop:], (offset, *self._starts[drop + 1 :])

    def begin(self, epoch: int, start: int) -> None:
        """The log starts at `start`, and the record in front of that, which was trimmed, was of `epoch`; -1 if nobody knows."""
        self.below = epoch
        if epoch >= 0 and not self._epochs:
            self.assign(epoch, start)

    def of_records(self, end_offset: int) -> list[EpochStart]:
        """What another life may know of a log that ends at `end_offset`: an epoch that left no record never was."""
        left = [entry for entry in self.entries() if entry.start < end_offset]
        return left or ([EpochStart(self.below, end_offset)] if self.below >= 0 else [])

    def clear(self) -> None:
        """Forget every entry."""
        self._epochs = self._starts = ()
        self.below = -1

    def end_offset_for(self, epoch: int, end_offset: int) -> EpochEnd | None:
        """Where `epoch` ends in a log that ends at `end_offset`; None if that cannot be known.

        An epoch the table lacks ends where the first larger one begins, and is answered by the largest one not above
        it; `epoch` itself where that part of the log is gone. The caller being ahead of the log cannot be answered.
        """
        if epoch < 0 or not self._epochs or epoch > self._epochs[-1]:
            return None
        if epoch == self._epochs[-1]:
            return EpochEnd(epoch, end_offset)
        larger = bisect_right(self._epochs, epoch)
        return EpochEnd(self._epochs[larger - 1] if larger else epoch, self._starts[larger])

    def epoch_at(self, offset: int) -> int | None:
        """The epoch in force at `offset`; None below the first entry."""
        found = bisect_right(self._starts, offset)
        return self._epochs[found - 1] if found else None

    def __repr__(self) -> str:
        return f"EpochTable({list(self.entries())})"


@lru_cache(1_000)
def _alone(number: int) -> tuple[int]:
    """Most logs have one epoch, which begins where many others do: with tuples that are shared each takes 96 bytes less."""
    return (number,)


def truncation_point(table: ports.EpochTable, end_offset: int, diverging: EpochEnd) -> tuple[int, bool]:
    """Where a follower cuts its log, which ends at `end_offset`, when its leader answered `diverging`; and whether that is all.

    When the follower lacks the leader's epoch it cuts back to the end of the largest one below and asks again, now with
    that smaller epoch: False. Several rounds are normal after unclean elections (P-15).
    """
    entries = table.entries()
    at_or_below = [entry for entry in entries if entry.epoch <= diverging.epoch]
    if not at_or_below:
        first = entries[0].start if entries else end_offset
        return min(first, diverging.end, end_offset), True
    mine = at_or_below[-1].epoch
    mine_end = entries[len(at_or_below)].start if len(at_or_below) < len(entries) else end_offset
    if mine == diverging.epoch:
        return min(mine_end, diverging.end, end_offset), True
    return min(mine_end, end_offset), False
