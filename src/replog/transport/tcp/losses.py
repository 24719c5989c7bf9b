"""Whom this process has lost: what the end of a connection, or of an attempt to dial, is told as.

What waits for an answer on the lane that has ended will wait in vain; the other lanes to the same peer say whether there is more to it.
What has waited to be sent is in no doubt: its sender is told so, before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from replog.messages import Disconnected, Unreached
from replog.model import Address
from replog.transport.tcp.asked import Asked
from replog.transport.tcp.connection import IDLE, Connection
from replog.transport.tcp.connections import CLOSED_BY_PEER
from replog.transport.tcp.lanes import BULK, CONTROL, DATA
from replog.transport.tcp.limits import TcpLimits

__all__ = ["UNSERVED", "Losses", "is_harmless"]

UNSERVED = "the broker at this end is gone"
"""Why a connection is closed whose own end nobody serves any more."""


def is_harmless(connection: Connection, reason: str, now_ms: int, limits: TcpLimits) -> bool:
    """Whether nobody has waited for an answer on a connection that has ended: it was idle, or the broker at this end is gone.

    That says nothing about what is queued in it.
    """
    if reason != CLOSED_BY_PEER:
        return reason in (IDLE, UNSERVED)
    return 2 * (now_ms - max(connection.heard_ms, connection.taken_ms)) >= limits.idle_timeout_ms


class Losses:
    """What is yet to be told, one hint per address: the worst that has happened.

    `reaches(address)`: whether any lane is open. `withdraw(address)`: gives up what still waits to be sent there, and says who asked.
    """

    def __init__(self, reaches: Callable[[Address], bool], withdraw: Callable[[Address], Sequence[Asked]]) -> None:
        self._reaches = reaches
        self._withdraw = withdraw
        self.waiting: dict[Address, bool] = {}
        """Whoever is lost -> whether just reads are in doubt."""
        self.unsent: list[Asked] = []
        """What had waited to be sent there. With both empty there is nothing to tell, which each turn sees without a call."""

    def add(self, address: Address, lane: int = DATA, unsent: Sequence[Asked] = ()) -> None:
        """Nobody is reached there, or not on that lane; and what had waited for that, which is dropped.

        While others live, the end of CONTROL is told of the controller there only: commands are repeated, and what somebody has passed
        on to it is not. The end of BULK puts what is being read in doubt, that of DATA everything.
        """
        self.unsent += unsent
        lives = lane != DATA and self._reaches(address)
        only_reads = lives and lane == BULK
        if not (lives and lane == CONTROL):
            self.waiting[address] = only_reads and self.waiting.get(address, True)
        if type(address) is int:
            controller = "controller", address
            self.waiting[controller] = only_reads and self.waiting.get(controller, True)

    def tell(self, told: Callable[[Address, Disconnected], object], back: Callable[[tuple[Address, Address, Any]], object]) -> None:
        """Give what was not sent `back` to its sender, and each hint to `told`, and forget it: after an interrupt it may be told twice."""
        for address, only_reads in self.waiting.items():
            if not only_reads:  # else the hint would put in doubt what waits for a dial on another lane
                self.unsent += self._withdraw(address[1] if type(address) is tuple and address[0] == "controller" else address)
        for sender, to, message in self.unsent:
            back((sender, None, Unreached(to, message)))
        self.unsent.clear()
        while self.waiting:
            address, only_reads = next(iter(self.waiting.items()))
            told(address, Disconnected(address, only_reads))
            self.waiting.pop(address, None)

    def clear(self) -> None:
        """Nobody is to be told."""
        self.waiting.clear()
        self.unsent.clear()
