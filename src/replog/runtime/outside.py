"""What an embedded cluster has to do with the world outside its process: sockets for clients, and stores that may block.

One thread serves both; the calls of the application run the actors themselves, and send what is said to clients as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from replog.config import BrokerConfig
from replog.errors import UsageError
from replog.messages import BROKER
from replog.metrics.histogram import Histogram
from replog.model import Address
from replog.ports import Ids, MetadataStore
from replog.runtime.embedded_broker import addresses_of
from replog.runtime.loop import Loop
from replog.runtime.pump import Pump, tell
from replog.runtime.store_sessions import StoreSessions
from replog.runtime.urls import open_store
from replog.runtime.workers import Workers
from replog.security.quotas import Quotas
from replog.security.settings import Security
from replog.transport.tcp import TcpTransport
from replog.transport.tcp.endpoint import Endpoint, parse_endpoint
from replog.transport.tcp.limits import limits_of
from replog.transport.tcp.reception import unknown
from replog.transport.tcp.telling import unheeded

__all__ = ["Outside"]


_WAIT_MS_MAX: Final = 100
"""The thread looks this often: timers that a call of the application has set in between are not told to it."""


class Outside:
    """Made with the cluster, opened by `start`, closed for good by `stop` and then `close`."""

    def __init__(
        self,
        pump: Pump,
        listen: str | None,
        store: str | MetadataStore | None,
        *,
        config: BrokerConfig,
        ids: Ids,
        cluster_id: Callable[[], str],
        security: Security | None = None,
        quotas: Quotas | None = None,
        throttled: Callable[[int, str, int], None] = unheeded,
        topic_of: Callable[[bytes], str | None] = unknown,
    ) -> None:
        """`store`: what sessions are opened from; None if the store needs no workers. UsageError for a bad `listen`."""
        if listen is not None and not parse_endpoint(listen).is_loopback:
            raise UsageError(f"listen={listen!r}: a Cluster serves this machine only; beyond it run one Broker per process")
        self.endpoints: dict[int, str] = {}
        """Broker -> where it listens; the same for all its lives."""
        self._pump = pump
        self._listen = listen
        self._store = store
        self._config = config
        self._ids = ids
        self._cluster_id = cluster_id
        self._workers = Workers("replog cluster")
        self._sessions: dict[int, StoreSessions] = {}
        self._transport = TcpTransport(
            role=BROKER, broker_id=1, limits=limits_of(config), now_ms=pump.now_ms, on_event=tell, security=security, quotas=quotas,
            throttled=throttled, topic_of=topic_of,
        )  # fmt: skip
        self._loop = Loop(pump, self._transport, wait_ms_max=_WAIT_MS_MAX, ticked=self._tick)

    @property
    def turns(self) -> Histogram:
        """How long the turns of the thread took, in seconds."""
        return self._loop.turns

    def start(self) -> None:
        """Begin to serve. Idempotent."""
        self._pump.elsewhere = self._send
        self._loop.start("replog cluster")

    def serve(self, broker_id: int) -> tuple[str, ...]:
        """Let clients reach a broker; returns where. Nothing happens without `listen`."""
        if self._listen is None:
            return ()
        endpoint = self.endpoints.get(broker_id)
        if endpoint is None:
            first = parse_endpoint(self._listen)
            endpoint = str(Endpoint(first.host, first.port + broker_id - 1 if first.port else 0))
        self.endpoints[broker_id] = self._transport.serve(endpoint, broker_id=broker_id)
        for address in addresses_of(broker_id)[::2]:
            self._loop.listen(address)
        self._transport.wake()
        return (self.endpoints[broker_id],)

    def stop_serving(self, broker_id: int) -> None:
        """End every connection to a broker, as if its process had died. Idempotent."""
        self._sessions.pop(broker_id, None)
        for address in addresses_of(broker_id)[::2]:
            self._transport.unlisten(address)
        self._transport.unserve(broker_id)

    def sessions(self, broker_id: int) -> StoreSessions:
        """The sessions of one life of a broker at a store that may block."""
        store = self._store
        if store is None:
            raise UsageError("this cluster has a store of its own")

        def post(to: Address, message: Any) -> None:
            if self._sessions.get(broker_id) is made:  # not for the actors of a later life
                self._loop.post(to, message)

        made = self._sessions[broker_id] = StoreSessions(
            lambda: open_store(store, session_ms=self._config.session_ms),
            members=addresses_of(broker_id)[1:],
            post=post,
            workers=self._workers,
            ids=self._ids,
        )
        return made

    @property
    def refused(self) -> UsageError | None:
        """Why there will never be a session at the store, if that is so."""
        return next((sessions.refused for sessions in list(self._sessions.values()) if sessions.refused is not None), None)

    @property
    def trouble(self) -> str:
        """Why there is no session at the store, for people; "" if there is one, or no reason."""
        return next((f": {sessions.last_error}" for sessions in list(self._sessions.values()) if sessions.last_error is not None), "")

    def _tick(self) -> None:
        self._know_cluster()
        for sessions in list(self._sessions.values()):
            sessions.tick()

    def _know_cluster(self) -> None:
        if not self._transport.cluster_id:
            self._transport.cluster_id = self._cluster_id()

    def _send(self, sender: Address, to: Address, message: Any) -> bool:
        """Clients are elsewhere; a broker that does not run here runs nowhere."""
        if not (isinstance(to, tuple) and to[0] == "peer"):
            return False
        self._know_cluster()
        self._transport.send(sender, to, message)
        return True

    @property
    def closed(self) -> bool:
        """Whether it can be used no more."""
        return self._transport.closed

    def stop(self) -> None:
        """End the thread; called without the lock. Idempotent."""
        self._loop.stop()

    def close(self) -> None:
        """Let go of sockets and workers, when no broker runs any more. Idempotent."""
        self._sessions.clear()
        self._transport.close()
        self._workers.close()

    def abandon(self) -> None:
        """In a forked child."""
        self._transport.abandon()
        self._workers.abandon()


