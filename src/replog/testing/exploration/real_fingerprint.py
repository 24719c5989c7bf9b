"""Snapshots by number, and what stands for a whole state: 64 bits that are the same in every process and on every machine.

Everything that is hashed is an int or a tuple of such: their hash has no seed (strings, bytes and None have one). A
fingerprint is made of what a state is, never of the numbers that its parts got in the order they were seen.

What is *not* done: brokers are not exchanged for one another. The election prefers the first of the assignment, and so two
states that differ by names alone may go on differently; merging them would leave a part of the space out.
"""

from __future__ import annotations

from typing import Any

from replog.testing.exploration.real_snapshot import Frozen

__all__ = ["Table", "fingerprint"]


class Table:
    """Values by number: tuples, or what can be made `flat`."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.hashes: list[int] = []
        self._numbers: dict[Frozen, int] = {}

    def number(self, value: Any) -> int:
        """The number of a value; the same for equal ones."""
        key = value if type(value) is tuple else value.flat()
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.values)
            self.values.append(value)
            self.hashes.append(hash(key))
        return number

    def __len__(self) -> int:
        return len(self.values)


def fingerprint(brokers: Table, controllers: Table, messages: Table, state: Frozen) -> int:
    """64 bits that stand for a state of `RealCluster`."""
    hashes, under_way = brokers.hashes, messages.hashes
    mine = tuple([hashes[b] for b in state[0]])
    sent = tuple(sorted([under_way[m] for m in state[3]]))
    return hash((mine, controllers.hashes[state[1]], state[2], sent, *state[4:]))
