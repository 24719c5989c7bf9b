"""A producer that nobody has any more: what nobody was told of it is said once, and nothing keeps it in memory."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.client.fake import FakeCluster, FakeDriver, make, metadata_asked

from replog.client import producer as producing
from replog.client.producer import Producer
from replog.errors import Code, InvalidRecord, TimedOut
from replog.messages import Produce, Produced, ProducedEntry


def refuse_everything(cluster: FakeCluster) -> None:
    def refuse(message: Any, broker: int) -> list[Any] | None:
        if not isinstance(message, Produce):
            return None
        return [Produced([ProducedEntry(entry.request, Code.INVALID_RECORD) for entry in message.entries])]

    cluster.override = refuse


def dropped(producers: list[Producer]) -> list[str]:
    """What is said as it is dropped."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        producers.clear()
        gc.collect()
    return [str(one.message) for one in said if one.category is ResourceWarning]


def test_a_dropped_producer_says_how_many_records_have_failed_and_why() -> None:
    cluster, _, client = make({"t": 1})
    refuse_everything(cluster)
    producers = [client.producer()]
    for _ in range(3):
        producers[0].send("t", "x")
    producers[0].send_many("t", ["x"] * 4)
    (said,) = dropped(producers)
    assert "7 records that have failed (InvalidRecord: " in said
    assert said.endswith("of which nobody was told; call flush() or use `with`")


def test_it_says_both_of_what_has_failed_and_of_what_was_not_flushed() -> None:
    cluster, _, client = make({"t": 2})
    refuse_everything(cluster)
    producers = [client.producer(linger_ms=10_000)]
    producers[0].send("t", "x", partition=0)
    producers[0].send("t", "x", partition=0)
    producers[0]._send_open()
    producers[0].send("t", "x", partition=1)
    (said,) = dropped(producers)
    assert "dropped with 1 records (1 batches) not flushed and 2 records that have failed" in said


def fails(call: Callable[[], object]) -> None:
    with pytest.raises(InvalidRecord):
        call()


TOLD: dict[str, Callable[[Producer], object]] = {
    "result": lambda producer: fails(producer.send("t", "x").result),
    "exception": lambda producer: producer.send("t", "x").exception(),
    "many": lambda producer: producer.send_many("t", ["x"] * 9).exception(),
    "flush": lambda producer: (producer.send("t", "x"), fails(producer.flush)),
    "future": lambda producer: producer.send("t", "x").future().exception(),
    "callback": lambda producer: producer.send("t", "x").add_done_callback(lambda _: None),
}


@pytest.mark.parametrize("told", TOLD)
@pytest.mark.parametrize("linger_ms", [0, 1_000])
def test_nothing_is_said_of_what_somebody_was_told(told: str, linger_ms: int) -> None:
    cluster, driver, client = make({"t": 1})
    refuse_everything(cluster)
    producers = [client.producer(linger_ms=linger_ms)]
    TOLD[told](producers[0])
    driver.pass_time(2_000)
    assert not list(producers[0]._writer.unsettled())
    assert dropped(producers) == []


def test_failures_that_were_not_kept_are_counted_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producing, "_FAILED_MAX", 2)
    cluster, _, client = make({"t": 1})
    refuse_everything(cluster)
    producers = [client.producer()]
    sent = [producers[0].send_many("t", ["x"] * 3) for _ in range(10)]
    assert len(producers[0]._writer.failed) < 5
    sent[7].exception()
    sent[8].exception()
    sent[8].exception()  # again
    next(iter(sent[6])).add_done_callback(lambda _: None)
    sent.clear()
    (said,) = dropped(producers)
    assert "21 records that have failed" in said


def test_failures_that_were_not_kept_are_told_by_a_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producing, "_FAILED_MAX", 2)
    cluster, _, client = make({"t": 1})
    refuse_everything(cluster)
    producers = [client.producer()]
    for _ in range(10):
        producers[0].send("t", "x")
    fails(producers[0].flush)
    assert dropped(producers) == []


def test_a_forgotten_failure_with_a_callback_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producing, "_FAILED_MAX", 2)
    cluster, driver, client = make({"t": 1})
    refuse_everything(cluster)
    producers = [client.producer(linger_ms=1)]
    for _ in range(10):
        producers[0].send("t", "x").add_done_callback(lambda _: None)
        driver.pass_time(1)
    assert len(producers[0]._writer.failed) < 5
    producers[0].send("t", "x").exception()
    driver.core.finished.clear()
    assert dropped(producers) == []


def test_one_whose_making_was_broken_off_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    _, driver, client = make({"t": 1})

    def interrupt(**_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(driver.core, "open_writer", interrupt)
    with pytest.raises(KeyboardInterrupt):
        client.producer()
    gc.collect()  # what `__del__` raises fails the test


def test_the_copy_of_a_forked_child_says_nothing() -> None:
    """A `Cluster` is closed there, without a word: its records are the parent's."""
    _, driver, client = make({"t": 1})
    producers = [client.producer(linger_ms=10_000)]
    producers[0].send("t", "x")
    driver.closed, producers[0]._pid = True, -1
    assert dropped(producers) == []


# ---------------------------------------------------------------------------------------------------------- what is left in memory


def left(driver: FakeDriver) -> int:
    """How many producers the core still knows."""
    assert driver.core._timers.deadline_ms() is None
    gc.collect()
    return len(driver.core._writers)


def test_of_a_producer_that_is_closed_no_timer_is_left() -> None:
    _, driver, client = make({"t": 1, "u": 1})
    with client.producer() as producer:
        for topic in ("t", "u"):
            producer.send(topic, "x")
    del producer
    assert left(driver) == 0


def test_many_that_were_closed_are_not_looked_at_again() -> None:
    _, driver, client = make({"t": 1})
    for _ in range(1_000):
        with client.producer() as producer:
            producer.send("t", "x")
    gc.collect()
    assert len(driver.core._writers) < 100


def test_for_one_that_goes_on_no_timer_is_set_with_each_batch() -> None:
    _, driver, client = make({"t": 1})
    with client.producer() as producer:
        for _ in range(50):
            producer.send("t", "x").result()
        assert driver.core._timers._serial < 10, "so many were ever set"


def test_what_is_answered_after_it_was_closed_leaves_none_either() -> None:
    cluster, driver, client = make({"t": 1})
    client.topics()
    producer = client.producer()
    cluster.paused = {1}
    producer.send("t", "x")
    with pytest.raises(TimedOut):
        producer.close(0.1)
    del producer
    asked = metadata_asked(driver)
    driver.resume()
    driver.run()
    assert cluster.partition("t").values() == [b"x"]
    assert (left(driver), asked) == (0, [])


def test_of_one_that_was_dropped_none_is_left_after_the_next_metadata() -> None:
    _, driver, client = make({"t": 1})
    for _ in range(5):
        client.producer().send("t", "x").result()
    client.topics()
    assert left(driver) == 0


@pytest.mark.parametrize("repeated", [False, True])
def test_what_is_under_way_when_it_is_closed_is_stored_once_and_then_nothing_is_left(repeated: bool) -> None:
    """A producer that is still trying keeps its timers, its id and its sequences, until the last batch is settled."""
    cluster, driver, client = make({"t": 1}, request_timeout_ms=500)
    client.topics()
    lost: list[Any] = []

    def lose(to: Any, message: Any) -> bool:
        if isinstance(message, Produced if repeated else Produce):
            lost.append(message)
        return bool(lost) and lost[-1] is message

    producer = client.producer()
    driver.filter = lose
    producer.send("t", "x")
    with pytest.raises(TimedOut):
        producer.close(0.1)
    del producer
    assert len(driver.core._writers) == 1
    driver.filter = None
    driver.pass_time(3_000)
    assert cluster.partition("t").values() == [b"x"]
    assert len(lost) == 1
    client.topics()
    assert left(driver) == 0
