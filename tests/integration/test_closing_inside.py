"""`close` and `stop` in a signal handler, which comes into another call of the same thread."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import replog
from replog.ports import Outbox
from replog.runtime.attached import Attached
from replog.runtime.pump import Pump
from replog.runtime.seat import Seat
from replog.testing.eventually import eventually
from replog.transport.tcp import TcpTransport


@pytest.fixture
def on_signal() -> Iterator[Callable[[Callable[[], Any]], None]]:
    """What the handler of SIGUSR1 does."""
    before = signal.getsignal(signal.SIGUSR1)
    yield lambda work: (signal.signal(signal.SIGUSR1, lambda *_: work()), None)[1]
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("listen", [None, "tcp://127.0.0.1:0"])
def test_a_cluster_is_closed_when_the_call_is_over(on_signal: Callable[..., None], tmp_path: Path, listen: str | None) -> None:
    cluster = replog.Cluster(tmp_path, listen=listen).start()
    cluster.create_topic("t")
    on_signal(cluster.close)
    with cluster._embedded.lock:
        signal.raise_signal(signal.SIGUSR1)
        assert not cluster._embedded.closed, "the call goes on with everything open"
    cluster.close()  # waits for the other, if it came first
    with replog.Cluster(tmp_path) as again:
        assert again.topics() == ["t"]


@pytest.mark.parametrize("listen", [None, "tcp://127.0.0.1:0"])
def test_a_signal_in_the_middle_of_an_append(
    on_signal: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listen: str | None
) -> None:
    cluster = replog.Cluster(tmp_path, listen=listen).start()
    cluster.create_topic("t")
    on_signal(cluster.close)
    core = cluster._embedded.core
    tick = type(core).tick

    def interrupted(self: Any, now_ms: int, wall_ms: int) -> None:
        if self is core and threading.current_thread() is threading.main_thread():
            signal.raise_signal(signal.SIGUSR1)
        tick(self, now_ms, wall_ms)

    monkeypatch.setattr(type(core), "tick", interrupted)
    acknowledged: list[Any] = []

    def append() -> None:
        while True:
            acknowledged.append(cluster.append("t", 0, [b"x"]))

    with pytest.raises(replog.ReplogError, match="closed"):
        append()
    cluster.close()
    with replog.Cluster(tmp_path) as again:
        assert len(list(again.read("t"))) >= len(acknowledged)


def test_a_broker_is_stopped_when_the_call_is_over(on_signal: Callable[..., None], tmp_path: Path) -> None:
    broker = replog.Broker(1, listen="tcp://127.0.0.1:0", data=tmp_path / "b", store=f"file://{tmp_path}/store.db").start()
    broker.wait_until_ready()
    on_signal(broker.stop)
    with broker._pump.lock:
        signal.raise_signal(signal.SIGUSR1)
        assert broker._state == "open"
        with pytest.raises(replog.UsageError, match="inside a call of this thread"):
            broker._loop.stop()
    eventually(lambda: broker._state == "stopped")
    with pytest.raises(replog.UsageError, match="stopped"):
        broker.partitions()


@pytest.fixture
def endpoints() -> Iterator[list[str]]:
    with replog.Cluster(brokers=1, listen="tcp://127.0.0.1:0") as cluster:
        cluster.create_topic("t", replication_factor=1, min_isr=1)
        yield cluster.endpoints


def test_a_client_is_closed_when_the_call_is_over(on_signal: Callable[..., None], endpoints: list[str]) -> None:
    client = replog.connect(endpoints)
    on_signal(client.close)
    with client._driver.lock:
        signal.raise_signal(signal.SIGUSR1)
        assert not client._driver.closed
    eventually(lambda: client._driver.closed)


def test_a_client_that_rests_on_its_sockets_is_closed_at_once(
    on_signal: Callable[..., None], endpoints: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = replog.connect(endpoints)
    consumer = client.consumer("t")
    driver: Any = client._driver
    on_signal(client.close)
    wait = TcpTransport.wait

    def interrupted(self: TcpTransport, timeout_s: float) -> list[Any]:
        if timeout_s and self is driver._transport and threading.current_thread() is threading.main_thread():
            signal.raise_signal(signal.SIGUSR1)
        return wait(self, timeout_s)

    monkeypatch.setattr(TcpTransport, "wait", interrupted)
    with pytest.raises(replog.ReplogError, match="closed"):
        consumer.poll(timeout_s=60)
    eventually(lambda: driver.closed and not driver._discarded)


def test_without_another_thread_it_is_refused_and_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with replog.Cluster() as cluster:
        with monkeypatch.context() as patched, cluster._embedded.lock:
            patched.setattr(threading.Thread, "start", none)
            with pytest.raises(replog.UsageError, match="set an Event"):
                cluster.close()
        cluster.create_topic("t")


def test_a_call_that_waits_is_refused_inside_a_run() -> None:
    class Waiting:
        outbox = Outbox()

        def receive(self, sender: Any, message: Any, now_ms: int) -> None:
            pump.wait(lambda: False, None)

        def tick(self, now_ms: int, wall_ms: int) -> None:
            pass

        def deadline_ms(self) -> None:
            return None

    pump = Pump(messages_max=10)
    pump.seat(Seat("a", Waiting()))
    pump.post("a", "go")
    with pytest.raises(replog.UsageError, match="came into another call"):
        pump.run()


def test_what_ends_in_its_own_turn_takes_no_other() -> None:
    attached = Attached(_Loop(), 0, lambda: attached.end(), lambda: 1.0)  # type: ignore[arg-type]
    attached.begin()
    assert attached._timer is None


class _Loop:
    """Of an application, on which nothing happens."""

    def add_reader(self, fd: int, work: Callable[[], None]) -> None:
        pass

    def remove_reader(self, fd: int) -> None:
        pass
