"""A balanced placement of partitions on given brokers with the least movement: the same input, the same answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from replog.errors import UsageError

__all__ = ["Place", "balanced"]

Place = tuple[str, int]
"""(topic, partition)."""


def balanced(current: Mapping[Place, Sequence[int]], brokers: Mapping[int, str | None]) -> dict[Place, tuple[int, ...]]:
    """Replicas of each partition on `brokers` (id -> rack) alone, as many as it has now.

    No broker has two more replicas than another, unless racks want it so; no rack gets a second copy of a partition before every rack
    has one. A replica stays where it is as long as that can be. Then leaders: none more than its share, moved only where one has
    too many. Raises UsageError where a partition has more replicas than there are brokers.
    """
    for (topic, number), replicas in current.items():
        if len(replicas) > len(brokers):
            raise UsageError(f"{topic}-{number} has {len(replicas)} replicas; {len(brokers)} brokers are named: {sorted(brokers)}")
    plan = _Plan(current, brokers)
    plan.keep()
    plan.fill()
    plan.even_out()
    return _led(plan.replicas, current)


class _Plan:
    def __init__(self, current: Mapping[Place, Sequence[int]], brokers: Mapping[int, str | None]) -> None:
        self._current = current
        self._racks = dict(sorted(brokers.items()))
        self._rack_count = len({rack for rack in self._racks.values() if rack is not None})
        self.replicas: dict[Place, list[int]] = {}
        self.load: Counter[int] = Counter(dict.fromkeys(self._racks, 0))

    def keep(self) -> None:
        """Whoever may stay does: up to the share of each broker, rounded up."""
        total = sum(map(len, self._current.values()))
        share = -(-total // len(self._racks)) if self._racks else 0
        for place in sorted(self._current):
            kept: list[int] = []
            for broker in self._current[place]:
                if broker in self._racks and self._fits(kept, broker) and self.load[broker] < share:
                    kept.append(broker)
                    self.load[broker] += 1
            self.replicas[place] = kept

    def fill(self) -> None:
        """Whoever is missing: the least loaded, of racks without a copy first."""
        for place, kept in self.replicas.items():
            while len(kept) < len(self._current[place]):
                others = [b for b in self._racks if b not in kept]
                fresh = [b for b in others if self._fits(kept, b)] or others
                stays = set(self._current[place])
                broker = min(fresh, key=lambda b: (self.load[b], b not in stays, b))
                kept.append(broker)
                self.load[broker] += 1

    def even_out(self) -> None:
        """From the most to the least loaded, one replica at a time, as long as that helps."""
        moved = True
        while moved:
            moved = False
            order = sorted(self._racks, key=lambda b: (-self.load[b], b))
            for full in order:
                empty = next((b for b in reversed(order) if self.load[full] - self.load[b] > 1 and self._shift(full, b)), None)
                if empty is not None:
                    moved = True
                    break

    def _shift(self, full: int, empty: int) -> bool:
        """Give one replica of `full` to `empty`; one that came there by this plan before one that was there."""
        able = [
            place for place, kept in self.replicas.items()
            if full in kept and empty not in kept and self._fits([b for b in kept if b != full], empty)
        ]
        if not able:
            return False
        place = min(able, key=lambda one: (full in self._current[one], empty not in self._current[one], one))
        kept = self.replicas[place]
        kept[kept.index(full)] = empty
        self.load[full] -= 1
        self.load[empty] += 1
        return True

    def _fits(self, kept: Sequence[int], broker: int) -> bool:
        """Whether no rack gets a copy too many."""
        rack = self._racks[broker]
        if rack is None or self._rack_count < 2:
            return True
        used = Counter(self._racks[b] for b in kept)
        return used[rack] <= min((used[r] for r in set(self._racks.values())), default=0)


def _led(replicas: Mapping[Place, Sequence[int]], current: Mapping[Place, Sequence[int]]) -> dict[Place, tuple[int, ...]]:
    """Each partition under its preferred leader of now if it stays, else one that leads few."""
    count = len({b for kept in replicas.values() for b in kept})
    share = -(-len(replicas) // count) if count else 0
    leads: Counter[int] = Counter()
    placed: dict[Place, tuple[int, ...]] = {}
    homeless = []
    for place, kept in replicas.items():
        first = current[place][0]
        if first in kept and leads[first] < share:
            leads[first] += 1
            placed[place] = _ordered(first, kept, current[place])
        else:
            homeless.append(place)
    for place in homeless:
        first = min(replicas[place], key=lambda b: (leads[b], b))
        leads[first] += 1
        placed[place] = _ordered(first, replicas[place], current[place])
    return {place: placed[place] for place in replicas}


def _ordered(first: int, kept: Sequence[int], before: Sequence[int]) -> tuple[int, ...]:
    """`first`, then the others in the order of before, then those that are new."""
    order = {b: n for n, b in enumerate(before)}
    return (first, *sorted((b for b in kept if b != first), key=lambda b: (order.get(b, len(order)), b)))
