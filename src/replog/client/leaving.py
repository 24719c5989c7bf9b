"""Under acks=0 nobody answers: what of a producer's records may still be in this process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from replog.model import Address

if TYPE_CHECKING:
    from replog.client.core import ClientCore
    from replog.client.driver import Driver

__all__ = ["Leaving"]


class _Sent:
    """What one producer has sent to one broker, as far as it may not have left."""

    __slots__ = ("bytes", "ends", "last", "sizes")

    def __init__(self) -> None:
        self.ends: deque[int] = deque()
        """Where each batch ends among all that the broker was given (`ClientCore.given`), ..."""
        self.sizes: deque[int] = deque()
        """... and its size."""
        self.bytes = 0
        self.last = 0
        """Where the newest one ends."""


class Leaving:
    """The bytes that one producer has sent and that have not left this process, by the broker they are for.

    Connections say how much waits in them, not whose it is. But what they are given first leaves first: a batch has left as soon as no more
    waits for its broker than was given behind it, by whomever. Only batches are counted, which is a little less than what is given: so
    this is a bound from above, and never more than what waits for a broker. What waits for another one holds up nobody.
    """

    def __init__(self, core: ClientCore) -> None:
        self._core = core
        self._sent: dict[Address, _Sent] = {}
        self.bytes = 0
        """As of the last `look`, and what was sent since."""

    def add(self, to: Address, size: int) -> None:
        """So many bytes are about to be sent there; they are counted among what that broker was given."""
        sent = self._sent.get(to)
        if sent is None:
            sent = self._sent[to] = _Sent()
        sent.last = self._core.given[to]
        sent.ends.append(sent.last)
        sent.sizes.append(size)
        sent.bytes += size
        self.bytes += size

    def look(self, unsent_to: Callable[[Address], int]) -> int:
        """How many bytes they are now, at most. Called with the lock held."""
        if self._sent and not self._core.outbox.messages:  # those in the outbox were not even given to connections
            total = 0
            for to, sent in list(self._sent.items()):
                waiting = unsent_to(to)
                gone = self._core.given[to] - waiting
                while sent.ends and sent.ends[0] <= gone:
                    sent.ends.popleft()
                    sent.bytes -= sent.sizes.popleft()
                if sent.ends:
                    total += min(sent.bytes, waiting)
                else:
                    del self._sent[to]
            self.bytes = total
        return self.bytes

    def wait(self, driver: Driver, timeout_s: float | None, since_ms: int, to: Address | None = None) -> bool:
        """Wait until what was sent before has left, or those it was for were not reached; False: not within `timeout_s` from `since_ms` on.

        `to`: only what is for this broker.
        """

        def have_left() -> bool:
            self.look(driver.unsent_to)
            left = ((last, self._sent.get(broker)) for broker, last in noted.items())
            return not any(sent is not None and sent.ends[0] <= last for last, sent in left)

        with driver.lock, driver.changing:
            noted = {broker: sent.last for broker, sent in self._sent.items() if to is None or broker == to}
            if have_left():
                return True
            left_s = None if timeout_s is None else max(0.0, timeout_s - (driver.now_ms() - since_ms) / 1000)
        return driver.wait(have_left, left_s)

    def clear(self) -> None:
        """Nothing of it will leave any more: its connections were given up."""
        self._sent, self.bytes = {}, 0
