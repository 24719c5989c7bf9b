"""Under acks=0 nobody answers: what of a producer's records may still be in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from replog.model import Address

if TYPE_CHECKING:
    from replog.client.core import ClientCore
    from replog.client.driver import Driver

__all__ = ["Leaving"]


class Leaving:
    """The bytes that one producer has sent and that have not left this process, by the broker they are for.

    Connections say how much waits in them, not whose it is. So this is a bound from above: what this producer has sent to a broker
    since nothing waited for that one, and never more than waits for it. Others that keep a connection from ever being empty hold up
    whoever shares it; what waits for another broker holds up nobody.
    """

    def __init__(self, core: ClientCore) -> None:
        self._core = core
        self._sent: dict[Address, int] = {}
        self.bytes = 0
        """As of the last `look`, and what was sent since."""

    def add(self, to: Address, size: int) -> None:
        """So many bytes are about to be sent there."""
        self._sent[to] = self._sent.get(to, 0) + size
        self.bytes += size

    def look(self, unsent_to: Callable[[Address], int]) -> int:
        """How many bytes they are now, at most. Called with the lock held."""
        if self._sent and not self._core.outbox.messages:  # those in the outbox were not even given to connections
            left = {to: min(size, unsent_to(to)) for to, size in self._sent.items()}
            self._sent = {to: size for to, size in left.items() if size}
            self.bytes = sum(self._sent.values())
        return self.bytes

    def wait(self, driver: Driver, timeout_s: float | None, since_ms: int, to: Address | None = None) -> bool:
        """Wait until they have left, or those they were for were not reached; False: not within `timeout_s` from `since_ms` on.

        `to`: only those for this broker.
        """

        def have_left() -> bool:
            left = self.look(driver.unsent_to)
            return not (left if to is None else self._sent.get(to))

        with driver.lock:
            if have_left():
                return True
            left_s = None if timeout_s is None else max(0.0, timeout_s - (driver.now_ms() - since_ms) / 1000)
        return driver.wait(have_left, left_s)

    def clear(self) -> None:
        """In a forked child: they are the parent's."""
        self._sent, self.bytes = {}, 0
