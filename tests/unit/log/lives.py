"""A log directory on a simulated disk, for tests that end its life in every way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from replog.config import BrokerConfig, TopicConfig
from replog.log.directory import FileLogDirectory
from replog.log.files import Fs
from replog.log.log import FileLog
from replog.log.storage import folder_name
from replog.model import PartitionId
from replog.ports import LogStart
from replog.testing.disk import CrashedError, FaultyFs, MemoryFs, SimulatedDisk, keep_all, keep_none, some
from replog.testing.log_contract import TOPIC_ID

IDENTITY = PartitionId(TOPIC_ID, 0, 0)
FOLDER = f"/d/logs/{folder_name(IDENTITY)}"
SMALL = TopicConfig(segment_bytes=500)
LIMITS = BrokerConfig(index_interval_bytes=200)


def open_directory(fs: Fs, limits: BrokerConfig = LIMITS) -> FileLogDirectory:
    """The directory /d."""
    return FileLogDirectory("/d", fs=fs, limits=limits)


def open_log(fs: Fs, config: TopicConfig = SMALL, limits: BrokerConfig = LIMITS) -> tuple[FileLogDirectory, FileLog]:
    """The directory /d and its one log."""
    directory = open_directory(fs, limits)
    (log,) = directory.create([LogStart(IDENTITY, "t", config)])
    assert isinstance(log, FileLog)
    return directory, log


def reopened(fs: Fs) -> tuple[FileLogDirectory, FileLog]:
    """The next life of the directory /d, and of its log."""
    directory = open_directory(fs)
    log = directory.get(IDENTITY)
    assert isinstance(log, FileLog)
    return directory, log


def kill(fs: MemoryFs, directory: FileLogDirectory) -> None:
    """As SIGKILL: nothing is tidied up."""
    directory.close(clean=False)
    fs.kill()


def abandon(directory: FileLogDirectory) -> None:
    """Let go of a directory whose disk has crashed under it."""
    with suppress(CrashedError):
        directory.close(clean=False)


def segments(fs: MemoryFs) -> list[str]:
    """Paths of the segment files."""
    return [f"/{path}" for path in fs.paths(FOLDER) if path.endswith(".log")]


@contextmanager
def failing_fsync(disk: SimulatedDisk, error: type[Exception], paths: str = ".log") -> Iterator[None]:
    """An fsync of these paths fails in the block, which raises that error; afterwards the disk is mended."""
    disk.arm("fsync_error", paths=paths)
    with pytest.raises(error, match="error"):
        yield
    disk.disarm()


def crash_everywhere(
    prepare: Callable[[MemoryFs], None],
    action: Callable[[FileLogDirectory], object],
    check: Callable[[FileLogDirectory, bool], None],
) -> int:
    """Run `action` on what `prepare` has made, with a crash before each of its file operations, for every kind of crash.

    `check` gets the next life of the directory, and whether the action had finished. Returns how many operations it has.
    """
    crash_after = 0
    while True:
        for choose in (None, keep_none, keep_all, *map(some, range(8))):
            fs = MemoryFs()
            prepare(fs)
            faulty = FaultyFs(fs)
            directory = open_directory(faulty)
            faulty.crash_after = len(faulty.operations) + crash_after
            finished = True
            try:
                action(directory)
            except CrashedError:
                finished = False
            faulty.crash_after = 0
            abandon(directory)
            fs.kill()
            if choose is not None:
                fs.cut_power(choose)
            check(open_directory(fs), finished)
        if finished:
            return crash_after
        crash_after += 1
