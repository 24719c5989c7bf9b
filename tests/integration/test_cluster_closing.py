"""Closing a cluster settles everything that was on its way: nobody waits for ever, nobody believes a lie."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

import replog
from replog.runtime.embedded_broker import EmbeddedBroker
from replog.testing.eventually import eventually


def test_closing_fails_what_lingers() -> None:
    cluster = replog.Cluster().start()
    cluster.create_topic("t")
    called: list[bool] = []
    producer = cluster.producer(linger_ms=60_000)
    delivery = producer.send("t", "x")
    delivery.add_done_callback(lambda done: called.append(True))
    future = delivery.future()
    cluster.close()
    assert delivery.done()
    assert isinstance(delivery.exception(), replog.ReplogError)
    assert future.done()
    assert called == [True]


def test_a_thread_that_waits_for_a_delivery_hears_of_the_close() -> None:
    cluster = replog.Cluster(brokers=3).start()
    cluster.create_topic("t", replication_factor=3, min_isr=2)
    cluster.kill_broker(2)
    cluster.kill_broker(3)
    producer = cluster.producer(linger_ms=60_000)
    future = producer.send("t", "x").future()
    seen: list[BaseException | None] = []
    thread = threading.Thread(target=lambda: seen.append(future.exception(timeout=30)))
    thread.start()
    cluster.close()
    thread.join()
    assert isinstance(seen[0], replog.ReplogError)


def test_a_consumer_that_is_closed_ends_whoever_iterates_it() -> None:
    with replog.Cluster(brokers=1) as cluster:
        cluster.create_topic("t")
        cluster.append("t", 0, ["before"])
        consumer = cluster.consumer("t", start="earliest")
        seen: list[str] = []
        thread = threading.Thread(target=lambda: seen.extend(record.text() for record in consumer), daemon=True)
        thread.start()
        eventually(lambda: seen == ["before"] or any(p.offset == 1 for p in consumer._partitions.values()))
        consumer.close()
        thread.join(30)
        assert not thread.is_alive()
        cluster.append("t", 0, ["after"])
        assert seen == ["before"]


def test_damage_found_by_reading_is_left_behind(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with replog.Cluster(data) as cluster:
        cluster.create_topic("t", replication_factor=3, min_isr=2)
        for n in range(100):
            cluster.append("t", 0, [f"record {n}"])
        leader = cluster.leader("t", 0)
    (segment,) = (data / f"broker-{leader}").glob("logs/*/*.log")
    content = bytearray(segment.read_bytes())
    content[3000:3003] = bytes(b ^ 255 for b in content[3000:3003])
    segment.write_bytes(content)
    with replog.Cluster(data) as cluster:
        assert [record.text() for record in cluster.read("t")] == [f"record {n}" for n in range(100)]
        assert cluster.leader("t", 0) != leader
        with pytest.raises(replog.Unavailable, match="t-0"):
            cluster.wait_until_in_sync(timeout_s=0.2)
        # A stop is not clean while a copy is bad: the next start reads it, and gets the rest from the others.
        cluster.stop_broker(leader)
        cluster.start_broker(leader)
        cluster.wait_until_in_sync(timeout_s=30)
        for other in [broker for broker in cluster.brokers if broker != leader]:
            cluster.kill_broker(other)
        assert cluster.leader("t", 0) == leader
        assert len(list(cluster.read("t"))) == 100


@pytest.mark.parametrize("moment", ["while it flushes", "at the end"])
@pytest.mark.parametrize("listen", [None, "tcp://127.0.0.1:0"])
def test_an_exception_in_a_broker_while_the_cluster_is_closed(
    tmp_path: Path, listen: str | None, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is raised once everything is released; the other brokers stop cleanly. While logs are flushed that one begins another life,
    which does so as well; at the end it has none."""
    data, threads = tmp_path / "data", threading.active_count()
    cluster = replog.Cluster(data, listen=listen).start()
    cluster.create_topic("t")
    cluster.append("t", 0, ["a"])
    lingering = cluster.producer(linger_ms=60_000).send("t", "x")
    if cluster._embedded.outside is not None:
        cluster._embedded.outside.stop()  # its thread would come across it first
    flush = cluster._embedded._before_stop.flush

    def mistaken(lives: Sequence[EmbeddedBroker]) -> Exception | None:
        problem = flush(lives) if moment == "at the end" else None
        with cluster._embedded.lock:
            broken = cluster._embedded.running[2]
            broken.broker.tick = lambda now_ms, wall_ms: 1 // 0  # type: ignore[assignment]
            broken.leave()
        return problem if moment == "at the end" else flush(lives)

    monkeypatch.setattr(cluster._embedded._before_stop, "flush", mistaken)
    with pytest.raises(ZeroDivisionError):
        cluster.close()
    assert isinstance(lingering.exception(), replog.ReplogError)
    assert threading.active_count() == threads
    assert [(data / f"broker-{broker}" / "clean").exists() for broker in (1, 2, 3)] == [True, moment != "at the end", True]
    cluster.close()
    with replog.Cluster(data) as again:
        assert [record.text() for record in again.read("t")] == ["a"]
