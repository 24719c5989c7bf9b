"""What topics promise in an embedded cluster: acknowledgements, flushing, retention, and names that are used again."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

import replog
from replog.log.files import OS
from replog.testing.disk import FaultyFs
from replog.testing.eventually import eventually


def values(cluster: replog.Cluster, topic: str) -> list[str]:
    """What a reader finds, as text."""
    return [record.text() for record in cluster.read(topic)]


# ------------------------------------------------------------------------------------------------------------- acks and flushing


@pytest.mark.parametrize("flush", ["os", "interval", "ack"])
@pytest.mark.parametrize("acks", [0, 1, "all", -1])
def test_acks_and_flush(data: Path | None, acks: Literal[0, 1, "all", -1], flush: str) -> None:
    with replog.Cluster(data) as cluster:
        cluster.create_topic("t", flush=flush, flush_interval_ms=1)
        receipt = cluster.append("t", 0, ["a", "b"], acks=acks)
        assert (receipt.base_offset, receipt.last_offset) == ((None, None) if acks == 0 else (0, 1))
        with cluster.producer(acks=acks) as producer:
            delivery = producer.send("t", "c")
            assert delivery.result(timeout_s=10).offset == (None if acks == 0 else 2)
        eventually(lambda: values(cluster, "t") == ["a", "b", "c"])


class Flushes:
    """Counts flushes of batches, per broker; `fail` makes them fail on some."""

    def __init__(self) -> None:
        self.disks: dict[int, FaultyFs] = {}

    def fs(self, broker_id: int) -> FaultyFs:
        return self.disks.setdefault(broker_id, FaultyFs(OS))

    def count(self) -> dict[int, int]:
        return {b: sum(1 for what, path in d.operations if what == "fsync" and path.endswith(".log")) for b, d in self.disks.items()}


def test_an_acknowledgement_waits_for_the_disks(tmp_path: Path) -> None:
    """flush="ack": on every copy, one flush for all appends that wait together, of the file alone; flush="os": none."""
    flushes = Flushes()
    with replog.Cluster(tmp_path / "data", _fs_of=flushes.fs) as cluster:
        cluster.create_topic("cached")
        cluster.create_topic("flushed", flush="ack")
        for _ in range(5):
            cluster.append("cached", 0, ["x"])
        assert flushes.count() == {1: 0, 2: 0, 3: 0}
        for _ in range(5):
            cluster.append("flushed", 0, ["x"])
        assert flushes.count() == {1: 5, 2: 5, 3: 5}
        folders = [path for disk in flushes.disks.values() for what, path in disk.operations if what == "fsync_dir" and "/logs/" in path]
        assert len(folders) == 3, "a new name is made durable once, and not with every append"
        leader = cluster.leader("flushed", 0)
        assert leader is not None
        before = flushes.count()
        with cluster.producer(linger_ms=60_000, batch_bytes=1_000) as producer, cluster._embedded.lock:
            producer.send_many("flushed", [b"y" * 90] * 40)
        grown = {b: flushes.count()[b] - before[b] for b in before}
        assert all(1 <= count <= 5 for count in grown.values()), grown
        assert len(values(cluster, "flushed")) == 45


def test_flushing_by_the_clock(tmp_path: Path) -> None:
    flushes = Flushes()
    with replog.Cluster(tmp_path / "data", _fs_of=flushes.fs) as cluster:
        cluster.create_topic("t", flush="interval", flush_interval_ms=1)
        cluster.append("t", 0, ["x"])
        eventually(lambda: (cluster.topics(), min(flushes.count().values()))[1] >= 1)


# -------------------------------------------------------------------------------------------------------------------- retention


def test_retention_by_size(data: Path | None) -> None:
    """Whole segments go from the start, on every copy; what is left can be read, and what is gone says so."""
    with replog.Cluster(data, config={"retention_check_ms": 1}) as cluster:
        cluster.create_topic("t", segment_bytes=1_000, retention_bytes=3_000)
        sent = [f"{i:03}" + "." * 97 for i in range(100)]
        for value in sent:
            cluster.append("t", 0, [value.encode()])

        def start() -> int:
            return cluster.offset("t", 0, "earliest") or 0

        eventually(lambda: start() > 60)
        first = start()
        assert values(cluster, "t") == sent[first:]
        described = cluster.describe("t").partitions[0]
        assert (described.start_offset, described.high_watermark) == (first, 100)
        with pytest.raises(replog.Rejected, match="offset 0"):
            cluster.fetch("t", 0, 0)
        for broker in (1, 2):  # the other copies start there too
            cluster.kill_broker(broker)
            cluster.start_broker(broker)
            cluster.wait_until_in_sync(timeout_s=30)
            assert values(cluster, "t") == sent[start() :]
        if data is not None:
            sizes = [sum(f.stat().st_size for f in (data / f"broker-{b}").rglob("*.log")) for b in (1, 2, 3)]
            assert max(sizes) < 8_000


# ------------------------------------------------------------------------------------------------------- deleted and made again


Act = Callable[[replog.Cluster], Any]


@pytest.mark.parametrize("down", ["nobody", "leader", "follower", "controller"])
@pytest.mark.parametrize("how", ["kill", "stop"])
@pytest.mark.parametrize("created", ["while it is down", "when it is back"])
def test_a_name_used_again(data: Path | None, down: str, how: str, created: str) -> None:
    """P-80: no record of the old topic is ever read from the new one, whoever was down while it was deleted."""
    with replog.Cluster(data, config={"deletion_delay_ms": 0, "checkpoint_interval_ms": 1}) as cluster:
        old = cluster.create_topic("t", assignment={0: [1, 2, 3]}, min_isr=1)
        cluster.append("t", 0, [f"old {i}" for i in range(10)])
        who = {"nobody": None, "leader": 1, "follower": 3, "controller": cluster.controller_id}[down]
        if who is not None:
            (cluster.kill_broker if how == "kill" else cluster.stop_broker)(who)
        cluster.delete_topic("t")
        assert cluster.topics() == []
        with pytest.raises(replog.Rejected):
            cluster.append("t", 0, ["nowhere"])
        if who is not None and created == "when it is back":
            cluster.start_broker(who)
        order = [b for b in (who, 1, 2, 3) if b in cluster.brokers]  # the one that was away leads, if it can
        new = cluster.create_topic("t", assignment={0: [*dict.fromkeys(order)]}, min_isr=1)
        assert new != old
        assert values(cluster, "t") == []
        assert cluster.append("t", 0, ["new 0"]).base_offset == 0
        if who is not None and created == "while it is down":
            cluster.start_broker(who)
        cluster.wait_until_in_sync(timeout_s=30)
        cluster.append("t", 0, ["new 1"])
        for broker in cluster.brokers:  # whoever leads
            assert values(cluster, "t") == ["new 0", "new 1"]
            cluster.kill_broker(broker)
            assert values(cluster, "t") == ["new 0", "new 1"]
            cluster.start_broker(broker)
            cluster.wait_until_in_sync(timeout_s=30)
        if data is not None:  # no copy of the old one is left on any disk
            eventually(lambda: (cluster.topics(), [f for f in data.rglob("*") if f.name.startswith(old)])[1] == [])


def test_a_name_used_again_and_again(data: Path | None) -> None:
    with replog.Cluster(data, config={"deletion_delay_ms": 0, "checkpoint_interval_ms": 1}) as cluster:
        ids = set()
        for n in range(8):
            ids.add(cluster.create_topic("t", partitions=2))
            with cluster.producer() as producer:
                producer.send_many("t", [f"life {n}"] * 5, partition=n % 2)
            assert values(cluster, "t") == [f"life {n}"] * 5
            cluster.delete_topic("t")
        assert len(ids) == 8
        assert cluster.topics() == []
        if data is not None:  # and its files go, once the delay is over
            eventually(lambda: (cluster.topics(), list(data.rglob("*.log")))[1] == [])


def test_a_producer_outlives_its_topic(data: Path | None) -> None:
    """A producer that goes on while the name changes hands writes to the new topic, from offset 0 on."""
    with replog.Cluster(data) as cluster, cluster.producer() as producer:
        cluster.create_topic("t")
        for i in range(3):
            assert producer.send("t", f"old {i}").result(timeout_s=10).offset == i
        cluster.delete_topic("t")
        cluster.create_topic("t")
        for i in range(3):
            assert producer.send("t", f"new {i}").result(timeout_s=10).offset == i
        assert values(cluster, "t") == ["new 0", "new 1", "new 2"]


def test_a_consumer_goes_on_through_failovers(data: Path | None) -> None:
    with replog.Cluster(data) as cluster:
        cluster.create_topic("t", partitions=3)
        found: list[str] = []
        with cluster.consumer("t", start="earliest") as consumer:
            numbers = itertools.count()
            for broker in (1, 2, 3):
                for partition in range(3):
                    cluster.append("t", partition, [str(next(numbers))])
                found += [record.text() for record in consumer.poll(timeout_s=5)]
                cluster.kill_broker(broker)
                for partition in range(3):
                    cluster.append("t", partition, [str(next(numbers))])
                found += [record.text() for record in consumer.poll(timeout_s=5)]
                cluster.start_broker(broker)
                cluster.wait_until_in_sync(timeout_s=30)
            eventually(lambda: (found.extend(r.text() for r in consumer.poll()), len(found))[1] >= 18)
        assert sorted(map(int, found)) == list(range(18))
