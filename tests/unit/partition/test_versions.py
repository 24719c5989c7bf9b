"""Versions of writers: what is new, what is done, where it is, and that the log itself says so after everything that happens to it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.log.lives import kill, open_log, reopened, segments
from tests.unit.partition.copies import IDENTITY, fetch, leading, log_of, notice, partition_of

from replog.config import BrokerConfig, TopicConfig
from replog.errors import Code
from replog.log.memory import MemoryLog
from replog.log.producers import MARKED, ProducerTable
from replog.marks import WriterMark, framing, mark_of, marked, writer_id
from replog.model import ACKS_ALL, ACKS_LEADER
from replog.partition.partition import Partition
from replog.partition.sequences import judge_version
from replog.ports import Log
from replog.records import CONTROL_BIT, BatchHeader, RecordBatch, encode_records, read_header
from replog.testing.disk import MemoryFs
from replog.testing.log_samples import append, append_group, shown, stored_batches

W = writer_id("w")


def once(version: int, *, key: str = "w", count: int = 1, at_ms: int = 0) -> RecordBatch:
    return RecordBatch(encode_records([f"{key}/{version}"] * count, now_ms=at_ms, **framing(WriterMark(key, version))))


def header(version: int, offset: int, *, key: str = "w", count: int = 1, made_ms: int = 0, **more: Any) -> BatchHeader:
    """Of a stored batch of marked work."""
    made = RecordBatch(encode_records(["x"] * count, now_ms=7, **{**framing(WriterMark(key, version, made_ms=made_ms)), **more}))
    made.stamp(IDENTITY, offset, 0)
    return read_header(made.to_bytes())


def producer(offset: int, producer_id: int = 9, *, at_ms: int = 0) -> BatchHeader:
    """Of a batch of a producer without versions."""
    made = RecordBatch(encode_records(["x"], now_ms=at_ms, producer_id=producer_id, producer_epoch=0, base_sequence=offset))
    made.stamp(IDENTITY, offset, 0)
    return read_header(made.to_bytes())


def known(table: Any, key: str = "w") -> list[tuple[int, int, int]]:
    """(version, base of the last batch, end) of what is remembered of a writer."""
    writer = table.writer(writer_id(key))
    if writer is None:
        return []
    assert writer.producer_epoch == MARKED
    return [(w.base_sequence, w.base_offset, w.last_sequence) for w in writer.recent]


def table_of(*headers: BatchHeader, limit: int = 10) -> ProducerTable:
    table = ProducerTable(limit)
    for one in headers:
        table.record(one)
    return table


# ------------------------------------------------------------------------------------------------------------ what is done


@pytest.mark.parametrize(
    ("stored", "asked", "found"),
    [
        ([], 0, None),
        ([], 7, None),
        ([0], 0, 0),
        ([0], 1, None),
        ([3, 7], 8, None),
        ([3, 7], 7, 7),
        ([3, 7], 3, 3),
        ([3, 7], 5, 7),  # between two: never stored, and never to be
        ([3, 7], 0, 7),
        ([1, 2, 3, 4, 5, 6], 1, 6),  # older than the last five
        ([1, 2, 3, 4, 5, 6], 2, 2),
        ([2**62 - 1], 2**62 - 1, 2**62 - 1),
        ([2**62 - 1], 0, 2**62 - 1),
        ([2**31 - 1], 2**31, None),  # across the halves of the header
        ([2**31], 2**31 - 1, 2**31),
    ],
)
def test_each_version(stored: list[int], asked: int, found: int | None) -> None:
    log = MemoryLog(IDENTITY)
    for version in stored:
        append_group(log, 2, version=version)
    writer = judge_version(log, W, asked)
    assert (None if writer is None else writer.base_sequence) == found


def test_a_producer_without_versions_is_no_writer() -> None:
    """Nobody's random number is the hash of a key; if it were, nothing of it would count for the other."""
    log = MemoryLog(IDENTITY)
    append(log, producer=(W, 3, 5))
    assert judge_version(log, W, 0) is None
    append_group(log, 1, version=4)
    assert judge_version(log, W, 4) is not None
    assert known(log.producers) == [(4, 1, 2)]


def test_a_group_that_has_yet_to_end_is_not_done() -> None:
    log = MemoryLog(IDENTITY)
    append_group(log, 2, version=4)
    append_group(log, 2, 2, version=5, whole=False)
    assert judge_version(log, W, 5) is None
    assert known(log.producers) == [(4, 0, 2)]


# --------------------------------------------------------------------------------------------------------------- the table


def test_open_batches_are_not_remembered() -> None:
    table = table_of(header(1, 0, attributes=128), header(1, 1, attributes=128))
    assert len(table) == 0
    table.record(header(1, 2, count=3))
    assert known(table) == [(1, 2, 5)]


def test_five_versions_are_remembered() -> None:
    table = table_of(*(header(version, 2 * version, count=2) for version in range(8)))
    assert known(table) == [(v, 2 * v, 2 * v + 2) for v in range(3, 8)]


def test_the_writer_silent_for_longest_is_forgotten_first() -> None:
    table = table_of(header(1, 0, key="a"), producer(1), header(1, 2, key="b"), header(2, 3, key="a"), header(1, 4, key="c"), limit=3)
    assert table.writers_forgotten == 0
    table.record(header(1, 5, key="d"))
    assert [one.producer_id for one in table.writers()] == [writer_id("a"), writer_id("c"), writer_id("d")]
    assert table.writers_forgotten == 1
    assert not table.forgetful, "that is about producers"


def test_producers_and_writers_do_not_push_each_other_out() -> None:
    table = table_of(header(1, 0, key="a"), *(producer(n, n) for n in range(1, 50)), limit=3)
    assert known(table, "a") == [(1, 0, 1)]
    assert [one.producer_id for one in table.producers()] == [47, 48, 49]
    for number in range(50, 90):
        table.record(header(1, number, key=f"{number}"))
    assert [one.producer_id for one in table.producers()] == [47, 48, 49]
    assert (len(table.writers()), table.writers_forgotten) == (3, 38)


@pytest.mark.parametrize("cut", range(12))
@pytest.mark.parametrize("scanned_from", [0, 4, 8])
def test_truncation_and_what_is_found_again(cut: int, scanned_from: int) -> None:
    stored = [
        header(n // 2, n, key="ab"[n % 2], attributes=128 if n in (5, 9, 10) else 0) if n % 5 != 3 else producer(n) for n in range(12)
    ]
    table = table_of(*stored)
    expected = table_of(*stored[:cut])
    scanned_from = min(scanned_from, cut)
    table.restore(table.truncate(cut), scanned_from, stored[scanned_from:cut])
    for key in "ab":
        # Of those that were pushed out by what is gone, only what was scanned comes back.
        mine = known(table, key)
        assert mine == known(expected, key)[len(known(expected, key)) - len(mine) :]
        assert len(mine) == len(known(expected, key)) or scanned_from > 0
        if scanned_from == 0:
            assert mine == known(expected, key)


def test_a_snapshot_has_the_versions() -> None:
    table = table_of(header(3, 0), producer(1), header(2**62 - 1, 2), header(5, 3, key="v"))
    again = ProducerTable(10)
    again.load(table.snapshot())
    assert again.snapshot() == table.snapshot()
    assert known(again) == [(3, 0, 1), (2**62 - 1, 2, 3)]
    again.record(header(7, 4, key="v"))
    assert known(again, "v") == [(5, 3, 4), (7, 4, 5)]


def later(marked_before: int) -> tuple[int, int, BrokerConfig]:
    return marked_before + 1_000, 3, BrokerConfig(writer_expiry_ms=1_000)


@pytest.mark.parametrize(("marked_before", "left"), [(0, 3), (201, 1), (101, 2)])
def test_writers_expire_after_a_time_of_their_own(marked_before: int, left: int) -> None:
    table = table_of(header(1, 0, made_ms=100), producer(1, at_ms=200), header(1, 2, key="v", made_ms=200))
    table.expire(*later(marked_before))
    assert len(table) == left
    assert not table.forgetful


def test_who_came_again_expires_later() -> None:
    table = table_of(header(1, 0, made_ms=100), header(2, 1, made_ms=200))
    table.expire(*later(150))
    assert known(table) == [(1, 0, 1), (2, 1, 2)]


def test_an_older_time_of_later_work_makes_nobody_expire_sooner() -> None:
    table = table_of(header(1, 0, made_ms=200), header(2, 1, made_ms=100))
    again = table_of(header(1, 0, made_ms=200), header(2, 1, made_ms=100), header(3, 2, made_ms=50))
    again.restore(again.truncate(2), 2, [])
    for one in (table, again):
        one.expire(*later(200))
        assert known(one) == [(1, 0, 1), (2, 1, 2)]
        one.expire(*later(201))
        assert known(one) == []


# ------------------------------------------------------------------------------------------------------------ the partition


def test_work_of_one_batch_is_stored_once() -> None:
    partition = leading(log_of(("a", 1)), (1,))
    assert partition.append(once(3, count=2), ACKS_ALL, 0) == (0, 1, 3)
    assert partition.append(once(3, count=2), ACKS_ALL, 0) == (0, 1, 3)
    assert partition.append(once(3, count=1), ACKS_LEADER, 0) == (0, 1, 3), "whatever it brings this time"
    assert partition.append(once(2), ACKS_ALL, 0) == (0, -1, 3)
    assert partition.append(once(4), ACKS_ALL, 0) == (0, 3, 4)
    assert partition.append(once(3), ACKS_ALL, 0) == (0, 1, 3)
    assert partition.append(once(1, key="v"), ACKS_ALL, 0) == (0, 4, 5)
    assert partition.log.end_offset == 5


def test_where_a_group_began() -> None:
    partition = lead(MemoryLog(IDENTITY))
    append_group(partition.log, 2, 3, 1, version=4, epoch=5)
    append_group(partition.log, 1, 1, version=6, epoch=5)
    asked = {version: partition.published(W, version) for version in range(8)}
    assert asked == {
        **dict.fromkeys((0, 1, 2, 3, 5), (0, -1, 8)),
        4: (0, 0, 6),
        6: (0, 6, 8),
        7: None,
    }


@pytest.mark.parametrize(("start", "base"), [(0, 2), (2, 2), (4, -1), (7, -1), (8, -1)])
def test_a_group_whose_beginning_is_gone_is_nowhere(start: int, base: int) -> None:
    """A receipt has the offsets of all of it, or none."""
    log = MemoryLog(IDENTITY)
    append(log, 2)
    append_group(log, 2, 3, 1)
    log.trim_to(start)
    partition = lead(log)
    assert partition.published(W, 1) == (0, base, 8)
    assert partition.published(W, 0) == (0, -1, 8)
    assert partition.published(W, 2) is None


def lead(log: Log, epoch: int = 5) -> Partition:
    """Alone."""
    partition = partition_of(log)  # type: ignore[arg-type]
    assert partition.become(notice(1, epoch, (1,), replicas=(1,)), 0) == 0
    return partition


def test_too_few_replicas_are_said_before_anything_else() -> None:
    partition = leading(log_of(("a", 1)), (1, 2), min_isr=2)
    assert partition.append(once(3), ACKS_ALL, 0).error == 0
    partition.become(notice(1, 5, (1,), partition_epoch=1, min_isr=2), 0)
    assert partition.append(once(3), ACKS_ALL, 0).error == Code.NOT_ENOUGH_REPLICAS
    assert partition.append(once(3), ACKS_LEADER, 0) == (0, 1, 2)


def test_what_the_old_leader_took_and_lost_is_stored_again_by_the_next() -> None:
    """The table goes back with the log: it is not what a leader once said, but what is there."""
    old = leading(log_of(("a", 4)), (1, 2))
    assert old.append(once(3), ACKS_ALL, 0) == (0, 1, 2)
    new = leading(log_of(("a", 4)), (1, 2), epoch=6)
    assert new.append(once(3), ACKS_ALL, 0) == (0, 1, 2)
    old.become(notice(2, 6, (1, 2), partition_epoch=1), 0)
    old.log.truncate_to(1)
    old.become(notice(1, 7, (1, 2), partition_epoch=2), 0)
    assert old.append(once(3), ACKS_ALL, 0) == (0, 1, 2)
    fetch(old, 2, 2, 7, epoch=7)
    assert shown(old.log) == [b"a", b"w/3"]


# ------------------------------------------------------------------------------------------------------- lives of the log


@pytest.mark.parametrize("how", ["clean", "process", "power"])
@pytest.mark.parametrize("end", [2, 4, 6, 8, 9, 13])
def test_the_next_life_knows_the_same_versions(how: str, end: int) -> None:
    fs = MemoryFs()
    directory, log = open_log(fs)
    append_group(log, 2, version=1)
    append_group(log, 2, 2, version=2)
    directory.checkpoint()
    append_group(log, 2, key="v", version=9)
    append_group(log, 1, 2, 2, version=3)
    log.truncate_to(end)
    token = log.flush()
    if token is not None:
        log.flushed(token.run())
    before = {key: known(log.producers, key) for key in "wv"}
    if how == "clean":
        directory.close(clean=True)
    kill(fs, directory)
    if how == "power":
        fs.cut_power()
    _, again = reopened(fs)
    assert again.end_offset == log.end_offset == end
    assert {key: known(again.producers, key) for key in "wv"} == before
    expected = [(1, 0, 2), (2, 4, 6), (3, 11, 13)]
    assert before["w"] == [one for one in expected if one[2] <= end]
    assert again.producers.get(writer_id("v")) is None or end >= 8


def filled(version: int = 7) -> MemoryLog:
    """A writer whose last work is far below what retention keeps."""
    log = MemoryLog(IDENTITY, TopicConfig(segment_bytes=600))
    append_group(log, 2, 2, version=version)
    for _ in range(60):
        append(log, 2)
    return log


def test_retention_says_the_last_work_of_a_writer_again_first() -> None:
    log = filled()
    partition = lead(log)
    partition.log.config = partition.config = TopicConfig(segment_bytes=600, retention_bytes=1_000)
    assert not partition.retain(0, 0)
    assert log.start_offset == 0
    (mention,) = [one for one in stored_batches(log, 124) if one.extension_bytes]
    assert mention.is_control
    assert mark_of(mention) == WriterMark("w", 7, made_ms=1_000), "it is a whole group of its own"
    assert mention.attributes & CONTROL_BIT
    assert partition.retain(0, 0)
    assert log.start_offset > 4
    assert partition.published(W, 7) == (0, -1, 4)
    assert partition.append(once(7), ACKS_ALL, 0) == partition.published(W, 7)
    assert partition.append(once(6), ACKS_ALL, 0).base_offset == -1
    assert partition.append(once(8), ACKS_ALL, 0) == (0, 125, 126)


def test_what_is_said_again_is_not_where_the_work_is() -> None:
    """A receipt never has the offset of a control batch, also not from a table that was made of what is left of the log."""
    log = filled()
    partition = lead(log)
    log.config = TopicConfig(segment_bytes=600, retention_bytes=1_000)
    partition.retain(0, 0)
    assert partition.retain(0, 0)
    again = lead(log.revived(log.end_offset), epoch=6)
    assert known(again.log.producers) == [(7, 124, 124)]
    assert again.published(W, 7) == again.append(once(7), ACKS_ALL, 0) == (0, -1, 124)
    assert again.published(W, 8) is None


def test_until_that_is_committed_it_is_said_once() -> None:
    log = filled()
    partition = leading(log, (1, 2), epoch=5)
    fetch(partition, 2, 124, 0)
    assert partition.high_watermark == 124
    log.config = TopicConfig(segment_bytes=600, retention_bytes=1_000)
    for _ in range(3):
        assert not partition.retain(0, 0)
        assert (log.start_offset, log.end_offset) == (0, 125)
    fetch(partition, 2, 125, 5)
    assert partition.retain(0, 0)
    assert (partition.high_watermark, log.end_offset) == (125, 125)


def test_nothing_is_said_inside_a_group() -> None:
    log = filled()
    partition = lead(log)
    log.config = TopicConfig(segment_bytes=600, retention_bytes=1_000)
    body = encode_records(["x"], now_ms=0)
    partition.publish([RecordBatch(marked(body, WriterMark("v", 1), is_last=False))], 0)
    assert not partition.retain(0, 0)
    assert (log.start_offset, log.end_offset) == (0, 125)
    partition.publish([RecordBatch(marked(body, WriterMark("v", 1, 1), is_last=True))], 0)
    assert not partition.retain(0, 0)
    assert log.end_offset == 127
    assert partition.retain(0, 0)


def test_a_writer_is_said_again_as_often_as_it_takes_and_stays_where_it_is() -> None:
    log = filled()
    partition = lead(log)
    log.config = TopicConfig(segment_bytes=600, retention_bytes=1_000)
    for _ in range(8):
        for _ in range(3):
            if partition.retain(0, 0):
                break
        for _ in range(60):
            append(log, 2, epoch=5)
        partition._advance(0)
    assert partition.published(W, 7) is not None
    assert partition.published(W, 7).base_offset == -1  # type: ignore[union-attr]
    assert partition.append(once(7), ACKS_ALL, 0).base_offset == -1


def test_a_mention_has_its_old_time_and_expires_no_later() -> None:
    limits = BrokerConfig(writer_expiry_ms=10_000)
    log = MemoryLog(IDENTITY, TopicConfig(segment_bytes=600), limits=limits)
    append_group(log, 2, at_ms=20, made_ms=5_000)
    for _ in range(60):
        append(log, 2, at_ms=14_000)
    partition = lead(log)
    log.config = TopicConfig(segment_bytes=600, retention_bytes=1_000)
    assert not partition.retain(15_000, 0)
    assert partition.retain(15_000, 0)
    assert known(log.producers)
    partition.retain(15_001, 0)
    assert known(log.producers) == []


def test_a_mention_has_the_latest_time_of_its_writer() -> None:
    """It is all that is left of the writer in the next life."""
    log = MemoryLog(IDENTITY, TopicConfig(segment_bytes=600))
    for version, made_ms in ((1, 5_000), (2, 3_000)):
        append_group(log, 2, at_ms=20, made_ms=made_ms, version=version)
    for _ in range(60):
        append(log, 2, at_ms=14_000)
    partition = lead(log)
    log.config = TopicConfig(segment_bytes=600, retention_bytes=1_000)
    assert not partition.retain(15_000, 0)
    said = [mark_of(one) for one in stored_batches(log) if one.attributes & CONTROL_BIT]
    assert [(mark.version, mark.made_ms) for mark in said if mark is not None] == [(2, 5_000)]


def test_a_copy_that_has_lost_what_was_said_trims_all_the_same() -> None:
    """After an unclean election nobody can say it again; nothing may stop because of that."""
    log = filled()
    log.trim_to(60)
    partition = lead(log)
    log.config = TopicConfig(segment_bytes=600, retention_bytes=1_000)
    assert partition.retain(0, 0)
    assert log.start_offset > 60


def test_a_follower_waits_for_its_leader() -> None:
    log = filled()
    follower = partition_of(log, broker_id=2, high_watermark=124)
    follower.become(notice(1, 5, (1, 2)), 0)
    log.config = TopicConfig(segment_bytes=600, retention_bytes=1_000)
    assert not follower.retain(0, 0)
    assert (log.start_offset, log.end_offset) == (0, 124)


def test_a_last_work_that_cannot_be_read_is_there_all_the_same() -> None:
    """Nobody stores it a second time because the disk has forgotten where the first one began."""
    fs = MemoryFs()
    _, log = open_log(fs)
    append_group(log, 2, 2)
    partition = partition_of(log)  # type: ignore[arg-type]
    partition.become(notice(1, 5, (1,), replicas=(1,)), 0)
    assert partition.published(W, 1) == (0, 0, 4)
    log.forget_tail()
    (path,) = segments(fs)
    fs.content(path)[-1] ^= 1
    assert partition.published(W, 1) == (0, -1, 4)
