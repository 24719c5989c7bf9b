"""Topics that exist because somebody writes to them or reads from them (`auto_create_topics`), in an embedded cluster."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from tests.threads import in_thread

import replog
from replog.errors import InvalidConfig, InvalidReplicationFactor, PolicyViolation, ReplogError, UnknownTopicOrPartition
from replog.testing.eventually import eventually

ON = {"auto_create_topics": True}


def test_it_is_off_by_default(data: Path | None) -> None:
    with replog.Cluster(data) as cluster:
        for seek in (lambda: cluster.append("t", 0, ["x"]), lambda: cluster.partitions_for("t"), lambda: list(cluster.read("t"))):
            with pytest.raises(UnknownTopicOrPartition, match="there are no topics yet"):
                seek()
        with cluster.producer() as producer, pytest.raises(UnknownTopicOrPartition):
            producer.send("t", "x")
        assert cluster.topics() == []


def test_a_topic_is_made_with_the_defaults_of_the_cluster_and_stays(data: Path | None) -> None:
    config = {**ON, "auto_create_partitions": 4, "auto_create_replication_factor": 2, "auto_create_min_isr": 2}
    with replog.Cluster(data, brokers=3, config=config) as cluster:
        with cluster.producer() as producer:
            for n in range(20):
                producer.send("t", f"{n}", key=f"k{n}")
        described = cluster.describe("t")
        assert [len(p.replicas) for p in described.partitions] == [2] * 4
        assert described.config == {"min_isr": 2}
        assert sorted(int(r.text()) for r in cluster.read("t")) == list(range(20))
        assert list(cluster.read("read-only")) == []
        assert cluster.topics() == ["read-only", "t"]
    if data is not None:
        with replog.Cluster(data, brokers=3) as cluster:
            assert len(list(cluster.read("t"))) == 20


def test_threads_that_seek_one_topic_at_once_get_one_topic() -> None:
    with replog.Cluster(brokers=3, config=ON) as cluster:
        begin = threading.Barrier(8)

        def write(n: int) -> None:
            begin.wait()
            with cluster.producer() as producer:
                producer.send("t", f"{n}").result(timeout_s=30)

        threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert cluster.topics() == ["t"]
        assert sorted(int(r.text()) for r in cluster.read("t")) == list(range(8))


@pytest.mark.parametrize(
    ("config", "error", "said"),
    [
        ({"auto_create_topics_max": 1}, PolicyViolation, "there are 1 topics; the limit is 1"),
        ({"auto_create_replication_factor": 4}, InvalidReplicationFactor, "4; allowed are 1 to 3"),
        ({"auto_create_min_isr": 4}, InvalidConfig, "min_isr is 4"),
    ],
)
def test_a_topic_that_cannot_be_made_is_refused_with_the_reason(config: dict[str, Any], error: type[ReplogError], said: str) -> None:
    with replog.Cluster(brokers=3, config={**ON, **config}) as cluster:
        cluster.create_topic("first")
        with pytest.raises(error, match=said):
            cluster.append("t", 0, ["x"])
        with cluster.producer() as producer, pytest.raises(error, match=said):
            producer.send("t", "x")
        assert cluster.topics() == ["first"]


def test_without_a_controller_it_is_waited_for() -> None:
    with replog.Cluster(brokers=3, config=ON) as cluster:
        controller = cluster.controller_id
        assert controller is not None
        cluster.kill_broker(controller)
        assert cluster.append("t", 0, ["x"], timeout_s=60).base_offset == 0


@pytest.mark.parametrize("config", [{}, ON], ids=["off", "on"])
def test_what_becomes_of_a_topic_that_is_deleted_under_a_writer(config: dict[str, Any]) -> None:
    """What was under way is told to its sender; only what is sent after that seeks the topic, and makes another."""
    with replog.Cluster(brokers=3, config=config) as cluster:
        cluster.create_topic("t")
        with cluster.producer(linger_ms=60_000) as producer:
            producer.send("t", "acknowledged")
            producer.flush()
            old = cluster.describe("t").topic_id
            held = producer.send("t", "under way")
            cluster.delete_topic("t")
            with pytest.raises(UnknownTopicOrPartition):
                held.result(timeout_s=30)
            assert cluster.topics() == []
            if not config:
                with pytest.raises(UnknownTopicOrPartition):
                    producer.send("t", "later")
                return
            producer.send("t", "later")
        assert cluster.describe("t").topic_id != old
        assert [r.text() for r in cluster.read("t")] == ["later"]


def test_a_writer_and_a_deleter_at_once_end(tmp_path: Path) -> None:
    """Neither goes round in circles: each append is stored, or is an error; what is acknowledged last is there."""
    with replog.Cluster(tmp_path / "data", brokers=3, config=ON) as cluster:
        outcomes: list[str] = []
        done = threading.Event()

        def write() -> None:
            while not done.is_set():
                try:
                    cluster.append("t", 0, ["x"])
                    outcomes.append("stored")
                except ReplogError as error:
                    outcomes.append(type(error).__name__)

        writing, raised = in_thread(write)
        for _ in range(5):
            seen = len(outcomes)
            eventually(lambda: len(outcomes) > seen + 2 and outcomes[-1] == "stored")  # noqa: B023
            cluster.delete_topic("t")
        done.set()
        writing.join()
        assert raised == [None]
        assert set(outcomes) <= {"stored", "UnknownTopicOrPartition", "UnknownTopicId"}
        cluster.append("t", 0, ["last"])
        assert [r.text() for r in cluster.read("t")][-1] == "last"
