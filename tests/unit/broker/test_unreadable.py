"""Batches that are intact and that nobody can read: a leader takes none, and what is stored already stays, here and with followers."""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

import pytest
from crc32c import crc32c
from tests.unit.broker.test_publishing import Desk, results
from tests.unit.log.lives import IDENTITY, kill, open_log, reopened
from tests.unit.partition.copies import IDENTITY as COPY
from tests.unit.partition.copies import LIMITS, fetched, log_of

from replog.errors import Code
from replog.messages import Produce, Produced, ProduceEntry
from replog.model import ACKS_ALL, ACKS_LEADER
from replog.partition.following import Followed, Following
from replog.ports import MemorySlice
from replog.records import BODY_HEADER, FRONT_BYTES, BadBatch, RecordBatch, decode_records, encode_records, encode_values, sealed
from replog.testing.disk import MemoryFs

ATTRIBUTES, BASE, LAST = 1, 4, 5
"""Places in a body's header."""


def changed(**fields: int) -> bytes:
    """A batch of one record with another header, sealed again: what only somebody else's program makes."""
    body = encode_records(["x"], now_ms=5)
    header = list(BODY_HEADER.unpack_from(body))
    for place, value in fields.items():
        header[{"attributes": ATTRIBUTES, "base": BASE, "last": LAST}[place]] = value
    rest = BODY_HEADER.pack(*header)[4:] + body[BODY_HEADER.size :]
    return crc32c(rest).to_bytes(4, "little") + rest


def holding(payload: bytes, count: int, *, codec: int = 0) -> bytes:
    """A body with this payload, whatever that is, and the right checksum."""
    return sealed([BODY_HEADER.pack(0, codec, 0, count, 5, 5, -1, -1, -1)[4:], payload])


def columns(values: bytes, keys: bytes = b"", times: bytes = b"", headers: bytes = b"", *, beyond: int = 0) -> bytes:
    """A payload of these columns; the last is said to be longer than it is by `beyond`."""
    return DIRECTORY.pack(len(values), len(keys), len(times), len(headers) + beyond) + values + keys + times + headers


def squeezed(size: int, block: bytes) -> bytes:
    """A compressed payload that claims to be of `size` bytes."""
    return size.to_bytes(4, "little") + block


DIRECTORY: Final = Struct("<IIII")
TWO: Final = b"\x92\xc4\x01a\xc4\x01b"
"""A column of two values, or keys."""
PLAIN: Final = {
    "no payload": (b"", 1),
    "bytes that are no columns": (b"\xff" * 20, 1),
    "lengths that are cut off": (columns(TWO)[:15], 2),
    "a column that is cut off": (columns(TWO)[:-1], 2),
    "bytes behind the columns": (columns(TWO) + b"?", 2),
    "a column beyond the end": (columns(TWO, beyond=1), 2),
    "lengths that are right in 32 bits": (DIRECTORY.pack(len(TWO), 0, 2**31, 2**31) + TWO, 2),
    "no values": (columns(b"", TWO), 2),
    "values of another count": (columns(TWO), 3),
    "a count written otherwise": (columns(b"\xdc\x00\x02" + TWO[1:]), 2),
    "values that are no array": (columns(b"\xc4\x05abcde"), 2),
    "values that are a map": (columns(b"\x82" + TWO[1:]), 2),
    "more records than bytes": (columns(b"\x92\xc0"), 2),
    "many more records than bytes": (columns(b"\xdd\x00\x0f\xff\xff" + b"\xc0" * 9), 0xFFFFF),
    "keys of another count": (columns(TWO, b"\x91\xc0"), 2),
    "times of another count": (columns(TWO, b"", b"\x93\x00\x00\x00"), 2),
    "headers of another count": (columns(TWO, b"", b"", b"\x93\xc0\xc0\xc0"), 2),
    "values that are numbers": (columns(b"\x92\x01\x02"), 2),
    "values that are arrays": (columns(b"\x92\x91\xc0\xc0"), 2),
    "keys that are maps": (columns(TWO, b"\x92\x80\x80"), 2),
    "times that are text": (columns(TWO, b"", b"\x92\xa0\xa0"), 2),
    "times that are nil": (columns(TWO, b"", b"\x92\xc0\xc0"), 2),
    "headers that are numbers": (columns(TWO, b"", b"", b"\x92\x00\x00"), 2),
}
SQUEEZED: Final = {
    "no size": (b"\x14\x00\x00", 1),
    "a size without a block": (squeezed(20, b""), 1),
    "a larger size than the block can hold": (squeezed(2_000, b"x"), 2),
    "a size too small for the lengths of columns": (squeezed(15, b"x" * 8), 1),
    "a size too small for its records": (squeezed(16 + 3 + 99, b"x" * 8), 100),
}

UNREADABLE: Final[dict[str, tuple[bytes, int]]] = {
    "a codec": (changed(attributes=2), Code.INVALID_RECORD),
    "the last codec": (changed(attributes=7), Code.INVALID_RECORD),
    "a layout": (changed(attributes=1 << 3), Code.INVALID_RECORD),
    "the last layout": (changed(attributes=7 << 3), Code.INVALID_RECORD),
    "times before 1970": (changed(base=-1), Code.INVALID_TIMESTAMP),
    "times long before 1970": (changed(base=-(2**63), last=-(2**63)), Code.INVALID_TIMESTAMP),
    "times that run backwards": (changed(base=6, last=5), Code.INVALID_TIMESTAMP),
    "a last time below 0": (changed(base=0, last=-1), Code.INVALID_TIMESTAMP),
    **{name: (holding(payload, count), Code.INVALID_RECORD) for name, (payload, count) in PLAIN.items()},
    **{f"lz4: {name}": (holding(payload, count, codec=1), Code.INVALID_RECORD) for name, (payload, count) in SQUEEZED.items()},
}
BODIES = pytest.mark.parametrize("body", [body for body, _ in UNREADABLE.values()], ids=UNREADABLE)


def produced(desk: Desk, body: bytes, acks: int) -> list[tuple[int, int]]:
    said = desk.tell(Produce(acks, 1_000, [ProduceEntry(7, desk.identity, body)]))
    return [(entry.error, entry.base_offset) for answer in said if isinstance(answer, Produced) for entry in answer.entries]


@pytest.mark.parametrize(("body", "code"), UNREADABLE.values(), ids=UNREADABLE)
def test_a_leader_does_not_store_it(body: bytes, code: int) -> None:
    desk = Desk()
    for acks in (ACKS_ALL, ACKS_LEADER):
        assert produced(desk, body, acks) == [(code, -1)]
    assert results(desk.put(body=body)) == [(code, -1, -1)]
    assert desk.stages.bytes == 0
    assert desk.partition.log.end_offset == 0
    assert produced(desk, encode_records(["y"], now_ms=5), ACKS_ALL) == [(0, 0)]


@pytest.mark.parametrize("fields", [{"base": 0, "last": 0}, {"base": 5, "last": 2**63 - 1}])
def test_times_in_order_are_stored(fields: Any) -> None:
    assert produced(Desk(), changed(**fields), ACKS_ALL) == [(0, 0)]


@pytest.mark.parametrize("values", [["a"], [None], [b"x" * 300], [b"x" * 66_000], ["a"] * 15, ["a"] * 16, ["a"] * 66_000, ["", None]])
@pytest.mark.parametrize("compression", [None, "lz4"])
def test_whatever_a_client_encodes_is_taken(values: list[Any], compression: Any) -> None:
    cells: dict[str, Any] = {"keys": values, "timestamps_ms": [5 + n for n in range(len(values))], "headers": [[("h", "x")]] * len(values)}
    for given in ({}, *({name: column} for name, column in cells.items()), cells):
        body = encode_values(values, now_ms=5, compression=compression, **given)
        for held in (body, memoryview(body)):
            RecordBatch(held).check_body(length_max=len(body) + FRONT_BYTES, records_max=len(values))


def test_a_size_beyond_the_limit_is_named() -> None:
    """Here the block might hold as much."""
    for size, says in (((64 << 20) + 1, "67108865 bytes; allowed are 67108864"), (64 << 20, "")):
        body = RecordBatch(holding(squeezed(size, b"x" * 270_000), 2, codec=1))
        if not says:
            body.check_body(length_max=1 << 20, records_max=2)
            continue
        with pytest.raises(BadBatch, match=says) as caught:
            body.check_body(length_max=1 << 20, records_max=2)
        assert caught.value.code == Code.INVALID_RECORD


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("bytes that are no columns", r"columns of \(4294967295, .*\) bytes in a payload of 20"),
        ("values of another count", "values: a column of 7 bytes that is no array of 3 cells"),
        ("keys that are maps", "keys: a first cell that begins with 0x80"),
    ],
)
def test_what_is_wrong_is_named(name: str, says: str) -> None:
    with pytest.raises(BadBatch, match=says):
        RecordBatch(UNREADABLE[name][0]).check_body(length_max=1 << 20, records_max=10)


def test_bytes_that_were_changed_on_the_way_may_be_sent_again() -> None:
    """Whatever they say now: another answer would be final."""
    body = bytearray(encode_records(["x"], now_ms=5))
    for at, bit in ((4, 0x02), (12, 0x80), (19, 0x80), (27, 0x80)):  # codec, base time, its sign, the sign of the last time
        damaged = body[:]
        damaged[at] ^= bit
        assert produced(Desk(), bytes(damaged), ACKS_ALL) == [(Code.CORRUPT_MESSAGE, -1)], at


@BODIES
def test_a_follower_takes_what_its_leader_has_stored(body: bytes) -> None:
    log = log_of(("a", 1))
    stored = RecordBatch(body)
    stored.stamp(COPY, 1, 1)
    entry = fetched(5, 1)
    entry.slices = [MemorySlice(1, stored.end_offset, stored.to_bytes())]
    assert Following(2, 5, log, LIMITS).take(entry, 0)[0] is Followed.APPENDED
    assert log.end_offset == 1 + stored.count


@BODIES
def test_what_is_on_disk_is_kept(body: bytes) -> None:
    disk = MemoryFs()
    directory, log = open_log(disk)
    stored = RecordBatch(body)
    stored.stamp(IDENTITY, 0, 0)
    log.append(stored)
    kill(disk, directory)
    directory, log = reopened(disk)
    assert log.end_offset == stored.count
    (piece,) = log.read(0, stored.count, 1_000)
    found = RecordBatch.parse(bytes(piece.view()), identity=IDENTITY)
    with pytest.raises(BadBatch):
        decode_records(found)
    directory.close(clean=True)
