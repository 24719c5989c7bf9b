"""Ctrl-C anywhere: whatever was acknowledged stays, the cluster goes on, and so does the next one on the same folder.

The interrupt is raised at the n-th call of a function of the library, for a few hundred seeded n: on one thread, without a
clock, so that each run is the same.
"""

from __future__ import annotations

import contextlib
import inspect
import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.integration.interrupts import Interrupt
from tests.interrupts import at_every_line, interrupted_at

import replog
from replog.broker.broker import Broker
from replog.config import BrokerConfig
from replog.errors import Unavailable, UnknownTopicOrPartition, UsageError
from replog.log import directory, lock
from replog.log.directory import FileLogDirectory
from replog.runtime import embedded_broker, embedded_brokers, flushing, folder, undoing


class Session:
    """What one user does: every record has its own number, and what was acknowledged is remembered."""

    def __init__(self, cluster: replog.Cluster) -> None:
        self.cluster = cluster
        self.sent = 0
        self.acknowledged: list[str] = []
        self.producer = cluster.producer()

    def next(self) -> str:
        self.sent += 1
        return f"record {self.sent}"

    def append(self) -> None:
        value = self.next()
        self.cluster.append("t", 0, [value], timeout_s=30)
        self.acknowledged.append(value)

    def produce(self) -> None:
        values = [self.next() for _ in range(3)]
        deliveries = [self.producer.send("t", value) for value in values]
        for value, delivery in zip(values, deliveries, strict=True):
            delivery.result(timeout_s=30)
            self.acknowledged.append(value)

    def read(self) -> None:
        list(self.cluster.read("t"))

    def fail_over(self) -> None:
        leader = self.cluster.describe("t").partitions[0].leader
        if leader is not None:
            self.cluster.kill_broker(leader)
        self.append()

    def come_back(self) -> None:
        for broker in (1, 2, 3):
            if broker not in self.cluster.brokers:
                self.cluster.start_broker(broker, timeout_s=30)

    def create_and_delete(self) -> None:
        self.cluster.create_topic("other", partitions=2, exist_ok=True)
        self.cluster.append("other", 1, ["x"])
        self.cluster.delete_topic("other")

    def restore(self) -> None:
        """As the next turn wants to find it."""
        self.come_back()
        if "other" in self.cluster.topics():
            with contextlib.suppress(UnknownTopicOrPartition):  # its deletion had begun
                self.cluster.delete_topic("other", timeout_s=30)

    def check(self, cluster: replog.Cluster | None = None) -> None:
        """Everything acknowledged is there once, in order; what was interrupted is there once or not at all."""
        found = [record.text() for record in (cluster or self.cluster).read("t")]
        assert len(set(found)) == len(found)
        known = set(self.acknowledged)
        assert [value for value in found if value in known] == self.acknowledged


WORK: dict[str, list[Callable[[Session], None]]] = {
    "append": [Session.append],
    "produce": [Session.produce],
    "read": [Session.read],
    "failover": [Session.fail_over, Session.come_back],
    "topics": [Session.create_and_delete],
}


@pytest.mark.parametrize("name", list(WORK))
def test_interrupted_anywhere(data: Path | None, name: str) -> None:
    interrupt_anywhere(data, name)


@pytest.mark.parametrize("name", ["append", "produce", "failover"])
def test_interrupted_anywhere_while_threads_flush(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flushing, "_QUICK_S", -1.0)
    interrupt_anywhere(tmp_path, name, flush="ack")
    assert not [one.name for one in threading.enumerate() if one.name.startswith("replog cluster flushes")]


def interrupt_anywhere(data: Path | None, name: str, **topic: Any) -> None:
    """Some turns of one kind of work, each of them interrupted somewhere."""
    chance = random.Random(name)
    turns = 60 if data is None else 40
    with replog.Cluster(data) as cluster:
        cluster.create_topic("t", **topic)
        session = Session(cluster)
        session.append()

        counting = Interrupt(None)
        for work in WORK[name]:
            counting.during(lambda work=work: work(session))  # type: ignore[misc]
        interrupted = 0
        for turn in range(turns):
            point = Interrupt(chance.randrange(1, counting.calls + 1))
            try:
                for work in WORK[name]:
                    if point.during(lambda work=work: work(session)):  # type: ignore[misc]
                        interrupted += 1
                        break
                session.restore()
                session.append()
                session.produce()
                session.check()
                if turn % 10 == 0:
                    cluster.wait_until_in_sync(timeout_s=30)
            except BaseException as failure:
                failure.add_note(f"turn {turn}, interrupted at call {point.at}: {point.where}")
                raise
        cluster.wait_until_in_sync(timeout_s=30)
        assert cluster.brokers == [1, 2, 3]
        assert interrupted > turns * 0.7
        with contextlib.suppress(Unavailable):  # what was interrupted, and nobody asked about
            session.producer.close()
    if data is not None:
        with replog.Cluster(data) as reopened:
            session.check(reopened)
            reopened.wait_until_in_sync(timeout_s=30)
            assert reopened.append("t", 0, ["goes on"]).base_offset is not None


def test_no_call_that_is_interrupted_keeps_the_lock() -> None:
    """Its thread would not notice, for it may take the lock again; every other one would wait for ever."""

    def in_client(frame: FrameType) -> bool:
        code = frame.f_code
        if code.co_flags & inspect.CO_GENERATOR:
            return False  # an exception in what cleans it up leads nowhere
        return "replog/client/" in code.co_filename or code.co_filename.endswith(("runtime/changing.py", "runtime/pump.py"))

    with replog.Cluster() as cluster:
        cluster.create_topic("t")

        def once(number: int) -> bool:
            interrupted = interrupted_at(number, in_client, lambda: cluster.append("t", 0, ["a"]), ("call",))
            assert not cluster._embedded.lock._is_owned(), number
            return interrupted

        assert at_every_line(once) > 50
        assert cluster.append("t", 0, ["a"]).base_offset is not None


@pytest.mark.parametrize("turn", range(25))
def test_interrupted_while_opening_and_closing(tmp_path: Path, turn: int) -> None:
    """Opening undoes itself, closing can be repeated: the folder is free either way, and nothing is lost."""
    chance = random.Random(turn)
    data = tmp_path / "data"
    with replog.Cluster(data) as cluster:
        cluster.create_topic("t")
        cluster.append("t", 0, ["a", "b"])

    def open_and_close() -> None:
        replog.Cluster(data).start().close()

    counting = Interrupt(None)
    counting.during(open_and_close)
    point = Interrupt(chance.randrange(1, counting.calls + 1))
    opened = replog.Cluster(data)
    try:
        point.during(lambda: opened.start().close())
        opened.close()
        with replog.Cluster(data) as cluster:
            assert [record.text() for record in cluster.read("t")] == ["a", "b"]
            cluster.wait_until_in_sync(timeout_s=30)
    except BaseException as failure:
        failure.add_note(f"interrupted at call {point.at}: {point.where}")
        raise


def test_an_interrupted_append_says_that_its_outcome_is_unknown() -> None:
    """Others who waited in the same actor hear so too, and nobody hangs."""
    with replog.Cluster() as cluster:
        cluster.create_topic("t")
        producer = cluster.producer(linger_ms=60_000)
        waiting = producer.send("t", "lingers")
        cluster._embedded._pump.repair_first(lambda: cluster._embedded._client_died(KeyboardInterrupt()))
        with pytest.raises(Unavailable, match="interrupted"):
            waiting.result(timeout_s=30)
        assert producer.send("t", "next").result(timeout_s=30).offset == 0
        producer.close()  # what failed was reported already


def test_a_second_interrupt_while_a_broker_is_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it comes, the next call opens the broker: nothing has its folder but what the exception still had in hand."""
    near = {
        directory.__file__: {"__init__", "_take_lock", "close"},
        lock.__file__: {"take", "release"},
        folder.__file__: {"open_directory"},
        embedded_brokers.__file__: {"_start", "_directory", "_session", "_open_again"},
        embedded_broker.__file__: {"__init__", "take_seats", "stop", "_release"},
        undoing.__file__: {"undo", "later", "finished"},
    }
    dying, tick = [False], Broker.tick

    def dies(broker: Broker, now_ms: int, wall_ms: int) -> None:
        if dying and dying.pop():
            raise KeyboardInterrupt
        tick(broker, now_ms, wall_ms)

    monkeypatch.setattr(Broker, "tick", dies)
    with replog.Cluster(tmp_path / "data") as cluster:
        cluster.create_topic("t")
        reopening, left, points = False, 1, 0

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal left, reopening
            name = frame.f_code.co_name
            reopening = reopening or name == "_open_again"
            if not reopening or name not in near.get(frame.f_code.co_filename, ()):
                return None
            left -= event == "return"
            if not left:
                raise KeyboardInterrupt
            return trace

        while points == 0 or left <= 0:
            reopening, left, points = False, points + 1, points + 1
            dying[:] = [True]
            sys.settrace(trace)
            try:
                with contextlib.suppress(KeyboardInterrupt):
                    cluster.append("t", 0, ["a"])
            finally:
                sys.settrace(None)
            assert cluster.brokers == [1, 2, 3]
        assert points > 12
        cluster.append("t", 0, ["b"])
        cluster.wait_until_in_sync()


def test_a_broker_whose_folder_is_in_use_for_a_while_is_opened_by_a_later_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    attempts, tick = 0, Broker.tick

    def refuses(self: folder.ClusterFolder, broker_id: int, limits: BrokerConfig, *, listens: bool) -> FileLogDirectory:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise UsageError("log directory is in use")
        return opens(self, broker_id, limits, listens=listens)

    def dies(broker: Broker, now_ms: int, wall_ms: int) -> None:
        monkeypatch.setattr(Broker, "tick", tick)
        raise KeyboardInterrupt

    opens = folder.ClusterFolder.open_directory
    with replog.Cluster(tmp_path / "data") as cluster:
        cluster.create_topic("t")
        monkeypatch.setattr(folder.ClusterFolder, "open_directory", refuses)
        monkeypatch.setattr(Broker, "tick", dies)
        with pytest.raises(KeyboardInterrupt):
            cluster.append("t", 0, ["a"])
        assert len(cluster._embedded.running) == 2
        assert len(cluster.brokers) == 2
        assert cluster.brokers == [1, 2, 3]
        assert attempts == 3
        cluster.wait_until_in_sync()
        assert not cluster._embedded._reopening.due(cluster._embedded.stopped)
    assert caplog.text.count("could not be opened again") == 1


@pytest.mark.parametrize("again", [True, False])
def test_what_a_start_has_left_half_done_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool) -> None:
    """By the next start, or by the end of the cluster."""
    left: list[embedded_broker.EmbeddedBroker] = []
    takes = embedded_broker.EmbeddedBroker.take_seats

    def interrupted(self: undoing.Undoing, number: int) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    def refuses(self: embedded_broker.EmbeddedBroker, died: Callable[[BaseException], None]) -> None:
        takes(self, died)
        left.append(self)
        monkeypatch.setattr(undoing.Undoing, "undo", interrupted)
        raise UsageError("it takes its seats in vain")

    data = tmp_path / "data"
    with replog.Cluster(data) as cluster:
        cluster.kill_broker(2)
        monkeypatch.setattr(embedded_broker.EmbeddedBroker, "take_seats", refuses)
        with pytest.raises(KeyboardInterrupt):
            cluster.start_broker(2)
        if again:
            cluster.start_broker(2)
            assert cluster.brokers == [1, 2, 3]
    assert [one._released for one in left] == [True]
    with replog.Cluster(data) as cluster:
        assert cluster.brokers == [1, 2, 3]


def test_closing_unlocks_a_directory_that_an_interrupt_kept_from_everybody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[FileLogDirectory] = []

    def interrupted(*arguments: Any, **options: Any) -> FileLogDirectory:
        kept.append(FileLogDirectory(*arguments, **options))
        raise KeyboardInterrupt

    with replog.Cluster(tmp_path / "data") as cluster:
        cluster.kill_broker(2)
        with monkeypatch.context() as patched:
            patched.setattr(folder, "FileLogDirectory", interrupted)
            with pytest.raises(KeyboardInterrupt):
                cluster.start_broker(2)
    with replog.Cluster(tmp_path / "data") as cluster:
        assert cluster.brokers == [1, 2, 3]
    assert len(kept) == 1
