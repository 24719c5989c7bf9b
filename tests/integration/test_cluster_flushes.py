"""flush="ack" in one process: nobody waits inside a call that need not, appends share the waits, and nothing of it is left behind."""

from __future__ import annotations

import gc
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import replog
from replog.log.files import Fs
from replog.runtime import flushing
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

    def fs(self, broker_id: int) -> Fs:
        gate = self

        class Gated(Fs):
            def __init__(self) -> None:
                self.logs: set[int] = set()

            def open(self, path: str, *, create: bool = False) -> int:
                fd = super().open(path, create=create)
                (self.logs.add if path.endswith(".log") else self.logs.discard)(fd)
                return fd

            def fsync(self, fd: int) -> None:  # type: ignore[override]
                name = threading.current_thread().name
                if fd in self.logs:
                    gate.threads.add(name)
                    gate.waiting[broker_id] += 1
                    assert not name.startswith(_NAME) or gate.open.wait(20)
                    gate.waiting[broker_id] -= 1
                    gate.done[broker_id] += 1
                os.fsync(fd)

        return Gated()


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


def flush_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(_NAME)]


def test_appends_share_flushes_and_nobody_waits_in_send(tmp_path: Path, gate: Gate) -> None:
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
    assert flush_threads() == []


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


def test_closing_waits_for_what_is_under_way(tmp_path: Path, gate: Gate) -> None:
    cluster = begun(tmp_path, gate)
    producer = cluster.producer()
    gate.open.clear()
    sent = [producer.send("disk", f"{n}") for n in range(3)]
    closer = threading.Thread(target=cluster.close)
    closer.start()
    eventually(lambda: cluster._embedded._pump.flusher is None)
    assert closer.is_alive()
    gate.open.set()
    closer.join(30)
    assert not closer.is_alive()
    assert [one.result(0).offset for one in sent] == [0, 1, 2]
    assert flush_threads() == []
    with replog.Cluster(tmp_path / "data") as again:
        assert values(again, "disk") == ["0", "1", "2"]


def test_a_broker_that_is_killed_meanwhile(tmp_path: Path, gate: Gate) -> None:
    """Its flush is nobody's: the next life of the broker does not take it for its own."""
    with begun(tmp_path, gate) as cluster, cluster.producer() as producer:
        leader = cluster.leader("disk", 0)
        assert leader is not None
        gate.open.clear()
        sent = producer.send("disk", "a")
        eventually(lambda: sum(gate.waiting.values()) == 3)
        cluster.kill_broker(leader)
        cluster.start_broker(leader)
        assert not sent.done()
        gate.open.set()
        assert sent.result(30).offset == 0
        cluster.wait_until_in_sync(timeout_s=30)
        cluster.append("disk", 0, ["b"])
        assert values(cluster, "disk") == ["a", "b"]


def test_where_no_thread_can_be_had_the_caller_waits(tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with begun(tmp_path, gate) as cluster, monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        cluster.append("disk", 0, ["a", "b"])
        assert values(cluster, "disk") == ["a", "b"]
        assert gate.threads == {threading.current_thread().name}


def test_a_quick_disk_needs_no_threads(tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flushing, "_QUICK_S", 3_600.0)
    with begun(tmp_path, gate) as cluster:
        for n in range(5):
            cluster.append("disk", 0, [f"{n}"])
        assert gate.threads == {threading.current_thread().name}
    with replog.Cluster() as cluster:
        monkeypatch.setattr(flushing, "_QUICK_S", -1.0)
        cluster.create_topic("t", flush="ack")
        cluster.append("t", 0, ["in memory"])
        assert flush_threads() == []


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


def test_what_a_flush_raises_ends_the_broker_that_waits_for_it(tmp_path: Path, gate: Gate) -> None:
    """As it does on the caller's own thread: it is opened again from its log, and nobody waits for ever."""
    raised: list[int] = []

    class Mistaken(Fs):
        def fsync(self, fd: int) -> None:  # type: ignore[override]
            if threading.current_thread().name == f"{_NAME} 2" and not raised:
                raised.append(fd)
                raise RuntimeError("a mistake")
            os.fsync(fd)

    with begun(tmp_path, gate, on=lambda broker: Mistaken() if broker == 2 else gate.fs(broker)) as cluster:
        cluster.append("disk", 0, ["a"])
        eventually(lambda: len(raised) == 1)
        cluster.wait_until_in_sync(timeout_s=30)
        cluster.append("disk", 0, ["b"])
        assert values(cluster, "disk") == ["a", "b"]


def test_a_cluster_that_is_dropped_unclosed_leaves_no_threads(tmp_path: Path, gate: Gate) -> None:
    clusters = [begun(tmp_path, gate)]
    clusters[0].append("disk", 0, ["a"])
    assert len(flush_threads()) == 3

    def are_gone() -> bool:
        clusters.clear()
        gc.collect()
        return flush_threads() == []

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
