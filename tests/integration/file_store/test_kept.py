"""The contract of a metadata store, with sessions that a thread looks after."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.contracts.test_store import SHORT_MS

from replog.metadata.file import FileStore
from replog.ports import MetadataStore
from replog.testing.eventually import eventually
from replog.testing.store_contract import MetadataStoreContract, OpenSession


def kept(store: FileStore) -> FileStore:
    store.keep_alive()
    return store


def kept_apart(path: Path, session_ms: int = 9_000) -> FileStore:
    return kept(FileStore(path, session_ms=session_ms))


class _Kept(MetadataStoreContract):
    @pytest.fixture
    def open_short_session(self, tmp_path: Path) -> OpenSession:
        return partial(kept_apart, tmp_path / "store.db", SHORT_MS)

    def settle(self, done: Callable[[], bool], *stores: MetadataStore) -> None:
        eventually(done)

    def end(self, store: MetadataStore, other: MetadataStore) -> None:
        assert isinstance(other, FileStore)
        other.end_session(store.session_id)


class TestKeptApart(_Kept):
    """Each session with a connection and a thread of its own, as in other processes."""

    @pytest.fixture
    def open_session(self, tmp_path: Path) -> OpenSession:
        return partial(kept_apart, tmp_path / "store.db")


class TestKeptTogether(_Kept):
    """Sessions that share an open file and its thread."""

    is_shared = False

    @pytest.fixture
    def open_session(self, tmp_path: Path) -> Iterator[OpenSession]:
        with FileStore(tmp_path / "store.db") as store:
            yield lambda: kept(store.session())
