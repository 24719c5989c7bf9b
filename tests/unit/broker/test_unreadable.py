"""Batches that are intact and that nobody can read: a leader takes none, and what is stored already stays, here and with followers."""

from __future__ import annotations

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
from replog.records import BODY_HEADER, BadBatch, RecordBatch, decode_records, encode_records
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


UNREADABLE: Final[dict[str, tuple[bytes, int]]] = {
    "a codec": (changed(attributes=2), Code.INVALID_RECORD),
    "the last codec": (changed(attributes=7), Code.INVALID_RECORD),
    "a layout": (changed(attributes=1 << 3), Code.INVALID_RECORD),
    "the last layout": (changed(attributes=7 << 3), Code.INVALID_RECORD),
    "times before 1970": (changed(base=-1), Code.INVALID_TIMESTAMP),
    "times long before 1970": (changed(base=-(2**63), last=-(2**63)), Code.INVALID_TIMESTAMP),
    "times that run backwards": (changed(base=6, last=5), Code.INVALID_TIMESTAMP),
    "a last time below 0": (changed(base=0, last=-1), Code.INVALID_TIMESTAMP),
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
    entry.slices = [MemorySlice(1, 2, stored.to_bytes())]
    assert Following(2, 5, log, LIMITS).take(entry, 0)[0] is Followed.APPENDED
    assert log.end_offset == 2


@BODIES
def test_what_is_on_disk_is_kept(body: bytes) -> None:
    disk = MemoryFs()
    directory, log = open_log(disk)
    stored = RecordBatch(body)
    stored.stamp(IDENTITY, 0, 0)
    log.append(stored)
    kill(disk, directory)
    directory, log = reopened(disk)
    assert log.end_offset == 1
    (piece,) = log.read(0, 1, 1_000)
    found = RecordBatch.parse(bytes(piece.view()), identity=IDENTITY)
    with pytest.raises(BadBatch):
        decode_records(found)
    directory.close(clean=True)
