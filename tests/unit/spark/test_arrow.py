"""Stored batches as Arrow: every cell where it belongs, batches of bounded size, and ranges that begin and end inside of one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replog import payload
from replog.errors import UndecodableBatch
from replog.model import PartitionId, TopicPartition
from replog.records import Record, RecordBatch, encode_records
from replog.spark import arrow
from replog.spark.arrow import Unpacking
from replog.spark.columns import arrow_schema

PLACE = TopicPartition("orders", 3)


def stored(records: list[Record], base: int, **framing: Any) -> RecordBatch:
    batch = RecordBatch(encode_records(records, now_ms=5, **framing))
    batch.stamp(PartitionId(b"i" * 16, 3, 0), base, 1)
    return batch


def unpacked(batches: list[RecordBatch], start: int = 0, stop: int = 10**9, *, headers: bool = False) -> list[pa.RecordBatch]:
    return list(Unpacking(headers=headers).rows(PLACE, batches, start, stop))


cells = st.none() | st.binary(max_size=20)
records = st.builds(
    Record,
    cells,
    key=cells,
    headers=st.lists(st.tuples(st.text(max_size=3), st.binary(max_size=3)), max_size=2),
    timestamp_ms=st.none() | st.integers(0, 2**41),
)


@given(st.lists(st.lists(records, min_size=1, max_size=5), min_size=1, max_size=4), st.integers(0, 12), st.integers(0, 12), st.booleans())
def test_every_cell_comes_out(batches: list[list[Record]], start: int, size: int, packed: bool) -> None:
    made, base = [], 10
    for each in batches:
        made.append(stored(each, base, compression="lz4" if packed else None))
        base += len(each) + 1  # one offset without a record, as a control batch leaves it
    wanted = [(b.base_offset + n, record) for b, each in zip(made, batches, strict=True) for n, record in enumerate(each)]
    stop = 10 + start + size
    wanted = [(offset, record) for offset, record in wanted if 10 + start <= offset < stop]
    inside = [b for b in made if b.end_offset > 10 + start and b.base_offset < stop]
    found = pa.Table.from_batches(unpacked(inside, 10 + start, stop, headers=True), arrow_schema(headers=True)).to_pylist()
    assert [
        (r["offset"], r["key"], r["value"], r["topic"], r["partition"], r["timestampType"], r["headers"]) for r in found
    ] == [
        (offset, r.key, r.value, "orders", 3, 0, [{"key": k, "value": v} for k, v in r.headers] or None) for offset, r in wanted
    ]
    times = [int(r["timestamp"].timestamp() * 1000 + 0.5) for r in found]
    assert times == [5 if r.timestamp_ms is None else r.timestamp_ms for _, r in wanted]


@given(st.integers(0, 300), st.integers(1, 40), st.sampled_from(["same", "nil", "longer", "text"]), st.integers(0, 39))
def test_cells_of_one_length_are_taken_at_once_and_others_one_by_one(size: int, count: int, odd: str, at: int) -> None:
    values: list[bytes | None] = [bytes([n]) * size for n in range(count)]
    if odd != "same":
        values[at % count] = {"nil": None, "longer": b"x" * (size + 1), "text": b""}[odd]
    batch = stored([Record(value) for value in values], 0)
    column = payload.split_columns(batch.payload)[0]
    bodies = {len(value) if value is not None else None for value in values}
    head = 2 if size < 256 else 3
    if len(bodies) == 1 and None not in bodies:
        assert arrow.uniform(column, count) == (len(values[0] or b"") + head if values[0] else 2, head if values[0] else 2)
    else:
        assert arrow.uniform(column, count) == (0, 0)
    (found,) = unpacked([batch])
    assert found.column("value").to_pylist() == values


@pytest.mark.parametrize(
    "column",
    [
        b"\x92\xc4\x01a\xc4\x01",  # cut short
        b"\x92\xc4\x01a\xc4\x01bb",  # bytes behind the last cell
        b"\x92\xc4\x01a\xc4\x02b",  # another length
        b"\x92\xc4\x01a\xc5\x01b",  # another head
        b"\x92\xc4\x02a\xc4\x02b",  # lengths that are all wrong
        b"\x92\xa1a\xa1b",  # text
        b"\x93\xc4\x01a\xc4\x01b",  # another count
        b"\x92",
    ],
)
def test_a_column_that_is_not_what_it_claims_is_not_taken_at_once(column: bytes) -> None:
    assert arrow.uniform(memoryview(column), 2) == (0, 0)
    assert arrow.uniform(memoryview(b"\x92\xc4\x01a\xc4\x01b"), 2) == (3, 2)


def test_keys_may_begin_and_end_anywhere() -> None:
    plain, keyed = stored([Record("a"), Record("b")], 0), stored([Record("c", key="k")], 2)
    for order, keys in (([plain, keyed], [None, None, b"k"]), ([keyed, plain], [b"k", None, None]), ([plain], [None, None])):
        (found,) = unpacked(order)
        assert found.column("key").to_pylist() == keys


def test_batches_are_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "ARROW_BYTES_MAX", 1_000)
    many = [stored([Record(bytes([n]) * 90) for n in range(10)], base) for base in range(0, 100, 10)]
    large = [stored([Record(b"x" * 450)] * 9 + [Record(b"y" * 5_000)], 100)]
    found = unpacked(many + large)
    assert sum(batch.num_rows for batch in found) == 110
    assert [batch.column("offset")[0].as_py() for batch in found[:3]] == [0, 10, 20]
    assert all(batch.num_rows <= 10 for batch in found)
    assert sum(1 for batch in found if batch.column("offset")[0].as_py() >= 100) >= 5


def test_a_time_beyond_what_spark_counts_is_shown_as_the_last_one() -> None:
    (found,) = unpacked([stored([Record("a", timestamp_ms=2**63 - 1), Record("b", timestamp_ms=0)], 0)])
    assert found.column("timestamp").cast(pa.int64()).to_pylist() == [(2**63 - 1) // 1000 * 1000, 0]
    (same,) = unpacked([stored([Record("a", timestamp_ms=2**63 - 1)], 0)])
    assert same.column("timestamp").cast(pa.int64()).to_pylist() == [(2**63 - 1) // 1000 * 1000]
    (usual,) = unpacked([stored([Record("a", timestamp_ms=1_700_000_000_123)], 0)])
    assert usual.column("timestamp").to_pylist() == [datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)]


def test_a_batch_that_is_not_what_it_claims() -> None:
    strange = RecordBatch(_with_format(stored([Record("a")], 0), 5))
    strange.stamp(PartitionId(b"i" * 16, 3, 0), 7, 1)
    with pytest.raises(UndecodableBatch, match=r"orders-3: the batch of offsets 7 to 7 .* \(payload format 5") as caught:
        unpacked([strange])
    assert (caught.value.topic, caught.value.partition, caught.value.base_offset, caught.value.next_offset) == ("orders", 3, 7, 8)


@pytest.mark.parametrize("column", range(4))
def test_what_is_in_front_of_it_comes_first(column: int) -> None:
    """Whichever of its columns is not what it claims: nothing of it is taken."""
    whole = stored([Record("a", "k", [("h", "x")], 5), Record("bc", None, None, 6)], 2)
    body = bytearray(whole.body)
    parts = payload.split_columns(whole.payload)
    end = len(body) - sum(len(part) for part in parts[column + 1 :])
    cells = len(parts[column]) - 1  # behind the header of the array
    body[end - cells : end] = b"\xc1" * cells  # which is nothing in msgpack
    broken = RecordBatch(bytes(body))
    broken.stamp(PartitionId(b"i" * 16, 3, 0), 2, 1)
    found, made = [], Unpacking(headers=True).rows(PLACE, [stored([Record("y"), Record("z")], 0), broken], 0, 10)
    with pytest.raises(UndecodableBatch, match=r"orders-3: the batch of offsets 2 to 3 .* go on at offset 4"):
        found.extend(batch.column("value").to_pylist() for batch in made)
    assert found == [[b"y", b"z"]]


def _with_format(batch: RecordBatch, number: int) -> bytes:
    body = bytearray(batch.body)
    body[4] |= number << 3
    return bytes(body)
