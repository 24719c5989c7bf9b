"""The two images of a file and of a folder: as the processes see them, and as they are after a power cut.

A file is made of sectors, which reach the disk whole and in any order. Since the last fsync each sector may have had
several contents, and the file several sizes; a power cut leaves any one of those sizes, and of each sector any one of
those contents. So a file can come back longer but filled with zeros, truncated but with its old bytes, or with a late
write that overtook an early one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

from attrs import define, field, frozen

from replog.testing.disk.choices import Choose

__all__ = ["SECTOR", "Change", "Fates", "File", "Folder"]

SECTOR = 512
"""Bytes that a disk writes whole or not at all."""


@frozen
class Fates:
    """What a power cut can make of one file: one of the sizes, and of each sector one of its contents. What is durable comes first."""

    durable: bytes
    sizes: tuple[int, ...]
    sectors: tuple[tuple[int, tuple[bytes, ...]], ...]
    """(number of the sector, its contents), for each sector that was written or cut since the last fsync."""

    @property
    def radices(self) -> tuple[int, ...]:
        """How many choices there are: of sizes, then for each sector."""
        return (len(self.sizes), *(len(contents) for _, contents in self.sectors))

    def outcomes(self) -> list[bytes]:
        """Every different content, once. As many as `count` says at most: think before you ask."""
        found: dict[bytes, None] = {}
        for number, size in enumerate(self.sizes):
            # Sectors behind the end do not show: one choice for each of them is enough.
            shown = [range(len(contents)) if sector * SECTOR < size else range(1) for sector, contents in self.sectors]
            for picks in product(*shown):
                found[self.outcome((number, *picks))] = None
        return list(found)

    @property
    def count(self) -> int:
        """How many contents there are at most, choices that do not show left aside."""
        return sum(prod(len(contents) for sector, contents in self.sectors if sector * SECTOR < size) for size in self.sizes)

    def outcome(self, picks: Sequence[int]) -> bytes:
        """The file after the cut, given one choice for each of `radices`."""
        size = self.sizes[picks[0]]
        left = bytearray(self.durable[:size])
        left.extend(bytes(size - len(left)))
        for (number, contents), pick in zip(self.sectors, picks[1:], strict=True):
            start, content = number * SECTOR, contents[pick]
            stop = min(start + SECTOR, size)
            if start < stop:
                left[start:stop] = content[: stop - start].ljust(stop - start, b"\0")
        return bytes(left)


@define(eq=False)
class File:
    """The bytes of a file."""

    data: bytearray = field(factory=bytearray)
    """As processes see it."""
    durable: bytearray = field(factory=bytearray)
    """As far as it was synced."""
    pending: list[tuple[int, bytes | None]] = field(factory=list)
    """(position, bytes written) or (new size, None), since the last fsync."""
    settled: int = 0
    """How many are pending no longer."""

    @property
    def written(self) -> int:
        """How often it was written or cut so far: to be handed to `sync` later."""
        return self.settled + len(self.pending)

    def write(self, position: int, new: bytes) -> None:
        """Cached, not durable."""
        self._part_images()
        _put(self.data, position, new)
        self.pending.append((position, new))

    def resize(self, size: int) -> None:
        """Cached, not durable."""
        if size != len(self.data):
            self._part_images()
            _resize(self.data, size)
            self.pending.append((size, None))

    def sync(self, written: int | None = None) -> None:
        """Everything written so far is durable, or what was when it was `written` so often. What an earlier fsync dropped stays dropped."""
        count = len(self.pending) if written is None else max(written - self.settled, 0)
        for position, new in self.pending[:count]:
            if new is None:
                _resize(self.durable, position)
            else:
                _put(self.durable, position, new)
        self._settle(count)

    def drop(self) -> None:
        """A failed fsync: what was written is marked clean. Processes go on seeing it, and no later fsync writes it."""
        self._settle(len(self.pending))

    def expose(self) -> bytearray:
        """One image for both, to be damaged from outside; they part with the next write."""
        self.durable = self.data
        self._settle(len(self.pending))
        return self.data

    def lose(self, choose: Choose) -> None:
        """A power cut: of everything that may be there or not, `choose` decides; the latest that it keeps counts."""
        fates = self.fates()
        picks = [max((number for number in range(1, count) if choose()), default=0) for count in fates.radices]
        self.durable = bytearray(fates.outcome(picks))
        self.data = bytearray(self.durable)
        self._settle(len(self.pending))

    def fates(self) -> Fates:
        """Every content that a power cut can leave now."""
        image, sizes = bytearray(self.durable), [len(self.durable)]
        contents: dict[int, list[bytes]] = {}
        for position, new in self.pending:
            before = len(image)
            if new is None:
                first, stop = min(position, before), position + 1 if position % SECTOR else position
            else:
                first, stop = min(position, before), position + len(new)
            numbers = range(first // SECTOR, -(-stop // SECTOR))
            for number in numbers:
                contents.setdefault(number, [_sector(self.durable, number)])
            if new is None:
                _resize(image, position)
            else:
                _put(image, position, new)
            for number in numbers:
                if (content := _sector(image, number)) != contents[number][-1]:
                    contents[number].append(content)
            # A write that makes a file longer can become durable in part: the size follows its sectors.
            grown = [] if new is None else [size for size in range((before // SECTOR + 1) * SECTOR, len(image), SECTOR) if size > before]
            sizes += [size for size in (*grown, len(image)) if size != sizes[-1]]
        varying = tuple((number, tuple(contents[number])) for number in sorted(contents) if len(contents[number]) > 1)
        return Fates(bytes(self.durable), tuple(sizes), varying)

    def _settle(self, count: int) -> None:
        del self.pending[:count]
        self.settled += count

    def _part_images(self) -> None:
        if self.durable is self.data:
            self.durable = bytearray(self.data)


@define(eq=False)
class Folder:
    """The names in a folder."""

    names: dict[str, File | Folder] = field(factory=dict)
    durable: dict[str, File | Folder] = field(factory=dict)


@define(eq=False)
class Change:
    """One change of names, atomic even if it touches two folders: (folder, name, what it names now)."""

    effects: list[tuple[Folder, str, File | Folder | None]]

    def apply(self) -> None:
        """It is durable."""
        for folder, name, node in self.effects:
            if node is None:
                folder.durable.pop(name, None)
            else:
                folder.durable[name] = node


def _sector(data: bytearray, number: int) -> bytes:
    return bytes(data[number * SECTOR : (number + 1) * SECTOR])


def _put(data: bytearray, position: int, new: bytes) -> None:
    if position > len(data):
        data.extend(bytes(position - len(data)))
    data[position : position + len(new)] = new


def _resize(data: bytearray, size: int) -> None:
    if size < len(data):
        del data[size:]
    else:
        data.extend(bytes(size - len(data)))
