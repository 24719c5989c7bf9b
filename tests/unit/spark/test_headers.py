"""How many headers a row may have, and how many come together: Spark's columns make the batches that a producer's records would."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.unit.spark.test_arrow import stored, unpacked
from tests.unit.spark.test_arrow_rows import BIG, HEADERS, rows_of, table

from replog.client.partitioner import crc32_partition
from replog.config import HEADER_COST, RECORD_HEADERS_MAX
from replog.errors import MessageTooLarge, UndecodableBatch, UsageError
from replog.records import Record, RecordBatch, decode_records, encode_records
from replog.spark import arrow
from replog.spark.arrow_rows import ArrowRows
from replog.spark.cells import Cells, Placed, body_of
from replog.spark.columns import WrittenColumns
from replog.spark.filling import Filling
from replog.spark.grouping import placed
from replog.spark.placing import Placement
from replog.spark.rows import Chosen, RowColumns

NOW = 1_700_000_000_000
HEADED = WrittenColumns(value=0, headers=1)


def place(index: int) -> str:
    return f"row {index} of Spark partition 5"


def of_arrow(counts: list[int], *, cells: int = BIG, record: int = BIG) -> list[Placed]:
    column = pa.array([[{"key": "", "value": b""}] * count for count in counts], HEADERS)
    rows: ArrowRows = rows_of(HEADED, partitions=1, cells=cells, record=record)
    return list(rows.placed(table(pa.array(["v"] * len(counts)), column)))


def of_rows(counts: list[int], *, cells: int = BIG, record: int = BIG) -> list[Placed]:
    chosen = RowColumns(value=0, headers=1).of([("v", [("", "")] * count) for count in counts], place)
    return list(placed(chosen, Placement("t", (0,), crc32_partition, 5, cells), place, record))


WAYS = pytest.mark.parametrize("make", [of_arrow, of_rows])


@WAYS
def test_a_row_with_more_headers_than_a_record_may_have_is_named(make: Any) -> None:
    (most,) = make([0, RECORD_HEADERS_MAX])
    assert [len(record.headers) for record in decode_records(RecordBatch(body_of([most.cells], now_ms=NOW)))] == [0, RECORD_HEADERS_MAX]
    with pytest.raises(UsageError, match=r"row 2 of Spark partition 5: a record with 10001 headers; allowed are 10000"):
        make([0, 1, RECORD_HEADERS_MAX + 1, 1])


@pytest.mark.parametrize("count", [RECORD_HEADERS_MAX + 1, RECORD_HEADERS_MAX + 5, 2 * RECORD_HEADERS_MAX + 5])
def test_so_is_one_with_headers_that_can_be_gone_through_once(count: int) -> None:
    columns = RowColumns(value=0, headers=1)
    with pytest.raises(UsageError, match=r"row 0 of Spark partition 5: a record with more than 10000 headers; allowed are 10000"):
        columns.of([("v", (("", "") for _ in range(count)))], place)
    with pytest.raises(UsageError, match=r"row 0 of Spark partition 5: header 2 \(counted from 0\) is int"):
        columns.of([("v", (pair for pair in (("", ""), ("", ""), 3, 4)))], place)
    assert columns.of([("v", (("a", "b") for _ in range(2)))], place).headers == [(("a", b"b"),) * 2]


@WAYS
def test_headers_count_for_what_a_record_may_have(make: Any) -> None:
    limit = 4 * HEADER_COST  # besides value and heads
    assert len(make([3, 0], record=limit)) == 1
    with pytest.raises(MessageTooLarge, match=rf"row 1 of Spark partition 5: a record of 2[5-9]\d bytes is .* is {limit}"):
        make([0, 4, 1], record=limit)


@WAYS
def test_headers_count_for_where_rows_are_cut(make: Any) -> None:
    counts = [3, 0, 2, 9, 0, 0, 5, 1, 1]
    found = make(counts, cells=6 * HEADER_COST)
    assert [one.cells.header_count for one in found] == [5, 9, 5, 2]
    for one in found:
        assert one.cells.size == one.cells.header_count * HEADER_COST + len(one.cells.values) + len(one.cells.headers)
    several = [one.cells for one in found]
    expected = [Record("v", headers=[("", "")] * count) for count in counts]
    assert body_of(several, now_ms=NOW) == encode_records(expected, now_ms=NOW)


def test_of_rows_that_are_sorted_by_partition_each_has_its_own() -> None:
    counts, numbers = [3, 1, 0, 2, 5], [2, 0, 2, 0, 1]
    column = pa.array([[{"key": "a", "value": b"1"}] * count for count in counts], HEADERS)
    rows = rows_of(WrittenColumns(value=0, headers=1, partition=2))
    found = list(rows.placed(table(pa.array(["v"] * 5), column, pa.array(numbers, pa.int32()))))
    assert [(one.partition, one.cells.records, one.cells.header_count) for one in found] == [(0, 2, 3), (1, 1, 5), (2, 2, 3)]
    chosen = Chosen([b"v"] * 5, None, [(("a", b"1"),) * count for count in counts], list(numbers))
    same = sorted(placed(chosen, Placement("t", (0, 1, 2), crc32_partition, 5), place, BIG), key=lambda one: one.partition)
    assert [(one.partition, one.cells.records, one.cells.header_count) for one in same] == [(0, 2, 3), (1, 1, 5), (2, 2, 3)]


def test_pieces_that_are_joined_keep_the_count() -> None:
    filling = Filling(1)  # everything leaves at once
    one = Cells(1, 2 + 3 + 3 * HEADER_COST, b"\xc4\x00", None, b"\xc4\x01x", 3)
    ((_, left),) = filling.add(Placed("t", 0, one), BIG)
    left.add(Cells(1, 2, b"\xc4\x00"))
    left.add(one)
    left.join()
    assert [(cells.records, cells.header_count, cells.size) for cells in left.several] == [(3, 6, 6 + 7 + 6 * HEADER_COST)]


def test_a_bomb_of_headers_is_a_bad_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replog.payload.RECORD_HEADERS_MAX", 20_000)
    batch = stored([Record("x", headers=[("", "")] * 10_001)], 0)
    monkeypatch.undo()
    with pytest.raises(UndecodableBatch, match="headers: more than 10000 in one record"):
        unpacked([batch], headers=True)
    assert unpacked([batch])[0].num_rows == 1  # nobody asks for them


def test_arrow_batches_have_few_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "ARROW_BYTES_MAX", 20 * HEADER_COST)
    many = [stored([Record("", headers=[("", "")] * 5)] * 4, base) for base in range(0, 20, 4)]
    found = unpacked(many, headers=True)
    assert sum(batch.num_rows for batch in found) == 20
    assert max(batch.num_rows for batch in found) <= 4
    assert [batch.num_rows for batch in unpacked(many)] == [20]
