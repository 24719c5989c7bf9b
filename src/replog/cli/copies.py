"""Reading the files of a stopped or running broker: without a lock, and without changing a byte.

A broker may be appending, cutting and removing while this looks. So what is torn at the end of a log is no damage, and a
log in which something seems damaged is read again until two readings agree.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from attrs import define, field, frozen

from replog.config import BrokerConfig
from replog.errors import LogCorrupt, UsageError
from replog.log.catalogue import Catalogue
from replog.log.checkpoint import read_file, unpack, unseal
from replog.log.files import Fs
from replog.log.loss import Life
from replog.log.scan import valid_batch_follows
from replog.log.segment import Segment, segment_base, segment_name
from replog.log.storage import Marker, folder_name
from replog.log.verify import Verifier
from replog.model import PartitionId
from replog.records import HEADER_BYTES, BadBatch, BatchHeader, RecordBatch, read_header

__all__ = ["Copy", "Damage", "Place", "Report", "batches", "examine", "find"]

_FOLDER: Final = re.compile(r"([0-9a-f]{32})-([0-9]+)-([0-9]+)")
_BROKER: Final = re.compile(r"broker-[1-9][0-9]*")
_READINGS_MAX: Final = 5


class ReadingFs(Fs):
    """Files that are only read: every function that could change one refuses."""

    def open(self, path: str, *, create: bool = False) -> int:
        """A descriptor for reading."""
        if create:
            raise OSError(errno.EROFS, "this only reads", path)
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)

    def _refuse(self, *_: object, **__: object) -> Any:
        raise OSError(errno.EROFS, "this only reads")

    pwritev = fsync = ftruncate = rename = unlink = rmdir = fsync_dir = mkdir = lock = _refuse


FS: Final = ReadingFs()


@frozen
class Damage:
    """One damaged place."""

    file: str
    position: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file} at position {self.position}: {self.reason}"


@frozen
class Copy:
    """One log, and what its directory says of it."""

    folder: str
    identity: PartitionId
    topic: str = ""
    """"" where only the folder of the log is known."""
    flushed_end: int = 0
    """Everything below was flushed, and must be there."""
    power: bool = False
    """The machine has restarted since it was last written to: what was not flushed may be anything."""

    @property
    def name(self) -> str:
        """As people call it."""
        topic = self.topic or self.identity.topic_id.hex()
        return f"{topic}-{self.identity.partition}"


@define
class Place:
    """A folder that was looked at: its logs, and what is damaged beside them."""

    path: str
    copies: list[Copy] = field(factory=list)
    damages: list[Damage] = field(factory=list)


class Part(NamedTuple):
    """The valid part of one segment file: it begins at an offset, and ends at a position."""

    file: str
    base_offset: int
    size: int
    damage: Damage | None
    """What is behind it."""


@define
class Report:
    """What one reading of a log found."""

    copy: Copy
    parts: list[Part] = field(factory=list)
    start_offset: int = 0
    end_offset: int = 0
    damages: list[Damage] = field(factory=list)
    unfinished: Damage | None = None
    """An unfinished write at the very end: the next start of the broker cuts it off."""

    @property
    def size(self) -> int:
        """Bytes of valid batches."""
        return sum(part.size for part in self.parts)


# ------------------------------------------------------------------------------------------------------------- finding


class _Catalogue(Catalogue):
    """Of a directory that is only read."""

    def _compact(self) -> None:
        pass


def find(path: str) -> list[Place]:
    """The logs under a folder: a broker's data directory, one log of it, or the folder of a Cluster. UsageError if it is none."""
    try:
        names = FS.listdir(path)
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no such folder") from None
    except NotADirectoryError:
        raise UsageError(f"{path} is a file; name a broker's data directory, or the folder of one log") from None
    path = path.rstrip("/") or "/"
    if "meta" in names or "catalogue" in names:
        return [_directory(path)]
    brokers = [name for name in names if _BROKER.fullmatch(name)]
    if brokers:
        return [_directory(f"{path}/{name}") for name in sorted(brokers, key=lambda name: int(name[7:]))]
    if any(segment_base(name) is not None for name in names) or _FOLDER.fullmatch(os.path.basename(path)):
        return [_alone(path, names)]
    raise UsageError(f"{path} is neither a broker's data directory nor the folder of a log: it has no 'meta' and no batches")


def _alone(path: str, names: list[str]) -> Place:
    """One log: as its directory knows it, if it is still in there; else by itself."""
    absolute = os.path.abspath(path)
    above = os.path.dirname(os.path.dirname(absolute))
    if os.path.basename(os.path.dirname(absolute)) == "logs" and FS.size(f"{above}/meta") is not None:
        known = [copy for copy in _directory(above).copies if os.path.basename(copy.folder) == os.path.basename(absolute)]
        if known:
            one = known[0]
            return Place(path, [Copy(path, one.identity, one.topic, one.flushed_end, one.power)])
    named = _FOLDER.fullmatch(os.path.basename(absolute))
    if named:
        return Place(path, [Copy(path, PartitionId(bytes.fromhex(named[1]), int(named[2]), int(named[3])))])
    first = f"{path}/{segment_name(min(base for name in names if (base := segment_base(name)) is not None))}"
    fd = FS.open(first)
    try:
        return Place(path, [Copy(path, read_header(FS.pread(fd, HEADER_BYTES, 0)).identity)])
    except BadBatch as bad:
        return Place(path, [], [Damage(first, 0, f"{bad}; so nothing says which log this is")])
    finally:
        FS.close(fd)


def _directory(path: str) -> Place:
    """A data directory. The folders are listed first: whatever is made meanwhile is in the catalogue before it has one."""
    place = Place(path)
    try:
        folders = FS.listdir(f"{path}/logs")
    except FileNotFoundError:
        folders = []
    checkpoint = _plain(place, "checkpoint")
    clean = _plain(place, "clean")
    life = Life.from_plain(_plain(place, "life"))
    if _plain(place, "meta") is None and not place.damages:
        place.damages.append(Damage(f"{path}/meta", 0, "the file is missing"))
    try:
        catalogue = _Catalogue.load(FS, path)
    except LogCorrupt as corrupt:
        found = re.search(r"at byte ([0-9]+)", str(corrupt))
        place.damages.append(Damage(f"{path}/catalogue", int(found[1]) if found else 0, str(corrupt)))
        catalogue = _Catalogue(FS, path)
        catalogue.quarantined = {_identity(name): 0 for name in folders if _FOLDER.fullmatch(name)}  # it cannot say what is in it
    flushed = {PartitionId(*entry[:3]): entry[5] for entry in checkpoint or ()}
    flushed |= {} if clean is None else {PartitionId(*entry[:3]): entry[3][1] for entry in clean[1]}
    power = clean is None and (life.flush_failed or life.boot_id != FS.boot_id())
    for identity, entry in sorted(catalogue.live.items()):
        place.copies.append(Copy(f"{path}/logs/{folder_name(identity)}", identity, entry.topic, flushed.get(identity, 0), power))
    for name in folders:
        identity_of = _identity(name) if _FOLDER.fullmatch(name) else None
        if identity_of not in catalogue.live and identity_of not in catalogue.quarantined:
            place.damages.append(Damage(f"{path}/logs/{name}", 0, "a log that is in no entry of the catalogue"))
    return place


def _identity(name: str) -> PartitionId:
    topic_id, partition, creation = name.split("-")
    return PartitionId(bytes.fromhex(topic_id), int(partition), int(creation))


def _plain(place: Place, name: str) -> Any | None:
    """The value of one of the small files of a directory; None if there is none, or if it is damaged: then that is noted."""
    path = f"{place.path}/{name}"
    data = read_file(FS, path)
    payload = None if data is None else unseal(data)
    if data is not None and payload is None:
        place.damages.append(Damage(path, 0, f"its {len(data)} bytes do not match their checksum"))
    return None if payload is None else unpack(payload)


# ----------------------------------------------------------------------------------------------------------- examining


def examine(copy: Copy) -> Report:
    """Verify every byte of a log, until two readings agree if something is wrong."""
    last: Report | None = None
    for _ in range(_READINGS_MAX):
        try:
            report = _Reading(copy).run()
        except FileNotFoundError:  # a segment has gone while we looked
            continue
        if not report.damages or (last is not None and report.damages == last.damages):
            return report
        last = report
    return last or Report(copy, damages=[Damage(copy.folder, 0, "its files keep disappearing while they are read")])


class _Reading:
    """One reading of one log."""

    def __init__(self, copy: Copy) -> None:
        self.copy = copy
        self.report = Report(copy)
        self.epoch = -1

    def run(self) -> Report:
        report, copy = self.report, self.copy
        try:
            names = FS.listdir(copy.folder)
        except FileNotFoundError:
            names = []  # it is made with the first record
        marker = self._marker(names)
        bases = sorted(base for name in names if (base := segment_base(name)) is not None)
        starts = [base for name in names if (base := segment_base(name, ".start")) is not None]
        if marker is not None and marker.resetting:
            bases = []
        known = max([marker.start if marker is not None else 0, *starts, 0])
        report.start_offset = report.end_offset = max(known, bases[0] if bases else 0)
        verifier = Verifier(FS, copy.identity, BrokerConfig().index_interval_bytes, self._seen)
        flushed_end = copy.flushed_end if marker is None else min(copy.flushed_end, marker.recovery_max)
        end: int | None = None
        for base in bases:
            end = self._segment(verifier, base, end, flushed_end, is_last=base == bases[-1])
        if report.end_offset < flushed_end and not report.damages:
            last = report.parts[-1] if report.parts else Part(copy.folder, 0, 0, None)
            missing = f"records from offset {report.end_offset} to {flushed_end} were flushed, and are missing"
            report.damages.append(Damage(last.file, last.size, missing))
        return report

    def _seen(self, header: BatchHeader) -> None:
        self.epoch = max(self.epoch, header.leader_epoch)

    def _marker(self, names: list[str]) -> Marker | None:
        place = Place(self.copy.folder)
        value = _plain(place, "marker") if "marker" in names else None
        self.report.damages += place.damages
        return None if value is None else Marker(*value)

    def _segment(self, verifier: Verifier, base: int, end: int | None, flushed_end: int, *, is_last: bool) -> int | None:
        """Verify one file; returns where it ends, None if that is not known for damage."""
        report = self.report
        file = f"{self.copy.folder}/{segment_name(base)}"
        fd = FS.open(file)
        try:
            if end is not None and base != end:
                report.damages.append(Damage(file, 0, f"it begins at offset {base}, and the segment before it ends at offset {end}"))
            stop = verifier.run(Segment(file, base), fd, os.fstat(fd).st_size, self.epoch)
            damage = None
            if stop.reason:
                damage = Damage(file, stop.position, f"after offset {stop.offset}: {stop.reason}")
                follows = valid_batch_follows(FS, fd, stop.position, stop.offset, self.copy.identity)
                unfinished = stop.torn or self.copy.power
                if is_last and unfinished and not follows and stop.offset >= flushed_end:
                    report.unfinished = damage
                else:
                    report.damages.append(damage)
        finally:
            FS.close(fd)
        report.parts.append(Part(file, base, stop.position, damage))
        report.end_offset = max(report.end_offset, stop.offset)
        return None if damage is not None else stop.offset


def batches(part: Part, told: Callable[[Damage], None]) -> Iterator[tuple[int, RecordBatch]]:
    """(position, batch) of a part that was verified; `told` hears if it has changed since."""
    fd = FS.open(part.file)
    position = 0
    try:
        while position < part.size:
            header = read_header(FS.pread(fd, HEADER_BYTES, position))
            yield position, RecordBatch.parse(FS.pread(fd, header.length, position), identity=header.identity)
            position += header.length
    except BadBatch as bad:
        told(Damage(part.file, position, str(bad)))
    finally:
        FS.close(fd)
