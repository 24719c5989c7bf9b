"""Where a consumer begins that is told "latest" or a time: brokers elsewhere say so after a while only, and records come meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from attrs import evolve
from tests.unit.client.fake import FakeCluster, FakeDriver

from replog.client.client import Client
from replog.client.consumer import Consumer
from replog.errors import Code, OffsetOutOfRange, UnknownTopicOrPartition
from replog.messages import ListOffsets, Metadata
from replog.records import RecordBatch, encode_records

PATIENCE_MS = 3_000
"""`unanswered_ms`, unless it is given."""


class FarDriver(FakeDriver):
    """Every message takes a while: nothing is answered within the call that asks."""

    def _post(self, to: Any, sender: Any, message: Any) -> None:
        before = len(self.flying)
        super()._post(to, sender, message)
        self.flying[before:] = [(at_ms + 10, *rest) for at_ms, *rest in self.flying[before:]]


def far(topics: dict[str, int], **config: Any) -> tuple[FakeCluster, FarDriver, Client]:
    """A cluster with a record in every partition, and a client that has asked nobody yet."""
    cluster = FakeCluster()
    for topic, partitions in topics.items():
        cluster.create(topic, partitions)
        for number in range(partitions):
            put(cluster, topic, number, "before")
    driver = FarDriver(cluster, **config)
    return cluster, driver, Client(driver)


def put(cluster: FakeCluster, topic: str, number: int, value: str, now_ms: int = 1) -> None:
    """Somebody else appends."""
    cluster.partition(topic, number).append(RecordBatch(encode_records([value], now_ms=now_ms)))


def all_of(consumer: Consumer, timeout_s: float = 5) -> list[str]:
    """What it hands out until nothing more comes."""
    found: list[str] = []
    while records := consumer.poll(timeout_s=timeout_s):
        found += [record.text() for record in records]
    return sorted(found)


def away(cluster: FakeCluster, *partitions: int) -> Callable[[Any, Any], bool]:
    """Drops what asks these partitions where something is; all of them if none is named."""
    identities = {cluster.partition("t", number).identity for number in partitions} or set(cluster.partitions)
    return lambda to, message: isinstance(message, ListOffsets) and any(entry.partition in identities for entry in message.entries)


def took_ms(driver: FakeDriver, call: Callable[[], object]) -> int:
    since_ms = driver.now_ms()
    call()
    return driver.now_ms() - since_ms


def poll_at_once(consumer: Consumer) -> None:
    assert consumer.poll() == []


def poll_for_a_moment(consumer: Consumer) -> None:
    assert consumer.poll(timeout_s=0.001) == []


def poll_while_paused(consumer: Consumer) -> None:
    consumer.pause("t", 0)
    assert consumer.poll() == []
    consumer.resume("t", 0)


def ask_for_one_then_poll(consumer: Consumer) -> None:
    assert consumer.position("t", 1) == 1
    assert consumer.poll() == []


@pytest.mark.parametrize("start", ["latest", datetime(2100, 1, 1, tzinfo=UTC)], ids=["latest", "future"])
@pytest.mark.parametrize("call", [poll_at_once, poll_for_a_moment, poll_while_paused, ask_for_one_then_poll])
def test_what_is_appended_after_the_first_poll_is_handed_out(call: Callable[[Consumer], None], start: Any) -> None:
    cluster, driver, client = far({"t": 3, "u": 1})
    with client.consumer("t", "u", start=start) as consumer:
        assert took_ms(driver, lambda: call(consumer)) < PATIENCE_MS
        for number in range(3):
            put(cluster, "t", number, f"t{number}")
        put(cluster, "u", 0, "u0")
        assert all_of(consumer) == ["t0", "t1", "t2", "u0"]


@pytest.mark.parametrize("position", ["latest", datetime(2100, 1, 1, tzinfo=UTC)], ids=["latest", "future"])
@pytest.mark.parametrize("is_first", [True, False])
def test_what_is_appended_after_a_seek_to_the_end_is_handed_out(position: Any, is_first: bool) -> None:
    cluster, driver, client = far({"t": 2})
    with client.consumer("t", start="earliest") as consumer:
        if not is_first:
            assert all_of(consumer) == ["before", "before"]
        consumer.seek("t", 0, position)
        put(cluster, "t", 0, "after a seek")
        consumer.pause("t", 1)
        consumer.seek_to_end()
        for number in range(2):
            put(cluster, "t", number, f"after both {number}")
        consumer.resume("t", 1)
        assert all_of(consumer) == ["after both 0", "after both 1"]
        consumer.seek("t", 0, position)
        put(cluster, "t", 0, "after another")
        assert took_ms(driver, lambda: consumer.position("t", 0)) == 0
        assert all_of(consumer) == ["after another"]


def test_a_topic_that_is_being_made_is_waited_for() -> None:
    cluster, driver, client = far({"t": 1})

    def makes(message: Any, broker: int) -> list[Any] | None:
        if not isinstance(message, Metadata) or not message.sought:
            return None
        if driver.now_ms() < 1_500:
            return [evolve(cluster.view(message.request), missing=[("new", Code.LEADER_NOT_AVAILABLE, "being made")])]
        if "new" not in cluster.topics:
            cluster.create("new")
        return None

    cluster.override = makes
    with client.consumer("t", "new") as consumer:
        assert consumer.poll() == []
        put(cluster, "new", 0, "the first")
        put(cluster, "t", 0, "after")
        assert all_of(consumer) == ["after", "the first"]


def test_a_topic_that_is_not_there_is_told_by_the_first_poll() -> None:
    cluster, _, client = far({"t": 1})
    with client.consumer("t", "v") as consumer:
        for _ in range(3):
            with pytest.raises(UnknownTopicOrPartition, match="unknown topic 'v'"):
                consumer.poll()
        cluster.create("v")
        assert consumer.poll() == []
        put(cluster, "v", 0, "after")
        assert all_of(consumer) == ["after"]


@pytest.mark.parametrize("start", ["earliest", 0, 1])
def test_nobody_waits_for_a_start_that_is_the_same_at_any_time(start: Any) -> None:
    cluster, driver, client = far({"t": 1})
    with client.consumer("t", start=start) as consumer:
        assert took_ms(driver, consumer.poll) == 0
        put(cluster, "t", 0, "meanwhile")
        assert all_of(consumer) == ["before"] * (start != 1) + ["meanwhile"]
        driver.filter = away(cluster)
        for call in (consumer.seek_to_beginning, lambda: consumer.seek("t", 0, 1), consumer.poll):
            assert took_ms(driver, call) == 0


@pytest.mark.parametrize("config", [{}, {"unanswered_ms": 700}], ids=["3 s", "0.7 s"])
def test_while_a_leader_is_away_polls_wait_once(config: dict[str, int]) -> None:
    cluster, driver, client = far({"t": 2}, **config)
    patience_ms = config.get("unanswered_ms", PATIENCE_MS)
    driver.filter = away(cluster, 0)
    with client.consumer("t") as consumer:
        driver.events = [*[lambda: None] * 8, lambda: put(cluster, "t", 1, "of another")]
        since_ms = driver.now_ms()
        assert [record.text() for record in consumer.poll()] == ["of another"]  # held back until then, for all begin at one moment
        assert driver.now_ms() - since_ms == patience_ms
        for timeout_s in (0, 0, 1.5, 0):
            assert took_ms(driver, lambda timeout_s=timeout_s: consumer.poll(timeout_s=timeout_s)) == timeout_s * 1_000
        put(cluster, "t", 1, "more")
        assert [record.text() for record in consumer.poll(timeout_s=1)] == ["more"]
        for call in (consumer.seek_to_end, lambda: consumer.seek("t", 0, "latest")):  # each asks anew, and waits as long at most
            assert took_ms(driver, call) == patience_ms
            assert took_ms(driver, consumer.poll) == 0
        put(cluster, "t", 0, "below the end")
        driver.filter = None
        assert all_of(consumer, timeout_s=60) == []
        put(cluster, "t", 0, "above")
        assert all_of(consumer) == ["above"]


def test_while_nobody_is_there_polls_wait_once() -> None:
    cluster, driver, client = far({"t": 1})
    cluster.down = {1, 2, 3}
    with client.consumer("t") as consumer:
        assert took_ms(driver, lambda: consumer.poll(timeout_s=1)) == PATIENCE_MS
        assert took_ms(driver, consumer.poll) == 0
        assert took_ms(driver, lambda: consumer.poll(timeout_s=1)) == 1_000
    assert driver.core._ops == {}


def test_partitions_that_are_added_begin_at_their_beginning_without_a_wait() -> None:
    cluster, driver, client = far({"t": 1})
    with client.consumer("t") as consumer:
        assert consumer.poll() == []
        cluster.add_partition("t", 1)
        put(cluster, "t", 1, "first")
        client.topics()
        driver.filter = away(cluster, 1)
        assert took_ms(driver, consumer.poll) == 0
        driver.filter = None
        assert all_of(consumer, timeout_s=60) == ["first"]


def test_what_a_partition_has_failed_with_is_told_in_turns_with_records_of_others_while_a_third_has_no_start() -> None:
    cluster, driver, client = far({"t": 3})
    driver.filter = away(cluster, 2)
    with client.consumer("t") as consumer:
        consumer.seek("t", 0, 77)
        consumer.seek("t", 1, 0)
        with pytest.raises(OffsetOutOfRange):
            consumer.poll()
        assert [record.text() for record in consumer.poll()] == ["before"]
        with pytest.raises(OffsetOutOfRange):
            consumer.poll()
        assert driver.now_ms() - 1_000 < PATIENCE_MS
        consumer.seek("t", 0, 1)
        assert consumer.poll() == []
        assert driver.now_ms() - 1_000 < 2 * PATIENCE_MS  # all in all: the last poll had what was left
        driver.filter = None
        assert all_of(consumer, timeout_s=60) == []


def test_a_start_that_is_refused_is_told_at_once() -> None:
    cluster, driver, client = far({"t": 2})
    with client.consumer("t") as consumer:
        client.topics()
        consumer.pause("t", 0)
        del cluster.partitions[cluster.partition("t", 0).identity]
        cluster.version += 1
        with pytest.raises(UnknownTopicOrPartition):
            consumer.poll()
        assert driver.now_ms() - 1_000 < PATIENCE_MS
        assert consumer.poll() == []
        put(cluster, "t", 1, "after")
        assert all_of(consumer) == ["after"]
