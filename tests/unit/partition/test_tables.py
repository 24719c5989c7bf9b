"""The two tables of a log: who is in them after several cuts, whatever came between, and what that costs."""

from __future__ import annotations

import random

import pytest
from attrs import evolve
from tests.unit.log.lives import IDENTITY, LIMITS, kill, open_directory, open_log, reopened
from tests.unit.partition.test_versions import header, known, table_of

from replog.config import BrokerConfig, TopicConfig
from replog.log.memory import MemoryLog
from replog.log.producers import ProducerTable
from replog.marks import mark_of
from replog.ports import Log
from replog.records import GROUP_OPEN_BIT
from replog.testing.disk import MemoryFs
from replog.testing.log_samples import append, append_group, stored_batches


class Counting(MemoryFs):
    """Counts reads of batches."""

    reads = 0

    def pread(self, fd: int, count: int, position: int) -> bytes:
        self.reads += 1
        return super().pread(fd, count, position)


def last_versions(log: Log) -> dict[str, int]:
    """By reading everything."""
    found: dict[str, int] = {}
    offset = log.start_offset
    while offset < log.end_offset:
        for batch in stored_batches(log, offset):
            mark = mark_of(batch)
            if mark is not None and not batch.attributes & GROUP_OPEN_BIT:
                found[mark.key] = mark.version
            offset = batch.end_offset
    return found


def told(log: Log) -> dict[str, int]:
    return {key: known(log.producers, key)[-1][0] for key in "uvwxyz" if known(log.producers, key)}


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("summaries", [True, False])
def test_after_any_number_of_cuts_the_last_version_of_each_writer_is_known(seed: int, summaries: bool) -> None:
    """However far in front it is: also if all that was remembered of the writer is cut."""
    chance, fs = random.Random(seed), MemoryFs()
    directory, log = open_log(fs, TopicConfig(segment_bytes=2_000))
    versions = dict.fromkeys("uvwxyz", 0)
    for step in range(300):
        if chance.random() < 0.06:
            places = [batch.base_offset for batch in stored_batches(log)]
            if places:
                log.truncate_to(chance.choice(places))
                log.truncate_to(log.group_floor(log.end_offset))
            assert told(log) == last_versions(log), step
        elif chance.random() < 0.1:
            append(log, 2)
        else:
            key = chance.choice("uvwxyz" if step % 50 < 5 else "wx")
            versions[key] += 1
            append_group(log, *(1 for _ in range(chance.randrange(1, 3))), key=key, version=versions[key])
        if not summaries:
            for path in [path for path in fs.paths() if path.endswith(".index")]:
                fs.unlink("/" + path)
        if chance.random() < 0.01:
            kill(fs, directory)
            directory, log = reopened(fs)
    assert told(log) == last_versions(log)


@pytest.mark.parametrize("backend", ["files", "memory"])
def test_a_second_cut_finds_what_the_first_one_left_far_in_front(backend: str) -> None:
    """The look back for producers ends after a few MiB; for a version that would be a second copy of its work."""
    config = TopicConfig(segment_bytes=1 << 30)
    log: Log = open_log(MemoryFs(), config)[1] if backend == "files" else MemoryLog(IDENTITY, config)
    append_group(log, 1, version=1)
    for _ in range(24):
        append(log, ["x" * 250_000])
    ends = []
    for version in range(2, 9):
        ends.append(log.end_offset)
        append_group(log, 1, version=version)
    log.truncate_to(ends[5])
    assert known(log.producers)[-1][0] == 6
    log.truncate_to(ends[0])
    assert [version for version, _, _ in known(log.producers)] == [1]
    log.truncate_to(0)
    assert known(log.producers) == []


def test_a_cut_of_new_writers_reads_nothing() -> None:
    """Jobs are new writers each time: nothing in front of what is cut is theirs, and that is known."""
    fs = Counting()
    _, log = open_log(fs, TopicConfig(segment_bytes=1 << 30))
    for number in range(3_000):
        append_group(log, 1, key=f"job-{number}")
    end = log.end_offset
    for number in range(3_000, 3_010):
        append_group(log, 1, key=f"job-{number}")
    before = fs.reads
    log.truncate_to(end)
    assert fs.reads - before < 60, "a walk to the place, and the newest time"
    assert known(log.producers, "job-3000") == []
    assert known(log.producers, "job-2999") == [(1, 2_999, 3_000)]


def test_what_is_known_of_a_writer_says_whether_there_was_more() -> None:
    table = table_of(*(header(version, version) for version in range(1, 6)))
    assert table.truncate(1).unknown == set()
    table = table_of(*(header(version, version) for version in range(1, 7)))
    again = ProducerTable(10)
    again.load(table.snapshot())
    for one in (table, again):
        cut = one.truncate(2)
        assert len(cut.unknown) == 1
        one.restore(cut, 0, [header(1, 1)])
        assert known(one) == [(1, 1, 2)]


@pytest.mark.parametrize("backend", ["files", "memory"])
def test_writers_that_had_to_go_for_work_that_is_cut_are_known_again(backend: str) -> None:
    """Else their work would be stored once more, for the sake of work that is not there."""
    limits = evolve(LIMITS, producers_max=2)
    log: Log = open_log(MemoryFs(), limits=limits)[1] if backend == "files" else MemoryLog(IDENTITY, limits=limits)
    for key in "uv":
        append_group(log, 1, key=key)
    end = log.end_offset
    for key in "wxu":
        append_group(log, 1, key=key, version=2)
    assert told(log) == {"x": 2, "u": 2}
    log.truncate_to(end)
    assert told(log) == {"u": 1, "v": 1}
    append_group(log, 1, key="w")
    end = log.end_offset
    append_group(log, 1, key="u", version=2)
    log.truncate_to(end)
    assert told(log) == {"v": 1, "w": 1}, "who had gone before that is not known again"


@pytest.mark.parametrize("restart", ["clean", "kill", "kill when segments have ended"])
def test_writers_that_had_to_go_before_a_restart_are_known_again_after_it(restart: str) -> None:
    """A new leader cuts the work that they went for later: also then the table is that of a log that never had it."""
    fs, limits = MemoryFs(), evolve(LIMITS, producers_max=2)
    directory, log = open_log(fs, TopicConfig(segment_bytes=400, max_batch_bytes=400), limits)
    for key in "uv":
        append_group(log, 1, key=key)
    end = log.end_offset
    for version in range(1, 5 if "segments" in restart else 2):
        append_group(log, 1, key="w", version=version)
    if restart == "clean":
        directory.close(clean=True)
        fs.kill()
    else:
        kill(fs, directory)
    again = open_directory(fs, limits).get(IDENTITY)
    assert again is not None
    assert set(told(again)) == {"v", "w"}
    again.truncate_to(end)
    assert told(again) == {"u": 1, "v": 1}


def test_ten_thousand_writers_beside_as_many_producers() -> None:
    limits = BrokerConfig(producers_max=2_000)
    log = MemoryLog(IDENTITY, limits=limits)
    for number in range(2_000):
        append_group(log, 1, key=f"{number}")
        append(log, producer=(number, 0, 0))
    assert len(log.producers) == 4_000
    assert (log.producers.writers_forgotten, log.producers.forgetful) == (0, False)
    append_group(log, 1, key="one more")
    assert (log.producers.writers_forgotten, known(log.producers, "0")) == (1, [])
