"""The bytes of a copy, and whether a disk has spoiled them: what protocols promise of equal copies holds for the others."""

from __future__ import annotations

from replog.errors import ReplogError
from replog.records import BadBatch, RecordBatch
from replog.testing.simulator.ledger import Copy

__all__ = ["bytes_of", "is_spoiled"]


def bytes_of(copy: Copy, start: int, end: int) -> bytes | None:
    """A copy from one offset to another; None if it says that it cannot be read: one answer may end in front of what is damaged."""
    if copy.log is None or copy.unreadable:
        return None
    found = b""
    try:
        while pieces := copy.log.read(start, end, 1 << 40):
            found += b"".join(bytes(piece.view()) for piece in pieces)
            start = pieces[-1].end_offset
    except (ReplogError, OSError):
        return None
    return found


def is_spoiled(data: bytes) -> bool:
    """Whether some batch does not match its checksums."""
    at = 0
    try:
        while at < len(data):
            at += RecordBatch.parse(data, at).length
    except BadBatch:
        return True
    return False
