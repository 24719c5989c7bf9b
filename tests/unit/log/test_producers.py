"""What a log remembers of its writers."""

from __future__ import annotations

import random

import pytest
from tests.unit.partition.test_versions import table_of

from replog.config import BrokerConfig
from replog.log.producers import EVICTED_KEPT, ProducerTable
from replog.model import PartitionId
from replog.records import BatchHeader, read_header
from replog.testing.log_contract import TOPIC_ID, batch_of

IDENTITY = PartitionId(TOPIC_ID, 0, 0)


def header(producer: tuple[int, int, int], offset: int, *, count: int = 1, at_ms: int = 0) -> BatchHeader:
    """The header of a stored batch."""
    batch = batch_of(count, at_ms=at_ms, producer=producer)
    batch.stamp(IDENTITY, offset, 0)
    return read_header(batch.to_bytes())


def bases(table: ProducerTable, producer_id: int) -> list[int]:
    """Base offsets of what is remembered of a producer."""
    producer = table.get(producer_id)
    return [] if producer is None else [writer.base_offset for writer in producer.recent]


def test_sequences_wrap() -> None:
    table = ProducerTable(10)
    table.record(header((1, 0, 2**31 - 2), 0, count=4))
    producer = table.get(1)
    assert producer is not None
    assert (producer.recent[0].base_sequence, producer.recent[0].last_sequence) == (2**31 - 2, 1)


def test_the_one_silent_for_longest_is_forgotten_first() -> None:
    table = ProducerTable(3)
    for offset, producer_id in enumerate([1, 2, 3, 1]):
        table.record(header((producer_id, 0, offset), offset))
    assert not table.forgetful
    table.record(header((4, 0, 0), 4))
    assert [p.producer_id for p in table.producers()] == [3, 1, 4]
    assert table.forgetful
    assert len(table) == 3


def lasts(table: ProducerTable) -> list[tuple[int, int]]:
    """(producer, base offset of its last batch), the one silent for longest first."""
    return [(one.producer_id, one.recent[-1].base_offset) for one in table.producers()]


@pytest.mark.parametrize(
    ("limit", "producers", "offset"),
    [(3, [1, 2, 3, 4], 3), (2, [1, 2, 3, 1], 2), (1, [1, 1, 2], 1), (2, [1, 2, 3, 1, 2, 3, 1], 2), (1, [1, 2], 0)],
    ids=["one for another", "back meanwhile", "partly cut itself", "twice", "all of it"],
)
def test_who_had_to_go_for_what_is_cut_is_known_again(limit: int, producers: list[int], offset: int) -> None:
    """A leader that stored what was never committed knows no less than one that never had it."""
    stored = [header((producer, 0, at), at) for at, producer in enumerate(producers)]
    table = table_of(*stored, limit=limit)
    table.restore(table.truncate(offset), 0, stored[:offset])
    assert lasts(table) == lasts(table_of(*stored[:offset], limit=limit))


@pytest.mark.parametrize("seed", range(20))
def test_after_any_cuts_a_full_table_is_that_of_what_is_left(seed: int) -> None:
    chance, stored = random.Random(seed), list[BatchHeader]()
    table = ProducerTable(4)
    for _ in range(400):
        if chance.random() < 0.1:
            offset = max(0, len(stored) - chance.randrange(12))
            del stored[offset:]
            table.restore(table.truncate(offset), 0, stored)
        else:
            stored.append(header((chance.randrange(9), 0, len(stored)), len(stored)))
            table.record(stored[-1])
        assert lasts(table) == lasts(table_of(*stored, limit=4))


def test_of_those_that_had_to_go_the_last_ones_alone_are_kept() -> None:
    table = table_of(*(header((at, 0, 0), at) for at in range(EVICTED_KEPT + 11)), limit=10)
    table.truncate(10)
    assert [producer for producer, _ in lasts(table)] == list(range(1, 10))


def test_a_table_that_starts_anew_remembers_nobody_who_had_to_go() -> None:
    table = table_of(*(header((at, 0, 0), at) for at in range(3)), limit=2)
    table.clear()
    table.truncate(1)
    assert len(table) == 0


def test_truncation_tells_whom_it_cut() -> None:
    table = ProducerTable(10)
    for offset in range(8):
        table.record(header((offset % 2, 0, offset // 2), offset))
    table.record(header((7, 0, 0), 8))
    cut = table.truncate(7)
    assert sorted(cut.producers) == [1, 7]
    assert bases(table, 0) == [0, 2, 4, 6]
    assert table.get(1) is None


def test_what_was_cut_is_found_again() -> None:
    table = ProducerTable(10)
    stored = [header((offset % 2, 0, offset // 2), offset) for offset in range(20)]
    for one in stored:
        table.record(one)
    expected = ProducerTable(10)
    for one in stored[:11]:
        expected.record(one)
    table.restore(table.truncate(11), 0, stored[:11])
    assert table.snapshot() == expected.snapshot()


def test_what_lies_below_the_scan_is_kept() -> None:
    table = ProducerTable(10)
    stored = [header((1, 0, offset), offset) for offset in range(6)]
    for one in stored:
        table.record(one)
    table.restore(table.truncate(5), 4, stored[4:5])
    assert bases(table, 1) == [1, 2, 3, 4]
    table.restore(table.truncate(1), 1, [])
    assert table.get(1) is None
    assert table.forgetful


def test_a_newer_epoch_is_taken_back_with_its_batches() -> None:
    table = ProducerTable(10)
    stored = [header((1, 0, 0), 0), header((1, 0, 1), 1), header((1, 1, 0), 2)]
    for one in stored:
        table.record(one)
    table.restore(table.truncate(2), 0, stored[:2])
    producer = table.get(1)
    assert producer is not None
    assert producer.producer_epoch == 0
    assert bases(table, 1) == [0, 1]


@pytest.mark.parametrize("at_ms", [0, 10**12, 2**62])
def test_who_is_silent_expires_whatever_times_his_records_have(at_ms: int) -> None:
    """Old records are written as well: by whoever stores events of last year, or whose clock is a day slow."""
    table, limits = ProducerTable(10), BrokerConfig(producer_expiry_ms=1_000)
    table.record(header((1, 0, 0), 0, at_ms=at_ms))
    table.expire(10**12, 1, limits)
    table.record(header((2, 0, 0), 1, at_ms=at_ms))
    table.expire(10**12 + 999, 2, limits)
    assert len(table) == 2
    assert not table.forgetful
    table.expire(10**12 + 1_000, 2, limits)
    assert table.get(1) is None
    assert table.get(2) is not None
    assert table.forgetful
    table.expire(10**12 + 1_999, 2, limits)
    assert table.get(2) is not None
    table.expire(10**12 + 2_000, 2, limits)
    assert table.get(2) is None


def test_who_wrote_where_others_were_cut_is_no_older_for_it() -> None:
    table, limits = ProducerTable(10), BrokerConfig(producer_expiry_ms=1_000)
    table.expire(10_000, 5, limits)
    table.truncate(2)
    table.record(header((1, 0, 0), 2))
    table.expire(11_000, 3, limits)
    assert table.get(1) is not None


def test_a_clock_that_was_set_back_begins_the_time_anew() -> None:
    table, limits = ProducerTable(10), BrokerConfig(producer_expiry_ms=1_000)
    table.record(header((1, 0, 0), 0))
    table.expire(10**12, 1, limits)
    for wall_ms, known in ((5_000, 1), (5_999, 1), (6_000, 0)):
        table.expire(wall_ms, 1, limits)
        assert len(table) == known


def test_a_snapshot_is_the_table() -> None:
    table = ProducerTable(10)
    for offset in range(8):
        table.record(header((offset % 3, 1, offset // 3), offset, at_ms=offset))
    for wall_ms in (0, 1):
        table.expire(wall_ms, 6, BrokerConfig(producer_expiry_ms=1))
    assert [producer.producer_id for producer in table.producers()] == [0, 1]
    again = ProducerTable(10)
    again.load(table.snapshot())
    assert again.snapshot() == table.snapshot()
    assert again.forgetful
