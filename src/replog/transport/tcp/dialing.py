"""Reaching peers: every lane to a peer has one connection that is dialed when something is to be sent, never faster than its back-off."""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence
from typing import Any

from replog.codec import Part
from replog.errors import UsageError
from replog.model import Address
from replog.transport.tcp import sockets
from replog.transport.tcp.asked import Asked
from replog.transport.tcp.connection import Connection, State
from replog.transport.tcp.connections import Connections
from replog.transport.tcp.endpoint import SocketAddress, known_addresses, parse_endpoint
from replog.transport.tcp.lanes import LANES
from replog.transport.tcp.limits import TcpLimits
from replog.transport.tcp.links import Link, LinkKey, Sought
from replog.transport.tcp.resolving import Resolver

__all__ = ["Dialer"]


class Dialer:
    """Owns the links. `lost(target, lane, unsent)` is told each time that nobody is reached, and of what has waited for that;
    `reached(connection)` each time that somebody is.

    `wake` has the owner of the transport call `look`; it is called on other threads.
    """

    def __init__(
        self,
        connections: Connections,
        limits: TcpLimits,
        *,
        reached: Callable[[Connection], None],
        endpoint_of: Callable[[int], str | None],
        lost: Callable[[Address, int, Sequence[Asked]], None],
        jitter: Callable[[], float],
        wake: Callable[[], None],
        on_event: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self._connections = connections
        self._limits = limits
        self._reached = reached
        self._endpoint_of = endpoint_of
        self._lost = lost
        self._jitter = jitter
        self._on_event = on_event
        self._links: dict[LinkKey, Link] = {}
        self.sought: dict[Link, None] = {}
        """Those of which a name is looked up, soonest to fail first."""
        self.resolver = Resolver(wake)
        self.wanted: dict[Link, None] = {}
        """What `dial` is to do."""

    @property
    def waiting_bytes(self) -> int:
        """Size of the frames that wait for their peers to be reached."""
        return sum(link.waiting_bytes for link in self._links.values())

    def unsent_to(self, local: Address, target: Address) -> int:
        """Size of the frames that wait for this peer to be reached, or for the sockets to it."""
        links = (self._links.get(LinkKey(local, target, lane)) for lane in LANES)
        return sum(link.waiting_bytes + sum(one.outgoing.size for one in link.open) for link in links if link is not None)

    def link(self, key: LinkKey) -> Link:
        """The lane with this key, made if there is none."""
        link = self._links.get(key)
        if link is None:
            link = self._links[key] = Link(key)
        return link

    def reaches(self, target: Address) -> bool:
        """Whether any lane to it is open."""
        return any(link.open for link in self._links.values() if link.key.target == target)

    def hold(self, link: Link, parts: Sequence[bytes | Part], size: int, asked: Sequence[Asked]) -> bool:
        """Keep a frame for a link without a connection, and have it dialed; False: too much waits, it is dropped."""
        kept = link.hold(parts, size, 4 * self._limits.output_bytes_max, asked)
        if not link.is_under_way:
            self.wanted[link] = None
        return kept

    def dial(self, now_ms: int) -> None:
        """Dial whoever is wanted. Names of hosts, but for localhost, are looked up first, elsewhere; `look` is for what becomes of that."""
        while self.wanted:
            link = next(iter(self.wanted))
            del self.wanted[link]
            if link.open or link.is_under_way:
                continue
            target = link.key.target
            endpoint = self._endpoint_of(target) if isinstance(target, int) else str(target)
            if endpoint is None:
                self._lost(target, link.key.lane, link.drop_waiting())
                self._forget(link)
                continue
            try:
                parsed = parse_endpoint(endpoint)
                addresses = known_addresses(parsed)
                if addresses is None:
                    self.resolver.ask(parsed.host)
            except (RuntimeError, UsageError) as problem:
                self._give_up(link, endpoint, str(problem), now_ms)
                continue
            if addresses is not None:
                self._try(link, endpoint, addresses, "no address", now_ms)
            else:
                link.sought = Sought(endpoint, parsed, now_ms + self._limits.connect_timeout_ms)
                self.sought[link] = None

    def next_ms(self) -> int | None:
        """When `look` is due; None: never. Of interest if anything is in `sought` or in `resolver.found`."""
        if self.resolver.found:
            return 0
        return next((link.sought.until_ms for link in self.sought if link.sought is not None), None)

    def look(self, now_ms: int) -> None:
        """Dial those whose names have been found, and give up those that have waited for too long."""
        found = dict(self.resolver.take())
        for link in list(self.sought):
            sought = link.sought
            assert sought is not None
            addresses = found.get(sought.endpoint.host)
            if addresses is None and sought.until_ms > now_ms:
                continue
            self._stop_seeking(link)
            if link.open:  # it has dialed meanwhile
                continue
            if isinstance(addresses, list):
                there = [address._replace(port=sought.endpoint.port) for address in addresses]
                self._try(link, sought.text, there, "no address", now_ms)
            else:
                self._give_up(link, sought.text, str(addresses or "looking up its name took too long"), now_ms)

    def _stop_seeking(self, link: Link) -> None:
        link.sought = None
        self.sought.pop(link, None)

    def _try(self, link: Link, endpoint: str, addresses: list[SocketAddress], reason: str, now_ms: int) -> None:
        """Begin to connect to the first address that does not fail at once."""
        while addresses:
            try:
                dialed = sockets.connect(addresses.pop(0), self._limits.stalled_timeout_ms)
            except (OSError, OverflowError) as problem:
                reason = str(problem)
                continue
            connection = Connection(dialed, local=link.key.local, name=endpoint, now_ms=now_ms, dialed=True)
            connection.link, connection.lane, connection.addresses = link, link.key.lane, addresses
            connection.expects = link.key.target if isinstance(link.key.target, int) else -1
            link.dialing = connection
            self._connections.add(connection, select.EPOLLOUT)
            return
        self._give_up(link, endpoint, reason, now_ms)

    def connected(self, connection: Connection, failure: str, now_ms: int) -> None:
        """The other end's kernel has answered, or has not in time: then try the next address."""
        link: Link = connection.link
        if failure:
            addresses = connection.addresses
            self._connections.let_go(connection)
            link.dialing = None
            self._try(link, connection.name, addresses, failure, now_ms)
            return
        connection.state = State.GREETING
        connection.taken_ms = now_ms
        self._reached(connection)

    def opened(self, connection: Connection) -> None:
        """The handshake is done: what has waited goes out on this connection."""
        link: Link = connection.link
        if link.dialing is connection:
            link.dialing = None
        link.open.insert(0, connection)
        if not connection.dialed:
            link.succeeded()
            for earlier in [each for each in link.open[1:] if not each.dialed]:
                self._connections.end(earlier, "the peer has dialed again")  # it does that only without a connection
        for parts, size, asked in link.take_waiting():
            self._connections.send(connection, parts, size)
            connection.unwritten += asked

    def ended(self, connection: Connection, reason: str, now_ms: int) -> None:
        """A connection of a link is closed."""
        link: Link = connection.link
        if connection in link.open:
            link.open.remove(connection)
            if connection.dialed:
                lasted_ms = now_ms - connection.began_ms
                if connection.incoming.frames > connection.opened_by or lasted_ms >= self._limits.backoff_ms_max:
                    link.succeeded()
                else:
                    link.failed(now_ms, self._limits, self._jitter())  # it is taken in and thrown out: no storm
        elif link.dialing is connection:
            link.dialing = None
            self._give_up(link, connection.name, reason, now_ms)
        self._forget(link)

    def take_over(self, connection: Connection) -> bool:
        """Send what is queued in a connection that has ended on another one. False if some of it is gone, or too much waits."""
        queued = connection.outgoing.take_whole()
        if queued is None:
            return False
        link = self.link(connection.link.key)
        if not link.open:
            return self.hold(link, *queued, connection.unwritten)
        self._connections.send(link.open[0], *queued)
        return True

    def withdraw(self, target: Address) -> list[Asked]:
        """Give up what waits for a connection to this peer, on any lane, and whoever would be in doubt of it: returned, to be told."""
        return [asked for link in self._links.values() if link.key.target == target for asked in link.withdraw()]

    def moved(self, target: Address) -> None:
        """It is reached elsewhere now: what failed at the old place is not held against the new one."""
        for key, link in list(self._links.items()):
            if key.target == target:
                link.succeeded()
                if link.sought is not None:
                    self._stop_seeking(link)
                    if link.waiting_bytes:
                        self.wanted[link] = None
                self._forget(link)

    def drop(self, local: Address) -> None:
        """Forget every lane of one who lives here no longer."""
        for key, link in list(self._links.items()):
            if key.local == local:
                link.drop_waiting()
                self.wanted.pop(link, None)
                self._stop_seeking(link)
                del self._links[key]

    def close(self) -> None:
        """Forget them all."""
        for link in self._links.values():
            link.drop_waiting()
        self._links.clear()
        self.sought.clear()
        self.wanted.clear()

    def _give_up(self, link: Link, endpoint: str, reason: str, now_ms: int) -> None:
        pause = link.failed(now_ms, self._limits, self._jitter())
        unsent = link.drop_waiting()
        self._on_event("dial_failed", {"endpoint": endpoint, "reason": reason, "retry_ms": pause})
        self._lost(link.key.target, link.key.lane, unsent)

    def _forget(self, link: Link) -> None:
        if link.is_idle and self._links.get(link.key) is link:
            del self._links[link.key]
