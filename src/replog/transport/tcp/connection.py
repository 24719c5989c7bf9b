"""One connection: who is at the other end, how far the two have come, and when it must be looked at."""

from __future__ import annotations

import select
import socket
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from replog.codec import FROM_CONTROLLER
from replog.model import Address
from replog.security.identity import Identity
from replog.transport.tcp.asked import Asked
from replog.transport.tcp.endpoint import SocketAddress
from replog.transport.tcp.incoming import Incoming, Take
from replog.transport.tcp.limits import HANDSHAKE_BYTES_MAX, TcpLimits
from replog.transport.tcp.origin import origin_of
from replog.transport.tcp.outgoing import Outgoing

if TYPE_CHECKING:
    from replog.transport.tcp.muting import Limited

__all__ = ["IDLE", "MUTED", "Connection", "State", "nowhere"]


IDLE: Final = "idle"
"""Why a connection is closed that nobody has used for long: nobody misses it."""
MUTED: Final = "muted"
"""Why a connection is looked at that is heard again now."""


def nowhere(frame: memoryview, lasting: bool) -> None:
    """Nobody looks after the connection yet."""


class State(Enum):
    """How far a connection has come."""

    CONNECTING = "connecting"
    SECURING = "securing"
    """The handshake of TLS is under way."""
    GREETING = "greeting"
    """The handshake is under way."""
    OPEN = "open"
    REFUSING = "refusing"
    """Refused, which it is not told before its time: nothing is read or sent."""
    LEAVING = "leaving"
    """Refused: only the reason is still to be sent, and nothing is listened to."""
    CLOSED = "closed"


class Connection:
    """A socket and what belongs to it. Decides nothing but its own deadline."""

    __slots__ = (
        "addresses", "began_ms", "dialed", "exchange", "expects", "fd", "frame_began_ms", "frame_filled", "heard_ms", "identity",
        "incoming", "lane", "limited", "link", "local", "mask", "muted_ms", "name", "opened_by", "outgoing", "paused", "peer", "peer_id",
        "refusal", "said_last", "socket", "state", "take", "taken_ms", "unwritten"
    )  # fmt: skip

    def __init__(self, sock: socket.socket, *, local: Address, name: str, now_ms: int, dialed: bool) -> None:
        self.socket: Any = sock
        """A socket, or a `TlsSocket`."""
        self.fd = sock.fileno()
        self.local = local
        """Who is at this end: the id of a broker, or the address of a client."""
        self.name = name
        """The other end, for people."""
        self.dialed = dialed
        self.state = State.CONNECTING if dialed else State.GREETING
        self.peer: Address = None
        """Who is at the other end, as actors call it; None until the handshake."""
        self.peer_id = -1
        """Of a broker; -1 for a client."""
        self.identity: Identity | None = None
        """Who the other end has proven to be; None: nobody was asked to."""
        self.exchange: Any = None
        """What was said so far in a handshake that is not over."""
        self.refusal: tuple[bytes, int] | None = None
        """What is said to one that is refused, and when."""
        self.link: Any = None
        self.lane = -1
        self.expects = -1
        self.addresses: list[SocketAddress] = []
        """Where else to try, if this fails."""
        self.take: Take = nowhere
        """Told each whole frame."""
        self.incoming = Incoming(HANDSHAKE_BYTES_MAX)
        self.opened_by = 0
        """How many frames of the other end had come when it was open: what comes after them are messages."""
        self.outgoing = Outgoing()
        self.unwritten: list[Asked] = []
        """Who is told if this ends now: of what was queued since the socket was last written to, not a byte has left."""
        self.mask = 0
        self.paused = False
        """Nothing is read, because the peer does not take what it has asked for."""
        self.muted_ms = -1
        """Nothing is read until then, because the peer is over its quota; -1: it is not."""
        self.limited: Limited | None = None
        """What of a quota is about this connection; None: no quota is."""
        self.said_last = False
        self.began_ms = self.heard_ms = self.taken_ms = now_ms
        self.frame_began_ms = -1
        """Since when a frame has not been whole, or has not got `FRAME_STEP_BYTES` longer; -1: none has begun."""
        self.frame_filled = 0
        """How long it was then."""

    @property
    def is_closed(self) -> bool:
        """Nothing can be done with it any more."""
        return self.state is State.CLOSED

    @property
    def is_heard(self) -> bool:
        """Whether what comes is read; what has come already is paid for, and not muted."""
        return not self.paused and (self.muted_ms < 0 or bool(self.incoming.kept))

    @property
    def origin(self) -> str:
        """Whom it is put down to as long as nobody has proven who it is."""
        return origin_of(self.name)

    @property
    def is_asked(self) -> bool:
        """Whether a client asks here, so that its questions decide how much waits for it."""
        return not self.dialed and self.peer_id < 0

    def sender(self, route: int) -> Address:
        """Who says what comes on this route."""
        return ("controller", self.peer) if route & FROM_CONTROLLER else self.peer

    def deadline(self, limits: TcpLimits) -> tuple[int, str]:
        """When this connection is to be closed if nothing happens until then, and why."""
        if self.state is State.CONNECTING:
            return self.began_ms + limits.connect_timeout_ms, "connecting took too long"
        if self.refusal is not None and self.state is State.REFUSING:
            return self.refusal[1], "refused"
        if self.state is not State.OPEN:
            return self.began_ms + limits.handshake_timeout_ms, "the handshake took too long"
        # Whoever dialed closes first, so that nothing it sends crosses with the end of the connection.
        patience = limits.idle_timeout_ms if self.dialed else 2 * limits.idle_timeout_ms
        first = max(self.heard_ms, self.taken_ms) + patience, IDLE
        if self.muted_ms >= 0:  # whether it is silent is not known
            first = self.muted_ms, MUTED
        elif self.frame_began_ms >= 0 and not self.paused:
            first = min(first, (self.frame_began_ms + limits.frame_timeout_ms, "a frame was not completed in time"))
        if self.outgoing.size and self.mask & select.EPOLLOUT:  # else nobody has tried to send it yet
            first = min(first, (self.taken_ms + limits.stalled_timeout_ms, "it takes nothing"))
        return first
