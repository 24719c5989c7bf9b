"""The records inside a batch: what a user hands in and gets back, and how they lie in the payload.

A payload is four columns, so that one field can be read without making the records, and each column is one bulk
msgpack call. Little endian::

    ┌───────────┬─────────┬────────────┬────────────┬────────────┬──────────┬────────────┬─────────────┐
    │ values    │ keys    │ timestamps │ headers    │ values ... │ keys ... │ timestamps │ headers ... │
    │ bytes u32 │ u32     │ u32        │ u32        │ msgpack    │ msgpack  │ ...        │             │
    └───────────┴─────────┴────────────┴────────────┴────────────┴──────────┴────────────┴─────────────┘

* A column is a msgpack array with one cell per record. A column of zero bytes is the same cell for all: no key, the
  base timestamp, no headers.
* values, keys: bin or (UTF-8) str, both read as bytes; nil is None. timestamps: ms above the batch's base timestamp.
* headers: nil, or a bin that holds name, value, name, value ... as msgpack scalars.
* A compressed payload is the length before compression (u32) and one lz4 block.

Nothing nests, so hostile bytes cannot make the reader allocate more than a few times what they weigh: msgpack
allocates an array as soon as it has read its header, and here no cell may be one. A header takes a hundred times
the two bytes that it may weigh, so headers are counted before one is made.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence, Sized
from contextlib import suppress
from itertools import islice
from struct import Struct
from typing import Any, Final, Literal, TypedDict

import lz4.block
from msgpack import Packer, Unpacker, packb
from msgpack.exceptions import UnpackException

from replog.config import HEADER_COST, RECORD_HEADERS_MAX
from replog.errors import Code, UsageError

__all__ = [
    "COMPRESSIBLE_BYTES_MAX",
    "BadBatch",
    "Framing",
    "Record",
    "StoredRecord",
    "as_bytes",
    "as_headers",
    "as_timestamp",
    "headers_size",
    "record_size",
    "too_many_headers",
]

COMPRESSIBLE_BYTES_MAX: Final = 64 << 20
"""A larger payload is stored as it is, so that no reader has to believe a larger claim about what is compressed."""

TIMESTAMP_MAX: Final = 2**63 - 1
DIRECTORY: Final = Struct("<IIII")
_U32: Final = Struct("<I")
_U16: Final = Struct(">H")  # msgpack's own numbers are big endian
_BIG_U32: Final = Struct(">I")
_SHORT_ARRAYS: Final = tuple(bytes((0x90 + count,)) for count in range(16))
_LZ4_PAYS: Final = 0.9
_LZ4_RATIO_MAX: Final = 255  # one byte of an lz4 block stands for at most this many
_NO_COLUMN: Final = memoryview(b"")
_HEADER_BYTES_MIN: Final = 2  # an empty name and an empty value

Headers = tuple[tuple[str, bytes], ...]
Buffer = bytes | memoryview


class BadBatch(ValueError):
    """The bytes are not a valid batch of this log; `code` is what a broker answers."""

    def __init__(self, message: str, code: int = Code.CORRUPT_MESSAGE) -> None:
        super().__init__(message)
        self.code = code


# ---------------------------------------------------------------------------------------------------------- a record


def check_rows(name: str, rows: object, of: str) -> Iterable[Any]:
    """Several values in an order. UsageError names what was given instead: one text, which would fall apart into characters, a mapping, of
    which only the keys would be left, or a set, which has no order.
    """
    if type(rows) is list:
        return rows
    if isinstance(rows, str | bytes | bytearray | memoryview):
        raise UsageError(f"{name} is a list of {of}, not one {type(rows).__name__}: put it into a list ({rows!r:.120} was given)")
    if not isinstance(rows, Iterable) or isinstance(rows, Mapping | set | frozenset):
        raise UsageError(f"{name} is a list of {of}, not {rows!r:.120}")
    return rows


def as_bytes(name: str, value: object) -> bytes | None:
    """A value or key as it is stored; `str` becomes UTF-8. Raises UsageError naming the type of anything else."""
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"a {name} is not valid Unicode: {error}") from None
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise UsageError(f"a {name} is bytes, str or None, not {type(value).__name__}")


def as_headers(headers: Iterable[tuple[str, bytes | str]] | None) -> Headers:
    """Headers as they are kept. Raises UsageError unless they are (str, bytes) pairs, RECORD_HEADERS_MAX at most; a `str` value becomes
    UTF-8."""
    kept: list[tuple[str, bytes]] = []
    try:
        for pair in islice(headers or (), RECORD_HEADERS_MAX + 1):
            if isinstance(pair, str):  # the key of a mapping, say: two letters are no name and value
                raise TypeError
            name, value = pair
            if type(value) is not bytes and not isinstance(value, bytes | str | bytearray | memoryview):
                raise UsageError(f"the value of a header is bytes, or text for its UTF-8, not {type(value).__name__}")
            cell = as_bytes("header value", value)
            if not isinstance(name, str) or cell is None:
                raise UsageError(f"a header is (str, bytes), not ({type(name).__name__}, {type(value).__name__})")
            as_bytes("header name", name)
            kept.append((name, cell))
    except (TypeError, ValueError):
        raise UsageError(f"headers are a list of (str, bytes) pairs, not {headers!r:.80}") from None
    if len(kept) > RECORD_HEADERS_MAX:
        raise UsageError(too_many_headers(headers))
    return tuple(kept)


def too_many_headers(headers: object) -> str:
    """What is wrong with those of one record; how many there are is not known of what can be gone through once only."""
    given = len(headers) if isinstance(headers, Sized) else f"more than {RECORD_HEADERS_MAX}"
    return f"a record with {given} headers; allowed are {RECORD_HEADERS_MAX}"


def as_timestamp(timestamp_ms: object) -> int | None:
    """A record's time in ms since 1970, or None. Raises UsageError outside [0, 2^63)."""
    if timestamp_ms is None:
        return None
    if not isinstance(timestamp_ms, int) or isinstance(timestamp_ms, bool):
        raise UsageError(f"timestamp_ms is an int (milliseconds since 1970) or None, not {timestamp_ms!r:.80}")
    if not 0 <= timestamp_ms <= TIMESTAMP_MAX:
        raise UsageError(f"timestamp_ms is {timestamp_ms}; allowed are 0 to {TIMESTAMP_MAX}")
    return timestamp_ms


class Record:
    """One record: `value` and `key` are bytes (or None), `timestamp_ms` counts from 1970.

    Of a record that was read, `topic`, `partition`, `offset` and `leader_epoch` say where it is stored; of one that is still to be
    written they are "", -1, -1 and -1, and `timestamp_ms` may be None: the time of the append. Not to be changed once made.
    """

    __slots__ = ("_headers", "key", "leader_epoch", "offset", "partition", "timestamp_ms", "topic", "value")

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    leader_epoch: int
    _headers: Headers

    def __init__(
        self,
        value: bytes | str | None,
        key: bytes | str | None = None,
        headers: Iterable[tuple[str, bytes | str]] | None = (),
        timestamp_ms: int | None = None,
    ) -> None:
        """A record to be written; a `str` is encoded as UTF-8. Raises UsageError naming what is not allowed."""
        self.topic = ""
        self.partition = self.offset = self.leader_epoch = -1
        self.value = value if type(value) is bytes else as_bytes("value", value)
        self.key = None if key is None else as_bytes("key", key)
        self._headers = as_headers(headers) if headers else ()
        self.timestamp_ms = None if timestamp_ms is None else as_timestamp(timestamp_ms)

    @property
    def headers(self) -> list[tuple[str, bytes]]:
        """Names and values in the order they were given; a name may occur more than once. A new list each time."""
        return list(self._headers)

    def text(self) -> str:
        """The value as UTF-8 text. Raises UsageError when there is no value, or when it is not text."""
        if self.value is None:
            raise UsageError(f"{self!r} has no value; look at `value` first")
        try:
            return self.value.decode()
        except UnicodeDecodeError as error:
            raise UsageError(f"the value of {self!r} is not UTF-8 text ({error.reason} at byte {error.start}); use `value`") from None

    def json(self) -> Any:
        """The value parsed as JSON. Raises UsageError when there is no value, or when it is not JSON."""
        try:
            return json.loads(self.text())
        except (ValueError, RecursionError) as error:
            raise UsageError(f"the value of {self!r} is not JSON: {error}") from None

    def _fields(self) -> tuple[object, ...]:
        return (self.topic, self.partition, self.offset, self.timestamp_ms, self.key, self.value, self._headers, self.leader_epoch)

    def __eq__(self, other: object) -> bool:
        return self._fields() == other._fields() if isinstance(other, Record) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.topic, self.partition, self.offset, self.key, self.value))

    def __repr__(self) -> str:
        shown = [f"{self.topic}-{self.partition}@{self.offset}"] if self.offset >= 0 else []
        shown += [] if self.key is None else [f"key={_short(self.key)}"]
        shown.append(f"value={_short(self.value)}")
        shown += [f"headers={len(self._headers)}"] if self._headers else []
        shown += [] if self.timestamp_ms is None else [f"timestamp_ms={self.timestamp_ms}"]
        return f"Record({', '.join(shown)})"


class StoredRecord(Record):
    """A record that was read: made by the thousand from columns that are already checked, so it checks nothing."""

    __slots__ = ()

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        leader_epoch: int,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp_ms = timestamp_ms
        self.key = key
        self.value = value
        self._headers = headers
        self.leader_epoch = leader_epoch


def _short(value: bytes | None) -> str:
    return repr(value) if value is None or len(value) <= 40 else f"{value[:40]!r}...({len(value)} bytes)"


def record_size(record: Record | bytes | str | None) -> int:
    """What a record counts for against limits: bytes of value, key and headers. Raises UsageError for what cannot be one."""
    if type(record) is bytes:
        return len(record)
    if not isinstance(record, Record):
        return len(as_bytes("value", record) or b"")
    return len(record.value or b"") + len(record.key or b"") + headers_size(record._headers)


def headers_size(pairs: Headers) -> int:
    """What the headers of a record count for: bytes of names and values, and HEADER_COST for each."""
    return HEADER_COST * len(pairs) + sum(len(name.encode()) + len(value) for name, value in pairs)


class Framing(TypedDict, total=False):
    """What a writer says about a batch besides its records."""

    compression: Literal["lz4"] | None
    """Used only if it saves at least a tenth."""
    producer_id: int
    producer_epoch: int
    base_sequence: int
    attributes: int
    """Control and group bits; those of codec and format are set when the batch is encoded."""
    extension: bytes


# --------------------------------------------------------------------------------------------------------- columns


def checked_cells(what: str, cells: Sequence[Any]) -> list[Any]:
    """A column of values or keys as bytes, str and None; other bytes-like cells are converted. Raises UsageError for the rest."""
    if set(map(type, cells)) <= {bytes, str, type(None)}:
        return cells if isinstance(cells, list) else list(cells)
    return [as_bytes(what, cell) for cell in cells]


def time_deltas(timestamps_ms: Sequence[int | None] | None, now_ms: int) -> tuple[int, int, list[int] | None]:
    """Base, maximum, and what each record adds to the base; None when none adds anything. Raises UsageError."""
    if timestamps_ms is None:
        if type(now_ms) is not int or not 0 <= now_ms <= TIMESTAMP_MAX:
            as_timestamp(now_ms)
        return now_ms, now_ms, None
    times = [now_ms if time is None else time for time in timestamps_ms]
    for time in times if set(map(type, times)) != {int} else (min(times), max(times)):
        as_timestamp(time)
    base, last = min(times), max(times)
    return base, last, None if base == last else [time - base for time in times]


def pack_columns(
    values: Sequence[bytes | str | None],
    keys: Sequence[bytes | str | None] | None,
    deltas: Sequence[int] | None,
    headers: Sequence[Headers] | None,
) -> list[Buffer]:
    """The parts of an uncompressed payload. The caller has checked what the cells are."""
    packer = Packer(autoreset=False)  # its buffer is read in place: bulk packing otherwise ends with a copy
    try:
        packer.pack(values)
        cells = packer.getbuffer()
        if keys is None and deltas is None and headers is None:
            return [DIRECTORY.pack(len(cells), 0, 0, 0), cells]
        parts: list[Buffer] = [
            cells,
            packb(keys) if keys is not None else b"",
            packb(deltas) if deltas is not None else b"",
            packb([_pack_headers(pairs) for pairs in headers]) if headers is not None else b"",
        ]
    except UnicodeEncodeError as error:
        raise UsageError(f"a value or key is not valid Unicode: {error}") from None
    except ValueError as error:  # one cell beyond 4 GiB
        raise UsageError(f"the records do not fit into one batch: {error}") from None
    return [DIRECTORY.pack(*map(len, parts)), *filter(len, parts)]


def _pack_headers(pairs: Headers) -> bytes | None:
    return b"".join(packb(cell) for pair in pairs for cell in pair) or None


def compress(parts: list[Buffer], size: int) -> list[Buffer] | None:
    """The parts of the compressed payload; None if lz4 does not pay."""
    if size > COMPRESSIBLE_BYTES_MAX:
        return None
    block = lz4.block.compress(b"".join(parts), store_size=False)
    return [_U32.pack(size), block] if len(block) < size * _LZ4_PAYS else None


def claimed_size(payload: memoryview, most: int) -> int:
    """How large a compressed payload says that it was. Raises BadBatch if that cannot be, or is above the limit."""
    if len(payload) <= _U32.size:
        raise BadBatch(f"a compressed payload has at least {_U32.size + 1} bytes, this one {len(payload)}", Code.INVALID_RECORD)
    size: int = _U32.unpack_from(payload)[0]
    if size > most:
        raise BadBatch(f"a payload that decompresses to {size} bytes; allowed are {most}", Code.INVALID_RECORD)
    if size > _LZ4_RATIO_MAX * len(payload):
        raise BadBatch(f"{len(payload)} compressed bytes cannot hold the {size} they claim", Code.INVALID_RECORD)
    return size


def decompress(payload: memoryview, payload_bytes_max: int) -> memoryview:
    """The payload that `compress` was given. Raises BadBatch before it allocates more than the limit, or than can be true."""
    size = claimed_size(payload, payload_bytes_max)
    try:
        plain = lz4.block.decompress(payload[_U32.size :], uncompressed_size=size)
    except (lz4.block.LZ4BlockError, ValueError, OverflowError) as error:
        raise BadBatch(f"the payload does not decompress: {error}") from None
    if len(plain) != size:
        raise BadBatch(f"the payload decompresses to {len(plain)} bytes and claims {size}")
    return memoryview(plain)


def column_lengths(data: Buffer, at: int) -> tuple[int, ...]:
    """Those of the four columns. Raises BadBatch if they are not exactly the payload that begins at `at`."""
    size = len(data) - at
    if size < DIRECTORY.size:
        raise BadBatch(f"a payload has at least {DIRECTORY.size} bytes, this one {size}", Code.INVALID_RECORD)
    lengths = DIRECTORY.unpack_from(data, at)
    if DIRECTORY.size + sum(lengths) != size:
        raise BadBatch(f"columns of {lengths} bytes in a payload of {size}", Code.INVALID_RECORD)
    return lengths


def split_columns(payload: memoryview) -> list[memoryview]:
    """The four columns: values, keys, timestamps, headers. Raises BadBatch if they are not exactly the payload."""
    lengths = column_lengths(payload, 0)
    if not any(lengths[1:]):  # values alone, as nearly always: a batch of one record is unpacked in 0.95 of the time
        return [payload[DIRECTORY.size :], _NO_COLUMN, _NO_COLUMN, _NO_COLUMN]
    columns: list[memoryview] = []
    at = DIRECTORY.size
    for length in lengths:
        columns.append(payload[at : at + length])
        at += length
    return columns


def array_header(count: int) -> bytes:
    """How an array of so many cells begins, in the shortest form."""
    if count < 16:
        return _SHORT_ARRAYS[count]
    return b"\xdc" + _U16.pack(count) if count < 1 << 16 else b"\xdd" + _BIG_U32.pack(count)


def _cells(column: memoryview, count: int) -> Any:
    """An unpacker in front of the first cell of a column; it refuses every cell that is not a scalar."""
    header = array_header(count)
    if column[: len(header)] != header or len(column) < len(header) + count:
        raise BadBatch(f"a column of {len(column)} bytes that is no array of {count} cells")
    unpacker = Unpacker(max_buffer_size=len(column), raw=True, max_array_len=0, max_map_len=0, max_ext_len=0)
    unpacker.feed(column[len(header) :])
    return unpacker


def unpack_column(column: memoryview, count: int, kind: type, what: str) -> list[Any]:
    """All cells, each of exactly this type or None. Raises BadBatch."""
    unpacker = _cells(column, count)
    try:
        cells = list(islice(unpacker, count))
    except (UnpackException, ValueError) as error:
        raise BadBatch(f"{what}: {error}") from None
    types = list(map(type, cells))
    if len(cells) != count or unpacker.tell() != len(column) - len(array_header(count)):
        raise BadBatch(f"{what}: {len(cells)} cells for {count} records, or bytes behind them")
    if types.count(kind) != count and types.count(kind) + types.count(type(None)) != count:
        raise BadBatch(f"{what}: a cell that is not {kind.__name__}")
    return cells


def unpack_cell(column: memoryview, count: int, index: int, what: str) -> bytes | None:
    """One cell, without making those before it. Raises BadBatch."""
    unpacker = _cells(column, count)
    try:
        for _ in range(index):
            unpacker.skip()
        cell = unpacker.unpack()
    except (UnpackException, ValueError) as error:
        raise BadBatch(f"{what}: {error}") from None
    if cell is not None and type(cell) is not bytes:
        raise BadBatch(f"{what}: a cell that is not bytes")
    return cell


def unpack_headers(column: memoryview, count: int, record_max: int, batch_max: int) -> list[Headers]:
    """The headers of all records. Raises BadBatch, also if a record has more of them than that or all have together: before one is made."""
    cells: list[bytes | None] = unpack_column(column, count, bytes, "headers")
    are_few = len(column) <= batch_max * _HEADER_BYTES_MIN
    total = 0
    for cell in cells:
        if cell is None or (are_few and len(cell) <= record_max * _HEADER_BYTES_MIN):
            continue  # too short for more
        found = _count_headers(cell, record_max)
        total += found
        if found > record_max:
            raise BadBatch(f"headers: more than {record_max} in one record")
        if total > batch_max:
            raise BadBatch(f"headers: more than {batch_max} in one batch")
    return list(map(_unpack_pairs, cells))


def _count_headers(cell: bytes, most: int) -> int:
    """How many a record has; one more than `most` if there are more. What is wrong with them is found where they are made."""
    unpacker = Unpacker(max_buffer_size=len(cell) or 1)
    unpacker.feed(cell)
    parts = 0
    with suppress(UnpackException, ValueError):
        while parts <= 2 * most and unpacker.tell() < len(cell):
            unpacker.skip()
            parts += 1
    return (parts + 1) // 2


def _unpack_pairs(cell: bytes | None) -> Headers:
    """The headers of one record. Raises BadBatch."""
    if cell is None:
        return ()
    unpacker = Unpacker(max_buffer_size=len(cell) or 1, raw=True, max_array_len=0, max_map_len=0, max_ext_len=0)
    unpacker.feed(cell)
    flat: list[Any] = []
    try:
        while unpacker.tell() < len(cell):
            flat.append(unpacker.unpack())
        names = [name.decode() for name in flat[::2]]
    except (UnpackException, ValueError, AttributeError) as error:
        raise BadBatch(f"headers: {error}") from None
    if len(flat) % 2 or set(map(type, flat)) - {bytes}:
        raise BadBatch("headers are pairs of a name and bytes")
    return tuple(zip(names, flat[1::2], strict=True))
