"""How many connections a process may have open, and who has to go for a newcomer: strangers first, and nobody who is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from replog.transport.tcp import sockets
from replog.transport.tcp.connection import Connection, State
from replog.transport.tcp.connections import Connections
from replog.transport.tcp.limits import TcpLimits
from replog.transport.tcp.origin import origin_of

__all__ = ["Places"]

_KEPT: Final = 8
"""One in so many places is kept free of clients: brokers find one, whatever clients do."""


class Places:
    """Of one transport."""

    def __init__(self, connections: Connections, limits: TcpLimits, on_event: Callable[[str, dict[str, Any]], None]) -> None:
        self._connections = connections
        self._most = sockets.most(limits.connections_max)
        self._most_of_address = limits.connections_per_address_max
        self._on_event = on_event
        self._by_address: Counter[str] = Counter()
        """Accepted and open, where that is limited."""
        self.clients_max = max(self._most - max(self._most // _KEPT, 1), 1)
        """So many of them may be clients."""

    def has_one(self, name: str) -> bool:
        """Whether the connection of this name ("address:port"), which was just accepted, may stay. If all places are taken, the one that
        has waited longest without saying who it is gives up its own; without such a one the newcomer is told of, and does not stay."""
        address, open_ = origin_of(name), self._connections.open
        if self._most_of_address and self._by_address[address] >= self._most_of_address:
            self._on_event("connection_refused", {"from": name, "reason": f"{self._most_of_address} connections of its address are open"})
            return False
        if len(open_) >= self._most:
            stranger = next((one for one in open_.values() if not one.dialed and one.state is not State.OPEN), None)
            if stranger is None:
                self._on_event("connection_refused", {"from": name, "reason": f"{len(open_)} connections are open"})
                return False
            self._connections.end(stranger, f"{len(open_)} connections are open, and it has not said who it is")
        if self._most_of_address:
            self._by_address[address] += 1
        return True

    def ended(self, connection: Connection) -> None:
        """It is closed."""
        if self._most_of_address and not connection.dialed:
            self._by_address[connection.origin] -= 1
            if not self._by_address[connection.origin]:
                del self._by_address[connection.origin]
