"""How many headers a record and a batch may have: what is refused where they are made, and what is not believed where they are read."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from struct import pack
from typing import Any

import lz4.block
import msgpack
import pytest
from crc32c import crc32c
from tests.unit.client.fake import make

from replog import records as r
from replog.client import unpacking
from replog.config import BATCH_BYTES_MAX, BATCH_HEADERS_MAX, HEADER_COST, RECORD_HEADERS_MAX
from replog.errors import UsageError
from replog.payload import DIRECTORY, as_headers, headers_size, record_size
from replog.records import BadBatch, BatchReader, Record, RecordBatch, decode_records, encode_records, encode_values

EMPTY = b"\xa0\xa0"
"""The smallest header: two empty strings."""


def batch_of(cells: list[bytes | None], *, compressed: bool = False) -> RecordBatch:
    """Records without a value that have these headers, correctly sealed: what a hostile producer can get past a broker."""
    parts = (msgpack.packb([None] * len(cells)), b"", b"", msgpack.packb(cells))
    payload = DIRECTORY.pack(*map(len, parts)) + b"".join(parts)
    if compressed:
        payload = pack("<I", len(payload)) + lz4.block.compress(payload, store_size=False)
    rest = r.BODY_HEADER.pack(0, int(compressed), 0, len(cells), 0, 0, -1, -1, -1)[4:] + payload
    return RecordBatch(pack("<I", crc32c(rest)) + rest)


# ---------------------------------------------------------------------------------------------------------------- made


def endless() -> Iterator[tuple[str, bytes]]:
    while True:
        yield "a", b""


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ([("a", b"")] * 10_001, "a record with 10001 headers; allowed are 10000"),
        ([("a", b"")] * 300_000, "a record with 300000 headers; allowed are 10000"),
        (endless(), "a record with more than 10000 headers; allowed are 10000"),
    ],
)
def test_a_record_with_more_headers_than_it_may_have_is_refused(headers: Any, message: str) -> None:
    _, _, client = make({"t": 1})
    with client.producer(linger_ms=60_000) as producer:
        for make_one in (lambda: Record("x", headers=headers), lambda: producer.send("t", "x", headers=headers)):
            with pytest.raises(UsageError, match=message):
                make_one()
    assert list(client.read("t")) == []


@pytest.mark.parametrize("compression", [None, "lz4"])
def test_as_many_as_a_record_may_have_come_back(compression: Any) -> None:
    pairs = [(f"name-{n % 7}", str(n)) for n in range(RECORD_HEADERS_MAX)]
    batch = RecordBatch(encode_records([Record("x", headers=pairs), "y"], now_ms=0, compression=compression))
    one, other = decode_records(batch)
    assert one.headers == [(name, value.encode()) for name, value in pairs]
    assert other.headers == []


def test_a_batch_has_so_many_headers_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(r, "BATCH_HEADERS_MAX", 5)
    headers = [[("a", b"1")] * 3, [], [("b", b"2")] * 2]
    assert [len(record.headers) for record in decode_records(RecordBatch(encode_values([b""] * 3, headers=headers, now_ms=0)))] == [3, 0, 2]
    with pytest.raises(UsageError, match="a batch of 6 headers; allowed are 5"):
        encode_values([b""] * 4, headers=[*headers, [("c", b"")]], now_ms=0)
    _, _, client = make({"t": 1})
    with pytest.raises(UsageError, match="a batch of 6 headers; allowed are 5"):
        client.append("t", 0, [Record("x", headers=[("a", b"")] * 3)] * 2)


def test_what_a_header_counts_for() -> None:
    pairs = as_headers([("ä", b"12"), ("", b"")])
    assert headers_size(pairs) == 4 + 2 * HEADER_COST
    assert record_size(Record("xyz", key="k", headers=pairs)) == 3 + 1 + 4 + 2 * HEADER_COST
    assert BATCH_BYTES_MAX // HEADER_COST <= BATCH_HEADERS_MAX  # however large a user's batches are, none is too large
    assert RECORD_HEADERS_MAX * HEADER_COST < BATCH_BYTES_MAX


def test_batches_that_a_producer_fills_have_no_more_headers_than_they_have_room_for() -> None:
    cluster, _, client = make({"t": 1})
    with client.producer(batch_bytes=100 * HEADER_COST, linger_ms=60_000) as producer:
        deliveries = [producer.send("t", "", headers=[("", "")] * n) for n in (*[7] * 100, 150)]
    assert [delivery.result().offset for delivery in deliveries] == list(range(101))
    counts = [sum(len(record.headers) for record in decode_records(batch)) for batch in cluster.partition("t").log]
    assert sum(counts) == 850
    assert max(counts[:-1]) <= 100
    assert counts[-1] == 150  # a single one goes alone


# ---------------------------------------------------------------------------------------------------------------- read


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([EMPTY * (RECORD_HEADERS_MAX + 1)], "headers: more than 10000 in one record"),
        ([b"\xa0" * (2 * RECORD_HEADERS_MAX + 1)], "headers: more than 10000 in one record"),
        ([None, EMPTY, b"\xa1n\xa1v" * (RECORD_HEADERS_MAX + 1)], "headers: more than 10000 in one record"),
        ([EMPTY * RECORD_HEADERS_MAX] * 104 + [EMPTY * 8_577], "headers: more than 1048576 in one batch"),
        ([EMPTY * 20] * 30_000 + [b"\xa0\xc5\xff\xff" + b"x" * 65_535] + [EMPTY * 20] * 23_000, "headers: more than 1048576 in one batch"),
    ],
    ids=["a record", "half a header more", "larger ones", "a batch", "a batch of many records"],
)
def test_what_has_more_headers_than_it_may_have_is_a_bad_batch(cells: list[bytes | None], message: str) -> None:
    for compressed in (False, True):
        with pytest.raises(BadBatch, match=message):
            decode_records(batch_of(cells, compressed=compressed))


@pytest.mark.parametrize(
    "cells",
    [
        [EMPTY * RECORD_HEADERS_MAX, None, b""],
        [b"\xa0\xc6\x00\x01\x00\x00" + b"x" * 65_536],
        [EMPTY * RECORD_HEADERS_MAX] * 104 + [EMPTY * 8_576],
    ],
    ids=["a record", "few and large", "a batch"],
)
def test_what_has_as_many_as_it_may_have_is_read(cells: list[bytes | None]) -> None:
    reader = BatchReader(batch_of(cells))
    found = [record.headers for record in reader.records()]
    assert reader.header_count == sum(map(len, found))
    assert reader.header_count in (RECORD_HEADERS_MAX, 1, BATCH_HEADERS_MAX)
    assert {pair for headers in found for pair in headers} <= {("", b""), ("", b"x" * 65_536)}


@pytest.mark.parametrize(
    "cells", [lambda: [b"\xa0" * (8 << 20)], lambda: [EMPTY * RECORD_HEADERS_MAX] * 400], ids=["of one record", "of many records"]
)
def test_a_bomb_of_headers_is_refused_before_they_are_made(cells: Callable[[], list[bytes | None]]) -> None:
    """8 MiB in one record, or in many; stored they are a 255th of that, and made they would be some 500 MB."""
    batch = batch_of(cells(), compressed=True)
    assert len(batch.body) < 40_000
    tracemalloc.start()
    try:
        with pytest.raises(BadBatch, match="headers: more than"):
            decode_records(batch, headers_max=50_000)  # tracing makes counting slow
        assert tracemalloc.get_traced_memory()[1] < 4 * (8 << 20)
    finally:
        tracemalloc.stop()


def test_limits_of_a_reader() -> None:
    batch = batch_of([EMPTY * 3, EMPTY * 2])
    assert len(decode_records(batch, record_headers_max=3, headers_max=5)) == 2
    for limits in ({"record_headers_max": 2}, {"headers_max": 4}):
        with pytest.raises(BadBatch, match="headers: more than"):
            decode_records(batch, **limits)


def test_an_answer_is_unpacked_no_further_than_so_many_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, client = make({"t": 1})
    for n in range(4):
        client.append("t", 0, [Record(str(n), headers=[("a", b"")] * 2), "x"])
    monkeypatch.setattr(unpacking, "BATCH_HEADERS_MAX", 4)
    assert [record.text() for record in client.fetch("t", 0, 0)] == ["0", "x", "1", "x"]
    monkeypatch.setattr(unpacking, "BATCH_HEADERS_MAX", 1)
    assert [record.text() for record in client.fetch("t", 0, 3)] == ["x"]  # of the batch that begins below
    assert len(list(client.read("t"))) == 8
