"""A partition that a producer is given and the client has not heard of: somebody may have added it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.client.fake import FakeDriver, make, metadata_asked

from replog.client.producer import Producer
from replog.errors import TimedOut, UnknownTopicOrPartition, UsageError
from replog.messages import Metadata

BACKOFF_MS = 20


def by_send(producer: Producer, partition: Any) -> None:
    """One record."""
    producer.send("t", "x", partition=partition)


def by_send_many(producer: Producer, partition: Any) -> None:
    """Two."""
    producer.send_many("t", ["x", "y"], partition=partition)


def by_send_many_with_keys(producer: Producer, partition: Any) -> None:
    """Two that have keys."""
    producer.send_many("t", ["x", "y"], keys=["k", None], partition=partition)


HOW = pytest.mark.parametrize("how", [by_send, by_send_many, by_send_many_with_keys])
How = Callable[[Producer, Any], None]


def later(driver: FakeDriver) -> None:
    """The pause between two questions is over."""
    driver.pass_time(BACKOFF_MS)


@HOW
def test_a_partition_that_somebody_has_added_is_sent_to_at_once(how: How) -> None:
    cluster, _, client = make({"t": 1})
    client.topics()
    with client.producer() as producer:
        producer.send("t", "first")
        cluster.add_partition("t", 1)
        how(producer, 1)
    assert cluster.partition("t", 1).values()[0] == b"x"


@HOW
def test_one_that_is_not_there_is_refused_and_found_once_it_is(how: How) -> None:
    cluster, driver, client = make({"t": 2})
    with client.producer() as producer:
        with pytest.raises(UnknownTopicOrPartition, match="topic 't' has no partition 2; it has 0, 1"):
            how(producer, 2)
        cluster.add_partition("t", 2)
        later(driver)
        how(producer, 2)
    assert cluster.partition("t", 2).values()[0] == b"x"


def test_who_names_a_wrong_one_without_end_asks_now_and_then() -> None:
    _, driver, client = make({"t": 1})
    client.topics()
    asked = metadata_asked(driver)
    with client.producer() as producer:
        for _ in range(10):
            for number in range(1, 1_001):
                with pytest.raises(UnknownTopicOrPartition):
                    producer.send("t", "x", partition=number)
            later(driver)
        assert len(asked) == 10
        for number in range(100):
            with pytest.raises(UnknownTopicOrPartition):
                producer.send_many("t", ["x"], partition=7 + number)
    assert len(asked) == 11


@HOW
def test_a_question_that_nobody_answers_is_no_refusal(how: How) -> None:
    cluster, driver, client = make({"t": 1})
    client.topics()
    cluster.add_partition("t", 1)
    cluster.paused = {1, 2, 3}
    started = driver.now_ms()
    with client.producer(max_block_ms=1_500) as producer:
        with pytest.raises(TimedOut, match=r"waited 1.5 s for news of t-1"):
            how(producer, 1)
        assert driver.now_ms() - started == 1_500
        driver.resume()
        how(producer, 1)
    assert cluster.partition("t", 1).values()[0] == b"x"


@HOW
def test_a_producer_that_never_blocks_has_asked_for_its_next_try(how: How) -> None:
    cluster, driver, client = make({"t": 1})
    client.topics()
    cluster.add_partition("t", 1)
    cluster.paused = {1, 2, 3}
    started = driver.now_ms()
    with client.producer(max_block_ms=0) as producer:
        for _ in range(3):
            with pytest.raises(UnknownTopicOrPartition, match="topic 't' has no partition 1; it has 0"):
                how(producer, 1)
        assert driver.now_ms() == started
        driver.resume()
        how(producer, 1)
    assert cluster.partition("t", 1).values()[0] == b"x"


@HOW
def test_a_topic_that_is_gone_is_sought_itself(how: How) -> None:
    """With `auto_create_topics` that makes it, as without a partition."""
    cluster, driver, client = make({"t": 1})
    client.topics()
    cluster.delete("t")
    sought: list[list[str]] = []

    def note(to: Any, message: Any) -> bool:
        if isinstance(message, Metadata):
            sought.append(message.sought)
        return False

    driver.filter = note
    with client.producer() as producer, pytest.raises(UnknownTopicOrPartition, match="unknown topic 't'"):
        how(producer, 1)
    assert sought == [[], ["t"]]


@HOW
@pytest.mark.parametrize("partition", [-1, 2**31, "0", 0.0, True])
def test_what_is_no_number_of_a_partition_is_refused_without_a_question(how: How, partition: Any) -> None:
    _, driver, client = make({"t": 2})
    client.topics()
    asked = metadata_asked(driver)
    with client.producer() as producer, pytest.raises(UsageError):
        how(producer, partition)
    assert asked == []


def test_one_that_is_removed_while_a_thread_was_about_to_use_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, driver, client = make({"t": 2})
    with client.producer() as producer:
        producer.send("t", "a", partition=1)
        find, removed = producer._find_place, []

        def another_was_quicker(topic: str, partition: int | None) -> Any:
            route = find(topic, partition)
            if not removed:
                removed.append(cluster.partitions.pop(cluster.partition("t", 1).identity))
                cluster.version += 1
                driver.core.receive(1, cluster.view(), driver.now_ms())
            return route

        monkeypatch.setattr(producer, "_find_place", another_was_quicker)
        with pytest.raises(UnknownTopicOrPartition, match="topic 't' has no partition 1; it has 0"):
            producer.send_many("t", ["x"], partition=1)
    assert removed[0].values() == [b"a"]
