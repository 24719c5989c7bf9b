"""What waits to be sent on one connection: buffers by `sendmsg`, many at once, and regions of files by `sendfile`."""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Any, Final

from replog.codec import Part
from replog.messages import Fetched

__all__ = [
    "BUFFERS_MAX",
    "JOINED_BYTES",
    "SENDFILE_BYTES_MIN",
    "TURN_BYTES",
    "Outgoing",
    "StaleSlice",
    "Unsettled",
    "drop",
    "guard_unsettled",
    "release",
    "without_records",
]

BUFFERS_MAX: Final = 64
TURN_BYTES: Final = 4 << 20
"""Written to one connection before the others have their turn."""
SENDFILE_BYTES_MIN: Final = 16 << 10
"""A smaller region is read and goes along with what is before and behind it: one call for all of them."""
COPY_BYTES: Final = 256 << 10
JOINED_BYTES: Final = 2 << 10
"""A frame with one batch that is no larger is copied into one piece."""
_MORE: Final = getattr(socket, "MSG_MORE", 0)
_BUFFERS: Final = (bytes, memoryview, bytearray)

Waiting = Any
"""bytes, a memoryview, or a `ports.Slice`."""


class StaleSlice(Exception):
    """The log was truncated below the end of a slice: a frame that was promised cannot be completed."""


class Unsettled:
    """A region of a file that may yet be truncated and written again: its bytes are copied when they are sent.

    `sendfile` only lends the pages of the file, so a later write to the same page would change what the kernel has taken and
    the peer not yet read.
    """

    __slots__ = ("_slice", "length", "position")

    def __init__(self, region: Any) -> None:
        self._slice = region
        self.length: int = region.length
        self.position: int = region.position

    def fileno(self) -> int:
        """As the slice's."""
        return int(self._slice.fileno())

    @property
    def stale(self) -> bool:
        """As the slice's."""
        return bool(self._slice.stale)

    def view(self) -> memoryview:
        """As the slice's."""
        view: memoryview = self._slice.view()
        return view

    def release(self) -> None:
        """As the slice's."""
        self._slice.release()


def guard_unsettled(message: Fetched, parts: list[Any]) -> None:
    """Have those slices copied that reach above the high watermark, which a change of leaders may truncate."""
    at = 0
    for entry in message.entries:
        for part in entry.slices:
            at += 1  # the first part is the header
            if part.end_offset > entry.high_watermark and hasattr(part, "fileno"):
                parts[at] = Unsettled(part)


def without_records(message: Fetched) -> Fetched:
    """The same answer, but with no records yet: they are let go, and the reader asks for them again.

    For a client that has asked for more at once than may wait for it. The watermarks tell it that there is more.
    """
    for entry in message.entries:
        release(entry.slices)
        entry.slices = []
    return message


class Outgoing:
    """A queue of parts. A slice is released when its last byte was taken, or when it is dropped."""

    __slots__ = ("_begun", "_parts", "_skip", "copies", "files", "held", "size")

    def __init__(self) -> None:
        self._parts: deque[Waiting] = deque()
        self._skip = 0  # bytes of the first part that are gone
        self._begun = False  # whether some of what was added with what waits is gone
        self.copies = False
        """Whether regions of files are read here: the connection is encrypted, and the kernel does not do that."""
        self.size = 0
        """Bytes that wait."""
        self.held = 0
        """... without those that lie in a log: what waits takes so much memory. A part counts until all of it is gone."""
        self.files = 0
        """Regions of files among what waits: each keeps its file open."""

    def add(self, parts: Sequence[bytes | Part], size: int) -> None:
        """Send these next; `size` bytes in all."""
        lent = 0
        if size <= JOINED_BYTES and len(parts) == 2:
            parts = _joined(parts)
        for part in parts:
            if type(part) is bytes or isinstance(part, _BUFFERS):
                if part:
                    self._parts.append(part)
            elif part.length:
                self._parts.append(part)
                lent += part.length
                self.files += hasattr(part, "fileno")
            else:
                release([part])
        self.size += size
        self.held += size - lent

    def write(self, target: socket.socket) -> int:
        """Write until all is gone, the socket takes no more, or it is the turn of others; returns the bytes taken.

        Raises StaleSlice, and OSError: of the socket or of a file. Neither leaves a connection that could go on.
        """
        parts, total = self._parts, 0
        while parts and total < TURN_BYTES:
            head = parts[0]
            try:
                if type(head) is bytes and len(parts) == 1 and not self._skip:  # nearly every message
                    taken = target.sendmsg((head,), (), 0)
                    if taken == len(head):
                        parts.clear()
                        self.size = self.held = 0
                        self._begun = False
                        return total + taken
                elif type(head) is not bytes and _is_region(head):
                    taken = self._sendfile(target, head)
                else:
                    buffers, more = self._gather()
                    taken = target.sendmsg(buffers, (), _MORE if more else 0)
            except BlockingIOError:
                break
            total += taken
            self._advance(taken)
        return total

    def take_whole(self) -> tuple[Sequence[bytes | Part], int] | None:
        """Everything that waits, and its size, which then waits no more; None if part of a frame has been sent."""
        if self._begun:
            return None
        parts, size = list(self._parts), self.size
        self._parts.clear()
        self.size = self.held = self.files = 0
        return parts, size

    def drop(self) -> None:
        """Forget everything, and release it."""
        release(self._parts)
        self._parts.clear()
        self._skip = self.size = self.held = self.files = 0
        self._begun = False

    def _sendfile(self, target: socket.socket, head: Any) -> int:
        fd = head.fileno()
        if fd < 0 or head.stale:
            raise StaleSlice
        position, left = head.position + self._skip, head.length - self._skip
        if self.copies or type(head) is Unsettled:
            data = os.pread(fd, min(left, COPY_BYTES), position)
            taken = target.send(data) if data else 0
        else:
            taken = os.sendfile(target.fileno(), fd, position, min(left, TURN_BYTES))
        if not taken:  # the file ends before the slice does
            raise StaleSlice
        return taken

    def _gather(self) -> tuple[list[bytes | bytearray | memoryview], bool]:
        """Buffers up to the next region of a file, and whether there is one."""
        buffers: list[bytes | bytearray | memoryview] = []
        more = False
        for part in islice(self._parts, BUFFERS_MAX):
            if isinstance(part, _BUFFERS):
                buffers.append(part)
            elif _is_region(part):
                more = True
                break
            else:
                view = b"" if getattr(part, "stale", False) else part.view()
                if len(view) != part.length:
                    raise StaleSlice
                buffers.append(view)
        if self._skip:
            buffers[0] = memoryview(buffers[0])[self._skip :]
        return buffers, more

    def _advance(self, taken: int) -> None:
        """So many bytes were taken."""
        parts = self._parts
        self.size -= taken
        if not self.size:
            release(parts)
            parts.clear()
            self._skip = self.held = self.files = 0
            self._begun = False
            return
        self._begun = True
        taken += self._skip
        while parts:
            head = parts[0]
            length = len(head) if isinstance(head, _BUFFERS) else head.length
            if taken < length:
                break
            taken -= length
            parts.popleft()
            if isinstance(head, _BUFFERS):
                self.held -= length
            else:
                self.files -= hasattr(head, "fileno")
                head.release()
        self._skip = taken


def _joined(parts: Sequence[Any]) -> Sequence[Any]:
    """Head and batch as one piece: `write` sends that without a look at its parts, which saves 3 calls of Python and 4 of C. Not of a
    file, which may change before it is sent."""
    head, batch = parts
    if isinstance(batch, _BUFFERS):
        return (head + batch,)
    if hasattr(batch, "fileno") or getattr(batch, "stale", False):
        return parts
    view = batch.view()
    if len(view) != batch.length:
        return parts  # of which `write` says what is wrong
    batch.release()
    return (head + view,)


def _is_region(part: Any) -> bool:
    return not isinstance(part, _BUFFERS) and part.length >= SENDFILE_BYTES_MIN and hasattr(part, "fileno")


def release(parts: Any) -> None:
    """Unpin every slice among these."""
    for part in parts:
        if type(part) is not bytes and not isinstance(part, _BUFFERS):
            part.release()


def drop(message: Any) -> None:
    """It goes nowhere: what it pins is let go."""
    if type(message) is Fetched:
        without_records(message)
