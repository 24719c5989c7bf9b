"""Stopping a broker of a cluster moves what it leads first; draining one does so and leaves it running (P-93)."""

from __future__ import annotations

import logging
import sqlite3
import threading
from pathlib import Path

import pytest

import replog
from replog.errors import BrokerIdNotRegistered
from replog.metadata.file import FileStore
from replog.runtime.folder import ClusterFolder
from replog.testing.eventually import eventually


def test_what_a_broker_leads_is_moved_before_it_stops(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="replog")
    with replog.Cluster(brokers=3) as cluster:
        cluster.create_topic("t", assignment={p: [2, 1, 3] for p in range(20)}, min_isr=2)
        for partition in range(20):
            cluster.append("t", partition, ["before"])
        caplog.clear()
        cluster.stop_broker(2)
        said = [record.message.split()[0] for record in caplog.records]
        assert said.index("broker_draining") < said.index("shutdown_granted") < said.index("broker_gone")
        assert "'remaining': 0" in next(r.message for r in caplog.records if r.message.startswith("shutdown_granted"))
        for partition in cluster.describe("t").partitions:
            assert (partition.leader, partition.leader_epoch, partition.isr) == (1, 1, (1, 3))  # one move, none at its end
            cluster.append("t", partition.partition, ["after"])
        cluster.start_broker(2)
        cluster.wait_until_in_sync()
        assert cluster.describe_cluster().brokers[1].state == "serving"
        assert [r.text() for r in cluster.read("t", partitions=[7])] == ["before", "after"]


def test_writers_do_not_notice_that_brokers_are_stopped_in_turn() -> None:
    with replog.Cluster(brokers=4) as cluster:
        cluster.create_topic("t", partitions=4, replication_factor=3, min_isr=2)
        stopped, sent, failures = threading.Event(), [0], []

        def write() -> None:
            try:
                while not stopped.is_set():
                    for partition in range(4):
                        cluster.append("t", partition, [f"{sent[0]}"], timeout_s=10)
                    sent[0] += 1
            except Exception as failure:
                failures.append(failure)

        writer = threading.Thread(target=write)
        writer.start()
        for broker in (1, 2, 3, 4):
            cluster.stop_broker(broker)
            cluster.start_broker(broker)
            cluster.wait_until_in_sync()
            before = sent[0]
            eventually(lambda before=before: sent[0] > before + 1 or failures)
        stopped.set()
        writer.join()
        assert failures == []
        for partition in range(4):
            assert [int(r.text()) for r in cluster.read("t", partitions=[partition])] == list(range(sent[0]))


def test_the_only_broker_can_be_stopped() -> None:
    with replog.Cluster(brokers=1) as cluster:
        cluster.create_topic("t")
        cluster.append("t", 0, ["x"])
        cluster.stop_broker(1)
        cluster.start_broker(1)
        assert [r.text() for r in cluster.read("t")] == ["x"]


def test_without_a_wait_a_broker_just_stops() -> None:
    with replog.Cluster(brokers=3, config={"shutdown_timeout_ms": 0}) as cluster:
        cluster.create_topic("t", assignment={0: [2, 1, 3]}, min_isr=2)
        cluster.stop_broker(2)
        assert cluster.leader("t", 0) == 1


def test_drain_and_back() -> None:
    with replog.Cluster(brokers=3) as cluster:
        cluster.create_topic("t", assignment={0: [2, 1, 3], 1: [2, 3, 1]}, min_isr=2)
        assert cluster.drain_broker(2) == []
        assert {p.leader for p in cluster.describe("t").partitions} == {1, 3}
        assert [b.state for b in cluster.describe_cluster().brokers] == ["serving", "draining", "serving"]
        cluster.append("t", 0, ["x"])
        cluster.create_topic("u", replication_factor=2)
        assert cluster.describe("u").partitions[0].replicas in ((1, 3), (3, 1))
        cluster.stop_broker(2)
        cluster.start_broker(2)
        cluster.wait_until_in_sync()
        results = cluster.elect_leaders()
        assert results == {("t", 0): None, ("t", 1): None}
        assert {p.leader for p in cluster.describe("t").partitions} == {2}
        with pytest.raises(BrokerIdNotRegistered, match="registered are 1, 2, 3"):
            cluster.drain_broker(9)


def test_what_nobody_else_can_lead_is_named() -> None:
    with replog.Cluster(brokers=2) as cluster:
        cluster.create_topic("t", assignment={0: [2], 1: [1]})
        assert cluster.drain_broker(2) == [("t", 0)]
        assert cluster.leader("t", 0) == 2
        cluster.append("t", 0, ["x"])


@pytest.mark.parametrize("how", ["kill_broker", "stop_broker"])
def test_a_controller_that_ends_while_the_store_is_held_is_replaced(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its session cannot be ended then, and does not run out by itself."""
    monkeypatch.setattr(ClusterFolder, "open_store", lambda self: FileStore(tmp_path / "metadata.db", private=True, session_ms=300))
    with replog.Cluster(tmp_path, brokers=3, config={"shutdown_timeout_ms": 0}) as cluster:
        cluster.create_topic("t", replication_factor=3)
        gone = cluster.controller_id
        assert gone is not None
        other = sqlite3.connect(tmp_path / "metadata.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        getattr(cluster, how)(gone)
        other.close()

        def replaced() -> bool:
            cluster.leader("t", 0)  # whatever calls runs the brokers
            return cluster.controller_id not in (None, gone)

        eventually(replaced)
        cluster.append("t", 0, ["x"], timeout_s=30)
        cluster.start_broker(gone)
        cluster.wait_until_in_sync()
