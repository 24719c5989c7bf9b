"""A clean stop flushes the logs it finds many at once, before it begins to end anything (`BeforeStop`)."""

from __future__ import annotations

import gc
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from weakref import ref

import pytest
from tests.integration.log_fsyncs import LogFsyncs

import replog
from replog.log.files import Fs
from replog.ports import Event
from replog.runtime import before_stop, flush_lanes, flushing
from replog.testing.eventually import eventually

MANY = 2 * flush_lanes._LANES


class Disk:
    """Files of every broker; calls `met` in each fsync of a log, and notes by which thread it came."""

    def __init__(self) -> None:
        self.threads: list[str] = []
        self.met: Callable[[], object] = lambda: None
        self.broken: set[int] = set()

    def fs(self, broker_id: int) -> Fs:
        def met() -> None:
            self.threads.append(threading.current_thread().name)
            self.met()
            if broker_id in self.broken:
                raise OSError(5, "Input/output error")

        return LogFsyncs(met)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    monkeypatch.setattr(flushing, "_QUICK_S", -1.0)  # each flush takes its time, on whatever disk the tests run
    return Disk()


def filled(folder: Path, disk: Disk, *, brokers: int = 1) -> replog.Cluster:
    cluster = replog.Cluster(folder / "data", brokers=brokers, _fs_of=disk.fs)
    cluster.create_topic("t", partitions=MANY, replication_factor=brokers)
    for partition in range(MANY):
        cluster.append("t", partition, [f"{partition}"])
    cluster.wait_until_in_sync(timeout_s=30)
    disk.threads.clear()
    return cluster


def loss_of(cluster: replog.Cluster, broker_id: int) -> tuple[str, int]:
    loss = cluster._embedded.running[broker_id].directory.loss
    return loss.kind, len(loss.lossy)


def interrupted(*_: object) -> bool:
    raise KeyboardInterrupt


def interrupted_amid_flushes(
    cluster: replog.Cluster, end: Callable[[], object], disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> threading.Event:
    """Ctrl-C in the wait for the flushes of a stop, which go on when the event that this returns is set."""
    gate = threading.Event()
    disk.met = lambda: gate.wait(20)
    with monkeypatch.context() as patch:
        patch.setattr(cluster._embedded._before_stop, "_wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            end()
    return gate


@pytest.mark.parametrize("end", ["close", "stop_broker"])
def test_eight_logs_are_flushed_at_once_and_none_in_the_stop(tmp_path: Path, disk: Disk, end: str) -> None:
    cluster = filled(tmp_path, disk)
    together = threading.Barrier(flush_lanes._LANES)
    disk.met = lambda: together.wait(20)
    cluster.close() if end == "close" else cluster.stop_broker(1)
    assert len(disk.threads) == MANY
    assert {name.startswith("replog cluster flushes 1") for name in disk.threads} == {True}
    cluster.close()
    assert len(disk.threads) == MANY
    with replog.Cluster(tmp_path / "data", brokers=1) as again:
        assert [record.text() for record in again.read("t", partitions=[5])] == ["5"]
        assert loss_of(again, 1) == ("none", 0)


def test_flushes_share_one_thread_again_when_a_broker_is_started_again(tmp_path: Path, disk: Disk) -> None:
    with filled(tmp_path, disk, brokers=2) as cluster:
        cluster.stop_broker(1)
        cluster.start_broker(1)
        cluster.create_topic("ack", partitions=3, flush="ack")
        disk.threads.clear()
        for partition in range(3):
            cluster.append("ack", partition, ["x"])
        assert set(disk.threads) == {"replog cluster flushes 1", "replog cluster flushes 2"}
    assert not [thread for thread in threading.enumerate() if thread.name in disk.threads]


def test_a_broker_process_does_so_too(tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(flush_lanes._LANES)

    def fsync(fs: Fs, fd: int) -> None:
        if os.readlink(f"/proc/self/fd/{fd}").endswith(".log"):
            disk.threads.append(threading.current_thread().name)
            together.wait(20)
        os.fsync(fd)

    broker = replog.Broker(1, listen="tcp://127.0.0.1:0", data=tmp_path / "data", store=f"file://{tmp_path}/store").start()
    with broker.wait_until_ready(), replog.connect(broker.endpoint) as client:
        client.create_topic("t", partitions=MANY, replication_factor=1)
        for partition in range(MANY):
            client.append("t", partition, ["x"])
        monkeypatch.setattr(Fs, "fsync", fsync)
    assert len(disk.threads) == MANY
    assert {name.startswith("replog broker 1 flush") for name in disk.threads} == {True}


def test_what_is_appended_meanwhile_is_flushed_before_the_stop_as_well(tmp_path: Path, disk: Disk) -> None:
    cluster = filled(tmp_path, disk)
    gate = threading.Event()
    disk.met = lambda: gate.wait(20)
    closer = threading.Thread(target=cluster.close, name="closer")
    closer.start()
    eventually(lambda: len(disk.threads) == flush_lanes._LANES)
    for partition in range(MANY):
        cluster.append("t", partition, ["more"])
    gate.set()
    closer.join(30)
    assert not closer.is_alive()
    assert "closer" not in disk.threads
    assert MANY < len(disk.threads) <= 2 * MANY
    with replog.Cluster(tmp_path / "data", brokers=1) as again:
        assert [record.text() for record in again.read("t", partitions=[5])] == ["5", "more"]
        assert loss_of(again, 1) == ("none", 0)


def test_an_interrupt_ends_the_wait_and_nothing_else(tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = filled(tmp_path, disk)
    gate = interrupted_amid_flushes(cluster, cluster.close, disk, monkeypatch)
    assert cluster.append("t", 3, ["more"]).base_offset == 1
    with pytest.raises(replog.errors.UsageError, match="in use"):
        replog.Cluster(tmp_path / "data", brokers=1).start()
    gate.set()
    cluster.close()
    with replog.Cluster(tmp_path / "data", brokers=1) as again:
        assert [record.text() for record in again.read("t", partitions=[3])] == ["3", "more"]
        assert loss_of(again, 1) == ("none", 0)


def test_a_broker_whose_stop_is_interrupted_while_it_flushes_stays_in_sync(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was moved yet."""
    with filled(tmp_path, disk, brokers=3) as cluster:
        gate = interrupted_amid_flushes(cluster, lambda: cluster.stop_broker(1), disk, monkeypatch)
        gate.set()
        assert [cluster.leader("t", partition) for partition in range(MANY)].count(1) >= MANY // 3
        assert {len(one.isr) for one in cluster.describe("t").partitions} == {3}
        cluster.stop_broker(1)
        assert {1 in one.isr for one in cluster.describe("t").partitions} == {False}


def test_nothing_holds_the_logs_of_a_life_that_is_over(tmp_path: Path, disk: Disk) -> None:
    with filled(tmp_path, disk, brokers=2) as cluster:
        logs = [ref(copy.log) for copy in cluster._embedded.running[1].broker.partitions.values()]
        cluster.stop_broker(1)
        assert len(disk.threads) == MANY

        def gone() -> bool:  # a thread may be about to let go of the last one, which is garbage only then
            gc.collect()
            return not any(log() for log in logs)

        eventually(gone)


def test_a_logging_handler_on_a_thread_that_flushes_may_close(tmp_path: Path, disk: Disk) -> None:
    """An eighth of what the stop would wait for is behind it."""
    cluster = filled(tmp_path, disk)
    told: list[str] = []
    closed: list[str] = []

    class Closing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            name = threading.current_thread().name
            closes = not closed and name.startswith("replog cluster flushes")
            if closes:
                closed.append(name)
            if record.getMessage().startswith("log_full"):
                told.append(name)  # only now: who looks at this asks next whether it is closed
            if closes:
                cluster.close()

    handler = Closing()
    logging.getLogger("replog").addHandler(handler)
    try:
        cluster.create_topic("ack", flush="ack", replication_factor=1)
        broker = cluster._embedded.running[1].broker
        disk.met = lambda: broker.outbox.events.append(Event("log_full", {"for": "the test"}))
        producer = cluster.producer()
        for number in range(100):  # who waits for the record may be the one that tells of it
            assert producer.send("ack", "x").result(20).offset == number
            eventually(lambda: len(told) > number)  # noqa: B023  it is called at once
            if closed:
                break
        eventually(lambda: cluster._embedded.closed)
        producer.close()
    finally:
        logging.getLogger("replog").removeHandler(handler)
    assert closed == ["replog cluster flushes 1"]
    assert len(disk.threads) == len(told) + MANY
    assert set(disk.threads) == {"replog cluster flushes 1"}
    with replog.Cluster(tmp_path / "data", brokers=1) as again:
        assert loss_of(again, 1) == ("none", 0)


def test_a_close_that_follows_an_interrupted_one_waits_for_nothing_that_nobody_begins(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = filled(tmp_path, disk)
    with monkeypatch.context() as patch:
        patch.setattr(cluster._embedded._before_stop, "flush", lambda lives: None)
        patch.setattr(cluster._embedded._pump, "run_last", interrupted)
        with pytest.raises(KeyboardInterrupt):
            cluster.close()
    seconds: list[float] = []
    monkeypatch.setattr(cluster._embedded._before_stop, "_wait", lambda done, timeout_s: seconds.append(timeout_s))
    cluster.close()
    assert seconds == []
    assert len(disk.threads) == MANY
    with replog.Cluster(tmp_path / "data", brokers=1) as again:
        assert loss_of(again, 1) == ("none", 0)


def test_a_flush_that_hangs_already_is_not_waited_for_again(tmp_path: Path, disk: Disk) -> None:
    cluster = filled(tmp_path, disk)
    cluster.create_topic("ack", flush="ack", replication_factor=1)
    gate = threading.Event()
    disk.met = lambda: gate.wait(60)
    producer = cluster.producer()
    sent = producer.send("ack", "x")
    eventually(lambda: len(disk.threads) == 1)
    given = cluster._embedded._flushing._given[1]
    given.update({flight: since - before_stop.DISK_S for flight, since in given.items()})
    ending = threading.Thread(target=cluster._embedded._flushing.end)
    ending.start()
    ending.join(before_stop.DISK_S - 10)
    assert not ending.is_alive()
    gate.set()
    assert sent.result(20).offset == 0
    producer.close()
    cluster.close()


def test_a_disk_that_fails_meanwhile_is_not_trusted_by_the_next_life(tmp_path: Path, disk: Disk) -> None:
    cluster = filled(tmp_path, disk, brokers=3)
    disk.broken.add(3)
    cluster.close()
    disk.broken.clear()
    with replog.Cluster(tmp_path / "data") as again:
        assert [loss_of(again, broker) for broker in (1, 2, 3)] == [("none", 0), ("none", 0), ("power", MANY)]
        assert [record.text() for record in again.read("t", partitions=[5])] == ["5"]


def test_a_life_that_follows_one_which_died_meanwhile_is_stopped_in_its_place(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    with filled(tmp_path, disk, brokers=3) as cluster:
        life = cluster._embedded.running[1]
        gate = threading.Event()
        disk.met = lambda: gate.wait(20)
        stopper = threading.Thread(target=cluster.stop_broker, args=(1,))
        stopper.start()
        eventually(lambda: life.left_to_flush > 0)

        def interrupted_here(now_ms: int, wall_ms: int, tick: Callable[[int, int], None] = life.broker.tick) -> None:
            if threading.current_thread() is threading.main_thread():
                raise KeyboardInterrupt
            tick(now_ms, wall_ms)

        monkeypatch.setattr(life.broker, "tick", interrupted_here)
        ending = threading.Timer(0.1, gate.set)  # whoever ends that life waits for the flushes that it has begun
        ending.start()
        with pytest.raises(KeyboardInterrupt):
            cluster.append("t", 0, ["more"])
        stopper.join(30)
        assert not stopper.is_alive()
        assert 1 not in cluster._embedded.running
        cluster.start_broker(1)
        cluster.wait_until_in_sync(timeout_s=30)


def test_one_that_hangs_takes_no_time_from_another(tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flush that began just now is waited for, however long the disk of a killed broker has hung."""
    with filled(tmp_path, disk, brokers=2) as cluster:
        cluster.create_topic("ack", flush="ack", replication_factor=2)
        hangs, takes_time = threading.Event(), threading.Event()
        names: dict[str, threading.Event] = {"replog cluster flushes 1": hangs, "replog cluster flushes 2": takes_time}
        disk.met = lambda: names[threading.current_thread().name].wait(60)
        producer = cluster.producer()
        producer.send("ack", "x")
        eventually(lambda: len(disk.threads) == 2)
        given = cluster._embedded._flushing._given[1]
        given.update({flight: since - before_stop.DISK_S for flight, since in given.items()})
        ending = threading.Thread(target=cluster._embedded._flushing.end)
        ending.start()
        ending.join(0.1)
        assert ending.is_alive()
        takes_time.set()
        ending.join(before_stop.DISK_S - 10)
        assert not ending.is_alive()
        hangs.set()
        names.clear()
        disk.met = lambda: None
        eventually(lambda: not any(life.broker.upkeep._flushing for life in cluster._embedded.running.values()))
        producer.close()


@pytest.mark.parametrize("end", ["close", "stop_broker"])
def test_a_mistake_of_ours_meanwhile_is_told_and_leaves_nothing_open(
    tmp_path: Path, disk: Disk, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = filled(tmp_path, disk)
    monkeypatch.setattr(cluster._embedded.running[1].broker.upkeep, "flushes", None)
    with pytest.raises(TypeError, match="not callable"):
        cluster.close() if end == "close" else cluster.stop_broker(1)
    cluster.close()
    with replog.Cluster(tmp_path / "data", brokers=1) as again:
        assert [record.text() for record in again.read("t", partitions=[5])] == ["5"]
