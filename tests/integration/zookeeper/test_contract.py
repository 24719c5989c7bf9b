"""The store on ZooKeeper keeps the contract of every metadata store, against a real server."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from tests.integration.zookeeper.faults import delivered, expire

from replog.metadata.zookeeper import ZooKeeperStore
from replog.ports import MetadataStore
from replog.testing.eventually import eventually
from replog.testing.store_contract import MetadataStoreContract, OpenSession

pytestmark = pytest.mark.zookeeper


class TestZooKeeperStore(MetadataStoreContract):
    @pytest.fixture
    def open_session(self, address: str) -> OpenSession:
        return partial(ZooKeeperStore, address, session_ms=4_000)

    @pytest.fixture
    def open_short_session(self, address: str) -> OpenSession:
        return partial(ZooKeeperStore, address, session_ms=1_500)

    def settle(self, done: Callable[[], bool], *stores: MetadataStore) -> None:
        eventually(done)
        for store in stores:
            assert isinstance(store, ZooKeeperStore)
            delivered(store)

    def end(self, store: MetadataStore, other: MetadataStore) -> None:
        assert isinstance(store, ZooKeeperStore)
        expire(store)
