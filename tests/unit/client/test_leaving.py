"""Under acks=0: when records count as gone, beside what others send to the same broker, and who is waited for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.calling import called
from tests.unit.client.fake import FakeCluster, FakeDriver

from replog.client.client import Client
from replog.client.groups import Produces
from replog.client.producer import Producer
from replog.errors import TimedOut, Unavailable

VALUE = b"x" * 900
WAITS = 2_500
"""Bytes that wait for the broker in these tests, always: those of two records, and something else."""


class Ticking(FakeDriver):
    """Time passes in small steps while there are events."""

    def _step(self, until: int | None) -> bool:
        if not self.events:
            return super()._step(until)
        self.events.pop(0)()
        self.clock.advance(10)
        return True


def busy(**options: Any) -> tuple[FakeDriver, Client, Producer]:
    """A broker that takes as much as it is sent, so that something waits for it at any time."""
    cluster = FakeCluster()
    cluster.create("t")
    driver = Ticking(cluster)
    client = Client(driver)
    client.topics()
    producer = client.producer(acks=0, compression=None, **options)
    driver.unsent = {1: WAITS}
    return driver, client, producer


def sending(driver: FakeDriver, send: Callable[[], object], times: int = 20) -> None:
    """Somebody sends a record each time that time passes."""
    driver.events = [send for _ in range(times)]


@pytest.mark.parametrize("end", ["flush", "close"])
def test_who_waits_is_not_held_up_by_what_the_same_producer_sends_meanwhile(end: str) -> None:
    driver, _, producer = busy()
    producer.send("t", VALUE)
    for _ in range(5):  # one after the other: each flush has records of its own to wait for
        producer.send("t", VALUE)
        sending(driver, lambda: producer.send("t", VALUE))
        producer.flush(timeout_s=5)
        assert len(driver.events) == 17, "three of them are more than what waits"
        driver.events = []
    sending(driver, lambda: producer.send("t", VALUE), times=3)
    driver.events.append(driver.unsent.clear)
    getattr(producer, end)()
    assert len(driver.events) == (end == "flush"), "a closed producer has nothing behind the last one"


def test_what_was_sent_before_is_waited_for() -> None:
    driver, client, producer = busy()
    producer.send("t", VALUE)
    producer.send("t", VALUE)
    sending(driver, lambda: producer.send("t", VALUE), times=2)
    with pytest.raises(TimedOut, match="waited 5 s for records sent under acks=0 to leave this process"):
        producer.flush(timeout_s=5)
    other = client.producer(acks=1, compression=None)
    other.send("t", VALUE).result()
    producer.send("t", VALUE)
    driver.unsent = {}
    producer.close(0)


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_nor_by_what_others_send(acks: Any) -> None:
    driver, client, producer = busy()
    other = client.producer(acks=acks, compression=None)
    producer.send("t", VALUE)
    sending(driver, lambda: other.send("t", VALUE))
    producer.close(timeout_s=5)
    assert len(driver.events) == 17
    assert producer._leaving.bytes == 0
    sending(driver, lambda: other.send("t", VALUE))
    assert client.append("t", 0, [VALUE], acks=0, timeout_s=5).base_offset is None
    assert len(driver.events) == 17


def test_room_is_taken_by_what_is_its_own() -> None:
    driver, client, producer = busy(buffer_bytes=2_000, max_block_ms=50)
    other = client.producer(acks=0, compression=None)
    producer.send("t", VALUE)
    producer.send("t", VALUE)
    with pytest.raises(Unavailable, match=r"1[89]\d\d bytes are buffered"):
        producer.send("t", VALUE)
    for _ in range(3):
        other.send("t", VALUE)
    assert producer._held() == 0, "what waits is the other one's"
    producer.send("t", VALUE)
    driver.unsent = {1: 10}
    assert producer._held() == 10, "most of it has left"


def test_only_what_has_not_left_is_looked_for() -> None:
    driver, client, producer = busy()
    other = client.producer(acks=1, compression=None)
    other.send("t", VALUE).result()
    assert "Leaving.look" not in called(lambda: other.send("t", VALUE))
    producer.send("t", VALUE)
    assert "Leaving.look" in called(lambda: producer.send("t", VALUE))
    driver.unsent = {}
    producer.send("t", VALUE)
    assert len(producer._leaving._sent[1].ends) == 1, "of what has left nothing is kept"


def test_after_an_interrupt_nothing_is_waited_for() -> None:
    """What connections had not taken was given up with them."""
    driver, _, producer = busy()
    producer.send("t", VALUE)
    with driver.lock:
        producer._leaving._sent.clear()  # half of a look
        driver.core.crash(KeyboardInterrupt())
    assert producer._held() == 0
    producer.flush(timeout_s=0)
    producer.close(timeout_s=0)


def test_what_may_leave_earlier_is_not_counted_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one turn a batch that is answered can join a message begun before one under acks=0."""
    driver, client, _ = busy()
    kinds = (1, 0, 1, 0)
    monkeypatch.setattr(driver, "run", lambda: None)
    writers = {acks: driver.core.open_writer(acks=acks, idempotent=False, compression=None, batch_bytes=10) for acks in (0, 1)}
    place = driver.core.view.place("t", 0)
    assert place is not None
    produces, given = Produces(1_000), []
    for acks in kinds:
        queue = writers[acks].queue("t", 0)
        batch = queue.begin(0, 0, 1_000)
        batch.add(VALUE)
        queue.seal()
        assert queue.prepare(batch, place.identity)
        before = driver.core.given[1]
        produces.add(batch, place, 1, 0)
        given.append(driver.core.given[1] - before > 900)
    assert [len(message.entries) for _, message in produces] == [2, 2]
    assert given == [True, True, False, True]
    client.close()
