"""A message to its frame. Batches are set aside, and follow untouched."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from struct import Struct
from typing import Any, Final

import attrs
from crc32c import crc32c
from msgpack import packb

from replog import messages as m
from replog.codec import quick
from replog.codec.frames import HEADER, KEYS, LENGTH, PLAIN, PLAIN_DEPTH_MAX, PROTOCOL_VERSION, TYPE_NUMBERS, CodecError, Part, sent
from replog.config import TopicConfig

__all__ = ["encode", "encode_parts", "sized_parts"]

_BUFFERS: Final = (bytes, memoryview, bytearray)
_SEALED: Final = Struct("<BBHI")
"""The part of the header that the checksum covers."""
_AROUND: Final = Struct("<I8sI")


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
        names = [a.name for a in sent(kind)]
        get: Callable[[Any], Any] = attrgetter(*names)
        _FIELDS[kind] = get if len(names) > 1 else lambda value: (get(value),)
    return _FIELDS[kind]


def _check_plain(value: Any, where: str, depth: int) -> None:
    if depth > PLAIN_DEPTH_MAX:
        raise CodecError(f"{where} nests deeper than {PLAIN_DEPTH_MAX}")
    if isinstance(value, dict):
        for key, item in value.items():
            if type(key) not in KEYS:
                raise CodecError(f"{where} has a key of type {type(key).__name__}; allowed are str and int")
            _check_plain(item, where, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            _check_plain(item, where, depth + 1)
    elif type(value) not in PLAIN:
        raise CodecError(f"{where} holds a {type(value).__name__}; allowed are str, int, bool, bytes, None, lists and dicts of them")


def sized_parts(message: Any, route: int = 0) -> tuple[list[bytes | Part], int]:
    """The frame of a message, as parts to be sent one after another, and its size in bytes: the first part is header and
    meta, the rest the batches, as bytes or as the slices that the message holds: they are neither read nor released.

    Raises CodecError if the message holds what a frame cannot carry.
    """
    kind = type(message)
    number = TYPE_NUMBERS.get(kind)
    if number is None:
        raise CodecError(f"{kind.__name__} is no message of this protocol")
    write = quick.WRITERS.get(kind)
    attachments: list[bytes | Part] = []
    if write is None:
        meta, attachments = _pack(message)
    else:
        try:
            meta = packb(write(message, attachments))
        except (ValueError, OverflowError, TypeError, AttributeError):
            meta, attachments = _pack(message)  # which says what is wrong
    length = HEADER.size - LENGTH.size + len(meta)
    for part in attachments:
        length += len(part) if isinstance(part, _BUFFERS) else part.length
    if length > 2**32 - 1:
        raise CodecError(f"{kind.__name__} takes {length} bytes; a frame has at most {2**32 - 1}")
    sealed = _SEALED.pack(PROTOCOL_VERSION, route, number, len(meta))
    head = _AROUND.pack(length, sealed, crc32c(meta, crc32c(sealed))) + meta
    return [head, *attachments] if attachments else [head], length + LENGTH.size


def _pack(message: Any) -> tuple[bytes, list[bytes | Part]]:
    writer = _Writer()
    try:
        return packb(writer.flatten(message), default=writer.flatten), writer.attachments
    except (ValueError, OverflowError, TypeError) as error:
        raise CodecError(f"{type(message).__name__} cannot be encoded: {error}") from error


def encode_parts(message: Any, route: int = 0) -> list[bytes | Part]:
    """The parts that `sized_parts` makes."""
    return sized_parts(message, route)[0]


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
