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
from tests.unit.log.lives import IDENTITY, kill, open_directory, open_log

from replog.config import TopicConfig
from replog.errors import LogDamaged
from replog.log.directory import FileLogDirectory
from replog.log.flushing import FlushRun
from replog.log.open_files import FileSlice
from replog.ports import FlushToken, Log
from replog.testing.disk import MemoryFs, SimulatedDisk
from replog.testing.log_contract import append, batch_of, shown


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


def flushed(log: Log, token: FlushToken) -> Callable[[], None]:
    def run() -> None:
        with suppress(LogDamaged):
            log.flushed(token.run())

    return run


def told(directory: FileLogDirectory, log: Log, token: FlushToken) -> bool:
    if token.failed:
        with pytest.raises(LogDamaged):
            log.flushed(token)
    return token.failed


def used(directory: FileLogDirectory, log: Log, token: FlushToken) -> bool:
    if directory._failed:
        with pytest.raises(LogDamaged):
            directory.checkpoint()
        assert directory._life.flush_failed, "before anything ends this life"
    return bool(directory._failed)


def closed(directory: FileLogDirectory, log: Log, token: FlushToken) -> bool:
    if directory._failed:
        directory.close(clean=False)
    return bool(directory._failed)


@pytest.mark.parametrize("then", [told, used, closed])
def test_a_failed_fsync_is_noted_wherever_a_signal_comes_in(then: Callable[[FileLogDirectory, Log, FlushToken], bool]) -> None:
    """The system says it once. Whoever was interrupted tells the log once more, uses the directory or closes it: the next life knows."""
    moment, failed = 0, 0
    interrupted = True
    while interrupted:
        moment += 1
        disk = SimulatedDisk(random.Random(1))
        directory, log = open_log(disk, TopicConfig())
        append(log, 2)
        token = log.flush()
        assert token is not None
        disk.arm("fsync_error", paths=".log", times=1)
        interrupted = signalled_at(moment, in_log, flushed(log, token))
        disk.disarm()
        assert token.failed == bool(disk.injected), moment
        known = then(directory, log, token)
        failed += known
        assert isinstance(token.run_, FlushRun)
        token.run_.release()
        kill(disk, directory)
        directory = open_directory(disk)
        assert (directory.loss.kind, directory.loss.lossy) == (("power", (IDENTITY,)) if known else ("process", ())), moment
        directory.close(clean=True)
    assert failed > 1
