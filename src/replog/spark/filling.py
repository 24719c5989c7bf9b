"""The open batches of one task: one for each partition that it writes to, bounded in memory all together."""

from __future__ import annotations

from typing import Final

from attrs import define, field

from replog.config import HEADER_COST
from replog.spark.cells import NIL, RECORDS_MAX, Cells, Placed
from replog.spark.delivery import Place

__all__ = ["Filling", "Open", "counted"]

_CELLS_BYTES: Final = 512
"""What the objects around a piece of cells take."""


@define
class Open:
    """Records of one partition that are to make one batch."""

    several: list[Cells] = field(factory=list)
    records: int = 0
    size: int = 0
    """Bytes of cells, as `Cells` has it."""
    keyless: int = 0
    """Records that have come without the column `keys`."""
    headless: int = 0
    """... and without the column `headers`."""

    def add(self, cells: Cells) -> None:
        """These too."""
        self.several.append(cells)
        self.records += cells.records
        self.size += cells.size
        self.keyless += cells.records if cells.keys is None else 0
        self.headless += cells.records if cells.headers is None else 0

    def size_with(self, cells: Cells) -> int:
        """Bytes of cells in a batch of these too: a column that only some have gets a nil for each of the others."""
        records = self.records + cells.records
        keyless = self.keyless + (cells.records if cells.keys is None else 0)
        headless = self.headless + (cells.records if cells.headers is None else 0)
        return self.size + cells.size + keyless % records + headless % records

    @property
    def weight(self) -> int:
        """Bytes of memory."""
        return self.size + _CELLS_BYTES * len(self.several)

    def join(self) -> None:
        """The same as one piece."""
        if len(self.several) > 1:
            self.several = [_joined(self.several)]


class Filling:
    """Takes records, and says which batches are to leave."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._open: dict[Place, Open] = {}
        self._pieces = 0
        self.bytes = 0
        """Held in open batches."""

    def add(self, placed: Placed, limit: int) -> list[tuple[Place, Open]]:
        """Into the open batch of its partition, which is to have no more than `limit` bytes of cells unless it is a single piece.

        Returns those that leave: a full one, and when all open ones together are too large, the largest.
        """
        leaving: list[tuple[Place, Open]] = []
        place, cells = (placed.topic, placed.partition), placed.cells
        found = self._open.get(place)
        if found is not None and (found.size_with(cells) > limit or found.records + cells.records > RECORDS_MAX):
            leaving.append(self._taken(place))
            found = None
        if found is None:
            found = self._open[place] = Open()
        found.add(cells)
        self.bytes += cells.size + _CELLS_BYTES
        self._pieces += 1
        if found.size >= limit:
            leaving.append(self._taken(place))
        if self.bytes > self._bytes_max and self._pieces * _CELLS_BYTES > self._bytes_max // 4 and self._pieces > 2 * len(self._open):
            self._join()
        while self.bytes > self._bytes_max:
            leaving.append(self._taken(max(self._open, key=lambda one: self._open[one].weight)))
        return leaving

    def rest(self) -> list[tuple[Place, Open]]:
        """What is left at the end; nothing is open afterwards."""
        return [self._taken(place) for place in list(self._open)]

    def _taken(self, place: Place) -> tuple[Place, Open]:
        found = self._open.pop(place)
        self.bytes -= found.weight
        self._pieces -= len(found.several)
        return place, found

    def _join(self) -> None:
        """Rows that come one by one for many partitions take more memory around them than they have: lay them end to end."""
        for found in self._open.values():
            found.join()
        self._pieces = len(self._open)
        self.bytes = sum(found.weight for found in self._open.values())


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
    header_count = sum(one.header_count for one in several)
    size = HEADER_COST * header_count + sum(len(one) for one in columns if one is not None)
    return Cells(sum(one.records for one in several), size, values, keys, headers, header_count)
