"""A consumer of several topics goes on where it was in one that is not shown for a moment, and begins anew in another one of its name."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve
from tests.unit.client.fake import FakeCluster, make

from replog.client.client import Client
from replog.client.consumer import Consumer
from replog.errors import UnknownTopicOrPartition
from replog.messages import Fetch, ListOffsets, Metadata


def hide(cluster: FakeCluster, client: Client, *topics: str) -> None:
    """Brokers show all but these from now on: rules changed, or the brokers are late."""

    def shown(message: Any, broker: int) -> list[Any] | None:
        if not isinstance(message, Metadata):
            return None
        view = cluster.view(message.request)
        return [evolve(view, topics=[topic for topic in view.topics if topic.topic not in topics])]

    cluster.override = shown
    client.topics()


def lose_sight(cluster: FakeCluster, client: Client, consumer: Consumer) -> None:
    """Of topic "t", until the consumer has said so; then it is seen again."""
    hide(cluster, client, "t")
    with pytest.raises(UnknownTopicOrPartition, match="unknown topic 't'"):
        consumer.poll(timeout_s=5)
    assert consumer.poll(timeout_s=1) == []
    hide(cluster, client)


def test_a_topic_that_is_out_of_sight_for_a_moment_goes_on_where_it_was() -> None:
    cluster, _, client = make({"t": 2, "u": 1})
    consumer = client.consumer("t", "u", start="earliest")
    for number in (0, 1):
        client.append("t", number, [f"{number} before"])
    assert len(consumer.poll()) == 2
    consumer.pause("t", 1)
    lose_sight(cluster, client, consumer)
    for number in (0, 1):
        client.append("t", number, [f"{number} after"])
    assert [r.text() for r in consumer.poll(timeout_s=1)] == ["0 after"]
    assert consumer.poll(timeout_s=1) == []
    consumer.resume("t", 1)
    assert [r.text() for r in consumer.poll(timeout_s=1)] == ["1 after"]


@pytest.mark.parametrize("start", ["latest", "earliest", 1])
def test_a_position_that_was_not_looked_up_is_not_lost_either(start: Any) -> None:
    cluster, _, client = make({"t": 1, "u": 1})
    client.append("t", 0, ["a", "b"])
    consumer = client.consumer("t", "u", start="earliest")
    cluster.override = lambda message, broker: [] if isinstance(message, Fetch | ListOffsets) else None
    assert consumer.poll() == []
    consumer.seek("t", 0, start)
    lose_sight(cluster, client, consumer)
    client.append("t", 0, ["c"])
    expected = {"latest": [], "earliest": ["a", "b", "c"], 1: ["b", "c"]}[start]
    assert [r.text() for r in consumer.poll(timeout_s=1)] == expected
    client.append("t", 0, ["d"])
    assert [r.text() for r in consumer.poll(timeout_s=1)] == ["d"]


def test_seeking_everywhere_includes_what_is_out_of_sight() -> None:
    cluster, _, client = make({"t": 1, "u": 1})
    client.append("t", 0, ["a", "b"])
    consumer = client.consumer("t", "u", start="earliest")
    assert len(consumer.poll()) == 2
    hide(cluster, client, "t")
    with pytest.raises(UnknownTopicOrPartition):
        consumer.poll(timeout_s=5)
    consumer.seek_to_beginning()
    hide(cluster, client)
    assert [r.text() for r in consumer.poll(timeout_s=1)] == ["a", "b"]


def test_seeking_to_the_end_of_what_is_out_of_sight_asks_when_it_is_seen_again() -> None:
    cluster, driver, client = make({"t": 1, "u": 1})
    client.append("t", 0, ["a", "b"])
    consumer = client.consumer("t", "u", start="earliest")
    assert len(consumer.poll()) == 2
    hide(cluster, client, "t")
    with pytest.raises(UnknownTopicOrPartition):
        consumer.poll(timeout_s=5)
    since_ms = driver.now_ms()
    consumer.seek_to_end()
    assert driver.now_ms() == since_ms
    hide(cluster, client)
    client.append("t", 0, ["c"])
    assert consumer.poll(timeout_s=1) == []
    client.append("t", 0, ["d"])
    assert [r.text() for r in consumer.poll(timeout_s=1)] == ["d"]


@pytest.mark.parametrize("times", [1, 2])
def test_a_topic_that_is_made_again_while_it_is_out_of_sight_is_read_from_its_beginning(times: int) -> None:
    cluster, _, client = make({"t": 1, "u": 1})
    client.append("t", 0, ["a", "b"])
    consumer = client.consumer("t", "u", start="earliest")
    assert len(consumer.poll()) == 2
    for _ in range(times - 1):
        lose_sight(cluster, client, consumer)
        assert consumer.poll() == []
    hide(cluster, client, "t")
    with pytest.raises(UnknownTopicOrPartition):
        consumer.poll(timeout_s=5)
    cluster.delete("t")
    cluster.create("t")
    hide(cluster, client)
    client.append("t", 0, ["c", "d", "e"])
    assert [r.text() for r in consumer.poll(timeout_s=1)] == ["c", "d", "e"]
