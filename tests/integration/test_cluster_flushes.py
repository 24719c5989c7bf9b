"""flush="ack" in one process: nobody waits inside a call that need not, appends share the waits, and nothing of it is left behind."""

from __future__ import annotations

import gc
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.log_fsyncs import LogFsyncs

import replog
from replog.log.files import Fs
from replog.runtime import before_stop, embedded_broker, flushing
from replog.runtime.putting_off import is_inside
from replog.testing.eventually import eventually

_NAME = "replog cluster flushes"


def values(cluster: replog.Cluster, topic: str) -> list[str]:
    """What a reader finds, as text."""
    return [record.text() for record in cluster.read(topic)]


class Gate:
    """Disks whose fsyncs of batches on threads wait while it is closed; `waiting` and `done` count them by broker."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.waiting: Counter[int] = Counter()
        self.done: Counter[int] = Counter()
        self.threads: set[str] = set()
        self.hangs = False
        """Whether other threads wait, too."""
        self.broken: set[int] = set()
        """Brokers whose fsyncs fail once they have waited."""

    def fs(self, broker_id: int) -> Fs:
        def met() -> None:
            name = threading.current_thread().name
            self.threads.add(name)
            self.waiting[broker_id] += 1
            assert not (self.hangs or name.startswith(_NAME)) or self.open.wait(20)
            self.waiting[broker_id] -= 1
            self.done[broker_id] += 1
            if broker_id in self.broken:
                raise OSError(5, "Input/output error")

        return LogFsyncs(met)


@pytest.fixture(autouse=True)
def never_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each flush takes its time, on whatever disk the tests run."""
    monkeypatch.setattr(flushing, "_QUICK_S", -1.0)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open.set()


def begun(folder: Path, gate: Gate, *, on: Callable[[int], Fs] | None = None) -> replog.Cluster:
    cluster = replog.Cluster(folder / "data", _fs_of=on or gate.fs)
    cluster.create_topic("disk", flush="ack")
    cluster.create_topic("cache")
    return cluster


class Threads:
    """Those that flush, without what other tests of this process have left to be collected."""

    def __init__(self) -> None:
        gc.collect()
        self._before = set(threading.enumerate())

    def names(self) -> list[str]:
        return [t.name for t in threading.enumerate() if t.name.startswith(_NAME) and t not in self._before]


@pytest.fixture
def threads() -> Threads:
    return Threads()


def test_appends_share_flushes_and_nobody_waits_in_send(tmp_path: Path, gate: Gate, threads: Threads) -> None:
    with begun(tmp_path, gate) as cluster, cluster.producer() as producer:
        gate.open.clear()
        first = producer.send("disk", "0")
        eventually(lambda: sum(gate.waiting.values()) == 3)  # all copies at once
        before = gate.done.copy()
        rest = [producer.send("disk", f"{n}") for n in range(1, 65)]
        cluster.append("cache", 0, ["somebody else"])  # is not held up
        assert not first.done()
        assert not any(one.done() for one in rest)
        assert values(cluster, "disk") == []
        gate.open.set()
        assert [one.result(30).offset for one in [first, *rest]] == list(range(65))
        flushes = {broker: gate.done[broker] - before[broker] for broker in (1, 2, 3)}
        assert all(2 <= count <= 20 for count in flushes.values()), flushes  # five batches under way at a time, and not one by one
        assert values(cluster, "disk") == [f"{n}" for n in range(65)]
        assert gate.threads == {f"{_NAME} {broker}" for broker in (1, 2, 3)}
        eventually(lambda: not any(cluster._embedded._pump._seats[broker].flights for broker in (1, 2, 3)))  # all are heard of
    assert threads.names() == []


def test_who_only_left_a_callback_hears_of_it(tmp_path: Path, gate: Gate) -> None:
    heard: list[int] = []
    with begun(tmp_path, gate) as cluster, cluster.producer() as producer:
        gate.open.clear()
        producer.send("disk", "a").add_done_callback(lambda delivery: heard.append(delivery.result().offset))
        gate.open.set()
        eventually(lambda: heard == [0])


def test_nobody_has_to_call_for_it_to_go_on(tmp_path: Path, gate: Gate) -> None:
    """Neither a call nor a thread of the client: what is on disk is committed, and can be read."""
    with begun(tmp_path, gate) as cluster, cluster.producer() as producer:
        leader = cluster.leader("disk", 0)
        assert leader is not None
        copies = cluster._embedded.running[leader].broker.partitions.values()
        copy = next(one for one in copies if one.config.flush == "ack")
        gate.open.clear()
        producer.send("disk", "a")
        eventually(lambda: sum(gate.waiting.values()) == 3)
        assert copy.high_watermark == 0
        gate.open.set()
        eventually(lambda: copy.high_watermark == 1)


def test_closing_waits_for_what_is_under_way(tmp_path: Path, gate: Gate, threads: Threads) -> None:
    cluster = begun(tmp_path, gate)
    producer = cluster.producer()
    gate.open.clear()
    sent = [producer.send("disk", f"{n}") for n in range(3)]
    closers = [threading.Thread(target=cluster.close) for _ in range(2)]
    for closer in closers:
        closer.start()
        eventually(lambda: all(life.left_to_flush for life in cluster._embedded.running.values()))
        closer.join(0.05)
        assert closer.is_alive()  # the second one waits as well
    gate.open.set()
    for closer in closers:
        closer.join(30)
        assert not closer.is_alive()
    assert [one.result(0).offset for one in sent] == [0, 1, 2]
    assert threads.names() == []
    with replog.Cluster(tmp_path / "data") as again:
        assert values(again, "disk") == ["0", "1", "2"]


@pytest.mark.parametrize("fails", [False, True])
def test_a_broker_that_is_killed_while_its_disk_hangs(tmp_path: Path, gate: Gate, fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a process that is killed in a call of the disk: it does nothing any more, and its folder is free when that call has returned."""
    monkeypatch.setattr(embedded_broker, "_GONE_S", 0.01)
    with begun(tmp_path, gate) as cluster, cluster.producer() as producer:
        leader = cluster.leader("disk", 0)
        assert leader is not None
        life = cluster._embedded.running[leader]
        gate.open.clear()
        sent = producer.send("disk", "a")
        eventually(lambda: sum(gate.waiting.values()) == 3)
        if fails:
            gate.broken.add(leader)
        cluster.kill_broker(leader)
        cluster.append("cache", 0, ["the others go on"])
        with pytest.raises(replog.errors.UsageError, match="in use"):
            cluster.start_broker(leader)
        assert not sent.done()
        gate.open.set()
        assert sent.result(30).offset == 0
        eventually(life.goes)
        gate.broken.clear()
        cluster.start_broker(leader)
        assert len(cluster._embedded.running[leader].directory.loss.lossy) == (2 if fails else 0)  # the whole disk is not to be trusted
        cluster.wait_until_in_sync(timeout_s=30)
        cluster.append("disk", 0, ["b"])
        assert values(cluster, "disk") == ["a", "b"]


def test_a_cluster_that_is_closed_while_a_disk_hangs(tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody opens that broker's folder before it has ended; what fails then is known to the next life."""
    monkeypatch.setattr(before_stop, "DISK_S", 0.01)
    monkeypatch.setattr(flushing, "DISK_S", 0.01)
    cluster = begun(tmp_path, gate)
    gate.broken.add(3)
    gate.open.clear()
    producer = cluster.producer()
    producer.send("disk", "a")
    eventually(lambda: sum(gate.waiting.values()) == 3)
    lives = [cluster._embedded.running[broker] for broker in (1, 2, 3)]
    with pytest.warns(ResourceWarning, match="1 were sent"):
        cluster.close()
    with pytest.raises(replog.errors.Unavailable, match="1 records were sent"):
        producer.close()
    with pytest.raises(replog.errors.UsageError, match="in use"):
        replog.Cluster(tmp_path / "data").start()
    gate.open.set()
    eventually(lambda: all(life.goes() for life in lives))
    with replog.Cluster(tmp_path / "data") as cluster:
        losses = [cluster._embedded.running[broker].directory.loss for broker in (1, 2, 3)]
        assert [(loss.kind, len(loss.lossy)) for loss in losses] == [("none", 0), ("none", 0), ("power", 2)]
        assert values(cluster, "disk") == ["a"]


def test_what_is_asked_of_a_busy_disk_while_a_cluster_is_closed(tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes after that, and nothing is lost for it."""
    monkeypatch.setattr(before_stop, "DISK_S", 0.01)
    with begun(tmp_path, gate) as cluster, cluster.producer() as producer:
        cluster.create_topic("more", flush="ack")
        gate.open.clear()
        first = producer.send("disk", "a")
        eventually(lambda: sum(gate.waiting.values()) == 3)
        closer = threading.Thread(target=cluster.close)
        closer.start()
        eventually(lambda: cluster._embedded._flushing._ended)
        second = producer.send("more", "b")
        assert len(cluster._embedded._flushing._left) == 3
        gate.open.set()
        closer.join(30)
        assert not closer.is_alive()
        assert [first.result(0).offset, second.result(0).offset] == [0, 0]


def test_a_disk_that_hangs_holds_up_nobody_while_a_cluster_is_closed(tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked of it meanwhile is not begun on the thread that closes, or calls, under the lock."""
    monkeypatch.setattr(before_stop, "DISK_S", 0.01)
    monkeypatch.setattr(flushing, "DISK_S", 0.01)
    cluster = begun(tmp_path, gate)
    cluster.create_topic("more", flush="ack")
    gate.open.clear()
    producer = cluster.producer()
    producer.send("disk", "a")
    eventually(lambda: sum(gate.waiting.values()) == 3)
    gate.hangs = True  # for whoever asks
    lives = [cluster._embedded.running[broker] for broker in (1, 2, 3)]
    end = cluster._embedded._flushing.end

    def end_and_send() -> None:
        end()
        producer.send("more", "b")
        cluster.append("cache", 0, ["c"])

    monkeypatch.setattr(cluster._embedded._flushing, "end", end_and_send)
    with pytest.warns(ResourceWarning, match="2 were sent"):
        cluster.close()
    with pytest.raises(replog.errors.Unavailable, match="2 records were sent"):
        producer.close()
    gate.open.set()
    eventually(lambda: all(life.goes() for life in lives))
    with replog.Cluster(tmp_path / "data") as again:
        assert values(again, "cache") == ["c"]


def test_what_an_interrupted_start_has_left_does_not_free_a_folder(tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps to undo it stay, if Ctrl-C comes at its very end; the broker runs, and its directory is its own to close."""
    monkeypatch.setattr(embedded_broker, "_GONE_S", 0.01)
    with begun(tmp_path, gate) as cluster, cluster.producer() as producer:
        cluster.stop_broker(3)
        with monkeypatch.context() as patch:
            patch.setattr(cluster._embedded._undoing, "finished", interrupt)
            with pytest.raises(KeyboardInterrupt):
                cluster.start_broker(3)
        cluster.wait_until_in_sync(timeout_s=30)
        life = cluster._embedded.running[3]
        gate.open.clear()
        sent = producer.send("disk", "a")
        eventually(lambda: sum(gate.waiting.values()) == 3)
        cluster.kill_broker(3)
        with pytest.raises(replog.errors.UsageError, match="in use"):
            cluster.start_broker(3)
        cluster._embedded._undoing.undo(3)  # as whoever closes does
        assert not life.goes()
        assert life.directory._lock.is_held  # type: ignore[attr-defined]
        gate.open.set()
        assert sent.result(30).offset == 0
        eventually(life.goes)
        cluster.start_broker(3)


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_who_asks_for_a_folder_lets_go_of_it_if_the_flush_could_not(tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt may come into that, and it is called once."""
    monkeypatch.setattr(embedded_broker, "_GONE_S", 0.01)
    with begun(tmp_path, gate) as cluster, cluster.producer() as producer:
        gate.open.clear()
        sent = producer.send("disk", "a")
        eventually(lambda: sum(gate.waiting.values()) == 3)
        life = cluster._embedded.running[3]
        cluster.kill_broker(3)
        assert life._seat is not None
        (flight,) = life._seat.flights.values()
        flight.then = interrupt
        gate.open.set()
        assert sent.result(30).offset == 0
        eventually(lambda: flight.ended)
        cluster.start_broker(3)
        cluster.wait_until_in_sync(timeout_s=30)


def test_a_broker_that_another_thread_starts_at_once(tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """The life that has begun meanwhile is not the one that is gone."""
    with begun(tmp_path, gate) as cluster:
        life = cluster._embedded.running[3]
        wait = life.wait_until_gone
        monkeypatch.setattr(life, "wait_until_gone", lambda: (wait(), cluster.start_broker(3)))
        cluster.stop_broker(3)
        assert cluster._embedded._reopening._last[3] is cluster._embedded.running[3]


def test_a_broker_is_not_removed_while_its_disk_hangs(tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    with begun(tmp_path, gate) as cluster:
        assert cluster.add_broker() == 4
        with monkeypatch.context() as patch:
            patch.setattr(embedded_broker.EmbeddedBroker, "goes", lambda life: life.broker_id != 4)
            with pytest.raises(replog.errors.UsageError, match="in use"):
                cluster.remove_broker(4)
        assert (tmp_path / "data" / "broker-4").exists()
        cluster.remove_broker(4)
        assert not (tmp_path / "data" / "broker-4").exists()


def test_a_signal_handler_kills_the_broker_whose_flush_it_came_into(tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot wait for what it interrupts."""
    monkeypatch.setattr(flushing, "_QUICK_S", 3_600.0)
    killed = [False]

    class Interrupted(Fs):
        def fsync(self, fd: int) -> None:  # type: ignore[override]
            if not killed:
                killed.append(True)
                life = cluster._embedded.running[3]
                cluster.kill_broker(3)
                killed[0] = life.goes()
            os.fsync(fd)

    cluster = replog.Cluster(tmp_path / "data", _fs_of=lambda b: Interrupted() if b == 3 else gate.fs(b))
    with cluster:
        cluster.create_topic("disk", flush="ack")
        cluster.append("disk", 0, ["0"])  # on a thread: nobody knows how long that takes
        killed.clear()
        cluster.append("disk", 0, ["1", "2"])
        assert killed == [False]
        cluster.start_broker(3)
        cluster.wait_until_in_sync(timeout_s=30)
        assert values(cluster, "disk") == ["0", "1", "2"]


def test_where_no_thread_can_be_had_the_caller_waits(tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with begun(tmp_path, gate) as cluster, monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        cluster.append("disk", 0, ["a", "b"])
        assert values(cluster, "disk") == ["a", "b"]
        assert gate.threads == {threading.current_thread().name}
        assert not any(cluster._embedded._flushing._given.values())


def test_a_quick_disk_needs_no_threads(tmp_path: Path, gate: Gate, threads: Threads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flushing, "_QUICK_S", 3_600.0)
    with begun(tmp_path, gate) as cluster:
        cluster.append("disk", 0, ["0"])  # nobody knows how long that takes
        assert threads.names()
        gate.threads.clear()
        for n in range(1, 5):
            cluster.append("disk", 0, [f"{n}"])
        assert gate.threads == {threading.current_thread().name}
    with replog.Cluster() as cluster:
        monkeypatch.setattr(flushing, "_QUICK_S", -1.0)
        cluster.create_topic("t", flush="ack")
        cluster.append("t", 0, ["in memory"])
        assert threads.names() == []


def test_a_disk_that_fails_on_a_thread_is_a_disk_that_fails(tmp_path: Path, gate: Gate) -> None:
    """The copy on it is given up, the others go on, and what was acknowledged stays."""
    broken = threading.Event()

    class Broken(Fs):
        def fsync(self, fd: int) -> None:  # type: ignore[override]
            if broken.is_set():
                raise OSError(5, "Input/output error")
            os.fsync(fd)

    with begun(tmp_path, gate, on=lambda broker: Broken() if broker == 2 else gate.fs(broker)) as cluster:
        cluster.append("disk", 0, ["a"])
        broken.set()
        cluster.append("disk", 0, ["b"])
        assert values(cluster, "disk") == ["a", "b"]
        eventually(lambda: 2 not in cluster.describe("disk").partitions[0].isr)


@pytest.mark.parametrize("problem", [RuntimeError, SystemExit])
def test_what_a_flush_raises_ends_the_broker_that_waits_for_it(tmp_path: Path, gate: Gate, problem: type[BaseException]) -> None:
    """As it does on the caller's own thread: it is opened again from its log, and nobody waits for ever."""
    raised: list[int] = []

    class Mistaken(Fs):
        def fsync(self, fd: int) -> None:  # type: ignore[override]
            if threading.current_thread().name == f"{_NAME} 2" and not raised:
                raised.append(fd)
                raise problem("a mistake")
            os.fsync(fd)

    with begun(tmp_path, gate, on=lambda broker: Mistaken() if broker == 2 else gate.fs(broker)) as cluster:
        cluster.append("disk", 0, ["a"])
        eventually(lambda: len(raised) == 1)
        cluster.wait_until_in_sync(timeout_s=30)
        cluster.append("disk", 0, ["b"])
        assert values(cluster, "disk") == ["a", "b"]


@pytest.mark.parametrize("end", ["stop", "kill", "die", "stop without the log"])
def test_a_flush_that_fails_while_its_broker_is_ended(tmp_path: Path, gate: Gate, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker does not hear of it any more, and the system says it once: the next life must not trust the disk nevertheless."""
    monkeypatch.setattr(before_stop, "DISK_S", 0.01)
    broken = threading.Event()

    class Broken(Fs):
        def fsync(self, fd: int) -> None:  # type: ignore[override]
            if threading.current_thread().name == f"{_NAME} 3" and not broken.is_set():
                gate.waiting[3] += 1
                eventually(lambda: 3 not in cluster._embedded._pump._seats)
                broken.set()
                raise OSError(5, "Input/output error")
            os.fsync(fd)

    cluster = replog.Cluster(tmp_path / "data", _fs_of=lambda b: Broken() if b == 3 else gate.fs(b), config={"shutdown_timeout_ms": 0})
    with cluster, cluster.producer() as producer:
        cluster.create_topic("other", flush="ack")
        cluster.create_topic("disk", flush="ack")
        first = cluster._embedded.running[3]
        sent = producer.send("disk", "a")
        eventually(lambda: gate.waiting[3] == 1)
        if end == "die":
            monkeypatch.setattr(first.broker, "tick", None)  # the loop of `_run` calls it
            with pytest.raises(TypeError):
                cluster.append("disk", 0, ["b"])
        else:
            if end == "stop without the log":
                put_away = next(i for i, copy in first.broker.partitions.items() if copy.log.end_offset)
                monkeypatch.setattr(first.directory, "get", lambda i, get=first.directory.get: None if i == put_away else get(i))
            (cluster.kill_broker if end == "kill" else cluster.stop_broker)(3)
            cluster.start_broker(3)
        assert broken.is_set()
        assert len(cluster._embedded.running[3].directory.loss.lossy) == 2
        assert sent.result(30).offset == 0
        cluster.wait_until_in_sync(timeout_s=30)  # what it may have lost it has from the others


def test_events_are_told_without_the_lock(tmp_path: Path, gate: Gate) -> None:
    """A logging handler has a lock too, and another thread may call the cluster from inside it."""
    told: list[tuple[str, str, bool]] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            thread = threading.current_thread().name
            told.append((thread, str(record.args and record.args[0]), is_inside(cluster._embedded.lock)))
            if thread.startswith(_NAME):
                raise SystemExit(thread)  # and does not keep the rest from others

    class Broken(Fs):
        def fsync(self, fd: int) -> None:  # type: ignore[override]
            if threading.current_thread().name == f"{_NAME} 2":
                raise OSError(5, "Input/output error")
            os.fsync(fd)

    handler, log = Handler(), logging.getLogger("replog")
    log.addHandler(handler)
    try:
        with begun(tmp_path, gate, on=lambda broker: Broken() if broker == 2 else gate.fs(broker)) as cluster:
            cluster.create_topic("other", flush="ack")
            cluster.append("other", 0, ["a"])
            eventually(lambda: {"directory_failed", "replicas_failed"} <= {event for _, event, _ in told})
    finally:
        log.removeHandler(handler)
    assert not [entry for entry in told if entry[0].startswith(_NAME) and entry[2]], told
    assert len([entry for entry in told if entry[0].startswith(_NAME)]) > 1, told


def test_whoever_closes_before_the_first_use_opens(tmp_path: Path, gate: Gate, threads: Threads, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = replog.Cluster(tmp_path / "data")
    end = cluster._embedded._flushing.end

    def end_and_begin() -> None:
        end()
        cluster.create_topic("disk", flush="ack")
        cluster.append("disk", 0, ["a", "b"])

    monkeypatch.setattr(cluster._embedded._flushing, "end", end_and_begin)
    cluster.close()
    assert threads.names() == []


def test_a_cluster_that_is_dropped_unclosed_leaves_no_threads(tmp_path: Path, gate: Gate, threads: Threads) -> None:
    clusters = [begun(tmp_path, gate)]
    clusters[0].append("disk", 0, ["a"])
    assert len(threads.names()) == 3

    def are_gone() -> bool:
        clusters.clear()
        gc.collect()
        return threads.names() == []

    with pytest.warns(ResourceWarning, match="a Cluster was dropped"):
        eventually(are_gone)


def test_a_forked_child_has_none_of_it(tmp_path: Path, gate: Gate) -> None:
    with begun(tmp_path, gate) as cluster:
        cluster.append("disk", 0, ["a"])
        child = os.fork()
        if child == 0:
            try:
                cluster.append("disk", 0, ["never"])
            except replog.errors.UsageError:
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        cluster.append("disk", 0, ["b"])
        assert values(cluster, "disk") == ["a", "b"]
