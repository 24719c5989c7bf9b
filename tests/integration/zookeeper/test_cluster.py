"""A cluster whose brokers meet at ZooKeeper."""

from __future__ import annotations

import pytest
from tests.integration.zookeeper.conftest import OpenStore

import replog

pytestmark = pytest.mark.zookeeper


def test_an_embedded_cluster_fails_over_at_zookeeper(open_store: OpenStore) -> None:
    store = open_store()
    with replog.Cluster(brokers=3, store=store) as cluster:
        cluster.create_topic("orders", partitions=1, replication_factor=3, min_isr=2)
        cluster.append("orders", 0, [b"before"])
        assert store.list("/brokers/ids") == ["1", "2", "3"]
        lost = cluster.leader("orders", 0)
        assert lost is not None
        cluster.kill_broker(lost)
        cluster.append("orders", 0, [b"after"])
        assert [record.value for record in cluster.read("orders")] == [b"before", b"after"]
        assert str(lost) not in store.list("/brokers/ids")
    assert store.list("/brokers/ids") == []
