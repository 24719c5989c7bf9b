"""Messages between processes: one selector, no thread but for names, no lock, bounded memory (design, sections 2 and 9)."""

from __future__ import annotations

import random
import select
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from replog.codec import FROM_CONTROLLER, MESSAGE_TYPES, ROUTE_AT, TO_CONTROLLER, CodecError
from replog.errors import UsageError
from replog.log.files import kill_in_child
from replog.messages import BROKER, CLIENT, Fetched, Role, Unsent
from replog.model import Address
from replog.ports import Transport
from replog.security.tls_words import words_of
from replog.transport.tcp.admission import refusal
from replog.transport.tcp.asked import Asked, asked_by
from replog.transport.tcp.connection import Connection, State
from replog.transport.tcp.connections import CLOSED_BY_PEER, Connections
from replog.transport.tcp.dialing import Dialer
from replog.transport.tcp.endpoint import check_insecure
from replog.transport.tcp.fitting import Fitting
from replog.transport.tcp.inbox import Inbox
from replog.transport.tcp.lanes import CONTROL, lane_of
from replog.transport.tcp.limits import TcpLimits
from replog.transport.tcp.links import Link, LinkKey
from replog.transport.tcp.listeners import Listener, Listeners
from replog.transport.tcp.losses import UNSERVED, Losses, is_harmless
from replog.transport.tcp.muting import muting_of
from replog.transport.tcp.opening import Opening
from replog.transport.tcp.outgoing import drop, without_records
from replog.transport.tcp.places import Places
from replog.transport.tcp.reception import Reception, door_of, unknown
from replog.transport.tcp.surroundings import Surroundings
from replog.transport.tcp.telling import Strangers, quiet, unheeded
from replog.transport.tcp.turns import HANDLE_BYTES_MAX, HANDLE_LONG_MAX, HANDLE_MS_MAX, HANDLE_REQUESTS_MAX, QUICK_BYTES, may_take_long
from replog.transport.tcp.wakeup import Wakeup
from replog.transport.tcp.whereabouts import Whereabouts, nobody

if TYPE_CHECKING:
    from replog.security.quotas import Quotas
    from replog.security.settings import Security

__all__ = ["TcpTransport"]

_OPEN: Final = State.OPEN
_FETCHED: Final = next(number for number, kind in MESSAGE_TYPES.items() if kind is Fetched)
_EVENTS_MAX: Final = 512
_SMALL_BYTES: Final = 2 << 10
"""A frame of so many is copied before it is decoded: bytes are cut up faster than views are."""
MOVED: Final = "it is reached elsewhere now"


class TcpTransport(Transport):
    """The transport of one process that others reach, or that reaches others.

    Its owner calls `wait` (without whatever lock it holds otherwise), `handle` and `flush`, or `poll` for all three. Whoever
    listens at an address gets what is sent to it; the addresses are those that actors use: n for broker n, ("controller", n)
    for the controller there, ("peer", k) for a client that has connected, "tcp://host:port" for a broker that is not known
    by its id yet.

    When nobody is reached at an address, or one of the connections to it has ended while an answer may have been awaited there,
    all listeners get `Disconnected(address)`, and what was to go there is dropped.
    A peer that misbehaves, stalls or costs too much is cut off (`limits`), which `on_event` is told.
    """

    def __init__(
        self,
        *,
        role: Role,
        broker_id: int = -1,
        limits: TcpLimits | None = None,
        now_ms: Callable[[], int],
        endpoint_of: Callable[[int], str | None] = nobody,
        on_event: Callable[[str, dict[str, Any]], None] = quiet,
        insecure: bool = False,
        security: Security | None = None,
        quotas: Quotas | None = None,
        throttled: Callable[[Any, str, int], None] = unheeded,
        topic_of: Callable[[bytes], str | None] = unknown,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """`endpoint_of` says where a broker is reached; `jitter` is uniform in [0, 1); `security`: who has to prove what, and how;
        `insecure` allows `serve` beyond loopback without TLS; `topic_of(id)` is the name of a topic, where rules are about names.
        `quotas`: what clients may send and fetch; `throttled(broker, request, ms)` is told for how much longer one of them is not heard.

        Raises UsageError if role and id do not fit together, `insecure` is no bool, or a file of `security` cannot be used.
        """
        if role not in (BROKER, CLIENT) or (role == CLIENT) != (broker_id < 0):
            raise UsageError(f"role {role!r} with broker id {broker_id}; a broker has an id of at least 0, a client has -1")
        self.surroundings = around = Surroundings(endpoint_of, on_event, throttled, topic_of)
        on_event = Strangers(around.on_event, now_ms=now_ms)
        self.role, self.broker_id = role, broker_id
        self.cluster_id = ""
        """"" until it is known; then every handshake is checked against it. A client learns it from the first answer."""
        self.limits = limits or TcpLimits()
        self._fitting = Fitting(role, self.limits, on_event)
        self._full_bytes = 4 * self.limits.output_bytes_max
        self._now_ms = now_ms
        self._on_event = on_event
        self._insecure = check_insecure(insecure)
        self.security = security
        self._door = door_of(security, around.topic_of, now_ms) if role == BROKER else None
        self._whereabouts = Whereabouts(around.endpoint_of)
        self._inbox = Inbox(self._whereabouts)
        self._receivers = self._inbox.receivers
        self._ways: dict[tuple[Address, Address, int], tuple[Link, int]] = {}
        """Sender, receiver and lane -> the link that the last such message took, and its route."""
        self.closed = False
        """Whether it was closed or abandoned."""
        self._left: list[tuple[int, int]] = []
        self._long = 0  # of this turn
        self._muting = muting_of(quotas if role == BROKER else None, now_ms, around.throttled, on_event)
        self._wire(Reception(role, security, on_event=on_event), jitter)
        kill_in_child(self)

    def _wire(self, reception: Reception, jitter: Callable[[], float]) -> None:
        self._epoll = select.epoll()
        self._wakeup = Wakeup(self._epoll)
        self._listeners = Listeners(self._epoll, self.limits, self._accepted, self._on_event)
        self._connections = Connections(
            self._epoll,
            self.limits,
            connected=lambda connection, failure: self._dialer.connected(connection, failure, self._now_ms()),
            secured=lambda connection, failure: self._opening.secured(connection, failure),
            frame=self._frame,
            ended=self._ended,
        )
        self._places = Places(self._connections, self.limits, self._on_event)
        self._dialer = Dialer(
            self._connections,
            self.limits,
            reached=lambda connection: self._opening.begin(connection),
            endpoint_of=self.surroundings.endpoint_of,
            lost=lambda target, lane, unsent: self._lost.add(target, lane, unsent),
            jitter=jitter,
            wake=self._wakeup.ring,
            on_event=self._on_event,
        )
        self._lost = Losses(self._dialer.reaches, self._dialer.withdraw)
        self._opening = Opening(
            self,
            reception,
            self._connections,
            self._dialer,
            came=self._came,
            clients_max=self._places.clients_max,
            muting=self._muting,
            now_ms=self._now_ms,
            on_event=self._on_event,
        )

    # ------------------------------------------------------------------------------------------------------------- the port

    def serve(self, endpoint: str, *, broker_id: int | None = None) -> str:
        """Listen at "tcp://host:port" for a broker of this process; returns the endpoint with its real port.

        Raises UsageError for a client, for what is no endpoint, for a host beyond loopback unless insecure, and when the
        system refuses (the port is in use).
        """
        self._check_open()
        if self.role == CLIENT:
            raise UsageError("a client serves nobody")
        broker_id, tls = self.broker_id if broker_id is None else broker_id, None if self.security is None else self.security.tls
        return self._listeners.serve(endpoint, broker_id, insecure=self._insecure, encrypted=tls is not None)

    def unserve(self, broker_id: int) -> None:
        """Stop serving a broker of this process, and close its connections, as if its process had ended. Idempotent."""
        self._listeners.stop(broker_id)
        self._dialer.drop(broker_id)
        for connection in list(self._connections.open.values()):
            if connection.local == broker_id:
                self._connections.end(connection, UNSERVED)

    def listen(self, address: Address, receive: Callable[[Address, Any], None]) -> None:
        """Deliver what comes for `address` to `receive(sender, message)`. UsageError if somebody listens there, or after `close`."""
        self._check_open()
        if address in self._receivers:
            raise UsageError(f"somebody listens at {address!r} already")
        self._receivers[address] = receive

    def unlisten(self, address: Address) -> None:
        """Stop delivering to `address`; what has arrived for it is dropped. Idempotent."""
        self._inbox.forget(address)

    def send(self, sender: Address, to: Address, message: Any) -> None:
        """Queue a message; `flush` dials and writes. Never blocks. Slices in it are released when they are sent or dropped.

        Raises CodecError for what no frame can carry; never for an address that is unknown or dead. A message that is too large goes
        nowhere: `sender` gets it back as `Unsent`, with the next `handle`.
        """
        if self.closed:
            drop(message)
        elif to in self._receivers:
            self._inbox.brokers.append((to, sender, message))
        elif type(to) is tuple and to[0] == "peer":
            connection = self._opening.peers.get(to[1])
            if connection is None:
                drop(message)
            else:
                if self._door is not None and connection.identity is not None:
                    message = self._door.leave(connection.identity, to, message)
                self._send_on(connection, message, 0)
        else:
            lane = lane_of(message, self.role)
            way = None if self._whereabouts.doubtful else self._ways.get((sender, to, lane))
            if way is not None and way[0].open:
                self._send_on(way[0].open[0], message, way[1], asked_by(sender, to, message))
            else:
                self._send_to_broker(sender, to, message, lane)
        if self._fitting.refused:
            self._inbox.brokers.append((sender, to, Unsent(to, message, self._fitting.refused)))
            self._fitting.refused = ""

    def _send_to_broker(self, sender: Address, to: Address, message: Any, lane: int) -> None:
        route, target, local = 0, to, sender
        if type(to) is tuple and to[0] == "controller":
            route, target = TO_CONTROLLER, to[1]
        if self.role == BROKER:
            if type(sender) is tuple and sender[0] == "controller":
                route, local = route | FROM_CONTROLLER, sender[1]
            elif type(sender) is not int:
                local = self.broker_id
        if type(target) is int and self._whereabouts.has_moved(target):
            self._follow(target)
        link, asked = self._dialer.link(LinkKey(local, target, lane)), asked_by(sender, to, message)
        if link.open:
            if lane != CONTROL:
                self._ways[sender, to, lane] = link, route
            self._send_on(link.open[0], message, route, asked)
        elif not link.is_under_way and link.retry_at_ms > self._now_ms():
            drop(message)
            self._lost.add(target, lane, asked)
        elif (sized := self._fitting.encode(to, message, route)) is not None and not self._dialer.hold(link, *sized, asked):
            self._lost.add(target, lane, asked)
            self._on_event("message_dropped", {"to": to, "message": type(message).__name__, "reason": "too much waits while it is dialed"})

    def _follow(self, target: int, newest: Connection | None = None) -> None:
        """A broker is reached elsewhere now: all connections of before are closed, and the next is dialed at once."""
        for connection in list(self._connections.open.values()):
            its = connection.peer_id == target or (connection.link is not None and connection.link.key.target == target)
            if its and connection is not newest:
                self._connections.end(connection, MOVED)
        self._dialer.moved(target)

    def _came(self, broker_id: int, connection: Connection) -> None:
        if self._whereabouts.has_moved(broker_id):
            self._follow(broker_id, newest=connection)

    def _send_on(self, connection: Connection, message: Any, route: int, asked: Sequence[Asked] = ()) -> None:
        connection.unwritten += asked
        waiting = connection.outgoing.size
        if waiting >= self._full_bytes and self.role == BROKER:
            drop(message)
            self._connections.end(connection, f"{waiting} bytes wait for it", abort=True)
            return
        if connection.peer_id < 0 and type(message) is Fetched and connection.is_asked:
            is_full = waiting >= self.limits.output_bytes_max or self._connections.holds_files(connection)
            if is_full or (connection.limited is not None and connection.limited.owes):
                message = without_records(message)
        if (sized := self._fitting.encode(connection.peer, message, route)) is not None:
            self._connections.send(connection, *sized)

    # ------------------------------------------------------------------------------------------------------------- the loop

    def fileno(self) -> int:
        """Readable when there is work; -1 after `close`."""
        return -1 if self.closed else self._epoll.fileno()

    def next_poll_ms(self) -> int | None:
        """When `handle` and `flush` are due even if nothing becomes readable; None: never. In the past: now."""
        if self.closed:
            return None
        inbox, dialer, connections = self._inbox, self._dialer, self._connections
        work = inbox.brokers or inbox.clients or self._lost.waiting or self._left or dialer.wanted or connections.unread
        if work or connections.dirty or connections.securing:
            return self._now_ms()
        soonest, refused_ms = connections.timers.next_ms(), None if self._door is None else self._door.refusals.next_ms
        if not (self._listeners.paused or dialer.sought or dialer.resolver.found) and refused_ms is None:  # nearly always
            return soonest
        times = (soonest, refused_ms, self._listeners.next_ms(), dialer.next_ms())
        return min((at_ms for at_ms in times if at_ms is not None), default=None)

    @property
    def unsent_bytes(self) -> int:
        """Size of what waits for its socket to take it, or for its peer to be reached."""
        return self._dialer.waiting_bytes + sum(one.outgoing.size for one in self._connections.open.values())

    def unsent_to(self, sender: Address, to: Address) -> int:
        """The same of what waits for one broker, of one who sends here."""
        return self._dialer.unsent_to(sender, to)

    def wait(self, timeout_s: float | None) -> list[tuple[int, int]]:
        """What is ready, for `handle`; waits so long for it (None: for ever). This alone may be called while another thread
        works with the transport."""
        if self.closed:
            return []
        try:
            return self._epoll.poll(timeout_s, _EVENTS_MAX)
        except (ValueError, OSError):  # closed meanwhile by another thread
            if self.closed:
                return []
            raise

    def handle(self, ready: list[tuple[int, int]], now_ms: int) -> int:
        """Accept, read, run timers, and deliver what has arrived; returns how many messages.

        What a receiver raises goes to the caller: that message is gone, the rest is delivered by the next call.
        """
        if self.closed:
            return 0
        connections, asked = self._connections, self._inbox.clients
        turn = self._in_turn(ready) if self._left or connections.unread else ready
        most = 0 if asked else HANDLE_REQUESTS_MAX  # nothing is read of clients while requests are left of an earlier turn
        connections.bytes_read = self._long = 0
        if self._whereabouts.doubtful or now_ms >= self._whereabouts.due_ms:
            self._whereabouts.turn(now_ms)
        left: list[tuple[int, int]] = []
        for at, (fd, mask) in enumerate(turn):
            if fd == self._wakeup.fd:
                self._whereabouts.doubtful = True
                self._wakeup.heard()
            elif fd in self._listeners.by_fd:
                self._listeners.ready(fd, now_ms, one=connections.is_crowded)
            elif (self._long >= HANDLE_LONG_MAX or len(asked) >= most) and connections.is_asked(fd):
                left.append((fd, mask))  # brokers are heard all the same
            else:
                connections.ready(fd, mask, now_ms)
            read = connections.bytes_read
            if read >= HANDLE_BYTES_MAX or (read >= QUICK_BYTES and self._now_ms() - now_ms >= HANDLE_MS_MAX):
                left += turn[at + 1 :]  # these are first the next time
                break
        self._left = left
        if connections.securing:
            connections.go_on_securing()
        if (looks := connections.timers.heap) and looks[0][0] <= now_ms:
            connections.expire(now_ms)
        if self._dialer.sought or self._dialer.resolver.found:
            self._dialer.look(now_ms)
        if self._listeners.paused:
            self._listeners.resume(now_ms)
        if self._door is not None:
            self._door.refusals.tell(now_ms)
        if self._lost.waiting or self._lost.unsent:
            self._lost.tell(self._inbox.tell, self._inbox.brokers.append)
        return self._inbox.deliver()

    @property
    def has_asked(self) -> bool:
        """Whether requests of clients have come that were not delivered yet."""
        return bool(self._inbox.clients)

    def deliver(self) -> int:
        """Deliver some more of what has arrived, without reading anything; returns how many messages."""
        return self._inbox.deliver()

    def _in_turn(self, ready: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Each once: first those for whom the last turn was too short, last those who say so much that some of it was kept. If an
        interrupt breaks the turn off, all are heard in the next: of some of them the selector would not tell again."""
        masks = dict(self._left)
        for fd, mask in (*ready, *((fd, select.EPOLLIN) for fd in self._connections.unread)):
            masks[fd] = masks.get(fd, 0) | mask
        self._left = list(masks.items())
        self._connections.unread.clear()
        return self._left

    def flush(self) -> None:
        """Dial whom `send` wants to reach, and write what it queued, as far as sockets take it."""
        if self.closed:
            return
        if self._whereabouts.doubtful:
            for target in self._whereabouts.moved():
                self._follow(target)
        if self._dialer.wanted or self._connections.dirty or self._lost.waiting:
            now_ms = self._now_ms()
            if self._dialer.wanted:
                self._dialer.dial(now_ms)
            self._connections.flush(now_ms)
            if self._connections.output_held > self.limits.output_bytes_total_max and self.role == BROKER:
                self._connections.bound_output()  # what a client sends, its configuration bounds
            if self._lost.waiting:
                self.wake()  # whoever waits does not know of it

    def poll(self, timeout_s: float | None) -> int:
        """Wait, handle and flush, for an owner without a lock; returns how many messages were delivered."""
        self.flush()
        if timeout_s != 0 and (due_ms := self.next_poll_ms()) is not None:
            due_s = max(due_ms - self._now_ms(), 0) / 1_000
            timeout_s = due_s if timeout_s is None else min(timeout_s, due_s)
        delivered = self.handle(self.wait(timeout_s), self._now_ms())
        self.flush()
        return delivered

    def wake(self) -> None:
        """Make a `wait` return, or the next one. Any thread may call it."""
        self._wakeup.ring()

    def close(self) -> None:
        """Send what sockets take at once, then close every connection. Idempotent."""
        if self.closed:
            return
        self._connections.flush(self._now_ms())
        self.closed = True
        self._forget()
        for connection in list(self._connections.open.values()):
            self._connections.let_go(connection)
        if self._door is not None:
            self._door.close()
        self._listeners.close()
        self._epoll.close()
        self._wakeup.close()

    def abandon(self) -> None:
        """In a forked child: close the descriptors and send nothing; the parent goes on. Happens by itself at a fork. Idempotent."""
        if self.closed:
            return
        self.closed = True
        self._connections.abandon()
        self._listeners.abandon()
        self._forget()
        self._epoll.close()
        self._wakeup.abandon()

    die_in_child = abandon

    def _forget(self) -> None:
        self._inbox.clear()
        self._opening.peers.clear()
        self._ways.clear()
        self._lost.clear()
        self._dialer.close()

    def _check_open(self) -> None:
        if self.closed:
            raise UsageError("the transport is closed")

    # ------------------------------------------------------------------------------------------------- what connections tell

    def _accepted(self, listener: Listener, accepted: socket.socket, name: str) -> None:
        if not self._places.has_one(name):
            accepted.close()
            return
        now_ms = self._now_ms()
        connection = Connection(accepted, local=listener.broker_id, name=name, now_ms=now_ms, dialed=False)
        try:
            self._connections.add(connection)
            self._opening.begin(connection)
        except OSError as problem:  # whatever is wrong with one that has just come, the turn of all others goes on
            self._connections.end(connection, words_of(problem))

    def _frame(self, connection: Connection, frame: memoryview, lasting: bool) -> None:
        """A whole frame. Slices are views of it, so one that is overwritten next is copied first; all else copies anyway."""
        state = connection.state
        if state is not _OPEN and state is not State.GREETING:
            return  # an earlier one was refused
        whole: bytes | memoryview = bytes(frame) if not lasting and (len(frame) <= _SMALL_BYTES or frame[6] == _FETCHED) else frame
        message = self._fitting.decode(whole, trusted=connection.peer_id >= 0)
        route = whole[ROUTE_AT]
        if state is not _OPEN:
            self._opening.heard(connection, message)
            return
        problem = refusal(message, route, peer=connection.peer_id, role=self.role)
        if problem is None and connection.limited is not None:
            problem = connection.limited.refusal(message)
        if problem is not None:
            raise CodecError(problem)
        if self._door is not None and connection.peer_id < 0:
            assert connection.identity is not None
            message, answers = self._door.enter(connection.identity, connection.name, connection.peer, message)
            for answer in answers:
                self._send_on(connection, answer, 0)
            if message is None:
                return
        to = ("controller", connection.local) if route & TO_CONTROLLER else connection.local
        inbox = self._inbox.brokers if connection.peer_id >= 0 else self._inbox.clients
        if connection.peer_id < 0 and may_take_long(message):
            self._long += 1
            connection.incoming.pause()
        inbox.append((to, connection.sender(route) if route else connection.peer, message))

    def _ended(self, connection: Connection, reason: str) -> None:
        now_ms = self._now_ms()
        self._places.ended(connection)
        self._opening.ended(connection)
        if self._door is not None and type(connection.peer) is tuple:
            self._door.ended(connection.peer)
        if connection.link is not None:
            self._dialer.ended(connection, reason, now_ms)
            if connection.peer is not None:  # else it was told of with the dialing
                harmless = is_harmless(connection, reason, now_ms, self.limits)
                if connection.outgoing.size and harmless and reason != UNSERVED:
                    harmless = self._dialer.take_over(connection)
                if not harmless:
                    self._lost.add(connection.link.key.target, connection.link.key.lane, connection.unwritten)
        elif type(connection.peer) is tuple and reason != UNSERVED:
            self._lost.add(connection.peer)
        if connection.peer is not None or not (connection.dialed or reason == CLOSED_BY_PEER):  # a failed dialing was told of
            self._on_event("peer_disconnected", {"peer": connection.peer, "at": connection.name, "lane": connection.lane, "reason": reason})
