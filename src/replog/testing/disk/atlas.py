"""Which copies of which records may still be damaged: never all of them, because no system can survive that.

A run that damages the last good copy proves nothing when records are then missing. So whoever injects faults asks here
first, and tells the atlas what it did and what was repaired since.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from attrs import define, field

__all__ = ["Atlas"]


@define
class Atlas:
    """Counts the good copies that are left. A place is a broker, or any other name of a disk."""

    spare: int = 1
    """So many good copies of each partition are never touched."""
    _damaged: dict[Hashable, dict[Hashable, None]] = field(factory=dict, init=False)

    def may_damage(self, place: Hashable, partitions: Iterable[Hashable], holders: Iterable[Hashable]) -> bool:
        """Whether `place` may lose bytes of these partitions, when `holders` are the places that hold all that is committed in them.

        A place that is no holder, or is damaged there already, may always be damaged: nobody depends on it.
        """
        others = [one for one in dict.fromkeys(holders) if one != place]
        needed = place in list(holders)
        return not needed or all(self._good(partition, others) >= self.spare for partition in partitions)

    def damage(self, place: Hashable, partitions: Iterable[Hashable]) -> None:
        """`place` has damaged bytes of these partitions now."""
        for partition in partitions:
            self._damaged.setdefault(partition, {})[place] = None

    def repaired(self, place: Hashable, partitions: Iterable[Hashable]) -> None:
        """The copies of these partitions at `place` were made anew, or caught up from a good one."""
        for partition in partitions:
            self._damaged.get(partition, {}).pop(place, None)

    def is_damaged(self, place: Hashable, partition: Hashable) -> bool:
        """Whether the copy at `place` is known to be bad."""
        return place in self._damaged.get(partition, {})

    def _good(self, partition: Hashable, places: Iterable[Hashable]) -> int:
        return sum(not self.is_damaged(place, partition) for place in places)
