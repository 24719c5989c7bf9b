"""Reading a message step by step, as its annotations say and never as the bytes do.

msgpack alone would allocate whatever nested arrays a hostile frame declares. Here arrays are opened one by one where an
array is expected, and everything else must be a scalar of its type.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from typing import Any, Final

import attrs
from msgpack import Unpacker
from msgpack.exceptions import OutOfData, UnpackException

from replog import messages as m
from replog.codec.frames import (
    HEADER,
    INT64_MAX,
    INT64_MIN,
    ITEMS_MAX,
    KEYS,
    PLAIN,
    PLAIN_DEPTH_MAX,
    PROTOCOL_VERSION,
    RANGES,
    SINCE,
    CodecError,
    sent,
)
from replog.config import SCATTERED_KEYS_MAX, TopicConfig
from replog.errors import UsageError
from replog.model import Assignment, PartitionId, PartitionState
from replog.slices import MemorySlice

__all__ = ["read"]


SEEN_MAX: Final = 100
"""Values that are kept to be used again, of one message: more topics and assignments than that have little in common."""


def _check_msgpack() -> None:
    """Raise ImportError unless arrays can be opened one by one where none may be made: so it is in msgpack's compiled part alone."""
    unpacker = Unpacker(max_array_len=0)
    unpacker.feed(b"\x91")
    try:
        unpacker.read_array_header()
    except ValueError as error:
        help_ = "unset MSGPACK_PUREPYTHON, or install a wheel of msgpack for this Python"
        raise ImportError(f"replog needs the compiled part of msgpack, and found another: {help_}") from error


_check_msgpack()


class _Reader:
    """One frame on its way in. `value()` is the next scalar, `array()` opens the next array; neither ever makes a container."""

    __slots__ = ("_mapping", "array", "at", "frame", "items_max", "items_taken", "meta", "seen", "skip", "unpacker", "value", "version")

    def __init__(self, frame: memoryview, meta_stop: int, *, version: int, items_max: int) -> None:
        self.frame = frame
        self.meta = frame[HEADER.size : meta_stop]
        self.version = version
        self.items_max = items_max
        self.items_taken = 0
        self.seen: dict[Any, Any] = {}
        """What comes again in one message, by what it looks like."""
        self.at = meta_stop
        self.unpacker = Unpacker(max_buffer_size=len(self.meta) or 1, raw=False, max_array_len=0, max_map_len=0, max_ext_len=0)
        self.unpacker.feed(self.meta)
        self.value: Callable[[], Any] = self.unpacker.unpack
        self.array: Callable[[], int] = self.unpacker.read_array_header
        self._mapping: Callable[[], int] = self.unpacker.read_map_header
        self.skip: Callable[[], None] = self.unpacker.skip

    def items(self, where: str) -> range:
        """Open an array; each item takes at least a byte, so a longer one than the bytes that are left is a lie."""
        count = self.array()
        if count > len(self.meta) - self.unpacker.tell():
            raise CodecError(f"{where} claims {count} items in the last {len(self.meta) - self.unpacker.tell()} bytes")
        return self._counted(count, where)

    def pairs(self, where: str) -> range:
        """Open a dict."""
        return self._counted(self._mapping(), where)

    def keep(self, look: Any, value: Any) -> Any:
        """The first value that looks like this, of so few that values chosen to collide in a dict cost nothing."""
        seen = self.seen
        return seen.get(look, value) if len(seen) >= SEEN_MAX else seen.setdefault(look, value)

    def _counted(self, count: int, where: str) -> range:
        """Small items cost a hundred times their bytes: the message as a whole may have only so many."""
        self.items_taken += count
        if self.items_taken > self.items_max:
            raise CodecError(f"{where}: up to here the message claims {self.items_taken} items; allowed are {self.items_max}")
        return range(count)

    def attachment(self, length: Any, where: str) -> memoryview:
        """The next bytes behind the meta."""
        if type(length) is not int or not 0 <= length <= len(self.frame) - self.at:
            raise CodecError(f"{where} claims {length!r:.40} bytes of the last {len(self.frame) - self.at}")
        self.at += length
        return self.frame[self.at - length : self.at]


Read = Callable[[_Reader], Any]


def read(kind: type[Any], frame: memoryview, meta_stop: int, *, version: int, items_max: int = ITEMS_MAX) -> Any:
    """The message of this class whose meta ends there, in a whole frame of this version of the protocol; `items_max` bounds the items
    of all its lists and dicts together.

    Raises CodecError, and nothing else.
    """
    reader = _Reader(frame, meta_stop, version=version, items_max=items_max)
    try:
        message = _object(kind)(reader)
    except OutOfData:
        raise CodecError(f"{kind.__name__}: ends too early") from None
    except (UnpackException, ValueError) as error:
        raise CodecError(f"{kind.__name__}: {error}") from None
    meta_left, left = len(reader.meta) - reader.unpacker.tell(), len(frame) - reader.at
    if meta_left or left:
        raise CodecError(f"{kind.__name__}: {meta_left} + {left} bytes are left over")
    return message


_OBJECTS: Final[dict[type[Any], Read]] = {}


def _object(kind: type[Any]) -> Read:
    """How to read one attrs class or NamedTuple: an array of its fields. Made once per class."""
    if kind not in _OBJECTS:
        _OBJECTS[kind] = _make_object(kind)
    return _OBJECTS[kind]


def _make_object(kind: type[Any]) -> Read:
    hints = typing.get_type_hints(kind)
    names = [a.name for a in sent(kind)] if attrs.has(kind) else list(kind._fields)
    special: dict[tuple[type[Any], str], Read] = {
        (m.ProduceEntry, "body"): _read_body,
        (m.FetchedEntry, "slices"): _read_slices,
        (PartitionId, "topic_id"): _once(_read_topic_id),
        (m.TopicView, "topic_id"): _read_topic_id,
        (m.PartitionNotice, "topic"): _once(_scalar(str, "PartitionNotice.topic")),
        (PartitionState, "isr"): _once(_reader(tuple[int, ...], "PartitionState.isr")),
    }
    reads = tuple(special.get((kind, name)) or _reader(hints[name], f"{kind.__name__}.{name}") for name in names)
    positional = [] if not attrs.has(kind) else [a.name for a in sent(kind) if a.kw_only]
    split = len(names) - len(positional)
    assert names[split:] == positional, f"{kind.__name__}: keyword-only fields come last"
    sinces = _sinces(kind)
    newest = max(sinces, default=1)

    def read(reader: _Reader) -> Any:
        count = reader.array()
        if count != len(reads) or reader.version < newest:
            known = sum(since <= reader.version for since in sinces)
            if count != known and not (reader.version > PROTOCOL_VERSION and count > known):
                raise CodecError(f"{kind.__name__} with {count} fields; it has {known}")
        values = [each(reader) for each in reads[:count]]
        for _ in range(count - len(reads)):
            reader.skip()
        if not positional:
            return kind(*values)
        return kind(*values[:split], **dict(zip(positional, values[split:], strict=False)))

    return read


def _sinces(kind: type[Any]) -> list[int]:
    """Since which version of the protocol a class has each of its fields."""
    if not attrs.has(kind):
        return [1] * len(kind._fields)
    fields = sent(kind)
    sinces = [field.metadata.get(SINCE, 1) for field in fields]
    assert sinces == sorted(sinces), f"{kind.__name__}: newer fields come last"
    newer = [field for field, since in zip(fields, sinces, strict=True) if since > 1]
    assert all(field.default is not attrs.NOTHING for field in newer), f"{kind.__name__}: newer fields have a default"
    return sinces


def _reader(hint: Any, where: str) -> Read:
    """How to read a value of this type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is int:
        return _int(where)
    if hint in (str, bytes, bool):
        return _scalar(hint, where)
    if hint is TopicConfig:
        return _read_config
    if hint is Assignment:
        return _once(_object(Assignment))
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


def _once(inner: Read) -> Read:
    """Of equal values of one message the first one, again and again: thousands of partitions have them, and keep them."""

    def read(reader: _Reader) -> Any:
        value = inner(reader)
        return reader.keep(value, value)

    return read


def _int(where: str) -> Read:
    low, high = RANGES.get(where.rpartition(".")[2], (INT64_MIN, INT64_MAX))

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
        if type(base) is not int or type(end) is not int or not 0 <= base <= end <= INT64_MAX:
            raise CodecError(f"{where}: offsets from {base!r:.40} to {end!r:.40}")
        slices.append(MemorySlice(base, end, reader.attachment(length, where)))
    return slices


def _read_topic_id(reader: _Reader) -> bytes:
    value = reader.value()
    if type(value) is not bytes or len(value) != 16:
        raise CodecError(f"a topic id is 16 bytes, not {value!r:.40}")
    return value


def _read_config(reader: _Reader) -> TopicConfig:
    """Judged once if others are the same to the byte, as they are for all partitions of a topic."""
    begin = reader.unpacker.tell()
    plain = _plain_dict(reader, "TopicConfig")
    look = (TopicConfig, bytes(reader.meta[begin : reader.unpacker.tell()]))
    known: TopicConfig | None = reader.seen.get(look)
    if known is None:
        try:
            known = TopicConfig.from_mapping({str(key): value for key, value in plain.items()})
        except UsageError as error:
            raise CodecError(f"TopicConfig: {error}") from None
        reader.keep(look, known)
    return known


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
    if type(value) not in PLAIN:
        raise CodecError(f"{where} holds a {type(value).__name__}")
    return value


def _plain_dict(reader: _Reader, where: str, depth: int = 0) -> dict[str | int, Any]:
    """A dict. Many whole numbers are keys only in a run, each one more than the one before, like the partitions of an assignment.

    A number is its own hash: of others enough can be chosen that are on each other's way through the table, whatever its size, so that
    each costs as much as all before it. Those of a run never meet, here and in every dict or set that is made of them in this order.
    Strings are hashed with a secret of the process, unless somebody starts it with PYTHONHASHSEED=0.
    """
    result: dict[str | int, Any] = {}
    numbers, before, gap = 0, 0, ""
    for _ in reader.pairs(where):  # grows with what is read, not with what is claimed
        key = reader.value()
        if type(key) not in KEYS:
            raise CodecError(f"{where} has a key of type {type(key).__name__}")
        if type(key) is int:
            if numbers and key != before + 1 and not gap:
                gap = f"{key} follows {before}"
            numbers, before = numbers + 1, key
            if gap and numbers > SCATTERED_KEYS_MAX:
                limit = f"allowed are {SCATTERED_KEYS_MAX} unless in a run"
                raise CodecError(f"{where} has {numbers} whole numbers as keys, and {gap}; {limit}")
        result[key] = _plain(reader, where, depth + 1)
    return result
