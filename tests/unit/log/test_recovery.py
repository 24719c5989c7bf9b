"""Opening after an unclean stop: the longest valid prefix, and an honest report (P-51, P-53)."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest
from tests.unit.log.lives import FOLDER, IDENTITY, SMALL, crash_everywhere, kill, open_directory, open_log, reopened, segments

from replog.config import TopicConfig
from replog.errors import LogFull
from replog.log import checkpoint, recovery
from replog.log.directory import FileLogDirectory
from replog.log.epochs import EpochTable
from replog.log.log import FileLog
from replog.log.segment import start_note
from replog.log.storage import read_summary, write_summary
from replog.ports import LogStart
from replog.records import BODY_HEADER, FRONT_BYTES, HEADER_BYTES, encode_values, read_header, sealed, stamp
from replog.testing.disk import FaultyFs, MemoryFs, SimulatedDisk, keep_all, keep_none, some
from replog.testing.disk.faults import FaultKind
from replog.testing.log_contract import append, entries_of, flush, shown

BIG = TopicConfig()
GARBAGE = bytes(range(1, 256)) * 3


def written(batches: int = 5, *, config: TopicConfig = BIG, flushed: int = 0) -> tuple[MemoryFs, list[int]]:
    """A killed directory whose log has batches of two records, some of them flushed and known to be; and each batch's end position."""
    fs = MemoryFs()
    directory, log = open_log(fs, config)
    ends = [0]
    for number in range(batches):
        ends.append(ends[-1] + append(log, 2, epoch=number // 2, producer=(3, 0, 2 * number), at_ms=number).length)
        if number + 1 == flushed:
            flush(log)
            directory.checkpoint()
    kill(fs, directory)
    return fs, ends


def check_prefix(log: FileLog, batches: int) -> None:
    """The log is as if only so many batches had ever been written, and takes more."""
    assert log.end_offset == 2 * batches
    assert shown(log) == [b"value 0", b"value 1"] * batches
    assert entries_of(log) == [(epoch, 4 * epoch) for epoch in range(3) if 4 * epoch < 2 * batches]
    producer = log.producers.get(3)
    assert ([w.base_offset for w in producer.recent] if producer else []) == [2 * n for n in range(batches)][-5:]
    assert log.offset_for_time(batches) is None
    append(log, 2, epoch=8)
    assert len(shown(log)) == 2 * batches + 2


def test_cut_at_every_byte_of_the_last_batch() -> None:
    for power in (False, True):
        fs, ends = written()
        (path,) = segments(fs)
        whole = bytes(fs.content(path))
        for size in range(ends[4], ends[5]):
            fs.content(path)[:] = whole[:size]
            if power:
                fs.cut_power(keep_all)
            directory, log = reopened(fs)
            assert log.end_offset == 8
            assert directory.loss.kind == ("power" if power else "process")
            assert directory.loss.lossy == ((IDENTITY,) if power else ())
            expected_cut = size - ends[4]
            assert (directory.recovered[IDENTITY].bytes_cut if expected_cut else 0) == expected_cut
            assert len(fs.content(path)) == ends[4]
            check_prefix(log, 4)
            kill(fs, directory)
            fs.content(path)[:] = whole


def test_every_bit_of_the_last_batch() -> None:
    fs, ends = written()
    (path,) = segments(fs)
    whole = bytes(fs.content(path))
    for bit in range(8 * ends[4], 8 * ends[5]):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        fs.content(path)[:] = damaged
        fs.cut_power(keep_all)
        directory, log = reopened(fs)
        assert (log.end_offset, directory.loss.kind) == (8, "power")
        assert shown(log) == [b"value 0", b"value 1"] * 4
        kill(fs, directory)
        # The page cache does not flip bits: after a killed process this is damage, and not what it left behind.
        fs.content(path)[:] = damaged
        directory, log = reopened(fs)
        assert log.end_offset == 8
        assert (directory.loss.kind, directory.loss.lossy) == ("corrupt", (IDENTITY,))
        directory.registered(1)
        kill(fs, directory)


@pytest.mark.parametrize("tail", [bytes(1), bytes(5_000), GARBAGE, GARBAGE[:40], b"RL" * 200, b"LR" * 200])
def test_something_else_behind_the_end(tail: bytes) -> None:
    fs, ends = written()
    (path,) = segments(fs)
    fs.content(path).extend(tail)
    fs.cut_power(keep_all)
    directory, log = reopened(fs)
    assert directory.recovered[IDENTITY].bytes_cut == len(tail)
    assert len(fs.content(path)) == ends[5]
    check_prefix(log, 5)


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("batch", range(5))
def test_a_bad_batch_below_the_recovery_point_is_reported(batch: int, power: bool) -> None:
    fs, ends = written(flushed=3)
    (path,) = segments(fs)
    fs.content(path)[ends[batch] + HEADER_BYTES + 3] ^= 4
    if power:
        fs.cut_power(keep_all)
    directory, log = reopened(fs)
    assert directory.loss.kind == ("corrupt" if batch < 3 or not power else "power")
    assert directory.loss.lossy == (IDENTITY,)
    assert log.end_offset == 2 * batch
    if batch < 3:
        assert f"offset {2 * batch}" in directory.recovered[IDENTITY].corrupt
        assert [p for p in fs.paths(FOLDER) if p.endswith(".bad")], "what was cut is kept aside"
    check_prefix(log, batch)


@pytest.mark.parametrize("victim", [1, 2])
def test_a_whole_segment_is_missing(victim: int) -> None:
    fs, _ = written(12, config=SMALL, flushed=12)
    paths = segments(fs)
    assert len(paths) >= 3
    fs.unlink(paths[victim])
    directory, log = reopened(fs)
    assert directory.loss.kind == "corrupt"
    assert log.end_offset == int(paths[victim][-24:-4])
    assert len(shown(log)) == log.end_offset


def test_the_folder_is_missing() -> None:
    fs, _ = written(3, flushed=3)
    for path in fs.paths(FOLDER):
        fs.unlink(f"/{path}")
    fs.rmdir(FOLDER)
    directory, log = reopened(fs)
    assert (directory.loss.kind, directory.loss.lossy) == ("corrupt", (IDENTITY,))
    assert (log.start_offset, log.end_offset) == (0, 0)
    append(log, 2)
    assert len(shown(log)) == 2


@pytest.mark.parametrize("gone", ["folder", "file", "content", "end"])
@pytest.mark.parametrize("power", [False, True])
def test_what_was_committed_and_never_flushed_is_missing(gone: str, power: bool) -> None:
    """The cache survives a killed process: what has gone since has gone some other way. A power cut may take it, and is told as one."""
    fs = MemoryFs()
    directory, log = open_log(fs, BIG)
    lengths = [append(log, 2, epoch=n).length for n in range(3)]
    directory.high_watermarks[IDENTITY] = 5
    directory.checkpoint()
    kill(fs, directory)
    (path,) = segments(fs)
    if gone == "content":
        del fs.content(path)[:]
    elif gone == "end":
        del fs.content(path)[lengths[0] + lengths[1] :]
    else:
        for name in [f"/{one}" for one in fs.paths(FOLDER)] if gone == "folder" else [path]:
            fs.unlink(name)
    if gone == "folder":
        fs.rmdir(FOLDER)
    if power:
        fs.cut_power(keep_all)
    directory, log = reopened(fs)
    assert (directory.loss.kind, directory.loss.lossy) == ("power" if power else "corrupt", (IDENTITY,))
    assert log.end_offset == (4 if gone == "end" else 0)
    if not power:
        assert "offset 5" in directory.recovered[IDENTITY].corrupt or "to 5" in directory.recovered[IDENTITY].corrupt


@pytest.mark.parametrize("flushed", [0, 1])
def test_what_was_committed_and_torn_is_noted_before_it_is_cut(flushed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = MemoryFs()
    directory, log = open_log(fs, BIG)
    torn = [append(log, 2).length for _ in range(flushed)]
    if flushed:
        flush(log)
    for _ in range(3):
        append(log, 2)
    directory.high_watermarks[IDENTITY] = log.end_offset
    directory.checkpoint()
    kill(fs, directory)
    (path,) = segments(fs)
    del fs.content(path)[sum(torn) + 20 :]
    with monkeypatch.context() as patch:
        patch.setattr("replog.log.directory.judge", None)  # the opening ends before it notes its life
        with pytest.raises(TypeError):
            reopened(fs)
    directory, log = reopened(fs)
    assert (directory.loss.kind, directory.loss.lossy, log.end_offset) == ("corrupt", (IDENTITY,), 2 * flushed)


def test_what_was_committed_and_cut_on_purpose_is_not_missing() -> None:
    fs = MemoryFs()
    directory, log = open_log(fs, BIG)
    for _ in range(3):
        append(log, 2)
    directory.high_watermarks[IDENTITY] = 6
    directory.checkpoint()
    log.truncate_to(4)
    kill(fs, directory)
    directory, log = reopened(fs)
    assert (directory.loss.kind, directory.loss.lossy, log.end_offset) == ("process", (), 4)


def test_a_batch_of_another_log_is_not_taken() -> None:
    """A misdirected write: intact, and yet not ours."""
    fs, ends = written(3)
    other = MemoryFs()
    directory = open_directory(other)
    stranger = IDENTITY._replace(partition=1)
    (log,) = directory.create([LogStart(stranger, "t", BIG)])
    for number in range(3):
        append(log, 2, epoch=number // 2, producer=(3, 0, 2 * number), at_ms=number)
    flush(log)
    (theirs,) = [f"/{p}" for p in other.paths() if p.endswith(".log")]
    (path,) = segments(fs)
    fs.content(path)[ends[2] :] = other.content(theirs)[ends[2] :]
    fs.cut_power(keep_all)
    _, found = reopened(fs)
    check_prefix(found, 2)


def test_an_older_epoch_behind_a_newer_one_is_not_taken() -> None:
    """What a lost truncation brings back joins on by offset, and must not be believed."""
    fs, ends = written(5)  # epochs 0 0 1 1 2
    (path,) = segments(fs)
    tail = bytes(fs.content(path)[ends[4] :])
    directory, log = reopened(fs)
    log.truncate_to(6)
    append(log, 2, epoch=7)
    kill(fs, directory)
    assert len(fs.content(path)) == ends[4]
    fs.content(path).extend(tail)  # offset 8, epoch 2, intact
    fs.cut_power(keep_all)
    _, log = reopened(fs)
    assert log.end_offset == 8
    assert entries_of(log) == [(0, 0), (1, 4), (7, 6)]


def test_a_hole_makes_even_a_careful_log_lossy() -> None:
    config = TopicConfig(flush="ack")
    for damage, lossy in ((None, ()), (4, ()), (2, (IDENTITY,))):
        fs, ends = written(5, config=config, flushed=1)
        (path,) = segments(fs)
        if damage is not None:
            fs.content(path)[ends[damage] + HEADER_BYTES] ^= 1
        else:
            fs.content(path)
        fs.cut_power(keep_all)
        directory, log = reopened(fs)
        assert directory.loss.lossy == lossy
        assert log.end_offset == 2 * (5 if damage is None else damage)


def test_an_unsynced_name_is_no_loss_below_the_recovery_point() -> None:
    """P-53: a segment is durable only with its name; the flushed end never lies beyond."""
    for choose in (keep_none, keep_all, *map(some, range(20))):
        fs = MemoryFs()
        directory, log = open_log(fs)
        for _ in range(12):
            append(log, 2)
            flush(log)
        directory.checkpoint()
        for _ in range(6):
            append(log, 2)
        assert log.flushed_end == 24
        kill(fs, directory)
        fs.cut_power(choose)
        directory, log = reopened(fs)
        assert directory.loss.kind == "power"
        assert 24 <= log.end_offset <= 36
        assert len(shown(log)) == log.end_offset


def test_clean_stops_need_no_scan() -> None:
    fs, _ = written(12, config=SMALL)
    directory, log = reopened(fs)
    directory.close(clean=True)
    reads: list[str] = []

    class Watching(FaultyFs):
        def open(self, path: str, *, create: bool = False) -> int:
            reads.append(path)
            return super().open(path, create=create)

    watching = Watching(fs)
    directory = open_directory(watching)
    assert not [path for path in reads if path.startswith(FOLDER)]
    log = directory.get(IDENTITY)
    assert log is not None
    assert (log.end_offset, log.flushed_end) == (24, 24)
    assert directory.loss.kind == "none"
    assert len(shown(log)) == 24


def test_a_file_that_changed_after_a_clean_stop_is_noticed() -> None:
    fs, ends = written(5)
    directory, _ = reopened(fs)
    directory.close(clean=True)
    (path,) = segments(fs)
    del fs.content(path)[ends[3] :]
    directory, log = reopened(fs)
    assert (directory.loss.kind, directory.loss.lossy) == ("corrupt", (IDENTITY,))
    check_prefix(log, 3)


@pytest.mark.parametrize("damage", ["flip", "cut", "zero", "gone", "older", "longer"])
def test_the_summary_of_a_segment_is_never_believed_blindly(damage: str) -> None:
    fs, _ = written(12, config=SMALL, flushed=12)
    summaries = [f"/{path}" for path in fs.paths(FOLDER) if path.endswith(".index")]
    assert len(summaries) >= 2
    first, second = (fs.content(path) for path in summaries[:2])
    if damage == "flip":
        second[len(second) // 2] ^= 1
    elif damage == "cut":
        del second[20:]
    elif damage == "zero":
        second[:] = bytes(len(second))
    elif damage == "gone":
        fs.unlink(summaries[1])
    elif damage == "older":
        second[:] = first
    else:
        second.extend(first)
    directory, log = reopened(fs)
    assert directory.loss.kind == "process"
    assert log.end_offset == 24
    assert len(shown(log)) == 24
    assert entries_of(log) == [(epoch, 4 * epoch) for epoch in range(6)]
    for offset in range(0, 24, 2):
        assert log.read(offset, 24, 1)[0].base_offset == offset


@pytest.mark.parametrize("counts", [(1, 6), (6, 1)])
def test_a_summary_takes_the_place_of_a_longer_one_whole(counts: tuple[int, int]) -> None:
    fs = MemoryFs()
    directory, log = open_log(fs, config=TopicConfig())
    for number in range(6):
        append(log, 2, epoch=number)
    segment, sizes = log._active, []
    assert segment is not None
    for count in counts:
        entries = [(number, number) for number in range(6 - count, 6)]
        write_summary(fs, segment, EpochTable(entries), log.producers)
        (path,) = [f"/{one}" for one in fs.paths(FOLDER) if one.endswith(".index")]
        sizes.append(len(fs.content(path)))
        found = read_summary(fs, fs.open(segment.path), segment, log.end_offset, IDENTITY)
        assert found is not None
        assert len(found.epochs.entries()) == count
    assert (sizes[0] < sizes[1]) == (counts[0] < counts[1])
    directory.close(clean=False)


def test_the_recovery_point_survives_a_truncation_below_it() -> None:
    """KAFKA-10101: what was dropped on purpose is not missing."""
    for power in (False, True):
        fs = MemoryFs()
        directory, log = open_log(fs)
        for _ in range(12):
            append(log, 2)
        flush(log)
        directory.checkpoint()
        log.truncate_to(8)
        kill(fs, directory)
        if power:
            fs.cut_power(keep_all)
        directory, log = reopened(fs)
        assert log.end_offset == 8
        assert directory.loss.kind == ("power" if power else "process")
        directory.checkpoint()
        assert not [path for path in fs.paths(FOLDER) if path.endswith("marker")]


def crash_in(action: str, argument: int) -> None:
    """Do something to a log that spans segments, and in every crash look at what is left."""
    before: list[bytes | None] = [b"value 0", b"value 1"] * 12

    def prepare(fs: MemoryFs) -> None:
        directory, log = open_log(fs)
        for number in range(12):
            append(log, 2, epoch=number // 3)
        flush(log)
        directory.checkpoint()
        assert shown(log) == before
        kill(fs, directory)

    def check(directory: FileLogDirectory, finished: bool) -> None:
        assert directory.loss.kind != "corrupt", directory.recovered
        log = directory.get(IDENTITY)
        assert isinstance(log, FileLog)
        check_contiguous(log, before, action, argument, finished)
        append(log, 1, epoch=90)
        assert log.epochs.latest == (90, log.end_offset - 1)

    assert crash_everywhere(prepare, lambda directory: getattr(directory.get(IDENTITY), action)(argument), check) > 0


def check_contiguous(log: FileLog, before: list[bytes | None], action: str, argument: int, finished: bool) -> None:
    """Whatever is there is a part of what was there, without a hole, and epochs agree with it."""
    if action == "reset_to" and log.start_offset == log.end_offset == argument:
        assert entries_of(log) == []
        return
    if action == "trim_to" and log.start_offset == log.end_offset == argument:
        assert entries_of(log) in ([], [(3, argument)])  # the epoch it was in goes on
        return
    assert shown(log) == before[log.start_offset : log.end_offset]
    assert all(log.start_offset <= start < log.end_offset for _, start in entries_of(log))
    if action == "truncate_to":
        assert log.start_offset == 0
        assert log.end_offset >= argument
        if finished:
            assert log.end_offset in (argument, len(before)) or log.end_offset > argument
    if action == "trim_to":
        assert log.start_offset <= argument
        assert log.end_offset == len(before)
    if action == "reset_to":
        assert not finished
        assert log.start_offset == 0


@pytest.mark.parametrize(("action", "argument"), [("truncate_to", 4), ("truncate_to", 0), ("trim_to", 20), ("trim_to", 24)])
def test_a_crash_after_each_file_operation(action: str, argument: int) -> None:
    """P-14: three segments and more, truncated into the first, or trimmed into the last."""
    crash_in(action, argument)


@pytest.mark.parametrize("offset", [100, 10, 0])
def test_a_crash_in_a_reset(offset: int) -> None:
    crash_in("reset_to", offset)


def test_a_log_that_was_trimmed_to_its_end_has_nothing_below_it_in_its_next_life() -> None:
    """A follower trims what its leader cannot vouch for, and goes on behind it: a restart must not bring that back."""
    disk = MemoryFs()
    directory, log = open_log(disk, TopicConfig())
    append(log, 2)
    append(log, 1)
    assert log.trim_to(log.end_offset) == 3
    append(log, 2)
    kill(disk, directory)
    log = open_directory(disk).get(IDENTITY)
    assert log is not None
    assert (log.start_offset, log.end_offset) == (3, 5)


@pytest.mark.parametrize(("name", "epoch"), [("00000000000000000002.start", -1), ("00000000000000000002-6.start", 6)])
def test_the_note_of_where_a_log_begins_may_know_the_epoch_in_front(name: str, epoch: int) -> None:
    disk = MemoryFs()
    directory, log = open_log(disk, TopicConfig())
    append(log, 2, epoch=6)
    log.trim_to(2)
    kill(disk, directory)
    disk.rename(f"{FOLDER}/00000000000000000002-6.start", f"{FOLDER}/{name}")
    directory = open_directory(disk)
    log = directory.get(IDENTITY)
    assert log is not None
    assert (log.start_offset, log.end_offset, log.last_epoch) == (2, 2, epoch)
    append(log, 2, epoch=7)
    log.trim_to(4)
    assert [path for path in disk.paths(FOLDER) if path.endswith(".start")] == [f"{FOLDER[1:]}/00000000000000000004-7.start"]


@pytest.mark.parametrize("name", ["2.start", f"{2:020}-.start", f"{2:020}-06.start", f"{2:020}--1.start", f"{2:020}-6.log"])
def test_what_is_no_note(name: str) -> None:
    assert start_note(name) is None


def checkpointed(count: int) -> MemoryFs:
    """So many segments, all of them flushed and noted as such; then the broker was killed."""
    fs = MemoryFs()
    directory, log = open_log(fs, SMALL)
    while len(segments(fs)) < count:
        append(log, 2)
    flush(log)
    directory.checkpoint()
    kill(fs, directory)
    return fs


@pytest.mark.parametrize("why", ["a header", "a segment that is gone"])
def test_what_becomes_the_last_segment_is_read_whole_at_once(why: str) -> None:
    """Below the recovery point only headers are read, but the last segment whole: also if it is the last because others are cut off."""
    fs = checkpointed(4)
    for name in fs.listdir(FOLDER):
        if name.endswith(".index"):
            fs.unlink(f"{FOLDER}/{name}")
    second = fs.content(segments(fs)[1])
    length = read_header(second).length
    second[length - 1] ^= 1  # a record of its first batch
    if why == "a header":
        second[length] ^= 1  # of its next batch
    else:
        fs.unlink(segments(fs)[2])
    begin = int(segments(fs)[1][-24:-4])
    directory, log = reopened(fs)
    end = log.end_offset
    assert (end, directory.loss.kind, directory.recovered[IDENTITY].bytes_cut > 0) == (begin, "corrupt", True)
    assert (len(shown(log)), log.size_bytes) == (end, sum(len(fs.content(path)) for path in segments(fs)))
    kill(fs, directory)
    directory, log = reopened(fs)
    assert (directory.recovered, log.end_offset) == ({}, end)


def with_a_segment_begun_in_vain(error: BaseException, *, later: int, stays: bool) -> tuple[MemoryFs, FileLogDirectory, FileLog]:
    """A log that went on in its first segment, and filled so many later ones; `stays`: the empty file could not be removed, either."""
    fs = MemoryFs()

    def fail(operation: str, path: str) -> None:
        if path.endswith(".log") and (operation == "truncate" or (operation == "unlink" and stays)):
            raise error

    layer = FaultyFs(fs)
    directory, log = open_log(layer, TopicConfig(segment_bytes=650))
    directory.registered(1)
    for _ in range(3):
        append(log, 2)
    layer.before = fail
    with pytest.raises((KeyboardInterrupt, LogFull)):
        append(log, 20)
    layer.before = None
    assert log.end_offset == 6
    for _ in range(1 + 3 * later):
        append(log, 2)
    return fs, directory, log


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "injected")], ids=["interrupt", "full disk"])
def test_a_segment_that_was_begun_in_vain_leaves_no_file(error: BaseException) -> None:
    fs, _, log = with_a_segment_begun_in_vain(error, later=2, stays=False)
    assert [path[-9:] for path in segments(fs)] == ["00000.log", "00010.log"]
    assert len(shown(log)) == log.end_offset


@pytest.mark.parametrize("later", [0, 1, 2])
@pytest.mark.parametrize("start", [0, 7])
@pytest.mark.parametrize("power", [False, True])
def test_a_segment_that_was_begun_in_vain_costs_the_log_nothing(later: int, start: int, power: bool) -> None:
    fs, directory, log = with_a_segment_begun_in_vain(OSError(errno.ENOSPC, "injected"), later=later, stays=True)
    log.trim_to(start)
    flush(log)
    directory.checkpoint()
    append(log, 2)
    flush(log)
    facts = log.start_offset, log.end_offset, len(shown(log))
    kill(fs, directory)
    if power:
        fs.cut_power()
    assert f"{FOLDER}/00000000000000000006.log" in segments(fs)
    for _ in range(2):
        directory, log = reopened(fs)
        assert directory.recovered == {}
        assert (log.start_offset, log.end_offset, len(shown(log))) == facts
        kill(fs, directory)
    assert f"{FOLDER}/00000000000000000006.log" not in segments(fs)


@pytest.mark.parametrize("cut", [lambda log: log.truncate_to(3), lambda log: log.reset_to(5), lambda log: None])
@pytest.mark.parametrize("clean", [False, True])
def test_a_segment_that_was_begun_in_vain_goes_before_the_log_is_cut(cut: Callable[[FileLog], object], clean: bool) -> None:
    """The log would end in front of it, as one does that has lost something."""
    fs, directory, log = with_a_segment_begun_in_vain(OSError(errno.ENOSPC, "injected"), later=0, stays=True)
    cut(log)
    if clean:
        directory.close(clean=True)
        directory, log = reopened(fs)
        log.truncate_to(log.start_offset)
    end = log.end_offset
    kill(fs, directory)
    directory, log = reopened(fs)
    assert (log.end_offset, directory.recovered) == (end, {})


def test_a_segment_that_was_begun_in_vain_may_be_begun_again() -> None:
    fs, directory, log = with_a_segment_begun_in_vain(OSError(errno.ENOSPC, "injected"), later=-1, stays=True)
    append(log, 20)
    append(log, 20)
    log.truncate_to(26)
    assert (log.end_offset, len(shown(log))) == (26, 26)
    kill(fs, directory)
    assert len(shown(reopened(fs)[1])) == 26


def test_an_empty_last_segment_shows_how_far_the_log_had_come() -> None:
    """Only where the one before it goes on behind its name was it begun in vain."""
    fs, ends = written(4)
    fs.close(fs.open(f"{FOLDER}/00000000000000000008.log", create=True))
    del fs.content(segments(fs)[0])[ends[3] :]
    directory, log = reopened(fs)
    assert log.end_offset == 6
    assert directory.loss.lossy == (IDENTITY,)


def test_an_extension_that_is_longer_than_its_batch_is_cut() -> None:
    fs, ends = written()
    (path,) = segments(fs)
    body = bytearray(encode_values([b"x"], now_ms=1, extension=b"e" * 20))
    body[6:8] = (len(body) - BODY_HEADER.size + 1).to_bytes(2, "little")
    forged = sealed([bytes(body[4:])])
    crc = int.from_bytes(forged[:4], "little")
    fs.content(path).extend(stamp(IDENTITY, 10, 2, FRONT_BYTES + len(forged), crc) + forged)
    directory, log = reopened(fs)
    assert directory.recovered[IDENTITY].bytes_cut == FRONT_BYTES + len(forged)
    check_prefix(log, 5)
    assert len(fs.content(path)) > ends[5]


def test_a_segment_that_is_read_again_leaves_no_file_open() -> None:
    """Brokers within a process open and close directories as long as it runs."""
    fs = checkpointed(5)
    fs.unlink(segments(fs)[3])
    directory, _ = reopened(fs)
    assert directory.recovered[IDENTITY].corrupt
    directory.close(clean=False)
    assert len(fs._open) == 0


# ----------------------------------------------------------------------------------------------------------------- evidence


def damaged(fs: MemoryFs) -> tuple[str, list[int]]:
    """A killed log whose third of five batches, all of which were flushed, is damaged; and each batch's end position."""
    directory, log = open_log(fs, BIG)
    ends = [0]
    for number in range(5):
        ends.append(ends[-1] + append(log, 2, at_ms=number).length)
    flush(log)
    directory.checkpoint()
    kill(fs, directory)
    (path,) = segments(fs)
    fs.content(path)[ends[2] + HEADER_BYTES + 3] ^= 4
    return path, ends


@pytest.mark.parametrize("earlier", [".bad", ".bad.new"])
def test_evidence_is_whole_however_large_it_is(monkeypatch: pytest.MonkeyPatch, earlier: str) -> None:
    """Of a segment above what a small file may have there was none, and it was cut. Nothing of before shows through, nor of a crash."""
    fs = MemoryFs()
    path, ends = damaged(fs)
    monkeypatch.setattr(checkpoint, "_BYTES_MAX", ends[3])
    monkeypatch.setattr(recovery, "_PIECE", 100)
    whole = bytes(fs.content(path))
    fs.open(f"{path}{earlier}", create=True)
    fs.content(f"{path}{earlier}")[:] = bytes(10_000)
    assert reopened(fs)[1].end_offset == 4
    assert bytes(fs.content(f"{path}.bad")) == whole[ends[2] :]
    assert bytes(fs.content(path)) == whole[: ends[2]]


def test_evidence_is_on_the_disk_before_anything_is_cut() -> None:
    class Failing(MemoryFs):
        """The power goes as soon as a segment is shorter."""

        def ftruncate(self, fd: int, size: int) -> None:
            super().ftruncate(fd, size)
            if size and self.path_of(fd).endswith(".log"):
                self.fsync(fd)
                raise OSError(errno.EIO, "no power")

    fs = Failing()
    path, ends = damaged(fs)
    whole = bytes(fs.content(path))
    with pytest.raises(OSError, match="no power"):
        open_directory(fs)
    fs.cut_power(keep_none)
    assert bytes(fs.content(path)) == whole[: ends[2]]
    assert bytes(fs.content(f"{path}.bad")) == whole[ends[2] :]


@pytest.mark.parametrize("fault", ["no_space", "write_error", "fsync_error"])
def test_nothing_that_was_stored_is_cut_without_evidence(fault: FaultKind) -> None:
    """Behind the damage there may be intact records, and nowhere else."""
    disk = SimulatedDisk(random.Random(1))
    path, ends = damaged(disk)
    whole = bytes(disk.content(path))
    disk.open(f"{path}.bad", create=True)
    disk.content(f"{path}.bad")[:] = b"earlier"
    disk.arm(fault, paths=".bad", space=100)
    with pytest.raises(OSError, match=r"."):
        open_directory(disk)
    assert bytes(disk.content(path)) == whole
    assert bytes(disk.content(f"{path}.bad")) == b"earlier"
    assert not [name for name in disk.paths(FOLDER) if name.endswith(".new")], "it would take the last room"
    disk.disarm()
    directory, log = reopened(disk)
    assert (log.end_offset, directory.loss.kind, directory.loss.lossy) == (4, "corrupt", (IDENTITY,))
    assert bytes(disk.content(f"{path}.bad")) == whole[ends[2] :]


def test_a_power_cut_on_a_full_disk_keeps_no_broker_from_starting() -> None:
    """What lies behind a hole was never known to be on the disk."""
    disk = SimulatedDisk(random.Random(1))
    path, ends = damaged(disk)
    for name in ("checkpoint", "clean"):
        if disk.size(f"/d/{name}"):
            disk.unlink(f"/d/{name}")
    disk.cut_power(keep_all)
    disk.arm("no_space", paths=".bad")
    directory, log = reopened(disk)
    assert disk.injected["no_space"] == 1
    assert (log.end_offset, directory.loss.kind, directory.loss.lossy) == (4, "power", (IDENTITY,))
    assert len(disk.content(path)) == ends[2]
