"""Partitions that are due at some time: who is next is known without a look at the others."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

from replog.model import PartitionId
from replog.partition.partition import Partition

__all__ = ["NEVER", "Due"]

NEVER: Final = 1 << 62
"""When nobody is due (ms)."""
_OVER_MAX: Final = 1_000
"""So many times that no longer count are kept, besides as many as there are partitions."""


class Due:
    """Each partition stands here once, with the earliest time that was named for it."""

    def __init__(self) -> None:
        self._at: dict[PartitionId, tuple[int, Partition]] = {}
        self._heap: list[tuple[int, PartitionId]] = []
        """Times (ms) of all of these, and some that no longer count: nobody is searched for when a partition is dropped."""
        self.next_ms: int = NEVER
        """When the next one is due. Every turn looks at it, so it is kept and not sought: that took a leader 16 calls of Python for each
        acknowledgement."""

    def put(self, partition: Partition, at_ms: int) -> None:
        """Due at `at_ms`, unless it is due earlier."""
        known = self._at.get(partition.identity)
        if known is not None and known[0] <= at_ms:
            return
        self._at[partition.identity] = (at_ms, partition)
        heappush(self._heap, (at_ms, partition.identity))
        if len(self._heap) > 2 * len(self._at) + _OVER_MAX:
            self._heap = [(at, identity) for identity, (at, _) in self._at.items()]
            heapify(self._heap)
        if at_ms < self.next_ms:
            self.next_ms = at_ms

    def drop(self, identity: PartitionId) -> None:
        """Not due any more."""
        if self._at.pop(identity, None) is not None:
            self._seek_next()

    def take(self, now_ms: int) -> list[Partition]:
        """Those that are due by now, the earliest first; they stand here no longer."""
        taken: list[Partition] = []
        while self.next_ms <= now_ms:
            _, identity = heappop(self._heap)
            taken.append(self._at.pop(identity)[1])
            self._seek_next()
        return taken

    def _seek_next(self) -> None:
        """Drop the times that no longer count from the front."""
        heap = self._heap
        while heap:
            at_ms, identity = heap[0]
            known = self._at.get(identity)
            if known is not None and known[0] == at_ms:
                self.next_ms = at_ms
                return
            heappop(heap)
        self.next_ms = NEVER
