"""After a failed fsync the system shows what it has not stored, and calls it clean: the next life writes it again first (R14)."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest
from tests.unit.log.lives import FOLDER, IDENTITY, abandon, failing_fsync, kill, open_directory, open_log, reopened, segments

from replog.config import TopicConfig
from replog.errors import LogDamaged, LogFull
from replog.log.directory import FileLogDirectory
from replog.log.log import FileLog
from replog.ports import LogStart
from replog.testing.disk import CrashedError, FaultyFs, SimulatedDisk, keep_none
from replog.testing.log_contract import append, flush, shown

OTHER = IDENTITY._replace(partition=1)


def with_a_failed_flush(flushed: int, unflushed: int, config: TopicConfig) -> tuple[SimulatedDisk, list[bytes | None]]:
    """A log whose last flush has failed, after a kill; and its values."""
    disk = SimulatedDisk(random.Random(1))
    directory, log = open_log(disk, config)
    for _ in range(flushed):
        append(log, 2)
    flush(log)
    directory.checkpoint()
    for _ in range(unflushed):
        append(log, 2)
    with failing_fsync(disk, LogDamaged):
        flush(log)
    values = shown(log)
    kill(disk, directory)
    return disk, values


@pytest.mark.parametrize("flushed", [0, 1, 7])
@pytest.mark.parametrize("unflushed", [1, 9])
@pytest.mark.parametrize("segment_bytes", [500, 1 << 20], ids=["several segments", "one segment"])
def test_what_the_next_life_calls_flushed_survives_a_power_cut(flushed: int, unflushed: int, segment_bytes: int) -> None:
    disk, values = with_a_failed_flush(flushed, unflushed, TopicConfig(segment_bytes=segment_bytes, flush="ack"))
    directory, log = reopened(disk)
    assert (directory.loss.kind, directory.loss.lossy) == ("power", (IDENTITY,))
    assert shown(log) == values, "nothing that the cache still has is thrown away"
    assert log.flushed_end == 2 * flushed
    directory.registered(1)
    append(log, 1)
    flush(log)
    promised = shown(log)
    assert log.flushed_end == len(promised)
    kill(disk, directory)
    disk.cut_power(keep_none)
    directory, log = reopened(disk)
    assert shown(log) == promised
    assert directory.loss.lossy == ()


def test_it_is_enough_that_the_next_life_has_begun() -> None:
    """It notes that it was told; so whoever comes after it finds what was written again on the disk."""
    disk, values = with_a_failed_flush(3, 3, TopicConfig(flush="ack"))
    directory, _ = reopened(disk)
    directory.registered(1)
    kill(disk, directory)
    directory, log = reopened(disk)
    assert directory.loss.kind == "process"
    flush(log)
    kill(disk, directory)
    disk.cut_power(keep_none)
    assert shown(reopened(disk)[1]) == values


def test_what_was_dropped_from_the_cache_is_found_out() -> None:
    """The system may forget a page that it calls clean, in any segment: what is served is then what the disk has."""
    disk, values = with_a_failed_flush(2, 9, TopicConfig(segment_bytes=500))
    path = segments(disk)[2]
    disk.content(path)[20:200] = bytes(180)
    directory, log = reopened(disk)
    content = shown(log)
    assert 4 <= len(content) < len(values)
    assert content == values[: len(content)]
    assert not directory.recovered[IDENTITY].corrupt, "it was never safely stored"
    append(log)


def test_a_lost_truncation_is_said_again() -> None:
    """The old end of the file must not come back behind what was written since: it would fit."""
    disk = SimulatedDisk(random.Random(1))
    directory, log = open_log(disk, TopicConfig())
    for _ in range(4):
        append(log, 1)
    flush(log)
    with failing_fsync(disk, LogDamaged):
        log.truncate_to(2)
    kill(disk, directory)
    directory, log = reopened(disk)
    assert log.end_offset == 2
    append(log, 1)
    flush(log)
    kill(disk, directory)
    disk.cut_power(keep_none)
    assert reopened(disk)[1].end_offset == 3


@pytest.mark.parametrize("path", [".log", FOLDER])
def test_an_fsync_that_fails_while_it_is_written_again(path: str) -> None:
    """Then it does not open, and the next time all of it is done again."""
    disk, values = with_a_failed_flush(1, 3, TopicConfig(flush="ack"))
    with failing_fsync(disk, OSError, path):
        open_directory(disk)
    disk.kill()
    directory, log = reopened(disk)
    assert directory.loss.lossy == (IDENTITY,)
    flush(log)
    kill(disk, directory)
    disk.cut_power(keep_none)
    assert shown(reopened(disk)[1]) == values


def test_an_fsync_that_fails_while_recovery_cuts_is_remembered() -> None:
    disk = SimulatedDisk(random.Random(1))
    directory, log = open_log(disk, TopicConfig())
    append(log, 2)
    kill(disk, directory)
    disk.content(segments(disk)[0]).extend(b"unfinished")
    with failing_fsync(disk, OSError):
        open_directory(disk)
    disk.kill()
    directory, log = reopened(disk)
    assert directory.loss.lossy == (IDENTITY,)
    assert log.end_offset == 2


def interrupted_at(disk: SimulatedDisk, kind: str, path: str, work: Callable[[FileLogDirectory, FileLog], object]) -> None:
    """A life with several segments that is killed before the first operation of this kind on such a path in `work`."""

    def crash(operation: str, at: str) -> int | None:
        if is_armed and operation == kind and path in at:
            raise CrashedError
        return None

    is_armed = False
    directory, log = open_log(FaultyFs(disk, crash))
    for _ in range(9):
        append(log, 2)
    flush(log)
    directory.checkpoint()
    is_armed = True
    with pytest.raises(CrashedError):
        work(directory, log)
    abandon(directory)
    disk.kill()


@pytest.mark.parametrize("after", range(5))
def test_a_folder_that_cannot_be_synced_while_a_reset_is_finished_is_remembered(after: int) -> None:
    disk = SimulatedDisk(random.Random(1))
    interrupted_at(disk, "unlink", ".log", lambda _, log: log.reset_to(40))
    assert len(segments(disk)) == 3, "each of them goes durably; then the notes of earlier starts, and the note that it is done"
    disk.arm("fsync_error", paths=lambda path: path == FOLDER, after=after, times=1)
    with pytest.raises(OSError, match="error"):
        open_directory(disk)
    disk.kill()
    directory, log = reopened(disk)
    assert directory.loss.lossy == (IDENTITY,)
    assert log.start_offset == 40


@pytest.mark.parametrize("folder", ["/d/quarantine", "/d/logs"])
def test_a_folder_that_cannot_be_synced_while_a_quarantine_is_finished_is_remembered(folder: str) -> None:
    disk = SimulatedDisk(random.Random(1))

    def put_away(directory: FileLogDirectory, log: FileLog) -> None:
        directory.create([LogStart(OTHER, "u", TopicConfig())])
        directory.quarantine(IDENTITY, 5)

    interrupted_at(disk, "rename", "/quarantine/", put_away)
    with failing_fsync(disk, OSError, folder):
        open_directory(disk)
    disk.kill()
    assert open_directory(disk).loss.lossy == (OTHER,)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_without_room_for_the_note_none_is_left(code: int) -> None:
    """That says as much: every log may have lost something, whatever its flush policy."""
    disk = SimulatedDisk(random.Random(1))

    def no_note(operation: str, path: str) -> int | None:
        if operation in ("create", "write") and "/life" in path:
            raise OSError(code, "injected", path)
        return None

    fs = FaultyFs(disk)
    directory, log = open_log(fs, TopicConfig(flush="ack"))
    append(log, 2)
    fs.before = no_note
    with failing_fsync(disk, LogDamaged):
        flush(log)
    kill(disk, directory)
    directory, log = reopened(disk)
    assert (directory.loss.kind, directory.loss.lossy) == ("power", (IDENTITY,))
    flush(log)
    kill(disk, directory)
    disk.cut_power(keep_none)
    assert len(shown(reopened(disk)[1])) == 2


def test_the_catalogue_is_written_again_as_well() -> None:
    """An entry that never reached the disk, with later ones behind it, would be damage after a power cut."""
    disk = SimulatedDisk(random.Random(1))
    directory, log = open_log(disk, TopicConfig(flush="ack"))
    append(log, 1)
    flush(log)
    disk.arm("fsync_error", paths="catalogue")
    disk.arm("write_error", paths="catalogue", after=1)  # nor can the entry be taken back
    with pytest.raises((LogDamaged, LogFull)):
        directory.create([LogStart(OTHER, "t", TopicConfig())])
    disk.disarm()
    kill(disk, directory)
    directory = open_directory(disk)
    third = IDENTITY._replace(partition=2)
    directory.create([LogStart(third, "t", TopicConfig())])
    kill(disk, directory)
    disk.cut_power(keep_none)
    assert third in open_directory(disk).identities()
