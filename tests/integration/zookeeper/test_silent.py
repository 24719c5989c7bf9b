"""A ZooKeeper that is silent keeps nobody from ending."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.zookeeper_server import ZooKeeperServer

import replog
from replog.metadata.zookeeper import ZooKeeperStore
from replog.testing.eventually import eventually

pytestmark = pytest.mark.zookeeper


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    """A server of this test's own, that may be stopped."""
    server = ZooKeeperServer(tmp_path / "server").start()
    yield server
    server.signal(signal.SIGCONT)
    server.kill()


def test_a_broker_stops_cleanly_and_its_session_ends_when_zookeeper_answers_again(
    tmp_path: Path, server: ZooKeeperServer, caplog: pytest.LogCaptureFixture
) -> None:
    store = f"zookeeper://{server.address}/silent"
    one = replog.Broker(1, listen="tcp://127.0.0.1:0", data=tmp_path / "b1", store=store, config={"session_ms": 60_000})
    one.start().wait_until_ready(timeout_s=60)
    sessions = one._sessions
    assert sessions is not None
    session = sessions._store
    assert isinstance(session, ZooKeeperStore)
    server.signal(signal.SIGSTOP)
    one.stop(timeout_s=0.2)
    assert "the store has not ended the session within 0.2 s" in caplog.text
    assert (tmp_path / "b1" / "clean").exists()
    server.signal(signal.SIGCONT)
    with ZooKeeperStore(f"{server.address}/silent") as other:
        eventually(lambda: other.list("/brokers/ids") == [], 50)  # before its time
    eventually(lambda: repr(session).endswith("closed>"))
