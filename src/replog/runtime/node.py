"""`Broker`: one broker per process, embedded in an application or alone; it finds the others through a metadata store.

The same actors as everywhere: here a `Loop` runs them, sockets carry their messages, and workers do what blocks.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from replog.client.arguments import check_broker_id, check_timeout
from replog.config import BrokerConfig, check_rack
from replog.errors import LogDamaged, LogFull, ReplogError, TimedOut, UsageError
from replog.log.files import check_path, kill_in_child
from replog.log.memory import MemoryLogDirectory
from replog.metrics.meter import Meter, recent
from replog.metrics.reading import Subject, take
from replog.metrics.snapshot import Snapshot
from replog.model import Address
from replog.ports import LogDirectory, LossReport, MetadataStore, SessionChanged
from replog.runtime.attached import Attached, check_unattached
from replog.runtime.before_stop import BeforeStop
from replog.runtime.descriptors import within_descriptors
from replog.runtime.embedded_broker import DISK_S, EmbeddedBroker, addresses_of
from replog.runtime.flush_lanes import FlushLanes
from replog.runtime.folder import open_directory
from replog.runtime.ids import RandomIds
from replog.runtime.local import LocalPartition, local_partitions
from replog.runtime.loop import Loop
from replog.runtime.measured import Measured
from replog.runtime.owner import Owner
from replog.runtime.patience import Patience, Standing
from replog.runtime.pump import Pump, tell
from replog.runtime.putting_off import is_inside, put_off
from replog.runtime.store_sessions import StoreSessions
from replog.runtime.transports import transport_of
from replog.runtime.urls import check_store, lasting, open_store
from replog.runtime.workers import Workers
from replog.security.quotas import Quotas
from replog.security.settings import Security, security_of
from replog.transport.tcp import TcpTransport
from replog.transport.tcp.endpoint import advertised, parse_endpoint
from replog.transport.tcp.surroundings import Surroundings

if TYPE_CHECKING:
    import asyncio

    from replog.client.client import Client

__all__ = ["Broker", "LocalPartition"]

_log = logging.getLogger("replog")

_WAIT_MS_MAX: Final = 1_000
_WORKERS_S: Final = 2.0
"""What a worker still does after the end is of no use to anybody; most end within this."""


class Broker(Measured):
    """One broker in this process. Its logs are under `data` (None: in memory), its place in the cluster is in `store`.

    `listen` is where others reach it: "tcp://127.0.0.1:0" takes any free port, and `endpoint` says which. Where they come by another way
    (a container, a proxy), or it listens at every address, `advertise` is what they are told; its port 0 is that of `listen`. `store` is a
    URL ("file://PATH", "zookeeper://HOSTS/CHROOT"), or a store object, whose `session()` opens this broker's and which stays its owner's to
    close. `transport`: one with limits of its own, to which `security`, `quotas` and `insecure` are said then. `security`
    (settings, or a file of them): who has to prove what to it, and how. Beyond loopback it listens only with TLS, or with
    `insecure=True`. `quotas` (settings, or a file of them): how fast clients may send and fetch. `config` takes the keys of `BrokerConfig`.

    It runs on a thread (`start()`, or `with`), or on the loop of the application: `fileno()` becomes readable when
    there is work, `next_poll_s()` says when a timer is due, `poll()` does it; `attach(loop)` does that for asyncio. In a
    forked child it is dead: calls raise UsageError.
    """

    _own: tuple[Address, ...] = ()
    """Addresses of its actors, once they have their seats."""
    _ending: EmbeddedBroker | None = None
    """A life whose end has begun: after an interrupt the rest is left to do."""
    _dead: EmbeddedBroker | None = None
    """A life that an exception has ended, until another one has begun in its place, or could not."""

    def __init__(
        self,
        broker_id: int,
        *,
        listen: str,
        advertise: str | None = None,
        data: str | os.PathLike[str] | None,
        store: str | MetadataStore,
        rack: str | None = None,
        transport: TcpTransport | None = None,
        config: BrokerConfig | Mapping[str, Any] | None = None,
        security: Security | str | os.PathLike[str] | None = None,
        quotas: Quotas | str | os.PathLike[str] | None = None,
        insecure: bool = False,
    ) -> None:
        """Check the arguments; UsageError names what is wrong. Nothing is opened yet."""
        self.broker_id = check_broker_id(broker_id)
        self.config = config if isinstance(config, BrokerConfig) else BrokerConfig.from_mapping({} if config is None else config)
        self._listen = listen
        self._advertise = None if advertise is None else str(parse_endpoint(advertise))
        self._data = None if data is None else check_path(data, "data", "name a folder, or None to keep everything in memory")
        self._store: str | MetadataStore = lasting(check_store(store))
        self._rack = check_rack(rack)
        self._ids = RandomIds()
        self._meter = Meter(broker_id)
        self._pump = Pump(messages_max=self.config.outstanding_messages_max)
        self._transport = transport_of(
            transport,
            broker_id,
            self.config,
            Surroundings(
                self._endpoint_of,
                tell,
                lambda _, request, ms: self._meter.throttle(request, ms),
                lambda topic_id: None if self._life is None else self._life.topic_name(topic_id),
            ),
            now_ms=self._pump.now_ms,
            security=security_of(security),
            quotas=quotas,
            insecure=insecure,
        )
        self._security = self._transport.security
        self._loop = Loop(self._pump, self._transport, wait_ms_max=min(_WAIT_MS_MAX, self.config.session_ms // 6), ticked=self._tick)
        self._workers = Workers(f"replog broker {broker_id}")
        self._lanes = FlushLanes(self._workers, "flush")
        self._before_stop = BeforeStop(self._pump, self._loop.go_on, lambda _: self._lanes.spread(), self._living)
        self._life: EmbeddedBroker | None = None
        self._sessions: StoreSessions | None = None
        self._kept: MemoryLogDirectory | None = None
        self._owner: Owner | None = None
        self._attached: Attached | None = None
        self._polled_by: int | None = None
        """The thread that has polled last, if one does."""
        self._state = "new"
        self._patience = Patience()
        self.endpoint = ""
        """Where others reach it, once it is open: "tcp://host:port"."""
        self.failure: Exception | None = None
        """Why it does nothing any more: after an exception it could not be opened again."""
        kill_in_child(self)

    # ----------------------------------------------------------------------------------------------------------- life

    def open(self) -> Self:
        """Lock and read the data folder, listen, and begin to register; `start` and `poll` do this first. Idempotent.

        Raises UsageError (the folder or the port is in use, or may not be had), LogCorrupt, LogDamaged, LogFull.
        """
        with self._pump.lock:
            self._check_usable()
            if self._state == "new":
                try:
                    self._pump.elsewhere = self._send
                    self._loop.flush_on(self._lanes)
                    self._begin()
                except BaseException:
                    self._let_go(clean=False)
                    self._workers.close(_WORKERS_S)
                    raise
                self._state = "open"
        return self

    def _begin(self) -> None:
        """A life: the directory is opened, the actors take their seats, a session is asked for. If that fails, nothing of it is left."""
        directory = self._directory()
        try:
            self._owner = None if self._data is None else Owner(self._data, self.broker_id)
            self._listen = self._transport.serve(self._listen, broker_id=self.broker_id)  # a later life has the same port
            self.endpoint = advertised(self._listen, self._advertise)
            broker, *members = self._own = addresses_of(self.broker_id)
            life = self._life = EmbeddedBroker(
                self.broker_id,
                self._pump,
                directory,
                self._new_sessions(members),
                config=self.config,
                ids=self._ids,
                rack=self._rack,
                endpoints=(self.endpoint,),
                cluster_id=None if self._owner is None else self._owner.cluster_id or None,
                meter=self._meter,
            )
            for address in (broker, members[1]):
                self._loop.listen(address)
            life.take_seats(lambda problem: self._died(life, problem))
        except BaseException:
            if self._life is None:
                directory.close(clean=False)
            self._end_life(clean=False)
            raise
        self._kept = None

    def _new_sessions(self, members: Sequence[Address]) -> StoreSessions:
        sessions: StoreSessions

        def post(to: Address, message: Any) -> None:
            if self._sessions is sessions:  # not for the actors of a later life
                self._loop.post(to, message)

        sessions = self._sessions = StoreSessions(
            self._open_session, members=members, post=post, workers=self._workers, ids=self._ids
        )
        return sessions

    def _directory(self) -> LogDirectory:
        if self._data is None:
            if self._kept is not None:
                return self._kept.reopened()
            return MemoryLogDirectory(directory_id=self._ids.token().hex(), loss=LossReport("replaced"), limits=self.config)
        return open_directory(self._data, within_descriptors(self.config, self.broker_id))

    def _open_session(self) -> MetadataStore:
        return open_store(self._store, session_ms=self.config.session_ms)

    def _died(self, life: EmbeddedBroker, problem: BaseException) -> None:
        """An exception has left one of its actors: its memory is discarded; it is opened again from its logs, uncleanly. Repeatable."""
        if life is self._life:
            self._dead = life
        if life is not self._dead:
            return
        self._end_life(clean=False, settle_s=DISK_S)  # what follows needs its folder
        try:
            if not (self._pump.is_last and isinstance(problem, Exception)):
                _log.warning("broker %d is restarted after %s", self.broker_id, type(problem).__name__)
                self._begin()
        except Exception as failure:
            self.failure = failure
            _log.error("broker %d could not be opened again: %s", self.broker_id, failure)
        self._dead = None

    def _end_life(self, *, clean: bool, timeout_s: float | None = None, settle_s: float = _WORKERS_S) -> None:
        self._note_cluster()
        if self._life is not None:
            self._ending, self._life = self._life, None
        life, self._sessions = self._ending, None
        for address in (self.broker_id, ("controller", self.broker_id)):
            self._transport.unlisten(address)
        self._transport.unserve(self.broker_id)  # whoever waits for an answer of this life must hear that none will come
        if life is not None:
            life.stop(clean=clean, timeout_s=timeout_s, settle_s=settle_s)
            if isinstance(life.directory, MemoryLogDirectory):
                self._kept = life.directory
            self._ending = None

    def start(self) -> Self:
        """Run on a thread of its own, from now on. Idempotent. Raises what `open` does; UsageError while it is attached to an event loop;
        RuntimeError if no thread can be had: it may be tried again."""
        self.open()
        with self._pump.lock:
            check_unattached(self._attached, "start() it")
            self._loop.start(f"replog broker {self.broker_id}")
        return self

    def stop(self, *, controlled: bool = True, timeout_s: float | None = None) -> None:
        """End it. `controlled`: what it leads is moved first, so that acks=all goes on, for at most `shutdown_timeout_ms`; logs are
        flushed and marked, so that the next start need not look at them. Else as SIGKILL would: leaders are elected afterwards.

        Its session ends either way. A store that is silent is waited for `timeout_s` (None: the session time, at most 10 s); the
        session then ends by its time. Idempotent, and to be repeated after an interrupt. UsageError for a bad `timeout_s`. It waits: on
        the thread of an event loop everything there waits, so `detach` it, and call this on another one. In a signal handler that came into
        a call of this Broker it returns at once: a thread does it after that call (UsageError if none can be had)."""
        limit_s = check_timeout(timeout_s)
        if self._state in ("stopped", "forked"):
            self._workers.close(_WORKERS_S)  # what an interrupt has left to do
            return
        if self._attached is not None:
            self._attached.end()
        if is_inside(self._pump.lock):
            return put_off(lambda: self.stop(controlled=controlled, timeout_s=timeout_s), f"replog broker {self.broker_id} stop")
        life = self._life
        problem = self._prepare(life) if controlled and self._state == "open" and life is not None else None
        self._loop.stop()
        with self._pump.lock:
            if controlled and self._state == "open":
                problem = self._pump.run_last() or problem
            self._let_go(clean=controlled, timeout_s=limit_s)
            self._pump.wake()
        self._workers.close(_WORKERS_S)
        if problem is not None:
            raise problem

    def _let_go(self, *, clean: bool, timeout_s: float | None = None) -> None:
        """Under the lock: end what lives, and close what is open. To be repeated after an interrupt."""
        self._end_life(clean=clean, timeout_s=timeout_s)
        self._pump.clear()
        self._transport.close()
        self._state = "stopped"

    def _living(self, _broker_id: int) -> EmbeddedBroker | None:
        return self._life if self.hopeless is None else None

    def _prepare(self, life: EmbeddedBroker) -> Exception | None:
        """Its logs are flushed, and what it leads is moved, as far as that is possible in time. Returns a mistake of ours that came up
        meanwhile."""
        try:
            self._before_stop.prepare(life, self.config.shutdown_timeout_ms / 1_000 if self.is_ready else 0)
        except Exception as problem:  # the rest of the end is to come all the same
            return None if isinstance(problem, ReplogError) else problem
        return None

    def __enter__(self) -> Self:
        check_unattached(self._attached, "start() it")
        try:
            return self.start()
        except BaseException:
            self.stop(controlled=False)
            raise

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def die_in_child(self) -> None:
        """After a fork the child has a copy of everything, and may touch none of it."""
        self._state = "forked"
        self._transport.abandon()
        self._workers.abandon()
        self._pump.free_lock()

    def _check_usable(self) -> None:
        if self._state == "forked":
            raise UsageError("this Broker belongs to the parent process; make another one after fork")
        if self._state == "stopped":
            raise UsageError("this Broker is stopped")

    # ------------------------------------------------------------------------------------------ on somebody else's loop

    def fileno(self) -> int:
        """Readable when there is work: to be watched by the loop of the application."""
        self.open()
        return self._loop.fileno()

    def next_poll_s(self) -> float:
        """Seconds until `poll` is needed even if nothing becomes readable."""
        self.open()
        return self._loop.next_turn_s()

    def poll(self, timeout_s: float = 0.0) -> None:
        """Do what is due; with a timeout wait that long for something to do. UsageError while its own thread does that."""
        self.open()
        if self._loop.is_running:
            raise UsageError("this Broker runs on a thread of its own; nobody else polls it")
        self._polled_by = get_ident()
        self._loop.turn(timeout_s)

    def attach(self, loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
        """Run on an asyncio loop, from its thread; returns what ends that. `stop` ends it as well. UsageError while it runs already."""
        with self._pump.lock:
            check_unattached(self._attached, "attach() it again")
            attached = Attached(loop, self.fileno(), self.poll, lambda: self.next_poll_s() if self._state == "open" else None)
            self._attached = attached

        def detach() -> None:
            self._polled_by = None
            attached.end()

        attached.begin()
        return detach

    # -------------------------------------------------------------------------------------------------------- looking

    @property
    def is_ready(self) -> bool:
        """Whether the controller has let it in: registered, and unfenced in its present life."""
        life = self._life
        if life is None or life.broker.broker_epoch < 0:
            return False
        known = life.broker.routing.brokers.get(self.broker_id)
        return known is not None and not known.fenced and known.broker_epoch == life.broker.broker_epoch

    @property
    def is_controller(self) -> bool:
        """Whether its controller is the one in charge, as far as it knows."""
        return self._life is not None and self._life.controller.is_controller

    @property
    def cluster_id(self) -> str:
        """Of the cluster it belongs to; "" until it has been registered."""
        return "" if self._life is None else self._life.membership.cluster_id

    @property
    def trouble(self) -> str:
        """Why it is not ready, where somebody has said so; "" otherwise."""
        if self._life is not None and self._life.membership.refused:
            overdue = "; a session there has run out, and is ended unless its owner comes back"
            return self._life.membership.refused + ("" if self._patience.is_over(self._standing()) else overdue)
        if self._sessions is None:
            return ""
        problem = self._sessions.last_error
        if problem is None:
            return "" if self._sessions.is_open else "it has no session at the metadata store yet"
        return str(problem)

    def wait_until_ready(self, *, timeout_s: float | None = 30.0) -> Self:
        """Wait until the controller has let it in; TimedOut says what it waited for. Its loop must be running."""
        self.open()
        limit_s = check_timeout(timeout_s)
        if not self._loop.is_running:
            raise UsageError("nobody runs this Broker: call start(), or poll() until is_ready")
        if not self._pump.wait(lambda: self.is_ready or self._state != "open" or self.hopeless is not None, limit_s):
            raise TimedOut(f"waited {timeout_s} s for broker {self.broker_id} to be let in{self.trouble and ': '}{self.trouble}")
        self._check_usable()
        if self.hopeless is not None:
            raise self.hopeless
        return self

    @property
    def hopeless(self) -> Exception | None:
        """What waiting does not help against: it was refused for good, or has failed and could not be opened again."""
        if self.failure is not None:
            return self.failure
        if self._loop.failed is not None:
            return ReplogError(f"the loop of broker {self.broker_id} has ended: {self._loop.failed!r}")
        if self._life is not None and self._life.membership.refused:
            return UsageError(self._life.membership.refused) if self._patience.is_over(self._standing()) else None
        return None if self._sessions is None else self._sessions.refused

    def _standing(self) -> Standing:
        member = None if self._life is None else self._life.membership
        if member is None or not member.refused:
            return Standing()
        return Standing(True, member.is_occupied, self._sessions is not None and self._sessions.is_judging)

    def partitions(self) -> list[LocalPartition]:
        """What it has copies of, in order of topic and partition."""
        with self._pump.lock:
            self._check_usable()
            return [] if self._life is None else local_partitions(self._life.broker.partitions.values())

    def metrics(self, *, partitions: bool = False) -> Snapshot:
        """Every metric of docs/metrics.md as plain numbers. `partitions`: series of each partition as well. From any thread."""
        with self._pump.lock:
            self._check_usable()
            life = self._life
        one = Subject(self._meter, None if life is None else life.broker, None if life is None else life.controller)
        pump = self._pump
        return take([one], lock=pump.lock, now_ms=pump.now_ms(), wall_ms=pump.wall_ms(), turns=self._loop.turns, partitions=partitions)

    def _onlooker(self) -> Client:
        return self._client(None if self._security is None else self._security.as_broker())

    def _changes(self) -> list[dict[str, Any]]:
        with self._pump.lock:
            return recent([self._meter])

    def client(self) -> Client:
        """A client of the cluster, through this broker. It blocks: UsageError on the thread that polls, for which it would wait."""
        return self._client(self._security)

    def _client(self, security: Security | None) -> Client:
        from replog.runtime.connected import connect

        self.open()
        if self._polled_by == get_ident() and not self._loop.is_running:
            raise UsageError("this thread polls the Broker, and a client's calls would wait for its next poll; call client() on another")
        return connect(self.endpoint, security=security)

    # ------------------------------------------------------------------------------------------------- for the actors

    def _tick(self) -> None:
        if self._sessions is not None:
            self._sessions.tick()
        if not self._transport.cluster_id:
            self._know_cluster()
        self._note_cluster()
        if self._patience.look(self._standing()):
            self._pump.post(addresses_of(self.broker_id)[1], SessionChanged("connected"))

    def _note_cluster(self) -> None:
        if self._owner is not None and self._life is not None and self._life.broker.broker_epoch >= 0:
            with contextlib.suppress(LogFull, LogDamaged):  # it is tried again; without it nothing is wrong
                self._owner.joined(self._life.membership.cluster_id)

    def _know_cluster(self) -> None:
        """Before the first word to others: they refuse whoever cannot say where he belongs."""
        if self._life is not None:
            self._transport.cluster_id = self._life.membership.cluster_id

    def _send(self, sender: Address, to: Address, message: Any) -> bool:
        """Whoever has no seat here is in another process; nobody of this broker's own is."""
        if to in self._own:
            return False
        if not self._transport.cluster_id:
            self._know_cluster()
        self._transport.send(sender, to, message)
        return True

    def _endpoint_of(self, broker_id: int) -> str | None:
        """Where another broker listens, as far as the broker or the controller of this process knows."""
        return None if self._life is None else self._life.endpoint_of(broker_id)

    def __repr__(self) -> str:
        return f"<Broker {self.broker_id} at {self.endpoint or self._listen}, {self._state}>"
