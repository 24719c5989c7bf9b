"""What a leader says again so that retention forgets no writer: once, and then retention goes on, however old that is."""

from __future__ import annotations

import pytest
from attrs import evolve
from tests.unit.partition.copies import IDENTITY, notice, partition_of

from replog.config import TopicConfig
from replog.errors import LogFull
from replog.log.memory import MemoryLog
from replog.marks import WriterMark, framing, writer_id
from replog.partition.partition import Partition
from replog.records import RecordBatch, encode_values

OLD, YOUNG, AGE = 1_000, 50_000, 500


def work(partition: Partition, version: int, now_ms: int, *keys: str) -> None:
    for key in keys:
        mark = framing(WriterMark(key, version))
        assert not partition.append(RecordBatch(encode_values([b"x" * 300], now_ms=now_ms, **mark)), -1, now_ms).error


def aged(*keys: str) -> Partition:
    """A log whose records are all too old."""
    config = TopicConfig(min_isr=1, retention_ms=AGE, segment_bytes=1_024)
    partition = partition_of(MemoryLog(IDENTITY, config))
    assert partition.become(evolve(notice(1, 5, (1,)), config=config), 0) == 0
    for version in (1, 2):
        work(partition, version, OLD, *keys)
    return partition


def test_idle_writers_are_said_again_once() -> None:
    """What is said again is as old as the work itself: that must not have it said again at every look."""
    partition = aged("v", "w")
    log, ends = partition.log, []
    for now_ms in range(YOUNG, YOUNG + 20_000, 1_000):
        partition.retain(now_ms, now_ms)
        ends.append((log.start_offset, log.end_offset))
    assert ends == [(2, 6)] + [(4, 6)] * 19
    assert [partition.published(writer_id(key), 2) is not None for key in "vw"] == [True, True]


def test_a_log_does_not_grow_with_the_times_retention_looks() -> None:
    """One writer goes on, two do not: each round leaves what is young, and one line for each of the idle ones."""
    partition, now_ms = aged("u", "v", "w"), YOUNG
    for version in range(3, 40):
        work(partition, version, now_ms, "u")
        for _ in range(3):
            now_ms += 2 * AGE
            partition.retain(now_ms, now_ms)
    assert partition.log.end_offset - partition.log.start_offset <= 3
    for key, last in (("u", 39), ("v", 2), ("w", 2)):
        assert partition.published(writer_id(key), last) is not None
        assert partition.published(writer_id(key), last + 1) is None


def test_what_nobody_has_said_again_stays() -> None:
    """A follower waits for its leader; what forgets nobody goes meanwhile."""
    partition = aged("v", "w")
    partition.leading = None
    for now_ms in range(YOUNG, YOUNG + 5_000, 1_000):
        assert not partition.retain(now_ms, now_ms)
    assert (partition.log.start_offset, partition.log.end_offset) == (2, 4)


def test_on_a_full_disk_only_goes_what_forgets_nobody() -> None:
    partition = aged()
    for number in range(6):
        assert not partition.append(RecordBatch(encode_values([b"x" * 600], now_ms=OLD)), -1, OLD).error, number
    work(partition, 1, OLD, "v", "w")
    log = partition.log
    assert isinstance(log, MemoryLog)
    log.full = True
    for _ in range(3):
        with pytest.raises(LogFull):
            partition.retain(YOUNG, YOUNG)
    assert (log.start_offset, log.end_offset) == (6, 8)
    log.full = False
    assert not partition.retain(YOUNG, YOUNG)
    assert partition.retain(YOUNG, YOUNG)
    assert [partition.published(writer_id(key), 1) is not None for key in "vw"] == [True, True]
    assert log.start_offset == 8
