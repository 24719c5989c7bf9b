"""What many records fail with together is raised to each of them on its own: what one raise gathers stays with it."""

from __future__ import annotations

import asyncio
import gc
import threading
import traceback
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.client.fake import make

from replog.client.client import Client
from replog.client.delivery import Deliveries, Delivery
from replog.client.offsets import OffsetOp
from replog.client.operations import AT_LATEST
from replog.client.producer import Producer
from replog.errors import Code, InvalidRecord, ReplogError, Unavailable
from replog.messages import Produce, Produced, ProducedEntry
from replog.model import ACKS_ALL

RECORDS = 20


def failed() -> tuple[Client, Producer, Deliveries]:
    """One batch that was refused."""
    cluster, _, client = make({"t": 1})
    cluster.override = lambda message, broker: (
        [Produced([ProducedEntry(e.request, Code.INVALID_RECORD) for e in message.entries])] if isinstance(message, Produce) else None
    )
    producer = client.producer()
    sent = producer.send_many("t", ["x"] * RECORDS)
    assert len({delivery._batch for delivery in sent}) == 1
    return client, producer, sent


async def waited_for(delivery: Delivery) -> object:
    return await asyncio.wrap_future(delivery.future())


def of_one_future(sent: Deliveries) -> list[Callable[[], object]]:
    future = next(iter(sent)).future()
    return [future.result] * RECORDS


ASKED: dict[str, Callable[[Deliveries], list[Callable[[], object]]]] = {
    "a delivery": lambda sent: [delivery.result for delivery in sent],
    "all deliveries": lambda sent: [sent.result] * RECORDS,
    "a future": lambda sent: [delivery.future().result for delivery in sent],
    "one future": of_one_future,
    "asyncio": lambda sent: [lambda delivery=delivery: asyncio.run(waited_for(delivery)) for delivery in sent],  # type: ignore[misc]
}
"""How those learn of their failure, one after the other, whose records were in the batch."""


@pytest.mark.parametrize("how", ASKED)
def test_a_failure_of_many_gathers_no_frames(how: str) -> None:
    _, producer, sent = failed()
    frames, held = [], []

    def ask(one: Callable[[], object]) -> None:
        document = {"what the caller has in hand"}
        held.append(weakref.ref(document))
        with pytest.raises(InvalidRecord) as caught:
            one()
        frames.append(len(traceback.extract_tb(caught.value.__traceback__)))

    asked = ASKED[how](sent)
    for one in asked:
        ask(one)
    gc.collect()
    assert len(frames) == RECORDS
    assert len(set(frames[1:])) == 1
    assert [document() for document in held] == [None] * RECORDS
    producer.close()


@pytest.mark.parametrize("how", [name for name in ASKED if name != "asyncio"])
def test_whoever_handles_a_failure_does_not_see_another_thread_in_it(how: str) -> None:
    _, producer, sent = failed()
    mine, other = ASKED[how](sent)[:2]

    def raised(ask: Callable[[], object], told: Callable[[], object]) -> None:
        with pytest.raises(InvalidRecord) as caught:
            ask()
        before = traceback.format_exception(caught.value)
        caught.value.add_note("of this thread alone")
        told()
        assert traceback.format_exception(caught.value) == [*before, "of this thread alone\n"]

    def elsewhere() -> None:
        thread = threading.Thread(target=raised, args=(other, lambda: None))
        thread.start()
        thread.join()

    raised(mine, elsewhere)
    failure = next(iter(sent)).exception()
    assert (getattr(failure, "__notes__", []), str(failure)) == ([], str(sent.exception()))
    producer.close()


def test_what_a_flush_says_of_its_producer_is_not_said_of_others() -> None:
    """Whatever is under way when a client is interrupted fails with the same words."""
    _, driver, client = make({"t": 1})
    driver.filter = lambda to, message: isinstance(message, (Produce, Produced))
    first, second = client.producer(), client.producer()
    for _ in range(3):
        first.send("t", "a")
    delivery = second.send("t", "b")
    with driver.lock:
        driver.core.crash(KeyboardInterrupt())
    flushed: list[Any] = []
    for producer in (first, second):
        with pytest.raises(Unavailable) as caught:
            producer.flush()
        flushed.append(caught.value)
    assert [getattr(error, "__notes__", []) for error in flushed] == [["2 more batches of this producer failed"], []]
    failure = delivery.exception()
    assert isinstance(failure, ReplogError)
    assert (failure.__traceback__, getattr(failure, "__notes__", [])) == (None, [])


def test_of_what_is_interrupted_together_each_fails_with_an_error_of_its_own() -> None:
    _, driver, client = make({"t": 1})
    client.topics()
    driver.filter = lambda to, message: True
    delivery = client.producer().send("t", "a")
    other = client._appender(ACKS_ALL).queue("t", 0).begin(driver.now_ms(), driver.wall_ms(), 60_000)  # another thread's append
    other.add(b"b")
    asked = [driver.core.submit(OffsetOp("t", 0, AT_LATEST, driver.now_ms() + 60_000), driver.now_ms()) for _ in range(2)]
    driver.events.append(lambda: driver.core.crash(KeyboardInterrupt()))
    with pytest.raises(Unavailable, match="the client was interrupted") as caught:
        client.append("t", 0, ["b"])
    failed = [caught.value, other.error, delivery.exception(), *(op.error for op in asked)]
    assert {(type(error), str(error)) for error in failed} == {(Unavailable, str(caught.value))}
    assert len({id(error) for error in failed}) == 5
    assert [error.__traceback__ for error in failed[1:] if error is not None] == [None] * 4
