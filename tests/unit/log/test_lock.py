"""A folder's lock is let go whatever happens to who has taken it: else nobody in this process could open the folder again."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest
from tests.interrupts import interrupted_at

from replog.config import TopicConfig
from replog.errors import UsageError
from replog.log import directory as directory_module
from replog.log import lock as lock_module
from replog.log.directory import FileLogDirectory
from replog.ports import LogStart
from replog.testing.disk.memory import MemoryFs
from replog.testing.log_contract import FIRST, append


@pytest.fixture(autouse=True)
def _nobody_collects() -> Iterator[None]:
    """An interrupted program must not need the collector, which may come late."""
    gc.disable()
    yield
    gc.enable()


def test_a_directory_that_is_dropped_lets_go(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    held = FileLogDirectory(path)
    with pytest.raises(UsageError, match="in use"):
        FileLogDirectory(path)
    del held
    FileLogDirectory(path).close(clean=True)


def test_a_log_holds_the_lock_of_a_directory_that_is_dropped(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    (log,) = FileLogDirectory(path).create([LogStart(FIRST, "t", TopicConfig())])
    with pytest.raises(UsageError, match="in use"):
        FileLogDirectory(path)
    append(log, 1)
    log.close()
    del log
    found = FileLogDirectory(path)
    again = found.get(FIRST)
    assert again is not None
    assert again.end_offset == 1
    found.close(clean=True)


def test_a_simulated_disk_hears_nothing_of_what_is_dropped() -> None:
    """Whatever the collector does, and when, the same seed is the same run."""
    fs = MemoryFs()
    held = FileLogDirectory("/data", fs=fs)
    del held
    with pytest.raises(UsageError, match="in use"):
        FileLogDirectory("/data", fs=fs)


def test_an_interrupt_anywhere_while_it_is_opened_or_closed(tmp_path: Path) -> None:
    files = {directory_module.__file__, lock_module.__file__}
    names = {"__init__", "_take_lock", "take", "release", "close"}

    def near_the_lock(frame: FrameType) -> bool:
        return frame.f_code.co_filename in files and frame.f_code.co_name in names

    path = str(tmp_path / "data")
    FileLogDirectory(path).close(clean=True)
    held: list[FileLogDirectory] = []

    def open_and_close() -> None:
        held.append(FileLogDirectory(path))
        held[0].close(clean=False)

    points = 0
    while interrupted_at(points + 1, near_the_lock, open_and_close, ("return",)):
        points += 1
        for opened in held:  # whoever has it may repeat the close
            opened.close(clean=False)
        kept, held[:] = held[:], []
        FileLogDirectory(path).close(clean=False)
        kept.clear()
    assert points > 5


def test_an_interrupt_within_a_close_is_made_good_by_the_next(tmp_path: Path) -> None:
    path = str(tmp_path / "data")

    def in_close(frame: FrameType) -> bool:
        return frame.f_code is FileLogDirectory.close.__code__

    points, opened = 0, [FileLogDirectory(path)]
    while interrupted_at(points + 1, in_close, lambda: opened[-1].close(clean=False)):
        points += 1
        opened[-1].close(clean=False)
        opened.append(FileLogDirectory(path))
    assert points > 5
    FileLogDirectory(path).close(clean=True)


def test_a_directory_that_cannot_be_opened_is_not_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: FileLogDirectory) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(FileLogDirectory, "_open", fails)
        with pytest.raises(MemoryError) as held:
            FileLogDirectory(str(tmp_path))
    FileLogDirectory(str(tmp_path)).close(clean=True)
    assert held.tb is not None
