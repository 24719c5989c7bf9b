"""A segment: one file of stored batches, what is known of it, and a sparse index into it.

The index is a memory of positions, never an authority: whoever follows it checks the header it leads to, and builds it
anew from the batches if that is not the right one. Who only ends where it says does without it then.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

__all__ = ["LOG_SUFFIX", "SUMMARY_SUFFIX", "Segment", "SparseIndex", "StartNote", "segment_base", "segment_name", "start_note"]

LOG_SUFFIX: Final = ".log"
SUMMARY_SUFFIX: Final = ".index"
_START_SUFFIX: Final = ".start"
_RESUME_MAX: Final = 32


def segment_name(base_offset: int, suffix: str = LOG_SUFFIX) -> str:
    """The name of the file that begins at an offset: sorts by offset."""
    return f"{base_offset:020d}{suffix}"


def segment_base(name: str, suffix: str = LOG_SUFFIX) -> int | None:
    """The offset in a file's name, None if it is another kind of file."""
    digits = name.removesuffix(suffix)
    return int(digits) if name.endswith(suffix) and len(digits) == 20 and digits.isdecimal() else None


class StartNote(NamedTuple):
    """What is left of a segment that was trimmed: only its name counts."""

    start: int
    """The log begins here."""
    epoch: int
    """Leader epoch of the record in front of that; -1 if nobody knows."""

    @property
    def name(self) -> str:
        return segment_name(self.start, f"-{self.epoch}{_START_SUFFIX}" if self.epoch >= 0 else _START_SUFFIX)


def start_note(name: str) -> StartNote | None:
    """The note that a file is by its name, None if it is another kind of file. Notes of earlier versions know no epoch."""
    offset, _, epoch = name.removesuffix(_START_SUFFIX).partition("-")
    start = segment_base(f"{offset}{_START_SUFFIX}", _START_SUFFIX)
    note = None if start is None else StartNote(start, int(epoch) if epoch.isdecimal() else -1)
    return note if note is not None and note.name == name else None


class SparseIndex:
    """Some of the batches of a segment: base offset, position, and the newest time before each. Increasing in all three."""

    __slots__ = ("offsets", "positions", "times")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.positions = array("q")
        self.times = array("q")

    def add(self, offset: int, position: int, newest_before_ms: int) -> None:
        """The batch at `position` begins at `offset`; no record in front of it in this segment is newer than the time given."""
        self.offsets.append(offset)
        self.positions.append(position)
        self.times.append(newest_before_ms)

    def at_or_below(self, offset: int) -> tuple[int, int] | None:
        """(offset, position) of the last entry at or below `offset`."""
        found = bisect_right(self.offsets, offset) - 1
        return (self.offsets[found], self.positions[found]) if found >= 0 else None

    def position_above(self, offset: int) -> int | None:
        """Position of the first entry above `offset`."""
        found = bisect_right(self.offsets, offset)
        return self.positions[found] if found < len(self.positions) else None

    def last_within(self, position: int, offset: int) -> tuple[int, int] | None:
        """(offset, position) of the last entry that is not beyond either."""
        found = min(bisect_right(self.positions, position), bisect_right(self.offsets, offset)) - 1
        return (self.offsets[found], self.positions[found]) if found >= 0 else None

    def before_time(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(offset, position) of the last entry in front of which everything is older than `timestamp_ms`."""
        found = bisect_left(self.times, timestamp_ms) - 1
        return (self.offsets[found], self.positions[found]) if found >= 0 else None

    def cut(self, position: int) -> None:
        """Forget entries at and above `position`."""
        keep = bisect_left(self.positions, position)
        del self.offsets[keep:], self.positions[keep:], self.times[keep:]

    def go_on_with(self, other: SparseIndex, position: int) -> None:
        """Take over the entries of another index at and above `position`, where this one ends."""
        begin = bisect_left(other.positions, position)
        self.offsets += other.offsets[begin:]
        self.positions += other.positions[begin:]
        self.times += other.times[begin:]

    def to_list(self) -> list[bytes]:
        """As plain values, for `from_list`."""
        return [self.offsets.tobytes(), self.positions.tobytes(), self.times.tobytes()]

    @classmethod
    def from_list(cls, columns: list[bytes]) -> SparseIndex:
        """The index that `to_list` described."""
        index = cls()
        for column, data in zip((index.offsets, index.positions, index.times), columns, strict=True):
            column.frombytes(data)
        return index


class Segment:
    """One file. `size` is where its valid batches end, which is where the next one is written."""

    __slots__ = (
        "_cuts",
        "base_offset",
        "closing",
        "end_offset",
        "fd",
        "first_timestamp_ms",
        "front",
        "index",
        "index_due",
        "max_timestamp_ms",
        "path",
        "pins",
        "resume",
        "sealed",
        "size",
        "used",
    )

    def __init__(self, path: str, base_offset: int) -> None:
        self.path = path
        self.base_offset = self.end_offset = base_offset
        self.size = 0
        self.first_timestamp_ms = self.max_timestamp_ms = -1
        self.index: SparseIndex | None = None
        """None until it is needed; see `index_due`."""
        self.front: SparseIndex | None = None
        """Where no index could be built because a batch is damaged: one of those in front of it. Enough to read, not to append."""
        self.index_due = 0
        """The first batch at or above this position gets an index entry."""
        self.sealed = False
        """Sealed segments take no appends; all but the last are."""
        self.fd = -1
        """-1 while the file is not open: `OpenFiles` opens and closes it."""
        self.used = False
        self.closing = False
        self.pins = 0
        """Slices and flushes that need the descriptor to stay open."""
        self.resume: dict[int, int] = {}
        """Offset -> position of where recent reads ended: where the next ones begin."""
        self._cuts: tuple[int, ...] = ()

    def remember(self, offset: int, position: int) -> None:
        """A read ended here; its reader will come back for what follows."""
        resume = self.resume
        if len(resume) >= _RESUME_MAX:
            del resume[next(iter(resume))]
        resume[offset] = position

    def enter_next(self) -> None:
        """Something here is damaged: the next batch gets an index entry, as the way along those in front of it may not lead there."""
        self.index_due = self.size

    def cut(self, offset: int, position: int) -> None:
        """Everything at and above `position`, where `offset` began, is gone. Slices that show some of it become stale."""
        self.end_offset = offset
        self.size = position
        self.resume.clear()
        self.index_due = position  # the batch that comes here next gets an entry
        self.sealed = False
        if self.index is not None:
            self.index.cut(position)
        if position == 0:
            self.first_timestamp_ms = self.max_timestamp_ms = -1
        if self.pins:
            self._cuts = (*self._cuts, position)
        else:
            self._cuts = ()

    def cuts_so_far(self) -> int:
        """A mark for `is_cut_below`: what was cut before does not concern a slice made now."""
        return len(self._cuts)

    def is_cut_below(self, stop: int, since: int) -> bool:
        """Whether something below position `stop` was cut after `since`."""
        return any(position < stop for position in self._cuts[since:])

    def __repr__(self) -> str:
        return f"Segment([{self.base_offset}, {self.end_offset}), {self.size} bytes)"
