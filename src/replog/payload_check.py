"""Whether a payload can be what the header of its batch says: what a broker looks at before it stores what a client has sent."""

from __future__ import annotations

from typing import Final

from replog.errors import Code
from replog.payload import COMPRESSIBLE_BYTES_MAX, DIRECTORY, BadBatch, Buffer, array_header, claimed_size, column_lengths

__all__ = ["check_possible"]

_BYTES_KINDS: Final = frozenset({0xC0, 0xC4, 0xC5, 0xC6, 0xD9, 0xDA, 0xDB, *range(0xA0, 0xC0)})  # first bytes of nil, bin, str
_TIME_KINDS: Final = frozenset({*range(0x80), *range(0xCC, 0xD4)})  # ... of integers
_OTHERS: Final = (("keys", _BYTES_KINDS), ("timestamps", _TIME_KINDS), ("headers", _BYTES_KINDS))


def check_possible(body: Buffer, at: int, count: int, *, is_compressed: bool) -> None:
    """Raise BadBatch unless what begins at `at` of a body can be the payload of `count` records.

    For brokers, so it costs the same for any number of records. Of a plain payload: whether the lengths of its columns are right, each
    column is an array of `count` cells and has a byte for each, and the first cell is of a kind that may be there. Of a compressed one:
    whether the size that it claims is allowed, can come out of the block, and has room for as many records.
    """
    header = array_header(count)
    least = len(header) + count
    if is_compressed:
        size = claimed_size(memoryview(body)[at:], COMPRESSIBLE_BYTES_MAX)
        if size < DIRECTORY.size + least:
            raise BadBatch(f"a payload of {size} bytes, once it is decompressed, for {count} records", Code.INVALID_RECORD)
        return
    values, *others = column_lengths(body, at)
    at += DIRECTORY.size
    _check_column(body, at, values, header, least, "values", _BYTES_KINDS)
    at += values
    for length, (what, kinds) in zip(others, _OTHERS, strict=True) if any(others) else ():
        if length:
            _check_column(body, at, length, header, least, what, kinds)
            at += length


def _check_column(body: Buffer, at: int, length: int, header: bytes, least: int, what: str, kinds: frozenset[int]) -> None:
    begin = bytes(body[at : at + len(header) + 1])
    if length < least or begin[:-1] != header:
        raise BadBatch(f"{what}: a column of {length} bytes that is no array of {least - len(header)} cells", Code.INVALID_RECORD)
    if begin[-1] not in kinds:
        raise BadBatch(f"{what}: a first cell that begins with {begin[-1]:#04x}", Code.INVALID_RECORD)
