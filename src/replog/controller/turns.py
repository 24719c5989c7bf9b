"""In which order wishes to move partitions get their turn: kept as they change, so that whoever takes a few looks at no others."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from attrs import define, field

from replog.controller import moves
from replog.controller.changes import MoveWished
from replog.model import Assignment, PartitionId

__all__ = ["Turns", "urgency"]

_Key = tuple[int, str, PartitionId]


def urgency(assignment: Assignment, wish: MoveWished, *, is_stuck: bool) -> int | None:
    """0: its partition moves, and is wished elsewhere, or back; 1: it is there already; 2: to be begun. None: nothing can be done about it.

    A wish that cannot be removed (`is_stuck`) begins nothing, because it would begin it again for ever.
    """
    if moves.is_moving(assignment):
        on_its_way = moves.is_returning(assignment) if wish.target is None else wish.target == moves.target_of(assignment)
        return None if on_its_way else 0
    if is_stuck:
        return None
    return 1 if wish.target is None or wish.target == assignment.replicas else 2


@define
class Turns:
    """Partitions, those that move first, then by the name of their topic: the same order under every controller."""

    _order: list[_Key] = field(factory=list)
    _keys: dict[PartitionId, _Key] = field(factory=dict)

    def put(self, partition: PartitionId, topic: str, urgent: int | None) -> None:
        """Give a partition its place, or none."""
        before = self._keys.pop(partition, None)
        if before is not None:
            del self._order[bisect_left(self._order, before)]
        if urgent is not None:
            self._keys[partition] = key = (urgent, topic, partition)
            insort(self._order, key)

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[PartitionId]:
        """In the order of their turn; not to be changed meanwhile."""
        return (partition for _, _, partition in self._order)
