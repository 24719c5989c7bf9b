"""Servers that die and come back, and an ensemble that loses its leader."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.zookeeper_server import Ensemble, ZooKeeperServer

from replog.metadata.zookeeper import ZooKeeperStore
from replog.ports import Conflict, Create, Put, UnknownOutcome
from replog.testing.eventually import eventually

pytestmark = pytest.mark.zookeeper


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    server = ZooKeeperServer(tmp_path / "server").start()
    yield server
    server.kill()


def put_once(store: ZooKeeperStore, path: str, value: bytes) -> None:
    """Replace a value, whatever the connection does: what is not known is read before it is tried again."""
    while True:
        try:
            found = store.read(path)
            assert found is not None
            if found.value == value:
                return
            store.commit([Put(path, value, found.version)])
            return
        except UnknownOutcome:
            pass


def test_a_session_outlives_a_restart_of_the_server(own_server: ZooKeeperServer) -> None:
    with ZooKeeperStore(f"{own_server.address}/r", session_ms=30_000) as store:
        (created,) = store.commit([Create("/ids/1", b"0", ephemeral=True)])
        states: list[str] = []
        fired: list[str] = []
        store.on_session(states.append)
        store.watch("/ids/1", fired.append)
        own_server.kill()
        eventually(lambda: states == ["suspended"])
        own_server.start()
        put_once(store, "/ids/1", b"1")
        eventually(lambda: states == ["suspended", "connected"] and fired == ["/ids/1"])
        found = store.read("/ids/1")
        assert found is not None
        assert (found.value, found.created, found.version) == (b"1", created, 1)


def test_a_server_that_stands_still_suspends_the_session(own_server: ZooKeeperServer) -> None:
    with ZooKeeperStore(own_server.address, session_ms=2_000, timeout_s=60) as store:
        store.commit([Create("/a", b"0")])
        states: list[str] = []
        store.on_session(states.append)
        own_server.signal(signal.SIGSTOP)
        try:
            eventually(lambda: states == ["suspended"])
        finally:
            own_server.signal(signal.SIGCONT)
        eventually(lambda: len(states) > 1)  # its clock stood still too: connected, or it was quick to expire the session
        assert states[1] in ("connected", "lost")


def assert_reads_see_what_was_committed_at_another_server(ensemble: Ensemble) -> None:
    leader = ensemble.leader()
    assert leader is not None
    follower = next(member for member in ensemble.members if member is not leader)
    with ZooKeeperStore(leader.address) as writer, ZooKeeperStore(follower.address) as reader:
        writer.commit([Create("/seen", b"")])
        for version in range(1, 200):
            writer.commit([Put("/seen", b"")])
            found = reader.read("/seen")
            assert found is not None
            assert found.version == version


def test_an_ensemble_that_loses_its_leader(tmp_path: Path) -> None:
    ensemble = Ensemble(tmp_path)
    with ensemble.running(), ZooKeeperStore(f"{ensemble.addresses}/e", session_ms=20_000, timeout_s=60) as store:
        (created,) = store.commit([Create("/ids/1", b"0", ephemeral=True)])
        store.commit([Create("/count", b"0")])
        with store.session() as other:
            assert_reads_see_what_was_committed_at_another_server(ensemble)
            for round_number in range(2):
                leader = ensemble.leader()
                assert leader is not None
                leader.kill()
                for each in (store, other):
                    put_once(each, "/count", b"%d" % (round_number + 1))
                    found = each.read("/count")
                    assert found is not None
                    assert found.value == b"%d" % (round_number + 1)
                    with pytest.raises(Conflict):
                        each.commit([Put("/count", b"late", found.version - 1)])
                leader.start(wait=False)
                eventually(lambda: sorted(member.mode() for member in ensemble.members) == ["follower", "follower", "leader"], 60)
            found = other.read("/ids/1")
            assert found is not None
            assert found.created == created  # the same session, all the time
