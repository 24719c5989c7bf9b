"""The mark of a writer: what it may be, how a batch bears it, and what is refused of those that others make."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from crc32c import crc32c
from tests.unit.broker.test_publishing import Desk

from replog.codec import encode
from replog.errors import Code, UsageError
from replog.marks import (
    ATTEMPTS_MAX,
    KEY_BYTES_MAX,
    MARK_BYTES_MAX,
    VERSION_MAX,
    WriterMark,
    check_attempts,
    check_mark,
    check_writer,
    framing,
    made_ms_of,
    mark_of,
    marked,
    version_of,
    writer_id,
)
from replog.messages import Produce, Produced, ProduceEntry, Publish, StagedAttempt
from replog.model import ACKS_ALL, ACKS_NONE, PartitionId
from replog.records import CONTROL_BIT, GROUP_OPEN_BIT, BadBatch, RecordBatch, decode_records, encode_records, read_header
from replog.transport.tcp.limits import TcpLimits

PLAIN = encode_records(["a", "b"], now_ms=5)
MINE = writer_id("w")
PLACE = PartitionId(bytes(16), 0, 0)


def body(**options: Any) -> bytes:
    return encode_records(["a", "b"], now_ms=5, **options)


def bears(**changes: Any) -> dict[str, Any]:
    """The framing of version 7 of writer "w", changed."""
    return {**framing(WriterMark("w", 7)), **changes}


def forged(key: str, version: int = 7, group_offset: int = 0, made_ms: int = 0) -> dict[str, Any]:
    """What `framing` would never make: with a right checksum."""
    producer = writer_id(key), version >> 31, version & (2**31 - 1)
    front = struct.pack("<Qq", group_offset, made_ms)
    front += struct.pack("<I", crc32c(front + struct.pack("<qii", *producer)))
    named = dict(zip(("producer_id", "producer_epoch", "base_sequence"), producer, strict=True))
    return {**named, "extension": front + key.encode()}


FRONT = bears()["extension"][:20]


@pytest.mark.parametrize(
    ("key", "version", "group_offset"),
    [
        ("w", 0, 0),
        ("job-1/0", 1, 1),
        ("é" * 127, 2**31 - 1, 0),
        ("x" * KEY_BYTES_MAX, 2**31, 2**40),
        ("\0", 1_700_000_000_000_000, 3),
        ("日本", VERSION_MAX, 2**63),
    ],
)
def test_a_batch_says_what_it_was_given(key: str, version: int, group_offset: int) -> None:
    mark = WriterMark(key, version, group_offset)
    batch = RecordBatch(body(**framing(mark)))
    batch.check_body(length_max=10_000, records_max=10)
    assert mark_of(batch) == mark
    assert version_of(batch) == version
    assert batch.producer_id == writer_id(key) >= 0
    batch.stamp(PLACE, 5, 1)
    assert version_of(read_header(batch.to_bytes())) == version
    assert len(batch.extension) <= MARK_BYTES_MAX


@pytest.mark.parametrize("made_ms", [0, 1, 1_800_000_000_000, 2**53])
def test_when_it_was_made_is_told_by_headers_alone(made_ms: int) -> None:
    batch = RecordBatch(body(**framing(WriterMark("w" * 255, 7, 3, made_ms=made_ms))))
    batch.stamp(PLACE, 5, 1)
    header = read_header(batch.to_bytes()[:112])
    assert made_ms_of(header) == made_ms_of(batch) == made_ms
    with pytest.raises(BadBatch):
        made_ms_of(read_header(batch.to_bytes()[:111]))


@pytest.mark.parametrize("at", range(92, 112))
def test_a_front_that_is_damaged_tells_nothing(at: int) -> None:
    batch = RecordBatch(body(**bears()))
    batch.stamp(PLACE, 5, 1)
    stored = bytearray(batch.to_bytes())
    stored[at] ^= 1
    with pytest.raises(BadBatch, match="does not match its checksum"):
        made_ms_of(read_header(stored))


@pytest.mark.parametrize("made_ms", [-1, 2**53 + 1])
def test_a_time_that_cannot_be_is_named(made_ms: int) -> None:
    with pytest.raises(UsageError, match=f"the mark of writer 'w' was made at {made_ms} ms; allowed are 0 to 9007199254740992"):
        framing(WriterMark("w", 1, made_ms=made_ms))


@pytest.mark.parametrize(
    ("attempts", "says"),
    [
        ([], "attempts is empty"),
        ([(f"{n}", 1) for n in range(ATTEMPTS_MAX + 1)], "attempts names 10001; one publication takes 10000"),
        ([(f"{n:0200}", 1) for n in range(5_000)], "the names of 5000 attempts have 1000000 bytes; one publication takes 800000"),
        ([("a", 1), ("b", 1), ("a", 1)], "attempt 'a' is given twice"),
        ([("", 1)], "attempt '' has 0 bytes"),
        ([("é" * 128, 1)], "has 256 bytes; allowed are 1 to 255"),
        ([("\ud800", 1)], "is not valid Unicode"),
        ([("a", 0)], "attempt 'a' has 0 pieces; allowed are 1 to 1000000"),
        ([("a", 1_000_001)], "attempt 'a' has 1000001 pieces"),
    ],
)
def test_what_cannot_be_published_is_named(attempts: list[tuple[str, int]], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        check_attempts(attempts)


def test_the_longest_list_of_attempts_fits_into_a_message_of_a_client() -> None:
    attempts = [(f"{n:080}", 1_000_000) for n in range(ATTEMPTS_MAX)]
    check_attempts(attempts)
    publish = Publish(2**60, PLACE, "w" * 255, 2**61, 2**31, [StagedAttempt(*one) for one in attempts], 2**53)
    assert sum(map(len, encode(publish))) < TcpLimits().client_meta_bytes_max


def test_a_batch_without_a_mark_has_none() -> None:
    batch = RecordBatch(PLAIN)
    assert mark_of(batch) is check_mark(batch) is None


@pytest.mark.parametrize(
    ("key", "version", "says"),
    [
        ("", 0, "the key of a writer has 0 bytes; allowed are 1 to 255"),
        ("x" * 256, 0, "has 256 bytes; allowed are 1 to 255"),
        ("é" * 128, 0, "has 256 bytes; allowed are 1 to 255"),
        ("\ud800", 0, "not valid Unicode"),
        ("w", -1, "version -1 of writer 'w'; allowed are 0 to 4611686018427387903"),
        ("w", 2**62, "version 4611686018427387904 of writer 'w'; allowed are 0 to 4611686018427387903"),
    ],
)
def test_what_cannot_be_a_mark_is_named(key: str, version: int, says: str) -> None:
    for refuse in (lambda: check_writer(key, version), lambda: framing(WriterMark(key, version))):
        with pytest.raises(UsageError, match=says):
            refuse()
    with pytest.raises(UsageError, match=says):
        marked(PLAIN, WriterMark(key, version), is_last=True)


def test_writers_are_told_apart_and_the_same_everywhere() -> None:
    ids = {writer_id(f"job/{n}") for n in range(20_000)}
    assert len(ids) == 20_000
    assert all(0 <= one < 2**63 for one in ids)
    assert writer_id("job/1") == 6_279_745_981_686_343_201, "it is stored: never another one"


@pytest.mark.parametrize("compression", [None, "lz4"])
@pytest.mark.parametrize("is_last", [True, False])
def test_records_are_marked_without_touching_them(compression: Any, is_last: bool) -> None:
    given = encode_records(["value " * 40] * 9, now_ms=5, compression=compression)
    batch = RecordBatch(marked(memoryview(given), WriterMark("w", 9, 4), is_last=is_last))
    assert mark_of(batch) == WriterMark("w", 9, 4)
    assert bool(batch.attributes & GROUP_OPEN_BIT) is not is_last
    assert [record.value for record in decode_records(batch)] == [b"value " * 40] * 9
    assert bytes(batch.payload) == bytes(RecordBatch(given).payload)
    batch.stamp(PLACE, 5, 1)
    assert mark_of(RecordBatch.parse(batch.to_bytes(), 0)) == WriterMark("w", 9, 4)


@pytest.mark.parametrize("at", range(4, len(PLAIN)))
def test_damage_is_not_given_a_checksum_of_its_own(at: int) -> None:
    """What was put aside was not flushed, and nobody else has it: this is where it is noticed."""
    spoilt = bytearray(PLAIN)
    spoilt[at] ^= 4
    with pytest.raises(BadBatch):
        marked(spoilt, WriterMark("w", 9), is_last=True)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"extension": b"1234567"}, "an extension of 7 bytes that is no writer's mark"),
        ({"extension": b"x"}, "an extension of 1 bytes"),
        ({"extension": FRONT}, "the mark of writer '', 0 bytes of at most 255, under producer id"),
        ({"extension": FRONT + b"\xff"}, "an extension of 21 bytes that is no writer's mark"),
        ({"extension": FRONT + b"v"}, f"the mark of writer 'v', 1 bytes of at most 255, under producer id {MINE}"),
        ({"extension": FRONT[:-1] + b"\0w"}, "does not match its checksum"),
        ({"extension": b"key:1, of some other use"}, "does not match its checksum"),
        ({"producer_id": MINE + 1}, "does not match its checksum"),
        ({"base_sequence": 8}, "does not match its checksum"),
        ({"producer_epoch": 1}, "does not match its checksum"),
        (forged("x" * 256), "the mark of writer 'x{78}.*, 256 bytes of at most 255"),
        (forged("é" * 128), "256 bytes of at most 255"),
        (forged("x" * 60_000), "60000 bytes of at most 255"),
        (forged("w", made_ms=-1), "the mark of writer 'w' was made at -1 ms; allowed are 0 to 9007199254740992"),
        (forged("w", made_ms=2**62), "was made at 4611686018427387904 ms"),
    ],
)
def test_what_is_no_mark_is_refused(changes: dict[str, Any], says: str) -> None:
    batch = RecordBatch(body(**bears(**changes)))
    for look in (mark_of, check_mark):
        with pytest.raises(BadBatch, match=says) as caught:
            look(batch)
        assert caught.value.code == Code.INVALID_RECORD


def test_a_client_never_begins_inside_a_group() -> None:
    with pytest.raises(BadBatch, match="a batch of writer 'w' that begins 3 records into a group") as caught:
        check_mark(RecordBatch(body(**framing(WriterMark("w", 7, 3)))))
    assert caught.value.code == Code.INVALID_RECORD


@pytest.mark.parametrize(
    "changes",
    [
        {"attributes": GROUP_OPEN_BIT},
        {"attributes": CONTROL_BIT},
        {"attributes": GROUP_OPEN_BIT | CONTROL_BIT},
        {"extension": b"another use"},
        forged("x" * 256),
        forged("w", made_ms=-1),
        {"extension": bytes(7)},
        {"extension": (5).to_bytes(8, "little") + b"w"},
        {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1},
        {"producer_id": MINE + 1},
    ],
)
@pytest.mark.parametrize("acks", [ACKS_ALL, ACKS_NONE])
def test_a_broker_stores_no_batch_with_a_false_mark(changes: dict[str, Any], acks: int) -> None:
    desk = Desk()
    said = desk.tell(Produce(acks, 1_000, [ProduceEntry(1, desk.identity, body(**bears(**changes)))]))
    assert [entry.error for message in said if isinstance(message, Produced) for entry in message.entries] == (
        [Code.INVALID_RECORD] if acks == ACKS_ALL else []
    )
    assert desk.partition.log.end_offset == 0
