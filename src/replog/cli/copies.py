"""Reading the files of a stopped or running broker: without a lock, and without changing a byte.

A broker may be appending, cutting and removing while this looks. So what is torn at the end of a log is no damage, and where
something seems damaged the directory is looked at again, what it says of the log included, and the log is read again: damage is what
two readings in a row find. What the disk does not give is told apart from damage, and keeps nothing else from being read.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar

from attrs import define, evolve, field, frozen

from replog.config import BrokerConfig
from replog.errors import LogCorrupt, UsageError
from replog.log import shapes
from replog.log.catalogue import Catalogue
from replog.log.directory import FORMAT
from replog.log.files import Fs
from replog.log.loss import Life
from replog.log.repair.facts import CHECKPOINT, CLEAN, LIFE, claims_of, value_of
from replog.log.repair.planning import count_of_begun, is_unfinished
from replog.log.scan import valid_batch_follows
from replog.log.segment import Segment, segment_base, segment_name, start_note
from replog.log.storage import Marker, folder_name
from replog.log.verify import Verifier
from replog.model import PartitionId
from replog.records import HEADER_BYTES, BadBatch, BatchHeader, RecordBatch, read_header

__all__ = ["Copy", "Damage", "Place", "Report", "Unread", "batches", "examine", "find", "size_of"]

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
class Unread:
    """A file that the disk does not give: nobody knows whether it is intact."""

    file: str
    reason: str

    def __str__(self) -> str:
        return f"{self.file}: {self.reason}"


def _unread(file: str, problem: OSError) -> Unread:
    return Unread(file, problem.strerror or str(problem))


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
    start: int = -1
    """No segment in front of the first one was trimmed above this offset; -1 where that is not known."""

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
    unread: list[Unread] = field(factory=list)
    changing: bool = False
    """No two looks agreed."""

    def now(self, copy: Copy) -> Copy | None:
        """A log as it is known here at this moment; None if it is not there any more: it was deleted."""
        try:
            copies = [one for place in find(self.path) for one in place.copies]
        except UsageError:  # all of it has gone
            return None
        return next((one for one in copies if one.identity == copy.identity), None)


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
    unread: list[Unread] = field(factory=list)
    gone: bool = False
    """It was deleted while it was read."""
    changing: bool = False
    """Its broker changed it under every reading, so that no two agreed: not all of it is verified."""

    @property
    def state(self) -> str:
        """In one word, or two."""
        if self.damages:
            return "DAMAGED"
        if self.unread:
            return "UNREADABLE"
        if self.gone or self.changing:
            return "deleted meanwhile" if self.gone else "changing"
        return "intact" if self.unfinished is None else "unfinished write"

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
        what = f"{path} is a file; name a broker's data directory, or the folder of one log"
        raise UsageError(f"{what} (of a segment alone, replog log dump shows what is in it)") from None
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
            return Place(path, [evolve(known[0], folder=path)])
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
    """A data directory; again where something seems damaged, because a broker may have changed it meanwhile."""
    return _standing(lambda: _look(path))


_Seen = TypeVar("_Seen", Place, "Report")


def _standing(look: Callable[[], _Seen]) -> _Seen:
    """What a look finds, with those damages that the next one finds as well. If no two in a row agree on any, there are none."""
    before: list[Damage] = []
    for _ in range(_READINGS_MAX):
        found = look()
        stands = [damage for damage in found.damages if damage in before]
        if stands or not found.damages:
            found.damages = stands
            return found
        before = found.damages
    found.damages, found.changing = [], True
    return found


def _look(path: str) -> Place:
    """One look. The folders are listed first: whatever is made meanwhile is in the catalogue before it has one."""
    place = Place(path)
    try:
        folders = FS.listdir(f"{path}/logs")
    except FileNotFoundError:
        folders = []
    except OSError as problem:
        folders = []
        place.unread.append(_unread(f"{path}/logs", problem))
    _check_format(path, _plain(place, "meta"), missing=place)
    checkpoint = _plain(place, "checkpoint")
    clean = _plain(place, "clean")
    life = Life.from_plain(_plain(place, "life"))
    claims = claims_of(checkpoint, clean, life, FS.boot_id())
    known = [name for name in folders if _FOLDER.fullmatch(name)]
    catalogue = _catalogue(place)
    live = {identity: entry.topic for identity, entry in catalogue.live.items()} if catalogue else dict.fromkeys(map(_identity, known), "")
    for identity, topic in sorted(live.items()):
        flushed_end = claims.flushed_ends.get(identity, 0)
        start = -1 if claims.starts_with_files(identity) else claims.start_offsets.get(identity, 0)
        place.copies.append(Copy(f"{path}/logs/{folder_name(identity)}", identity, topic, flushed_end, claims.power, start))
    for name in folders:
        identity_of = _identity(name) if name in known else None
        if catalogue and identity_of not in live and identity_of not in catalogue.quarantined:
            place.damages.append(Damage(f"{path}/logs/{name}", 0, "a log that is in no entry of the catalogue"))
    return place


def _check_format(path: str, meta: Any | None, *, missing: Place) -> None:
    """UsageError for a directory of something else, or of a format that a newer version has written."""
    file = f"{path}/meta"
    if meta is None:
        if file not in {one.file for one in missing.damages} | {one.file for one in missing.unread}:
            missing.damages.append(Damage(file, 0, "the file is missing"))
        return
    if not shapes.fits(meta, shapes.META):
        raise UsageError(f"{path} is no log directory: {file} is of another kind")
    if meta["format"] > FORMAT:
        newer = f"{path} has format {meta['format']}; this version of the library reads up to {FORMAT}"
        raise UsageError(f"{newer}: look at it with the version whose broker writes it")


def _catalogue(place: Place) -> Catalogue | None:
    """Which logs there should be; None if it cannot say: then that is noted."""
    file = f"{place.path}/catalogue"
    try:
        return _Catalogue.load(FS, place.path)
    except LogCorrupt as corrupt:
        found = re.search(r"at byte ([0-9]+)", str(corrupt))
        place.damages.append(Damage(file, int(found[1]) if found else 0, str(corrupt)))
    except OSError as problem:
        place.unread.append(_unread(file, problem))
    return None


def _identity(name: str) -> PartitionId:
    topic_id, partition, creation = name.split("-")
    return PartitionId(bytes.fromhex(topic_id), int(partition), int(creation))


_SHAPES: Final[dict[str, shapes.Shape]] = {CHECKPOINT: shapes.CHECKPOINT, CLEAN: shapes.CLEAN, LIFE: shapes.LIFE, "marker": shapes.MARKER}


def _plain(place: Place, name: str) -> Any | None:
    """The value of one of the small files of a directory; None if there is none, or if it is damaged: then that is noted."""
    path = f"{place.path}/{name}"
    try:
        value, intact = value_of(FS, path, _SHAPES.get(name, shapes.anything))
        if not intact:
            place.damages.append(Damage(path, 0, f"its {FS.size(path)} bytes do not match their checksum, or belong elsewhere"))
    except OSError as problem:
        place.unread.append(_unread(path, problem))
        return None
    return value


# ----------------------------------------------------------------------------------------------------------- examining


def examine(copy: Copy, now: Callable[[Copy], Copy | None] = lambda copy: copy, read: Callable[[int], None] | None = None) -> Report:
    """Verify every byte of a log, until two readings in a row agree if something is wrong.

    `now` says before each reading but the first what the directory says of the log then. `read` is told of bytes when they were read.
    """
    fs = FS if read is None else _Counting(read)
    latest: Copy | None = copy
    again = False

    def look() -> Report:
        nonlocal latest, again
        latest = now(copy) if again else copy
        again = True
        if latest is None:
            return Report(copy, gone=True)
        for _ in range(_READINGS_MAX):
            try:
                return _Reading(latest, fs).run()
            except FileNotFoundError:  # a segment has gone while we looked
                if (latest := now(copy)) is None:
                    return Report(copy, gone=True)
        return Report(copy, damages=[Damage(copy.folder, 0, "its files keep disappearing while they are read")])

    return _standing(look)


class _Counting(ReadingFs):
    """Says how much it has read."""

    def __init__(self, read: Callable[[int], None]) -> None:
        self._read = read

    def preadv(self, fd: int, buffers: Any, offset: int, flags: int = 0, /) -> int:
        """As the system's."""
        got = os.preadv(fd, buffers, offset, flags)
        self._read(got)
        return got


class _Reading:
    """One reading of one log."""

    def __init__(self, copy: Copy, fs: Fs) -> None:
        self.copy = copy
        self.fs = fs
        self.report = Report(copy)
        self.epoch = -1

    def run(self) -> Report:
        report, copy = self.report, self.copy
        try:
            names = FS.listdir(copy.folder)
        except FileNotFoundError:
            names = []  # it is made with the first record
        except OSError as problem:
            report.unread.append(_unread(copy.folder, problem))
            return report
        marker = self._marker(names)
        bases = sorted(base for name in names if (base := segment_base(name)) is not None)
        starts = [note.start for name in names if (note := start_note(name)) is not None]
        if marker is not None and marker.resetting:
            bases = []
        begun = count_of_begun(bases, lambda base: FS.size(f"{copy.folder}/{segment_name(base)}") or 0, power=copy.power)
        bases = bases[: begun if copy.start >= 0 else max(begun, 1)]  # nothing else may say where the log begins
        known = max([marker.start if marker is not None else 0, *starts, 0])
        report.start_offset = report.end_offset = max(known, bases[0] if bases else 0)
        if bases and copy.start >= 0 and max(copy.start, known) < bases[0]:
            first = f"{copy.folder}/{segment_name(bases[0])}"
            missing = f"the log begins at offset {max(copy.start, known)}, and no segment in front of this one is there"
            report.damages.append(Damage(first, 0, missing))
        verifier = Verifier(self.fs, copy.identity, BrokerConfig().index_interval_bytes, self._seen)
        flushed_end = copy.flushed_end if marker is None else min(copy.flushed_end, marker.recovery_max)
        end: int | None = None
        for base in bases:
            end = self._segment(verifier, base, end, flushed_end, max(copy.start, known), is_last=base == bases[-1])
        if report.end_offset < flushed_end and not report.damages and not report.unread:
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
        self.report.unread += place.unread
        return None if value is None else Marker(*value)

    def _segment(self, verifier: Verifier, base: int, end: int | None, flushed_end: int, start: int, *, is_last: bool) -> int | None:
        """Verify one file; returns where it ends, None if that is not known for damage."""
        report = self.report
        file = f"{self.copy.folder}/{segment_name(base)}"
        if end is not None and base != end:
            report.damages.append(Damage(file, 0, f"it begins at offset {base}, and the segment before it ends at offset {end}"))
        damage = None
        try:
            fd = FS.open(file)
            try:
                stop = verifier.run(Segment(file, base), fd, os.fstat(fd).st_size, self.epoch)
                if stop.reason:
                    damage = Damage(file, stop.position, f"before offset {stop.offset}: {stop.reason}")
                    follows = valid_batch_follows(FS, fd, stop.position, max(stop.offset, start), self.copy.identity)
                    power = self.copy.power
                    if is_unfinished(stop, is_last=is_last, power=power, follows=follows, flushed_end=flushed_end, start=start):
                        report.unfinished = damage
                    else:
                        report.damages.append(damage)
            finally:
                FS.close(fd)
        except FileNotFoundError:
            raise
        except OSError as problem:
            report.unread.append(_unread(file, problem))
            report.end_offset = max(report.end_offset, base)
            return None
        report.parts.append(Part(file, base, stop.position, damage))
        report.end_offset = max(report.end_offset, stop.offset)
        return None if damage is not None else stop.offset


def size_of(copy: Copy) -> int:
    """Bytes in the segment files of a log, about: nothing where that cannot be said now."""
    with suppress(OSError):
        return sum(FS.size(f"{copy.folder}/{name}") or 0 for name in FS.listdir(copy.folder) if segment_base(name) is not None)
    return 0


def batches(part: Part, told: Callable[[Damage], None]) -> Iterator[tuple[int, RecordBatch]]:
    """(position, batch) of a part that was verified; `told` hears if it has changed since. Raises OSError if it cannot be read now."""
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
