"""The clock of one node: fast or slow by a fixed rate, and set to something of its own."""

from __future__ import annotations

__all__ = ["NodeClock"]


class NodeClock:
    """Monotonic time of one node as a function of virtual time. It never goes back."""

    __slots__ = ("_offset_ms", "_rate")

    def __init__(self, offset_ms: int = 0, rate: float = 1.0) -> None:
        assert rate > 0
        self._offset_ms = offset_ms
        self._rate = rate

    def now(self, world_ms: int) -> int:
        """What the node reads at a moment of virtual time."""
        return self._offset_ms + (world_ms if self._rate == 1.0 else int(world_ms * self._rate))

    def delay_until(self, due_ms: int, world_ms: int) -> int:
        """How much virtual time passes until the node reads `due_ms`; at least 1."""
        left = due_ms - self.now(world_ms)
        return max(1, left if self._rate == 1.0 else int(left / self._rate) + 1)
