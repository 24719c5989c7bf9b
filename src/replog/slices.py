"""Bytes of a log that are in memory already: below `ports`, because frames are read into them."""

from __future__ import annotations

from typing import Final

__all__ = ["MemorySlice"]


class MemorySlice:
    """A `ports.Slice` whose bytes are already in memory: what came over a wire, or the tail a log still holds."""

    __slots__ = ("base_offset", "data", "end_offset", "length")

    batches: Final = None
    """Bytes, of which nobody here knows that they are what they claim."""

    def __init__(self, base_offset: int, end_offset: int, data: bytes | memoryview) -> None:
        self.base_offset = base_offset
        self.end_offset = end_offset
        self.data = memoryview(data)
        self.length = self.data.nbytes

    def view(self) -> memoryview:
        """The bytes, not copied."""
        return self.data

    def release(self) -> None:
        """Nothing is pinned; here so that every slice is treated alike."""
