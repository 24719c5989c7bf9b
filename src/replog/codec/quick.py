"""The messages that each acknowledgement costs, written out field by field: the same format and the same bounds as everywhere.

Reading here takes the meta apart in one call of msgpack, whose memory `META_BYTES_MAX` and `ITEMS_MAX` bound whatever it claims,
and then checks each field. What is not accepted here, `stepwise` reads again: it says what is wrong, or knows better. So
this may only ever accept what `stepwise` accepts, and make the same of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

from msgpack import unpackb
from msgpack.exceptions import UnpackException

from replog import messages as m
from replog.codec.frames import HEADER, INT32_MAX, INT64_MAX, UINT32_MAX, Part
from replog.model import PartitionId
from replog.slices import MemorySlice

__all__ = ["ITEMS_MAX", "META_BYTES_MAX", "READERS", "WRITERS", "read"]

META_BYTES_MAX: Final = 16 << 10
"""A larger meta is read step by step."""
ITEMS_MAX: Final = 256
"""So is an array with more items: a claim of more is not believed, and one of fewer costs 2 KiB, a few hundred times if nested."""

_new: Final = tuple.__new__

# --------------------------------------------------------------------------------------------------------------- writing


def _write_produce(message: m.Produce, parts: list[bytes | Part]) -> Any:
    rows = []
    for entry in message.entries:
        body = entry.body
        parts.append(body)
        rows.append((entry.request, entry.partition, len(body)))
    return message.acks, message.timeout_ms, rows


def _write_produced(message: m.Produced, parts: list[bytes | Part]) -> Any:
    rows = [(e.request, e.error, e.base_offset, e.start_offset, e.leader, e.leader_epoch) for e in message.entries]
    return (rows,)


def _write_fetch(message: m.Fetch, parts: list[bytes | Part]) -> Any:
    return (
        message.request,
        message.replica,
        message.broker_epoch,
        message.session,
        message.session_epoch,
        message.max_wait_ms,
        message.min_bytes,
        message.max_bytes,
        [(e.partition, e.leader_epoch, e.offset, e.last_epoch, e.max_bytes, e.flushes) for e in message.entries],
        message.forgotten,
        message.catch_up,
        message.verify,
    )


def _write_fetched(message: m.Fetched, parts: list[bytes | Part]) -> Any:
    rows = []
    for e in message.entries:
        slices: Any = ()
        if e.slices:
            slices = [(piece.base_offset, piece.end_offset, piece.length) for piece in e.slices]
            parts.extend(e.slices)
        rows.append(
            (
                e.partition,
                e.leader_epoch,
                e.offset,
                e.error,
                e.high_watermark,
                e.start_offset,
                e.end_offset,
                e.diverging_epoch,
                e.diverging_end,
                slices,
                e.preferred_replica,
            )
        )
    return message.request, message.session, message.session_epoch, message.error, rows, message.catch_up


WRITERS: Final[dict[type[Any], Callable[[Any, list[bytes | Part]], Any]]] = {
    m.Produce: _write_produce,
    m.Produced: _write_produced,
    m.Fetch: _write_fetch,
    m.Fetched: _write_fetched,
}
"""Message -> what msgpack is to pack; batches are set aside in the list."""

# --------------------------------------------------------------------------------------------------------------- reading


def read(number: int, meta: bytes | memoryview, frame: bytes | memoryview) -> Any | None:
    """The message of this type, with the batches that follow its meta in the frame; None: it has to be read step by step."""
    try:
        row = unpackb(meta, use_list=False, raw=False, max_array_len=ITEMS_MAX, max_map_len=0, max_ext_len=0)
        if type(row) is not tuple:
            return None
        message, stop = READERS[number](row, frame, HEADER.size + len(meta))
    except (ValueError, TypeError, UnpackException):
        return None
    return message if stop == len(frame) else None


def _doubt() -> NoReturn:
    raise ValueError


def _partition(value: Any) -> PartitionId:
    if type(value) is tuple and len(value) == 3:
        topic_id, partition, creation = value
        if (
            type(topic_id) is bytes
            and len(topic_id) == 16
            and type(partition) is int
            and 0 <= partition <= INT32_MAX
            and type(creation) is int
            and 0 <= creation <= UINT32_MAX
        ):
            return _new(PartitionId, value)
    _doubt()


def _read_produce(row: Any, frame: bytes | memoryview, at: int) -> tuple[m.Produce, int]:
    acks, timeout_ms, rows = row
    if not (type(acks) is type(timeout_ms) is int and acks <= INT64_MAX and timeout_ms <= INT64_MAX and type(rows) is tuple):
        _doubt()
    entries = []
    left = len(frame) - at
    for each in rows:
        if type(each) is not tuple:
            _doubt()
        request, partition, size = each
        if not (type(request) is type(size) is int and request <= INT64_MAX and 0 <= size <= left):
            _doubt()
        left -= size
        # The body is copied: it outlives the receive buffer.
        entries.append(m.ProduceEntry(request, _partition(partition), bytes(frame[at : at + size])))
        at += size
    return m.Produce(acks, timeout_ms, entries), at


def _read_produced(row: Any, frame: bytes | memoryview, at: int) -> tuple[m.Produced, int]:
    (rows,) = row
    if type(rows) is not tuple:
        _doubt()
    entries = []
    for each in rows:
        if type(each) is not tuple:
            _doubt()
        request, error, base, start, leader, leader_epoch = each
        if not (
            type(request) is type(error) is type(base) is type(start) is type(leader) is type(leader_epoch) is int
            and request <= INT64_MAX
            and error <= INT64_MAX
            and base <= INT64_MAX
            and start <= INT64_MAX
            and leader <= INT64_MAX
            and -2 <= leader_epoch <= INT32_MAX
        ):
            _doubt()
        entries.append(m.ProducedEntry(request, error, base, start, leader, leader_epoch))
    return m.Produced(entries), at


def _read_fetch(row: Any, frame: bytes | memoryview, at: int) -> tuple[m.Fetch, int]:
    request, replica, broker_epoch, session, session_epoch, max_wait_ms, min_bytes, max_bytes, rows, forgotten, catch_up, verify = row
    if not (
        type(request) is type(replica) is type(broker_epoch) is type(session) is type(session_epoch) is int
        and type(max_wait_ms) is type(min_bytes) is type(max_bytes) is int
        and request <= INT64_MAX
        and replica <= INT64_MAX
        and broker_epoch <= INT64_MAX
        and session <= INT64_MAX
        and session_epoch <= INT64_MAX
        and max_wait_ms <= INT64_MAX
        and min_bytes <= INT64_MAX
        and max_bytes <= INT64_MAX
        and type(rows) is type(forgotten) is tuple
        and type(catch_up) is type(verify) is bool
    ):
        _doubt()
    entries = []
    for each in rows:
        if type(each) is not tuple:
            _doubt()
        partition, leader_epoch, offset, last_epoch, bytes_max, flushes = each
        if not (
            type(leader_epoch) is type(offset) is type(last_epoch) is type(bytes_max) is int
            and -2 <= leader_epoch <= INT32_MAX
            and offset <= INT64_MAX
            and -1 <= last_epoch <= INT32_MAX
            and bytes_max <= INT64_MAX
            and type(flushes) is bool
        ):
            _doubt()
        entries.append(m.FetchEntry(_partition(partition), leader_epoch, offset, last_epoch, bytes_max, flushes))
    gone = [_partition(each) for each in forgotten] if forgotten else []
    message = m.Fetch(
        request, replica, broker_epoch, session, session_epoch, max_wait_ms, min_bytes, max_bytes, entries, gone, catch_up, verify
    )
    return message, at


def _read_fetched(row: Any, frame: bytes | memoryview, at: int) -> tuple[m.Fetched, int]:
    request, session, session_epoch, error, rows, catch_up = row
    if not (
        type(request) is type(session) is type(session_epoch) is type(error) is int
        and request <= INT64_MAX
        and session <= INT64_MAX
        and session_epoch <= INT64_MAX
        and error <= INT64_MAX
        and type(rows) is tuple
        and type(catch_up) is bool
    ):
        _doubt()
    entries = []
    for each in rows:
        if type(each) is not tuple:
            _doubt()
        partition, leader_epoch, offset, code, high, start, end, parted_epoch, parted_end, pieces, preferred = each
        if not (
            type(leader_epoch) is type(offset) is type(code) is type(high) is type(start) is type(end) is int
            and type(parted_epoch) is type(parted_end) is type(preferred) is int
            and -2 <= leader_epoch <= INT32_MAX
            and offset <= INT64_MAX
            and code <= INT64_MAX
            and high <= INT64_MAX
            and start <= INT64_MAX
            and end <= INT64_MAX
            and -1 <= parted_epoch <= INT32_MAX
            and parted_end <= INT64_MAX
            and preferred <= INT64_MAX
            and type(pieces) is tuple
        ):
            _doubt()
        slices: list[MemorySlice] = []
        if pieces:
            at = _read_slices(pieces, frame, at, slices)
        entries.append(
            m.FetchedEntry(
                _partition(partition), leader_epoch, offset, code, high, start, end, parted_epoch, parted_end, slices, preferred
            )
        )
    return m.Fetched(request, session, session_epoch, error, entries, catch_up), at


def _read_slices(pieces: tuple[Any, ...], frame: bytes | memoryview, at: int, slices: list[MemorySlice]) -> int:
    """Append the slices whose bytes begin there; returns where they end."""
    view = memoryview(frame)
    for piece in pieces:
        if type(piece) is not tuple:
            _doubt()
        base, end, size = piece
        if not (type(base) is type(end) is type(size) is int and 0 <= base <= end <= INT64_MAX and 0 <= size <= len(view) - at):
            _doubt()
        slices.append(MemorySlice(base, end, view[at : at + size]))
        at += size
    return at


READERS: Final[dict[int, Callable[[Any, bytes | memoryview, int], tuple[Any, int]]]] = {
    1: _read_produce,
    2: _read_produced,
    3: _read_fetch,
    4: _read_fetched,
}
"""Type number -> (fields, frame, where its batches begin) to (message, where they end). ValueError and TypeError: in doubt."""
