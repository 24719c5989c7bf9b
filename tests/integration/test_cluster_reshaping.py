"""Topics that change while they are used: more partitions, fewer, another configuration; on real brokers with files."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import replog
from replog.errors import InvalidConfig, InvalidPartitions, UnknownTopicId, UnknownTopicOrPartition, UsageError
from replog.testing.eventually import eventually


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[replog.Cluster]:
    with replog.Cluster(tmp_path / "data", brokers=3, config={"retention_check_ms": 50, "deletion_delay_ms": 0}) as cluster:
        yield cluster


def values(records: list[replog.Record]) -> list[str]:
    return [bytes(record.value).decode() for record in records]


def poll_on(consumer: replog.Consumer) -> None:
    """Until it raises."""
    while True:
        consumer.poll(timeout_s=1)


def test_more_partitions_are_used_by_those_who_follow_the_topic(cluster: replog.Cluster) -> None:
    cluster.create_topic("t", partitions=1)
    with cluster.consumer("t", start="earliest") as consumer, cluster.producer() as producer:
        producer.send("t", "a", partition=0).result(10)
        assert values(consumer.poll(timeout_s=10)) == ["a"]
        cluster.add_partitions("t", 3)
        assert cluster.partitions_for("t") == [0, 1, 2]
        producer.send("t", "b", partition=2).result(10)
        assert values(consumer.poll(timeout_s=10)) == ["b"]
        cluster.add_partitions("t", 3)
        with pytest.raises(InvalidPartitions, match="total is 2; topic 't' has 3"):
            cluster.add_partitions("t", 2)
        cluster.add_partitions("t", 4, assignment={3: [3, 1, 2]})
        assert cluster.describe("t").partitions[3].replicas == (3, 1, 2)


def test_a_removed_partition_is_gone_for_everybody_and_its_number_means_another_log(cluster: replog.Cluster) -> None:
    cluster.create_topic("t", partitions=3)
    cluster.append("t", 2, ["old"] * 5)
    consumer, producer, pinned = cluster.consumer("t", start="earliest"), cluster.producer(), cluster.consumer("t", partitions=[2])
    with consumer, producer, pinned:
        assert len(consumer.poll(timeout_s=10)) == 5
        assert pinned.position("t", 2) == 5
        assert producer.send("t", "x", partition=2).result(10).offset == 5
        cluster.remove_partitions("t", [2])
        assert cluster.partitions_for("t") == [0, 1]
        with pytest.raises(UnknownTopicOrPartition, match="'t' has no partition 2; it has 0, 1"):
            poll_on(consumer)
        cluster.append("t", 1, ["new"])
        assert values(consumer.poll(timeout_s=10)) == ["new"]  # it goes on with those that there are
        with pytest.raises(UnknownTopicOrPartition, match="no partition 2"):
            producer.send("t", "y", partition=2).result(10)
        with pytest.raises(UnknownTopicOrPartition, match="no partition 2"):
            cluster.append("t", 2, ["y"])
        for _ in range(2):
            with pytest.raises(UnknownTopicOrPartition, match="no partition 2"):
                poll_on(pinned)
        with pytest.raises(UnknownTopicOrPartition, match="no partition 2; it has 2"):
            cluster.remove_partitions("t", [2])
        cluster.add_partitions("t", 3)
        assert cluster.append("t", 2, ["again"]).base_offset == 0
        assert values(cluster.fetch("t", 2, 0)) == ["again"]
        assert values(consumer.poll(timeout_s=10)) == ["again"]
        with pytest.raises(UnknownTopicId, match="the partition removed and added again"):
            poll_on(pinned)


def test_what_cannot_be_removed(cluster: replog.Cluster) -> None:
    cluster.create_topic("t", partitions=2)
    with pytest.raises(InvalidPartitions, match="the last one goes only with its topic"):
        cluster.remove_partitions("t", [0, 1])
    with pytest.raises(InvalidPartitions, match="that is 1 here, not 0"):
        cluster.remove_partitions("t", [0])
    with pytest.raises(UsageError, match="partitions is empty"):
        cluster.remove_partitions("t", [])
    assert cluster.partitions_for("t") == [0, 1]


def test_p_80b_a_broker_that_was_down_never_serves_the_old_records(cluster: replog.Cluster) -> None:
    cluster.create_topic("t", assignment={0: [1, 2], 1: [3, 1]}, min_isr=1)
    cluster.append("t", 1, ["old"] * 100)
    cluster.kill_broker(3)
    cluster.remove_partitions("t", [1])
    cluster.start_broker(3)
    cluster.add_partitions("t", 2, assignment={1: [3, 1]})
    assert cluster.fetch("t", 1, 0) == []
    assert cluster.append("t", 1, ["new"]).base_offset == 0
    cluster.kill_broker(1)
    assert values(cluster.fetch("t", 1, 0)) == ["new"]


def test_settings_count_at_once(cluster: replog.Cluster) -> None:
    cluster.create_topic("t", min_isr=2)
    assert cluster.alter_topic("t", segment_bytes=2_000, retention_bytes=3_000) == {
        "min_isr": 2, "segment_bytes": 2_000, "retention_bytes": 3_000,
    }  # fmt: skip
    assert cluster.describe("t").config["segment_bytes"] == 2_000
    chance = random.Random(7)
    for _ in range(40):
        cluster.append("t", 0, [chance.randbytes(500)])  # which cannot be compressed
    eventually(lambda: (cluster.offset("t", 0, "earliest") or 0) > 30)  # three to a segment, about seven are kept
    cluster.alter_topic("t", retention_bytes=None, retention_ms=1)
    eventually(lambda: cluster.offset("t", 0, "earliest") == 40)


def test_flush_ack_counts_at_once(cluster: replog.Cluster) -> None:
    cluster.create_topic("t", min_isr=2)
    cluster.append("t", 0, ["a"])
    assert cluster.alter_topic("t", flush="ack")["flush"] == "ack"
    assert [cluster.append("t", 0, [text]).base_offset for text in "bcd"] == [1, 2, 3]
    for broker in (1, 2, 3):
        cluster.kill_broker(broker)
        cluster.start_broker(broker)
    assert values(cluster.fetch("t", 0, 0)) == list("abcd")
    cluster.alter_topic("t", flush=None)
    assert cluster.append("t", 0, ["e"]).base_offset == 4


def test_min_isr_counts_once_the_answer_is_there(cluster: replog.Cluster) -> None:
    cluster.create_topic("t", min_isr=2)
    for broker in (2, 3):
        cluster.kill_broker(broker)
    with pytest.raises(replog.errors.NotEnoughReplicas):
        cluster.append("t", 0, ["x"], timeout_s=1)
    cluster.alter_topic("t", min_isr=1)
    assert cluster.append("t", 0, ["x"]).base_offset == 0
    with pytest.raises(InvalidConfig, match="min_isr is 2, and partition 0 of 't' has 1 in sync"):
        cluster.alter_topic("t", min_isr=2)


def test_bad_settings_are_refused_before_anything_is_sent(cluster: replog.Cluster) -> None:
    cluster.create_topic("t")
    with pytest.raises(UsageError, match="did you mean 'retention_ms'"):
        cluster.alter_topic("t", retention_m=1)
    with pytest.raises(UsageError, match="'never'"):
        cluster.alter_topic("t", config={"flush": "never"})
    with pytest.raises(UsageError, match="nothing to change"):
        cluster.alter_topic("t")
    with pytest.raises(UnknownTopicOrPartition, match="unknown topic 'x'"):
        cluster.alter_topic("x", min_isr=1)


def test_a_creation_can_be_tried(cluster: replog.Cluster) -> None:
    assert cluster.create_topic("t", partitions=3, validate_only=True) == ""
    assert cluster.topics() == []
    with pytest.raises(replog.errors.InvalidReplicationFactor):
        cluster.create_topic("t", replication_factor=9, validate_only=True)
    with pytest.raises(InvalidPartitions, match=r"takes \d+ bytes in the metadata store; the limit is 600000"):
        cluster.create_topic("t", partitions=20_000, validate_only=True)
