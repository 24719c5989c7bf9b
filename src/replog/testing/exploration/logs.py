"""Logs as small numbers, and what the rules say about two of them: where they part, and how much of one another has.

A record is (leader epoch, number), numbers counting all writes; a log is its records as digits, first record lowest. Each answer
is computed once, on tuples, and looked up from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import pairwise
from typing import Generic, TypeVar

from replog.testing.exploration.rules import Bounds, Rules

__all__ = ["Logs", "Record", "Table"]

Record = tuple[int, int]
"""(leader epoch, number of the write)."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

UNANSWERABLE = -1
"""The question of a replica that is ahead of whom it asks."""


class Table(dict[K, V], Generic[K, V]):
    """A function that remembers its answers; reading one again costs what a dict costs."""

    def __init__(self, function: Callable[[K], V]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, key: K) -> V:
        value = self[key] = self._function(key)
        return value


class Logs:
    """The logs of a world: their numbers, and the comparisons that the rules are made of."""

    def __init__(self, bounds: Bounds, rules: Rules) -> None:
        self._numbers = bounds.records
        self._enter_empty_epoch = rules.enter_empty_epoch
        self.base = bounds.epochs * bounds.records + 1
        self.count: int = self.base**bounds.records
        """Log numbers are below this."""
        self.powers: list[int] = [self.base**k for k in range(bounds.records + 1)]
        self.records: Table[int, tuple[Record, ...]] = Table(self._records)
        self.length: Table[int, int] = Table(lambda log: len(self.records[log]))
        self.matching: Table[tuple[int, int], bool] = Table(self._matching)

    def number(self, records: tuple[Record, ...]) -> int:
        """The number of the log with these records."""
        return sum((epoch * self._numbers + number + 1) * power for (epoch, number), power in zip(records, self.powers, strict=False))

    def _records(self, log: int) -> tuple[Record, ...]:
        found = []
        while log:
            log, digit = divmod(log, self.base)
            found.append(divmod(digit - 1, self._numbers))
        return tuple(found)

    def begins_with(self, log: int, start: int) -> bool:
        """Whether `start` is a prefix of `log`."""
        return log % self.powers[self.length[start]] == start

    def is_ordered(self, log: int) -> bool:
        """Epochs never fall along a log."""
        records = self.records[log]
        return all(a[0] <= b[0] for a, b in pairwise(records))

    def _matching(self, pair: tuple[int, int]) -> bool:
        """Log matching: where two logs have a record of one epoch at one offset, they are equal up to there."""
        mine, theirs = (self.records[log] for log in pair)
        last = max((k for k, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a[0] == b[0]), default=-1)
        return mine[: last + 1] == theirs[: last + 1]

    def epoch_end(self, log: int, epoch_start: tuple[int, int], asked: int) -> tuple[int, int] | None:
        """A leader's answer to "where does epoch `asked` end?": (largest epoch not above it, end offset); None if it cannot know.

        `epoch_start` is the leader's own epoch and where it begins: in the leader's table before its first write.
        """
        table = self._table(log)
        if self._enter_empty_epoch and (not table or table[-1][0] < epoch_start[0]):
            table = [entry for entry in table if entry[1] < epoch_start[1]] + [epoch_start]
        if not table or asked > table[-1][0]:
            return None
        if asked == table[-1][0]:
            return asked, self.length[log]
        below = [epoch for epoch, _ in table if epoch <= asked]
        return (below[-1] if below else asked), table[len(below)][1]

    def _table(self, log: int) -> list[tuple[int, int]]:
        """(epoch, its first offset) for each epoch with records."""
        table: list[tuple[int, int]] = []
        for offset, (epoch, _) in enumerate(self.records[log]):
            if not table or table[-1][0] != epoch:
                table.append((epoch, offset))
        return table

    def parted(self, log: int, leader_log: int, epoch_start: tuple[int, int]) -> int | None:
        """Where a follower with `log` cuts it by this leader's answer; None if the leader accepts it as it is.

        UNANSWERABLE where the leader knows nothing of so late an epoch and has no shorter log: the follower asks on in vain.
        """
        records = self.records[log]
        if not records:
            return None
        last, end = records[-1][0], len(records)
        answer = self.epoch_end(leader_log, epoch_start, last)
        if answer is None:
            return self.length[leader_log] if self.length[leader_log] < end else UNANSWERABLE
        if answer[0] == last and answer[1] >= end:
            return None
        table = self._table(log)
        mine = [entry for entry in table if entry[0] <= answer[0]]
        if not mine:
            return min(0, answer[1])
        mine_end = table[len(mine)][1] if len(mine) < len(table) else end
        return min(mine_end, answer[1]) if mine[-1][0] == answer[0] else mine_end
