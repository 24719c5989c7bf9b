"""Message <-> frame: how the classes of `replog.messages` cross a wire. Generated from their type annotations.

A frame, little endian, is a header of 16 bytes, the message as msgpack, and the batches it carries, untouched::

    ┌────────┬─────────┬───────┬──────┬─────────────┬──────────┬─────────────┬─────────────────┐
    │ length │ version │ route │ type │ meta length │ meta crc │ meta ...    │ attachments ... │
    │ u32    │ u8      │ u8    │ u16  │ u32         │ u32      │ msgpack     │ stored batches  │
    └────────┴─────────┴───────┴──────┴─────────────┴──────────┴─────────────┴─────────────────┘

* `route` says which actors of the two processes it goes between (`TO_CONTROLLER`, `FROM_CONTROLLER`); 0: broker or client.
* `length` counts what follows it. `meta crc` is crc32c over bytes 4 to 11 and the meta; attachments have checksums of their own.
* Every object is a msgpack array of its fields, in their order. A frame of this version has exactly them; one of a newer
  version may have more behind them, which are skipped. A missing one is refused: fields are only ever added at the end.
* A batch body is its length in the meta, a slice is (base offset, end offset, length); their bytes follow in that order.
* A topic's configuration is a map of the keys that differ from the defaults.

Decoding follows the annotations and never the bytes: msgpack alone would allocate whatever nested arrays a hostile frame
declares. Here arrays are opened one by one where an array is expected, and everything else must be a scalar of its type.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from operator import attrgetter
from struct import Struct
from typing import Any, Final

import attrs
from crc32c import crc32c
from msgpack import Unpacker, packb
from msgpack.exceptions import OutOfData, UnpackException

from replog import messages as m
from replog.config import TopicConfig
from replog.errors import ReplogError, UsageError
from replog.model import PartitionId
from replog.records import MemorySlice

__all__ = [
    "FRAME_BYTES_MAX",
    "FROM_CONTROLLER",
    "LOCAL_MESSAGES",
    "MESSAGE_TYPES",
    "PROTOCOL_VERSION",
    "TO_CONTROLLER",
    "CodecError",
    "decode",
    "encode",
    "encode_parts",
    "frame_length",
    "route_of",
]

PROTOCOL_VERSION: Final = 1
FRAME_BYTES_MAX: Final = 64 << 20
"""Largest frame accepted where nothing else is said; configuration may allow more."""
TO_CONTROLLER: Final = 1
"""Bit of a route: for the controller at the other end, not for the broker."""
FROM_CONTROLLER: Final = 2
"""Bit of a route: the controller at this end says it."""
PLAIN_DEPTH_MAX: Final = 8
"""How deep lists and dicts may nest where a field takes any plain value."""

HEADER: Final = Struct("<IBBHII")
_LENGTH: Final = Struct("<I")
_INT64_MAX: Final = 2**63 - 1
_INT64_MIN: Final = -(2**63)
_INT32_MAX: Final = 2**31 - 1

MESSAGE_TYPES: Final[dict[int, type[Any]]] = {
    1: m.Produce,
    2: m.Produced,
    3: m.Fetch,
    4: m.Fetched,
    5: m.Flushed,
    6: m.ListOffsets,
    7: m.ListedOffsets,
    8: m.OffsetsForLeaderEpoch,
    9: m.Epochs,
    10: m.Metadata,
    11: m.ClusterView,
    12: m.UpdateMetadata,
    13: m.LeaderAndIsr,
    14: m.LeaderAndIsrAnswer,
    15: m.StopReplica,
    16: m.StopReplicaAnswer,
    17: m.Heartbeat,
    18: m.AlterIsr,
    19: m.AlterIsrAnswer,
    20: m.ReplicasFailed,
    21: m.ReplicaStates,
    22: m.ReplicaStatesAnswer,
    23: m.Admin,
    24: m.AdminAnswer,
    25: m.Handshake,
    26: m.HandshakeAnswer,
}
"""Type number -> message. Numbers are format: never changed, never used again."""

LOCAL_MESSAGES: Final = frozenset({m.Registered, m.Disconnected})
"""What a process tells its own actors: no frame carries these, so that nobody else can say them."""

_TYPE_NUMBERS: Final = {message: number for number, message in MESSAGE_TYPES.items()}

# These are stored in 32 bits with every batch (`replog.records`), so a larger one could not be acted on.
_RANGES: Final = {
    "leader_epoch": (-2, _INT32_MAX),
    "last_epoch": (-1, _INT32_MAX),
    "diverging_epoch": (-1, _INT32_MAX),
    "epoch": (-1, _INT32_MAX),
    "partition": (0, _INT32_MAX),
    "creation": (0, 2**32 - 1),
}


class CodecError(ReplogError):
    """The bytes are not a frame of this protocol, or a message holds what no frame can carry."""


# --------------------------------------------------------------------------------------------------------- encoding


class Part(typing.Protocol):
    """What a frame needs of a `ports.Slice`."""

    length: int

    def view(self) -> memoryview: ...


class _Writer:
    """One message on its way out: flattens what msgpack does not know, and sets the batches aside."""

    __slots__ = ("attachments",)

    def __init__(self) -> None:
        self.attachments: list[bytes | Part] = []

    def flatten(self, value: Any) -> Any:
        """Called by msgpack for each object that it cannot pack itself."""
        kind = type(value)
        if kind is TopicConfig:
            return value.to_mapping()
        if kind is m.ProduceEntry:
            self.attachments.append(value.body)
            return value.request, value.partition, len(value.body)
        if kind is m.FetchedEntry:
            row = list(_fields_of(kind)(value))
            row[_SLICES] = [(part.base_offset, part.end_offset, part.length) for part in value.slices]
            self.attachments.extend(value.slices)
            return row
        if not attrs.has(kind):
            raise CodecError(f"a message holds a value of type {kind.__name__}, which no frame can carry: {value!r:.80}")
        if kind is m.Admin or kind is m.AdminAnswer:
            for name in ("arguments", "result", "origin"):
                _check_plain(getattr(value, name, None), f"{kind.__name__}.{name}", 0)
        return _fields_of(kind)(value)


_SLICES: Final = [a.name for a in attrs.fields(m.FetchedEntry)].index("slices")


_FIELDS: Final[dict[type[Any], Callable[[Any], tuple[Any, ...]]]] = {}


def _fields_of(kind: type[Any]) -> Callable[[Any], tuple[Any, ...]]:
    """What takes the fields out of an object of this class."""
    if kind not in _FIELDS:
        names = [a.name for a in attrs.fields(kind)]
        get: Callable[[Any], Any] = attrgetter(*names)
        _FIELDS[kind] = get if len(names) > 1 else lambda value: (get(value),)
    return _FIELDS[kind]


def _check_plain(value: Any, where: str, depth: int) -> None:
    if depth > PLAIN_DEPTH_MAX:
        raise CodecError(f"{where} nests deeper than {PLAIN_DEPTH_MAX}")
    if isinstance(value, dict):
        for key, item in value.items():
            if type(key) not in _KEYS:
                raise CodecError(f"{where} has a key of type {type(key).__name__}; allowed are str and int")
            _check_plain(item, where, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            _check_plain(item, where, depth + 1)
    elif type(value) not in _PLAIN:
        raise CodecError(f"{where} holds a {type(value).__name__}; allowed are str, int, bool, bytes, None, lists and dicts of them")


_BUFFERS: Final = (bytes, memoryview, bytearray)
_KEYS: Final = frozenset({str, int})
_PLAIN: Final = frozenset({str, int, bool, bytes, type(None)})


def encode_parts(message: Any, route: int = 0) -> list[bytes | Part]:
    """The frame of a message, as parts to be sent one after another: the first is header and meta, the rest the batches, as
    bytes or as the slices that the message holds: they are neither read nor released.

    Raises CodecError if the message holds what a frame cannot carry.
    """
    number = _TYPE_NUMBERS.get(type(message))
    if number is None:
        raise CodecError(f"{type(message).__name__} is no message of this protocol")
    writer = _Writer()
    try:
        meta: bytes = packb(writer.flatten(message), default=writer.flatten)
    except (ValueError, OverflowError, TypeError) as error:
        raise CodecError(f"{type(message).__name__} cannot be encoded: {error}") from error
    length = HEADER.size - _LENGTH.size + len(meta)
    for part in writer.attachments:
        length += len(part) if isinstance(part, _BUFFERS) else part.length
    if length > 2**32 - 1:
        raise CodecError(f"{type(message).__name__} takes {length} bytes; a frame has at most {2**32 - 1}")
    fields = (length, PROTOCOL_VERSION, route, number, len(meta))
    crc = crc32c(meta, crc32c(HEADER.pack(*fields, 0)[4:12]))
    return [HEADER.pack(*fields, crc) + meta, *writer.attachments]


def encode(message: Any, route: int = 0) -> list[bytes | memoryview]:
    """As `encode_parts`, with the bytes of the slices: read now, all of them.

    Raises CodecError if the message holds what a frame cannot carry, or a slice whose bytes were truncated away.
    """
    buffers: list[bytes | memoryview] = []
    for part in encode_parts(message, route):
        if isinstance(part, _BUFFERS):
            buffers.append(part)
            continue
        view = part.view()
        if len(view) != part.length:
            raise CodecError(f"{type(message).__name__} holds a slice of {part.length} bytes, of which {len(view)} are left")
        buffers.append(view)
    return buffers


# --------------------------------------------------------------------------------------------------------- decoding


class _Reader:
    """One frame on its way in. `value()` is the next scalar, `array()` opens the next array; neither ever makes a container."""

    __slots__ = ("array", "at", "frame", "mapping", "meta", "meta_at", "newer", "skip", "unpacker", "value")

    def __init__(self, frame: memoryview, meta_stop: int, *, newer: bool) -> None:
        self.frame = frame
        self.meta = frame[HEADER.size : meta_stop]
        self.newer = newer
        self.at = meta_stop
        self.unpacker = Unpacker(max_buffer_size=len(self.meta) or 1, raw=False, max_array_len=0, max_map_len=0, max_ext_len=0)
        self.unpacker.feed(self.meta)
        self.value: Callable[[], Any] = self.unpacker.unpack
        self.array: Callable[[], int] = self.unpacker.read_array_header
        self.mapping: Callable[[], int] = self.unpacker.read_map_header
        self.skip: Callable[[], None] = self.unpacker.skip

    def items(self, where: str) -> range:
        """Open an array; each item takes at least a byte, so a longer one than the bytes that are left is a lie."""
        count = self.array()
        if count > len(self.meta) - self.unpacker.tell():
            raise CodecError(f"{where} claims {count} items in the last {len(self.meta) - self.unpacker.tell()} bytes")
        return range(count)

    def attachment(self, length: Any, where: str) -> memoryview:
        """The next bytes behind the meta."""
        if type(length) is not int or not 0 <= length <= len(self.frame) - self.at:
            raise CodecError(f"{where} claims {length!r:.40} bytes of the last {len(self.frame) - self.at}")
        self.at += length
        return self.frame[self.at - length : self.at]


Read = Callable[[_Reader], Any]


def frame_length(head: bytes | memoryview, *, frame_bytes_max: int = FRAME_BYTES_MAX) -> int:
    """Bytes of the whole frame that begins with these (at least 4). Raises CodecError before anything is allocated for it."""
    if len(head) < _LENGTH.size:
        raise CodecError(f"a frame begins with {_LENGTH.size} bytes of length, {len(head)} are here")
    length = int(_LENGTH.unpack_from(head)[0]) + _LENGTH.size
    if not HEADER.size <= length <= frame_bytes_max:
        raise CodecError(f"a frame of {length} bytes; allowed are {HEADER.size} to {frame_bytes_max}")
    return length


def route_of(frame: bytes | memoryview) -> int:
    """Between which actors a frame goes; of whole frames that `decode` has accepted."""
    return frame[5]


def decode(frame: bytes | memoryview, *, frame_bytes_max: int = FRAME_BYTES_MAX) -> Any:
    """The message in one whole frame. Raises CodecError, and nothing else, whatever the bytes are.

    Slices are views of `frame`: it must not be overwritten while they are in use.
    """
    view = memoryview(frame)
    length = frame_length(view, frame_bytes_max=frame_bytes_max)
    if length != len(view):
        raise CodecError(f"a frame of {length} bytes in {len(view)}")
    _, version, _, number, meta_length, meta_crc = HEADER.unpack_from(view)
    meta_stop = HEADER.size + meta_length
    if version < 1:
        raise CodecError(f"protocol version {version}; this library speaks {PROTOCOL_VERSION}")
    if meta_stop > length:
        raise CodecError(f"a message of {meta_length} bytes in a frame of {length}")
    if crc32c(view[HEADER.size : meta_stop], crc32c(view[4:12])) != meta_crc:
        raise CodecError("the frame does not match its checksum")
    kind = MESSAGE_TYPES.get(number)
    if kind is None:
        raise CodecError(f"unknown message type {number}")
    reader = _Reader(view, meta_stop, newer=version > PROTOCOL_VERSION)
    try:
        message = _object(kind)(reader)
    except OutOfData:
        raise CodecError(f"{kind.__name__}: ends too early") from None
    except (UnpackException, ValueError) as error:
        raise CodecError(f"{kind.__name__}: {error}") from None
    if reader.unpacker.tell() != meta_length or reader.at != length:
        raise CodecError(f"{kind.__name__}: {meta_length - reader.unpacker.tell()} + {length - reader.at} bytes are left over")
    return message


_OBJECTS: Final[dict[type[Any], Read]] = {}


def _object(kind: type[Any]) -> Read:
    """How to read one attrs class or NamedTuple: an array of its fields. Made once per class."""
    if kind not in _OBJECTS:
        _OBJECTS[kind] = _make_object(kind)
    return _OBJECTS[kind]


def _make_object(kind: type[Any]) -> Read:
    hints = typing.get_type_hints(kind)
    names = [a.name for a in attrs.fields(kind)] if attrs.has(kind) else list(kind._fields)
    special: dict[tuple[type[Any], str], Read] = {
        (m.ProduceEntry, "body"): _read_body,
        (m.FetchedEntry, "slices"): _read_slices,
        (PartitionId, "topic_id"): _read_topic_id,
        (m.TopicView, "topic_id"): _read_topic_id,
    }
    reads = tuple(special.get((kind, name)) or _reader(hints[name], f"{kind.__name__}.{name}") for name in names)
    positional = [] if not attrs.has(kind) else [a.name for a in attrs.fields(kind) if a.kw_only]
    split = len(names) - len(positional)
    assert names[split:] == positional, f"{kind.__name__}: keyword-only fields come last"

    def read(reader: _Reader) -> Any:
        count = reader.array()
        if count != len(reads) and not (reader.newer and count > len(reads)):
            raise CodecError(f"{kind.__name__} with {count} fields; it has {len(reads)}")
        values = [each(reader) for each in reads]
        for _ in range(count - len(reads)):
            reader.skip()
        if not positional:
            return kind(*values)
        return kind(*values[:split], **dict(zip(positional, values[split:], strict=True)))

    return read


def _reader(hint: Any, where: str) -> Read:
    """How to read a value of this type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is int:
        return _int(where)
    if hint in (str, bytes, bool):
        return _scalar(hint, where)
    if hint is TopicConfig:
        return _read_config
    if hint is Any:
        return lambda reader: _plain(reader, where, 0)
    if origin is dict:
        return lambda reader: _plain_dict(reader, where)
    if origin is list:
        return _many(_reader(arguments[0], where), list, where)
    if origin is tuple and arguments[-1] is Ellipsis:
        return _many(_reader(arguments[0], where), tuple, where)
    if origin is tuple:
        return _pair([_reader(each, where) for each in arguments], where)
    if origin in (types.UnionType, typing.Union):
        (inner,) = [each for each in arguments if each is not type(None)]
        return _optional(_reader(inner, where))
    assert attrs.has(hint) or issubclass(hint, tuple), f"{where}: no way to read {hint!r}"
    return _object(hint)


def _int(where: str) -> Read:
    low, high = _RANGES.get(where.rpartition(".")[2], (_INT64_MIN, _INT64_MAX))

    def read(reader: _Reader) -> int:
        value = reader.value()
        if type(value) is not int:  # a bool is no number here
            raise CodecError(f"{where} is {value!r:.40}, not an int")
        if not low <= value <= high:
            raise CodecError(f"{where} is {value}; allowed are {low} to {high}")
        return value

    return read


def _scalar(kind: type[Any], where: str) -> Read:
    def read(reader: _Reader) -> Any:
        value = reader.value()
        if type(value) is not kind:
            raise CodecError(f"{where} is {value!r:.40}, not {kind.__name__}")
        return value

    return read


def _optional(inner: Read) -> Read:
    def read(reader: _Reader) -> Any:
        if _ahead(reader) == _NIL:
            return reader.value()
        return inner(reader)

    return read


def _many(inner: Read, kind: Callable[[list[Any]], Any], where: str) -> Read:
    def read(reader: _Reader) -> Any:
        return kind([inner(reader) for _ in reader.items(where)])

    return read


def _pair(inner: list[Read], where: str) -> Read:
    def read(reader: _Reader) -> Any:
        if reader.array() != len(inner):
            raise CodecError(f"{where} holds tuples of {len(inner)}")
        return tuple([each(reader) for each in inner])

    return read


def _read_body(reader: _Reader) -> bytes:
    return bytes(reader.attachment(reader.value(), "ProduceEntry.body"))  # copied: it outlives the receive buffer


def _read_slices(reader: _Reader) -> list[MemorySlice]:
    where = "FetchedEntry.slices"
    slices = []
    for _ in reader.items(where):
        if reader.array() != 3:
            raise CodecError(f"{where}: a slice is (base offset, end offset, length)")
        base, end, length = reader.value(), reader.value(), reader.value()
        if type(base) is not int or type(end) is not int or not 0 <= base <= end <= _INT64_MAX:
            raise CodecError(f"{where}: offsets from {base!r:.40} to {end!r:.40}")
        slices.append(MemorySlice(base, end, reader.attachment(length, where)))
    return slices


def _read_topic_id(reader: _Reader) -> bytes:
    value = reader.value()
    if type(value) is not bytes or len(value) != 16:
        raise CodecError(f"a topic id is 16 bytes, not {value!r:.40}")
    return value


def _read_config(reader: _Reader) -> TopicConfig:
    try:
        return TopicConfig.from_mapping({str(key): value for key, value in _plain_dict(reader, "TopicConfig").items()})
    except UsageError as error:
        raise CodecError(f"TopicConfig: {error}") from None


_NIL: Final = 0xC0
_ARRAYS: Final = frozenset((*range(0x90, 0xA0), 0xDC, 0xDD))
_MAPS: Final = frozenset((*range(0x80, 0x90), 0xDE, 0xDF))


def _ahead(reader: _Reader) -> int:
    """The first byte of the next value, which says what it is; -1 at the end."""
    at = reader.unpacker.tell()
    return reader.meta[at] if at < len(reader.meta) else -1


def _plain(reader: _Reader, where: str, depth: int) -> Any:
    """Any plain value: a scalar, or lists and dicts of them."""
    ahead = _ahead(reader)
    if depth > PLAIN_DEPTH_MAX:
        raise CodecError(f"{where} nests deeper than {PLAIN_DEPTH_MAX}")
    if ahead in _ARRAYS:
        return [_plain(reader, where, depth + 1) for _ in reader.items(where)]
    if ahead in _MAPS:
        return _plain_dict(reader, where, depth)
    value = reader.value()
    if type(value) not in _PLAIN:
        raise CodecError(f"{where} holds a {type(value).__name__}")
    return value


def _plain_dict(reader: _Reader, where: str, depth: int = 0) -> dict[str | int, Any]:
    result: dict[str | int, Any] = {}
    for _ in range(reader.mapping()):  # grows with what is read, not with what is claimed
        key = reader.value()
        if type(key) not in _KEYS:
            raise CodecError(f"{where} has a key of type {type(key).__name__}")
        result[key] = _plain(reader, where, depth + 1)
    return result
