"""A frame to its message: the quick way where there is one, else step by step."""

from __future__ import annotations

from typing import Any, Final

from crc32c import crc32c

from replog.codec import quick, stepwise
from replog.codec.frames import FRAME_BYTES_MAX, HEADER, ITEMS_MAX, LENGTH, MESSAGE_TYPES, PROTOCOL_VERSION, CodecError, frame_length

__all__ = ["decode"]

_HEADER: Final = HEADER.unpack_from
_LENGTH: Final = LENGTH.unpack_from


def decode(
    frame: bytes | memoryview,
    *,
    frame_bytes_max: int = FRAME_BYTES_MAX,
    meta_bytes_max: int | None = None,
    items_max: int = ITEMS_MAX,
) -> Any:
    """The message in one whole frame. Raises CodecError, and nothing else, whatever the bytes are.

    `meta_bytes_max` bounds the message without its batches (None: as the frame), `items_max` the items of all its lists and dicts.
    Slices are views of `frame`: it must not be overwritten while they are in use.
    """
    length = len(frame)
    if not HEADER.size <= length <= frame_bytes_max or _LENGTH(frame)[0] + 4 != length:
        claimed = frame_length(frame, frame_bytes_max=frame_bytes_max)
        raise CodecError(f"a frame of {claimed} bytes in {length}")
    _, version, _, number, meta_length, meta_crc = _HEADER(frame)
    meta_stop = HEADER.size + meta_length
    if version < 1:
        raise CodecError(f"protocol version {version}; this library speaks {PROTOCOL_VERSION}")
    if meta_stop > length:
        raise CodecError(f"a message of {meta_length} bytes in a frame of {length}")
    if meta_bytes_max is not None and meta_length > meta_bytes_max:
        raise CodecError(f"a message of {meta_length} bytes beside its batches; allowed are {meta_bytes_max}")
    meta = frame[HEADER.size : meta_stop]
    if crc32c(meta, crc32c(frame[4:12])) != meta_crc:
        raise CodecError("the frame does not match its checksum")
    # An item takes a byte at least, so what is short enough cannot have too many.
    if number in quick.READERS and version == PROTOCOL_VERSION and meta_length <= quick.META_BYTES_MAX and meta_length <= items_max:
        message = quick.read(number, meta, frame)
        if message is not None:
            return message
    kind = MESSAGE_TYPES.get(number)
    if kind is None:
        raise CodecError(f"unknown message type {number}")
    return stepwise.read(kind, memoryview(frame), meta_stop, version=version, items_max=items_max)
