"""At most so many open descriptors, however many segments there are; and slices that keep theirs open while they need it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from replog.errors import LogClosed
from replog.log.files import Fs, kill_in_child
from replog.log.segment import Segment
from replog.ports import NO_DESCRIPTORS

__all__ = ["FileSlice", "OpenFiles"]

Result = TypeVar("Result")


class OpenFiles:
    """Opens segment files when they are used, and closes those unused for longest when there are too many.

    Second chance instead of a strict order, so that using a file costs one store: whatever was used since it was last
    looked at is passed over once. Pinned files stay open, even beyond the limit; once they are not pinned any more, the next opening, or
    `close_unused`, closes them. A segment's index goes with its file when it takes no more appends.
    """

    __slots__ = ("__weakref__", "_dead", "_open", "fs", "limit")

    def __init__(self, fs: Fs, limit: int) -> None:
        self.fs = fs
        self.limit = limit
        self._open: dict[Segment, None] = {}
        self._dead = False
        kill_in_child(self)

    def __len__(self) -> int:
        return len(self._open)

    def descriptor(self, segment: Segment, *, create: bool = False) -> int:
        """The descriptor of a segment's file, opened (or made) if it is not open. Raises OSError; for want of descriptors only if no other
        file can be closed for it."""
        if self._dead:
            raise LogClosed(f"{segment.path} was opened before a fork and is dead in the child")
        if segment.fd < 0:
            if len(self._open) >= self.limit:
                self._close_down_to(self.limit - 1)
            segment.fd = self.with_room(lambda: self.fs.open(segment.path, create=create))
            segment.closing = False
            self._open[segment] = None
        segment.used = True
        return segment.fd

    def with_room(self, opening: Callable[[], Result]) -> Result:
        """`opening()`; if there is no descriptor for that, once more without the file that is unused for longest. Raises OSError."""
        try:
            return opening()
        except OSError as error:
            if error.errno not in NO_DESCRIPTORS:
                raise
            self._close_down_to(len(self._open) - 1)
            return opening()

    def pin(self, segment: Segment) -> int:
        """As `descriptor`, and it stays open until as many calls of `unpin`."""
        fd = self.descriptor(segment)
        segment.pins += 1
        return fd

    def unpin(self, segment: Segment) -> None:
        """One who pinned it needs it no longer."""
        segment.pins -= 1
        if not segment.pins and segment.closing:
            self.close(segment)

    def close(self, segment: Segment) -> None:
        """Close a segment's file, or have it closed when nobody needs it any more."""
        if segment.pins:
            segment.closing = True
        elif segment.fd >= 0:
            fd, segment.fd = segment.fd, -1
            segment.closing = False
            self._open.pop(segment, None)
            self.fs.close(fd)

    def die_in_child(self) -> None:
        """Give up every descriptor: they belong to the parent."""
        self._dead = True
        for segment in self._open:
            if segment.fd >= 0:  # not of a close that was interrupted
                self.fs.close(segment.fd)
                segment.fd = -1
        self._open.clear()

    def close_unused(self) -> None:
        """Close what was kept open beyond the limit because it was pinned, and is so no longer.

        Not done by `unpin`: that comes also from a garbage collection, amid whatever is done with the file.
        """
        if len(self._open) > self.limit:
            self._close_down_to(self.limit)

    def _close_down_to(self, count: int) -> None:
        """Close those unused for longest until so many are open, as far as they are not pinned."""
        for segment in [*self._open, *self._open]:
            if len(self._open) <= count:
                return
            if segment.pins or segment.fd < 0:
                continue
            if segment.used:
                segment.used = False
                del self._open[segment]  # to the end of the line
                self._open[segment] = None
                continue
            self.close(segment)
            if segment.sealed:
                segment.index = segment.front = None
                segment.resume.clear()


class FileSlice:
    """Whole batches as a region of a file: for `sendfile`, or read once by `view`."""

    __slots__ = ("_cuts", "_files", "_released", "_view", "base_offset", "end_offset", "length", "position", "segment")

    batches: Final = None
    """What is in a file is known once its checksums were compared."""

    def __init__(self, files: OpenFiles, segment: Segment, base_offset: int, end_offset: int, position: int, length: int) -> None:
        self._released = True  # until it is pinned
        self._files = files
        self.segment = segment
        self.base_offset = base_offset
        self.end_offset = end_offset
        self.position = position
        self.length = length
        self._view: memoryview | None = None
        self._cuts = segment.cuts_so_far()
        files.pin(segment)
        self._released = False

    def fileno(self) -> int:
        """The descriptor to send from, beginning at `position`; it stays open until `release`. -1 after that, and in a forked child."""
        return -1 if self._released else self.segment.fd

    @property
    def stale(self) -> bool:
        """The log was truncated below the end of this slice: the file may hold other bytes now, so nothing more may be sent from it."""
        return self.segment.is_cut_below(self.position + self.length, self._cuts)

    def view(self) -> memoryview:
        """The bytes; none if they were truncated away meanwhile. In place of what cannot be read there are zeros, which no checksum
        matches: so whoever looks finds damage, and not a log that seems to end."""
        if self._view is None:
            fd = self.fileno()
            if fd < 0 or self.stale:
                return memoryview(b"")
            try:
                data = self._files.fs.pread(fd, self.length, self.position)
            except OSError:
                data = b""
            self._view = memoryview(data if len(data) == self.length else data.ljust(self.length, b"\0"))
        return self._view

    def release(self) -> None:
        """Unpin the file. Idempotent; a slice that is dropped releases itself."""
        if not self._released:
            self._released = True
            self._files.unpin(self.segment)

    def __del__(self) -> None:
        if not getattr(self, "_released", True):  # an interrupt may come before the first line of __init__
            self.release()

    def __repr__(self) -> str:
        return f"FileSlice([{self.base_offset}, {self.end_offset}), {self.length} bytes)"
