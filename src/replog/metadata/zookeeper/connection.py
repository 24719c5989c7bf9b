"""One session with ZooKeeper: kazoo's client, its threads, and what its errors and states mean.

kazoo is wrapped, not subclassed. Left alone it would open another session when this one has expired, and later calls
would write in its name; so no connection is made any more once the session has ended. Nor does kazoo know whether the
owner of a session still lives, or only its own thread: while the owner is silent the connection is dropped, and the
session ends by its time unless the owner comes back before (both: `_OneSession`).

kazoo's connection thread sends, receives and says in which state the session is; its callback thread runs the watches
and listeners, one after the other. No thread is added, but for the short one that stops kazoo after a lost session.
"""

from __future__ import annotations

import atexit
import errno
import logging
import os
import ssl
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Literal

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    BadArgumentsError,
    ConnectionLoss,
    NoAuthError,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import Callback, KazooState
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from replog.errors import ReplogError, TimedOut, UsageError
from replog.metadata.watches import Watches
from replog.metadata.zookeeper.encryption import context_of, encrypted
from replog.metadata.zookeeper.wakeups import Wakeups
from replog.metadata.zookeeper.words import spoken
from replog.ports import SessionLost, SessionState, UnknownOutcome
from replog.security.settings import Tls
from replog.security.tls_words import words_of

__all__ = ["Connection", "meaning"]

LOOK_AGAIN_S: Final = 1.0
"""How often a waiting call looks whether the session has ended meanwhile."""
SILENCE: Final = 0.5
"""An owner is silent that has not said for this part of a session time that it is alive."""
RECONNECT: Final = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 1.0}
CONNECTS: Final = 3
"""Each server can be tried this often in a session time, although none takes a connection."""
CONNECT_S_MIN: Final = 0.25
"""No connect is given less, however short the session: servers may be far away."""
LOST_ON_THE_WAY: Final = (ConnectionLoss, OperationTimeoutError, SessionMovedError)

_log = logging.getLogger("replog.metadata.zookeeper")
_log.addHandler(logging.NullHandler())
_log.addFilter(lambda record: record.levelno >= logging.INFO)  # below that, kazoo logs requests, and one of them is the password

_open: weakref.WeakSet[Connection] = weakref.WeakSet()


class _OneSession:
    """kazoo's own threads and sockets, except that no connection is made once the session has ended, and none is kept alive
    while the owner of the session is silent. Nor does one server that takes no connection use up the time of the session, or
    a request wait for the connection thread."""

    def __init__(self, session_ms: int, servers: int, context: ssl.SSLContext | None) -> None:
        self._context = context
        self._connect_s = max(session_ms / 1_000 / (CONNECTS * servers), CONNECT_S_MIN)
        self.kazoo = SequentialThreadingHandler()
        self.ended = False
        self.alive_at: float | None = None
        """When the owner last said that it is alive; None: it never does."""
        self.failure = ""
        """Why no server was reached the last time; empty: one was, or nobody has tried."""
        self.kept = threading.Event()
        """Cleared while the connection is dropped because the owner was silent."""
        self.kept.set()
        self._silence_s = session_ms / 1_000 * SILENCE

    def __getattr__(self, name: str) -> Any:
        return getattr(self.kazoo, name)

    def start(self) -> None:
        """Called by kazoo before it connects."""
        try:
            self.kazoo.start()
        except BaseException:
            self.kazoo._running = True  # else it would not end those of its threads that it has begun
            raise

    def create_socket_pair(self) -> tuple[Wakeups, Wakeups]:
        """Called by kazoo for what wakes its connection thread."""
        wakeups = Wakeups()
        return wakeups, wakeups

    def create_connection(self, *args: Any, **options: Any) -> Any:
        """Called by kazoo to connect."""
        if self.ended:
            raise ConnectionAbortedError(errno.ECONNABORTED, "the session has ended")
        self._require_owner()
        options["timeout"] = min(options["timeout"], self._connect_s)  # kazoo's is the whole time of the session
        try:
            plain = self.kazoo.create_connection(*args, **options)
            made = plain if self._context is None else encrypted(plain, self._context, options["hostname"])
        except OSError as problem:
            self.failure = "it does not answer" if isinstance(problem, TimeoutError) else words_of(problem)
            raise
        self.failure = ""
        return made

    def select(self, *args: Any) -> Any:
        """Called by kazoo in each turn of its loop, last before it would tell the server that this session is alive."""
        ready = self.kazoo.select(*args)
        self._require_owner()
        return ready

    def _require_owner(self) -> None:
        if self.alive_at is not None and time.monotonic() - self.alive_at > self._silence_s:
            self.kept.clear()
            raise TimeoutError(errno.ETIMEDOUT, "the owner of the session does not say that it is alive")


class Connection:
    """A kazoo client for the length of one session. Opened by its constructor."""

    def __init__(
        self, hosts: str, *, session_ms: int, timeout_s: float, credentials: tuple[str, str] | None, tls: Tls | None = None
    ) -> None:
        self.watches = Watches()
        self.acl = CREATOR_ALL_ACL if credentials else OPEN_ACL_UNSAFE
        self._hosts = hosts
        self._timeout_s = timeout_s
        self._session_s = session_ms / 1_000
        self._ended: Literal["lost", "closed"] | None = None
        self._connected = threading.Event()
        self.session_id = "none"
        self._listener: Callable[[SessionState], None] | None = None
        self._stopping = threading.Lock()
        self._calling_back = threading.local()
        self._handler = _OneSession(session_ms, hosts.count(",") + 1, None if tls is None else context_of(tls))
        self.client = KazooClient(
            hosts,
            timeout=session_ms / 1_000,
            handler=self._handler,
            auth_data=[credentials] if credentials else None,
            connection_retry=dict(RECONNECT),
            logger=_log,
        )
        self.client.add_listener(self._changed)
        _open.add(self)
        try:
            opened = self.client.start_async().wait(timeout_s)
        except Exception as problem:
            self.close()
            raise UnknownOutcome(f"no session with ZooKeeper ({hosts}) could be begun: {problem or type(problem).__name__}") from problem
        except BaseException:
            self.close()
            raise
        if not opened:
            self.close()
            why = f"; the last that was tried: {self._handler.failure}" if self._handler.failure else ""
            raise TimedOut(f"no ZooKeeper server of {hosts} opened a session within {timeout_s:g} s{why}")

    # -------------------------------------------------------------------------------------------------------- calls

    def send(self, call: Callable[[Any], Any]) -> Any:
        """Hand a request to kazoo, once connected; returns what `answer` takes. UnknownOutcome if no connection comes: nothing was sent."""
        deadline = time.monotonic() + self._timeout_s
        while not self._connected.wait(min(LOOK_AGAIN_S, max(0.0, deadline - time.monotonic()))):
            self._require()
            if time.monotonic() >= deadline:
                raise UnknownOutcome(f"no connection to ZooKeeper ({self._hosts}) for {self._timeout_s:g} s; nothing was sent")
        self._require()
        return call(self.client)

    def answer(self, result: Any) -> Any:
        """Wait for an answer: the value, or what kazoo raised for it. Raises UnknownOutcome if none comes in time."""
        deadline = time.monotonic() + self._timeout_s
        while not result.wait(min(LOOK_AGAIN_S, max(0.0, deadline - time.monotonic()))):
            self._require()
            if time.monotonic() >= deadline:
                raise UnknownOutcome(f"no answer from ZooKeeper ({self._hosts}) within {self._timeout_s:g} s")
        return result.value if result.successful() else result.exception

    def read(self, calls: Sequence[Callable[[Any], Any]], *, denied: bool = False) -> list[Any]:
        """Send requests that change nothing, together, and wait; all of them again after a lost connection.

        An answer is a value or what kazoo raised for it. A refusal by an access list is raised, unless with `denied` it is an answer, too.
        """
        raised = (SessionExpiredError, BadArgumentsError) if denied else (SessionExpiredError, BadArgumentsError, NoAuthError)
        deadline = time.monotonic() + self._timeout_s
        while True:
            answers = [self.answer(result) for result in [self.send(call) for call in calls]]
            if not any(isinstance(answer, LOST_ON_THE_WAY) for answer in answers):
                for answer in answers:
                    if isinstance(answer, raised):
                        raise meaning(answer, self._hosts)
                return answers
            if time.monotonic() >= deadline:
                raise UnknownOutcome(f"the connection to ZooKeeper ({self._hosts}) broke again and again for {self._timeout_s:g} s")

    def _require(self) -> None:
        if self._ended == "lost":
            raise SessionLost(f"session {self.session_id} with ZooKeeper ({self._hosts}) has ended; open another one")
        if self._ended == "closed":
            raise UsageError(f"the store at {self._hosts} was closed while a call was waiting")

    # ------------------------------------------------------------------------------------------------ the session

    def tell(self, listener: Callable[[SessionState], None]) -> None:
        """Call `listener` from now on, in kazoo's connection thread: it must not wait. At once, if the session is lost already."""
        self._listener = listener
        if self._ended == "lost":
            listener("lost")
            self._call_back(self.watches.deliver)

    def _changed(self, state: Any) -> None:
        """kazoo's listener, in its connection thread."""
        if state != KazooState.SUSPENDED:
            self._handler.kept.set()
        if state == KazooState.CONNECTED:
            self.session_id = f"0x{self.client.client_id[0] & 0xFFFF_FFFF_FFFF_FFFF:x}"
            if self._listener is not None:
                self._tell("connected")
                self._call_back(self.watches.fire_all)  # what changed meanwhile was not told
                self._call_back(self.watches.deliver)
            self._connected.set()
            return
        self._connected.clear()
        if state == KazooState.SUSPENDED:
            self._tell("suspended")
            self._call_back(self.watches.deliver)
        elif self._ended is None:
            self._ended = "lost"
            self._handler.ended = True
            self._connected.set()  # those who wait for a connection look, and find that there will be none
            self._tell("lost")
            self._call_back(self.watches.deliver)
            self._handler.spawn(self._stop)

    def _tell(self, state: SessionState) -> None:
        if self._listener is not None:
            self._listener(state)

    def _call_back(self, call: Callable[[], None]) -> None:
        self._handler.dispatch_callback(Callback("session", self._in_turn, (call,)))

    def _in_turn(self, call: Callable[[], None]) -> None:
        """Run in kazoo's callback thread, and let `close` know that it is called from there."""
        self._calling_back.now = True
        try:
            call()
        finally:
            self._calling_back.now = False

    def fire(self, path: str) -> None:
        """A watch of ZooKeeper fired for `path`. In kazoo's callback thread."""
        self.watches.fire([path])
        self._in_turn(self.watches.deliver)

    def keep_alive(self) -> None:
        """The owner is alive. From the first call on the connection is kept only while the next ones come."""
        self._handler.alive_at = time.monotonic()

    def close(self) -> None:
        """End the session, wait until ZooKeeper has confirmed it (or cannot), and stop kazoo's threads. Idempotent.

        An owner that was silent before, because what it had to finish took long, is waited for until it is connected again, a
        session time at most: over no connection the session could not be ended.
        """
        if self._ended is None:
            if self._handler.alive_at is not None:
                self._handler.alive_at = None  # whoever ends its session is there, until it is ended
                self._handler.kept.wait(min(self._timeout_s, self._session_s))
                self.keep_alive()
            self._ended = "closed"
        self._handler.ended = True
        self._connected.set()
        if getattr(self._calling_back, "now", False):
            self._handler.spawn(self._stop)  # a callback cannot wait for the thread that runs it
        else:
            self._stop()

    def _stop(self) -> None:
        with self._stopping:
            with suppress(Exception):  # its writer may be stuck in a connect: then the session ends by time; or it never began
                self.client.stop()
            with suppress(Exception):  # kazoo's own word for "not stopped yet", after an interrupt
                self.client.close()
            _open.discard(self)


def meaning(error: Exception, where: str) -> ReplogError:
    """What an error of kazoo means for a caller of the port."""
    if isinstance(error, ReplogError):
        return error
    if isinstance(error, SessionExpiredError | AuthFailedError):
        return SessionLost(f"the session with ZooKeeper ({where}) has ended; open another one")
    if isinstance(error, NoAuthError):
        return UsageError(f"the access list of a node in ZooKeeper ({where}) does not allow this with these credentials")
    if isinstance(error, BadArgumentsError):
        return UsageError(f"ZooKeeper ({where}) does not take such a path")
    return UnknownOutcome(f"lost the connection to ZooKeeper ({where}) on the way: {spoken(error)}")


def _abandon_after_fork() -> None:
    """In a child none of kazoo's threads exist; its exit handler would wait for locks that they held."""
    for connection in list(_open):
        atexit.unregister(connection._handler.kazoo.stop)


os.register_at_fork(after_in_child=_abandon_after_fork)
