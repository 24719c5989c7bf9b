"""When a client's waiters are to be woken: at most one timer counts for each, the earliest one that was set."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final, Generic, Protocol, TypeVar

__all__ = ["Timers"]

_STALE_MAX: Final = 64


class _Waiter(Protocol):
    timer_ms: int | None


W = TypeVar("W", bound=_Waiter)


class Timers(Generic[W]):
    """A heap of timers. One that a waiter no longer has (`timer_ms` says another time, or None) is stale and wakes nobody."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, W]] = []
        self._stale = 0
        self._serial = 0

    def __len__(self) -> int:
        return len(self._heap)

    def arm(self, waiter: W, at_ms: int | None) -> None:
        """Wake a waiter at `at_ms`, unless it is to be woken earlier anyway."""
        if at_ms is not None and (waiter.timer_ms is None or at_ms < waiter.timer_ms):
            superseded = waiter.timer_ms is not None
            waiter.timer_ms = at_ms
            self._serial += 1
            heappush(self._heap, (at_ms, self._serial, waiter))
            if superseded:
                self._prune()

    def disarm(self, waiter: W) -> None:
        """Wake a waiter no more."""
        if waiter.timer_ms is not None:
            waiter.timer_ms = None
            self._prune()

    def due(self, now_ms: int) -> W | None:
        """The next waiter whose time has come, without its timer; None: there is none."""
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            at, _, waiter = heappop(heap)
            if waiter.timer_ms == at:
                waiter.timer_ms = None
                return waiter
        return None

    def deadline_ms(self) -> int | None:
        """When the first waiter is to be woken."""
        heap = self._heap
        while heap and heap[0][2].timer_ms != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def _prune(self) -> None:
        """One more timer is stale. Now and then drop them all: they keep operations, and their results, in memory."""
        self._stale += 1
        if self._stale > _STALE_MAX and self._stale > len(self._heap) // 2:
            self._heap = [timer for timer in self._heap if timer[2].timer_ms == timer[0]]
            heapify(self._heap)
            self._stale = 0
