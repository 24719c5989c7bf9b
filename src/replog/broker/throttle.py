"""How fast a broker may fetch copies that a reassignment adds here: so many bytes per second, of all of them together.

What is in sync already is never held back, nor what a follower lost and fetches again: only those that a move has brought here, until they
are. A later wish that leads elsewhere takes them out of `adding`; until it is complete they are replicas that fetch all the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from replog.model import Assignment
from replog.partition.partition import Partition
from replog.ports import Slice

__all__ = ["Throttle"]


class Throttle:
    """Counts bytes ahead of their time. An answer is taken as it comes; the next question waits until it has been worth it."""

    def __init__(self, broker_id: int, bytes_per_s: int) -> None:
        """`bytes_per_s` of 0: no limit."""
        self._broker_id = broker_id
        self._bytes_per_s = bytes_per_s
        self._free_ms = 0.0
        """When everything that has come is paid for."""

    def pause_until_ms(self, partition: Partition, fetched: Sequence[Slice], now_ms: int) -> int:
        """When this partition may ask again, after so much of it has come; `now_ms` or earlier: at once."""
        assignment = partition.assignment
        if not self._bytes_per_s or partition.in_sync or assignment is None or not self._is_new(assignment):
            return now_ms
        self._free_ms = max(self._free_ms, now_ms) + sum(piece.length for piece in fetched) * 1_000 / self._bytes_per_s
        return int(self._free_ms)

    def _is_new(self, assignment: Assignment) -> bool:
        """Whether the copy here is one that the partition did not have before it began to move."""
        return bool(assignment.original) and self._broker_id not in assignment.original
