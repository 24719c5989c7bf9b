"""Futures and callbacks of a Cluster: the outcome comes also where a timer is needed and the application does not call again."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from types import FrameType

import pytest
from tests.interrupts import called_at, interrupted_at
from tests.threads import in_thread

import replog
from replog.runtime import finishing
from replog.testing.eventually import eventually

LONG_MS = 60_000


@pytest.fixture(params=[None, "tcp://127.0.0.1:0"], ids=["alone", "listening"])
def cluster(request: pytest.FixtureRequest) -> Iterator[replog.Cluster]:
    with replog.Cluster(listen=request.param, client_config={"delivery_timeout_ms": 1_500}) as cluster:
        cluster.create_topic("t", min_isr=2)
        yield cluster


def test_asking_a_future_sends_what_lingers(cluster: replog.Cluster) -> None:
    producer = cluster.producer(linger_ms=LONG_MS)
    assert producer.send("t", "a").future().result(10).offset == 0
    assert producer.send("t", "b").future().exception(10) is None


def test_who_only_awaits_a_future_gets_the_outcome(cluster: replog.Cluster) -> None:
    async def send() -> replog.RecordMetadata:
        return await asyncio.wait_for(asyncio.wrap_future(cluster.producer(linger_ms=20).send("t", "a").future()), 10)

    assert asyncio.run(send()).offset == 0


def test_a_callback_comes_without_another_call(cluster: replog.Cluster) -> None:
    called = threading.Event()
    producer = cluster.producer(linger_ms=20)
    producer.send("t", "a").add_done_callback(lambda _: called.set())
    assert called.wait(10)


def test_a_callback_asks_a_future_of_its_own_batch(cluster: replog.Cluster) -> None:
    """Whoever asks is behind whom the future would be settled."""
    told: list[int | None] = []
    delivery = cluster.producer(linger_ms=LONG_MS).send("t", "a")
    delivery.add_done_callback(lambda _: told.append(future.result(10).offset))
    future = delivery.future()
    assert delivery.result(10).offset == 0
    eventually(lambda: told == [0])
    assert future.done()


def test_where_no_thread_can_be_had_it_is_said_once_and_tried_again(
    cluster: replog.Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def lines() -> int:
        return caplog.text.count("no thread can be started (can't start new thread): what was sent has its outcome only")

    def refuse(self: finishing.Finisher) -> None:
        raise RuntimeError("can't start new thread")

    producer = cluster.producer(linger_ms=20)
    for told in (1, 2):
        with monkeypatch.context() as patched:
            patched.setattr(finishing.Finisher, "start", refuse)
            futures = [producer.send("t", str(n)).future() for n in range(3)]
            assert lines() == told
            assert [future.result(10).offset for future in futures] == [4 * told - 4 + n for n in range(3)]
        done = threading.Event()
        producer.send("t", "last").add_done_callback(lambda _, done=done: done.set())  # type: ignore[misc]
        assert done.wait(10)
        eventually(lambda: cluster._embedded.finisher is None)
    assert lines() == 2


def test_as_the_interpreter_exits_nothing_is_said_of_threads(
    cluster: replog.Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(self: finishing.Finisher) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(finishing.Finisher, "start", refuse)
    monkeypatch.setattr(finishing.threading, "main_thread", lambda: threading.Thread())
    assert cluster.producer(linger_ms=20).send("t", "a").future().result(10).offset == 0
    assert "no thread" not in caplog.text


@pytest.mark.parametrize("asks", [True, False])
def test_a_future_fails_when_its_time_is_up(cluster: replog.Cluster, asks: bool) -> None:
    for broker in cluster.brokers[1:]:
        cluster.kill_broker(broker)
    future = cluster.producer().send("t", "a").future()
    if not asks:
        assert concurrent.futures.wait([future], 10).done == {future}
    problem = future.exception(10)
    assert isinstance(problem, replog.ReplogError)


def test_a_future_that_is_late(cluster: replog.Cluster) -> None:
    for broker in cluster.brokers[1:]:
        cluster.kill_broker(broker)
    future = cluster.producer().send("t", "a").future()
    with pytest.raises(replog.TimedOut, match=r"waited 0\.2 s"):
        future.result(0.2)
    with pytest.raises(concurrent.futures.TimeoutError):
        future.exception(-1)


def test_a_future_that_another_thread_cancels_is_waited_for_no_more() -> None:
    with replog.Cluster() as cluster:  # nothing ends the wait but the cancelling
        cluster.create_topic("t", min_isr=2)
        for broker in cluster.brokers[1:]:
            cluster.kill_broker(broker)
        future = cluster.producer().send("t", "a").future()
        thread, outcome = in_thread(lambda: future.result(LONG_MS))
        eventually(lambda: cluster._embedded._pump._waiting)
        assert future.cancel()
        thread.join(10)
        assert isinstance(outcome[0], concurrent.futures.CancelledError)


@pytest.mark.parametrize("ends", ["settled", "closed", "closed by a callback"])
def test_no_thread_is_left(ends: str) -> None:
    before = set(threading.enumerate())
    cluster = replog.Cluster()
    cluster.create_topic("t")
    producer = cluster.producer(linger_ms=20 if ends != "closed" else LONG_MS)
    producer.send("t", "a")
    assert set(threading.enumerate()) == before, "nobody has asked for a future"
    told = threading.Event()
    if ends == "closed by a callback":
        producer.send("t", "a").add_done_callback(lambda _: cluster.close())
    future = producer.send("t", "b").future()
    future.add_done_callback(lambda _: told.set())
    if ends != "closed":
        assert told.wait(10)
        eventually(lambda: set(threading.enumerate()) == before)
    cluster.close()
    assert set(threading.enumerate()) == before
    assert told.is_set()
    assert (future.exception(0) is None) == (ends != "closed")


def in_settling(frame: FrameType) -> bool:
    name, file = frame.f_code.co_name, frame.f_code.co_filename
    ours = name == "settle" and file.endswith("client/delivery.py")
    return ours or (name.startswith("set_") and file.endswith("concurrent/futures/_base.py"))


def let_go(cluster: replog.Cluster) -> None:
    """A trace function may raise where a `with` ends and skip its exit, which no signal can: the lock would stay taken for the close."""
    lock = cluster._embedded.lock
    while lock._is_owned():
        lock.release()


class Lines:
    """One line after the other, as long as it comes to it. Another thread may have settled what this one waits for: then once more, and
    what does not come six times is not there."""

    def __init__(self, first: int) -> None:
        self.line = first
        self.came = False

    def __iter__(self) -> Iterator[int]:
        missed = 0
        while missed < 6:
            self.came = False
            yield self.line
            missed = 0 if self.came else missed + 1
            self.line += self.came


def test_a_future_whose_settling_is_interrupted_anywhere() -> None:
    """Whoever asks once more gets the outcome."""
    lines = Lines(1)
    with replog.Cluster() as cluster:
        cluster.create_topic("t")
        producer = cluster.producer(linger_ms=LONG_MS)
        for sent, line in enumerate(lines):
            delivery = producer.send("t", "a")
            future = delivery.future()
            lines.came = interrupted_at(line, in_settling, partial(future.result, 10))
            let_go(cluster)
            assert delivery.result(10).offset == sent
            assert future.result(10).offset == sent
    assert lines.line > 15


class Alarm(Exception):
    """Of a signal handler, for what takes too long."""


@pytest.mark.parametrize("raised", [KeyboardInterrupt, Alarm])
def test_who_only_has_a_callback_is_told_after_a_signal_has_broken_the_settling_off(raised: type[BaseException]) -> None:
    """With an Exception, too: callbacks of deliveries are guarded against those."""
    lines = Lines(3)  # from the first one within its `try` on

    def begun(frame: FrameType) -> bool:
        return frame.f_code.co_name == "settle" and in_settling(frame)

    def handler() -> None:
        lines.came = True
        raise raised

    with replog.Cluster() as cluster:
        cluster.create_topic("t")
        producer = cluster.producer(linger_ms=LONG_MS)
        for line in lines:
            calls: list[object] = []
            future = producer.send("t", "a").future()
            future.add_done_callback(calls.append)
            with suppress(raised):
                called_at(line, begun, handler, producer.flush)
            let_go(cluster)
            producer.flush()
            assert calls == [future]
    assert lines.line > 8


def test_who_asks_while_a_settling_is_under_way_that_is_then_interrupted() -> None:
    with replog.Cluster() as cluster:
        cluster.create_topic("t")
        future = cluster.producer(linger_ms=LONG_MS).send("t", "a").future()
        asked: list[tuple[threading.Thread, list[object]]] = []

        def handler() -> None:
            asked.append(in_thread(future.result))
            with pytest.raises(replog.TimedOut):
                future.result(0.01)  # whoever does not want to wait
            eventually(lambda: future._waiters)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            called_at(1, lambda frame: frame.f_code.co_name == "set_running_or_notify_cancel", handler, partial(future.result, 10))
        ((thread, outcome),) = asked
        thread.join(10)
        assert [getattr(one, "offset", one) for one in outcome] == [0]


def test_a_cancelled_future_of_which_is_known_already_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    """As after an interrupt in the middle of telling."""
    with replog.Cluster() as cluster:
        cluster.create_topic("t")
        producer = cluster.producer(linger_ms=LONG_MS)
        future = producer.send("t", "a").future()
        assert future.cancel()
        assert not future.set_running_or_notify_cancel()
        producer.flush()
        assert not caplog.records


def test_a_mistake_in_the_settling_of_a_future_is_not_told_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    with replog.Cluster() as cluster:
        cluster.create_topic("t")
        producer = cluster.producer(linger_ms=LONG_MS)
        future = producer.send("t", "a").future()
        future._state = "UNHEARD OF"
        producer.flush()
        producer.flush()
        told = [record.getMessage() for record in caplog.records if record.name == "replog.client"]
        assert set(told) == {"a delivery callback failed"}
        assert len(told) <= 10


def test_who_waits_for_a_future_that_was_cancelled_hears_of_it() -> None:
    with replog.Cluster() as cluster:
        cluster.create_topic("t")
        delivery = cluster.producer(linger_ms=LONG_MS).send("t", "a")
        future = delivery.future()
        assert future.cancel()
        assert delivery.result(10).offset == 0
        assert concurrent.futures.wait([future], 10).done == {future}


def test_a_future_after_an_interrupt_of_another_call(cluster: replog.Cluster) -> None:
    """The client begins anew, and what was on its way has failed: who only awaits it hears of that."""
    future = cluster.producer(linger_ms=LONG_MS).send("t", "a").future()
    told = threading.Event()
    future.add_done_callback(lambda _: told.set())
    with pytest.raises(KeyboardInterrupt), cluster._embedded.lock, cluster._embedded.changing:
        raise KeyboardInterrupt
    assert told.wait(10)
    assert isinstance(future.exception(0), replog.ReplogError)
    assert cluster.producer(linger_ms=20).send("t", "b").future().result(10).offset == 0


def test_the_background_is_not_taken_for_the_application(cluster: replog.Cluster) -> None:
    """A busy application does its own work, and the thread sleeps meanwhile: by this count it knows."""
    producer = cluster.producer(linger_ms=20)
    future = producer.send("t", "a").future()
    calls = cluster._embedded.calls
    assert concurrent.futures.wait([future], 10).done == {future}
    assert cluster._embedded.calls == calls
    cluster.producer(linger_ms=0).send("t", "b")
    assert cluster._embedded.calls > calls
    calls = cluster._embedded.calls
    cluster.wait_until_in_sync()
    assert cluster._embedded.calls > calls


def test_a_future_in_a_forked_child() -> None:
    """The cluster is dead there: nobody waits for it, and no thread tries to."""
    with replog.Cluster() as cluster:
        cluster.create_topic("t")
        delivery = cluster.producer(linger_ms=200).send("t", "a")
        child = os.fork()
        if not child:
            code = 1
            try:
                delivery.future().result(10)
            except replog.UsageError:
                code = threading.active_count() - 1
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert delivery.future().result(10).offset == 0
