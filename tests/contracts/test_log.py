"""Every built-in log backend keeps the contract: files on a real disk, files on a simulated one, and memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from replog.config import BrokerConfig
from replog.log.alone import LoneDirectory
from replog.log.directory import FileLogDirectory
from replog.log.files import Fs
from replog.log.memory import MemoryLogDirectory
from replog.ports import LogDirectory
from replog.testing.disk import MemoryFs
from replog.testing.log_contract import Ending, LogContract


class DiskLives:
    """A `FileLogDirectory` on a simulated disk, where the power can be cut."""

    kind = FileLogDirectory

    def __init__(self) -> None:
        self.fs = MemoryFs()
        self.now: FileLogDirectory | None = None

    def open(self, *, limits: BrokerConfig | None = None) -> LogDirectory:
        self.now = self.kind("/data", fs=self.fs, limits=limits)
        return self.now

    def end(self, how: Ending) -> None:
        assert self.now is not None
        self.now.close(clean=how == "clean")
        if how == "power":
            self.fs.cut_power()


class MemoryLives:
    """A `MemoryLogDirectory`."""

    def __init__(self) -> None:
        self.now: MemoryLogDirectory | None = None

    def open(self, *, limits: BrokerConfig | None = None) -> LogDirectory:
        self.now = MemoryLogDirectory(limits=limits) if self.now is None else self.now.reopened()
        return self.now

    def end(self, how: Ending) -> None:
        assert self.now is not None
        if how == "clean":
            self.now.close(clean=True)
        else:
            self.now.crash(power=how == "power")


class TestFilesOnASimulatedDisk(LogContract):
    @pytest.fixture
    def lives(self) -> DiskLives:
        return DiskLives()


class SharedLives(DiskLives):
    """The same with logs that take turns."""

    kind = LoneDirectory


class TestFilesThatThreadsShare(LogContract):
    @pytest.fixture
    def lives(self) -> SharedLives:
        return SharedLives()


class TestMemory(LogContract):
    @pytest.fixture
    def lives(self) -> MemoryLives:
        return MemoryLives()


def test_a_directory_that_nobody_else_can_open_is_not_asked_for_a_lock() -> None:
    class Unlocked(LogContract):
        is_locked = False

    tests = {name for name in dir(LogContract) if name.startswith("test_")}
    left_out = {name for name in tests if getattr(Unlocked, name) is None}
    assert left_out == {"test_an_open_directory_is_refused_to_everybody_else"}


class TestFilesOnARealDisk(LogContract):
    @pytest.fixture
    def lives(self, tmp_path: Path) -> RealLives:
        return RealLives(tmp_path)


class LosingFs(Fs):
    """The real file system, with a power switch: batches that were not synced are cut off, and the boot id changes."""

    def __init__(self) -> None:
        self.boots = 0
        self.paths: dict[int, str] = {}
        self.durable: dict[str, int] = {}

    def open(self, path: str, *, create: bool = False) -> int:
        fd = super().open(path, create=create)
        self.paths[fd] = path
        return fd

    def fsync(self, fd: int) -> None:
        super().fsync(fd)
        self.durable[self.paths[fd]] = os.fstat(fd).st_size

    def ftruncate(self, fd: int, size: int) -> None:
        super().ftruncate(fd, size)
        self.durable[self.paths[fd]] = min(self.durable.get(self.paths[fd], 0), size)

    def boot_id(self) -> str:
        return str(self.boots)

    def cut_power(self, folder: Path) -> None:
        self.boots += 1
        for path in folder.rglob("*.log"):
            os.truncate(path, min(path.stat().st_size, self.durable.get(str(path), 0)))


class RealLives:
    """A `FileLogDirectory` in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fs = LosingFs()
        self.now: FileLogDirectory | None = None

    def open(self, *, limits: BrokerConfig | None = None) -> LogDirectory:
        self.now = FileLogDirectory(str(self.folder / "data"), fs=self.fs, limits=limits)
        return self.now

    def end(self, how: Ending) -> None:
        assert self.now is not None
        self.now.close(clean=how == "clean")
        if how == "power":
            self.fs.cut_power(self.folder)
