"""Logs and log directories that break the contract, each in one way that a real one well might, and the test of the suite that notices.

`test_suites_can_fail.py` runs them; pytest alone does not, because of the name of this file.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.contracts.test_log import DiskLives, MemoryLives

from replog.config import BrokerConfig
from replog.log import memory
from replog.log.directory import FileLogDirectory
from replog.log.files import OS, Fs
from replog.log.lock import FolderLock
from replog.log.memory import MemoryLog
from replog.ports import FlushToken, Location, Slice
from replog.testing.log_contract import Lives, LogContract


class FailedFlushRetried(MemoryLog):
    """Takes a failed fsync for one that was not done yet."""

    __slots__ = ()

    def flushed(self, token: FlushToken) -> None:
        if not token.failed:
            super().flushed(token)


class NoGenOnReset(MemoryLog):
    """A flush of what was there before a reset counts for what came after it."""

    __slots__ = ()

    def reset_to(self, offset: int) -> None:
        generation = self.generation
        super().reset_to(offset)
        self.generation = generation


class ReadOverMax(MemoryLog):
    """Forgets that a batch has a header when it counts what it reads from where it is stored."""

    __slots__ = ()

    def _read_stored(self, offset: int, limit: int, max_bytes: int) -> list[Slice]:
        return super()._read_stored(offset, limit, max_bytes + 40)


class ResetNotForgetful(MemoryLog):
    """Takes the producers that wrote before a reset for new ones, until it is opened again."""

    __slots__ = ()

    def reset_to(self, offset: int) -> None:
        super().reset_to(offset)
        self.producers.forgetful = False


class NoLock(FolderLock):
    """Asks nobody."""

    __slots__ = ()

    def take(self, path: str) -> bool:
        self._fd = self._fs.open(path, create=True)
        return True


class Unlocked(FileLogDirectory):
    """Two brokers may work in one folder."""

    def __init__(self, path: str | Location, *, limits: BrokerConfig | None = None, fs: Fs = OS) -> None:
        super().__init__(path, limits=limits, fs=fs, lock=NoLock(fs))


CAUGHT_BY: dict[type[Any], str] = {
    FailedFlushRetried: "test_a_flush_that_failed_is_final",
    NoGenOnReset: "test_a_flush_from_before_a_reset_proves_nothing",
    ReadOverMax: "test_a_read_stays_below_its_size_but_one_batch_goes_through",
    ResetNotForgetful: "test_a_reset_log_says_that_it_does_not_know_every_producer",
    Unlocked: "test_an_open_directory_is_refused_to_everybody_else",
}
"""The wrong logs and directories, and a test of the suite that fails for each."""
RIGHT: dict[type[Any], list[str]] = {
    kind: sorted({test for wrong, test in CAUGHT_BY.items() if issubclass(wrong, kind)}) for kind in (MemoryLog, FileLogDirectory)
}
"""What they are made of, and the same tests, which pass."""


class TestLog(LogContract):
    @pytest.fixture(params=[*CAUGHT_BY, *RIGHT], ids=lambda kind: kind.__name__)
    def kind(self, request: pytest.FixtureRequest) -> Any:
        return request.param

    @pytest.fixture
    def lives(self, kind: Any, monkeypatch: pytest.MonkeyPatch) -> Lives:
        if issubclass(kind, MemoryLog):
            monkeypatch.setattr(memory, "MemoryLog", kind)  # its directory makes and revives them by that name
            return MemoryLives()
        lives = DiskLives()
        lives.kind = kind
        return lives
