"""How the tests of a metadata store get its sessions: a subclass says how one is opened, how one ends, and how watches come."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from replog.ports import MetadataStore

__all__ = ["ContractSessions", "OpenSession"]

OpenSession = Callable[[], MetadataStore]


class ContractSessions:
    """Sessions on one store, which is empty for each test."""

    @pytest.fixture
    def open_session(self) -> OpenSession:
        """A function that opens another session on one store, which is empty for each test."""
        raise NotImplementedError

    def settle(self, done: Callable[[], bool], *stores: MetadataStore) -> None:
        """Make the store deliver what is due, until `done`. A backend that delivers at once has nothing to do."""

    def end(self, store: MetadataStore, other: MetadataStore) -> None:
        """End the session of `store` against its will, as if its time had run out; `other` is another session."""
        raise NotImplementedError

    @pytest.fixture
    def sessions(self, open_session: OpenSession) -> Iterator[OpenSession]:
        """`open_session`, whose sessions are closed when the test ends."""
        opened: list[MetadataStore] = []

        def another() -> MetadataStore:
            opened.append(open_session())
            return opened[-1]

        yield another
        for store in opened:
            store.close()

    @pytest.fixture
    def store(self, sessions: OpenSession) -> MetadataStore:
        """The first session."""
        return sessions()
