"""Every byte of every file of a small log directory turned over, every file cut at every length: detected, or harmless.

Harmless: everything is served as it was written. Detected: the directory refuses to open, or the log reports what it may
have lost, or reading raises LogCorrupt. Anything else, above all a wrong byte that is served, raises Broken.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from attrs import define, field, frozen

from replog.config import TopicConfig
from replog.errors import LogCorrupt, UsageError
from replog.log.directory import FileLogDirectory
from replog.log.log import FileLog
from replog.model import PartitionId
from replog.ports import LogStart
from replog.records import BadBatch
from replog.testing.disk.crashes import DiskState
from replog.testing.disk.ledger import Content
from replog.testing.disk.memory import MemoryFs
from replog.testing.disk.session import FOLDER, LIMITS, batch_of_length
from replog.testing.disk.trial import Broken, content_of

__all__ = ["Injury", "Prepared", "Stop", "Tally", "injuries", "prepare", "sweep", "sweep_running"]

Stop = Literal["clean", "process", "power"]
"""How the life ended after which the damage is found."""

_IDENTITY = PartitionId(bytes(range(16)), 0, 0)


class Injury(NamedTuple):
    """One thing done to one file: a bit turned over at `position`, or with `bit` -1 the file cut there."""

    path: str
    position: int
    bit: int

    def applied(self, files: dict[str, bytes]) -> dict[str, bytes]:
        """The files afterwards."""
        data = bytearray(files[self.path])
        if self.bit < 0:
            del data[self.position :]
        else:
            data[self.position] ^= 1 << self.bit
        return {**files, self.path: bytes(data)}

    def __str__(self) -> str:
        what = "cut at" if self.bit < 0 else f"bit {self.bit} turned over at"
        return f"{self.path}, {what} byte {self.position}"


@frozen
class Prepared:
    """A directory whose life has ended, and what its log held."""

    stop: Stop
    files: dict[str, bytes]
    folders: tuple[str, ...]
    boots: int
    content: Content
    checkpointed: int
    """The checkpoint knows that all below this offset is flushed."""


@define
class Tally:
    """How many injuries came to what."""

    refused: int = 0
    reported: int = 0
    caught: int = 0
    """By reading."""
    harmless: int = 0
    unfinished: int = 0
    """An injury that left what a killed process, or a power cut, may leave of records that are not known to be flushed."""
    names: dict[str, int] = field(factory=dict)
    """Injuries per kind of file."""

    @property
    def total(self) -> int:
        """All of them."""
        return self.refused + self.reported + self.caught + self.harmless + self.unfinished

    def __str__(self) -> str:
        return (
            f"{self.total:,} injuries: {self.refused:,} refused at opening, {self.reported:,} reported, {self.caught:,} caught by "
            f"reading, {self.harmless:,} harmless, {self.unfinished:,} like an unfinished write; 0 bad bytes served"
        )


def prepare(stop: Stop, *, unflushed: bool = False) -> Prepared:
    """A log of three segments, two epochs and a producer, with a marker of a truncation; `unflushed`: two batches more at its end."""
    disk = MemoryFs()
    directory = FileLogDirectory(FOLDER, fs=disk, limits=LIMITS)
    (log,) = directory.create([LogStart(_IDENTITY, "t", TopicConfig(segment_bytes=500, flush="ack"))])
    assert isinstance(log, FileLog)
    directory.registered(1)
    for number in range(8):
        _append(log, number // 4, 160)
    _flush(log)
    directory.high_watermarks[_IDENTITY] = log.end_offset
    directory.checkpoint()
    if stop != "clean":  # the checkpoint knows more than there is, and the marker says why
        log.truncate_to(7)
        _append(log, 2, 150)
        _flush(log)
    checkpointed = log.end_offset if stop == "clean" else 7
    if unflushed:
        directory.checkpoint()
        checkpointed = log.end_offset
        _append(log, 2, 140)
        _append(log, 2, 170)
    content = content_of(log)
    directory.close(clean=stop == "clean")
    if stop == "process":
        disk.kill()
    else:
        disk.cut_power(lambda: True)
    folders = (f"{FOLDER}/logs", f"{FOLDER}/quarantine")
    return Prepared(stop, disk.snapshot(), folders, disk.boots, content, checkpointed)


def injuries(files: dict[str, bytes], *, every: int = 1, bits: int = 1, offset: int = 0) -> Iterator[Injury]:
    """Each file cut at each length, and so many bits of each byte turned over; of all that, one in `every`, from `offset` on."""
    number = 0
    for path in sorted(files):
        for position in range(len(files[path])):
            for bit in (-1, *((position + 3 * more) % 8 for more in range(bits))):
                if number % every == offset % every:
                    yield Injury(path, position, bit)
                number += 1


def sweep(prepared: Prepared, *, every: int = 1, bits: int = 1, offset: int = 0) -> Tally:
    """Open the directory after each injury and judge what it says and serves. Raises Broken."""
    tally = Tally()
    for injury in injuries(prepared.files, every=every, bits=bits, offset=offset):
        name = injury.path.rpartition("/")[2].lstrip("0123456789") or "log"
        tally.names[name] = tally.names.get(name, 0) + 1
        try:
            outcome = _open_injured(prepared, injury)
        except Exception as problem:
            raise Broken(f"after a {prepared.stop} stop, {injury}: {problem!r}") from problem
        setattr(tally, outcome, getattr(tally, outcome) + 1)
    return tally


def _open_injured(prepared: Prepared, injury: Injury) -> str:
    disk = DiskState(injury.applied(prepared.files), prepared.folders, prepared.boots).disk()
    try:
        directory = FileLogDirectory(FOLDER, fs=disk, limits=LIMITS)
    except (LogCorrupt, UsageError):
        missing = [path for path in prepared.files if path.endswith(".log") and disk.size(f"/{path}") is None]
        if missing:
            raise Broken(f"refused to open, and removed {missing}") from None
        return "refused"
    log = directory.get(_IDENTITY)
    if log is None:
        raise Broken("the log is forgotten")
    content = _read(log)
    told = directory.loss.kind == "corrupt" or _IDENTITY in directory.loss.lossy
    _compare(content, prepared.content)
    directory.close(clean=False)
    if content is None:
        return "caught"
    if content == prepared.content:
        return "reported" if told else "harmless"
    if told:
        return "reported"
    above = content.end >= prepared.checkpointed and content.start == prepared.content.start
    torn = prepared.stop == "power" or (prepared.stop == "process" and injury.bit < 0)  # after a power cut any bytes may be there
    if torn and above:
        return "unfinished"
    raise Broken(f"{directory.loss}, but the log is [{content.start}, {content.end}) of {prepared.content.end}")


def _read(log: FileLog) -> Content | None:
    """Everything, in one way and batch by batch by way of the index; None if any of it is found to be corrupt."""
    try:
        content = content_of(log)
        for batch in content.batches:
            (part,) = log.read(batch.base, batch.end, 1)
            data = bytes(part.view())
            part.release()
            if (part.base_offset, data) != (batch.base, batch.data):
                raise Broken(f"reading at {batch.base} alone gives other bytes")
    except (LogCorrupt, BadBatch):
        return None
    return content


def _compare(content: Content | None, whole: Content) -> None:
    if content is not None and content.batches != tuple(b for b in whole.batches if content.start <= b.base and b.end <= content.end):
        raise Broken("a byte is served that was never written")


def sweep_running(*, every: int = 1) -> Tally:
    """The segments of a log that is open are damaged: what it serves then is right, or an error. Raises Broken."""
    tally, prepared = Tally(), prepare("clean")
    disk = DiskState(prepared.files, prepared.folders, prepared.boots).disk()
    directory = FileLogDirectory(FOLDER, fs=disk, limits=LIMITS)
    log = directory.get(_IDENTITY)
    assert log is not None
    for injury in injuries({path: data for path, data in prepared.files.items() if path.endswith(".log")}, every=every):
        file = disk.content(injury.path)
        whole = bytes(file)
        file[:] = injury.applied({injury.path: whole})[injury.path]
        log.forget_tail()
        content = _read(log)
        _compare(content, prepared.content)
        if content is not None and content != prepared.content:
            raise Broken(f"{injury}: a part of the log is not served, and no error raised")
        file[:] = whole
        tally.caught += content is None
        tally.harmless += content is not None
        if _read(log) != prepared.content:
            raise Broken(f"{injury}: mended, and still not readable")
    directory.close(clean=False)
    return tally


def _append(log: FileLog, epoch: int, length: int) -> None:
    batch = batch_of_length(length, f"{log.end_offset}", producer=(3, 0, log.end_offset))
    batch.stamp(log.identity, log.end_offset, epoch)
    log.append(batch)


def _flush(log: FileLog) -> None:
    token = log.flush()
    if token is not None:
        log.flushed(token.run())
