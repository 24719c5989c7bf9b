"""What a tool that knows nothing but ZooKeeper asks for by writing a path."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient
from tests.integration.zookeeper.conftest import OpenStore
from tests.integration.zookeeper_server import ZooKeeperServer

import replog
from replog.config import BrokerConfig
from replog.metadata import layout
from replog.model import Assignment
from replog.ports import Create, Put
from replog.testing.eventually import eventually

pytestmark = pytest.mark.zookeeper


@pytest.fixture
def tool(address: str, server: ZooKeeperServer) -> Iterator[KazooClient]:
    client = KazooClient(server.address)
    client.start()
    client.chroot = address.removeprefix(server.address)
    yield client
    client.stop()
    client.close()


def write(tool: KazooClient, path: str, value: bytes) -> None:
    tool.create(path, value, makepath=True)


def test_partitions_are_added_and_removed_by_a_path(open_store: OpenStore, tool: KazooClient) -> None:
    with replog.Cluster(brokers=3, store=open_store()) as cluster:
        cluster.create_topic("t", partitions=1, min_isr=2)
        for number, replicas in ((1, None), (2, [3, 1, 2])):
            write(tool, f"/admin/partitions_add/t/{number}", json.dumps({"version": 1, "replicas": replicas}).encode())
        eventually(lambda: cluster.partitions_for("t") == [0, 1, 2])
        eventually(lambda: all(p.leader is not None for p in cluster.describe("t").partitions))
        assert cluster.describe("t").partitions[2].replicas == (3, 1, 2)
        assert cluster.append("t", 2, ["old"]).base_offset == 0
        write(tool, "/admin/partitions_remove/t/2", b'{"version":1,"creation":null}')
        eventually(lambda: cluster.partitions_for("t") == [0, 1])
        cluster.add_partitions("t", 3)
        assert cluster.fetch("t", 2, 0) == []
        entry = json.loads(tool.get("/brokers/topics/t")[0])
        assert (entry["partitions"]["2"]["creation"], entry["next_creation"]) == (1, 1)
        eventually(lambda: [tool.get_children(f"/admin/partitions_{row}/t") for row in ("add", "remove")] == [[], []])


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        ("/admin/partitions_add/t/1", b"{", "not JSON"),
        ("/admin/partitions_add/t/1", b'{"version":1,"replicas":[1,1,2]}', "twice"),
        ("/admin/partitions_add/t/1", b'{"version":1,"replicas":[1,2,9]}', "broker 9"),
        ("/admin/partitions_add/t/x", b"", "'x'"),
        ("/admin/partitions_add/a b/0", b"", "a b"),
        ("/admin/partitions_add/none/0", b'{"version":1,"replicas":null}', "unknown topic 'none'"),
        ("/admin/partitions_remove/t/0", b'{"version":1,"creation":null}', "the last one"),
        ("/admin/partitions_remove/t/0", b"\xff", "not JSON"),
    ],
)
def test_whatever_is_written_the_controller_goes_on(open_store: OpenStore, tool: KazooClient, path: str, value: bytes, why: str) -> None:
    with replog.Cluster(brokers=3, store=open_store()) as cluster:
        cluster.create_topic("t", partitions=1)
        write(tool, path, value)
        eventually(lambda: tool.exists("/admin/rejected" + path))
        assert why in json.loads(tool.get("/admin/rejected" + path)[0])["message"]
        assert not tool.exists(path)
        cluster.add_partitions("t", 2)
        assert cluster.partitions_for("t") == [0, 1]


def test_a_topic_at_its_limit_is_a_node_that_zookeeper_takes(open_store: OpenStore) -> None:
    store, limit = open_store(), BrokerConfig().topic_bytes_max
    assignments = {number: Assignment((1, 2, 3)) for number in range(14_500)}
    value = layout.encode_topic(layout.TopicEntry(b"t" * 16, {"min_isr": 2}, assignments))
    assert 0.99 * limit < len(value) <= limit
    store.commit([Create(layout.topic_path("t"), value)])
    store.commit([Put(layout.topic_path("t"), value, 0)])
    found = store.read(layout.topic_path("t"))
    assert found is not None
    assert found.value == value
