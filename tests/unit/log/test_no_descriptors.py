"""Moments without file descriptors: what is refused then has changed nothing."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import pytest
from tests.unit.log.lives import IDENTITY, kill

from replog.config import TopicConfig
from replog.errors import LogFull
from replog.log.directory import FileLogDirectory
from replog.log.log import FileLog
from replog.ports import LogStart
from replog.testing.disk import MemoryFs
from replog.testing.log_contract import append, flush, stored_batches


class ScarceFs(MemoryFs):
    """Opens nothing while descriptors are scarce, also no folder for its fsync."""

    scarce = False
    code = errno.EMFILE

    def _take_one(self, path: str) -> None:
        if self.scarce:
            raise OSError(self.code, os.strerror(self.code), path)

    def open(self, path: str, *, create: bool = False) -> int:
        self._take_one(path)
        return super().open(path, create=create)

    def fsync_dir(self, path: str) -> None:
        self._take_one(path)
        super().fsync_dir(path)


def made() -> tuple[ScarceFs, FileLogDirectory, FileLog]:
    fs = ScarceFs()
    directory = FileLogDirectory("/d", fs=fs)
    (log,) = directory.create([LogStart(IDENTITY, "t", TopicConfig(segment_bytes=1024, max_batch_bytes=1024, flush="ack"))])
    assert isinstance(log, FileLog)
    return fs, directory, log


def goes_on(fs: ScarceFs, directory: FileLogDirectory, log: FileLog, end: int) -> None:
    """The log still ends there, and what it takes next is there in the next life."""
    assert log.end_offset == end
    fs.scarce = False
    offsets = [batch.base_offset for batch in stored_batches(log)]
    append(log, 1, epoch=2)
    flush(log)
    assert [batch.base_offset for batch in stored_batches(log)] == [*offsets, end]
    kill(fs, directory)
    found = FileLogDirectory("/d", fs=fs).get(IDENTITY)
    assert found is not None
    assert [batch.base_offset for batch in stored_batches(found)] == [*offsets, end]


def test_a_truncation_after_a_trim_that_could_not_be_synced() -> None:
    fs, directory, log = made()
    for _ in range(3):
        append(log, ["x" * 700], epoch=1)
    for value in "yzz":
        append(log, [value], epoch=1)
    flush(log)
    fs.scarce = True
    log.trim_to(1)
    with pytest.raises(LogFull, match="cannot be truncated"):
        log.truncate_to(5)
    goes_on(fs, directory, log, 6)


def test_a_truncation_that_takes_an_empty_segment_along(monkeypatch: pytest.MonkeyPatch) -> None:
    fs, directory, log = made()
    append(log, ["x" * 400], epoch=1)
    append(log, ["x" * 100], epoch=1)
    flush(log)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(log, "_pwritev", full)
        with pytest.raises(LogFull):
            append(log, ["x" * 700], epoch=1)
    assert len(log._segments) == 2
    log._storage.files.descriptor(log._segments[0])
    fs.scarce = True
    with pytest.raises(LogFull, match="cannot be truncated"):
        log.truncate_to(1)
    goes_on(fs, directory, log, 2)


def closed(log: FileLog) -> None:
    """No file of it is open, and nothing of it in memory: as that of a log that has not been read for long."""
    log._tail.clear()
    for segment in log._segments:
        log._storage.files.close(segment)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize(
    "ask",
    [
        lambda log: log.read(0, 6, 1 << 20),
        lambda log: log.group_floor(4),
        lambda log: log.offset_for_time(0),
        lambda log: log.truncate_to(3),
        lambda log: log.trim_to(3),
    ],
    ids=["read", "group_floor", "offset_for_time", "truncate_to", "trim_to"],
)
def test_what_cannot_be_opened_for_now_is_not_damaged(ask: Callable[[FileLog], object], code: int) -> None:
    fs, directory, log = made()
    for value in "abcdef":
        append(log, [value * 400], epoch=1)
    log.group_inside = 6  # as after a restart: nobody has looked
    closed(log)
    fs.scarce, fs.code = True, code
    with pytest.raises(LogFull, match=r"log .* cannot be read now: .*\.log"):
        ask(log)
    assert (log.start_offset, log.is_damaged) == (0, False)
    goes_on(fs, directory, log, 6)


def test_a_read_ends_in_front_of_a_segment_that_cannot_be_opened_for_now() -> None:
    fs, directory, log = made()
    for value in "abcdef":
        append(log, [value * 400], epoch=1)
    closed(log)
    log._storage.files.descriptor(log._segments[0])
    fs.scarce = True
    (part,) = log.read(0, 6, 1 << 20)
    assert (part.base_offset, part.end_offset) == (0, 2)
    part.release()
    with pytest.raises(LogFull):
        log.read(2, 6, 1 << 20)
    goes_on(fs, directory, log, 6)


class LimitedFs(MemoryFs):
    """A process that may have so many descriptors."""

    allowed = 1_000

    def open(self, path: str, *, create: bool = False) -> int:
        if len(self._open) >= self.allowed:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return super().open(path, create=create)

    allowed_folders = 1_000
    """The same, where only a folder is to be opened."""

    def fsync_dir(self, path: str) -> None:
        if len(self._open) >= self.allowed_folders:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        super().fsync_dir(path)


@pytest.mark.parametrize("reset", [False, True])
def test_segments_that_go_make_way_for_the_folder_that_is_to_be_synced(reset: bool) -> None:
    """Half of them gone it would be too late to refuse."""
    fs = LimitedFs()
    directory = FileLogDirectory("/d", fs=fs)
    (log,) = directory.create([LogStart(IDENTITY, "t", TopicConfig(segment_bytes=256))])
    assert isinstance(log, FileLog)
    for _ in range(10):
        append(log, ["x" * 200], epoch=1)
    for segment in log._segments:
        log._storage.files.descriptor(segment)
    fs.allowed_folders = len(fs._open)
    if reset:
        log.reset_to(3)
    else:
        log.truncate_to(3)
    assert (log.is_damaged, log.end_offset) == (False, 3)
    fs.allowed_folders = 1_000
    append(log, ["y"], epoch=2)
    flush(log)
    kill(fs, directory)
    found = FileLogDirectory("/d", fs=fs).get(IDENTITY)
    assert found is not None
    assert (found.start_offset, found.end_offset) == (3 if reset else 0, 4)


def test_a_file_that_is_not_needed_makes_way_for_another_where_descriptors_are_short() -> None:
    """However many files may be open: appends that need another segment, and reads, go on."""
    fs = LimitedFs()
    directory = FileLogDirectory("/d", fs=fs)
    (log,) = directory.create([LogStart(IDENTITY, "t", TopicConfig(segment_bytes=256))])
    assert isinstance(log, FileLog)
    fs.allowed = 10
    for _ in range(40):
        append(log, ["x" * 200], epoch=1)
    assert len(log._segments) == 40
    log._tail.clear()
    pinned = [log.read(n, n + 1, 1)[0] for n in range(9)]
    with pytest.raises(LogFull, match="cannot be read now"):
        log.read(9, 10, 1)
    pinned.pop().release()
    assert len(list(log.records(9))) == 31
    for part in pinned:
        part.release()
    assert len(list(log.records())) == 40
