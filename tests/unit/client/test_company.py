"""Where an acknowledgement waits for disks, few records wait for company: only while a batch is under way, and no longer than that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve
from tests.unit.client.fake import FakeCluster, FakeDriver, make

from replog.client.batches import Batch
from replog.client.client import Client
from replog.client.producer import Producer
from replog.config import TopicConfig
from replog.errors import TimedOut
from replog.model import ACKS_ALL, ACKS_LEADER, ACKS_NONE

ROOM = 10_000
"""Of a batch."""


def durable(flush: str = "ack", partitions: int = 1, **options: Any) -> tuple[FakeCluster, FakeDriver, Client]:
    """A topic "t", on disks that are waited for."""
    cluster, driver, client = make({}, **options)
    cluster.create("t", partitions, flush=flush)
    client.topics()
    return cluster, driver, client


def known(client: Client, **options: Any) -> Producer:
    """A producer of which the leader has stored a batch: one that it does not know yet is alone under way."""
    producer = client.producer(**options)
    producer.send("t", body(999_999)).result()
    return producer


def resume(driver: FakeDriver) -> None:
    """Let brokers go on with what they were sent."""
    driver.resume()
    driver.run()


def counts(cluster: FakeCluster) -> list[int]:
    return [batch.count for batch in cluster.partition("t").log if not batch.to_bytes().count(b"999999")]


def values(cluster: FakeCluster) -> list[int]:
    return [number for value in cluster.partition("t").values() if (number := int(value[:6])) != 999_999]


def body(number: int, size: int = 100) -> bytes:
    return f"{number:06}".ljust(size).encode()


@pytest.mark.parametrize(
    ("flush", "acks", "idempotent", "expected"),
    [
        ("ack", ACKS_ALL, True, 1),
        ("ack", ACKS_LEADER, True, 1),
        ("ack", ACKS_ALL, False, 1),
        ("ack", ACKS_NONE, True, 2**31),
        ("os", ACKS_ALL, True, 5),
        ("interval", ACKS_ALL, True, 5),
        ("os", ACKS_ALL, False, 1),
        ("os", ACKS_NONE, True, 2**31),
    ],
)
def test_how_many_batches_are_under_way_before_few_records_wait(flush: str, acks: int, idempotent: bool, expected: int) -> None:
    _, driver, _ = durable(flush)
    writer = driver.core.open_writer(acks=acks, idempotent=idempotent, compression=None, batch_bytes=ROOM, linger_ms=0)
    assert writer.eager_max("t") == writer.queue("t", 0).eager_max == expected
    assert writer.eager_max("another") == writer.max_in_flight, "of which nothing is known yet"


@pytest.mark.parametrize(
    ("under_way", "size", "goes"),
    [
        (0, 1, True),
        (0, ROOM, True),
        (1, 1, False),
        (1, ROOM // 2 - 1, False),
        (1, ROOM // 2, True),
        (4, ROOM // 2, True),
        (5, ROOM // 2, False),
        (5, ROOM, False),
    ],
)
def test_what_goes_at_once(under_way: int, size: int, goes: bool) -> None:
    _, _, client = durable()
    queue = client.producer(batch_bytes=ROOM)._writer.queue("t", 0)
    batch = Batch(queue, 0, 0, 0, 1_000)
    queue.batches.extend([batch] * under_way)
    batch.size = size
    assert queue.is_eager(batch) == goes
    queue.batches.clear()


def test_one_after_the_other_each_goes_at_once() -> None:
    cluster, driver, client = durable()
    with client.producer() as producer:
        before = driver.now_ms()
        for number in range(5):
            producer.send("t", body(number))
        assert driver.now_ms() == before
        assert counts(cluster) == [1] * 5, "nothing of the partition was under way any more"


@pytest.mark.parametrize(("flush", "sizes"), [("ack", [1, 63]), ("os", [1, 1, 1, 1, 1, 59])])
def test_what_comes_while_a_batch_is_under_way_is_the_next(flush: str, sizes: list[int]) -> None:
    cluster, driver, client = durable(flush)
    producer = known(client, compression=None)
    cluster.paused = {1}
    heard: list[int] = []
    for number in range(64):
        producer.send("t", body(number)).add_done_callback(lambda _, number=number: heard.append(number))  # type: ignore[misc]
    assert counts(cluster) == []
    resume(driver)
    assert counts(cluster) == sizes, "it goes as soon as the first is answered, and nobody had to call for it"
    assert values(cluster) == list(range(64))
    producer.close()
    assert heard == list(range(64))


@pytest.mark.parametrize("how", ["send", "send_many"])
def test_half_a_batch_does_not_wait(how: str) -> None:
    cluster, driver, client = durable()
    producer = known(client, batch_bytes=ROOM, compression=None)
    cluster.paused = {1}
    if how == "send":
        for number in range(500):
            producer.send("t", body(number))
    else:
        for number in range(0, 500, 10):
            producer.send_many("t", [body(each) for each in range(number, number + 10)])
    assert [batch.sequence >= 0 for batch in producer._writer.unsettled()].count(True) == 5, "as many as may be under way"
    resume(driver)
    producer.close()
    assert values(cluster) == list(range(500))
    first = 1 if how == "send" else 10
    assert counts(cluster)[0] == first
    assert all(41 <= count <= 60 for count in counts(cluster)[1:5]), "half full"
    assert max(counts(cluster)) == 83


ENDS: dict[str, Callable[[Producer, Any], object]] = {
    "result": lambda producer, last: last.result(),
    "flush": lambda producer, last: producer.flush(),
    "close": lambda producer, last: producer.close(),
}


@pytest.mark.parametrize("end", ENDS)
def test_whoever_waits_has_it_sent_beside_what_is_under_way(end: str) -> None:
    cluster, driver, client = durable()
    producer = known(client)
    cluster.paused = {1}
    producer.send("t", body(0))
    last = producer.send("t", body(1))
    under_way: list[int] = []

    def look() -> None:
        under_way.append(sum(batch.flying is not None for batch in producer._writer.queue("t", 0).batches))
        driver.resume()

    driver.events.append(look)
    ENDS[end](producer, last)
    assert under_way == [2]
    assert values(cluster) == [0, 1]
    producer.close()


@pytest.mark.parametrize("how", ["send", "send_many"])
def test_without_a_key_a_record_passes_over_a_partition_in_which_it_would_wait(how: str) -> None:
    cluster, driver, client = durable(partitions=3)
    producer = client.producer(compression=None)
    for number in range(3):
        producer.send("t", body(999_999), partition=number).result()
    cluster.paused = {1}  # who leads partition 0
    for number in range(12):
        if how == "send":
            producer.send("t", body(number))
        else:
            producer.send_many("t", [body(number)])
    stored = [[int(value[:6]) for value in cluster.partition("t", number).values()][1:] for number in range(3)]
    under_way = producer._writer.queue("t", 0)
    assert len(under_way.batches) == 1
    assert under_way.open is None, "nothing waits beside what the slow one has"
    assert stored[0] == []
    assert sum(map(len, stored)) == 11
    assert abs(len(stored[1]) - len(stored[2])) <= 1, "in turn"
    driver.resume()
    producer.close()


def test_where_a_record_waits_in_every_partition_they_are_taken_in_turn() -> None:
    cluster, driver, client = durable(partitions=3)
    producer = client.producer(batch_bytes=ROOM, compression=None)
    for number in range(3):
        producer.send("t", body(999_999), partition=number).result()
    cluster.paused = {1, 2, 3}
    for number in range(300):
        producer.send("t", body(number))
    under_way = [len(producer._writer.queue("t", number).batches) for number in range(3)]
    assert max(under_way) - min(under_way) <= 1 < min(under_way), "half a batch goes, then the next has its turn"
    driver.resume()
    producer.close()
    assert sorted(int(value[:6]) for number in range(3) for value in cluster.partition("t", number).values()[1:]) == list(range(300))


def test_no_more_partitions_are_looked_at_than_a_batch_can_pay_for() -> None:
    _, _, client = durable(partitions=40)
    producer = client.producer(compression=None)
    route = producer._find_route("t")
    before = route.turn
    for queue in route.queues:
        queue.eager_max = 0
    assert route.next_sticky() is route.queues[(before + 1) % 40]
    route.queues[(before + 1 + 17) % 40].eager_max = 1
    assert route.next_sticky() is route.queues[(before + 2) % 40]
    assert route.next_sticky() is route.queues[(before + 18) % 40]


def test_under_acks_0_nothing_waits() -> None:
    cluster, _, client = durable()
    with client.producer(acks=0) as producer:
        for number in range(20):
            producer.send("t", body(number))
        assert counts(cluster) == [1] * 20


def test_a_topic_that_is_altered_is_treated_so_from_the_next_view_on() -> None:
    cluster, _, client = durable("os")
    producer = client.producer()
    producer.send("t", body(0)).result()
    for flush, expected in (("ack", 1), ("os", 5), ("ack", 1)):
        topic_id, config = cluster.topics["t"]
        cluster.topics["t"] = topic_id, evolve(config, flush=flush)
        cluster.version += 1
        client.topics()
        producer.send("t", body(1)).result()
        assert producer._writer.queue("t", 0).eager_max == expected
    assert TopicConfig().flush == "os"


def test_what_waits_for_company_is_given_up_in_time() -> None:
    cluster, driver, client = durable(delivery_timeout_ms=30_000)
    cluster.paused = {1, 2, 3}
    producer = client.producer()
    first, second = producer.send("t", body(0)), producer.send("t", body(1))
    assert producer._writer.queue("t", 0).open is not None
    began = driver.now_ms()
    with pytest.raises(TimedOut, match="unknown"):
        first.result()
    driver.wait(second.done, None)
    with pytest.raises(TimedOut, match="never sent"):
        second.result()
    assert driver.now_ms() - began == 30_000
    assert producer._writer.buffered == 0


def test_a_full_buffer_sends_what_waits_for_company() -> None:
    cluster, driver, client = durable(buffer_bytes=2_000)
    cluster.paused = {1}
    producer = client.producer()
    driver.events.append(driver.resume)
    for number in range(100):
        producer.send("t", body(number))
    producer.close()
    assert values(cluster) == list(range(100))


def test_after_a_change_of_leaders_everything_comes_in_order() -> None:
    cluster, driver, client = durable()
    cluster.paused = {1}
    producer = client.producer()
    for number in range(30):
        producer.send("t", body(number))
    cluster.move("t", 0, 2)
    resume(driver)
    producer.flush()
    assert values(cluster) == list(range(30))
    assert len(counts(cluster)) <= 3
