"""Time and chance as a test wants them: a clock that moves when told, identifiers that follow from a seed."""

from __future__ import annotations

import random

__all__ = ["ManualClock", "SeededIds"]


class ManualClock:
    """A clock that stands still until `advance`. Monotonic and wall time move together; `wall_ms` may be set back or forth."""

    def __init__(self, now_ms: int = 0, wall_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._wall_ms = wall_ms

    def now_ms(self) -> int:
        """Monotonic time."""
        return self._now_ms

    def now_ns(self) -> int:
        """Monotonic time in nanoseconds, as lease clocks want it."""
        return self._now_ms * 1_000_000

    def wall_ms(self) -> int:
        """Milliseconds since 1970, or so it claims."""
        return self._wall_ms

    def advance(self, ms: int) -> None:
        """Let time pass."""
        assert ms >= 0, "monotonic time does not go back"
        self._now_ms += ms
        self._wall_ms += ms

    def set_wall(self, wall_ms: int) -> None:
        """Step the wall clock alone, as a person or NTP does."""
        self._wall_ms = wall_ms


class SeededIds:
    """`Ids` that follow from a seed: the same on every machine."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def token(self) -> bytes:
        """16 bytes."""
        return self._random.randbytes(16)

    def number(self) -> int:
        """63 bits."""
        return self._random.getrandbits(63)

    def jitter(self) -> float:
        """In [0, 1)."""
        return self._random.random()
