"""The newest batches of a log, kept in memory for readers that follow closely: they need no file, and in this process no parsing."""

from __future__ import annotations

from collections import deque
from typing import Final

from replog.records import RecordBatch

__all__ = ["NO_TAIL", "Tail", "TailSlice"]

TAIL_BYTES_MAX: Final = 1 << 20
"""Batches beyond this are read from where they are stored; the newest one is kept whatever its size."""


class TailSlice:
    """A Slice of batches that are still in memory; their bytes are put together when somebody looks, once for all who look."""

    __slots__ = ("_data", "base_offset", "batches", "end_offset", "length")

    stale: Final = False
    """Memory is never cut away under a slice."""

    def __init__(self, batches: list[RecordBatch], end_offset: int, length: int) -> None:
        self.base_offset = batches[0].base_offset
        self.end_offset = end_offset
        self.length = length
        self.batches = batches
        self._data: memoryview | None = None

    @property
    def parts(self) -> list[bytes | memoryview]:
        """The pieces in order, for a transport that gathers (`socket.sendmsg`)."""
        return [part for batch in self.batches for part in (batch.front, batch.body)]

    def view(self) -> memoryview:
        """The bytes."""
        if self._data is None:
            self._data = memoryview(b"".join(self.parts))
        return self._data

    def release(self) -> None:
        """Nothing is pinned."""


class Tail:
    """The batches at the end of a log that were appended one by one since it was last cleared, as far as they fit."""

    __slots__ = ("_batches", "_bytes", "_shared")

    def __init__(self) -> None:
        self._batches: deque[RecordBatch] = deque()
        self._bytes = 0
        self._shared: TailSlice | None = None

    def add(self, batch: RecordBatch) -> None:
        """The log has grown by this batch."""
        self._batches.append(batch)
        self._bytes += batch.length
        while self._bytes > TAIL_BYTES_MAX and len(self._batches) > 1:
            self._bytes -= self._batches.popleft().length

    def clear(self) -> None:
        """Nobody reads it any more, or the log ends elsewhere now."""
        if self._batches:
            self._batches.clear()
            self._bytes = 0
            self._shared = None

    def slice_at(self, offset: int, limit: int, max_bytes: int) -> TailSlice | None:
        """Whole batches from the one that holds `offset`, as `Log.read` gives them; None if they are not, or not all, here."""
        if not self._batches or offset < self._batches[0].base_offset:
            return None
        found: list[RecordBatch] = []
        for batch in reversed(self._batches):
            found.append(batch)
            if batch.base_offset <= offset:
                break
        found.reverse()
        if found[0].base_offset + found[0].count <= offset:
            return None  # a signal handler asks for a batch that is stored, and about to be added here
        count = length = 0
        end = offset
        for batch in found:
            after = batch.base_offset + batch.count
            if after > limit or (count and length + batch.length > max_bytes):
                del found[count:]
                break
            end = after
            length += batch.length
            count += 1
        if not count:
            return None
        shared = self._shared
        if shared is None or shared.end_offset != end or shared.base_offset != found[0].base_offset:
            shared = self._shared = TailSlice(found, end, length)
        return shared


class _NoTail(Tail):
    __slots__ = ()

    def add(self, batch: RecordBatch) -> None:
        raise AssertionError("the first append gives a log a tail of its own")


NO_TAIL: Final = _NoTail()
"""Of every log that has not had an append in this life: one of its own takes 56 bytes, and its deque more than the rest of an idle log."""
