"""What a tool that knows nothing but ZooKeeper asks for by writing a path."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError
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
        ("/admin/partitions_reassigned/t/0", b"[]", "a JSON object is needed"),
        ("/admin/partitions_reassigned/t/0", b'{"version":1,"replicas":[1,9]}', "broker 9"),
        ("/admin/partitions_reassigned/t/0", b'{"version":1,"replicas":null}', "not being reassigned"),
        ("/admin/partitions_reassigned/none/0", b'{"version":1,"replicas":[1]}', "unknown topic 'none'"),
        ("/admin/elect/t/0", b'{"version":1,"unclean":"no"}', "unclean"),
        ("/admin/elect/t/7", b'{"version":1,"unclean":false}', "t"),
        ("/admin/elect/t/0", b"", "not JSON"),
        ("/admin/delete_topics/t", b"{", "not JSON"),
        ("/admin/delete_topics/t", b'{"version":1,"topic_id":"00"}', "topic_id"),
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


def move(tool: KazooClient, place: str, replicas: list[int] | None) -> None:
    """Wish for a move, over an earlier wish if there is one."""
    path, value = f"/admin/partitions_reassigned/{place}", json.dumps({"version": 1, "replicas": replicas}).encode()
    try:
        tool.create(path, value, makepath=True)
    except NodeExistsError:
        tool.set(path, value)


def placed(tool: KazooClient, number: int = 0) -> dict[str, Any]:
    """What the store has of a partition: where it is, where it goes."""
    found: dict[str, Any] = json.loads(tool.get("/brokers/topics/t")[0])["partitions"][str(number)]
    return {"adding": [], "removing": [], **found}


def test_partitions_are_moved_overridden_and_called_back_by_a_path(open_store: OpenStore, tool: KazooClient) -> None:
    # No watch tells of a node that is written over: it is found when the controller looks at everything again.
    with replog.Cluster(brokers=5, store=open_store(), config={"reconcile_ms": 500}) as cluster:
        cluster.create_topic("t", assignment={0: [1, 2], 1: [2, 1]}, min_isr=1)
        cluster.append("t", 0, [f"{n}" for n in range(100)])
        move(tool, "t/0", [3, 1, 2])  # grows
        eventually(lambda: set(cluster.describe("t").partitions[0].isr) == {1, 2, 3})
        eventually(lambda: not tool.exists("/admin/partitions_reassigned/t/0"))
        assert placed(tool)["replicas"] == [3, 1, 2]

        cluster.stop_broker(5)
        move(tool, "t/0", [5, 4])  # cannot end, but begins
        eventually(lambda: placed(tool)["adding"] == [5, 4])
        move(tool, "t/0", [4, 3])  # instead
        eventually(lambda: placed(tool)["replicas"] == [4, 3])
        assert (placed(tool)["adding"], placed(tool)["removing"]) == ([], [])

        move(tool, "t/1", [5])
        eventually(lambda: placed(tool, 1)["adding"] == [5])
        move(tool, "t/1", None)  # called back
        eventually(lambda: placed(tool, 1)["replicas"] == [2, 1])

        eventually(lambda: [tool.exists(f"/admin/partitions_reassigned/t/{n}") for n in (0, 1)] == [None, None])
        assert not tool.exists("/admin/rejected/admin/partitions_reassigned")
        assert [r.text() for r in cluster.read("t", partitions=[0])] == [f"{n}" for n in range(100)]
        assert cluster.reassignments() == []


def test_a_leader_is_elected_by_a_path(open_store: OpenStore, tool: KazooClient) -> None:
    with replog.Cluster(brokers=3, store=open_store(), config={"leader_imbalance_check_ms": 0}) as cluster:
        cluster.create_topic("t", assignment={0: [1, 2, 3], 1: [3, 1, 2]}, min_isr=1)
        cluster.stop_broker(1)
        cluster.start_broker(1)
        cluster.wait_until_in_sync()
        epoch = cluster.describe("t").partitions[0].leader_epoch
        assert cluster.leader("t", 0) != 1
        write(tool, "/admin/elect/t/0", b'{"version":1,"unclean":false}')
        eventually(lambda: cluster.leader("t", 0) == 1)
        assert cluster.describe("t").partitions[0].leader_epoch == epoch + 1
        eventually(lambda: not tool.exists("/admin/elect/t/0"))


def test_a_topic_is_deleted_by_a_path_and_only_the_one_that_was_meant(open_store: OpenStore, tool: KazooClient) -> None:
    with replog.Cluster(brokers=3, store=open_store()) as cluster:
        cluster.create_topic("t", partitions=3)
        first = cluster.describe("t").topic_id
        write(tool, "/admin/delete_topics/t", json.dumps({"version": 1, "topic_id": first}).encode())
        eventually(lambda: cluster.topics() == [])
        eventually(lambda: not tool.exists("/brokers/topics/t"))
        assert not tool.exists("/admin/delete_topics/t")
        second = cluster.create_topic("t")
        write(tool, "/admin/delete_topics/t", json.dumps({"version": 1, "topic_id": first}).encode())
        eventually(lambda: not tool.exists("/admin/delete_topics/t"))
        assert cluster.describe("t").topic_id == second
        eventually(lambda: not tool.exists("/admin/removed") or tool.get_children("/admin/removed") == [])


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
