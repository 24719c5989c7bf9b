"""`replog.connect`: a client whose brokers are elsewhere. It drives its own sockets, in whichever thread calls.

Of the threads that wait, one rests on the sockets, without the lock; the others rest until that one has brought what they
wait for, or leaves its place to one of them. No thread is started, unless a producer leaves something behind.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import time
import warnings
from _thread import RLock
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import get_ident
from typing import Any, Final

from replog.client.client import Client
from replog.client.core import ClientCore
from replog.client.delivery import may_call, run_callbacks
from replog.codec import CodecError
from replog.config import ClientConfig
from replog.errors import Unavailable, UsageError
from replog.log.files import kill_in_child
from replog.messages import Disconnected
from replog.model import Address
from replog.runtime.changing import Changing
from replog.runtime.closing import Closing
from replog.runtime.finishing import Finisher, start_finisher
from replog.runtime.ids import RandomIds
from replog.runtime.pump import LOUD
from replog.runtime.putting_off import is_inside, put_off
from replog.runtime.resting import Resting, Waiter
from replog.security.settings import Security, security_of
from replog.transport.tcp import TcpTransport
from replog.transport.tcp.endpoint import parse_endpoint

__all__ = ["ConnectedDriver", "connect", "parse_bootstrap"]

_log = logging.getLogger("replog.client")

_CLIENT: Final = "client"
_DEAF_MS: Final = 100
"""After so long without a turn, what has arrived is heard before timers run: it may be what they would give up."""
_SCHEME: Final = "tcp://"
_NUMBER: Final = re.compile(r"^\[Errno -?\d+\] ")


def connect(
    endpoints: str | Iterable[str],
    *,
    config: ClientConfig | Mapping[str, Any] | None = None,
    security: Security | str | os.PathLike[str] | None = None,
) -> Client:
    """A client of the cluster that is reached at any of `endpoints`: "tcp://host:port,host:port" or a list; the scheme may be left out.

    Nothing is opened before the first call, and no endpoint has to answer yet. One that answers is enough: it names the other
    brokers. `config` takes the keys of `ClientConfig`; `security` (settings, or a file of them) says how this process proves who it is,
    and what brokers have to prove. Raises UsageError naming what is wrong with an argument.

    Calls raise Unavailable (TimedOut), naming who was not reached and why, when nobody was within their time. In a forked
    child the client goes on with connections, buffers and producer ids of its own.
    """
    settings = config if isinstance(config, ClientConfig) else ClientConfig.from_mapping({} if config is None else config)
    protected = security_of(security)
    if protected is not None:
        protected.check_client()
    return Client(ConnectedDriver(parse_bootstrap(endpoints), config=settings, security=protected))


def parse_bootstrap(endpoints: str | Iterable[str]) -> list[str]:
    """The endpoints as "tcp://host:port", each once, in the order given. Raises UsageError naming the bad one."""
    what = "endpoints is a comma-separated text or a list of tcp://host:port"
    if not isinstance(endpoints, str | Iterable) or isinstance(endpoints, bytes | bytearray | Mapping):
        raise UsageError(f"{what}, not {endpoints!r:.120}")
    found: dict[str, None] = {}
    for given in [endpoints] if isinstance(endpoints, str) else endpoints:
        if not isinstance(given, str):
            raise UsageError(f"{what}; {given!r:.120} is none")
        for part in given.split(","):
            text = part.strip()
            endpoint = parse_endpoint(text if "://" in text else _SCHEME + text)
            if not endpoint.port:
                raise UsageError(f"the port of {text!r:.120} is 0; somebody listens at 1 to 65535")
            found[str(endpoint)] = None
    if not found:
        raise UsageError(f"{what}; the list is empty")
    return list(found)


class _Waiter(Waiter):
    """One thread in a `wait`: it rests on the sockets, or until the thread that does brings it what it wants."""

    __slots__ = ("background", "left", "rest_s", "resting_on", "woken")

    def __init__(self, done: Callable[[], bool], lock: RLock, *, background: bool) -> None:
        super().__init__(done, lock)
        self.background = background
        """Whether it gives way to the application."""
        self.left = False
        """Whether it is on its way out, and rests on nothing any more."""
        self.resting_on: TcpTransport | None = None
        self.rest_s = 0.0
        """So long it may rest on the sockets: until `until_ms`."""
        self.woken = False
        """Whether it was told to look up from the sockets."""


class ConnectedDriver:
    """The `Driver` of one client over TCP. Any thread may call; what has to be open is opened at the first use."""

    def __init__(self, endpoints: Sequence[str], *, config: ClientConfig, security: Security | None = None) -> None:
        self.lock = RLock()
        """Reentrant. Whoever calls the core holds it."""
        self.changing = Changing(self._crashed)
        """... and enters this if the core is changed by that."""
        self.core = ClientCore(_CLIENT, config=config, ids=RandomIds(), bootstrap=endpoints)
        """The core it runs."""
        self.calls = 0
        """How often the application has called: what tells a busy one from one that has stopped."""
        self._endpoints = list(endpoints)
        self._security = security
        self._transport: TcpTransport | None = None
        self._cluster_id = ""
        self._failures: dict[str | None, str] = {}
        """Endpoint -> why it was not reached, until the core hears of it."""
        self._discarded: list[Callable[[], None]] = []
        self._turned_ms = self.now_ms()
        self._polling: _Waiter | None = None
        """Who rests on the sockets, without the lock."""
        self._waiters: Resting[_Waiter] = Resting(self.changing)
        self.finisher: Finisher | None = None
        """Who sees to batches when nobody calls; it takes itself off under the lock."""
        self.closed = False
        """Whether `close` was called: nothing may be sent any more. Every `send` looks, so it is no method."""
        kill_in_child(self)  # open or not: children must not be the same producers

    def now_ms(self) -> int:
        """Monotonic milliseconds."""
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    # --------------------------------------------------------------------------------------------------------- running

    def run(self) -> None:
        """Take in what has arrived and send what can be sent, without waiting. UsageError once the client is closed.

        Unavailable if the process can open no connection.
        """
        with self.lock, self.changing:
            self._check_usable()
            self.calls += 1
            if self._is_polled():
                self._turn(None)
                self._call_up()
            else:
                self._turn(self._open().wait(0))

    def wait(self, done: Callable[[], bool], timeout_s: float | None, *, background: bool = False) -> bool:
        """Run until `done()`; False when `timeout_s` has passed first. UsageError if the client is closed meanwhile.

        `background`: on behalf of nobody, and not when somebody else could rest on the sockets.
        """
        end_ms = None if timeout_s is None else self.now_ms() + int(timeout_s * 1000)
        waiter = _Waiter(done, self.lock, background=background)
        self.calls += not background
        ready: list[Any] | None = None
        try:
            while True:
                polled = self._look(waiter, ready, end_ms)
                ready = None
                if isinstance(polled, bool):
                    return polled
                if polled is not None:
                    ready = polled.wait(waiter.rest_s)
                else:
                    run_callbacks(self.core)
        finally:
            waiter.left = True  # before the lock is there: a second Ctrl-C may keep this thread from ever getting it
            try:
                self._part(waiter)
            except BaseException:
                self._part(waiter)  # others sleep until they are given its place
                raise

    def wake(self) -> None:
        """Have everybody who waits look again whether it is done. From any thread, and from a signal handler."""
        with self.lock:
            if self._transport is not None:  # whoever rests there, or was interrupted when about to, looks for the others as well
                self._transport.wake()

    def _part(self, waiter: _Waiter) -> None:
        with self.lock, self.changing:
            self._leave(waiter)
            self._pass_on()

    def _look(self, waiter: _Waiter, ready: list[Any] | None, end_ms: int | None) -> TcpTransport | bool | None:
        """One turn under the lock. Returns what `wait` is to return, or the sockets to rest on, or None: callbacks are to be called."""
        with self.lock, self.changing:
            while True:
                self._leave(waiter)
                if self.closed:
                    if waiter.done():
                        return True
                    self._check_usable()
                now_ms = self._turn(ready if waiter.resting_on is self._transport else None)
                ready = waiter.resting_on = None
                if waiter.done():
                    return True
                if end_ms is not None and now_ms >= end_ms:
                    return False
                if self.core.finished and may_call(self.core):
                    self._pass_on()  # a callback may take its time
                    return None
                if not self._is_polled():
                    if not waiter.background or all(one.background for one in self._waiters):
                        return self._take_place(waiter, end_ms)
                    self._pass_on()  # the application came while this thread was about to rest: it goes first
                else:
                    self._call_up()
                self._waiters.rest(waiter, None if end_ms is None else max(0, end_ms - self.now_ms()) / 1000)

    def _turn(self, ready: list[Any] | None) -> int:
        """Take in what is ready (None: somebody else does that), run timers that are due, send what the core says. By which time it did so:
        whether anybody's is up."""
        transport = self._open()
        core = self.core
        now_ms, before_ms = self.now_ms(), self._turned_ms
        self._turned_ms = now_ms
        if now_ms - before_ms > _DEAF_MS:
            ready = transport.wait(0) or (None if self._is_polled() else [])
        try:
            if ready is not None:
                self._say(transport)  # first: what is said on a connection that has ended is lost with it, and not said again on the next
                transport.handle(ready, now_ms)
                if self._polling is not None:
                    self._forestall()
                now_ms = self.now_ms()
            core.tick(now_ms, self.wall_ms())
            self._say(transport)
            transport.flush()
        except BaseException as problem:
            self.changing.handled = problem
            self._crashed(problem)
            raise
        if self._waiters.present:
            for waiter in self._waiters:
                if waiter.is_done():
                    waiter.condition.notify()
        return now_ms

    def _say(self, transport: TcpTransport) -> None:
        outbox = self.core.outbox
        if outbox.messages:
            messages, outbox.messages = outbox.messages, []
            for to, message in messages:
                try:
                    transport.send(_CLIENT, to, message)
                except CodecError as problem:  # nothing of it was said, and nothing is wrong with the connection
                    self.core.unsent(message, UsageError(f"the request was not sent: {problem}"))

    def _receive(self, sender: Address, message: Any) -> None:
        if isinstance(message, Disconnected):
            where = self._endpoint_of(message.address) if isinstance(message.address, int) else message.address
            why = self._failures.pop(where, None)
            if why is not None:
                self.core.unreached[message.address] = why if where == message.address else f"{where}: {why}"
        elif self.core.unreached:  # whoever speaks is reached, perhaps over another connection than the one that failed
            self.core.unreached.pop(sender, None)
            self.core.unreached.pop(self._endpoint_of(sender) if isinstance(sender, int) else None, None)
        self.core.receive(sender, message, self.now_ms())

    # ------------------------------------------------------------------------------------------ who rests on the sockets

    def _is_polled(self) -> bool:
        """Whether another thread rests on the sockets. This one cannot, nor one that has left: a second Ctrl-C kept it from saying so."""
        polling = self._polling
        if polling is not None and (polling.left or polling.thread == get_ident()):
            self._polling = None
        return self._polling is not None

    def _take_place(self, waiter: _Waiter, end_ms: int | None) -> TcpTransport:
        transport = waiter.resting_on = self._open()
        now_ms = self.now_ms()  # to send much has taken its time
        times = [self.core.deadline_ms(), transport.next_poll_ms(), end_ms]
        waiter.until_ms = min((t for t in times if t is not None), default=now_ms + 60_000)
        waiter.rest_s = max(waiter.until_ms - now_ms, 1) / 1000
        waiter.woken = False
        self._polling = waiter
        return transport

    def _forestall(self) -> None:
        """What is ready was taken in by another thread than the one that rests on the sockets: if that one comes with it as well, it is
        of before, and its descriptors may be others by now; and if it was being called up, the call may have been taken in, too."""
        resting, transport = self._polling, self._transport
        if self._is_polled() and resting is not None and transport is not None:
            resting.resting_on, resting.woken = None, True
            transport.wake()

    def _leave(self, waiter: _Waiter) -> None:
        if self._polling is waiter:
            self._polling = None
        if self._discarded and not self._is_polled():
            self._bury()

    def _call_up(self) -> None:
        """Have whoever rests on the sockets look up, if it is to give way, or rests for longer than it now may."""
        resting, transport = self._polling, self._transport
        if resting is None or transport is None or resting.woken:
            return
        due_ms = self.core.deadline_ms()
        poll_ms = transport.next_poll_ms()
        due_ms = poll_ms if due_ms is None else due_ms if poll_ms is None else min(due_ms, poll_ms)
        if resting.background or (due_ms is not None and due_ms < resting.until_ms):
            resting.woken = True
            transport.wake()

    def _pass_on(self) -> None:
        """If nobody rests on the sockets now, somebody who waits should."""
        if self._waiters and not self._is_polled():
            heir = next((w for w in self._waiters if not w.background), next(iter(self._waiters)))
            heir.condition.notify()

    # ------------------------------------------------------------------------------------------ what producers leave behind

    def attend(self) -> None:
        """A producer has begun a batch: should nobody call again, a thread will finish it."""
        self.calls += 1
        start_finisher(self)

    def expect(self) -> None:
        """Whoever finishes the batch calls back as well: `attend` has seen to that."""

    def has_left(self) -> bool:
        """Whether a producer's batches have no outcome yet, one that nobody was told of, or have not even left this process.

        Called with the lock held.
        """
        unsent = 0 if self._transport is None else self._transport.unsent_bytes
        return self.core.has_batches or bool(self.core.finished) or unsent > 0

    def unsent_to(self, broker: Address) -> int:
        """What sockets to this broker have not taken yet, or waits for it to be reached. Called with the lock held."""
        return 0 if self._transport is None else self._transport.unsent_to(_CLIENT, broker)

    # ------------------------------------------------------------------------------------------------------------ life

    def close(self) -> None:
        """Let go of sockets. What has no outcome yet will have none: it fails. Idempotent.

        In a signal handler that came into a call of this thread: when that has left the lock.
        """
        if is_inside(self.lock):
            return None if self.closed else put_off(self.close, "replog client close")
        with self.lock, self.changing:
            if self.closed:
                return
            self.closed = True
            closing = Closing(self.core, "Client")
            self._drop(abandon=False)
            self._waiters.call_all()
        closing.tell()

    def die_in_child(self) -> None:
        """After a fork the child has a copy of everything. It goes on as another client with the same configuration."""
        reinit: Callable[[], None] = vars(RLock)["_at_fork_reinit"].__get__(self.lock)  # not in the stubs
        reinit()
        self._polling = self.finisher = None
        self._waiters.forget_all()
        self._remember()
        self._drop(abandon=True)
        if not self.closed:
            self.core.after_fork()
        kill_in_child(self)  # a child of the child is yet another one

    def __del__(self) -> None:
        transport = getattr(self, "_transport", None)
        if transport is not None:
            text = "a Client was dropped with its connections open; use `with` or call close()"
            warnings.warn(text, ResourceWarning, source=self, stacklevel=2)
            transport.close()

    def _check_usable(self) -> None:
        if self.closed:
            raise UsageError("this Client is closed")

    def _open(self) -> TcpTransport:
        transport = self._transport
        if transport is None:
            self._check_usable()
            try:
                transport = TcpTransport(
                    role=_CLIENT, now_ms=self.now_ms, endpoint_of=self._endpoint_of, on_event=self._told, security=self._security
                )
            except OSError as problem:
                raise Unavailable(f"no connection can be opened: {problem}") from problem
            transport.cluster_id = self._cluster_id
            transport.listen(_CLIENT, self._receive)
            self._transport = transport
        return transport

    def _endpoint_of(self, broker_id: int) -> str | None:
        known = self.core.view.brokers.get(broker_id)
        return known.endpoints[0] if known is not None and known.endpoints else None

    def _told(self, name: str, fields: dict[str, Any]) -> None:
        _log.log(logging.WARNING if name in LOUD else logging.INFO, "%s %s", name, fields)
        if name == "dial_failed":
            reason = fields["reason"]
            number = getattr(errno, reason, None)
            self._failures[fields["endpoint"]] = _NUMBER.sub("", reason) if number is None else os.strerror(number)

    def _crashed(self, problem: BaseException) -> None:
        """Core and connections may be half-changed: what was under way has an unknown outcome, and both begin anew."""
        self._remember()
        self.core.crash(problem)
        self._drop(abandon=True)
        self._waiters.call_all()

    def _remember(self) -> None:
        """The core is about to forget where brokers are: the endpoints that were given may be none of theirs by now."""
        known = [endpoint for _, info in sorted(self.core.view.brokers.items()) for endpoint in info.endpoints]
        self.core.bootstrap = list(dict.fromkeys([*self._endpoints, *known]))

    def _drop(self, *, abandon: bool) -> None:
        """Let go of the connections, at once or, if another thread rests on them, when that one has looked up."""
        transport, self._transport = self._transport, None
        if transport is not None:
            self._cluster_id = transport.cluster_id
            self._discarded.append(transport.abandon if abandon else transport.close)
            if self._is_polled():
                transport.wake()
        if self._polling is None:
            self._bury()

    def _bury(self) -> None:
        while self._discarded:
            self._discarded.pop()()
