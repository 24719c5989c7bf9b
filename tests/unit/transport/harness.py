"""Ends of connections for tests: transports with a clock that stands still, and bare sockets that speak the protocol or do not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.authorities import tls_of
from tests.bare_socket import BareSocket

from replog import messages as m
from replog.codec import PROTOCOL_VERSION
from replog.model import Address, PartitionId
from replog.security.quotas import Quotas
from replog.security.settings import Security
from replog.slices import MemorySlice
from replog.testing.clock import ManualClock
from replog.transport.tcp import TcpLimits, TcpTransport

P0 = PartitionId(b"t" * 16, 0, 0)
TURNS_MAX = 2_000


def fetched(number: int = 0, *slices: Any, catch_up: bool = False, high_watermark: int = -1) -> m.Fetched:
    """What any broker may say to any other, and to a client."""
    entries = [m.FetchedEntry(P0, 0, 0, high_watermark=high_watermark, slices=list(slices))] if slices else []
    return m.Fetched(number, 0, 0, 0, entries, catch_up)


def piece(data: bytes) -> MemorySlice:
    """Bytes as a slice."""
    return MemorySlice(0, 1, data)


def shown(folder: Path, name: str) -> Security:
    """Who shows a certificate of the authority there."""
    return Security(tls=tls_of(folder, name))


def question(number: int) -> m.ListOffsets:
    """What a client may ask."""
    return m.ListOffsets(number, [])


class Party:
    """A transport, what was delivered, and what it told."""

    def __init__(
        self,
        broker_id: int = -1,
        *,
        clock: ManualClock,
        endpoints: dict[int, str],
        limits: TcpLimits | None = None,
        cluster_id: str = "c",
        serve: bool = True,
        jitter: Callable[[], float] = lambda: 0.0,
        security: Security | None = None,
        quotas: Quotas | None = None,
        topic_of: Callable[[bytes], str | None] = lambda _: None,
    ) -> None:
        self.items: list[tuple[Address, Any]] = []
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.throttled: list[tuple[Any, str, int]] = []
        self.transport = TcpTransport(
            role="client" if broker_id < 0 else "broker",
            broker_id=broker_id,
            limits=limits,
            now_ms=clock.now_ms,
            endpoint_of=endpoints.get,
            on_event=lambda name, fields: self.events.append((name, fields)),
            jitter=jitter,
            security=security,
            quotas=quotas,
            throttled=lambda broker, request, ms: self.throttled.append((broker, request, ms)),
            topic_of=topic_of,
        )
        self.address: Address = "client" if broker_id < 0 else broker_id
        self.transport.listen(self.address, self.receive)
        self.endpoint = ""
        if broker_id >= 0:
            self.transport.cluster_id = cluster_id
            if serve:
                self.endpoint = endpoints[broker_id] = self.transport.serve("tcp://127.0.0.1:0")

    def receive(self, sender: Address, message: Any) -> None:
        self.items.append((sender, message))

    def say(self, to: Address, message: Any) -> None:
        self.transport.send(self.address, to, message)

    @property
    def messages(self) -> list[Any]:
        """Without the hints of the transport."""
        return [message for _, message in self.items if not isinstance(message, m.Disconnected)]

    @property
    def unreached(self) -> list[Any]:
        """What it was told not to have sent."""
        return [message.message for _, message in self.items if isinstance(message, m.Unreached)]

    @property
    def lost(self) -> list[Address]:
        """Whom it was told to have lost."""
        return [message.address for _, message in self.items if isinstance(message, m.Disconnected)]

    @property
    def only_reads(self) -> list[bool]:
        """Whether only reads are in doubt, each time."""
        return [message.only_reads for _, message in self.items if isinstance(message, m.Disconnected)]

    def told(self, name: str) -> list[dict[str, Any]]:
        """The events of this name."""
        return [fields for each, fields in self.events if each == name]

    @property
    def open(self) -> int:
        """Connections."""
        return len(self.transport._connections.open)

    @property
    def held(self) -> int:
        """Bytes of half-received frames."""
        return self.transport._connections.buffers.held


def settle(parties: Iterable[Party], done: Callable[[], bool]) -> None:
    """Let them work until it is so."""
    parties = list(parties)
    for _ in range(TURNS_MAX):
        if done():
            return
        for party in parties:
            party.transport.flush()
            party.transport.handle(party.transport.wait(0.002), party.transport._now_ms())
    raise AssertionError("it did not come to that")


def idle(parties: Iterable[Party], turns: int = 20) -> None:
    """Let them work for a while in which nothing is expected."""
    for _ in range(turns):
        for party in parties:
            party.transport.flush()
            party.transport.handle(party.transport.wait(0.001), party.transport._now_ms())


class Stranger(BareSocket):
    """A bare socket."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(endpoint, patience_s=5)

    def hello(self, **changes: Any) -> None:
        """Send a handshake of a client, with changes."""
        fields: dict[str, Any] = {
            "cluster_id": "", "role": "client", "broker_id": -1, "expects": -1, "lane": 1,
            "version_min": 1, "version_max": PROTOCOL_VERSION,
        }  # fmt: skip
        self.send(m.Handshake(**(fields | changes)))
