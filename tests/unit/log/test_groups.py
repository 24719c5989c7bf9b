"""Where groups begin, in files: across segments, after crashes in the middle of anything, and when a file is damaged."""

from __future__ import annotations

import random

import pytest
from tests.unit.log.lives import IDENTITY, LIMITS, crash_everywhere, kill, open_directory, open_log, reopened, segments

from replog.config import TopicConfig
from replog.errors import LogCorrupt
from replog.log.directory import FileLogDirectory
from replog.log.log import FileLog
from replog.log.memory import MemoryLog
from replog.marks import mark_of
from replog.ports import Log, LogStart
from replog.records import BODY_HEADER, FRONT_BYTES
from replog.testing.disk import MemoryFs, SimulatedDisk
from replog.testing.log_samples import append, append_group, flush, stored_batches

_HEADER_BYTES = FRONT_BYTES + BODY_HEADER.size


def every_batch(log: Log) -> list[tuple[int, int, bool, int]]:
    """(base, end, whether more of its group follows, where its group begins) of every batch, by reading all of them."""
    found = []
    offset = log.start_offset
    while offset < log.end_offset:
        for batch in stored_batches(log, offset):
            mark = mark_of(batch)
            group = batch.base_offset - (mark.group_offset if mark else 0)
            found.append((batch.base_offset, batch.end_offset, bool(batch.attributes & 128), group))
            offset = batch.end_offset
    return found


def assert_floors(log: Log) -> None:
    """At every place, by what the batch before it says."""
    places = {log.start_offset: log.start_offset}
    for _, end, is_open, group in every_batch(log):
        places[end] = max(group, log.start_offset) if is_open else end
    assert {place: log.group_floor(place) for place in places} == places


class Counting(MemoryFs):
    """Counts what is read."""

    reads = 0

    def pread(self, fd: int, count: int, position: int) -> bytes:
        self.reads += 1
        return super().pread(fd, count, position)


def random_log(log: Log, chance: random.Random, steps: int) -> None:
    for step in range(steps):
        kind = chance.randrange(4)
        if kind == 0:
            append(log, chance.randrange(1, 4))
        elif kind == 1:
            append_group(log, *(chance.randrange(1, 4) for _ in range(chance.randrange(1, 9))), version=step)
        elif kind == 2 and chance.random() < 0.3:
            places = [base for base, *_ in every_batch(log)]
            log.truncate_to(chance.choice([*places, log.end_offset]))
            log.truncate_to(log.group_floor(log.end_offset))
        elif chance.random() < 0.3:
            log.trim_to(chance.randrange(log.start_offset, log.end_offset + 1))
        if chance.random() < 0.2:
            assert_floors(log)


@pytest.mark.parametrize("seed", range(4))
def test_groups_across_segments(seed: int) -> None:
    fs = MemoryFs()
    directory, log = open_log(fs)
    random_log(log, random.Random(seed), 60)
    append_group(log, 1, 2, 3, version=99, whole=False)
    assert_floors(log)
    kill(fs, directory)
    _, log = reopened(fs)
    assert_floors(log)


@pytest.mark.parametrize("seed", range(4))
def test_memory_says_the_same(seed: int) -> None:
    _, filed = open_log(MemoryFs())
    memory = MemoryLog(IDENTITY, TopicConfig(segment_bytes=500), limits=LIMITS)
    for log in (filed, memory):
        random_log(log, random.Random(seed), 40)
        assert_floors(log)
    assert every_batch(filed) == every_batch(memory) or filed.start_offset != memory.start_offset


def test_a_crash_in_the_middle_of_anything_leaves_groups_whole_or_open() -> None:
    def prepare(fs: MemoryFs) -> None:
        directory, log = open_log(fs)
        append(log, 2)
        append_group(log, 2, 2, version=1)
        flush(log)
        directory.close(clean=True)

    def act(directory: FileLogDirectory) -> None:
        log = directory.get(IDENTITY)
        assert log is not None
        append_group(log, 3, 1, 4, version=2)
        flush(log)
        append_group(log, 2, 2, version=3, whole=False)
        log.truncate_to(log.group_floor(log.end_offset))
        append_group(log, 1, 1, version=4, epoch=1)
        flush(log)

    ends = set()

    def check(directory: FileLogDirectory, finished: bool) -> None:
        log = directory.get(IDENTITY)
        assert log is not None
        assert log.group_floor(6) == 6, "what was flushed before"
        assert_floors(log)
        whole = log.group_floor(log.end_offset)
        assert whole in (6, 14, 16)
        if finished:
            assert (whole, log.end_offset) == (16, 16)
        ends.add(log.end_offset - whole)
        log.truncate_to(whole)
        assert_floors(log)
        append(log, 1, epoch=2)
        assert log.group_floor(log.end_offset) == whole + 1
        directory.close(clean=False)

    assert crash_everywhere(prepare, act, check) > 10
    assert len(ends) > 2, "some of them were open"


# --------------------------------------------------------------------------------------------------------- what it costs


def test_without_groups_nothing_is_read() -> None:
    fs = Counting()
    _, log = open_log(fs)
    for number in range(40):
        append(log, 2, producer=(5, 0, 2 * number))
        append_group(log, 1, version=number)
    log.forget_tail()
    before = fs.reads
    assert all(log.group_floor(place) == place for place in range(0, log.end_offset + 1, 3))
    assert fs.reads == before


def test_above_the_last_open_batch_nothing_is_read() -> None:
    fs = Counting()
    _, log = open_log(fs)
    append_group(log, 2, 2)
    for _ in range(20):
        append(log, 2)
    log.forget_tail()
    before = fs.reads
    assert all(log.group_floor(place) == place for place in range(4, 44, 2))
    assert fs.reads == before
    assert log.group_floor(2) == 0
    assert fs.reads > before


def test_after_a_start_the_end_is_looked_at_once() -> None:
    fs = Counting()
    directory, log = open_log(fs)
    for _ in range(20):
        append(log, 2)
    directory.close(clean=True)
    kill(fs, directory)
    _, log = reopened(fs)
    assert log.group_floor(40) == 40
    before = fs.reads
    for _ in range(50):
        assert log.group_floor(log.end_offset) == log.end_offset
        append(log, 1)
        log.forget_tail()
    assert fs.reads == before


# ----------------------------------------------------------------------------------------------------------------- damage


def grouped() -> tuple[MemoryFs, FileLog, int]:
    """One segment with a group [2, 8) of three batches; where its second one is in the file."""
    fs = MemoryFs()
    _, log = open_log(fs, TopicConfig(segment_bytes=100_000))
    first = append(log, 2)
    group = append_group(log, 2, 2, 2)
    log.forget_tail()
    return fs, log, first.length + group[0].length


@pytest.mark.parametrize("at", [*range(0, _HEADER_BYTES + 9, 3), _HEADER_BYTES + 9, -1])
def test_a_damaged_batch_is_no_answer(at: int) -> None:
    """Not its header, and not the mark behind it: every bit is under a checksum that is looked at."""
    fs, log, position = grouped()
    (path,) = segments(fs)
    last = stored_batches(log, 4, 6)[0].length
    log.forget_tail()
    fs.content(path)[position + (at if at >= 0 else last - 1)] ^= 0x10
    with pytest.raises(LogCorrupt):
        log.group_floor(6)
    assert log.group_floor(8) == 8, "the last batch of a group is where it ends, whatever came before"


def test_a_batch_of_another_place_is_no_answer() -> None:
    fs, log, position = grouped()
    (path,) = segments(fs)
    lengths = [one.length for one in stored_batches(log)]
    log.forget_tail()
    assert lengths[1] == lengths[2]
    content = fs.content(path)
    content[position : position + lengths[2]] = content[position - lengths[1] : position]
    with pytest.raises(LogCorrupt):
        log.group_floor(6)


@pytest.mark.parametrize("kept", [0, 30, _HEADER_BYTES, _HEADER_BYTES + 4, _HEADER_BYTES + 12])
def test_a_file_that_was_cut_is_no_answer(kept: int) -> None:
    fs, log, position = grouped()
    (path,) = segments(fs)
    del fs.content(path)[position + kept :]
    with pytest.raises(LogCorrupt):
        log.group_floor(6)


def test_a_disk_that_cannot_be_read_is_no_answer() -> None:
    fs = SimulatedDisk(random.Random(1))
    _, log = open_log(fs)
    append_group(log, 2, 2)
    log.forget_tail()
    fs.arm("read_error", paths=".log")
    with pytest.raises(LogCorrupt):
        log.group_floor(2)
    fs.disarm()
    assert log.group_floor(2) == 0


def test_inside_a_batch_nothing_is_whole() -> None:
    """A place that is none, as from a checkpoint of another log: lower is always right."""
    _, filed = open_log(MemoryFs())
    for log in (filed, MemoryLog(IDENTITY)):
        append(log, 3)
        append_group(log, 2, 3)
        append(log, 4)
        append_group(log, 1, 1)
        assert [log.group_floor(place) for place in range(log.end_offset + 1)] == [0, 0, 0, 3, 3, 3, 3, 3, 8, 8, 8, 8, 12, 12, 14]


def test_two_logs_do_not_know_of_each_other() -> None:
    directory = open_directory(MemoryFs())
    first, second = directory.create([LogStart(IDENTITY._replace(partition=n), "t", TopicConfig()) for n in range(2)])
    append_group(first, 2, 2)
    append(second, 2)
    append(second, 2)
    assert (first.group_floor(2), second.group_floor(2)) == (0, 2)
