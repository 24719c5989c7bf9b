"""What a repair would do: found by reading every byte, without changing one.

A log keeps everything up to its first damaged place and loses everything behind it, as in the recovery of a broker: a record behind a gap
may not be served, for the offsets in between would seem to be there. What is behind may be intact all the same, so it is counted apart,
and kept as evidence. Segments that are wholly below the start of the log belong to it no more: a damaged one goes alone.

A write that a killed process has left unfinished at the end is no damage: the next start of the broker cuts it off.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

from attrs import define, field, frozen
from crc32c import crc32c

from replog.config import BrokerConfig
from replog.errors import UsageError
from replog.log.checkpoint import read_file
from replog.log.files import Fs
from replog.log.repair.facts import CHECKPOINT, CLEAN, LIFE, Facts, facts_of, value_of
from replog.log.scan import intact_batches, valid_batch_follows
from replog.log.segment import LOG_SUFFIX, SUMMARY_SUFFIX, Segment, segment_base, segment_name, start_note
from replog.log.shapes import MARKER
from replog.log.storage import Marker, folder_name
from replog.log.verify import Stop, Verifier
from replog.model import PartitionId
from replog.records import BatchHeader

__all__ = ["Cut", "LogPlan", "Plan", "Ranges", "count_of_begun", "is_unfinished", "marker_of", "plan_of"]

PIECE: Final = 1 << 20
_SMALL: Final = {
    CHECKPOINT: "nothing is known to be flushed any more; the next start writes it anew",
    CLEAN: "its last broker counts as killed",
    LIFE: "every log counts as one that may have lost records",
}
"""What becomes of damaged small files besides being removed (`life`: replaced), as every start of a broker has it."""

Ranges = tuple[tuple[int, int], ...]
"""Offsets, each pair from (inclusive) and to (exclusive); increasing."""


def is_unfinished(stop: Stop, *, is_last: bool, power: bool, follows: bool, flushed_end: int, start: int = 0) -> bool:
    """Whether a segment ends in a write that a crash has cut short, and not in damage. What is below `start` need not be there."""
    return is_last and (stop.torn or power) and not follows and max(stop.offset, start) >= flushed_end


def count_of_begun(bases: Sequence[int], size: Callable[[int], int], *, power: bool) -> int:
    """How many of the segments are there. A power cut may leave the names, at the end, of files that were never written: they have no
    byte, and nothing is missing in front of them."""
    count = len(bases)
    while power and count and size(bases[count - 1]) == 0:
        count -= 1
    return count


@frozen
class Cut:
    """Bytes that go: those of a file from `position` to its end at `size`. All of it goes if nothing is in front."""

    file: str
    """Relative to the directory."""
    position: int
    size: int
    crc: int
    """crc32c of these bytes."""

    @property
    def count(self) -> int:
        """How many bytes."""
        return self.size - self.position


@frozen
class LogPlan:
    """What would become of one log."""

    identity: PartitionId
    topic: str
    reason: str
    """What is wrong."""
    start: int
    """The log begins here, before and after."""
    end: int
    """It ends here afterwards; everything from `start` to here stays as it is."""
    cuts: tuple[Cut, ...]
    """Oldest first."""
    unreadable: Ranges
    """Offsets that were stored, and are damaged or missing."""
    readable: Ranges
    """Offsets behind the damage that are intact. They go as well, and are only in the evidence afterwards."""
    indexes: tuple[str, ...] = ()
    """Indexes of segments that change: they go as well, and are made anew when they are needed. Relative to the directory."""
    marker: bool = False
    """Its marker is damaged as well, and replaced."""
    is_lossy: bool = True
    """Whether records are lost, or may be: where nothing but segments below the start is damaged, none is. What was appended after the last
    checkpoint is in no count, and may have been acknowledged all the same."""

    @property
    def folder(self) -> str:
        """Relative to the directory."""
        return f"logs/{folder_name(self.identity)}"

    @property
    def name(self) -> str:
        """As people call it."""
        return f"{self.topic}-{self.identity.partition}"

    @property
    def is_uncounted(self) -> bool:
        """Whether records may be lost of which nothing tells how many they are."""
        return self.is_lossy and not (self.unreadable or self.readable)

    def to_plain(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "log": self.name,
            "folder": self.folder,
            "reason": self.reason,
            "start_offset": self.start,
            "end_offset": self.end,
            "cuts": [{"file": cut.file, "from": cut.position, "to": cut.size} for cut in self.cuts],
            "indexes": list(self.indexes),
            "unreadable": [list(found) for found in self.unreadable],
            "readable": [list(found) for found in self.readable],
            "records_lost": sum(stop - first for first, stop in (*self.unreadable, *self.readable)),
            "may_have_lost_records": self.is_lossy,
            "marker_replaced": self.marker,
        }


@frozen
class Plan:
    """What a repair of a directory would do."""

    path: str
    directory_id: str
    stopped_cleanly: bool
    """False: its broker was killed, or this is a copy that was taken while it ran."""
    logs: tuple[LogPlan, ...]
    small: dict[str, str]
    """Damaged small files that go, and what follows from that."""
    lossy: tuple[PartitionId, ...]
    """Logs of which the broker will say that they may have lost acknowledged records: the damaged ones, with those it knew of."""
    small_crcs: dict[str, int] = field(factory=dict)
    """Of every small file that is read or written, as it was looked at."""

    @property
    def is_empty(self) -> bool:
        """Nothing is damaged."""
        return not self.logs and not self.small

    @property
    def name(self) -> str:
        """Of just this plan: another state of the files has another name."""
        plain = [self.to_plain(), self.small_crcs, [[cut.crc for cut in one.cuts] for one in self.logs]]
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:12]

    def to_plain(self) -> dict[str, Any]:
        """As plain values; files relative to the directory."""
        return {
            "directory_id": self.directory_id,
            "stopped_cleanly": self.stopped_cleanly,
            "logs": [one.to_plain() for one in self.logs],
            "files": self.small,
            "lossy": [[identity.topic_id.hex(), identity.partition, identity.creation] for identity in self.lossy],
        }


def plan_of(fs: Fs, path: str, only: PartitionId | None = None, read: Callable[[int], None] | None = None) -> Plan:
    """Look at a directory, or at one log of it (`only`). `read` is told of bytes when they were read.

    Raises what `facts_of` raises.
    """
    facts = facts_of(fs, path)
    small = {name: _SMALL[name] for name in facts.damaged}
    logs = []
    for identity, topic in facts.topics.items():
        if only in (None, identity):
            found = _Look(fs, path, identity, topic, facts, read or (lambda count: None)).run()
            if found is not None:
                logs.append(found)
    lossy = {*facts.life.lossy, *(one.identity for one in logs if one.is_lossy)}
    if LIFE in small:
        lossy.update(facts.topics)
    names = [CHECKPOINT, CLEAN, LIFE, "catalogue", *(f"{one.folder}/marker" for one in logs)]
    crcs = {name: crc32c(data) for name in names if (data := read_file(fs, f"{path}/{name}")) is not None}
    return Plan(path, facts.directory_id, facts.stopped_cleanly, tuple(logs), small, tuple(sorted(lossy)), crcs)


def marker_of(fs: Fs, folder: str) -> tuple[Marker | None, bool]:
    """The marker of a log, and whether there is one that is damaged."""
    value, intact = value_of(fs, f"{folder}/marker", MARKER)
    return None if value is None else Marker(*value), not intact


def index_of(file: str) -> str:
    """The index of a segment file."""
    return file.removesuffix(LOG_SUFFIX) + SUMMARY_SUFFIX


@define
class _Look:
    """At one log."""

    fs: Fs
    path: str
    identity: PartitionId
    topic: str
    facts: Facts
    read: Callable[[int], None]
    epoch: int = -1
    cuts: list[Cut] = field(factory=list)
    readable: list[tuple[int, int]] = field(factory=list)

    def run(self) -> LogPlan | None:
        """None if nothing is damaged."""
        fs, folder, claims = self.fs, self._folder, self.facts.claims
        try:
            names = fs.listdir(folder)
        except FileNotFoundError:  # it is made with the first record
            names = []
        marker, is_marker_damaged = marker_of(fs, folder)
        if marker is not None and marker.resetting:
            return None  # every segment goes with the next start anyway
        bases = sorted(base for name in names if (base := segment_base(name)) is not None)
        starts = [note.start for name in names if (note := start_note(name)) is not None]
        start = claims.start_offsets.get(self.identity, 0)
        start = max([marker.start if marker is not None and marker.start >= 0 else start, *starts])
        flushed_end = claims.flushed_ends.get(self.identity, 0)
        flushed_end = flushed_end if marker is None else min(flushed_end, marker.recovery_max)
        trimmed = [base for base, following in pairwise(bases) if following <= start]
        reason = self._look_at_trimmed(trimmed)
        bases = bases[len(trimmed) :]
        start = max(start, bases[0]) if bases and claims.starts_with_files(self.identity) else start
        end, why = self._walk(bases, start, flushed_end)
        why = why or ("the marker does not match its checksum" if is_marker_damaged else "")
        if not why and not reason:
            return None
        top = max([flushed_end, end, *(stop for _, stop in self.readable)]) if why else end
        readable = tuple(_clipped(_merged(self.readable), start))
        unreadable = tuple(_clipped(_between(_merged(self.readable), end, top), start))
        cuts = sorted(self.cuts, key=lambda cut: cut.file)
        indexes = tuple(index for cut in cuts if self.fs.size(f"{self.path}/{(index := index_of(cut.file))}") is not None)
        return LogPlan(
            self.identity, self.topic, why or reason, start, max(start, end), tuple(cuts), unreadable, readable, indexes, is_marker_damaged,
            is_lossy=bool(why),
        )  # fmt: skip

    @property
    def _folder(self) -> str:
        return f"{self.path}/logs/{folder_name(self.identity)}"

    def _look_at_trimmed(self, bases: list[int]) -> str:
        """What is wrong with segments that hold nothing of the log any more."""
        reason = ""
        for base in bases:
            stop, size = self._verify(base, is_trimmed=True)
            if stop.reason:
                reason = f"{segment_name(base)} is damaged, and holds nothing but offsets below the start of the log"
                self._cut(base, 0, size)
        return reason

    def _walk(self, bases: list[int], start: int, flushed_end: int) -> tuple[int, str]:
        """Follow the segments up to the first damage, and cut what is behind: (where the log ends, what is wrong)."""
        end = start if not bases else min(bases[0], start)
        power = self.facts.claims.power
        begun = count_of_begun(bases, self._size, power=power)
        for number, base in enumerate(bases):
            if base != end:
                if number >= begun and max(end, start) >= flushed_end:
                    return end, ""
                self._cut_all(bases[number:], end)
                return self._ending(end, start, bases[:number], f"no segment begins at offset {end}, and {segment_name(base)} follows")
            stop, size = self._verify(base)
            end = stop.offset
            if not stop.reason:
                continue
            follows = self._follows(base, stop, start)
            is_last = number >= begun - 1
            if is_unfinished(stop, is_last=is_last, power=power, follows=follows, flushed_end=flushed_end, start=start):
                return end, ""
            self._cut_all(bases[number + 1 :], end)
            self._cut(base, stop.position, size)
            self.readable += self._intact_behind(base, stop.position + 1, end)
            why = f"{segment_name(base)} at position {stop.position}, before offset {end}: {stop.reason}"
            return self._ending(end, start, bases[:number], why)
        if end < flushed_end:
            return end, f"records from offset {end} to {flushed_end} were flushed, and are missing"
        return end, ""

    def _ending(self, end: int, start: int, whole: list[int], why: str) -> tuple[int, str]:
        """Where nothing above the start is left, segments do not stay either: they would end below it."""
        if end < start:
            for base in whole:
                self._cut(base, 0, self._size(base))
            self.cuts = [self._widened(cut) for cut in self.cuts]
        return end, why

    def _widened(self, cut: Cut) -> Cut:
        path = f"{self.path}/{cut.file}"
        return cut if not cut.position else Cut(cut.file, 0, cut.size, _crc_of(self.fs, path, 0, cut.size))

    def _file(self, base: int) -> str:
        return f"{self._folder}/{segment_name(base)}"

    def _size(self, base: int) -> int:
        return self.fs.size(self._file(base)) or 0

    def _seen(self, header: BatchHeader) -> None:
        self.epoch = max(self.epoch, header.leader_epoch)

    def _verify(self, base: int, *, is_trimmed: bool = False) -> tuple[Stop, int]:
        """Every byte of one segment: where its valid batches end, and how large it is. One that is trimmed says nothing of the others."""
        fs, file = self.fs, self._file(base)
        epoch, seen = (-1, lambda header: None) if is_trimmed else (self.epoch, self._seen)
        verifier = Verifier(fs, self.identity, BrokerConfig().index_interval_bytes, seen)
        size = fs.size(file) or 0
        fd = fs.open(file)
        try:
            stop = verifier.run(Segment(file, base), fd, size, epoch)
        finally:
            fs.close(fd)
        self.read(size)
        return stop, size

    def _follows(self, base: int, stop: Stop, start: int) -> bool:
        fd = self.fs.open(self._file(base))
        try:
            return valid_batch_follows(self.fs, fd, stop.position, max(stop.offset, start), self.identity)
        finally:
            self.fs.close(fd)

    def _cut_all(self, bases: list[int], end: int) -> None:
        for base in bases:
            self._cut(base, 0, self._size(base))
            self.readable += self._intact_behind(base, 0, end)

    def _cut(self, base: int, position: int, size: int) -> None:
        file = self._file(base)
        self.cuts.append(Cut(file.removeprefix(f"{self.path}/"), position, size, _crc_of(self.fs, file, position, size)))

    def _intact_behind(self, base: int, position: int, end: int) -> Iterator[tuple[int, int]]:
        """Offsets of the batches of this log at or above `end` that are intact, from `position` of a file on."""
        fd = self.fs.open(self._file(base))
        try:
            for _, header in intact_batches(self.fs, fd, position, self.identity):
                if header.base_offset >= end:
                    yield header.base_offset, header.end_offset
        finally:
            self.fs.close(fd)


def _crc_of(fs: Fs, path: str, position: int, size: int) -> int:
    fd, crc = fs.open(path), 0
    try:
        while position < size and (piece := fs.pread(fd, min(PIECE, size - position), position)):
            crc, position = crc32c(piece, crc), position + len(piece)
    finally:
        fs.close(fd)
    if position < size:
        raise UsageError(f"{path} has become shorter while it was read: somebody is writing to this directory; nothing was done")
    return crc


def _merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for first, stop in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((first, stop))
    return merged


def _between(ranges: list[tuple[int, int]], first: int, stop: int) -> Iterator[tuple[int, int]]:
    """What of [first, stop) is in none of the ranges."""
    for low, high in ranges:
        if first < low:
            yield first, low
        first = max(first, high)
    if first < stop:
        yield first, stop


def _clipped(ranges: Any, start: int) -> Iterator[tuple[int, int]]:
    return ((max(low, start), high) for low, high in ranges if high > start)
