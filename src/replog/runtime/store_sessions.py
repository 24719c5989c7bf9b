"""The store sessions of one broker process, one after another: opened and called on workers, replaced when one is lost.

The actors hear of a session by `SessionChanged`, and get the results of their calls as messages, whatever became of the
session meanwhile. A session lives only while the loop of its broker ticks (design, section 6): `tick` passes that on.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from replog.errors import ReplogError, UsageError
from replog.model import Address
from replog.ports import (
    NO_DESCRIPTORS,
    Ids,
    MetadataStore,
    SessionChanged,
    SessionLost,
    SessionState,
    StoreCall,
    StoreResult,
    UnknownOutcome,
    WatchFired,
)
from replog.runtime.workers import Workers

__all__ = ["StoreSessions"]

_log = logging.getLogger("replog")

_OPENING = "store"
_PAUSE_MS = 100
_PAUSE_MS_MAX = 5_000
_CLOSE_S_MAX = 10.0
"""A session that ends by its time after more than this is not waited for."""


class StoreSessions:
    """Of one broker. `post(to, message)` hands something to an actor, from any thread; `members` are told about sessions."""

    def __init__(
        self,
        open_session: Callable[[], MetadataStore],
        *,
        members: Sequence[Address],
        post: Callable[[Address, Any], None],
        workers: Workers,
        ids: Ids,
    ) -> None:
        """Nothing is opened before `start`."""
        self._open_session = open_session
        self._members = tuple(members)
        self._post = post
        self._workers = workers
        self._ids = ids
        self._store: MetadataStore | None = None
        self._failures = 0
        self._was_right = False
        """Whether a store was tried at all: what was configured was right then, and what is said against it now may pass, such as a file of
        credentials that is being replaced."""
        self._closing = threading.Event()
        self._lock = threading.RLock()
        """Around who has the session: listeners, callers and whoever closes come from different threads, a finalizer from any of them."""
        self.last_error: ReplogError | None = None
        """Why there is no session at the moment, if there is a reason."""
        self.refused: UsageError | None = None
        """Why there will never be one: whoever configured it is wrong, as the first try has shown."""

    def start(self) -> None:
        """Open the first session, on a worker; members hear of it."""
        self._workers.submit(_OPENING, self._open)

    def tick(self) -> None:
        """The loop ticks: the session may live on. Never blocks."""
        store = self._store
        if store is not None:
            with contextlib.suppress(ReplogError):  # whatever is wrong with it, its listeners hear so
                store.keep_alive()

    @property
    def is_open(self) -> bool:
        """Whether there is a session."""
        return self._store is not None

    @property
    def is_judging(self) -> bool:
        """Whether the store still lists sessions that have run out, because nobody may end them yet. Never blocks."""
        return bool(getattr(self._store, "is_judging", False))

    def call(self, caller: Address, call: StoreCall) -> None:
        """Have a call of an actor done on a worker of its own; the result is posted to it."""
        self._workers.submit(f"store {caller}", lambda: self._post(caller, self._run(caller, call)))

    def _run(self, caller: Address, call: StoreCall) -> StoreResult:
        store, result = self._store, StoreResult(call.call)
        try:
            if store is None:
                raise SessionLost(f"there is no session at the metadata store{_why(self.last_error)}")
            if call.verb == "watch":
                store.watch(call.argument, lambda path: self._post(caller, WatchFired(path)))
            else:
                result.value = getattr(store, call.verb)(call.argument)
        except Exception as problem:
            result.error = _known(problem)
            if isinstance(problem, SessionLost) and store is not None:
                self._changed(store, "lost")
        return result

    # ------------------------------------------------------------------------------------------------ on the workers

    def _open(self) -> None:
        """Open a session, however often that takes."""
        while not self._closing.is_set():
            store: MetadataStore | None = None
            try:
                store = self._open_session()
                if not self._take(store):
                    return
                store.on_session(partial(self._changed, store))
            except Exception as problem:
                if isinstance(problem, UsageError) and not self._was_right and not _may_pass(problem):
                    self.last_error = self.refused = problem
                    _log.error("no session at the metadata store, ever: %s", problem)
                    return
                self._was_right |= not isinstance(problem, UsageError)
                if store is not None:  # lost before anybody could hear of it
                    self._drop(store)
                self.last_error = _known(problem)
                pause_ms = min(_PAUSE_MS << min(self._failures, 16), _PAUSE_MS_MAX)
                self._failures += 1
                _log.warning("no session at the metadata store: %s; trying again in %d ms", self.last_error, pause_ms)
                self._closing.wait(pause_ms * (0.5 + self._ids.jitter() / 2) / 1_000)
            else:
                self._failures, self._was_right = 0, True
                with self._lock:
                    if self._store is store:  # else it is lost already, and that was told
                        self.last_error = None
                        self._tell("connected")
                return

    def _take(self, store: MetadataStore) -> bool:
        """Make it the session, unless nobody wants one any more."""
        with self._lock:
            wanted = not self._closing.is_set()
            if wanted:
                self._store = store
        if not wanted:
            _close(store)
        return wanted

    def _drop(self, store: MetadataStore) -> None:
        with self._lock:
            if self._store is store:
                self._store = None
        _abandon(store)

    def _changed(self, store: MetadataStore, state: SessionState) -> None:
        """Any thread of the store's: what its session is now."""
        with self._lock:
            if store is not self._store or self._closing.is_set():
                return
            if state == "lost":
                self._store = None
                self._workers.submit(_OPENING, lambda: self._replace(store))
            self._tell(state)

    def _replace(self, store: MetadataStore) -> None:
        _abandon(store)
        if self._store is None:  # else it was lost while it was being opened, and another one has come since
            self._open()

    def _tell(self, state: SessionState) -> None:
        """Under the lock: members hear of states in the order in which they came about. `post` only queues."""
        for member in self._members:
            self._post(member, SessionChanged(state))

    # --------------------------------------------------------------------------------------------------------- ending

    def close(self, timeout_s: float | None = None) -> None:
        """End the session: what it registered is gone at once. Idempotent; blocks for at most `timeout_s`.

        None: the session time, or 10 s if that is longer. A store that takes more is left behind with it: the session then ends when
        the store answers again, or by its time.
        """
        with self._lock:
            self._closing.set()
            store = self._store
        if store is None:
            return
        limit_s = min(getattr(store, "session_ms", _CLOSE_S_MAX * 1_000) / 1_000, _CLOSE_S_MAX) if timeout_s is None else timeout_s
        ended = threading.Event()
        try:
            threading.Thread(target=_end, args=(store, ended), name="replog store close", daemon=True).start()
        except RuntimeError:  # no thread can be started any more: the interpreter ends, or there are too many
            _end(store, ended)
        self._store = None  # only now: what an interrupt has kept from ending is ended by the next call
        if not ended.wait(limit_s):
            _log.warning("the store has not ended the session within %g s; it ends by its time at the latest", limit_s)


def _known(problem: Exception) -> ReplogError:
    """What an error of a store means: where descriptors, threads or memory are short a backend may raise anything, and nothing is known."""
    if isinstance(problem, ReplogError):
        return problem
    _log.warning("the metadata store failed in a way of its own", exc_info=problem)
    return UnknownOutcome(f"the metadata store failed: {type(problem).__name__}: {problem}")


def _may_pass(problem: BaseException) -> bool:
    """Whether it was raised because there were no descriptors, at that moment."""
    inner: BaseException | None = problem
    while inner is not None and getattr(inner, "errno", None) not in NO_DESCRIPTORS:
        inner = inner.__context__
    return inner is not None


def _why(problem: ReplogError | None) -> str:
    return "" if problem is None else f": {problem}"


def _end(store: MetadataStore, ended: threading.Event) -> None:
    """On a thread: nobody knows how long the store takes."""
    try:
        store.close()
    except Exception as problem:  # it ends by itself, after its time
        _log.warning("the store session could not be ended: %s", problem)
    finally:
        ended.set()


def _abandon(store: MetadataStore) -> None:
    """Close what is over on a thread of its own: whatever its store waits for, the next session does not."""
    try:
        threading.Thread(target=_close, args=(store,), name="replog store close", daemon=True).start()
    except RuntimeError:  # no thread can be started
        _close(store)


def _close(store: MetadataStore) -> None:
    """Whose session is over, or not wanted."""
    with contextlib.suppress(Exception):  # it ends by its time
        store.close()
