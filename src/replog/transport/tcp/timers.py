"""When each connection has to be looked at: a heap that moving a deadline back, which is the rule, does not touch."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heappop, heappush
from typing import Generic, TypeVar

__all__ = ["Timers"]

T = TypeVar("T", bound=Hashable)


class Timers(Generic[T]):
    """At most one look per thing is due at a time; asking for an earlier one replaces it, for a later one does nothing."""

    def __init__(self) -> None:
        self.heap: list[tuple[int, int, T]] = []
        """Soonest first: (when, a number, what). The first may be one that was asked for earlier since, or is gone."""
        self._at: dict[T, int] = {}
        self._serial = 0

    def __len__(self) -> int:
        return len(self._at)

    def look(self, thing: T, at_ms: int) -> None:
        """Have `thing` come out of `due` at that time, or earlier if that was asked for before."""
        known = self._at.get(thing)
        if known is None or at_ms < known:
            self._at[thing] = at_ms
            self._serial += 1
            heappush(self.heap, (at_ms, self._serial, thing))
            if len(self.heap) > 64 and len(self.heap) > 4 * len(self._at):
                self.heap = sorted((at, serial, one) for at, serial, one in self.heap if self._at.get(one) == at)

    def forget(self, thing: T) -> None:
        """It is gone. Idempotent."""
        self._at.pop(thing, None)

    def next_ms(self) -> int | None:
        """When the next look is due."""
        heap = self.heap
        while heap and self._at.get(heap[0][2]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def due(self, now_ms: int) -> Iterator[T]:
        """Everything whose time has come; whoever wants to be looked at again says so."""
        while (at := self.next_ms()) is not None and at <= now_ms:
            thing = heappop(self.heap)[2]
            del self._at[thing]
            yield thing
