"""What happens on a connection before it is open: TLS, handshakes, proofs; and who is known at its other end from then on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from attrs import evolve

from replog.codec import encode
from replog.errors import Code
from replog.messages import CLIENT
from replog.security.tls_words import words_of
from replog.transport.tcp.connection import Connection, State
from replog.transport.tcp.connections import Connections, Unwelcome
from replog.transport.tcp.dialing import Dialer
from replog.transport.tcp.limits import TcpLimits
from replog.transport.tcp.links import LinkKey
from replog.transport.tcp.reception import REFUSE_AFTER_MS, Reception

if TYPE_CHECKING:
    from replog.transport.tcp.muting import Muting

__all__ = ["Opening"]


class _Process(Protocol):
    """What is known of this process: "" until its cluster is; a client learns that from the first answer."""

    cluster_id: str
    limits: TcpLimits


class Opening:
    """Of one transport. `came(broker, connection)` is told of each broker that has dialed, before it is let in.

    Beyond `clients_max` connections of clients further ones are refused, with an answer, but for those who have proven to be an admin or a
    broker: who looks after a cluster is let in, whatever clients do. With `muting`, whoever dials is read in small
    portions until it is known who that is.
    """

    def __init__(
        self,
        process: _Process,
        reception: Reception,
        connections: Connections,
        dialer: Dialer,
        *,
        came: Callable[[int, Connection], Any],
        clients_max: int,
        muting: Muting | None = None,
        now_ms: Callable[[], int],
        on_event: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self._process = process
        self._reception = reception
        self._connections = connections
        self._dialer = dialer
        self._came = came
        self._clients_max = clients_max
        self._muting = muting
        self._now_ms = now_ms
        self._on_event = on_event
        self._serial = 0
        self.peers: dict[int, Connection] = {}
        """Clients that have connected, by number."""

    def heard(self, connection: Connection, message: Any) -> None:
        """A whole frame on a connection that is not open yet. Raises CodecError or Unwelcome if it will never be."""
        if connection.dialed:
            self._greeted(connection, message)
        else:
            self._introduced(connection, message)

    def ended(self, connection: Connection) -> None:
        """It is closed."""
        self._reception.ended(connection)
        if connection.limited is not None:
            connection.limited.ended()
        if type(connection.peer) is tuple and connection.link is None:
            del self.peers[connection.peer[1]]

    def begin(self, connection: Connection) -> None:
        """Both kernels are connected: nothing is said before TLS, where that is used."""
        if self._muting is not None and not connection.dialed:
            connection.limited = self._muting.stranger
        try:
            loaded = self._reception.tls_of(connection)
            if loaded is not None:
                self._connections.secure(connection, loaded)
                return
        except OSError as problem:  # it is gone already
            self._connections.end(connection, words_of(problem))
            return
        self.secured(connection, "")

    def secured(self, connection: Connection, failure: str) -> None:
        """What is said from now on is encrypted; or why it will not be."""
        if failure and connection.dialed:
            self._connections.end(connection, failure)
        elif failure:
            self._reception.failed(connection, failure)
            self._connections.leave(connection)
        elif connection.dialed:
            self._say(connection, self._reception.greet(connection, self._process.cluster_id))
            self._connections.write(connection, self._now_ms())

    def _say(self, connection: Connection, message: Any) -> None:
        (frame,) = encode(message)
        self._connections.send(connection, [bytes(frame)], len(frame))

    def _introduced(self, connection: Connection, message: Any) -> None:
        """A frame on a connection that was accepted and is not open yet."""
        now_ms = self._now_ms()
        verdict = self._reception.judge(connection, message, self._process.cluster_id)
        if verdict.later:
            if not self._reception.may_wait(connection):
                raise Unwelcome("too many of its address have not proven who they are")
            self._connections.refuse_later(connection, b"".join(map(bytes, encode(verdict.answer))), now_ms + REFUSE_AFTER_MS)
            return
        answer, said = verdict.answer, verdict.said
        if said is not None and said.broker_id < 0 and len(self.peers) >= self._clients_max and not _has_kept_place(connection):
            text = f"{len(self.peers)} connections of clients are open, which are as many as this broker takes (connections_max)"
            answer = evolve(answer, error=Code.QUOTA_EXCEEDED, message=text, version=0)
        self._say(connection, answer)
        if answer.error:
            connection.state = State.LEAVING
            self._on_event("peer_refused", {"from": connection.name, "error": answer.error, "reason": answer.message})
        elif said is not None:
            connection.lane = said.lane
            if said.broker_id < 0:
                self._serial += 1
                self.peers[self._serial] = connection
                connection.peer = ("peer", self._serial)
            else:
                connection.peer = connection.peer_id = said.broker_id
                self._came(said.broker_id, connection)
                connection.link = self._dialer.link(LinkKey(connection.local, said.broker_id, said.lane))
            self._open(connection, now_ms)

    def _greeted(self, connection: Connection, answer: Any) -> None:
        """A frame on a connection that was dialed and is not open yet."""
        further = self._reception.heard(connection, answer, self._process.cluster_id)
        if further is not None:
            self._say(connection, further)
            return
        if not self._process.cluster_id:
            self._process.cluster_id = answer.cluster_id
        connection.peer_id = answer.broker_id
        connection.peer = connection.link.key.target
        self._open(connection, self._now_ms())

    def _open(self, connection: Connection, now_ms: int) -> None:
        connection.state = State.OPEN
        connection.heard_ms = now_ms
        connection.opened_by = connection.incoming.frames
        limits = self._process.limits
        connection.incoming.frame_bytes_max = limits.frame_bytes_max
        if connection.is_asked:
            connection.incoming.bound(limits.client_turn_requests_max)
            connection.incoming.pause()  # what it asks waits for its turn, as that of other clients does
        if connection.link is not None:
            self._dialer.opened(connection)
        self._connections.look(connection)
        if self._muting is not None and not connection.dialed:
            connection.limited = self._muting.of(connection)  # the frame that opened it is the first that is charged
        self._on_event("peer_connected", {"peer": connection.peer, "at": connection.name, "lane": connection.lane})


def _has_kept_place(connection: Connection) -> bool:
    """Whether it has proven to be of those for whom places are kept free."""
    return connection.identity is not None and connection.identity.role != CLIENT
