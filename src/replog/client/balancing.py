"""A balanced placement of partitions on given brokers with the least movement: the same input, the same answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from replog.client.evening import Evening
from replog.errors import UsageError

__all__ = ["Place", "balanced"]

Place = tuple[str, int]
"""(topic, partition)."""


def balanced(current: Mapping[Place, Sequence[int]], brokers: Mapping[int, str | None]) -> dict[Place, tuple[int, ...]]:
    """Replicas of each partition on `brokers` (id -> rack) alone, as many as it has now.

    In this order of weight:

    1. Racks: no rack gets a second copy of a partition before each has one, nor a third before each that can has two. Brokers
       without a rack (None or "") stand in one together, as where new partitions are spread (`controller.assignment`).
    2. Copies: as even as racks allow. No broker has two more than another that could take one, directly or through others; without
       racks, or with racks of the same size, none has two more than another.
    3. Movement: no placement that is as even copies less. What is balanced already stays as it is.
    4. Leaders: as even as these copies allow, with the fewest changes. Where all partitions have as many copies and no broker holds two
       more than another, none leads two more than another; copies do not move for the sake of leaders.

    Raises UsageError where a partition has more replicas than there are brokers, none at all, or one broker twice.
    """
    for (topic, number), replicas in current.items():
        if len(replicas) > len(brokers):
            raise UsageError(f"{topic}-{number} has {len(replicas)} replicas; there are {len(brokers)} brokers for them: {sorted(brokers)}")
        if not replicas or len(set(replicas)) < len(replicas):
            raise UsageError(f"{topic}-{number} is on {list(replicas)}; a partition is on one broker or more, all different")
    ids, places = sorted(brokers), sorted(current)
    index = {broker: n for n, broker in enumerate(ids)}
    before = [[index.get(broker, -1) for broker in current[place]] for place in places]
    racks = _Racks([brokers[broker] for broker in ids])
    held = _held(before, len(ids), racks)
    led = _led(before, held, len(ids))
    return {place: tuple(ids[n] for n in _ordered(*one)) for place, one in zip(places, zip(led, held, before, strict=True), strict=True)}


class _Racks:
    """How many copies of a partition a rack may have."""

    def __init__(self, racks: Sequence[str | None]) -> None:
        names: dict[str, int] = {}
        self._of = [names.setdefault(rack or "", len(names)) for rack in racks]
        self._sizes = Counter(self._of)
        self._levels: dict[int, tuple[int, int]] = {}
        self._known: dict[tuple[int, ...], frozenset[int]] = {}

    def room(self, copies: int, others: Iterable[int]) -> frozenset[int]:
        """Brokers where one more copy may go, of so many in all, beside those on `others`; these themselves are not always left out."""
        used = sorted([self._of[other] for other in others])
        key = (copies, *used)
        found = self._known.get(key)
        if found is None:
            level, more = self._level(copies)
            own = Counter(used)
            extra = sum(n > level for n in own.values()) < more
            open_ = {rack for rack in self._sizes if own[rack] < level or (own[rack] == level and extra)}
            found = self._known[key] = frozenset(broker for broker, rack in enumerate(self._of) if rack in open_)
        return found

    def _level(self, copies: int) -> tuple[int, int]:
        """(what every rack gets that has so many brokers, how many racks get one more)."""
        found = self._levels.get(copies)
        if found is None:
            level = 0
            while sum(min(size, level + 1) for size in self._sizes.values()) <= copies and level < max(self._sizes.values()):
                level += 1
            found = self._levels[copies] = level, copies - sum(min(size, level) for size in self._sizes.values())
        return found


def _held(before: Sequence[Sequence[int]], brokers: int, racks: _Racks) -> list[set[int]]:
    """The brokers of each partition: whoever may stay, then the least loaded, then evened out."""
    held: list[set[int]] = []
    load = [0] * brokers
    for old in before:
        kept: set[int] = set()
        for broker in old:
            if broker in racks.room(len(old), kept):
                kept.add(broker)
                load[broker] += 1
        held.append(kept)
    for old, chosen in zip(before, held, strict=True):
        while len(chosen) < len(old):
            broker = min(racks.room(len(old), chosen) - chosen, key=lambda b: (load[b], b))
            chosen.add(broker)
            load[broker] += 1
    if any(chosen != set(old) for old, chosen in zip(before, held, strict=True)) or max(load, default=0) - min(load, default=0) > 1:
        Evening(brokers, held, before, lambda item, a: racks.room(len(before[item]), held[item] - {a})).run()
    return held


def _led(before: Sequence[Sequence[int]], held: Sequence[set[int]], brokers: int) -> list[int]:
    """Each partition under its preferred leader of now if it stays, else one that leads few; then evened out."""
    leads = [0] * brokers
    led: list[set[int]] = []
    for old, chosen in zip(before, held, strict=True):
        first = old[0] if old[0] in chosen else min(chosen, key=lambda b: (leads[b], b))
        leads[first] += 1
        led.append({first})
    Evening(brokers, led, [old[:1] for old in before], lambda item, _: held[item]).run()
    return [first for (first,) in led]


def _ordered(first: int, held: set[int], before: Sequence[int]) -> list[int]:
    """`first`, then the others in the order of before, then those that are new."""
    return [first, *(b for b in before if b in held and b != first), *sorted(b for b in held if b not in before and b != first)]
