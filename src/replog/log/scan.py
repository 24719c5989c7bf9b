"""Walking along the batches of a segment: by their lengths, or by their headers. (`verify` looks at every byte.)"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from replog.log.files import Fs
from replog.marks import made_ms_of
from replog.model import PartitionId
from replog.records import HEAD_BYTES, HEADER_BYTES, MAGIC, BadBatch, BatchHeader, RecordBatch, read_header

__all__ = ["header_at", "headers", "intact_batches", "next_header", "steps", "valid_batch_follows"]

_STEP: Final = Struct("<HxxI24xq16xI")  # magic, length, base offset, count: enough to find the next batch
_NEAR: Final = 64 << 10
_FAR: Final = 512
_WINDOW: Final = 1 << 20
_MAGIC_BYTES: Final = MAGIC.to_bytes(2, "little")


def steps(fs: Fs, fd: int, position: int, stop: int, offset: int) -> Iterator[tuple[int, int, int, int]]:
    """(position, base offset, end offset, length) of each batch from `position`, where `offset` begins, to position `stop`.

    Only their lengths and offsets are looked at, to get somewhere; verify the header of the batch you take. Raises
    BadBatch where the chain breaks.
    """
    window, window_at, length = b"", position, 0
    size = _FAR
    while position < stop:
        at = position - window_at
        if at + HEADER_BYTES > len(window):
            window_at, at = position, 0
            # Small batches lie close together: read ahead, and further each time. Of large ones, only the header.
            size = min(4 * size, _NEAR) if 0 < length < _NEAR // 4 else _FAR
            window = fs.pread(fd, size, position)
            if len(window) < HEADER_BYTES:
                raise BadBatch(f"no batch at position {position}: {len(window)} bytes are left")
        magic, length, base, count = _STEP.unpack_from(window, at)
        if magic != MAGIC or base != offset or length < HEADER_BYTES or not count or position + length > stop:
            raise BadBatch(f"the batch at offset {offset} is not at position {position}")
        offset = base + count
        yield position, base, offset, length
        position += length


def headers(fs: Fs, fd: int, position: int, stop: int, offset: int, identity: PartitionId) -> Iterator[tuple[int, BatchHeader]]:
    """As `steps`, with (position, verified header) of each batch. Raises BadBatch."""
    for at, base, end, _ in steps(fs, fd, position, stop, offset):
        yield at, header_at(fs, fd, at, base, end, identity)


def header_at(fs: Fs, fd: int, position: int, base: int, end: int, identity: PartitionId) -> BatchHeader:
    """The verified header of the batch [base, end) of this very log at `position`. Raises BadBatch if another, or none, is there."""
    header = read_header(fs.pread(fd, HEAD_BYTES, position))
    if header.extension_bytes:
        made_ms_of(header)  # nobody looks at the rest of the mark, and the header's checksum does not cover it
    if header.identity != identity or header.base_offset != base or header.end_offset != end:
        raise BadBatch(f"at position {position} is the batch at offset {header.base_offset} of log {header.identity!r}")
    return header


def next_header(fs: Fs, fd: int, position: int, stop: int | None = None) -> tuple[int, BatchHeader] | None:
    """(position, header) of the first place at or behind `position` where there is a valid header, of whichever log; None if there is none.

    For what lies behind a broken place, where no length leads any further. `stop`: it is not looked for far behind that position.
    """
    size = _FAR
    while (stop is None or position < stop) and len(data := fs.pread(fd, size, position)) >= HEADER_BYTES:
        at = data.find(_MAGIC_BYTES)
        while 0 <= at <= len(data) - HEADER_BYTES:
            try:
                return position + at, read_header(data, at)
            except BadBatch:
                at = data.find(_MAGIC_BYTES, at + 1)
        position += len(data) - HEADER_BYTES + 1
        size = min(4 * size, _WINDOW)
    return None


def valid_batch_follows(fs: Fs, fd: int, position: int, offset: int, identity: PartitionId) -> bool:
    """Whether, somewhere behind a broken place, a batch of this log at or above `offset` has a valid header.

    Then more was lost than the end of the last write: bytes went bad in the middle, or were never written there.
    """
    while (found := next_header(fs, fd, position + 1)) is not None:
        position, header = found
        if header.identity == identity and header.base_offset >= offset:
            return True
    return False


def intact_batches(fs: Fs, fd: int, position: int, identity: PartitionId, stop: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of the batches of this log that are intact to their last byte, at `position` and behind it; `stop` as above."""
    while (found := next_header(fs, fd, position, stop)) is not None:
        position, header = found
        try:
            RecordBatch.parse(fs.pread(fd, header.length, position), identity=identity)
        except BadBatch:
            position += 1
            continue
        yield position, header
        position += header.length
