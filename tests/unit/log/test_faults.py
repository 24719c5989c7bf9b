"""Disks that are full or fail: nothing half stored, clear errors, and no second chance for a failed flush (P-54)."""

from __future__ import annotations

import errno
import random
from contextlib import suppress
from typing import Literal

import pytest
from tests.unit.log.lives import FOLDER, IDENTITY, LIMITS, kill, open_directory, open_log, reopened, segments

from replog.config import TopicConfig
from replog.errors import LogCorrupt, LogDamaged, LogFull
from replog.log.directory import FileLogDirectory
from replog.log.log import FileLog
from replog.log.memory import MemoryLogDirectory
from replog.log.storage import folder_name
from replog.ports import LogStart
from replog.testing.disk import FaultyFs, MemoryFs, SimulatedDisk, keep_none
from replog.testing.log_contract import append, batch_of, flush, shown, stored_batches

OTHER = IDENTITY._replace(partition=1)


class Trouble:
    """Fails the operations of one kind, as long as it is set."""

    def __init__(self) -> None:
        self.kind = ""
        self.code = 0
        self.write_at_most: int | None = None
        self.where = ".log"

    def __call__(self, operation: str, path: str) -> int | None:
        if operation == self.kind and self.where in path:
            if self.write_at_most is not None:
                allowed, self.write_at_most = self.write_at_most, None
                return allowed
            raise OSError(self.code, "injected", path)
        return None

    def set(self, kind: str, code: int, *, write_at_most: int | None = None, where: str = ".log") -> None:
        """Begin to fail; with `write_at_most`, one write first takes so many bytes."""
        self.kind, self.code, self.write_at_most, self.where = kind, code, write_at_most, where


def troubled(flush: Literal["os", "ack"] = "os") -> tuple[Trouble, MemoryFs, FileLogDirectory, FileLog]:
    trouble, disk = Trouble(), MemoryFs()
    directory, log = open_log(FaultyFs(disk, trouble), TopicConfig(flush=flush))
    return trouble, disk, directory, log


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize("taken", [None, 0, 1, 50, 100])
def test_a_full_disk_refuses_and_heals(code: int, taken: int | None) -> None:
    trouble, disk, directory, log = troubled()
    append(log, 2)
    size = len(disk.content(segments(disk)[0]))
    trouble.set("write", code, write_at_most=taken)
    for _ in range(2):
        with pytest.raises(LogFull, match="injected"):
            append(log, 2)
        assert (log.end_offset, log.size_bytes) == (2, size)
        assert len(disk.content(segments(disk)[0])) == size, "nothing of it stays"
    trouble.kind = ""
    append(log, 2)
    assert len(shown(log)) == 4
    kill(disk, directory)
    found = open_directory(disk).get(IDENTITY)
    assert found is not None
    assert len(shown(found)) == 4


def test_a_full_disk_refuses_a_group_and_a_new_segment() -> None:
    trouble, disk, _, log = troubled()
    log.config = TopicConfig(segment_bytes=400)
    batches = []
    for number in range(6):
        batch = batch_of(2)
        batch.stamp(IDENTITY, 2 * number, 0)
        batches.append(batch)
    trouble.set("create", errno.ENOSPC)
    with pytest.raises(LogFull):
        log.append_many(batches)
    assert log.end_offset == 0
    trouble.set("write", errno.ENOSPC, write_at_most=300)
    with pytest.raises(LogFull):
        log.append_many(batches)
    assert log.end_offset == 0
    trouble.kind = ""
    log.append_many(batches)
    assert len(segments(disk)) > 1
    assert len(shown(log)) == 12


def test_a_short_write_is_finished() -> None:
    trouble, _, _, log = troubled()
    trouble.set("write", 0, write_at_most=70)

    def once(operation: str, path: str) -> int | None:
        if operation == "write" and trouble.write_at_most:
            allowed, trouble.write_at_most = trouble.write_at_most, None
            return allowed
        return None

    fs = log._storage.fs
    assert isinstance(fs, FaultyFs)
    fs.before = once
    batch = append(log, 3)
    log.forget_tail()
    assert stored_batches(log)[0].to_bytes() == batch.to_bytes()


def test_a_write_error_ends_this_log_only() -> None:
    trouble, disk, directory, log = troubled()
    (other,) = directory.create([LogStart(OTHER, "t", TopicConfig())])
    append(log, 2)
    append(other, 2)
    trouble.set("write", errno.EIO)
    with pytest.raises(LogDamaged, match="injected"):
        append(log, 2)
    trouble.kind = ""
    with pytest.raises(LogDamaged):
        append(log, 2)
    assert len(shown(log)) == 2, "it is still read"
    append(other, 2)
    directory.close(clean=True)
    directory = open_directory(disk)
    assert directory.loss.kind == "process", "a damaged log never stops cleanly"
    again = directory.get(IDENTITY)
    assert again is not None
    append(again, 2)


def test_a_write_that_cannot_be_taken_back_ends_the_log() -> None:
    trouble, disk, directory, log = troubled()
    append(log, 2)

    def both(operation: str, path: str) -> int | None:
        if path.endswith(".log") and operation in ("write", "truncate"):
            if operation == "write" and trouble.write_at_most:
                allowed, trouble.write_at_most = trouble.write_at_most, None
                return allowed
            raise OSError(errno.ENOSPC if operation == "write" else errno.EIO, "injected")
        return None

    fs = log._storage.fs
    assert isinstance(fs, FaultyFs)
    trouble.write_at_most = 60
    fs.before = both
    with pytest.raises(LogDamaged, match="taken back"):
        append(log, 2)
    fs.before = None
    kill(disk, directory)
    directory = open_directory(disk)
    found = directory.get(IDENTITY)
    assert found is not None
    assert found.end_offset == 2
    assert directory.recovered[IDENTITY].bytes_cut == 60


@pytest.mark.parametrize("kind", ["fsync", "fsync_dir"])
def test_a_failed_flush_ends_the_whole_directory(kind: str) -> None:
    trouble, disk, directory, log = troubled()
    (other,) = directory.create([LogStart(OTHER, "t", TopicConfig())])
    append(log, 2)
    append(other, 2)
    token = log.flush()
    assert token is not None
    trouble.set(kind, errno.EIO, where="/logs")
    token.run()
    trouble.kind = ""
    assert token.error is not None
    with pytest.raises(LogDamaged, match="flush failed"):
        log.flushed(token)
    for each in (log, other):
        assert each.flushed_end == 0
        with pytest.raises(LogDamaged):
            append(each, 2)
        with pytest.raises(LogDamaged):
            each.flush()
        assert len(shown(each)) == 2
    with pytest.raises(LogDamaged):
        directory.checkpoint()
    with pytest.raises(LogDamaged):
        directory.registered(3)
    directory.close(clean=True)
    directory = open_directory(disk)
    assert directory.loss.kind == "power", "what the kernel had of it may never have reached the disk"
    assert directory.loss.lossy == (IDENTITY, OTHER)


NO_DESCRIPTORS = pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])


@NO_DESCRIPTORS
@pytest.mark.parametrize("folder", ["/d/logs", FOLDER])
def test_a_flush_that_finds_no_descriptors_for_a_folder_is_done_later(code: int, folder: str) -> None:
    """No fsync has failed then: another one makes everything durable."""
    trouble, disk, directory, log = troubled(flush="ack")
    append(log, 2)
    trouble.set("fsync_dir", code, where=folder)
    for _ in range(2):
        with pytest.raises(LogFull, match="cannot be flushed now"):
            flush(log)
        assert log.flushed_end == 0
    with pytest.raises(LogFull):
        directory.close(clean=True)
    trouble.kind = ""
    directory, log = reopened(FaultyFs(disk, trouble))
    assert (directory.loss.kind, directory.loss.lossy) == ("process", ())
    append(log, 2)
    flush(log)
    assert log.flushed_end == 4
    kill(disk, directory)
    disk.cut_power(keep_none)
    assert len(shown(reopened(disk)[1])) == 4


@NO_DESCRIPTORS
def test_a_flush_that_finds_no_descriptors_for_a_segment_is_done_later(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryFs()
    directory, log = open_log(disk, TopicConfig(segment_bytes=500))
    for _ in range(5):
        append(log, 2)
    first = log._segments[0]
    directory._storage.files.close(first)

    def none_left(path: str, *, create: bool = False) -> int:
        raise OSError(code, "injected", path)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "open", none_left)
        with pytest.raises(LogFull, match="cannot be flushed now"):
            flush(log)
    assert not any(segment.pins for segment in log._segments)
    flush(log)
    assert log.flushed_end == 10
    kill(disk, directory)
    disk.cut_power(keep_none)
    assert len(shown(reopened(disk)[1])) == 10


@NO_DESCRIPTORS
def test_a_truncation_that_finds_no_descriptors_is_refused_and_can_be_made_later(code: int) -> None:
    trouble, disk, directory, log = troubled()
    for _ in range(4):
        append(log, 2)
    flush(log)
    directory.checkpoint()
    trouble.set("fsync_dir", code, where=FOLDER)
    for _ in range(2):
        with pytest.raises(LogFull):
            log.truncate_to(4)
    assert log.end_offset == log.flushed_end == 8
    trouble.kind = ""
    log.truncate_to(4)
    append(log, 1, epoch=3)
    kill(disk, directory)
    disk.cut_power(keep_none)
    directory, log = reopened(disk)
    assert (log.end_offset, directory.recovered) == (4, {}), "the marker is durable before anything is cut"


@NO_DESCRIPTORS
def test_a_trim_that_finds_no_descriptors_is_durable_with_the_next_flush(code: int) -> None:
    trouble, disk, directory, log = troubled()
    append(log, 2)
    append(log, 2)
    trouble.set("fsync_dir", code, where=FOLDER)
    log.trim_to(4)
    assert (log.start_offset, log.flushed_end) == (4, 0)
    trouble.kind = ""
    flush(log)
    assert log.flushed_end == 4
    kill(disk, directory)
    disk.cut_power(keep_none)
    log = reopened(disk)[1]
    assert (log.start_offset, log.end_offset) == (4, 4)


@NO_DESCRIPTORS
def test_an_opening_that_finds_no_descriptors_tells_of_no_failed_flush(code: int) -> None:
    trouble, disk, directory, log = troubled(flush="ack")
    append(log, 2)
    kill(disk, directory)
    for folder in ("/d/logs", FOLDER):
        trouble.set("fsync_dir", code, where=folder)
        with pytest.raises(OSError, match="injected"):
            open_directory(FaultyFs(disk, trouble))
        disk.kill()
    directory, log = reopened(disk)
    assert (directory.loss.kind, directory.loss.lossy, log.end_offset) == ("process", (), 2)


def test_a_failed_flush_in_memory_ends_the_whole_directory() -> None:
    directory = MemoryLogDirectory()
    log, other = directory.create([LogStart(one, "t", TopicConfig()) for one in (IDENTITY, OTHER)])
    append(log, 2)
    log.flushes_fail = True  # type: ignore[attr-defined]
    token = log.flush()
    assert token is not None
    with pytest.raises(LogDamaged):
        log.flushed(token.run())
    with pytest.raises(LogDamaged):
        append(other)
    directory.close(clean=True)
    assert directory.reopened().loss.lossy == (IDENTITY, OTHER)


def test_memory_can_be_full() -> None:
    directory = MemoryLogDirectory()
    (log,) = directory.create([LogStart(IDENTITY, "t", TopicConfig())])
    log.full = True  # type: ignore[attr-defined]
    with pytest.raises(LogFull):
        append(log)
    log.full = False  # type: ignore[attr-defined]
    append(log)
    assert log.end_offset == 1


@pytest.mark.parametrize("kind", ["unlink", "truncate", "fsync_dir"])
@pytest.mark.parametrize("action", ["truncate_to", "trim_to", "reset_to"])
def test_a_failing_truncation_leaves_a_log_that_opens(kind: str, action: str) -> None:
    trouble, disk, directory, log = troubled()
    log.config = TopicConfig(segment_bytes=500)
    for _ in range(12):
        append(log, 2)
    before = shown(log)
    trouble.set(kind, errno.EIO, where=FOLDER)
    if not (kind == "truncate" and action != "truncate_to"):
        with pytest.raises(LogDamaged):
            getattr(log, action)(3 if action == "truncate_to" else 21)
        with pytest.raises(LogDamaged):
            append(log)
    trouble.kind = ""
    kill(disk, directory)
    directory = open_directory(disk)
    # Also where only the note failed of what was about to be done: the same fsync was to make names of segments durable.
    assert directory.loss.kind == ("power" if kind == "fsync_dir" else "process")
    found = directory.get(IDENTITY)
    assert found is not None
    assert shown(found) == before[found.start_offset : found.end_offset]
    append(found)


@pytest.mark.parametrize("after", range(4))
def test_a_folder_that_cannot_be_synced_during_a_reset_ends_the_whole_directory(after: int) -> None:
    """It may be the folder of all logs: another one's files would be lost, and its next flush succeed without them (R14)."""
    disk = SimulatedDisk(random.Random(1))
    directory, log = open_log(disk, TopicConfig(flush="ack"))
    (other,) = directory.create([LogStart(OTHER, "u", TopicConfig(flush="ack"))])
    append(log)
    flush(log)
    append(other)
    disk.arm("fsync_error", paths=lambda path: path in (FOLDER, "/d/logs"), after=after, times=1)
    with pytest.raises(LogDamaged):
        log.reset_to(7)
    with pytest.raises(LogDamaged):
        flush(other)
    disk.disarm()
    kill(disk, directory)
    disk.cut_power(keep_none)
    assert open_directory(disk).loss.lossy == (IDENTITY, OTHER)


def test_space_runs_out_for_the_directory_itself() -> None:
    trouble, disk, directory, log = troubled()
    append(log)
    trouble.set("write", errno.ENOSPC, where="/d/c")
    with pytest.raises(LogFull):
        directory.create([LogStart(OTHER, "t", TopicConfig())])
    assert directory.get(OTHER) is None
    with pytest.raises(LogFull):
        directory.checkpoint()
    with pytest.raises(LogFull):
        directory.quarantine(IDENTITY, 5)
    assert directory.get(IDENTITY) is log
    trouble.kind = ""
    directory.create([LogStart(OTHER, "t", TopicConfig())])
    append(log)
    kill(disk, directory)
    assert open_directory(disk).identities() == [IDENTITY, OTHER]


def test_a_clean_stop_that_fails_says_so_and_lets_go() -> None:
    trouble, disk, directory, log = troubled()
    append(log)
    trouble.set("fsync", errno.EIO)
    with pytest.raises(LogDamaged):
        directory.close(clean=True)
    directory = FileLogDirectory("/d", fs=disk, limits=LIMITS)
    assert directory.loss.kind == "power"


def test_unreadable_and_altered_bytes_are_never_served() -> None:
    _, disk, _, log = troubled()
    first, second = append(log, 2), append(log, 2)
    log.forget_tail()
    content = disk.content(segments(disk)[0])
    content[first.length + 20] ^= 1
    assert stored_batches(log, 0, 2)[0].to_bytes() == first.to_bytes()
    with pytest.raises(LogCorrupt):
        log.read(2, 4, 1 << 20)
    content[first.length + 20] ^= 1
    assert stored_batches(log, 2)[0].to_bytes() == second.to_bytes()
    content[first.length :] = first.to_bytes()
    with pytest.raises(LogCorrupt):
        log.read(2, 4, 1 << 20)
    del content[first.length :]
    with pytest.raises(LogCorrupt):
        log.read(2, 4, 1 << 20)
    flush(log)


@pytest.mark.parametrize("action", ["truncate", "flush"])
def test_a_failed_fsync_is_the_end_of_the_directory_wherever_it_was(action: str) -> None:
    """The system tells of it once; a later flush would succeed, and not have written anything (R14)."""
    trouble, disk, directory, log = troubled()
    for _ in range(4):
        append(log, 2)
    trouble.set("fsync", errno.EIO, where=FOLDER)
    with pytest.raises(LogDamaged, match="a flush failed"):
        log.truncate_to(3) if action == "truncate" else flush(log)
    trouble.kind = ""
    with pytest.raises(LogDamaged):
        directory.create([LogStart(OTHER, "u", TopicConfig())])
    kill(disk, directory)
    assert open_directory(disk).loss.lossy == (IDENTITY,)


def test_a_flush_outlives_the_quarantine_of_its_log() -> None:
    """Its folder has another name by then: nothing has failed, and nobody else must suffer."""
    disk = MemoryFs()
    directory, log = open_log(disk)
    (other,) = directory.create([LogStart(OTHER, "u", TopicConfig())])
    append(log, 2)
    token = log.flush()
    assert token is not None
    directory.quarantine(IDENTITY, 0)
    assert token.run().error is None
    append(other, 1)
    lost = other.flush()
    assert lost is not None
    disk.rename(f"/d/logs/{folder_name(OTHER)}", "/d/elsewhere")
    assert isinstance(lost.run().error, FileNotFoundError), "taken away by somebody else"


@pytest.mark.parametrize("after", range(6))
def test_a_truncation_that_cannot_look_back_knows_that_producers_were_dropped(after: int) -> None:
    """Not to know one proves nothing then: it goes on where it was, and is not new."""
    disk = SimulatedDisk(random.Random(1))
    _, log = open_log(disk, TopicConfig())
    for number in range(4):
        append(log, 2, producer=(7, 0, 2 * number))
    log.forget_tail()
    disk.arm("read_error", paths=".log", after=after)
    with suppress(LogCorrupt):
        log.truncate_to(6)
    disk.disarm()
    assert log.producers.forgetful == (log.end_offset == 6 and log.producers.get(7) is None)


@pytest.mark.parametrize("after", range(6))
def test_a_truncation_that_cannot_look_back_has_cut_the_epochs_all_the_same(after: int) -> None:
    """Once bytes are gone so are the epochs that stood in them: a table with more would send followers to a wrong place (S10)."""
    disk = SimulatedDisk(random.Random(1))
    _, log = open_log(disk, TopicConfig())
    for epoch in range(4):
        append(log, 2, epoch=epoch)
    log.forget_tail()
    disk.arm("read_error", paths=".log", after=after)
    with suppress(LogCorrupt, LogDamaged, OSError):
        log.truncate_to(3)
    assert all(entry.start <= log.end_offset for entry in log.epochs.entries())
    assert log.last_epoch == log.epochs.entries()[-1].epoch
