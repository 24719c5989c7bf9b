"""`replog store` at ZooKeeper: what is there is shown, and nothing is made."""

from __future__ import annotations

import json

import pytest
from tests.integration.processes.cli import command

from replog.metadata.zookeeper import ZooKeeperStore
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
