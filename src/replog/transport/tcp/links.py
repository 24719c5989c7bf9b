"""One lane to one peer: the connections that are open, what waits while one is dialed, and when it may be dialed again."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from replog.codec import Part
from replog.model import Address
from replog.transport.tcp.asked import Asked
from replog.transport.tcp.connection import Connection
from replog.transport.tcp.endpoint import Endpoint
from replog.transport.tcp.limits import TcpLimits
from replog.transport.tcp.outgoing import release

__all__ = ["Link", "LinkKey", "Sought"]


class LinkKey(NamedTuple):
    """Who wants to reach whom, and for what."""

    local: Address
    """The id of a broker of this process, or the address of a client."""
    target: Address
    """The id of a broker, or "tcp://host:port"."""
    lane: int


class Sought(NamedTuple):
    """Where a lane leads, while the name in it is looked up."""

    text: str
    endpoint: Endpoint
    until_ms: int
    """The attempt has failed if nothing was found by then."""


class Link:
    """Keeps the connections of a lane, newest first: a peer that dials again has given up those of before."""

    __slots__ = ("_waiting", "dialing", "failures", "key", "open", "retry_at_ms", "sought", "waiting_bytes")

    def __init__(self, key: LinkKey) -> None:
        self.key = key
        self.open: list[Connection] = []
        self.dialing: Connection | None = None
        self.sought: Sought | None = None
        """What is to be dialed as soon as its name has been looked up."""
        self.failures = 0
        self.retry_at_ms = 0
        """Not before is it dialed again."""
        self._waiting: deque[tuple[Sequence[bytes | Part], int, Sequence[Asked]]] = deque()
        self.waiting_bytes = 0
        """Size of the frames that wait for a connection."""

    def hold(self, parts: Sequence[bytes | Part], size: int, bytes_max: int, asked: Sequence[Asked]) -> bool:
        """Keep a frame until there is a connection; False if too much waits: then it is dropped. The first always has room."""
        if self._waiting and self.waiting_bytes + size > bytes_max:
            release(parts)
            return False
        self._waiting.append((parts, size, asked))
        self.waiting_bytes += size
        return True

    def take_waiting(self) -> list[tuple[Sequence[bytes | Part], int, Sequence[Asked]]]:
        """What waits, for the connection that is open now."""
        waiting = list(self._waiting)
        self._waiting.clear()
        self.waiting_bytes = 0
        return waiting

    def drop_waiting(self) -> list[Asked]:
        """Nobody is reached. Returns whom to tell that not a byte of it was sent."""
        unsent = self.withdraw()
        for parts, _size, _asked in self.take_waiting():
            release(parts)
        return unsent

    def withdraw(self) -> list[Asked]:
        """Give up what somebody is told of if it is not sent, and return whom to tell. What nobody is told of goes on waiting."""
        waiting = self.take_waiting()
        for parts, size, asked in waiting:
            if asked:
                release(parts)
            else:
                self._waiting.append((parts, size, asked))
                self.waiting_bytes += size
        return [one for _parts, _size, asked in waiting for one in asked]

    def failed(self, now_ms: int, limits: TcpLimits, jitter: float) -> int:
        """An attempt came to nothing: the pause before the next doubles. Returns it, in ms."""
        pause = min(limits.backoff_ms << min(self.failures, 20), limits.backoff_ms_max)
        self.failures += 1
        pause -= int(pause * jitter / 2)
        self.retry_at_ms = now_ms + pause
        return pause

    def succeeded(self) -> None:
        """The peer is there: nothing is held against it."""
        self.failures = 0
        self.retry_at_ms = 0

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to remember."""
        return not (self.open or self.is_under_way or self._waiting or self.failures)

    @property
    def is_under_way(self) -> bool:
        """Whether it is dialed, or about to be."""
        return self.dialing is not None or self.sought is not None
