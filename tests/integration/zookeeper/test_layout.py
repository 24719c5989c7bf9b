"""What other clients of ZooKeeper see: the chroot, plain values, null parents, access lists; and the limits of a server."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.protocol.serialization import Transaction
from tests.integration.zookeeper.conftest import OpenStore
from tests.integration.zookeeper.faults import delivered
from tests.integration.zookeeper_server import ZooKeeperServer

from replog.errors import UsageError
from replog.metadata import layout
from replog.metadata.zookeeper import ZooKeeperStore
from replog.metadata.zookeeper.nodes import request_bytes
from replog.metadata.zookeeper.plan import Planner
from replog.metadata.zookeeper.store import REQUEST_BYTES_MAX
from replog.ports import Check, Create, Delete, Put, Versioned

pytestmark = pytest.mark.zookeeper

AUTH = ("digest", "replog", "s3cr3t-passw0rd")


@pytest.fixture
def plain(server: ZooKeeperServer) -> Iterator[KazooClient]:
    """A client that knows nothing of us."""
    client = KazooClient(server.address)
    client.start()
    yield client
    client.stop()
    client.close()


def test_any_client_reads_what_is_stored(open_store: OpenStore, address: str, plain: KazooClient) -> None:
    store = open_store()
    chroot = address.partition("/")[1] + address.partition("/")[2]
    registration = layout.encode_registration(layout.Registration(("tcp://127.0.0.1:7101",), rack="a"))
    created, _ = store.commit([Create(layout.broker_path(1), registration, ephemeral=True), Create("/brokers/topics/a", b"")])
    value, stat = plain.get(f"{chroot}/brokers/ids/1")
    assert (stat.version, stat.czxid) == (0, created)
    assert json.loads(value)["endpoints"] == ["tcp://127.0.0.1:7101"]
    assert f"0x{stat.ephemeralOwner:x}" == store.session_id
    assert plain.get(f"{chroot}/brokers")[0] is None  # implied
    assert plain.get(f"{chroot}/brokers/topics/a")[0] == b""  # asked for
    store.commit([Delete("/brokers/topics/a")])
    assert plain.get_children(f"{chroot}/brokers") == ["ids"]


def test_we_read_what_any_client_stored(store: ZooKeeperStore, address: str, plain: KazooClient) -> None:
    chroot = "/" + address.partition("/")[2]
    plain.create(f"{chroot}/admin/delete_topics/a", b"{}", makepath=True)
    found = store.read("/admin/delete_topics/a")
    assert found is not None
    assert found.value == b"{}"
    store.commit([Delete("/admin/delete_topics/a", found.version)])
    assert store.list("/admin") == ["delete_topics"]  # that client made it with a value: it is not ours to remove


def test_a_chroot_of_several_levels_is_made_and_hides_the_rest(open_store: OpenStore, address: str) -> None:
    deep = open_store(f"zookeeper://{address}/one/two")
    deep.commit([Create("/a", b"deep")])
    above = open_store()
    assert above.list("/") == ["one"]
    assert above.read("/one/two/a") == deep.read("/a")
    again = open_store(f"{address}/one/two")
    assert again.list("/") == ["a"]
    assert f"{address}/one/two" in repr(again)
    with again.session() as another:
        assert another.list("/") == ["a"]
    fired: list[str] = []
    deep.watch("/", fired.append)
    deep.commit([Create("/b", b"")])
    delivered(deep)
    assert fired == ["/"]


def test_without_a_chroot_the_nodes_of_zookeeper_are_not_ours(server: ZooKeeperServer, open_store: OpenStore) -> None:
    store = open_store(server.address)
    assert "zookeeper" not in store.list("/")
    for path in ("/zookeeper", "/zookeeper/config"):
        for call in (lambda path=path: store.read(path), lambda path=path: store.commit([Put(path, b"")])):  # type: ignore[misc]
            with pytest.raises(UsageError, match="give the store a chroot"):
                call()
    (created,) = store.commit([Create("/zookeeper-s-friend", b"")])
    assert store.read("/zookeeper-s-friend") == Versioned(b"", 0, created)
    store.commit([Delete("/zookeeper-s-friend")])


@pytest.mark.parametrize("character", ["\ue000", "\uf8ff", "\ufff0", "\U0001f40d"])
def test_a_character_that_zookeeper_refuses(store: ZooKeeperStore, character: str) -> None:
    with pytest.raises(UsageError, match="character that ZooKeeper refuses"):
        store.commit_each([[Create("/good", b"")], [Create(f"/a{character}", b"")]])
    with pytest.raises(UsageError, match="character that ZooKeeper refuses"):
        store.read(f"/a{character}")
    assert store.list("/") == []
    store.commit([Create("/\uf900\uffef", b"")])  # the nearest that are allowed


def test_with_credentials_nobody_else_has_access(
    open_store: OpenStore, address: str, server: ZooKeeperServer, plain: KazooClient
) -> None:
    chroot = "/" + address.partition("/")[2]
    store = open_store(auth=AUTH)
    store.commit([Create("/ids/1", b"mine", ephemeral=True), Create("/a/b", b"mine")])
    for path in ("", "/ids", "/ids/1", "/a", "/a/b"):
        with pytest.raises(NoAuthError):
            plain.get(chroot + path)
        with pytest.raises(NoAuthError):
            plain.set(chroot + path, b"theirs")
    for credentials in (None, ("digest", "replog", "guessed")):
        with pytest.raises(UsageError, match="credentials"):
            open_store(auth=credentials)
        stranger = open_store(server.address, auth=credentials)
        for call in (
            lambda stranger=stranger: stranger.read(f"{chroot}/a/b"),
            lambda stranger=stranger: stranger.list(chroot),
            lambda stranger=stranger: stranger.watch(f"{chroot}/a/b", print),
            lambda stranger=stranger: stranger.commit([Put(f"{chroot}/a/b", b"theirs")]),
            lambda stranger=stranger: stranger.commit([Create(f"{chroot}/c", b"theirs")]),
        ):
            with pytest.raises(UsageError, match="credentials"):
                call()
    with open_store(auth=AUTH).session() as friend:
        assert friend.commit([Put("/a/b", b"ours", 0)]) == [1]


def test_the_password_is_shown_nowhere(open_store: OpenStore, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(1)
    store = open_store(auth=AUTH)
    store.commit([Create("/a", b"")])
    assert caplog.records  # kazoo did log something
    shown = [repr(store), str(store), *(record.getMessage() for record in caplog.records)]
    assert not [text for text in shown if AUTH[2] in text]
    assert logging.getLogger("replog.metadata.zookeeper").level == logging.NOTSET


def test_a_transaction_as_large_as_the_server_takes_and_one_byte_more(store: ZooKeeperStore, address: str) -> None:
    session = store.session_id
    with pytest.raises(UsageError, match=r"transaction of \d+ bytes, with /a first; ZooKeeper takes 1048575") as caught:
        store.commit([Create("/a", b"x" * REQUEST_BYTES_MAX)])
    excess = int(str(caught.value).split()[3]) - REQUEST_BYTES_MAX
    good, refused = store.commit_each([[Create("/b", b"")], [Create("/a", b"x" * (REQUEST_BYTES_MAX - excess + 1))]])
    assert isinstance(good, list)
    assert "transaction of 1048576 bytes" in str(refused)
    assert store.list("/") == ["b"]
    store.commit([Create("/a", b"x" * (REQUEST_BYTES_MAX - excess))])
    found = store.read("/a")
    assert found is not None
    assert len(found.value) == REQUEST_BYTES_MAX - excess
    assert store.session_id == session


def test_what_follows_a_transaction_that_is_too_large_does_not_count_on_its_parents(store: ZooKeeperStore) -> None:
    refused, *good = store.commit_each([
        [Create("/p/large", b"x" * REQUEST_BYTES_MAX)], [Create("/p/a", b"")], [Create("/q", b"")], [Create("/p/b", b"")]
    ])
    assert [type(result) for result in (refused, *good)] == [UsageError, list, list, list]
    assert (store.list("/"), store.list("/p")) == (["p", "q"], ["a", "b"])


@pytest.mark.parametrize("auth", [None, AUTH])
def test_sizes_are_those_on_the_wire(open_store: OpenStore, auth: tuple[str, str, str] | None) -> None:
    store = open_store(auth=auth)
    nodes = store._backend
    _, requests = nodes._planned(  # type: ignore[attr-defined]
        Planner({}), [Create("/ü/b", b"xyz", ephemeral=True), Check("/c", -1), Check("/d", 3), Put("/ü", b"12", 1), Delete("/e")]
    )
    assert request_bytes(requests) == 8 + len(Transaction(requests).serialize())
