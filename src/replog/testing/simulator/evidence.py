"""Whether a log could know that its disk has kept less than it was given: by what is left of it, as docs/format.md says what is read.

A write that never arrived looks like one that was never made, if nothing was written behind it and no note reaches beyond it. That no
program can tell. Everything else it has to tell: a machine that hides it must be caught by what it then lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from replog.log.segment import segment_base
from replog.log.storage import folder_name
from replog.model import PartitionId
from replog.records import HEADER_BYTES, MAGIC, BadBatch, BatchHeader, read_header
from replog.testing.simulator.ledger import Copy

if TYPE_CHECKING:
    from replog.testing.simulator.node import Node

__all__ = ["is_unknowable", "traces"]

_MAGIC_BYTES: Final = MAGIC.to_bytes(2, "little")


def is_unknowable(node: Node, identity: PartitionId, copy: Copy, how: str) -> bool:
    """Whether a copy has lost something over the end of a process (see `Storage.end`), does not say so, and cannot know."""
    directory, storage = node.directory, node.storage
    if not copy.suspect or copy.log is None or identity in directory.loss.lossy:
        return False
    log, found = directory.get(identity), Copy(node.broker_id)
    found.suspect = True
    found.follow(log)
    flushed = max(copy.durable, copy.log.flushed_end) if node.lied else copy.durable
    end = flushed if how == "power" else max(copy.end, copy.log.end_offset)
    kept = 0 if log is None else log.end_offset  # what of that it cannot read, it does not hide
    if kept >= end:
        low, high = max(copy.first, found.first), min(copy.end, found.end, end)
        return copy.entries[low - copy.first : high - copy.first] != found.entries[low - found.first : high - found.first]
    if kept < storage.noted.get(identity, 0):
        return False
    if storage.left is None:
        return not copy.sizes or copy.sizes[-1][0] <= kept
    return not traces(storage.left, identity, kept, power=how == "power")


def traces(files: Mapping[str, bytes], identity: PartitionId, end: int, *, power: bool) -> bool:
    """Whether the files of a directory show that a log went on behind `end`, where its intact batches end.

    After the end of a process alone whatever stands there was written, except the beginning of a batch, which the process did not complete.
    After a power cut anything may stand there, but what was written behind it: an intact header of this log, or a segment that has begun.
    """
    folder = f"/{folder_name(identity)}/"
    named = ((segment_base(path.rpartition("/")[2]), data) for path, data in files.items() if folder in path)
    segments = sorted((base, data) for base, data in named if base is not None)
    later = [data for base, data in segments if base > end]
    if any(later) or (later and not power):
        return True
    here = [(base, data) for base, data in segments if base <= end]
    if not here:
        return False
    rest = _behind(*here[-1], end)
    if rest is None or _goes_on(rest, identity, end):
        return True
    return bool(rest) and not power and not _is_torn(rest)


def _header(data: bytes, at: int) -> BatchHeader | None:
    """What stands there, if it is an intact header."""
    try:
        return read_header(data[at : at + 2 * HEADER_BYTES]) if len(data) - at >= HEADER_BYTES else None
    except BadBatch:
        return None


def _behind(base: int, data: bytes, end: int) -> bytes | None:
    """What stands in a segment behind the batch that ends at `end`; None if the batches do not lead there."""
    at = 0
    while base < end:
        header = _header(data, at)
        if header is None or header.base_offset != base:
            return None
        base, at = header.end_offset, at + header.length
    return data[at:]


def _goes_on(rest: bytes, identity: PartitionId, end: int) -> bool:
    """Whether a batch of this log stands somewhere behind the place that is broken."""
    at = rest.find(_MAGIC_BYTES, 1)
    while at >= 0:
        header = _header(rest, at)
        if header is not None and header.identity == identity and header.base_offset >= end:
            return True
        at = rest.find(_MAGIC_BYTES, at + 1)
    return False


def _is_torn(rest: bytes) -> bool:
    """Whether this is the beginning of one batch, and the file ends within it."""
    header = _header(rest, 0)
    return len(rest) < HEADER_BYTES or (header is not None and header.length > len(rest))
