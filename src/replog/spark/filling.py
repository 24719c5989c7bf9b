"""The open batches of one task: one for each partition that it writes to, bounded in memory all together."""

from __future__ import annotations

from typing import Final

from attrs import define, field

from replog.spark.cells import NIL, RECORDS_MAX, Cells, Placed
from replog.spark.delivery import Place

__all__ = ["Filling", "Open", "counted"]

_CELLS_BYTES: Final = 512
"""What the objects around cells take, so that rows that come one by one do not take many times the memory they seem to."""
_SMALL_BYTES: Final = 4_096
_SMALL_MAX: Final = 64
"""So many small pieces are laid end to end as one."""


@define
class Open:
    """Records of one partition that are to make one batch."""

    several: list[Cells] = field(factory=list)
    records: int = 0
    size: int = 0
    """Bytes of cells."""
    weight: int = 0
    """Bytes of memory."""
    _small: int = 0
    """How many of the last `several` are small."""

    def add(self, cells: Cells) -> None:
        """At the end."""
        self.several.append(cells)
        self.records += cells.records
        self.size += cells.size
        self.weight += cells.size + _CELLS_BYTES
        self._small = self._small + 1 if cells.size <= _SMALL_BYTES else 0
        if self._small == _SMALL_MAX:
            self.several[-_SMALL_MAX:] = [_joined(self.several[-_SMALL_MAX:])]
            self.weight -= (_SMALL_MAX - 1) * _CELLS_BYTES
            self._small = 0


class Filling:
    """Takes records, and says which batches are to leave."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._open: dict[Place, Open] = {}
        self.bytes = 0
        """Held in open batches."""

    def add(self, placed: Placed, limit: int) -> list[tuple[Place, Open]]:
        """Into the open batch of its partition, which is to have no more than `limit` bytes of cells unless it is a single piece.

        Returns those that leave: a full one, and when all open ones together are too large, the largest.
        """
        leaving: list[tuple[Place, Open]] = []
        place, cells = (placed.topic, placed.partition), placed.cells
        found = self._open.get(place)
        if found is not None and (found.size + cells.size > limit or found.records + cells.records > RECORDS_MAX):
            leaving.append(self._taken(place))
            found = None
        if found is None:
            found = self._open[place] = Open()
        before = found.weight
        found.add(cells)
        self.bytes += found.weight - before
        if found.size >= limit:
            leaving.append(self._taken(place))
        while self.bytes > self._bytes_max:
            leaving.append(self._taken(max(self._open, key=lambda one: self._open[one].weight)))
        return leaving

    def rest(self) -> list[tuple[Place, Open]]:
        """What is left at the end; nothing is open afterwards."""
        return [self._taken(place) for place in list(self._open)]

    def _taken(self, place: Place) -> tuple[Place, Open]:
        found = self._open.pop(place)
        self.bytes -= found.weight
        return place, found


def counted(records: dict[Place, int]) -> tuple[tuple[str, int, int], ...]:
    """A number for each partition, as `Written` has it."""
    return tuple(sorted((topic, partition, count) for (topic, partition), count in records.items()))


def _joined(several: list[Cells]) -> Cells:
    columns: list[bytes | None] = []
    for column in ([one.values for one in several], [one.keys for one in several], [one.headers for one in several]):
        is_empty = all(cells is None for cells in column)
        parts = (NIL * one.records if cells is None else cells for one, cells in zip(several, column, strict=True))
        columns.append(None if is_empty else b"".join(parts))
    values, keys, headers = columns
    assert values is not None
    return Cells(sum(one.records for one in several), sum(len(one) for one in columns if one is not None), values, keys, headers)
