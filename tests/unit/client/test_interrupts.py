"""Ctrl-C at any line of what a producer does with its batches: each has an outcome, and whoever wants to know it is told once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest
from tests.interrupts import interrupted_at
from tests.unit.client.fake import FakeCluster, FakeDriver, make

from replog.client.client import Client
from replog.client.delivery import Delivery
from replog.errors import Code, ReplogError, TimedOut, Unavailable
from replog.messages import Produce, Produced, ProducedEntry
from replog.runtime.changing import Changing

CALLING = ("run_callbacks", "_call_back", "_call", "<lambda>")


def within(*files: str, names: tuple[str, ...] = ()) -> Callable[[FrameType], bool]:
    def is_there(frame: FrameType) -> bool:
        code = frame.f_code
        return code.co_filename.endswith(tuple(f"/client/{file}" for file in files)) and (not names or code.co_name in names)

    return is_there


def world() -> tuple[FakeCluster, FakeDriver, Client]:
    """Whoever is interrupted under the lock leaves a core that is made anew, as the real drivers have it."""
    cluster, driver, client = make({"t": 1})
    driver.changing = Changing(driver.core.crash)
    client.topics()
    return cluster, driver, client


def refusing(message: Any, broker: int) -> list[Any] | None:
    return [Produced([ProducedEntry(e.request, Code.INVALID_RECORD) for e in message.entries])] if isinstance(message, Produce) else None


@pytest.mark.parametrize(("acks", "refused"), [("all", False), ("all", True), (0, False)])
def test_an_interrupt_at_every_line_that_seals_and_settles_leaves_no_batch_without_an_outcome(acks: Any, refused: bool) -> None:
    line, interrupted, outcomes = 0, True, set()
    while interrupted:
        line += 1
        cluster, _, client = world()
        producer = client.producer(linger_ms=60_000, acks=acks)
        delivery = producer.send("t", "a")
        told: list[Delivery] = []
        delivery.add_done_callback(told.append)
        cluster.override = refusing if refused else None
        interrupted = interrupted_at(line, within("queues.py", "batches.py"), producer._send_open)
        failure: BaseException | None = None
        try:
            producer.flush(timeout_s=5)
        except ReplogError as error:
            failure = error
        assert delivery.done(), line
        assert told == [delivery], line
        assert repr(failure) == repr(delivery._batch.error), line
        if acks and failure is None:
            assert cluster.partition("t").values() == [b"a"], line
        assert producer._writer.buffered == 0
        assert not list(producer._writer.unsettled())
        outcomes.add(failure is None)
        producer.close()
    assert line > 30
    assert outcomes == ({False} if refused else {False, True})


def test_an_interrupt_at_every_line_that_calls_back_costs_nobody_his_call() -> None:
    line, interrupted = 0, True
    while interrupted:
        line += 1
        _, driver, client = world()
        producer = client.producer(linger_ms=60_000)
        told: list[object] = []
        first, second = producer.send("t", "a"), producer.send("t", "b", partition=0)
        for name in ("one", "two"):
            first.add_done_callback(partial(lambda told, name, _: told.append(name), told, name))
        future = second.future()
        interrupted = interrupted_at(line, within("delivery.py", names=CALLING), producer.flush)
        producer.flush()
        assert told == ["one", "two"], line
        assert future.result(0).offset == 1
        assert not driver.core.finished
        producer.close()
    assert line > 20


def test_what_has_an_outcome_keeps_no_headers_and_what_was_interrupted_nothing_at_all() -> None:
    cluster, driver, client = make({"t": 1})
    producer = client.producer(linger_ms=60_000)
    stored = producer.send("t", "a", headers=[("name", b"x" * 1_000)], timestamp_ms=7)
    assert stored.result().timestamp_ms == 7
    cluster.override = refusing
    refused = producer.send("t", "b", headers=[("name", b"x" * 1_000)])
    producer._send_open()
    interrupted = producer.send("t", b"x" * 1_000, key=b"key", headers=[("name", b"x" * 1_000)])
    with driver.lock:
        driver.core.crash(KeyboardInterrupt())
    for delivery in (stored, refused, interrupted):
        batch = delivery._batch
        assert (delivery.done(), batch.count) == (True, 1)
        assert (batch.values, batch.keys, batch.body) == ([], None, None)
        assert batch.rare is not None
        assert batch.rare[0] == []
    assert len(producer._writer.failed) == 2
    with pytest.raises(ReplogError):
        producer.close()


def test_an_interrupt_at_every_line_that_looks_what_has_left_holds_up_nobody() -> None:
    line, interrupted = 0, True
    while interrupted:
        line += 1
        _, driver, client = world()
        producer = client.producer(acks=0, compression=None)
        for _ in range(3):
            producer.send("t", b"x" * 900)
            driver.unsent = {1: 1_500}

        def look(driver: Any = driver, producer: Any = producer) -> None:
            producer.send("t", b"x" * 900)
            with contextlib.suppress(TimedOut):
                producer.flush(timeout_s=0)
            driver.unsent = {}
            producer.flush(timeout_s=0)

        interrupted = interrupted_at(line, within("leaving.py"), look)
        driver.unsent = {}
        with contextlib.suppress(Unavailable):  # a record may be lost by it
            producer.flush(timeout_s=0)
        producer.close(timeout_s=0)
        assert producer._held() == 0, line
    assert line > 30


@pytest.mark.parametrize("acks", ["all", 0])
def test_what_was_sealed_and_not_sent_for_an_interrupt_goes_with_the_next_flush(acks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, _, client = world()
    producer = client.producer(acks=acks)

    def interrupt(sealed: list[Any]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(producer, "_go_all", interrupt)
    with pytest.raises(KeyboardInterrupt):
        producer.send_many("t", ["a", "b"])
    monkeypatch.undo()
    producer.flush(timeout_s=5)
    assert cluster.partition("t").values() == [b"a", b"b"]
    producer.close()
