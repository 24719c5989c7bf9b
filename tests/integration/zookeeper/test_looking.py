"""`replog store` at ZooKeeper: what is there is shown, and nothing is made."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.integration.processes.cli import command

from replog.cli import main
from replog.metadata.zookeeper import ZooKeeperStore
from replog.metadata.zookeeper.connection import Connection
from replog.metadata.zookeeper.nodes import READS_MAX
from replog.ports import Create

pytestmark = pytest.mark.zookeeper


def test_it_shows_what_is_there(address: str, store: ZooKeeperStore) -> None:
    store.commit([Create("/a/one", b'{"version":1}', ephemeral=True), Create("/a/two", b"\xff")])
    listed = command("store", "list", "-r", "--store", f"zookeeper://{address}", "--format", "json")
    assert listed.returncode == 1, "one value cannot be decoded"
    nodes = {one["path"]: one for one in json.loads(listed.stdout)}
    assert sorted(nodes) == ["/a", "/a/one", "/a/two"]
    assert (nodes["/a"]["children"], nodes["/a/one"]["ephemeral"], nodes["/a/one"]["value"]) == (2, True, {"version": 1})
    assert nodes["/a/two"]["value_base64"] == "/w=="
    got = command("store", "get", "/a/one", "--store", f"zookeeper://{address}")
    assert (got.returncode, got.stdout.splitlines()[0]) == (0, b"/a/one: version 0, 13 bytes, 0 nodes below, ephemeral")


def test_many_nodes_are_asked_for_together(address: str, store: ZooKeeperStore, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [f"/b/{number:03d}" for number in range(300)] + [f"/b/{number:03d}/below" for number in range(100)]
    store.commit([Create(path, b'{"version":1}') for path in made])
    questions: list[int] = []
    read = Connection.read

    def counted(connection: Connection, calls: Sequence[Callable[[Any], Any]], **given: Any) -> list[Any]:
        questions.append(len(calls))
        return read(connection, calls, **given)

    monkeypatch.setattr(Connection, "read", counted)
    stdout, stderr = io.BytesIO(), io.StringIO()
    words = ["store", "list", "-r", "--store", f"zookeeper://{address}", "--format", "json"]
    assert main(words, stdin=io.BytesIO(), stdout=stdout, stderr=stderr) == 0, stderr.getvalue()
    nodes = {one["path"]: one["children"] for one in json.loads(stdout.getvalue())}
    assert nodes == {"/b": 300} | {path: int(f"{path}/below" in made) for path in made}
    assert len(questions) < 20, "round trips by the depth of the tree, not by its nodes"
    assert max(questions) <= READS_MAX + 1


def test_a_node_that_may_not_be_looked_into_hides_no_other(
    address: str, store: ZooKeeperStore, open_store: Callable[..., ZooKeeperStore]
) -> None:
    store.commit([Create("/c/open/x", b'{"version":1}'), Create("/c/wide", b'{"version":1}')])
    other = open_store(auth=("digest", "anna", "secret"))
    other.commit([Create("/c/closed", b'{"version":1}')])
    listed = command("store", "list", "/c", "-r", "--store", f"zookeeper://{address}", "--format", "json")
    assert listed.returncode == 1
    nodes = {one["path"]: one for one in json.loads(listed.stdout)}
    assert sorted(nodes) == ["/c/closed", "/c/open", "/c/open/x", "/c/wide"]
    assert nodes["/c/open"]["children"] == 1
    assert "problem" in nodes["/c/closed"]


def test_a_chroot_that_is_not_there_is_not_made(address: str, store: ZooKeeperStore) -> None:
    url = f"zookeeper://{address}-missing"
    listed = command("store", "list", "--store", url)
    assert (listed.returncode, listed.stdout, listed.stderr) == (0, b"", b"there is nothing below /\n")
    missing = command("store", "get", "/a", "--store", url)
    assert (missing.returncode, missing.stderr) == (2, b"replog: there is no node /a; below / are none\n")
    server, _, name = address.partition("/")
    with ZooKeeperStore(server, session_ms=4_000) as root:
        assert name in root.list("/")
        assert f"{name}-missing" not in root.list("/")
