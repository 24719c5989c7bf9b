"""How the tests of a metadata store get its sessions: a subclass says how one is opened, how one ends, and how watches come."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from replog.ports import MetadataStore
from replog.testing.contract_traits import ContractTraits

__all__ = ["ContractSessions", "Kept", "OpenSession", "kept_alive"]

OpenSession = Callable[[], MetadataStore]


class ContractSessions(ContractTraits):
    """Sessions on one store, which is empty for each test."""

    lasts = True
    """Whether nodes and numbers outlive the last session. False for a store in memory that is gone with it."""
    is_shared = True
    """Whether other processes can open the same store. `open_session`, and `open_short_session` where sessions expire, are then
    something that can be handed to one, such as `functools.partial(MyStore, folder)`: one sees the same tree, and one is killed.
    False for a store of one process."""
    expires = True
    """Whether a session ends by its time once its owner is silent. False where only `close` and the end of a process end one."""
    patience_s = 30.0
    """How long a test that waits for the store goes on before it fails."""

    @pytest.fixture
    def open_session(self) -> OpenSession:
        """A function that opens another session on one store, which is empty for each test."""
        raise NotImplementedError

    @pytest.fixture
    def open_short_session(self) -> OpenSession:
        """The same with a short session time: it is waited for, and a machine that stands still for so long ends sessions. Not needed if
        `expires` is False."""
        raise NotImplementedError("say how a session is opened that soon ends by its time, or set `expires = False`")

    def settle(self, done: Callable[[], bool], *stores: MetadataStore) -> None:
        """Make the store deliver what is due, until `done`. A backend that delivers at once has nothing to do."""

    def end(self, store: MetadataStore, other: MetadataStore) -> None:
        """End the session of `store` against its will, as if its time had run out; `other` is another session."""
        raise NotImplementedError

    @pytest.fixture
    def sessions(self, open_session: OpenSession) -> Iterator[OpenSession]:
        """`open_session`, whose sessions are closed when the test ends."""
        with _closed_later(open_session) as another:
            yield another

    @pytest.fixture
    def short_sessions(self, open_short_session: OpenSession) -> Iterator[OpenSession]:
        """`open_short_session`, whose sessions are closed when the test ends."""
        with _closed_later(open_short_session) as another:
            yield another

    @pytest.fixture
    def store(self, sessions: OpenSession) -> MetadataStore:
        """The first session."""
        return sessions()


@contextmanager
def _closed_later(open_session: OpenSession) -> Iterator[OpenSession]:
    opened: list[MetadataStore] = []

    def another() -> MetadataStore:
        opened.append(open_session())
        return opened[-1]

    yield another
    for store in opened:
        store.close()


class Kept:
    """How long it took at most from one call to the end of the next."""

    longest_s = 0.0


@contextmanager
def kept_alive(store: MetadataStore) -> Iterator[Kept]:
    """As an owner does whose loop goes on, whatever its other threads wait for."""
    over, kept = threading.Event(), Kept()

    def run() -> None:
        since_s = time.monotonic()
        while not over.wait(0.01):
            began_s = time.monotonic()
            store.keep_alive()
            kept.longest_s = max(kept.longest_s, time.monotonic() - since_s)
            since_s = began_s

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield kept
    finally:
        over.set()
        thread.join()
