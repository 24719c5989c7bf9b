"""Records, batches, and what happens to a reader of hostile bytes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import suppress
from struct import pack
from typing import Any, cast

import lz4.block
import msgpack
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from replog import records as r
from replog.config import HEADER_COST
from replog.errors import Code, UsageError
from replog.model import PartitionId
from replog.payload import DIRECTORY
from replog.records import BadBatch, BatchReader, Record, RecordBatch, decode_records, encode_records, encode_values, record_size

P0 = PartitionId(b"t" * 16, 3, 1)


def stored(body: bytes, base_offset: int = 100, epoch: int = 4) -> RecordBatch:
    """The body after a trip through a log."""
    batch = RecordBatch(body)
    batch.check_body(length_max=1 << 20, records_max=10_000)
    batch.stamp(P0, base_offset, epoch)
    return RecordBatch.parse(batch.to_bytes(), identity=P0)


def body_of(payload: bytes, count: int, *, attributes: int = 0, extension_bytes: int = 0, base: int = 0, last: int = 0) -> RecordBatch:
    """A batch with any payload, correctly sealed: what a hostile producer can get past a broker."""
    rest = r.BODY_HEADER.pack(0, attributes, extension_bytes, count, base, last, -1, -1, -1)[4:] + payload
    return RecordBatch(pack("<I", crc32c(rest)) + rest)


def columns(values: bytes, keys: bytes = b"", times: bytes = b"", headers: bytes = b"") -> bytes:
    parts = (values, keys, times, headers)
    return DIRECTORY.pack(*map(len, parts)) + b"".join(parts)


# ----------------------------------------------------------------------------------------------------------- records


def test_a_record_to_be_written() -> None:
    record = Record("wört", key="k", headers=[("a", b"1"), ("a", "2")], timestamp_ms=5)
    assert (record.value, record.key, record.headers, record.timestamp_ms) == ("wört".encode(), b"k", [("a", b"1"), ("a", b"2")], 5)
    assert (record.topic, record.partition, record.offset, record.leader_epoch) == ("", -1, -1, -1)
    anything: Any = bytearray(b"x")
    assert (Record(anything).value, Record(cast(Any, memoryview(b"x"))).value, Record(None).value) == (b"x", b"x", None)
    assert repr(record) == "Record(key=b'k', value=b'w\\xc3\\xb6rt', headers=2, timestamp_ms=5)"
    assert record_size(record) == 5 + 1 + 2 + 2 + 2 * HEADER_COST


def test_headers_are_not_shared() -> None:
    record = Record("x", headers=[("a", b"1")])
    record.headers.append(("b", b"2"))
    assert record.headers == [("a", b"1")]


def test_text_and_json() -> None:
    assert Record("wört").text() == "wört"
    assert Record('{"a": [1]}').json() == {"a": [1]}
    for bad, call in ((Record(None), Record.text), (Record(b"\xff"), Record.text), (Record("{"), Record.json), (Record(None), Record.json)):
        with pytest.raises(UsageError, match="Record"):
            call(bad)
    with pytest.raises(UsageError, match="not JSON"):
        Record("[" * 100_000).json()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Record(1), "a value is bytes, str or None, not int"),  # type: ignore[arg-type]
        (lambda: Record("x", key=1.5), "a key is bytes, str or None, not float"),  # type: ignore[arg-type]
        (lambda: Record("\ud800"), "a value is not valid Unicode"),
        (lambda: Record("x", headers=[("a", 1)]), "the value of a header is bytes, or text for its UTF-8, not int"),  # type: ignore[list-item]
        (lambda: Record("x", headers=[("a", None)]), "the value of a header is bytes, or text for its UTF-8, not NoneType"),  # type: ignore[list-item]
        (lambda: Record("x", headers=[(b"a", b"")]), r"a header is \(str, bytes\), not \(bytes, bytes\)"),  # type: ignore[list-item]
        (lambda: Record("x", headers=[("\ud800", b"")]), "a header name is not valid Unicode"),
        (lambda: Record("x", headers=5), "headers are a list"),  # type: ignore[arg-type]
        (lambda: Record("x", headers=[5]), "headers are a list"),  # type: ignore[list-item]
        (lambda: Record("x", headers={"ab": b"1"}), "headers are a list"),  # type: ignore[arg-type]
        (lambda: Record("x", headers=[("a", b"1"), "ab"]), "headers are a list"),  # type: ignore[list-item]
        (lambda: Record("x", timestamp_ms=-1), "timestamp_ms is -1; allowed are 0 to"),
        (lambda: Record("x", timestamp_ms=2**63), "timestamp_ms is 9223372036854775808"),
        (lambda: Record("x", timestamp_ms=True), "timestamp_ms is an int"),
        (lambda: record_size(1), "not int"),  # type: ignore[arg-type]
        (lambda: encode_values([], now_ms=0), "a batch of 0 records; allowed are 1 to 1048576"),
        (lambda: encode_records([], now_ms=0), "a batch of 0 records; allowed are 1 to 1048576"),
        (lambda: encode_values([b""] * (2**20 + 1), now_ms=0), "a batch of 1048577 records; allowed are 1 to 1048576"),
        (lambda: encode_values([b"", 3], now_ms=0), "a value is bytes, str or None, not int"),  # type: ignore[list-item]
        (lambda: encode_values([b""], keys=[[]], now_ms=0), "a key is bytes, str or None, not list"),  # type: ignore[list-item]
        (lambda: encode_values([b""], keys=[], now_ms=0), "1 values beside a column of 0"),
        (lambda: encode_values(["\ud800"], now_ms=0), "not valid Unicode"),
        (lambda: encode_values(["a"], keys=["\ud800"], now_ms=0), "not valid Unicode"),
        (lambda: encode_values([b"", b""], timestamps_ms=[0, 2**63], now_ms=0), "timestamp_ms is 9223372036854775808"),
        (lambda: encode_values([b"", b""], timestamps_ms=[0, True], now_ms=0), "timestamp_ms is an int"),
        (lambda: encode_values([b""], now_ms=-1), "timestamp_ms is -1"),
        (lambda: encode_values([b""], now_ms=0, compression="zip"), "compression is 'zip'"),  # type: ignore[arg-type]
    ],
)
def test_what_is_not_allowed_is_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()


def test_a_batch_beyond_the_format_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(r, "LENGTH_MAX", 300)
    with pytest.raises(UsageError, match="at most 300"):
        encode_values([b"x" * 300], now_ms=0)


# -------------------------------------------------------------------------------------------------------- round trips

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
CELLS = st.none() | st.binary(max_size=40) | TEXTS
HEADERS = st.lists(st.tuples(TEXTS, st.binary(max_size=10)), max_size=3)
RECORDS = st.builds(Record, CELLS, CELLS, HEADERS, st.none() | st.integers(0, 2**63 - 1))


@given(st.lists(RECORDS, min_size=1, max_size=40), st.sampled_from([None, "lz4"]))
def test_what_goes_in_comes_out(records: list[Record], compression: Any) -> None:
    batch = stored(encode_records(records, now_ms=77, compression=compression, producer_id=9, producer_epoch=1, base_sequence=5))
    read = decode_records(batch, "orders", 3)
    assert [(x.value, x.key, x.headers) for x in read] == [(x.value, x.key, x.headers) for x in records]
    assert [x.timestamp_ms for x in read] == [77 if x.timestamp_ms is None else x.timestamp_ms for x in records]
    assert [x.offset for x in read] == list(range(100, 100 + len(records)))
    assert {(x.topic, x.partition, x.leader_epoch) for x in read} == {("orders", 3, 4)}
    times = [x.timestamp_ms for x in read]
    assert (batch.count, batch.base_timestamp_ms, batch.max_timestamp_ms) == (len(records), min(times), max(times))  # type: ignore[type-var]
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (9, 1, 5)
    reader = BatchReader(batch)
    assert [(reader.value(i), reader.key(i)) for i in range(len(reader))] == [(x.value, x.key) for x in read]


def test_values_alone_and_records_give_the_same_bytes() -> None:
    assert encode_values([b"a", b"b"], now_ms=5) == encode_records([Record(b"a"), b"b"], now_ms=5)
    assert encode_values([b"a"], now_ms=5) == encode_values([b"a"], keys=[None], timestamps_ms=[5], headers=[()], now_ms=99)
    assert encode_values(["ä", None], now_ms=5, checked=True) == encode_values(("ä", None), now_ms=5)
    assert BatchReader(RecordBatch(encode_values([bytearray(b"a"), "b"], now_ms=5))).values() == [b"a", b"b"]  # type: ignore[list-item]


@pytest.mark.parametrize("count", [1, 15, 16, 65_535, 65_536])
def test_every_width_of_an_array_header(count: int) -> None:
    values = [b"%d" % i for i in range(count)]
    reader = BatchReader(RecordBatch(encode_values(values, now_ms=5)))
    assert reader.values() == values
    assert reader.value(count - 1) == values[-1]
    for outside in (-1, count):
        with pytest.raises(IndexError, match=f"record {outside} of a batch of {count}"):
            reader.value(outside)


def test_compression_is_used_only_if_it_pays() -> None:
    small = RecordBatch(encode_values([b"abc" * 100] * 10, now_ms=5, compression="lz4"))
    noise = RecordBatch(encode_values([bytes((i * i * 31 + i // 7) % 256 for i in range(300))], now_ms=5, compression="lz4"))
    assert (small.codec, noise.codec) == (r.CODEC_LZ4, r.CODEC_NONE)
    assert small.length < 200
    assert BatchReader(small).values() == [b"abc" * 100] * 10


def test_a_large_payload_is_never_compressed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replog.payload.COMPRESSIBLE_BYTES_MAX", 500)
    for size, codec in ((400, r.CODEC_LZ4), (500, r.CODEC_NONE)):
        assert RecordBatch(encode_values([b"a" * size], now_ms=5, compression="lz4")).codec == codec


def test_the_extension_is_carried_and_the_bits_are_kept() -> None:
    batch = RecordBatch(encode_values([b"x"], now_ms=5, extension=b"key:1", attributes=r.GROUP_OPEN_BIT | r.CONTROL_BIT))
    assert (batch.extension, batch.is_control, bool(batch.attributes & r.GROUP_OPEN_BIT)) == (b"key:1", True, True)
    assert BatchReader(batch).values() == [b"x"]
    with pytest.raises(AssertionError, match="codec or the format"):
        encode_values([b"x"], now_ms=5, attributes=1)


def test_another_producer_identity_keeps_the_records() -> None:
    old = encode_values([b"x", b"y"], now_ms=5, producer_id=1, producer_epoch=0, base_sequence=9, extension=b"e")
    new = r.with_producer(old, producer_id=1, producer_epoch=1, base_sequence=0)
    assert new == encode_values([b"x", b"y"], now_ms=5, producer_id=1, producer_epoch=1, base_sequence=0, extension=b"e")
    stored(new)


def test_records_that_were_read_compare_hash_and_copy() -> None:
    body = encode_records([Record("x", key="k", headers=[("h", b"1")], timestamp_ms=5)], now_ms=0)
    (one,), (two,) = decode_records(stored(body), "t", 0), decode_records(stored(body), "t", 0)
    (other,) = decode_records(stored(body, base_offset=101), "t", 0)
    assert one == two != other
    assert one != Record("x", key="k", headers=[("h", b"1")], timestamp_ms=5)
    assert one != "x"
    assert len({one, two, other}) == 2
    assert copy.deepcopy(one) == one
    assert repr(one) == "Record(t-0@100, key=b'k', value=b'x', headers=1, timestamp_ms=5)"


# ------------------------------------------------------------------------------------------------------- hostile bytes


def every_field(batch: RecordBatch) -> None:
    decode_records(batch)


PACK = msgpack.packb


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (body_of(b"", 1), "at least 16 bytes"),
        (body_of(columns(PACK([b"x"])) + b"!", 1), "in a payload of"),
        (body_of(DIRECTORY.pack(2**32 - 1, 0, 0, 0), 1), "in a payload of"),
        (body_of(columns(b""), 1), "1 records in a column of 0 bytes"),
        (body_of(columns(PACK([b"x"])), 0), "0 records"),
        (body_of(columns(PACK([b"x"])), 2**32 - 1), "a batch of 4294967295 records; allowed are 1 to 1048576"),
        (body_of(columns(PACK([b"x"])), 2**20), "1048576 records in a column of 4 bytes"),
        (body_of(b"", 2**20 + 1, attributes=1), "a batch of 1048577 records"),
        (body_of(columns(PACK([b"x"])), 2), "no array of 2 cells"),
        (body_of(columns(b"\xdd\x00\x00\x00\x01\xc0"), 1), "no array of 1 cells"),
        (body_of(columns(PACK([b"x", b"y"]).replace(b"\x92", b"\x91")), 1), "or bytes behind them"),
        (body_of(columns(PACK([b"x"]) + b"\xc4"), 1), "or bytes behind them"),
        (body_of(columns(PACK([b"xyz"])[:-1]), 1), "0 cells for 1 records"),
        (body_of(columns(PACK([1])), 1), "a cell that is not bytes"),
        (body_of(columns(PACK([[]])), 1), "a cell that is not bytes"),
        (body_of(columns(PACK([[b"x"]])), 1), "exceeds max_array_len"),
        (body_of(columns(PACK([{1: 2}])), 1), "exceeds max_map_len"),
        (body_of(columns(PACK([msgpack.ExtType(5, b"x")])), 1), "exceeds max_ext_len"),
        (body_of(columns(b"\x91\xc1"), 1), "values: "),
        (body_of(columns(PACK([b"x"]), PACK([1])), 1), "keys: a cell that is not bytes"),
        (body_of(columns(PACK([b"x"]), b"", PACK([b"1"])), 1), "timestamps: a cell that is not int"),
        (body_of(columns(PACK([b"x"]), b"", PACK([True])), 1), "timestamps: a cell that is not int"),
        (body_of(columns(PACK([b"x"]), b"", PACK([None])), 1), "a timestamp outside"),
        (body_of(columns(PACK([b"x"]), b"", PACK([1])), 1), "a timestamp outside 0 to 0"),
        (body_of(columns(PACK([b"x"]), b"", PACK([-1])), 1, base=5, last=9), "a timestamp outside 5 to 9"),
        (body_of(columns(PACK([b"x"])), 1, base=9, last=5), "timestamps from 9 to 5"),
        (body_of(columns(PACK([b"x"])), 1, base=-2, last=5), "timestamps from -2 to 5"),
        (body_of(columns(PACK([b"x"]), b"", b"", PACK([5])), 1), "headers: a cell that is not bytes"),
        (body_of(columns(PACK([b"x"]), b"", b"", PACK([PACK("n")])), 1), "pairs of a name and bytes"),
        (body_of(columns(PACK([b"x"]), b"", b"", PACK([PACK(b"\xff") + PACK(b"v")])), 1), "headers: "),
        (body_of(columns(PACK([b"x"]), b"", b"", PACK([PACK(1) + PACK(b"v")])), 1), "headers: "),
        (body_of(columns(PACK([b"x"]), b"", b"", PACK([PACK("n") + PACK(1)])), 1), "pairs of a name and bytes"),
        (body_of(columns(PACK([b"x"]), b"", b"", PACK([PACK("n") + PACK([b"v"])])), 1), "headers: "),
        (body_of(columns(PACK([b"x"]), b"", b"", PACK([PACK("n") + PACK("v") + b"\xc4"])), 1), "headers: "),
        (body_of(columns(PACK([b"x"])), 1, attributes=2), "compression codec 2"),
        (body_of(columns(PACK([b"x"])), 1, attributes=1 << 3), "payload format 1"),
        (body_of(columns(PACK([b"x"])), 1, extension_bytes=5_000), "extension of 5000 bytes"),
        (body_of(b"", 1, attributes=1), "at least 5 bytes"),
        (body_of(pack("<I", 2**32 - 1) + b"x" * 50, 1, attributes=1), "allowed are 67108864"),
        (body_of(pack("<I", 2**26) + b"x" * 50, 1, attributes=1), "54 compressed bytes cannot hold the 67108864"),
        (body_of(pack("<I", 100) + b"\xff" * 50, 1, attributes=1), "does not decompress"),
        (body_of(pack("<I", 99) + lz4.block.compress(b"a" * 100, store_size=False), 1, attributes=1), "does not decompress"),
        (body_of(pack("<I", 101) + lz4.block.compress(b"a" * 100, store_size=False), 1, attributes=1), "100 bytes and claims 101"),
    ],
)
def test_a_hostile_payload_is_a_bad_batch(batch: RecordBatch, message: str) -> None:
    with pytest.raises(BadBatch, match=message):
        every_field(batch)


def test_a_short_body_is_a_bad_batch() -> None:
    with pytest.raises(BadBatch, match="at least 44 bytes, this one 43"):
        RecordBatch(b"\0" * 43)


def test_one_field_is_checked_like_all() -> None:
    for cells, message in ((PACK([1]), "not bytes"), (PACK([[b"x"]]), "exceeds"), (b"\x91\xc4", "values: ")):
        with pytest.raises(BadBatch, match=message):
            BatchReader(body_of(columns(cells), 1)).value(0)


def test_the_limit_of_a_reader_holds_before_it_decompresses() -> None:
    batch = RecordBatch(encode_values([b"a" * 10_000], now_ms=5, compression="lz4"))
    with pytest.raises(BadBatch, match="allowed are 9999"):
        decode_records(batch, payload_bytes_max=9_999)
    assert len(decode_records(batch, payload_bytes_max=10_100)) == 1


@pytest.mark.parametrize(
    ("change", "limits", "code"),
    [
        ({}, {"length_max": 100}, Code.MESSAGE_TOO_LARGE),
        ({}, {"records_max": 1}, Code.INVALID_RECORD),
        ({"attributes": r.CONTROL_BIT}, {}, Code.INVALID_RECORD),
        ({"attributes": r.GROUP_OPEN_BIT}, {}, Code.INVALID_RECORD),
        ({"producer_id": -2}, {}, Code.INVALID_RECORD),
        ({"producer_id": 5}, {}, Code.INVALID_RECORD),
        ({"producer_id": 5, "producer_epoch": 0}, {}, Code.INVALID_RECORD),
    ],
)
def test_a_broker_refuses_with_a_code(change: dict[str, Any], limits: dict[str, int], code: int) -> None:
    batch = RecordBatch(encode_values([b"x", b"y"], now_ms=5, **change))
    with pytest.raises(BadBatch) as caught:
        batch.check_body(**{"length_max": 1_000, "records_max": 10, **limits})
    assert caught.value.code == code


def test_a_batch_found_in_another_log_is_bad() -> None:
    batch = RecordBatch(encode_values([b"x"], now_ms=5))
    batch.stamp(P0, 0, 0)
    for other in (P0._replace(creation=2), P0._replace(partition=4), P0._replace(topic_id=b"u" * 16)):
        with pytest.raises(BadBatch, match="found in log"):
            RecordBatch.parse(batch.to_bytes(), identity=other)


@given(st.data())
def test_any_changed_byte_of_a_stored_batch_is_noticed(data: st.DataObject) -> None:
    batch = RecordBatch(encode_records([Record("x", key="k", headers=[("h", b"1")], timestamp_ms=3), "y"], now_ms=5))
    batch.stamp(P0, 7, 2)
    whole = bytearray(batch.to_bytes())
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(BadBatch):
        RecordBatch.parse(bytes(whole), identity=P0)


@given(st.data())
def test_a_batch_cut_short_is_noticed(data: st.DataObject) -> None:
    batch = RecordBatch(encode_values([b"x"] * 5, now_ms=5))
    batch.stamp(P0, 7, 2)
    whole = batch.to_bytes()
    with pytest.raises(BadBatch):
        RecordBatch.parse(whole[: data.draw(st.integers(0, len(whole) - 1))], identity=P0)


@given(st.data(), st.sampled_from([None, "lz4"]))
def test_changed_records_that_are_sealed_again_raise_only_bad_batch(data: st.DataObject, compression: Any) -> None:
    made = [Record("x" * 50, key="k", headers=[("h", b"1")], timestamp_ms=3), Record(None), Record("y" * 50)]
    rest = bytearray(encode_records(made, now_ms=5, compression=compression)[4:])
    for _ in range(data.draw(st.integers(1, 4))):
        rest[data.draw(st.integers(0, len(rest) - 1))] = data.draw(st.integers(0, 255))
    batch = RecordBatch(pack("<I", crc32c(rest)) + bytes(rest))
    with suppress(BadBatch):
        for index, each in enumerate(decode_records(batch)):
            assert {type(each.value), type(each.key)} <= {bytes, type(None)}
            assert all(type(name) is str and type(value) is bytes for name, value in each.headers)
            assert BatchReader(batch).value(index) == each.value
