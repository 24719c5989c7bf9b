"""Ctrl-C in a broker that the application runs itself: it goes on, or it is gone with everything it held."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.interrupts import Interrupt

import replog
from replog.broker.broker import Broker as Actor
from replog.runtime.node import Broker
from replog.runtime.store_sessions import StoreSessions
from replog.testing.eventually import eventually

pytestmark = pytest.mark.processes

CONFIG = {"session_ms": 2_000, "heartbeat_ms": 300, "shutdown_timeout_ms": 300}


def broker(tmp_path: Path, *, in_memory: bool = False) -> Broker:
    data = None if in_memory else tmp_path / "broker-1"
    return Broker(1, listen="tcp://127.0.0.1:0", data=data, store=f"file://{tmp_path}/metadata.db", config=CONFIG)


def until(one: Broker, done: Callable[[], bool]) -> None:
    def turn() -> bool:
        one.poll(0.02)
        return done()

    eventually(turn, 60, every_s=0)


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "broker 1" in thread.name]


@pytest.fixture
def ready(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker that this thread polls, with one record."""
    one = broker(tmp_path, in_memory=request.param == "memory")
    until(one, lambda: one.is_ready)

    def work() -> None:
        with replog.connect(one.endpoint) as client:
            client.create_topic("t", replication_factor=1, min_isr=1)
            client.append("t", 0, ["a"])

    other = threading.Thread(target=work)
    other.start()
    until(one, lambda: not other.is_alive())
    try:
        yield one
    finally:
        one.stop(controlled=False)


def die(one: Broker, point: Interrupt, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in an actor, and a second one at a point of what follows."""
    tick = Actor.tick

    def interrupted(actor: Actor, now_ms: int, wall_ms: int) -> None:
        monkeypatch.setattr(Actor, "tick", tick)
        sys.setprofile(point)
        raise KeyboardInterrupt

    monkeypatch.setattr(Actor, "tick", interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):
            until(one, lambda: False)
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("ready", ["files", "memory"], indirect=True)
def test_a_second_interrupt_while_a_broker_is_opened_again(ready: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    counting = Interrupt(None)
    die(ready, counting, monkeypatch)
    chance = random.Random(1)
    for at in [1, counting.calls, *(chance.randrange(2, counting.calls) for _ in range(20))]:
        point = Interrupt(at)
        try:
            until(ready, lambda: ready.is_ready)
            die(ready, point, monkeypatch)
            until(ready, lambda: ready.is_ready)
            assert ready.failure is None
            assert [(each.topic, each.end_offset) for each in ready.partitions()] == [("t", 1)]
        except BaseException as failure:
            failure.add_note(f"interrupted at call {at}: {point.where}")
            raise


@pytest.mark.parametrize("what", ["open", "stop"])
def test_interrupted_while_opening_or_stopping(tmp_path: Path, what: str) -> None:
    """Afterwards, and after a stop that is complete, the folder is free and no thread is left."""

    def work(one: Broker) -> Callable[[], object]:
        return one.open if what == "open" else one.open().stop

    broker(tmp_path).open().stop()
    counting = Interrupt(None)
    counted = broker(tmp_path)
    counting.during(work(counted))
    counted.stop()
    chance = random.Random(what)
    interrupted = 0
    for at in [counting.calls, *(chance.randrange(1, counting.calls + 1) for _ in range(60))]:
        point = Interrupt(at)
        one = broker(tmp_path)
        try:
            interrupted += point.during(work(one))
            one.stop()
            broker(tmp_path).open().stop(controlled=False)
            eventually(lambda: not threads())
        except BaseException as failure:
            failure.add_note(f"interrupted at call {at}: {point.where}")
            raise
    assert interrupted > 40


def test_a_broker_that_could_not_be_opened_leaves_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody stops what was never open."""
    begin = StoreSessions.start

    def begin_and_fail(sessions: StoreSessions) -> None:
        begin(sessions)
        raise MemoryError

    monkeypatch.setattr(StoreSessions, "start", begin_and_fail)
    with pytest.raises(MemoryError):
        broker(tmp_path).open()
    eventually(lambda: not threads())
