"""How much one answer may hold: whatever readers ask for, however many partitions have something to tell, a frame can carry it."""

from __future__ import annotations

from typing import Any, Final

from replog.config import FRAME_BYTES_MAX
from replog.errors import Code
from replog.messages import AdminAnswer, Fetched, FetchedEntry, Unsent

__all__ = ["ENTRY_BYTES", "FILES_MAX", "ROOM_BYTES", "SLICE_BYTES", "in_its_place", "shorten"]

ENTRY_BYTES: Final = 128
"""At most what one partition takes in an answer besides its records."""
SLICE_BYTES: Final = 32
"""The same for one stretch of them."""
ROOM_BYTES: Final = FRAME_BYTES_MAX - 256
"""For entries: the rest is the head of the frame and of the answer."""

FILES_MAX: Final = 64
"""Regions of files in one answer: each keeps its file open until it is sent, and there may be thousands of small segments."""


def shorten(entry: FetchedEntry, room: int, files: int = FILES_MAX, *, alone: bool) -> bool:
    """Leave as many of its slices as fit into `room` bytes, `files` regions of files among them; False if there are some and none fits, so
    that it has to wait.

    `alone`: there will never be more room, so a batch that does not fit, which no configuration allows, becomes MESSAGE_TOO_LARGE.
    """
    slices, room = entry.slices, room - ENTRY_BYTES
    kept = 0
    for piece in slices:
        room -= SLICE_BYTES + piece.length
        files -= hasattr(piece, "fileno")
        if room < 0 or files < 0:
            break
        kept += 1
    if kept == len(slices):
        return True
    for piece in slices[kept:]:
        piece.release()
    entry.slices = slices[:kept]
    if alone and not kept:
        entry.error = Code.MESSAGE_TOO_LARGE
    return alone or kept > 0


def in_its_place(unsent: Unsent) -> Any:
    """What is said instead of an answer that no frame can carry, so that nobody waits for it in vain; None: it answers nobody."""
    answer = unsent.message
    if isinstance(answer, Fetched):
        refused = [FetchedEntry(entry.partition, entry.leader_epoch, entry.offset, Code.MESSAGE_TOO_LARGE) for entry in answer.entries]
        return Fetched(answer.request, answer.session, answer.session_epoch, answer.error, refused, answer.catch_up)
    if isinstance(answer, AdminAnswer):
        return AdminAnswer(answer.request, Code.MESSAGE_TOO_LARGE, unsent.reason, origin=answer.origin)
    return None
