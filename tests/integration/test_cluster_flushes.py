"""flush="ack" in one process: what is appended while nobody waits shares a flush, and whoever wants to know an outcome gets it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import replog
from replog.log.files import OS
from replog.runtime.pump import FLUSH_WAIT_MS

APPENDS = 64
BROKERS = 3
IN_FLIGHT = 5


class Disk:
    """Counts flushes, and time passes when the test says so."""

    def __init__(self) -> None:
        self.flushes = 0
        self.ahead_ms = 0

    def fsync(self, fd: int) -> None:
        self.flushes += 1
        os.fsync(fd)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(OS, "fsync", disk.fsync)
    return disk


@pytest.fixture
def cluster(disk: Disk, tmp_path: Path) -> Iterator[replog.Cluster]:
    with replog.Cluster(tmp_path / "data", brokers=BROKERS) as cluster:
        cluster.create_topic("t", flush="ack", min_isr=2)
        cluster.append("t", 0, ["first"])
        pump = cluster._embedded._pump
        stopped_ms = pump.now_ms()
        pump.now_ms = lambda: stopped_ms + disk.ahead_ms
        disk.flushes = 0
        yield cluster


def values(cluster: replog.Cluster) -> list[str]:
    return [record.value.decode() for record in cluster.read("t") if record.value is not None]


def test_what_is_sent_while_nobody_waits_shares_flushes(cluster: replog.Cluster, disk: Disk) -> None:
    with cluster.producer() as producer:
        deliveries = [producer.send("t", f"{n}", partition=0) for n in range(APPENDS)]
        assert disk.flushes == 0
        assert [delivery.result().offset for delivery in deliveries] == list(range(1, APPENDS + 1))
    assert disk.flushes == 2 * BROKERS, "once for as many batches as may be under way, once for all that waited for them"
    assert values(cluster) == ["first", *(f"{n}" for n in range(APPENDS))]


def test_nothing_counts_before_it_is_flushed(cluster: replog.Cluster, disk: Disk) -> None:
    with cluster.producer() as producer:
        delivery = producer.send("t", "second", partition=0)
        assert "under way" in repr(delivery)
        assert disk.flushes == 0
    assert "stored at 1" in repr(delivery)
    assert disk.flushes == BROKERS


@pytest.mark.parametrize(
    "ask",
    [
        lambda delivery: delivery.done(),
        lambda delivery: delivery.future().done(),
        lambda delivery: delivery.result().offset == 1,
        lambda delivery: delivery.exception() is None,
    ],
    ids=["done", "future", "result", "exception"],
)
def test_whoever_asks_for_an_outcome_gets_it(cluster: replog.Cluster, ask: Callable[[replog.Delivery], bool]) -> None:
    """Also if the application says nothing more: no thread would do it later."""
    with cluster.producer() as producer:
        assert ask(producer.send("t", "second", partition=0))


def test_a_callback_is_called_though_nobody_calls_again(cluster: replog.Cluster) -> None:
    """It may wait for flushes itself."""
    seen: list[int | None] = []

    def stored(delivery: replog.Delivery) -> None:
        seen.append(delivery.result().offset)
        seen.append(cluster.append("t", 0, ["from a callback"]).last_offset)

    with cluster.producer() as producer:
        producer.send("t", "second", partition=0).add_done_callback(stored)
        assert seen == [1, 2]
    assert values(cluster) == ["first", "second", "from a callback"]


def test_of_many_deliveries_as_well(cluster: replog.Cluster) -> None:
    with cluster.producer() as producer:
        assert producer.send_many("t", ["a", "b", "c"], partition=0).done()


@pytest.mark.parametrize("sent", [1, IN_FLIGHT, IN_FLIGHT + 3])
def test_flushes_are_not_put_off_for_longer_than_that(cluster: replog.Cluster, disk: Disk, sent: int) -> None:
    """Nobody asks for any outcome: the next record is enough, also one that has to wait for those under way."""
    with cluster.producer() as producer:
        deliveries = [producer.send("t", f"{n}", partition=0) for n in range(sent)]
        disk.ahead_ms += FLUSH_WAIT_MS - 1
        deliveries.append(producer.send("t", "not yet", partition=0))
        assert disk.flushes == 0
        disk.ahead_ms += 1
        producer.send("t", "now", partition=0)
        assert disk.flushes >= BROKERS
        assert all("stored" in repr(delivery) for delivery in deliveries[:IN_FLIGHT])


def test_who_reads_sees_what_was_sent(cluster: replog.Cluster, disk: Disk) -> None:
    """Also if nobody has asked for its outcome."""
    with cluster.producer() as producer:
        producer.send("t", "second", partition=0)
        assert values(cluster) == ["first", "second"]
        assert disk.flushes == BROKERS


def test_closing_flushes(disk: Disk, tmp_path: Path) -> None:
    with replog.Cluster(tmp_path / "data", brokers=BROKERS) as cluster:
        cluster.create_topic("t", flush="ack", min_isr=2)
        producer = cluster.producer()
        delivery = producer.send("t", "first", partition=0)
    assert "stored at 0" in repr(delivery)
    with replog.Cluster(tmp_path / "data", brokers=BROKERS) as again:
        assert values(again) == ["first"]


def test_a_broker_that_ends_before_its_flush(cluster: replog.Cluster) -> None:
    with cluster.producer() as producer:
        delivery = producer.send("t", "second", partition=0)
        cluster.kill_broker(2)
        assert delivery.result().offset == 1
        cluster.start_broker(2)
    assert values(cluster) == ["first", "second"]
