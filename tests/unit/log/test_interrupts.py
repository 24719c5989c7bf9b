"""Ctrl-C at any point of an append: whatever memory says then, the next open finds a valid prefix."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

import pytest
from tests.interrupts import interrupted_at, signalled_at
from tests.unit.log.lives import FOLDER, IDENTITY, kill, open_directory, open_log

from replog.config import TopicConfig
from replog.errors import LogDamaged, LogFull
from replog.log.directory import FileLogDirectory
from replog.log.flushing import FlushRun
from replog.log.open_files import FileSlice
from replog.ports import Log, LogStart
from replog.testing.disk import MemoryFs, SimulatedDisk
from replog.testing.log_contract import append, batch_of, flush, shown

OTHER, GONE = IDENTITY._replace(partition=1), IDENTITY._replace(partition=2)


def in_log(frame: FrameType) -> bool:
    return "/replog/log/" in frame.f_code.co_filename or frame.f_code.co_filename.endswith("/replog/ports/logs.py")


def one(log: Log) -> Callable[[], object]:
    batch = batch_of(2, producer=(4, 0, log.end_offset))
    batch.stamp(IDENTITY, log.end_offset, 1)
    return lambda: log.append(batch)


def several(log: Log) -> Callable[[], object]:
    batches, offset = [], log.end_offset
    for _ in range(4):
        batch = batch_of(2, producer=(4, 0, offset))
        batch.stamp(IDENTITY, offset, 1)
        offset = batch.end_offset
        batches.append(batch)
    return lambda: log.append_many(batches)


@pytest.mark.parametrize("action", [one, several])
@pytest.mark.parametrize("segment_bytes", [1_000_000, 300])
def test_an_interrupt_at_every_line(action: Callable[[Log], Callable[[], object]], segment_bytes: int) -> None:
    line, ends = 0, set()
    interrupted = True
    while interrupted:
        line += 1
        fs = MemoryFs()
        directory, log = open_log(fs, TopicConfig(segment_bytes=segment_bytes))
        for _ in range(3):
            append(log, 2)
        interrupted = interrupted_at(line, in_log, action(log))
        kill(fs, directory)
        directory = open_directory(fs)
        found = directory.get(IDENTITY)
        assert found is not None
        assert directory.loss.kind == "process", directory.recovered
        assert shown(found) == [b"value 0", b"value 1"] * (found.end_offset // 2)
        assert 6 <= found.end_offset <= 14
        latest = found.epochs.latest
        assert latest == ((0, 0) if found.end_offset == 6 else (1, 6))
        ends.add(found.end_offset)
        append(found, 2, epoch=2)
        assert len(shown(found)) == found.end_offset
    assert line > 15
    assert {6, 8 if action is one else 14} <= ends, "interrupted before the write, and after it"


@pytest.mark.parametrize("kind", [FileSlice, FlushRun])
def test_an_interrupt_before_the_first_line_of_a_pin_leaves_nothing_to_release(kind: type) -> None:
    """The object exists, and is cleaned up, although `__init__` never ran."""
    raised: list[sys.UnraisableHookArgs] = []
    hook, sys.unraisablehook = sys.unraisablehook, raised.append
    try:
        kind.__new__(kind)
        gc.collect()
    finally:
        sys.unraisablehook = hook
    assert raised == []


class Disk(SimulatedDisk):
    """Of which a folder is closed by a call, as that of the system: a signal may come in there, while its fsync has failed."""

    def fsync_dir(self, path: str) -> None:
        try:
            super().fsync_dir(path)
        finally:
            self.put_away()

    def put_away(self) -> None:
        """As os.close."""


def in_log_or_disk(frame: FrameType) -> bool:
    return in_log(frame) or frame.f_code.co_name in ("fsync_dir", "put_away")


def flushing(directory: FileLogDirectory, log: Log) -> None:
    token = log.flush()
    assert token is not None
    log.flushed(token.run())


def closing(directory: FileLogDirectory, log: Log) -> None:
    directory.close(clean=True)


def truncating(directory: FileLogDirectory, log: Log) -> None:
    log.truncate_to(1)


def resetting(directory: FileLogDirectory, log: Log) -> None:
    log.reset_to(9)


def putting_away(directory: FileLogDirectory, log: Log) -> None:
    directory.quarantine(OTHER, 1)


def deleting(directory: FileLogDirectory, log: Log) -> None:
    directory.purge(GONE)


def flushed_anew(directory: FileLogDirectory, log: Log) -> None:
    with pytest.raises(LogDamaged):
        flushing(directory, log)


def used(directory: FileLogDirectory, log: Log) -> None:
    with pytest.raises(LogDamaged):
        directory.checkpoint()
    assert directory._life.flush_failed, "before anything ends this life"


def closed(directory: FileLogDirectory, log: Log) -> None:
    directory.close(clean=True)


def dropped(directory: FileLogDirectory, log: Log) -> None:
    pass


PLACES = {"file": ".log", "folder": FOLDER.endswith, "logs": "/d/logs".endswith, "quarantine": "/d/quarantine".endswith}
CASES = [
    *((flushing, then, fails) for then in (flushed_anew, used, closed, dropped) for fails in ("file", "folder")),
    *((closing, closed, fails) for fails in ("file", "folder")),
    *((truncating, then, fails) for then in (used, dropped) for fails in ("file", "folder")),
    *((resetting, then, fails) for then in (used, dropped) for fails in ("folder", "logs")),
    *((putting_away, then, fails) for then in (used, dropped) for fails in ("logs", "quarantine")),
    *((deleting, then, "quarantine") for then in (used, dropped)),
]


@pytest.mark.parametrize(("action", "then", "fails"), CASES)
def test_a_failed_fsync_is_noted_wherever_a_signal_comes_in(
    action: Callable[[FileLogDirectory, Log], None], then: Callable[[FileLogDirectory, Log], None], fails: str
) -> None:
    """The system says it once. Whatever is done after the interrupt, nothing more counts as flushed, and the next life knows why."""
    moment, failed = 0, 0
    interrupted = True
    while interrupted:
        moment += 1
        disk = Disk(random.Random(1))
        directory, log = open_log(disk, TopicConfig(flush="ack"))
        for other in directory.create([LogStart(OTHER, "t", TopicConfig()), LogStart(GONE, "t", TopicConfig())]):
            append(other, 1)
            flush(other)
        directory.quarantine(GONE, 1)
        append(log, 2)
        if action not in (flushing, closing):
            flush(log)
            directory.checkpoint()
        disk.arm("fsync_error", paths=PLACES[fails], times=1)

        def act(directory: FileLogDirectory = directory, log: Log = log) -> None:
            with suppress(LogDamaged, LogFull):
                action(directory, log)

        interrupted = signalled_at(moment, in_log_or_disk, act)
        happened = bool(disk.injected)
        disk.disarm()
        gc.collect(1)  # what a traceback holds
        if happened:
            failed += 1
            then(directory, log)
        kill(disk, directory)
        directory = open_directory(disk)
        assert (directory.loss.kind == "power") == happened, moment
        assert (IDENTITY in directory.loss.lossy) == happened
        directory.close(clean=True)
    assert failed > 1


def test_so_is_one_after_which_the_first_entry_of_a_catalogue_may_have_no_name() -> None:
    moment, failed = 0, 0
    interrupted = True
    while interrupted:
        moment += 1
        disk = Disk(random.Random(1))
        directory = open_directory(disk)
        disk.arm("fsync_error", paths="/d".endswith, times=1)

        def act(directory: FileLogDirectory = directory) -> None:
            with suppress(LogDamaged, LogFull):
                directory.create([LogStart(IDENTITY, "t", TopicConfig())])

        interrupted = signalled_at(moment, in_log_or_disk, act)
        disk.disarm()
        happened = bool(disk.injected)
        if happened:
            failed += 1
            with pytest.raises(LogDamaged):
                directory.checkpoint()
        kill(disk, directory)
        directory = open_directory(disk)
        assert (directory.loss.kind == "power") == happened, moment
        directory.close(clean=True)
    assert failed > 1


@pytest.mark.parametrize("fails", ["file", "folder"])
def test_so_is_one_that_fails_while_a_directory_is_opened(fails: str) -> None:
    moment, failed = 0, 0
    interrupted = True
    while interrupted:
        moment += 1
        disk = Disk(random.Random(1))
        directory, log = open_log(disk, TopicConfig(flush="ack"))
        append(log, 2)
        kill(disk, directory)
        disk.arm("fsync_error", paths=".log" if fails == "file" else FOLDER.endswith, times=1)

        def act(disk: Disk = disk) -> None:
            with suppress(OSError):
                open_directory(disk).close(clean=True)

        interrupted = signalled_at(moment, in_syncs, act)
        disk.disarm()
        happened = bool(disk.injected)
        failed += happened
        gc.collect(1)
        disk.kill()
        directory = open_directory(disk)
        assert (directory.loss.kind == "power") == happened, moment
        directory.close(clean=True)
    assert failed > 1


def in_syncs(frame: FrameType) -> bool:
    """Where an fsync fails, and from there to whoever opens the directory: all of an opening has thousands of moments."""
    file, name = frame.f_code.co_filename, frame.f_code.co_name
    return file.endswith(("/log/syncing.py", "/log/storage.py")) or name in ("fsync_dir", "put_away", "_sync", "flush_failed", "_fail")
