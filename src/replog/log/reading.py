"""Finding batches in a segment: by offset, by size, by time. Whatever is returned was checked to be where it belongs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

from replog.errors import LogCorrupt, LogFull
from replog.log.open_files import FileSlice
from replog.log.scan import headers, intact_batches, steps
from replog.log.segment import Segment, SparseIndex
from replog.log.storage import Storage, read_index
from replog.model import PartitionId
from replog.ports import NO_DESCRIPTORS
from replog.records import HEAD_BYTES, BadBatch, BatchHeader, RecordBatch, read_header

__all__ = ["batch_from_time", "batch_holding", "headers_from", "load_index", "slice_from"]

Found = TypeVar("Found")


def load_index(storage: Storage, identity: PartitionId, segment: Segment) -> SparseIndex:
    """The index of a segment: the one at hand, the one beside its file, or one built from its headers (which can raise BadBatch)."""
    if segment.index is None:
        fd = storage.files.descriptor(segment)
        index = read_index(storage.fs, fd, segment, segment.end_offset, identity)
        if index is None:
            _build_index(storage, identity, segment)
        else:
            segment.index = index
            segment.index_due = index.positions[-1] + storage.limits.index_interval_bytes
    assert segment.index is not None
    return segment.index


def _build_index(storage: Storage, identity: PartitionId, segment: Segment) -> None:
    """Build it from the headers. If they break off at a damaged batch, what the index at hand says of those behind is kept; without one
    there is an index of those in front (`Segment.front`), and BadBatch is raised."""
    index, due, newest, end = SparseIndex(), 0, -1, 0
    fd = storage.files.descriptor(segment)
    segment.resume.clear()
    try:
        for position, header in headers(storage.fs, fd, 0, segment.size, segment.base_offset, identity):
            if position >= due:
                index.add(header.base_offset, position, newest)
                due = position + storage.limits.index_interval_bytes
            newest = max(newest, header.max_timestamp_ms)
            end = position + header.length
    except BadBatch:
        if segment.index is None:
            segment.front = index
            raise
        index.go_on_with(segment.index, end)
    segment.index, segment.index_due, segment.front = index, due, None


def _index_to_read(storage: Storage, identity: PartitionId, segment: Segment) -> SparseIndex:
    """The index, or, where a damaged batch is in the way, that of the batches in front of it. Raises OSError."""
    if segment.index is None and segment.front is None:
        with suppress(BadBatch):
            load_index(storage, identity, segment)
    found = segment.front if segment.index is None else segment.index
    assert found is not None
    return found


def _trusting(storage: Storage, identity: PartitionId, segment: Segment, find: Callable[[int, SparseIndex], Found]) -> Found:
    """`find(descriptor, index)`; if the index led astray, once more with one built from the batches.

    Raises LogCorrupt; LogFull if no file could be opened for now, which says nothing of what is in it.
    """
    try:
        storage.files.descriptor(segment)
        try:
            return find(segment.fd, segment.index or _index_to_read(storage, identity, segment))
        except BadBatch:
            with suppress(BadBatch):
                _build_index(storage, identity, segment)
            segment.enter_next()
            return find(segment.fd, _index_to_read(storage, identity, segment))
    except (BadBatch, OSError) as error:
        if isinstance(error, OSError) and error.errno in NO_DESCRIPTORS:
            raise LogFull(f"log {identity!r} cannot be read now: {error}") from error
        raise LogCorrupt(f"log {identity!r}, {segment.path}: {error}") from error


def _position_of(storage: Storage, identity: PartitionId, segment: Segment, fd: int, index: SparseIndex, offset: int) -> tuple[int, int]:
    """(position, base offset) of the batch that holds `offset`; only the way there is checked, and the next step. Raises BadBatch.

    Where the way breaks off, a batch on it is damaged: the last one, which leads astray, or the next. Then it is looked for byte by byte.
    """
    base, position = index.at_or_below(offset) or (segment.base_offset, 0)
    if base == offset:
        return position, base
    within = None
    try:
        for at, first, end, _ in steps(storage.fs, fd, position, segment.size, base):
            if within is not None:
                return within
            if first == offset:
                return at, first
            if offset < end:  # so it says: a count that is damaged is seen by what follows
                within = at, first
        if within is not None:
            return within
        raise BadBatch(f"offset {offset} is not in front of position {segment.size}")
    except BadBatch:
        segment.enter_next()
        stop = index.position_above(offset) or segment.size
        for at, header in intact_batches(storage.fs, fd, position, identity, stop):
            if header.base_offset > offset:
                break
            if offset < header.end_offset:
                return at, header.base_offset
        raise


def batch_holding(storage: Storage, identity: PartitionId, segment: Segment, offset: int) -> tuple[int, BatchHeader]:
    """(position, header) of the batch that holds `offset`, which the segment contains. Raises as `_trusting`."""

    def find(fd: int, index: SparseIndex) -> tuple[int, BatchHeader]:
        position, base = _position_of(storage, identity, segment, fd, index, offset)
        return position, _header(storage, segment, position, base, offset, identity)

    return _trusting(storage, identity, segment, find)


def _header(storage: Storage, segment: Segment, position: int, base: int, offset: int, identity: PartitionId) -> BatchHeader:
    """The header of the batch that begins with `base`, holds `offset`, and does not reach beyond its segment. Raises BadBatch."""
    header = read_header(storage.fs.pread(segment.fd, HEAD_BYTES, position))
    held = base <= offset < header.end_offset <= segment.end_offset  # the header's checksum does not cover the count
    if header.identity != identity or header.base_offset != base or not held:
        raise BadBatch(f"at position {position} is the batch at offset {header.base_offset} of log {header.identity!r}")
    return header


def slice_from(
    storage: Storage, identity: PartitionId, segment: Segment, offset: int, limit: int, max_bytes: int, *, first: bool
) -> FileSlice | None:
    """Whole batches of a segment from the one that holds `offset`, ending at or below `limit`, of `max_bytes` at most.

    `first`: one batch goes through whatever its size. None if nothing fits. Raises LogFull, and LogCorrupt if that which holds `offset` is
    damaged; in front of another damaged one the slice may end, or it holds the damage, for whoever checks the bytes.
    """

    def find(fd: int, index: SparseIndex) -> FileSlice | None:
        resumed = segment.resume.get(offset)
        start, base = (resumed, offset) if resumed is not None else _position_of(storage, identity, segment, fd, index, offset)
        header = _header(storage, segment, start, base, offset, identity)
        stop, end = start + header.length, header.end_offset
        if end > limit or (header.length > max_bytes and not first):
            return None
        if segment.end_offset <= limit and segment.size - start <= max_bytes:
            stop, end = segment.size, segment.end_offset
        else:
            try:
                nearer = index.last_within(start + max_bytes, limit)
                if nearer is not None and nearer[1] > stop:
                    end, stop = nearer
                for position, _, after, length in steps(storage.fs, fd, stop, segment.size, end):
                    if after > limit or position + length - start > max_bytes:
                        break
                    stop, end = position + length, after
            except BadBatch:
                segment.enter_next()
                end, stop = _intact_end(storage, identity, segment, start, base, limit, max_bytes)
        segment.remember(end, stop)
        return FileSlice(storage.files, segment, base, end, start, stop - start)

    return _trusting(storage, identity, segment, find)


def _intact_end(
    storage: Storage, identity: PartitionId, segment: Segment, start: int, base: int, limit: int, max_bytes: int
) -> tuple[int, int]:
    """(end offset, position) where a slice from `start` ends if it is to hold intact batches only. Raises BadBatch if the first is damaged.

    For where the way along the batches breaks off: the index may be wrong, or a batch there, or the one before it, whose length or count
    led astray. So each is looked at in full, without the index.
    """
    end, stop = base, start
    try:
        for position, _, after, length in steps(storage.fs, segment.fd, start, segment.size, base):
            if position > start and (after > limit or position + length - start > max_bytes):
                break
            RecordBatch.parse(storage.fs.pread(segment.fd, length, position), identity=identity)
            end, stop = after, position + length
    except BadBatch:
        if stop == start:
            raise
    return end, stop


def headers_from(storage: Storage, identity: PartitionId, segment: Segment, position: int, offset: int) -> Iterator[BatchHeader]:
    """The headers of a segment from `position`, where `offset` begins. Raises BadBatch."""
    fd = storage.files.descriptor(segment)
    return (header for _, header in headers(storage.fs, fd, position, segment.size, offset, identity))


def batch_from_time(
    storage: Storage, identity: PartitionId, segment: Segment, timestamp_ms: int, start_offset: int
) -> BatchHeader | None:
    """The first batch at or above `start_offset` with a record at or after a time; None if the segment has none. Raises as `_trusting`."""

    def find(fd: int, index: SparseIndex) -> BatchHeader | None:
        offset, position = index.before_time(timestamp_ms) or (segment.base_offset, 0)
        for _, header in headers(storage.fs, fd, position, segment.size, offset, identity):
            if header.max_timestamp_ms >= timestamp_ms and header.end_offset > start_offset:
                return header
        return None

    return _trusting(storage, identity, segment, find)
