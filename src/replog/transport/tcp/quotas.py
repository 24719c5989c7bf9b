"""What clients have used of their limits: one budget for what they send, one for what they fetch (KIP-13). Pure; times are given.

A budget is kept as the time at which everything so far is paid for. Up to `burst_ms` before now it is credit, after now it is debt.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Final

__all__ = ["DEBT_MS_MAX", "NAMES_MAX", "Budget"]

NAMES_MAX: Final = 4_096
"""Names that one budget remembers: as many as there may be connections."""
DEBT_MS_MAX: Final = 60_000
"""Who owes for so long is charged for nothing more: what others of its name did long ago is not in its way for ever."""


class Budget:
    """Bytes of one kind, by the names of clients; `rate_of(name)` is what one may, in bytes per second, 0: whatever it wants."""

    def __init__(self, rate_of: Callable[[str], int], burst_ms: int, *, names_max: int = NAMES_MAX) -> None:
        self._rate_of = rate_of
        self._burst_ms = burst_ms
        self._names_max = names_max
        self._paid_ms: dict[str, float] = {}

    def __len__(self) -> int:
        """How many names are remembered."""
        return len(self._paid_ms)

    def charge(self, name: str, size: int, now_ms: int) -> int:
        """Count so many bytes; returns until when the client is to be silent: when all is paid for, `now_ms` if it is."""
        rate = self._rate_of(name)
        if not rate:
            return now_ms
        paid_ms = max(self._paid_ms.get(name, now_ms - self._burst_ms), now_ms - self._burst_ms)
        if size and paid_ms - now_ms < DEBT_MS_MAX:
            if name not in self._paid_ms and len(self._paid_ms) >= self._names_max:
                self._forget(now_ms)
            paid_ms += size * 1_000 / rate
            self._paid_ms[name] = paid_ms
        return max(now_ms, ceil(paid_ms))

    def _forget(self, now_ms: int) -> None:
        """Make room: whoever owes nothing goes; if all do, the one that owes least."""
        self._paid_ms = {name: at for name, at in self._paid_ms.items() if at > now_ms}
        if len(self._paid_ms) >= self._names_max:
            del self._paid_ms[min(self._paid_ms, key=self._paid_ms.__getitem__)]
