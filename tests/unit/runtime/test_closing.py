"""A client that is closed says which records nobody will hear of: how many, in the log and as a warning, and each once."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, cast

import pytest
from tests.threads import in_thread
from tests.unit.client.fake import FakeDriver, make

import replog
from replog.client.client import Client
from replog.client.producer import Producer
from replog.errors import ReplogError, TimedOut, Unavailable
from replog.messages import Produced
from replog.runtime.closing import Closing
from replog.testing.eventually import eventually


def drop_produced(driver: FakeDriver) -> None:
    """Nobody is answered."""
    driver.filter = lambda to, message: isinstance(message, Produced)


def close(driver: FakeDriver) -> list[str]:
    """As drivers do; the warnings."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with driver.lock:
            driver.closed = True
            closing = Closing(driver.core, "Client")
        closing.tell()
    assert all(one.filename == __file__ for one in said), "the line of whoever closes"
    return [str(one.message) for one in said]


def ready(**options: Any) -> tuple[FakeDriver, Client]:
    _, driver, client = make({"t": 2}, delivery_timeout_ms=30_000, **options)
    client.topics()
    return driver, client


def test_it_says_how_many_were_not_sent_are_unknown_and_had_failed(caplog: pytest.LogCaptureFixture) -> None:
    driver, client = ready()
    drop_produced(driver)
    producer, other = client.producer(), client.producer(linger_ms=60_000)
    producer.send_many("t", ["x"] * 7)
    driver.pass_time(40_000)  # these have failed
    producer.send_many("t", ["x"] * 5)
    other.send_many("t", ["x"] * 3)
    (said,) = close(driver)
    assert said == (
        "a Client was closed, and nobody was told what became of 15 records of its producers: 3 were not sent, 5 were sent, "
        "but whether they were stored is unknown, 7 had failed before; call flush() or use `with`"
    )
    assert [(one.name, one.levelname, one.getMessage()) for one in caplog.records] == [("replog.client", "WARNING", said)]
    for one in (producer, other):  # who asks afterwards is told all the same
        with pytest.raises(Unavailable, match="the client was closed before this Producer"):
            one.flush()


def test_what_was_said_is_not_said_again_by_producers_that_are_dropped() -> None:
    driver, client = ready()
    drop_produced(driver)
    producers = [client.producer(linger_ms=linger_ms) for linger_ms in (0, 60_000)]
    for producer in producers:
        producer.send("t", "x")
    del producer
    assert len(close(driver)) == 1
    producers.clear()  # an error, if it warned
    gc.collect()


def test_what_a_dropped_producer_has_said_is_not_said_again() -> None:
    driver, client = ready()
    drop_produced(driver)
    producers = [client.producer()]
    producers[0].send("t", "x")
    with pytest.warns(ResourceWarning, match=r"dropped with 1 records \(1 batches\) not flushed"):
        producers.clear()
    assert len(driver.core._writers) == 1, "it is under way"
    assert close(driver) == []


def test_what_an_interrupted_close_has_not_said_the_producer_says() -> None:
    driver, client = ready()
    producers = [client.producer(linger_ms=60_000)]
    producers[0].send("t", "x")
    driver.closed = True
    Closing(driver.core, "Client")
    with pytest.warns(ResourceWarning, match="1 records that have failed"):
        producers.clear()


def settled(client: Client, producer: Producer) -> None:
    producer.flush()


def asked(client: Client, producer: Producer) -> None:
    producer.send("t", "x").exception()


def with_a_callback(client: Client, producer: Producer) -> None:
    producer.send("t", "x").add_done_callback(lambda _: None)


def with_a_future(client: Client, producer: Producer) -> None:
    next(iter(producer.send_many("t", ["x"] * 9))).future()


def left_by_an_interrupt(client: Client, producer: Producer) -> None:
    with suppress(KeyboardInterrupt), producer:  # it notes how many it leaves
        producer.send("t", "x")
        raise KeyboardInterrupt


def appended(client: Client, producer: Producer) -> None:
    with suppress(TimedOut):
        client.append("t", 0, ["x"], timeout_s=1)


def unused(client: Client, producer: Producer) -> None:
    """Nothing."""


QUIET: list[Callable[[Client, Producer], None]] = [
    settled, asked, with_a_callback, with_a_future, left_by_an_interrupt, appended, unused,
]  # fmt: skip


@pytest.mark.parametrize("act", QUIET)
def test_nothing_is_said_where_somebody_was_told(act: Callable[[Client, Producer], None], caplog: pytest.LogCaptureFixture) -> None:
    driver, client = ready()
    producer = client.producer()
    producer.send("t", "stored").result()
    drop_produced(driver)
    act(client, producer)
    assert close(driver) == []
    assert not caplog.records


WAITS: dict[str, Callable[[Producer], object]] = {
    "flush": lambda producer: (producer.send("t", "x"), producer.flush()),
    "close": lambda producer: (producer.send("t", "x"), producer.close()),
    "result": lambda producer: producer.send("t", "x").result(),
    "many": lambda producer: producer.send_many("t", ["x"] * 9).result(),
    "append": lambda producer: producer._client.append("t", 0, ["x"]),
}


@pytest.mark.parametrize("waits", WAITS)
def test_who_waits_meanwhile_is_told_and_nothing_is_said(waits: str) -> None:
    """On another thread, or in the one that a signal handler closes in."""
    driver, client = ready()
    drop_produced(driver)
    producer = client.producer()
    said: list[str] = []
    driver.events = [lambda: said.extend(close(driver))]
    with pytest.raises(Unavailable):
        WAITS[waits](producer)
    assert (driver.closed, said) == (True, [])


def test_who_has_stopped_waiting_is_told_no_more() -> None:
    driver, client = ready()
    drop_produced(driver)
    producer = client.producer()
    delivery = producer.send("t", "x")
    for wait in (delivery.result, producer.flush, producer.close):
        with pytest.raises(TimedOut):
            wait(0.1)
    (said,) = close(driver)
    assert "of 1 records" in said


def test_the_child_of_a_fork_says_nothing_of_what_its_parent_has_sent() -> None:
    driver, client = ready()
    drop_produced(driver)
    producer = client.producer()
    delivery = producer.send("t", "x")

    class Forked:
        def wait(self, done: Any, timeout_s: float | None) -> None:  # by a thread that there is not in the child
            assert producer._writer.awaited == [[delivery._batch]]
            driver.core.after_fork()
            assert producer._writer.awaited == []

    producer._writer.wait_for(cast(Any, Forked()), [delivery._batch], None)
    producer.send("t", "the child's")
    (said,) = close(driver)
    assert "of 1 records" in said


# ------------------------------------------------------------------------------------------------------------------- real drivers


@pytest.fixture(params=["connect", "Cluster"])
def opened(request: pytest.FixtureRequest) -> Iterator[tuple[replog.Cluster, replog.Client]]:
    """A cluster of one broker with the topic "t", and a client of it, which the test closes."""
    listen = "tcp://127.0.0.1:0" if request.param == "connect" else None
    cluster = replog.Cluster(brokers=1, listen=listen).start()
    cluster.create_topic("t", replication_factor=1, min_isr=1)
    yield cluster, replog.connect(cluster.endpoints) if listen else cluster
    cluster.close()


def leave(client: replog.Client, error: Exception | None = None) -> None:
    """A block in which somebody sends, and whose end does not know of the producer."""
    with client:
        producer = client.producer(linger_ms=60_000)
        for n in range(5):
            producer.send("t", f"{n}")
        if error is not None:
            raise error


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == "replog.client" and one.levelname == "WARNING"]


def test_whoever_leaves_the_block_of_a_client_hears_of_its_producers(
    opened: tuple[replog.Cluster, replog.Client], caplog: pytest.LogCaptureFixture
) -> None:
    _, client = opened
    match = f"a {type(client).__name__} was closed, .* 5 records of its producers: 5 were not sent; call flush"
    with pytest.warns(ResourceWarning, match=match) as warned:
        leave(client)
    assert [one.filename for one in warned] == [__file__]
    assert logged(caplog) == [str(warned[0].message)]


def test_an_exception_that_leaves_the_block_is_not_hidden(
    opened: tuple[replog.Cluster, replog.Client], caplog: pytest.LogCaptureFixture
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ZeroDivisionError):
            leave(opened[1], ZeroDivisionError())
    assert "of 5 records of its producers" in logged(caplog)[0]
    assert opened[1]._driver.closed


def test_where_warnings_are_errors_everything_is_closed_before_it_is_raised(opened: tuple[replog.Cluster, replog.Client]) -> None:
    _, client = opened
    producer = client.producer(linger_ms=60_000)
    delivery = producer.send("t", "x")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        closing, outcome = in_thread(client.close)  # in which nothing is being handled: tests that interrupt at each line leave that behind
        closing.join(30)
        client.close()
    assert isinstance(outcome[0], ResourceWarning)
    assert "1 records" in str(outcome[0])
    assert isinstance(delivery.exception(), ReplogError)


def test_a_thread_that_waits_while_the_client_is_closed_is_told(
    opened: tuple[replog.Cluster, replog.Client], caplog: pytest.LogCaptureFixture
) -> None:
    cluster, client = opened
    producer = client.producer()
    producer.send("t", "stored").result()
    cluster.kill_broker(1)
    producer.send("t", "x")
    flushing, outcome = in_thread(producer.flush)
    eventually(lambda: producer._writer.awaited)
    client.close()
    flushing.join(30)
    assert isinstance(outcome[0], ReplogError)
    assert logged(caplog) == []
