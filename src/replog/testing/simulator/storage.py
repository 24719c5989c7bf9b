"""What a simulated machine keeps its logs on: memory, or files on a disk that misbehaves. Outlives the processes."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

from attrs import frozen

from replog.config import BrokerConfig
from replog.errors import ReplogError
from replog.log import shapes
from replog.log.checkpoint import read_plain
from replog.log.directory import FileLogDirectory
from replog.log.memory import MemoryLog, MemoryLogDirectory
from replog.log.storage import folder_name, read_marker
from replog.model import PartitionId
from replog.ports import FlushToken, LogDirectory, LossReport
from replog.testing.disk import FaultKind, SimulatedDisk
from replog.testing.simulator.kinds import MEMORY
from replog.testing.simulator.stepping import pause

__all__ = ["FileStorage", "MemoryStorage", "Storage"]

_FOLDER: Final = "/data"
_DISK: Final[dict[str, tuple[FaultKind, dict[str, Any]]]] = {
    "read_error": ("read_error", {"probability": 0.5}),
    "write_error": ("write_error", {}),
    "flush_error": ("fsync_error", {"times": 1}),
    "short_write": ("short_write", {"probability": 0.5}),
    "full": ("no_space", {}),
    "read_only": ("read_only", {}),
    "stale_write": ("stale_write", {"paths": ".log", "times": 1}),
    "misdirect": ("misdirected_write", {"paths": ".log", "times": 1}),
}
"""Kind of fault -> what the disk calls it, and how it is armed."""


class Storage(ABC):
    """One broker's data directory through all its lives."""

    directory: LogDirectory
    """As the present process has it, or as the next one will find it."""
    noted: Mapping[PartitionId, int]
    """Up to where the last process had noted on the disk that a log was flushed: damage below is noticed, whatever it looks like."""
    left: Mapping[str, bytes] | None = None
    """What was on the disk when the last process had ended, before another one looked at it; None: there are no files."""

    @abstractmethod
    def end(self, how: str) -> None:
        """The process has ended: "clean", "kill" or "power"; or "wipe", after which there is a new, empty directory; or "restore", after
        which the directory is as the process before this one has left it."""

    @property
    def has_image(self) -> bool:
        """Whether there is something to restore."""
        return False

    def arm(self, kind: str) -> bool:
        """Let the disk fail in some way from now on; whether it can."""
        return False

    def disarm(self, kind: str) -> None:  # noqa: B027 - a storage that cannot fail has nothing to end
        """No longer."""

    def flip(self) -> bool:
        """Turn over a bit of what is stored; whether there was any."""
        return False

    def attend(self, token: FlushToken) -> None:  # noqa: B027 - where files are flushed, the disk sees each fsync
        """This will be run as a stepped call: let it pause where it waits for the disk."""


class MemoryStorage(Storage):
    """`MemoryLogDirectory`, which knows by itself what a power cut costs."""

    def __init__(self, limits: BrokerConfig, chance: random.Random) -> None:
        self._limits = limits
        self._chance = chance
        self.directory: MemoryLogDirectory = self._new(LossReport())
        self.noted = {}
        self._synced: dict[MemoryLog, int] = {}
        """Log that has asked for a flush in this life -> up to where a disk would have it, whatever the log says."""

    def _new(self, loss: LossReport) -> MemoryLogDirectory:
        return MemoryLogDirectory(limits=self._limits, directory_id=self._chance.randbytes(16).hex(), loss=loss)

    def end(self, how: str) -> None:
        """Keeps what was written, or what was flushed."""
        if how == "clean":
            with suppress(ReplogError):  # a flush fails at the last moment: it did not end cleanly
                self.directory.close(clean=True)
        for log, end in self._synced.items():
            if how == "power":
                log.flushed_end = min(log.flushed_end, max(end, log.start_offset))  # what was removed for good does not come back
        self._synced.clear()
        self.directory.crash(power=how == "power")  # nothing, if it has ended
        self.directory = self._new(LossReport("replaced")) if how == "wipe" else self.directory.reopened()

    def attend(self, token: FlushToken) -> None:
        """Memory needs no fsync: here it has one, which covers what the log held when it began, unless the log is cut meanwhile."""
        log = self.directory.get(token.identity)
        assert log is not None
        self._synced.setdefault(log, log.flushed_end)
        token.run_ = partial(self._fsync, log, token.run_)

    def _fsync(self, log: MemoryLog, run: Callable[[], OSError | None]) -> OSError | None:
        generation, end = log.generation, log.end_offset
        pause()
        error = run()
        if error is None and log.generation == generation:
            self._synced[log] = max(self._synced[log], end)
        return error

    def arm(self, kind: str) -> bool:
        """Memory can be full, and fail to flush."""
        return self._set(kind, True)

    def disarm(self, kind: str) -> None:
        """As it was."""
        self._set(kind, False)

    def _set(self, kind: str, value: bool) -> bool:
        if kind not in MEMORY:
            return False
        for identity in self.directory.identities():
            log = self.directory.get(identity)
            assert log is not None
            if kind == "full":
                log.full = value
            else:
                log.flushes_fail = value
        return True


class _Disk(SimulatedDisk):
    """Of one machine: no two make the same identifiers, and what a dead process had open is closed."""

    _dead = 0

    def random_bytes(self, count: int) -> bytes:
        return self.chance.randbytes(count)

    def take_time(self) -> None:
        """A worker waits here until its fsync ends; the process itself waits for nothing."""
        pause()

    def kill(self) -> None:
        """As `MemoryFs.kill`."""
        super().kill()
        self._dead = self._next_fd

    def close(self, fd: int) -> None:
        """As `Fs.close`; an object of a dead process may still say so when Python cleans it up."""
        if fd > self._dead:
            super().close(fd)


@frozen
class _Image:
    """What a process has left."""

    files: Mapping[str, bytes]
    directory_id: str


class FileStorage(Storage):
    """`FileLogDirectory` on a `SimulatedDisk`. A new disk says nothing about the one before."""

    def __init__(self, limits: BrokerConfig, chance: random.Random) -> None:
        self._limits = limits
        self._chance = chance
        self._disk = self._new_disk()
        self._image: _Image | None = None
        self.directory: FileLogDirectory = FileLogDirectory(_FOLDER, limits=limits, fs=self._disk)
        self.noted = {}

    def _new_disk(self) -> SimulatedDisk:
        return _Disk(random.Random(self._chance.getrandbits(64)))

    def end(self, how: str) -> None:
        """Descriptors and locks go; with "power" also any part of what was not synced. The next process finds the disk in order."""
        with suppress(ReplogError, OSError):  # a disk that fails now has failed before
            self.directory.close(clean=how == "clean")
        self._disk.disarm()
        if how == "wipe":
            self._disk = self._new_disk()
        elif how == "restore":
            self._disk = self._restored()
        elif how == "power":
            self._disk.cut_power()
        else:
            self._disk.kill()
        left = self.left = self._disk.snapshot()  # before the next life begins, which will name this one
        entries = read_plain(self._disk, f"{_FOLDER}/checkpoint", shapes.CHECKPOINT) or ()
        self.noted = {PartitionId(*entry[:3]): entry[-1] for entry in entries}
        for identity, end in self.noted.items():  # what a log was cut to since is what the note is worth
            marker = read_marker(self._disk, f"{_FOLDER}/logs/{folder_name(identity)}")
            self.noted[identity] = end if marker is None else min(end, marker.recovery_max)
        try:
            self.directory = FileLogDirectory(_FOLDER, limits=self._limits, fs=self._disk)
        except ReplogError:  # too damaged to be opened: somebody puts in a new disk
            self._disk = self._new_disk()
            self.directory = FileLogDirectory(_FOLDER, limits=self._limits, fs=self._disk)
        self._image = _Image(left, self.directory.directory_id) if left else None

    @property
    def has_image(self) -> bool:
        """From the end of the first process on; an image of another disk is none of this one."""
        return self._image is not None and self._image.directory_id == self.directory.directory_id

    def _restored(self) -> SimulatedDisk:
        """Another disk, with what was kept, under the same boot: a machine that is put back to an image may not have started anew."""
        assert self._image is not None
        disk = self._new_disk()
        disk.put_back(self._image.files)
        disk.boots = self._disk.boots
        return disk

    def arm(self, kind: str) -> bool:
        """From now on; for all files."""
        name, how = _DISK[kind]
        self._disk.arm(name, **how)
        return True

    def disarm(self, kind: str) -> None:
        """As it was."""
        self._disk.disarm(_DISK[kind][0])

    def flip(self) -> bool:
        """Somewhere in the segments."""
        return self._disk.flip() is not None
