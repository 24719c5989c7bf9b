"""How many connections a process may have open, and who has to go for a newcomer: strangers first, and nobody who is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from replog.transport.tcp import sockets
from replog.transport.tcp.connection import State
from replog.transport.tcp.connections import Connections

__all__ = ["Places"]


class Places:
    """Of one transport."""

    def __init__(self, connections: Connections, connections_max: int, on_event: Callable[[str, dict[str, Any]], None]) -> None:
        self._connections = connections
        self._most = sockets.most(connections_max)
        self._on_event = on_event

    def has_one(self, name: str) -> bool:
        """Whether the connection of this name, which was just accepted, may stay. If all places are taken, the one that has waited
        longest without saying who it is gives up its own; without such a one the newcomer is told of, and does not stay."""
        open_ = self._connections.open
        if len(open_) < self._most:
            return True
        stranger = next((one for one in open_.values() if not one.dialed and one.state is not State.OPEN), None)
        if stranger is None:
            self._on_event("connection_refused", {"from": name, "reason": f"{len(open_)} connections are open"})
            return False
        self._connections.end(stranger, f"{len(open_)} connections are open, and it has not said who it is")
        return True
