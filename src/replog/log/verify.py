"""Reading every byte of a segment that may be unfinished, at nearly the speed of the checksum alone.

This is what a restart after a crash waits for, so it is one flat loop: a window that is small enough to stay in the
processor's cache slides over the file, and per batch there are one unpack and three checksum calls. Headers are made
only of batches that somebody must be told of.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from replog.errors import UsageError
from replog.log.files import Fs
from replog.log.segment import Segment, SparseIndex
from replog.model import PartitionId
from replog.records import FRONT, FRONT_BYTES, HEAD_BYTES, HEADER_BYTES, MAGIC, VERSION, BadBatch, BatchHeader, read_header

__all__ = ["Stop", "Verifier"]

_WINDOW: Final = 256 << 10
_COVERED_AT: Final = FRONT_BYTES + 4  # where the bytes begin that the payload checksum covers
_HEAD: Final = Struct(f"<{FRONT.size}sI4s")  # the bytes the header checksum covers, in two parts, and that checksum between them
_FIELDS: Final = Struct("<II24sqi4xI2xHI8xqq")  # magic to 0, length, log, base, epoch, payload crc, extension, count, newest, producer
_LOG: Final = Struct("<16sII")
_MAGIC: Final = MAGIC | VERSION << 16


def _no_batch(path: str, position: int, magic: int, *, is_whole: bool) -> str:
    """Why there is none, unless it is one that a later version has made, as its header says: no damage, and nothing may be cut there."""
    version = magic >> 16
    if is_whole and magic & 0xFFFF == MAGIC and version > VERSION:
        what = f"{path} has a batch of format {version} at position {position}; this version of the library reads up to {VERSION}"
        raise UsageError(f"{what}: use a newer one. Nothing was changed there")
    return "no batch with a valid header"


class Stop(NamedTuple):
    """Where a segment's valid batches end, and why."""

    position: int
    offset: int
    reason: str
    """Empty at the end of the file."""
    torn: bool = False
    """The file ends inside a batch whose beginning is all right: what a killed process leaves."""


class Verifier:
    """Verifies segments of one log, one after the other, with one buffer."""

    __slots__ = ("_at", "_buffer", "_fd", "_filled", "_fs", "_identity", "_interval", "_packed", "_seen")

    def __init__(self, fs: Fs, identity: PartitionId, index_interval_bytes: int, seen: Callable[[BatchHeader], None]) -> None:
        """`seen` is told of each batch that begins an epoch or has a producer."""
        self._fs = fs
        self._identity = identity
        self._packed = _LOG.pack(*identity)
        self._interval = index_interval_bytes
        self._seen = seen
        self._buffer = memoryview(bytearray(_WINDOW))
        self._fd = -1
        self._at = self._filled = 0

    def run(self, segment: Segment, fd: int, size: int, epoch: int) -> Stop:
        """Verify the batches of a file of `size` bytes, and build the index of `segment`; `epoch` is that of the batch in front of it.

        A batch belongs here if it is of this log, begins where the one before ended, has no older epoch, and matches
        both checksums. Raises UsageError for one of a newer format.
        """
        self._fd, self._at, self._filled = fd, 0, 0
        index = segment.index = SparseIndex()
        add_offset, add_position, add_time = index.offsets.append, index.positions.append, index.times.append
        head, fields, packed, view, interval = _HEAD.unpack_from, _FIELDS.unpack_from, self._packed, self._buffer, self._interval
        offset, newest, position, due = segment.base_offset, -1, 0, 0
        window_at = filled = 0
        reason, torn = "", False
        while position < size:
            at = position - window_at
            if at + HEAD_BYTES > filled:
                filled, window_at, at = self._fill(position), position, 0
                if filled < HEADER_BYTES:
                    reason, torn = f"{size - position} bytes of a batch header", True
                    break
            covered, header_crc, payload_crc_bytes = head(view, at)
            magic, length, log, base, batch_epoch, payload_crc, extension, count, batch_newest, producer_id = fields(view, at)
            if crc32c(payload_crc_bytes, crc32c(covered)) != header_crc or magic != _MAGIC or length < HEADER_BYTES + extension:
                reason = _no_batch(segment.path, position, magic, is_whole=crc32c(payload_crc_bytes, crc32c(covered)) == header_crc)
                break
            stop = position + length
            if stop > size:
                reason, torn = f"{size - position} bytes of a batch of {length}", True
                break
            if log != packed or base != offset or batch_epoch < epoch or not count:
                reason = f"offset {base} of log {PartitionId(*_LOG.unpack(log))!r}, epoch {batch_epoch}, after epoch {epoch}"
                break
            told = bytes(view[at : at + HEAD_BYTES]) if batch_epoch != epoch or producer_id >= 0 else None
            if at + length <= filled:
                crc = crc32c(view[at + _COVERED_AT : at + length])
            else:
                crc = self._crc_across(position + _COVERED_AT, stop)
                window_at, filled = self._at, self._filled
            if crc != payload_crc:
                reason = "the batch does not match its payload checksum"
                break
            if told is not None:
                try:
                    self._seen(read_header(told))
                except BadBatch as bad:  # intact, and yet no leader ever wrote such a mark
                    reason = str(bad)
                    break
                epoch = batch_epoch
            if position >= due:
                add_offset(base)
                add_position(position)
                add_time(newest)
                due = position + interval
            if batch_newest > newest:
                newest = batch_newest
                if not position:
                    segment.first_timestamp_ms = batch_newest
            offset, position = base + count, stop
        segment.index_due, segment.size, segment.end_offset, segment.max_timestamp_ms = due, position, offset, newest
        return Stop(position, offset, reason, torn)

    def _fill(self, position: int) -> int:
        """Move the window to `position`; returns how much it holds, which is less than all only where the file ends."""
        self._at, filled = position, 0
        while filled < _WINDOW:
            got = self._fs.preadv(self._fd, (self._buffer[filled:],), position + filled)
            if not got:
                break
            filled += got
        self._filled = filled
        return filled

    def _crc_across(self, start: int, stop: int) -> int:
        """The checksum of what the window does not hold at once; the window slides along. -1 if the file ends before."""
        crc = crc32c(b"")
        while start < stop:
            if not self._at <= start < self._at + self._filled and not self._fill(start):
                return -1
            piece = self._buffer[start - self._at : min(stop - self._at, self._filled)]
            crc = crc32c(piece, crc)
            start += len(piece)
        return crc
