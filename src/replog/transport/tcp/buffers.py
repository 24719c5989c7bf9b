"""Memory for what arrives: one scratch buffer for everybody, and pooled ones for frames that come in parts."""

from __future__ import annotations

from typing import Final

__all__ = ["FRESH_BYTES", "SCRATCH_BYTES", "Buffers", "grow"]

SCRATCH_BYTES: Final = 256 << 10
FRESH_BYTES: Final = 16 << 10
"""A new buffer begins with so much, or twice what is there: never with what a frame claims to need."""
POOLED_MAX: Final = 4
POOLED_BYTES_MAX: Final = 8 << 20
"""A larger buffer is not kept."""


class Buffers:
    """The receive memory of one transport. `held` counts what connections own; the scratch buffer and the pool are constant."""

    def __init__(self) -> None:
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.held = 0
        self._pool: list[bytearray] = []

    def take(self, length: int, have: int) -> bytearray:
        """A buffer for a frame of `length` bytes, of which `have` are there: room for those, and for some of the others.

        A read into no room at all brings nothing, which would be taken for the end of the stream.
        """
        size = min(length, max(2 * have, FRESH_BYTES))
        for at, pooled in enumerate(self._pool):
            if not _in_use(pooled):
                del self._pool[at]
                if len(pooled) <= have:
                    grow(pooled, size)
                return pooled
        return bytearray(size)

    def give(self, buffer: bytearray) -> None:
        """Its frame was decoded. It is used again once no view of it is left: what was decoded may still be in use."""
        if len(buffer) <= POOLED_BYTES_MAX:
            self._pool.append(buffer)
            if len(self._pool) > POOLED_MAX:
                del self._pool[0]


def grow(buffer: bytearray, size: int) -> None:
    """Make it at least so large."""
    if size > len(buffer):
        buffer.extend(bytes(size - len(buffer)))


def _in_use(buffer: bytearray) -> bool:
    """Whether a view of it exists: then it cannot change its size."""
    try:
        buffer.append(0)
    except BufferError:
        return True
    buffer.pop()
    return False
