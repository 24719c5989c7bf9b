"""Small inputs that claim to be large, each set off in a process of its own, which says by how much it has grown.

    python -m tests.fuzz.bombs NAME
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from struct import Struct
from typing import Any, Final

import lz4.block
from crc32c import crc32c
from msgpack import packb
from tests.fuzz.bytes_fs import BytesFs
from tests.fuzz.memory import forget_peak, peak_bytes
from tests.fuzz.sealing import batches_in, frame_sealed

from replog import messages as m
from replog.codec import HEADER, decode, encode, frame_length
from replog.config import BATCH_RECORDS_MAX, FRAME_BYTES_MAX
from replog.log.segment import Segment
from replog.log.verify import Verifier
from replog.metadata.layout import decode_topic
from replog.model import PartitionId
from replog.records import BODY_HEADER, HEADER_BYTES, RecordBatch, decode_records, stamp
from replog.testing.log_samples import FIRST, batch_of
from replog.transport.tcp import TcpLimits

__all__ = ["BOMBS"]

_U32: Final = Struct("<I")
_DIRECTORY: Final = Struct("<IIII")
FAR: Final = 2**63 - 1
GIANT: Final = 2**32 - 1


def meta(packed: bytes) -> bytes:
    """A frame of an Admin message with this meta."""
    whole = bytearray(b"".join(encode(m.Admin(1, "x", {})))[: HEADER.size] + packed)
    whole[8:12] = len(packed).to_bytes(4, "little")
    frame_sealed(whole)
    return bytes(whole)


def of_client(frame: bytes) -> Any:
    """As a broker decodes what a client says."""
    limits = TcpLimits()
    return decode(frame, meta_bytes_max=limits.client_meta_bytes_max, items_max=limits.client_items_max)


def body(plain: int, filling: bytes, *, claims: int | None = None, count: int = 1) -> bytes:
    """A compressed batch of so many bytes before compression."""
    column = (filling * (plain // len(filling) + 1))[: plain - _DIRECTORY.size]
    return compressed(_DIRECTORY.pack(len(column), 0, 0, 0) + column, plain if claims is None else claims, count)


def compressed(plain: bytes, claims: int, count: int) -> bytes:
    """A batch of so many records with this payload, which claims to have so many bytes."""
    payload = _U32.pack(claims) + lz4.block.compress(plain, store_size=False)
    header = BODY_HEADER.pack(0, 1, 0, count, 0, 0, -1, -1, -1)[4:]
    return _U32.pack(crc32c(header + payload)) + header + payload


def far_batches() -> bytes:
    """A segment whose offsets run over the largest there is."""
    batch = batch_of(["a"])
    batch.stamp(FIRST, FAR, 0)
    first = batch.to_bytes()
    changed = bytearray(first)
    _U32.pack_into(changed, HEADER_BYTES - 40, GIANT)  # the count of records
    crc = crc32c(bytes(changed[52:]))
    _U32.pack_into(changed, 48, crc)
    changed[:48] = stamp(FIRST, FAR, 0, len(changed), crc)
    return bytes(changed)


def walk(data: bytes) -> Any:
    """As recovery does; refused is what it does not believe."""
    stop = Verifier(BytesFs(data), FIRST, 100, lambda header: None).run(Segment("s", FAR), 1, len(data), -1)
    if stop.reason:
        raise ValueError(stop.reason)
    return stop


def long_claim() -> bytes:
    """A segment with a batch that says it has 4 GiB."""
    data = bytearray(batch_of(["a"]).body)
    whole = bytearray(stamp(FIRST, 0, 0, GIANT, 0)) + data
    batches_in(whole)
    return bytes(whole)


def topic(data: bytes) -> Any:
    """As a controller reads the store."""
    return decode_topic("/x", data)


def records(data: bytes) -> Any:
    """As a reader does."""
    return decode_records(RecordBatch(data))


def headers(count: int, each: int) -> bytes:
    """So many records without a value, each with so many headers without name and value."""
    values = packb([None] * count)
    column = packb([b"\xa0" * (2 * each)] * count)
    plain = _DIRECTORY.pack(len(values), 0, 0, len(column)) + values + column
    return compressed(plain, len(plain), count)


def column_of_nothing(count: int) -> bytes:
    """A batch of so many records without a value."""
    column = b"\xdd" + count.to_bytes(4, "big") + b"\xc0" * count
    return body(len(column) + _DIRECTORY.size, column, count=count)


BOMBS: Final[dict[str, tuple[Callable[[], bytes], Callable[[bytes], Any]]]] = {
    "lz4: as much as is allowed, at ratio 255": (lambda: body(FRAME_BYTES_MAX, b"\0"), records),
    "lz4: more than is allowed": (lambda: body(FRAME_BYTES_MAX + 1, b"\0"), records),
    "lz4: claims 4 GiB": (lambda: body(1_000, b"\0", claims=GIANT), records),
    "lz4: claims what its bytes cannot hold": (lambda: body(1_000, b"\0", claims=FRAME_BYTES_MAX), records),
    "lz4: a record more than a batch may have": (lambda: column_of_nothing(BATCH_RECORDS_MAX + 1), records),
    "lz4: 4 million records in 16 kB": (lambda: column_of_nothing(4_000_000), records),
    "lz4: as many records as bytes are allowed": (lambda: column_of_nothing(FRAME_BYTES_MAX - 21), records),
    "headers: 33 million of one record": (lambda: headers(1, FRAME_BYTES_MAX // 2 - 21), records),
    "headers: 33 million of many records": (lambda: headers(3_300, 10_000), records),
    "lz4: nested arrays inside": (lambda: body(1 << 20, b"\x91"), records),
    "msgpack: 1,024 levels": (lambda: meta(b"\x94\x01\xa1v" + b"\x91" * 1_024 + b"\xc0\xc0"), of_client),
    "msgpack: 100,000 levels": (lambda: meta(b"\x94\x01\xa1v" + b"\x81\x01" * 100_000 + b"\xc0"), of_client),
    "msgpack: an array of 4 Gi": (lambda: meta(b"\x94\x01\xa1v\xdd\xff\xff\xff\xff"), of_client),
    "msgpack: a map of 4 Gi": (lambda: meta(b"\x94\x01\xa1v\xdf\xff\xff\xff\xff"), of_client),
    "msgpack: text of 4 GiB": (lambda: meta(b"\x94\x01\xdb\xff\xff\xff\xff"), of_client),
    "msgpack: bytes of 4 GiB": (lambda: meta(b"\x94\x01\xc6\xff\xff\xff\xff"), of_client),
    "msgpack: an extension of 4 GiB": (lambda: meta(b"\x94\x01\xa1v\xc9\xff\xff\xff\xff\x01"), of_client),
    "msgpack: a number of 2^63": (lambda: meta(b"\x94\xcf\x80\0\0\0\0\0\0\0\xa1v\x80\xc0"), of_client),
    "msgpack: 60 million lists": (lambda: meta(b"\x94\x01\xa1v\x81\xa1k\xdd\x03\x93\x87\x00" + b"\x90" * 60_000_000 + b"\xc0"), of_client),
    "frame: 4 GiB": (lambda: b"\xff" * 16, frame_length),
    "frame: a meta of 4 GiB": (lambda: _U32.pack(20) + b"\x01\x00\x17\x00" + b"\xff" * 16, decode),
    "frame: a batch of 4 GiB": (lambda: meta_of_produce(GIANT), decode),
    "segment: a batch of 4 GiB": (long_claim, walk),
    "segment: offsets beyond 2^63": (lambda: far_batches() * 2, walk),
    "store: nested objects": (lambda: b'{"version":1,"a":' * 100_000, topic),
    "store: nested lists": (lambda: b"[" * 1_000_000, topic),
    "store: a number of a million digits": (lambda: b'{"version":' + b"9" * 1_000_000 + b"}", topic),
}
"""What is made of bytes, and whoever must refuse them."""


def meta_of_produce(length: int) -> bytes:
    """A frame of a Produce message whose batch claims to have so many bytes."""
    whole = bytearray(b"".join(encode(m.Produce(-1, 1, [m.ProduceEntry(1, PartitionId(b"t" * 16, 0, 0), b"")]))))
    packed = packb([-1, 1, [[1, [b"t" * 16, 0, 0], length]]])
    whole[HEADER.size :] = packed
    whole[8:12] = len(packed).to_bytes(4, "little")
    frame_sealed(whole)
    return bytes(whole)


def main(name: str) -> None:
    """Give the bytes on stdin to a decoder; print its error, and the growth in bytes beyond them."""
    data = sys.stdin.buffer.read()
    forget_peak()
    before = peak_bytes()
    try:
        BOMBS[name][1](data)
        said = "nothing"
    except Exception as problem:
        said = type(problem).__name__
    print(said, peak_bytes() - before)


if __name__ == "__main__":
    main(sys.argv[1])
