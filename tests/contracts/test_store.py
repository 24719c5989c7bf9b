"""Every built-in metadata store keeps the contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from replog.metadata.file import FileStore
from replog.metadata.memory import MemoryStore
from replog.metadata.paths import VALUE_BYTES_MAX
from replog.ports import MetadataStore
from replog.testing.store_contract import MetadataStoreContract, OpenSession

SHORT_MS = 500
"""Of sessions whose end is waited for. With a fifth of that, threads that look after them come too late on a busy machine."""


class TestMemoryStore(MetadataStoreContract):
    large_bytes = VALUE_BYTES_MAX + 1
    is_shared = False
    expires = False

    @pytest.fixture
    def open_session(self) -> OpenSession:
        return MemoryStore().session

    def end(self, store: MetadataStore, other: MetadataStore) -> None:
        assert isinstance(store, MemoryStore)
        store.expire()


class _FileContract(MetadataStoreContract):
    large_bytes = VALUE_BYTES_MAX + 1

    @pytest.fixture
    def open_short_session(self, tmp_path: Path) -> OpenSession:
        return partial(FileStore, tmp_path / "store.db", session_ms=SHORT_MS)

    def settle(self, done: Callable[[], bool], *stores: MetadataStore) -> None:
        for store in stores:
            if isinstance(store, FileStore) and repr(store).endswith("open>"):  # the path may say "open" as well
                store.poll()

    def end(self, store: MetadataStore, other: MetadataStore) -> None:
        assert isinstance(other, FileStore)
        other.end_session(store.session_id)


class TestFileStore(_FileContract):
    """Sessions of one process on one open file."""

    is_shared = False

    @pytest.fixture
    def open_session(self, tmp_path: Path) -> Iterator[OpenSession]:
        with FileStore(tmp_path / "store.db") as store:
            yield store.session


class TestFileStoreApart(_FileContract):
    """Each session with a connection of its own, as in other processes."""

    @pytest.fixture
    def open_session(self, tmp_path: Path) -> OpenSession:
        return partial(FileStore, tmp_path / "store.db")


class TestPrivateFileStore(_FileContract):
    is_shared = False
    expires = False

    @pytest.fixture
    def open_session(self, tmp_path: Path) -> Iterator[OpenSession]:
        with FileStore(tmp_path / "store.db", private=True) as store:
            yield store.session
