"""A log directory on a simulated disk, for tests that end its life in every way."""

from __future__ import annotations

from contextlib import suppress

from replog.config import BrokerConfig, TopicConfig
from replog.log.directory import FileLogDirectory
from replog.log.files import Fs
from replog.log.log import FileLog
from replog.log.storage import folder_name
from replog.model import PartitionId
from replog.ports import LogStart
from replog.testing.disk import CrashedError, MemoryFs
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
