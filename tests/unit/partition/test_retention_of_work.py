"""Retention beside work that has versions: with a full disk inside a group, on copies that lead nothing, and with very many writers."""

from __future__ import annotations

import pytest
from attrs import evolve
from tests.unit.partition.copies import IDENTITY, fetch, fetched, notice, partition_of

from replog.config import BrokerConfig, TopicConfig
from replog.errors import LogFull
from replog.log.memory import MemoryLog
from replog.marks import WriterMark, framing, mark_of, marked, writer_id
from replog.model import ACKS_ALL
from replog.partition.partition import Partition
from replog.records import RecordBatch, encode_records, encode_values
from replog.testing.log_samples import append_group, stored_batches

CONFIG = TopicConfig(min_isr=1, retention_bytes=1_000, segment_bytes=600)


def lead(log: MemoryLog, *, epoch: int = 5) -> Partition:
    partition = partition_of(log)
    assert partition.become(evolve(notice(1, epoch, (1,), replicas=(1,)), config=log.config), 0) == 0
    return partition


def plain(partition: Partition, count: int) -> None:
    for _ in range(count):
        assert not partition.append(RecordBatch(encode_values([b"x" * 250], now_ms=0)), ACKS_ALL, 0).error


def once(partition: Partition, key: str, version: int = 1) -> int:
    mark = framing(WriterMark(key, version))
    return partition.append(RecordBatch(encode_values([b"y"], now_ms=0, **mark)), ACKS_ALL, 0).end_offset


def slice_of(number: int, *, is_last: bool) -> RecordBatch:
    return RecordBatch(marked(encode_records(["z" * 250], now_ms=0), WriterMark("big", 1, number), is_last=is_last))


def test_a_full_disk_in_the_middle_of_a_group_is_freed_and_the_group_goes_on() -> None:
    log = MemoryLog(IDENTITY, CONFIG)
    partition = lead(log)
    plain(partition, 10)
    once(partition, "v")  # has to be said again before all below the group may go
    plain(partition, 10)
    for number in range(3):
        partition.publish([slice_of(number, is_last=False)], 0)
    log.full = True
    before = log.size_bytes
    assert not partition.retain(0, 0)
    assert log.start_offset == 9, "the segment that tells of v stays"
    assert log.size_bytes < before - 2_500
    with pytest.raises(LogFull):
        partition.publish([slice_of(3, is_last=True)], 0)
    log.full = False
    partition.publish([slice_of(3, is_last=True)], 0)
    assert not partition.retain(0, 0), "now v is said again"
    assert partition.retain(0, 0)
    assert log.start_offset > 20
    assert once(partition, "v") <= log.end_offset
    assert partition.published(writer_id("v"), 1) is not None
    assert partition.published(writer_id("big"), 1) is not None


def test_on_a_full_disk_without_a_group_what_forgets_nobody_goes_first() -> None:
    log = MemoryLog(IDENTITY, CONFIG)
    partition = lead(log)
    plain(partition, 10)
    once(partition, "v")
    plain(partition, 10)
    log.full = True
    with pytest.raises(LogFull):
        partition.retain(0, 0)
    assert log.start_offset == 9


@pytest.mark.parametrize("role", ["follower", "idle"])
def test_a_copy_whose_open_group_nobody_has_cut_obeys_retention(role: str) -> None:
    """Its leader is gone; until there is another one, its log ends inside a group."""
    log = MemoryLog(IDENTITY, CONFIG)
    leader = lead(log)
    plain(leader, 20)
    log.config = evolve(CONFIG, segment_bytes=100_000)
    append_group(log, 1, 1, 1, key="big", epoch=5, whole=False)
    log.config = CONFIG
    copy = partition_of(log, broker_id=2, high_watermark=23)
    assert copy.high_watermark == 20
    if role == "follower":
        assert copy.become(evolve(notice(None, 6, (1,), replicas=(1, 2)), config=CONFIG), 0) == 0
    assert copy.retain(0, 0)
    assert 14 <= log.start_offset <= 20
    assert (log.end_offset, log.group_floor(23)) == (23, 20)


def test_a_follower_frees_what_forgets_nobody() -> None:
    log = MemoryLog(IDENTITY, CONFIG)
    leader = lead(log)
    plain(leader, 10)
    once(leader, "v")
    plain(leader, 10)
    copy = partition_of(log, broker_id=2, high_watermark=21)
    assert not copy.retain(0, 0)
    assert log.start_offset == 9


def test_very_many_writers_are_said_again_in_turns() -> None:
    """The last batch of each is read for it: no turn of the broker may take that long."""
    log = MemoryLog(IDENTITY, evolve(CONFIG, segment_bytes=20_000), limits=BrokerConfig(producers_max=2_000))
    partition = lead(log)
    for number in range(1_000):
        once(partition, f"w{number}")
    plain(partition, 300)
    grown = []
    while True:
        end = log.end_offset
        if partition.retain(0, 0):
            break
        grown.append(log.end_offset - end)
        assert len(grown) < 50
    assert max(grown) == 200
    assert sum(grown) >= 900
    assert log.start_offset >= 1_000
    again = [mark_of(one) for one in stored_batches(log, max_bytes=1 << 30) if one.is_control]
    assert len({one.key for one in again if one}) == len(again) == sum(grown), "each once"
    assert all(partition.published(writer_id(f"w{number}"), 1) is not None for number in range(1_000))
    for number in (0, 500, 999):
        assert once(partition, f"w{number}") <= log.end_offset
    assert log.end_offset == 1_300 + sum(grown)


@pytest.mark.parametrize("newer", [4, 5, 6])
def test_the_last_committed_version_is_kept_however_many_newer_ones_are_under_way(newer: int) -> None:
    """Only so many are remembered of each writer; the newer ones may be cut, and the older must not be stored again."""
    config = TopicConfig(min_isr=1, retention_ms=500, segment_bytes=1_024)
    log = MemoryLog(IDENTITY, config)
    partition = partition_of(log, brokers=2)

    def told(leader: int, epoch: int) -> None:
        assert partition.become(evolve(notice(leader, epoch, (1, 2), replicas=(1, 2)), config=config), 0) == 0

    def version(number: int, now_ms: int) -> int:
        mark = framing(WriterMark("w", number, made_ms=now_ms))
        return partition.append(RecordBatch(encode_values([b"x" * 150], now_ms=now_ms, **mark)), ACKS_ALL, now_ms).error

    told(1, 5)
    assert version(1, 1_000) == 0
    for _ in range(4):
        partition.append(RecordBatch(encode_values([b"y" * 150], now_ms=1_000)), ACKS_ALL, 1_000)
    committed = log.end_offset
    fetch(partition, 2, committed, 5)
    assert partition.high_watermark == committed
    for number in range(2, 2 + newer):
        assert version(number, 50_000) == 0
    for turn in range(3):
        partition.retain(50_001 + turn, 50_000)
    told(2, 6)
    partition.take(fetched(6, log.end_offset, high_watermark=committed, diverging_epoch=5, diverging_end=committed))
    assert log.end_offset == committed
    told(1, 7)
    assert partition.published(writer_id("w"), 1) is not None
