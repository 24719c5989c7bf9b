"""Rows by partition: the one they name, else their key's, else that of the task."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import pytest

from replog.client.partitioner import crc32_partition
from replog.config import HEADER_COST
from replog.errors import MessageTooLarge, UnknownTopicOrPartition
from replog.payload import Record
from replog.records import RecordBatch, decode_records, encode_records
from replog.spark.cells import body_of
from replog.spark.grouping import placed
from replog.spark.placing import Placement, Topics
from replog.spark.rows import Chosen

NOW = 1_700_000_000_000
BIG = 1 << 30


def place(index: int) -> str:
    return f"row {index} of Spark partition 4"


def found(chosen: Chosen, numbers: tuple[int, ...] = (0, 1, 2), limit: int = BIG, task: int = 4) -> dict[int, list[tuple[Any, Any]]]:
    read: dict[int, list[tuple[Any, Any]]] = {}
    for one in placed(chosen, Placement("t", numbers, crc32_partition, task), place, limit):
        batch = RecordBatch(body_of([one.cells], now_ms=NOW))
        assert one.topic == "t"
        assert one.partition not in read
        read[one.partition] = [(record.value, record.key) for record in decode_records(batch)]
    return read


KEYS = [b"a", None, b"", b"bb", b"a"]
VALUES = [b"1", b"2", None, b"4", b"5"]


def test_by_key() -> None:
    expected: dict[int, list[tuple[Any, Any]]] = {}
    for value, key in zip(VALUES, KEYS, strict=True):
        expected.setdefault(1 if key is None else crc32(key) % 3, []).append((value, key))
    assert found(Chosen(VALUES, KEYS, None, None)) == expected


def test_without_keys_all_rows_of_a_task_stay_together() -> None:
    chosen = Chosen(VALUES, None, None, None)
    assert found(chosen, (3, 5), task=7) == {5: [(value, None) for value in VALUES]}
    assert found(chosen, (3, 5), task=8) == {3: [(value, None) for value in VALUES]}


def test_by_name_before_the_key() -> None:
    read = found(Chosen(VALUES, KEYS, None, [2, 2, None, 0, None]))
    assert read[2][:2] == [(b"1", b"a"), (b"2", None)]
    assert (b"4", b"bb") in read[0]
    assert (None, b"") in read[crc32(b"") % 3]
    assert found(Chosen(VALUES, None, None, [0, None, 0, 2, None]))[1] == [(b"2", None), (b"5", None)]
    assert found(Chosen([b"1"], None, None, [0]), (0,)) == {0: [(b"1", None)]}


def test_one_partition_is_the_batch_of_the_records() -> None:
    headers = [(("h", b"x"),), (), (("i", b""), ("j", b"2")), (), ()]
    (one,) = placed(Chosen(VALUES, KEYS, headers, None), Placement("t", (0,), crc32_partition, 0), place, BIG)
    told = [Record(value, key, pairs) for value, key, pairs in zip(VALUES, KEYS, headers, strict=True)]
    assert body_of([one.cells], now_ms=NOW) == encode_records(told, now_ms=NOW)
    (bare,) = placed(Chosen(VALUES, [None] * 5, [()] * 5, None), Placement("t", (0,), crc32_partition, 0), place, BIG)
    assert (bare.cells.keys, bare.cells.headers) == (None, None)


def test_a_partition_that_there_is_not() -> None:
    numbers = tuple(range(30))
    said = r"row 3 of Spark partition 4: topic 't' has no partition 30; it has 0, .*, 19 and 10 more"
    with pytest.raises(UnknownTopicOrPartition, match=said):
        found(Chosen(VALUES, None, None, [0, None, 29, 30, 0]), numbers)
    said = "row 3 of Spark partition 4: topic 't' has no partition .a number of 16610 bits.; it has 0, "
    with pytest.raises(UnknownTopicOrPartition, match=said):
        found(Chosen(VALUES, None, None, [0, None, 29, 10**5_000, 0]), numbers)


LARGE = [
    (Chosen([b"1", b"x" * 8], [None, b"kk"], None, None), 10),
    (Chosen([b"1", b"x"], None, [(), (("ab", b"c" * 7),)], None), 10 + HEADER_COST),
]


@pytest.mark.parametrize(("chosen", "size"), LARGE)
def test_a_record_beyond_the_limit(chosen: Chosen, size: int) -> None:
    said = f"row 1 of Spark partition 4: a record of {size} bytes is too large; max_record_bytes is {size - 1}"
    with pytest.raises(MessageTooLarge, match=said):
        found(chosen, limit=size - 1)
    assert sum(map(len, found(chosen, limit=size).values())) == 2


def test_a_topic_is_looked_up_once_a_task() -> None:
    asked: list[str] = []

    def partitions_for(topic: str) -> list[int]:
        asked.append(topic)
        return [0, 1]

    topics = Topics(partitions_for, partitioner="crc32", task=3)
    assert [topics.placement(topic).keyless for topic in ("t", "u", "t")] == [1, 1, 1]
    assert asked == ["t", "u"]
