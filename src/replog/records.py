"""Records and batches: the one format that producers encode, brokers store untouched, and consumers decode.

A batch is a *front* of 48 bytes, which the leader stamps, and a *body*, which the producer made and nobody ever
changes. Little endian, no padding::

    front   ┌────────┬───┬───┬────────────┬──────────────────┬───────────┬──────────┐
            │ magic  │ver│ 0 │ length     │ topic id         │ partition │ creation │
       0    │ 2      │ 1 │ 1 │ u32        │ 16 bytes         │ u32       │ u32      │
            ├────────┴───┴───┴────────────┼──────────────────┼───────────┴──────────┘
      32    │ base offset  i64            │ leader epoch i32 │ header crc u32
            └─────────────────────────────┴──────────────────┘
    body    ┌────────────┬────────────┬──────────────┬──────────────────┬──────────────────┐
      48    │ payload crc│ attributes │ ext. length  │ record count     │ base timestamp   │
            │ u32        │ u16        │ u16          │ u32              │ i64              │
            ├────────────┴────────────┴──────────────┼──────────────────┴──┬───────────────┤
      68    │ max timestamp  i64                     │ producer id  i64    │ producer epoch│ i32
      88    │ base sequence  i32                     │ extension ...       │ payload ...
            └────────────────────────────────────────┴─────────────────────┘

* `length` counts the whole batch, front included.
* `payload crc` is crc32c over everything behind itself (body from byte 4 on): the producer computes it once, and it
  is never recomputed.
* `header crc` is crc32c over front bytes 0 to 43 and the payload crc: it binds the payload to *this* place of *this*
  log, so that a misplaced or stale write is detected although its payload is intact (RELIABILITY: misdirected write).
* `attributes`: bits 0-2 codec (0 none, 1 lz4), bits 3-5 payload format (0 columns: `replog.payload`), bit 6 control batch,
  bit 7: more batches of its group follow. The extension is the mark of a writer (`replog.marks`), opaque here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from struct import Struct
from typing import Final, Literal, NamedTuple, Unpack

from crc32c import crc32c

from replog import payload as columns
from replog.config import BATCH_HEADERS_MAX, BATCH_RECORDS_MAX, RECORD_HEADERS_MAX
from replog.errors import Code, UsageError
from replog.model import PartitionId
from replog.payload import BadBatch, Framing, Record, as_headers, record_size
from replog.payload_check import check_possible

__all__ = [
    "BODY_HEADER",
    "EXTENSION_FRONT",
    "FRONT_BYTES",
    "HEADER_BYTES",
    "HEAD_BYTES",
    "MAGIC",
    "UNBOUNDED",
    "VERSION",
    "BadBatch",
    "BatchHeader",
    "BatchReader",
    "Framing",
    "Record",
    "RecordBatch",
    "decode_records",
    "encode_records",
    "encode_values",
    "read_header",
    "record_size",
    "sealed",
    "stamp",
    "with_producer",
]

MAGIC: Final = 0x4C52  # "RL"
VERSION: Final = 1

FRONT: Final = Struct("<HBBI16sIIqi")  # everything of the front before its crc: 44 bytes
_WHOLE_FRONT: Final = Struct("<HBBI16sIIqiI")  # with its crc
BODY_HEADER: Final = Struct("<IHHIqqqii")
_U32: Final = Struct("<I")
FRONT_BYTES: Final = FRONT.size + 4
HEADER_BYTES: Final = FRONT_BYTES + BODY_HEADER.size
EXTENSION_FRONT: Final = 20
HEAD_BYTES: Final = HEADER_BYTES + EXTENSION_FRONT  # so much is read for a header: the extension's front tells what a mark is worth

CODEC_MASK: Final = 0b0000_0111
CODEC_NONE: Final = 0
CODEC_LZ4: Final = 1
FORMAT_MASK: Final = 0b0011_1000
FORMAT_SHIFT: Final = 3
FORMAT_COLUMNS: Final = 0
_LAYOUTS: Final = frozenset(FORMAT_COLUMNS << FORMAT_SHIFT | codec for codec in (CODEC_NONE, CODEC_LZ4))
CONTROL_BIT: Final = 1 << 6
GROUP_OPEN_BIT: Final = 1 << 7  # readers see a group whole, or not at all

NO_PRODUCER: Final = -1
NO_SEQUENCE: Final = -1
LENGTH_MAX: Final = 2**31 - 1
"""Largest batch that can be written; a topic allows far less."""
UNBOUNDED: Final = {"records_max": LENGTH_MAX, "record_headers_max": LENGTH_MAX, "headers_max": LENGTH_MAX}
"""Limits of a `BatchReader` that shows what lies here, whatever its number."""
_PAYLOAD_MAX: Final = columns.COMPRESSIBLE_BYTES_MAX


class BatchHeader(NamedTuple):
    """What the 92 bytes in front of a stored batch say, and the front of its extension; read without touching its payload."""

    length: int
    identity: PartitionId
    base_offset: int
    leader_epoch: int
    header_crc: int
    payload_crc: int
    attributes: int
    extension_bytes: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    extension_front: bytes = b""
    """The first EXTENSION_FRONT bytes of the extension: `replog.marks` goes by them."""

    @property
    def end_offset(self) -> int:
        """Offset after the last record (exclusive)."""
        return self.base_offset + self.count


class RecordBatch:
    """One batch: the unit of appending, checking, replicating and acknowledging.

    `body` is shared, never copied and never changed; `front` is empty until a leader stamps the batch.
    """

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp_ms",
        "body",
        "count",
        "extension_bytes",
        "front",
        "identity",
        "leader_epoch",
        "length",
        "max_timestamp_ms",
        "payload_crc",
        "producer_epoch",
        "producer_id",
    )

    payload_crc: int
    attributes: int
    extension_bytes: int
    count: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int

    def __init__(self, body: bytes | memoryview) -> None:
        """Read the header of a producer's body. Nothing is verified here: `check_body` does that, once, at the door."""
        self.body = body
        self.front = b""
        self.identity: PartitionId | None = None
        self.base_offset = -1
        self.leader_epoch = -1
        self.length = FRONT_BYTES + len(body)
        try:
            (
                self.payload_crc,
                self.attributes,
                self.extension_bytes,
                self.count,
                self.base_timestamp_ms,
                self.max_timestamp_ms,
                self.producer_id,
                self.producer_epoch,
                self.base_sequence,
            ) = BODY_HEADER.unpack_from(body)
        except Exception:
            raise BadBatch(f"a batch body has at least {BODY_HEADER.size} bytes, this one {len(body)}") from None

    def check_body(self, *, length_max: int, records_max: int) -> None:
        """Raise BadBatch unless the body is well formed, within its limits, matches its checksum, has a header that readers take, and a
        payload that can be what that says (`payload_check`)."""
        if self.length > length_max:
            raise BadBatch(f"batch of {self.length} bytes; the topic allows {length_max}", Code.MESSAGE_TOO_LARGE)
        if not 1 <= self.count <= records_max:
            raise BadBatch(f"batch of {self.count} records; allowed are 1 to {records_max}", Code.INVALID_RECORD)
        if self.extension_bytes > len(self.body) - BODY_HEADER.size:
            raise BadBatch(f"extension of {self.extension_bytes} bytes in a body of {len(self.body)}")
        if self.producer_id < NO_PRODUCER or (self.producer_id >= 0 and (self.producer_epoch < 0 or self.base_sequence < 0)):
            raise BadBatch(
                f"producer {self.producer_id} with epoch {self.producer_epoch} and sequence {self.base_sequence}", Code.INVALID_RECORD
            )
        if self.attributes & (CONTROL_BIT | GROUP_OPEN_BIT):
            raise BadBatch(f"attributes {self.attributes:#06x}: control and group bits are the log's own", Code.INVALID_RECORD)
        if crc32c(memoryview(self.body)[4:]) != self.payload_crc:
            raise BadBatch("the batch does not match its payload checksum")
        # No reader could decode it once it is stored. Looked at last: bytes that changed on the way are none of the writer's.
        self.check_layout()
        check_possible(self.body, BODY_HEADER.size + self.extension_bytes, self.count, is_compressed=self.codec == CODEC_LZ4)
        if not 0 <= self.base_timestamp_ms <= self.max_timestamp_ms:
            raise BadBatch(f"timestamps from {self.base_timestamp_ms} to {self.max_timestamp_ms}", Code.INVALID_TIMESTAMP)

    def check_layout(self) -> None:
        """Raise BadBatch if the payload is of a format, or compressed by a codec, that there is not."""
        if self.attributes & (FORMAT_MASK | CODEC_MASK) in _LAYOUTS:
            return
        if (layout := (self.attributes & FORMAT_MASK) >> FORMAT_SHIFT) != FORMAT_COLUMNS:
            raise BadBatch(f"payload format {layout}; this library reads {FORMAT_COLUMNS}", Code.INVALID_RECORD)
        if self.codec not in (CODEC_NONE, CODEC_LZ4):
            raise BadBatch(f"compression codec {self.codec}; this library reads {CODEC_NONE} and {CODEC_LZ4}", Code.INVALID_RECORD)

    @property
    def end_offset(self) -> int:
        """Offset after the last record (exclusive)."""
        return self.base_offset + self.count

    @property
    def codec(self) -> int:
        """How the payload is compressed: CODEC_NONE or CODEC_LZ4."""
        return self.attributes & CODEC_MASK

    @property
    def is_control(self) -> bool:
        """A batch of the log itself, never shown to a reader."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def extension(self) -> bytes:
        """The mark of a writer; empty for most."""
        return bytes(self.body[BODY_HEADER.size : BODY_HEADER.size + self.extension_bytes])

    @property
    def extension_front(self) -> bytes:
        """As of a `BatchHeader`."""
        return self.extension[:EXTENSION_FRONT]

    @property
    def payload(self) -> memoryview:
        """The (possibly compressed) records."""
        return memoryview(self.body)[BODY_HEADER.size + self.extension_bytes :]

    def stamp(self, identity: PartitionId, base_offset: int, leader_epoch: int) -> None:
        """Give the batch its place: a new front, so that a body in use elsewhere is not touched."""
        self.identity = identity
        self.base_offset = base_offset
        self.leader_epoch = leader_epoch
        self.front = stamp(identity, base_offset, leader_epoch, self.length, self.payload_crc)

    def to_bytes(self) -> bytes:
        """The batch as stored and sent."""
        return b"".join((self.front, self.body))

    @classmethod
    def parse(cls, data: bytes | memoryview, at: int = 0, *, identity: PartitionId | None = None) -> RecordBatch:
        """The stored batch at `at`, fully verified: shape, both checksums, and (if given) the log it belongs to.

        Raises BadBatch. `data` may hold more batches behind it; the next one starts at `at + batch.length`.
        """
        view = memoryview(data)
        if len(view) - at < HEADER_BYTES:
            raise BadBatch(f"a batch has at least {HEADER_BYTES} bytes, {max(0, len(view) - at)} are here")
        magic, version, _, length, topic_id, partition, creation, base_offset, leader_epoch, header_crc = _WHOLE_FRONT.unpack_from(view, at)
        stop = at + length
        if magic != MAGIC or version != VERSION or length < HEADER_BYTES or stop > len(view):
            read_header(view, at)  # says what is wrong, unless it is only that the end is missing
            raise BadBatch(f"batch of {length} bytes, {len(view) - at} are here")
        batch = cls(view[at + FRONT_BYTES : stop])
        front = bytes(view[at : at + FRONT_BYTES])
        if crc32c(_U32.pack(batch.payload_crc), crc32c(front[: FRONT.size])) != header_crc or batch.count < 1 or base_offset < 0:
            read_header(view, at)
            raise BadBatch("the batch header does not match its checksum")
        batch.identity = identity or PartitionId(topic_id, partition, creation)  # one for all that are kept
        if identity is not None and (topic_id, partition, creation) != identity:
            raise BadBatch(f"batch of log {PartitionId(topic_id, partition, creation)!r} found in log {identity!r}")
        if batch.extension_bytes > length - HEADER_BYTES:
            raise BadBatch(f"extension of {batch.extension_bytes} bytes in a batch of {length}")
        if crc32c(batch.body[4:]) != batch.payload_crc:
            raise BadBatch(f"the batch at offset {base_offset} does not match its payload checksum")
        batch.base_offset = base_offset
        batch.leader_epoch = leader_epoch
        batch.front = front
        return batch

    def __repr__(self) -> str:
        return f"RecordBatch([{self.base_offset}, {self.end_offset}) epoch {self.leader_epoch}, {self.length} bytes)"


def stamp(identity: PartitionId, base_offset: int, leader_epoch: int, length: int, payload_crc: int) -> bytes:
    """The 48 bytes in front of a body: where it lives, bound to its payload by the header checksum."""
    topic_id, partition, creation = identity
    front = FRONT.pack(MAGIC, VERSION, 0, length, topic_id, partition, creation, base_offset, leader_epoch)
    return front + _U32.pack(crc32c(_U32.pack(payload_crc), crc32c(front)))


def read_header(data: bytes | memoryview, at: int = 0) -> BatchHeader:
    """The header of the stored batch at `at`, verified by its own checksum. Raises BadBatch; the payload is not read."""
    if len(data) - at < HEADER_BYTES:
        raise BadBatch(f"a batch has at least {HEADER_BYTES} bytes, {max(0, len(data) - at)} are here")
    magic, version, _, length, topic_id, partition, creation, base_offset, leader_epoch = FRONT.unpack_from(data, at)
    if magic != MAGIC:
        raise BadBatch(f"no batch starts here (magic {magic:#06x})")
    (header_crc,) = _U32.unpack_from(data, at + FRONT.size)
    body = BODY_HEADER.unpack_from(data, at + FRONT_BYTES)
    if crc32c(_U32.pack(body[0]), crc32c(memoryview(data)[at : at + FRONT.size])) != header_crc:
        raise BadBatch("the batch header does not match its checksum")
    if version != VERSION:
        raise BadBatch(f"batch format version {version}; this library reads {VERSION}")
    if length < HEADER_BYTES or base_offset < 0 or body[3] < 1 or body[2] > length - HEADER_BYTES:
        raise BadBatch(f"impossible batch header: length {length}, base offset {base_offset}, {body[3]} records")
    front = bytes(data[at + HEADER_BYTES : at + HEADER_BYTES + min(body[2], EXTENSION_FRONT)]) if body[2] else b""
    return BatchHeader._make((length, PartitionId(topic_id, partition, creation), base_offset, leader_epoch, header_crc, *body, front))


# ------------------------------------------------------------------------------------------------------ records, encoded


def encode_records(records: Iterable[Record | bytes | str | None], *, now_ms: int, **framing: Unpack[Framing]) -> bytes:
    """A batch body with these records (bare values may be among them); records without a time get `now_ms` (wall clock).

    Raises UsageError when there are none, more than BATCH_RECORDS_MAX, more than BATCH_HEADERS_MAX headers, or when one is not allowed.
    """
    made = [record if isinstance(record, Record) else Record(record) for record in records]
    return encode_values(
        [record.value for record in made],
        keys=[record.key for record in made],
        timestamps_ms=[record.timestamp_ms for record in made],
        headers=[record._headers for record in made],
        now_ms=now_ms,
        checked=True,
        **framing,
    )


def encode_values(
    values: Sequence[bytes | str | None],
    *,
    now_ms: int,
    keys: Sequence[bytes | str | None] | None = None,
    timestamps_ms: Sequence[int | None] | None = None,
    headers: Sequence[Iterable[tuple[str, bytes | str]] | None] | None = None,
    checked: bool = False,
    **framing: Unpack[Framing],
) -> bytes:
    """A batch body from columns: the way in that makes no record objects. A missing time is `now_ms` (wall clock).

    `checked` promises that values and keys are lists of bytes, str and None: looking at each type costs half of what packing costs,
    and a producer has looked already, when it measured them. Raises UsageError like `encode_records`.
    """
    if not 1 <= len(values) <= BATCH_RECORDS_MAX:
        raise UsageError(f"a batch of {len(values)} records; allowed are 1 to {BATCH_RECORDS_MAX}")
    for column in (keys, timestamps_ms, headers):
        if column is not None and len(column) != len(values):
            raise UsageError(f"{len(values)} values beside a column of {len(column)} keys, timestamps or headers")
    if not checked:
        values = columns.checked_cells("value", values)
        keys = None if keys is None else columns.checked_cells("key", keys)
    base, last, deltas = columns.time_deltas(timestamps_ms, now_ms)
    pairs = [as_headers(each) for each in headers] if headers is not None and any(headers) else None
    if pairs is not None and (total := sum(map(len, pairs))) > BATCH_HEADERS_MAX:
        raise UsageError(f"a batch of {total} headers; allowed are {BATCH_HEADERS_MAX}")
    parts = columns.pack_columns(values, None if keys is None or keys.count(None) == len(keys) else keys, deltas, pairs)
    return _frame(parts, len(values), base, last, **framing)


def _frame(
    parts: list[columns.Buffer],
    count: int,
    base_ms: int,
    last_ms: int,
    *,
    compression: Literal["lz4"] | None = None,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    attributes: int = 0,
    extension: bytes = b"",
) -> bytes:
    if compression not in (None, "lz4"):
        raise UsageError(f"compression is {compression!r}; allowed are None and 'lz4'")
    assert not attributes & (CODEC_MASK | FORMAT_MASK), f"attributes {attributes:#x} set the codec or the format"
    size = sum(map(len, parts))
    if HEADER_BYTES + len(extension) + size > LENGTH_MAX:
        raise UsageError(f"{count} records of {size} bytes in one batch; a batch has at most {LENGTH_MAX}")
    if compression == "lz4" and (smaller := columns.compress(parts, size)) is not None:
        parts = smaller
        attributes |= CODEC_LZ4
    header = BODY_HEADER.pack(0, attributes, len(extension), count, base_ms, last_ms, producer_id, producer_epoch, base_sequence)
    return sealed([b"".join((header[4:], extension, parts[0])), *parts[1:]])


def sealed(parts: list[columns.Buffer]) -> bytes:
    """The body: a checksum over these parts, and the parts."""
    crc = 0
    for part in parts:
        crc = crc32c(part, crc)
    return b"".join((_U32.pack(crc), *parts))


def with_producer(body: bytes | memoryview, *, producer_id: int, producer_epoch: int, base_sequence: int) -> bytes:
    """The same records under another producer identity or sequence: a new body with a new checksum."""
    header = BODY_HEADER.pack(*BODY_HEADER.unpack_from(body)[:6], producer_id, producer_epoch, base_sequence)
    return sealed([header[4:], memoryview(body)[BODY_HEADER.size :]])


# ------------------------------------------------------------------------------------------------------ records, decoded


class BatchReader:
    """The records of a batch, column by column: each is decoded when it is first asked for.

    The bytes were written by somebody else: everything here raises BadBatch, and nothing else, if they are not what they claim.
    """

    __slots__ = ("_headers", "_headers_max", "_keys", "_times", "_values", "batch", "header_count")

    def __init__(
        self,
        batch: RecordBatch,
        *,
        payload_bytes_max: int = _PAYLOAD_MAX,
        records_max: int = BATCH_RECORDS_MAX,
        record_headers_max: int = RECORD_HEADERS_MAX,
        headers_max: int = BATCH_HEADERS_MAX,
    ) -> None:
        """Split the payload. `payload_bytes_max`: most bytes it may decompress to; the others: most records it may have, most headers of
        one of them, and of all."""
        self.batch = batch
        self._headers_max = record_headers_max, headers_max
        self.header_count = 0
        """Those that `headers` has made."""
        batch.check_layout()
        if batch.extension_bytes > len(batch.body) - BODY_HEADER.size:
            raise BadBatch(f"extension of {batch.extension_bytes} bytes in a body of {len(batch.body)}")
        if not 1 <= batch.count <= records_max:
            raise BadBatch(f"a batch of {batch.count} records; allowed are 1 to {records_max}")
        payload = columns.decompress(batch.payload, payload_bytes_max) if batch.codec == CODEC_LZ4 else batch.payload
        self._values, self._keys, self._times, self._headers = columns.split_columns(payload)
        if batch.count > len(self._values):
            raise BadBatch(f"{batch.count} records in a column of {len(self._values)} bytes")

    def __len__(self) -> int:
        return self.batch.count

    def value(self, index: int) -> bytes | None:
        """The value of one record, without making the others. IndexError outside the batch."""
        return self._cell(self._values, index, "values")

    def key(self, index: int) -> bytes | None:
        """The key of one record, without making the others. IndexError outside the batch."""
        return self._cell(self._keys, index, "keys") if self._keys else None

    def _cell(self, column: memoryview, index: int, what: str) -> bytes | None:
        if not 0 <= index < self.batch.count:
            raise IndexError(f"record {index} of a batch of {self.batch.count}")
        return columns.unpack_cell(column, self.batch.count, index, what)

    def values(self) -> list[bytes | None]:
        """All values."""
        return columns.unpack_column(self._values, self.batch.count, bytes, "values")

    def keys(self) -> list[bytes | None]:
        """All keys."""
        return columns.unpack_column(self._keys, self.batch.count, bytes, "keys") if self._keys else [None] * self.batch.count

    def timestamps_ms(self) -> list[int]:
        """All timestamps."""
        base, last = self.batch.base_timestamp_ms, self.batch.max_timestamp_ms
        if not 0 <= base <= last:
            raise BadBatch(f"timestamps from {base} to {last}")
        if not self._times:
            return [base] * self.batch.count
        deltas: list[int] = columns.unpack_column(self._times, self.batch.count, int, "timestamps")
        if None in deltas or min(deltas) < 0 or max(deltas) > last - base:
            raise BadBatch(f"a timestamp outside {base} to {last}")
        return [base + delta for delta in deltas]

    def headers(self) -> list[columns.Headers]:
        """All headers."""
        if not self._headers:
            return [()] * self.batch.count
        found = columns.unpack_headers(self._headers, self.batch.count, *self._headers_max)
        self.header_count = sum(map(len, found))
        return found

    def records(self, topic: str = "", partition: int = -1) -> list[Record]:
        """All records, with their place."""
        offsets = range(self.batch.base_offset, self.batch.end_offset)
        keys, headers = self.keys() if self._keys else repeat(None), self.headers() if self._headers else repeat(())
        cells = repeat(partition), offsets, self.timestamps_ms(), keys, self.values(), headers
        return list(map(columns.StoredRecord, repeat(topic), *cells, repeat(self.batch.leader_epoch)))


def decode_records(batch: RecordBatch, topic: str = "", partition: int = -1, **limits: int) -> list[Record]:
    """All records of a batch, with their place; `limits` are those of `BatchReader`. Raises BadBatch; the checksum was verified where the
    bytes came in."""
    return BatchReader(batch, **limits).records(topic, partition)
