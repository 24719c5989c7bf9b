"""Where the brokers of a stage keep their logs: in memory, or in files on a simulated disk. A play must not show which."""

from __future__ import annotations

from abc import ABC, abstractmethod

from replog.config import BrokerConfig
from replog.log.directory import FileLogDirectory
from replog.log.memory import MemoryLogDirectory
from replog.ports import LogDirectory, LossReport
from replog.testing.disk import MemoryFs

__all__ = ["Disks", "FileDisks", "MemoryDisks"]


class Disks(ABC):
    """The data directories of all places, one per place at a time."""

    def __init__(self) -> None:
        self.limits = BrokerConfig()
        self._made = 0

    @abstractmethod
    def new(self, place: str, *, replaced: bool = False) -> LogDirectory:
        """An empty one; `replaced` instead of one that the place had before."""

    @abstractmethod
    def end(self, place: str, *, power: bool) -> None:
        """The process is killed, or with `power` the whole machine."""

    @abstractmethod
    def reopened(self, place: str) -> LogDirectory:
        """The same directory in its next life."""


class MemoryDisks(Disks):
    """`MemoryLogDirectory`."""

    def __init__(self) -> None:
        super().__init__()
        self._directories: dict[str, MemoryLogDirectory] = {}

    def new(self, place: str, *, replaced: bool = False) -> LogDirectory:
        """An empty one, which says itself that it replaces another."""
        self._made += 1
        loss = LossReport("replaced") if replaced else LossReport()
        made = self._directories[place] = MemoryLogDirectory(limits=self.limits, directory_id=f"{self._made:032x}", loss=loss)
        return made

    def end(self, place: str, *, power: bool) -> None:
        """Keeps what was written, or what was flushed."""
        self._directories[place].crash(power=power)

    def reopened(self, place: str) -> LogDirectory:
        """With what was kept."""
        made = self._directories[place] = self._directories[place].reopened()
        return made


class _Disk(MemoryFs):
    """What a dead process had open is closed; what it has sent may still be on its way, and is given back later."""

    _dead = 0

    def kill(self) -> None:
        """As `MemoryFs.kill`."""
        super().kill()
        self._dead = self._next_fd

    def close(self, fd: int) -> None:
        """As `Fs.close`."""
        if fd > self._dead:
            super().close(fd)


class FileDisks(Disks):
    """`FileLogDirectory`, each on a disk of its own that keeps nothing it was not told to."""

    def __init__(self) -> None:
        super().__init__()
        self._disks: dict[str, _Disk] = {}
        self._directories: dict[str, FileLogDirectory] = {}

    def new(self, place: str, *, replaced: bool = False) -> LogDirectory:
        """A new disk: nothing there says that there was another."""
        disk = self._disks[place] = _Disk()
        self._made += 1
        for _ in range(self._made):
            disk.random_bytes(16)  # no two directories have one id
        return self.reopened(place)

    def end(self, place: str, *, power: bool) -> None:
        """Descriptors and locks go; with `power` also what was not synced."""
        self._directories[place].close(clean=False)
        if power:
            self._disks[place].cut_power()
        else:
            self._disks[place].kill()

    def reopened(self, place: str) -> LogDirectory:
        """Recovered from its files."""
        made = self._directories[place] = FileLogDirectory(f"/{place}", limits=self.limits, fs=self._disks[place])
        return made
