"""A process that was killed leaves a cache that is ahead of the disk: nothing that its next life promises may hang on that.

First a kill, which loses nothing, then the next life, then a power cut, which loses whatever that life has not synced.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest
from tests.unit.log.lives import FOLDER, IDENTITY, SMALL, abandon, failing_fsync, kill, open_directory, open_log, reopened, segments

from replog.config import TopicConfig
from replog.errors import LogDamaged
from replog.log.directory import FileLogDirectory
from replog.log.files import Fs
from replog.log.log import FileLog
from replog.log.segment import LOG_SUFFIX
from replog.ports import LogStart
from replog.records import RecordBatch
from replog.testing.disk import SECTOR, CrashedError, FaultyFs, MemoryFs, SimulatedDisk, crash_states, keep_all, keep_none
from replog.testing.disk.ledger import Stored
from replog.testing.disk.session import batch_of_length
from replog.testing.disk.trial import content_of
from replog.testing.log_contract import append, flush, shown

ACK = TopicConfig(flush="ack")
OTHER = IDENTITY._replace(partition=1)

Told = list[tuple[int, int]]


def found(fs: Fs) -> tuple[FileLogDirectory, FileLog]:
    """The next life, of which a controller has been told."""
    directory, log = reopened(fs)
    directory.registered(2)
    return directory, log


def put(log: FileLog, *epochs: int, text: str = "record") -> None:
    """One batch per epoch, each of one sector."""
    for epoch in epochs:
        batch = batch_of_length(SECTOR, f"{text} {log.end_offset}")
        batch.stamp(IDENTITY, log.end_offset, epoch)
        log.append(batch)


def told(log: FileLog) -> Told:
    """(offset, leader epoch) of each batch."""
    return [(batch.base, RecordBatch.parse(batch.data).leader_epoch) for batch in content_of(log).batches]


def prefixes(*logs: FileLog) -> list[tuple[Stored, ...]]:
    """What they hold, up to any batch."""
    contents = [content_of(log).batches for log in logs]
    return [content[:length] for content in contents for length in range(len(content) + 1)]


def dies_at(operation: str, suffix: str, after: str = "") -> Callable[[str, str], int | None]:
    """Killed before the first such operation on a path that ends so, once there was one called `after`."""
    seen = {""}

    def before(asked: str, path: str) -> int | None:
        if asked == operation and path.endswith(suffix) and after in seen:
            raise CrashedError(f"{asked} of {path}")
        seen.add(asked)
        return None

    return before


# ------------------------------------------------------------------------------------------------- no segment, and no name


@pytest.mark.parametrize("act", [lambda log: log.trim_to(2), lambda log: log.reset_to(7)], ids=["trimmed", "reset"])
def test_a_log_without_a_segment_opens_after_a_failed_fsync(act: Callable[[FileLog], object]) -> None:
    disk = SimulatedDisk(random.Random(1))
    directory, log = open_log(disk)
    append(log, 2)
    flush(log)
    act(log)
    end = log.end_offset
    directory.checkpoint()
    (other,) = directory.create([LogStart(OTHER, "t", SMALL)])
    append(other, 1)
    with failing_fsync(disk, LogDamaged):
        flush(other)
    kill(disk, directory)
    directory, log = found(disk)
    assert (log.start_offset, log.end_offset) == (end, end)
    append(log, 1)


def truncated_to_nothing(log: FileLog) -> None:
    append(log, 1)
    log.truncate_to(0)


def begun(log: FileLog) -> None:
    log._roll()


@pytest.mark.parametrize("clean", [False, True], ids=["killed", "closed"])
@pytest.mark.parametrize("act", [truncated_to_nothing, begun])
def test_the_name_of_an_empty_segment_is_durable_with_the_next_flush(act: Callable[[FileLog], None], clean: bool) -> None:
    fs = MemoryFs()
    directory, log = open_log(fs, ACK)
    act(log)
    directory.close(clean=clean)
    fs.kill()
    directory, log = found(fs)
    append(log, 3)
    flush(log)
    kill(fs, directory)
    fs.cut_power(keep_none)
    _, log = found(fs)
    assert log.end_offset == 3


# ------------------------------------------------------------------------------------------------ what was cut comes back


def after_a_kill_in(before: Callable[[str, str], int | None], offset: int, checkpointed: int) -> tuple[MemoryFs, list[tuple[Stored, ...]]]:
    """Four flushed batches of epoch 1, two in a segment; the checkpoint knows of so many. Killed while they are truncated to `offset`."""
    fs = MemoryFs()
    layer = FaultyFs(fs)
    directory, log = open_log(layer, TopicConfig(flush="ack", segment_bytes=2 * SECTOR))
    for number in range(4):
        if number == checkpointed:
            flush(log)
            directory.checkpoint()
        put(log, 1)
    flush(log)
    whole = prefixes(log)
    layer.before = before
    with pytest.raises(CrashedError):
        log.truncate_to(offset)
    abandon(directory)
    fs.kill()
    return fs, whole


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("checkpointed", range(5))
@pytest.mark.parametrize(
    ("operation", "suffix", "after", "offset"),
    [("fsync", LOG_SUFFIX, "", 3), ("fsync", LOG_SUFFIX, "", 0), ("fsync_dir", "-0-0", "unlink", 1)],
)
def test_a_truncation_that_a_kill_interrupted(
    operation: str, suffix: str, after: str, offset: int, checkpointed: int, checkpoint: bool
) -> None:
    """The records that were truncated and those that are appended in the next life must not be one log, whatever the checkpoint knew.

    A log on its own has but one epoch, so that epochs tell nothing here.
    """
    fs, before = after_a_kill_in(dies_at(operation, suffix, after), offset, checkpointed)
    directory, log = found(fs)
    put(log, *[1] * (2 if offset == 3 else 1), text="later")
    if checkpoint:
        directory.checkpoint()
    allowed = [*before, *prefixes(log)]
    states = 0
    for state in crash_states(fs):
        later, copy = found(state.disk())
        assert content_of(copy).batches in allowed, later.loss
        states += 1
    assert states > 1


@pytest.mark.parametrize("checkpointed", [0, 1])
def test_a_cut_of_recovery_that_a_kill_interrupted(checkpointed: int) -> None:
    """After a power cut the second batch is torn and the third is not; recovery is killed while it cuts, and done again."""
    fs = MemoryFs()
    directory, log = open_log(fs, ACK)
    for number in range(3):
        if number == checkpointed:
            flush(log)
            directory.checkpoint()
        put(log, 1)
    kill(fs, directory)
    fs.content(segments(fs)[0])[SECTOR : 2 * SECTOR] = bytes(SECTOR)
    fs.cut_power(keep_all)
    layer = FaultyFs(fs, before=dies_at("fsync", LOG_SUFFIX))
    with pytest.raises(CrashedError):
        open_directory(layer)
    fs.kill()
    _, log = found(fs)
    assert log.end_offset == 1
    put(log, 1, 1, text="later")
    allowed = prefixes(log)
    for state in crash_states(fs):
        _, copy = found(state.disk())
        assert content_of(copy).batches in allowed


def test_a_failing_fsync_of_what_a_kill_left_is_remembered() -> None:
    """It does not open, and what the cache shows is not trusted the next time."""
    disk = SimulatedDisk(random.Random(1))
    directory, log = open_log(disk, ACK)
    put(log, 1, 1)
    kill(disk, directory)
    with failing_fsync(disk, OSError):
        open_directory(disk)
    disk.kill()
    directory = open_directory(disk)
    assert directory.loss.lossy == (IDENTITY,)


def test_logs_that_are_as_the_checkpoint_says_are_not_synced() -> None:
    """Of ten thousand logs most are."""
    fs = MemoryFs()
    directory, log = open_log(fs, ACK)
    (other,) = directory.create([LogStart(OTHER, "t", ACK)])
    for one in (log, other):
        append(one, 3)
        flush(one)
    directory.checkpoint()
    append(other, 1)
    kill(fs, directory)
    layer = FaultyFs(fs)
    open_directory(layer)
    synced = [path for operation, path in layer.operations if operation.startswith("fsync") and "-" in path]
    assert len(synced) == 2
    assert all("-1-0" in path for path in synced)


# ------------------------------------------------------------------------------------------------ what is called flushed


def trimmed_to_the_end(log: FileLog) -> None:
    log.trim_to(5)


def trimmed_in_the_middle(log: FileLog) -> None:
    log.trim_to(3)


def reset_ahead(log: FileLog) -> None:
    log.reset_to(500)


def aged(log: FileLog) -> None:
    log.retain(1 << 60, log.end_offset)


def not_at_all(log: FileLog) -> None:
    pass


@pytest.mark.parametrize("segment_bytes", [500, 1 << 20])
@pytest.mark.parametrize("again", [False, True], ids=["", "after another kill"])
@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("flushed", range(3))
@pytest.mark.parametrize("act", [trimmed_to_the_end, trimmed_in_the_middle, reset_ahead, aged, not_at_all])
def test_the_end_does_not_go_back_below_what_was_called_flushed(
    act: Callable[[FileLog], None], flushed: int, checkpoint: bool, again: bool, segment_bytes: int
) -> None:
    fs = MemoryFs()
    directory, log = open_log(fs, TopicConfig(flush="ack", segment_bytes=segment_bytes, retention_ms=1_000))
    for number in range(5):
        if number == flushed:
            flush(log)
        append(log, 1)
    act(log)
    if checkpoint:
        directory.checkpoint()
    start, end, said = log.start_offset, log.end_offset, log.flushed_end
    assert said == end if log.size_bytes == 0 else said < end
    kill(fs, directory)
    if again:  # what the next life calls flushed is so as well
        directory, log = found(fs)
        said = max(said, log.flushed_end)
        kill(fs, directory)
    fs.cut_power(keep_none)
    directory, log = found(fs)
    assert log.start_offset <= start
    assert log.end_offset >= said
    assert again or directory.loss.lossy == ()


def test_a_flush_after_a_trim_makes_the_rest_durable() -> None:
    fs = MemoryFs()
    directory, log = open_log(fs, ACK)
    for _ in range(5):
        append(log, 1)
    log.trim_to(3)
    assert log.flushed_end < 5
    flush(log)
    assert log.flushed_end == 5
    kill(fs, directory)
    fs.cut_power(keep_none)
    assert len(shown(found(fs)[1])) == 5


def with_lost_records() -> tuple[MemoryFs, FaultyFs]:
    """A killed directory whose checkpoint calls ten records flushed, four of which are gone; and a layer over it."""
    fs = MemoryFs()
    layer = FaultyFs(fs)
    directory, log = open_log(layer, ACK)
    for _ in range(10):
        append(log, 1)
    flush(log)
    directory.checkpoint()
    kill(fs, directory)
    content = fs.content(segments(fs)[0])
    del content[len(content) * 6 // 10 :]
    return fs, layer


@pytest.mark.parametrize("room", [True, False], ids=["", "full"])
def test_what_takes_the_place_of_lost_records_is_not_flushed(room: bool) -> None:
    """The checkpoint called ten records flushed, and four of them are gone: the next four are others."""
    fs, layer = with_lost_records()

    def full(operation: str, path: str) -> int | None:
        if operation == "create" and "checkpoint" in path:
            raise OSError(errno.ENOSPC, "no space left")
        return None

    layer.before = None if room else full
    directory, log = found(layer)
    assert (directory.loss.kind, directory.loss.lossy) == ("corrupt", (IDENTITY,))
    assert log.end_offset == 6
    for _ in range(4):
        append(log, 1)
    kill(fs, directory)
    directory, log = found(fs)
    assert directory.loss.lossy == ()
    assert (log.end_offset, log.flushed_end) == (10, 6 if room else 0)


def test_lost_records_are_reported_again_after_a_kill_before_that_was_noted() -> None:
    fs, layer = with_lost_records()
    layer.before = dies_at("rename", "/life")
    with pytest.raises(CrashedError):
        open_directory(layer)
    fs.kill()
    for _ in range(2):  # until a controller was told
        directory = open_directory(fs)
        assert (directory.loss.kind, directory.loss.lossy) == ("corrupt", (IDENTITY,))
        kill(fs, directory)


def test_a_log_whose_folder_is_gone_begins_where_it_did() -> None:
    """Also in the life after the one that has reported it."""
    fs = MemoryFs()
    directory, log = open_log(fs, SMALL)
    for _ in range(9):
        append(log, 1)
    log.trim_to(4)
    flush(log)
    directory.checkpoint()
    start = log.start_offset
    kill(fs, directory)
    for path in fs.paths(FOLDER):
        fs.unlink(f"/{path}")
    fs.rmdir(FOLDER)
    for lossy in ((IDENTITY,), ()):
        directory, log = found(fs)
        assert (log.start_offset, log.end_offset) == (start, start)
        assert directory.loss.lossy == lossy
        kill(fs, directory)


# ---------------------------------------------------------------------------------------------------- what was trimmed


def after_a_kill_in_a_trim(operations: int, flushed: bool) -> tuple[MemoryFs, bool]:
    """Six batches, two in a segment, of which four are trimmed; killed after so many operations. And whether it was done before."""
    fs = MemoryFs()
    layer = FaultyFs(fs)
    directory, log = open_log(layer, TopicConfig(flush="ack", segment_bytes=2 * SECTOR))
    put(log, 1, 1, 1, 1, 1, 1)
    if flushed:
        flush(log)
    layer.crash_after = len(layer.operations) + operations
    done = False
    try:
        log.trim_to(4)
        done = True
    except CrashedError:
        pass
    abandon(directory)
    fs.kill()
    return fs, done


@pytest.mark.parametrize("flushed", [False, True])
def test_a_trim_that_a_kill_interrupted(flushed: bool) -> None:
    """At each operation of it, and of the recovery after it; then whatever a power cut leaves is whole."""
    number = states = 0
    while not after_a_kill_in_a_trim(number, flushed)[1]:
        operations: int | None = 0
        while operations is not None:
            fs, _ = after_a_kill_in_a_trim(number, flushed)
            layer, said = FaultyFs(fs, crash_after=operations), 0
            try:
                directory, log = found(layer)
            except CrashedError:
                operations += 1
            else:
                assert log.end_offset == 6
                said, operations = log.flushed_end, None
                kill(fs, directory)
            for state in crash_states(fs, limit=20):
                directory, log = found(state.disk())
                assert log.end_offset >= (6 if flushed else said)
                assert told(log) == [(offset, 1) for offset in range(log.start_offset, log.end_offset)]
                states += 1
        number += 1
    assert number > 5
    assert states > 80


@pytest.mark.parametrize("torn", [False, True])
def test_a_trimmed_segment_that_came_back_does_not_cost_the_others(torn: bool) -> None:
    """The removal of the oldest two did not reach the disk, and nor did all of their content."""
    fs = MemoryFs()
    directory, log = open_log(fs, TopicConfig(flush="ack", segment_bytes=2 * SECTOR))
    put(log, 1, 1, 1, 1, 1, 1)
    flush(log)
    old = {path: bytes(fs.content(path)) for path in segments(fs)[:2]}
    log.trim_to(4)
    directory.checkpoint()
    kill(fs, directory)
    for path, data in old.items():
        fs.pwritev(fs.open(path, create=True), [data[: SECTOR + 100] if torn else data], 0)
    fs.cut_power(keep_all)
    assert len(segments(fs)) == 3
    directory, log = found(fs)
    assert (log.start_offset, log.end_offset, told(log)) == (4, 6, [(4, 1), (5, 1)])
    assert directory.loss.lossy == ()
    assert len(segments(fs)) == 1


def test_a_trimmed_segment_that_cannot_be_removed_stays_a_part_of_the_log() -> None:
    """Some file systems need room for that; it is no reason not to open."""
    fs = MemoryFs()
    layer = FaultyFs(fs)
    directory, log = open_log(layer, TopicConfig(flush="ack", segment_bytes=2 * SECTOR))
    put(log, 1, 1, 1, 1, 1, 1)
    flush(log)

    def refuses(operation: str, path: str) -> int | None:
        if operation == "unlink" or (operation == "rename" and path.endswith(".start")):
            raise OSError(errno.ENOSPC, "no space left")
        return None

    layer.before = refuses
    log.trim_to(4)
    directory.checkpoint()
    kill(fs, directory)
    for count in (3, 1):
        directory, log = found(layer)
        assert (log.start_offset, log.end_offset, told(log)) == (4, 6, [(4, 1), (5, 1)])
        assert len(segments(fs)) == count
        layer.before = None
        kill(fs, directory)
