"""Arrow's columns become the batches that the same rows would make one by one, wherever they are cut."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import pyarrow as pa
import pytest

from replog.client.partitioner import murmur2_partition
from replog.errors import MessageTooLarge, UnknownTopicOrPartition, UsageError
from replog.payload import Record
from replog.records import RecordBatch, decode_records, encode_records
from replog.spark import arrow_rows
from replog.spark.arrow_rows import ArrowRows
from replog.spark.cells import Placed, body_of
from replog.spark.columns import WrittenColumns
from replog.spark.placing import Topics

NOW = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
BIG = 1 << 30
AT = WrittenColumns(value=0, key=1)


def rows_of(
    at: WrittenColumns = AT, *, partitions: int = 3, topic: str | None = "t", task: int = 5, cells: int = BIG, record: int = BIG
) -> ArrowRows:
    topics = Topics(lambda name: list(range(partitions)), partitioner="crc32", task=task)
    return ArrowRows(topics, at, topic=topic, task=task, cells_bytes=cells, record_bytes_max=record)


def table(*columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns), names=[str(n) for n in range(len(columns))])


def records(found: list[Placed]) -> dict[tuple[str, int], list[tuple[Any, ...]]]:
    """What readers would get, by place."""
    read: dict[tuple[str, int], list[tuple[Any, ...]]] = {}
    for one in found:
        batch = RecordBatch(body_of([one.cells], now_ms=NOW))
        assert batch.count == one.cells.records
        some = [(r.value, r.key, *([r.headers] if r.headers else [])) for r in decode_records(batch)]
        read.setdefault((one.topic, one.partition), []).extend(some)
    return read


KEYS = [b"a", b"bb", None, b"", b"ccc", b"a", b"x" * 300]
VALUES = [b"1" * 255, None, b"", b"2" * 256, b"3" * 65_535, b"4" * 65_536, b"5"]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()])
@pytest.mark.parametrize("partitions", [1, 3])
def test_every_row_goes_to_its_keys_partition(kind: Any, partitions: int) -> None:
    batch = table(*(pa.array(column, pa.binary()).cast(kind) for column in (VALUES, KEYS)))
    expected: dict[tuple[str, int], list[tuple[Any, ...]]] = {}
    for value, key in zip(VALUES, KEYS, strict=True):
        number = 5 % partitions if key is None else crc32(key) % partitions
        expected.setdefault(("t", number), []).append((value, key))
    assert records(list(rows_of(partitions=partitions).placed(batch))) == expected


COLUMNS = [[b"same", b"long"], [b"same", None], [None, None], [b"", b""], [b"", None], [b"an", b"other", b"length"], [b"x" * 70_000, b"y"]]


@pytest.mark.parametrize("column", COLUMNS)
def test_cells_are_those_of_a_batch_that_is_encoded_record_by_record(column: list[bytes | None]) -> None:
    keys = [*column[1:], column[0]]
    batch = table(pa.array(column, pa.binary()), pa.array(keys, pa.binary()))
    (one,) = rows_of(partitions=1).placed(batch)
    told = [Record(value, key) for value, key in zip(column, keys, strict=True)]
    assert body_of([one.cells], now_ms=NOW) == encode_records(told, now_ms=NOW)


def test_a_part_of_a_batch_is_that_part() -> None:
    whole = table(pa.array(VALUES, pa.binary()), pa.array(KEYS, pa.binary()))
    rows = rows_of(partitions=1)
    found = [one for first in range(len(VALUES)) for one in rows.placed(whole.slice(first, 1))]
    assert records(found) == {("t", 0): list(zip(VALUES, KEYS, strict=True))}
    assert rows.rows == len(VALUES)


def test_murmur2_and_partitions_with_gaps() -> None:
    numbers = [2, 7, 9]
    topics = Topics(lambda name: numbers, partitioner="murmur2", task=1)
    rows = ArrowRows(topics, AT, topic="t", task=1, cells_bytes=BIG, record_bytes_max=BIG)
    keys = [b"%d" % n for n in range(50)] + [None]
    found = records(list(rows.placed(table(pa.array([b"v"] * 51, pa.binary()), pa.array(keys, pa.binary())))))
    for (_, number), some in found.items():
        assert [key for _, key in some if key is not None and numbers[murmur2_partition(key, 3)] != number] == []
    assert sum(map(len, found.values())) == 51
    assert (b"v", None) in found["t", 7]


def test_a_named_partition_goes_before_the_keys() -> None:
    at = WrittenColumns(value=0, key=1, partition=2)
    batch = table(pa.array(["a", "b", "c"]), pa.array(["k", "k", None]), pa.array([2, None, None], pa.int32()))
    assert records(list(rows_of(at, task=0).placed(batch))) == {
        ("t", 2): [(b"a", b"k")],
        ("t", crc32(b"k") % 3): [(b"b", b"k")],
        ("t", 0): [(b"c", None)],
    }
    at = WrittenColumns(value=0, partition=1)
    assert set(records(list(rows_of(at).placed(table(pa.array(["a"]), pa.array([1], pa.int64())))))) == {("t", 1)}
    assert set(records(list(rows_of(at).placed(table(pa.array(["a"]), pa.array([None], pa.int32())))))) == {("t", 2)}


def test_a_partition_that_there_is_not_is_named_with_its_row() -> None:
    rows = rows_of(WrittenColumns(value=0, partition=1))
    batch = table(pa.array(["a", "b"]), pa.array([0, 3], pa.int32()))
    list(rows.placed(batch.slice(0, 1)))
    with pytest.raises(UnknownTopicOrPartition, match="row 2 of Spark partition 5: topic 't' has no partition 3; it has 0, 1, 2"):
        list(rows.placed(batch))


def test_topics_by_column() -> None:
    at = WrittenColumns(value=0, topic=1)
    batch = table(pa.array(["a", "b", "c"]), pa.array(["t", "u", "t"]))
    by_topic = {("t", 0): [(b"a", None), (b"c", None)], ("u", 0): [(b"b", None)]}
    assert records(list(rows_of(at, topic=None, task=0).placed(batch))) == by_topic
    assert set(records(list(rows_of(at, topic="w", task=0).placed(batch)))) == {("w", 0)}
    missing = table(pa.array(["a", "b"]), pa.array(["t", None]))
    with pytest.raises(UsageError, match="row 1 of Spark partition 5: its topic is null; set the option `topic`"):
        list(rows_of(at, topic=None).placed(missing))
    with pytest.raises(UsageError, match="no topic: set the option `topic`"):
        list(rows_of(topic=None).placed(table(pa.array(["a"]), pa.array(["k"]))))


@pytest.mark.parametrize(("name", "value"), [(pa.string(), pa.binary()), (pa.large_string(), pa.large_binary())])
def test_headers(name: Any, value: Any) -> None:
    """Large ones are what Spark gives with `spark.sql.execution.arrow.useLargeVarTypes`."""
    at = WrittenColumns(value=0, headers=1)
    long = "n" * 40
    lists = [[("a", b"1"), (long, b"x" * 300)], None, [], [("b", b"")], [("ä" * 200, b"2")]]
    column = pa.array([None if one is None else [{"key": k, "value": v} for k, v in one] for one in lists], HEADERS)
    column = column.cast(pa.list_(pa.struct([("key", name), ("value", value)])))
    (one,) = rows_of(at, partitions=1).placed(table(pa.array(["v"] * 5), column))
    expected = [Record(b"v", headers=pairs) for pairs in lists]
    assert body_of([one.cells], now_ms=NOW) == encode_records(expected, now_ms=NOW)
    (part,) = rows_of(at, partitions=1).placed(table(pa.array(["v"] * 5), column).slice(3))
    assert body_of([part.cells], now_ms=NOW) == encode_records(expected[3:], now_ms=NOW)
    (none,) = rows_of(at, partitions=1).placed(table(pa.array(["v"] * 2), column[1:3]))
    assert none.cells.headers is None


@pytest.mark.parametrize(("name", "value", "what"), [(None, b"1", "name"), ("a", None, "value")])
def test_half_a_header(name: str | None, value: bytes | None, what: str) -> None:
    column = pa.array([[], [{"key": "a", "value": b"1"}], [{"key": "a", "value": b"1"}, {"key": name, "value": value}]], HEADERS)
    said = f"row 2 of Spark partition 5: the {what} of header 1 \\(counted from 0\\) is null; a header is a name, which is a string"
    with pytest.raises(UsageError, match=said):
        list(rows_of(WrittenColumns(value=0, headers=1)).placed(table(pa.array(["v"] * 3), column)))


def test_a_record_beyond_the_limit_is_named() -> None:
    batch = table(pa.array([b"x" * 50, b"x" * 90, b"x" * 60], pa.binary()), pa.array([None, b"k" * 11, b"k" * 40], pa.binary()))
    with pytest.raises(MessageTooLarge, match="row 1 of Spark partition 5: a record of 101 bytes is too large; max_record_bytes is 100"):
        list(rows_of(record=100).placed(batch))
    assert sum(one.cells.records for one in rows_of(record=101).placed(batch)) == 3


CUTS = [(BIG, [10]), (25, [2] * 5), (24, [2] * 5), (23, [1] * 10), (1, [1] * 10), (36, [3, 3, 3, 1])]


@pytest.mark.parametrize(("limit", "counts"), CUTS)
def test_pieces_are_as_large_as_allowed_or_one_record(limit: int, counts: list[int]) -> None:
    batch = table(pa.array([b"x" * 7] * 10, pa.binary()), pa.array([b"k"] * 10, pa.binary()))  # 12 bytes of cells each
    found = list(rows_of(partitions=1, cells=limit).placed(batch))
    assert [one.cells.records for one in found] == counts
    assert [one.cells.size for one in found] == [12 * count for count in counts]
    assert records(found) == {("t", 0): [(b"x" * 7, b"k")] * 10}


def test_a_large_arrow_batch_is_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_rows, "AT_ONCE_BYTES", 400)
    values = [b"%03d" % n * 20 for n in range(40)]
    batch = table(pa.array(values, pa.binary()), pa.nulls(40, pa.binary()))
    found = list(rows_of(partitions=1).placed(batch))
    assert len(found) > 4
    assert records(found) == {("t", 0): [(value, None) for value in values]}


def test_no_rows() -> None:
    assert list(rows_of().placed(table(pa.array([], pa.binary()), pa.array([], pa.binary())))) == []


def test_pieces_of_several_partitions_hold_nothing_of_each_other() -> None:
    batch = table(pa.array([b"x" * 1_000] * 100, pa.binary()), pa.array([b"%d" % n for n in range(100)], pa.binary()))
    assert {type(one.cells.values) for one in rows_of().placed(batch)} == {bytes}


@pytest.mark.parametrize("different", [1, 40, 100])
def test_keys_are_hashed_alike_whether_they_repeat_or_not(different: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 100 keys, so many different ones: each is hashed once while they repeat, and every batch after one where they do not, whole."""
    hashed: list[int] = []
    whole = arrow_rows._hashed

    def counting(placement: Any, key: Any) -> Any:
        hashed.append(len(key))
        return whole(placement, key)

    monkeypatch.setattr(arrow_rows, "_hashed", counting)
    keys = [b"k%d" % (n % different) for n in range(99)] + [None]
    expected: dict[tuple[str, int], list[tuple[Any, ...]]] = {}
    for number, key in enumerate(keys * 3):
        expected.setdefault(("t", 5 % 3 if key is None else crc32(key) % 3), []).append((b"%d" % number, key))
    rows = rows_of()
    found: list[Placed] = []
    for first in (0, 100, 200):
        values = [b"%d" % n for n in range(first, first + 100)]
        found += rows.placed(table(pa.array(values, pa.binary()), pa.array(keys, pa.binary())))
    assert records(found) == expected
    assert hashed == ([99, 100, 100] if different == 100 else [different] * 3)


def test_a_piece_has_a_bounded_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_rows, "RECORDS_MAX", 4)
    found = list(rows_of(partitions=1).placed(table(pa.array([b""] * 10, pa.binary()), pa.nulls(10, pa.binary()))))
    assert [one.cells.records for one in found] == [4, 4, 2]
