"""One real server for the tests of a process, and a chroot of its own for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import pytest
from tests.integration.zookeeper_server import ZooKeeperServer

from replog.metadata.zookeeper import ZooKeeperStore

OpenStore = Callable[..., ZooKeeperStore]
_numbers = count(1)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A server that nobody may stop."""
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper") / "server").start()
    yield server
    server.kill()


@pytest.fixture
def address(server: ZooKeeperServer) -> str:
    """The server, with a chroot that is new in each test."""
    return f"{server.address}/test-{next(_numbers)}"


@pytest.fixture
def open_store(address: str) -> Iterator[OpenStore]:
    """Opens sessions that are closed when the test ends."""
    opened: list[ZooKeeperStore] = []

    def another(at: str = address, **options: object) -> ZooKeeperStore:
        opened.append(ZooKeeperStore(at, **{"session_ms": 4_000, **options}))  # type: ignore[arg-type]
        return opened[-1]

    yield another
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: OpenStore) -> ZooKeeperStore:
    return open_store()
