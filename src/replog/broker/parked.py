"""Fetches that wait: which of them have something to hear, whose time is over, and how many are answered in one turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final

from replog.broker.session import Session
from replog.model import PartitionId
from replog.partition.partition import Partition

__all__ = ["Parked"]

_VERIFYING: Final = 250
"""Partitions of which telling takes as long as checking for one client the bytes that it is sent: four of these in a turn, as shipped."""
_OVER_MAX: Final = 1_000
"""So many deadlines of fetches that have been answered are kept, besides as many as twice those that wait."""


class Parked:
    """Of one broker. Followers are answered at the end of each poll, all of them: there are few, and the high watermark waits for them.

    One append may wake as many clients as a broker holds. So many are answered at a time, those that were woken first; what else a
    broker has to do, its own session above all, comes in between.
    """

    def __init__(self, partitions_max: int) -> None:
        """`partitions_max`: clients are told of so many partitions in one turn, and one of them of all that it asked for."""
        self._partitions_max = partitions_max
        self.moved: dict[PartitionId, Partition] = {}
        """Partitions in which clients may have something to read: looked at when the poll ends, once, however much was appended."""
        self._told: dict[Session, None] = {}
        """Sessions that may have something to hear at the end of the poll."""
        self._woken: deque[Session] = deque()
        """Those of clients, in the order of their turns; a few may have ended since."""
        self._deadlines: list[tuple[int, int, Session]] = []
        """A heap of (deadline, number of the fetch here, session): of all that wait, and of some that do not any more."""
        self._waits = 0
        self.due_ms: int | None = None
        """No fetch that waits has waited long enough before this, and none has anything to hear that was not told of since the last turn;
        None: none waits."""
        self.is_behind = False
        """There was more to answer than one turn takes: the next one is due at once."""

    def tell(self, session: Session) -> None:
        """It may have something to hear: that is looked at when the poll ends."""
        self._told[session] = None

    @property
    def has_told(self) -> bool:
        """Whether anybody may have something to hear since the last turn."""
        return bool(self._told or self.moved)

    def wait(self, session: Session, waiting: int) -> None:
        """From now on its deadline is looked for. Nobody is searched for when a fetch is answered: what is over is left out later.

        `waiting`: how many may wait at all now.
        """
        if len(self._deadlines) > 2 * waiting + _OVER_MAX:
            self._deadlines = [one for one in self._deadlines if _is_waiting(one)]
            heapify(self._deadlines)
        self._waits += 1
        heappush(self._deadlines, (session.deadline_ms, self._waits, session))
        if self.due_ms is None or session.deadline_ms < self.due_ms:
            self.due_ms = session.deadline_ms

    def forget(self, session: Session) -> None:
        """It has nothing to hear any more."""
        self._told.pop(session, None)

    def in_turn(self, now_ms: int) -> Iterator[Session]:
        """Those to be answered now. Whoever iterates answers each before the next."""
        told, self._told = self._told, {}
        for session in told:
            if not session.is_follower:
                self._wake(session)
            elif session.request is not None and (session.ready or session.deadline_ms <= now_ms):
                yield session
        heap, woken = self._deadlines, self._woken
        while heap and (heap[0][0] <= now_ms or not _is_waiting(heap[0])):
            first = heappop(heap)
            if not _is_waiting(first):
                continue
            if first[2].is_follower:
                yield first[2]
            else:
                self._wake(first[2])
        room = self._partitions_max
        while woken and room > 0:
            session = woken.popleft()
            session.woken = False
            if session.request is not None and (session.ready or session.deadline_ms <= now_ms):
                room -= max(1, len(session.asked)) + (_VERIFYING if session.verify else 0)
                yield session
        self.is_behind = bool(woken)
        self.due_ms = now_ms if woken else heap[0][0] if heap else None

    def _wake(self, session: Session) -> None:
        if not session.woken:
            session.woken = True
            self._woken.append(session)


def _is_waiting(deadline: tuple[int, int, Session]) -> bool:
    """Whether this is still when the session's fetch has waited long enough."""
    at, _, session = deadline
    return session.request is not None and session.deadline_ms == at
