"""What a broker tells its clients of the cluster: merged from the controller's deltas."""

from __future__ import annotations

import pytest
from attrs import evolve

from replog.broker.routing import Routing
from replog.config import TopicConfig
from replog.messages import ClusterView, Metadata, PartitionView, TopicView

TOPIC = b"t" * 16
PARTITIONS = tuple(PartitionView(number, 0, 1, 0, (1,), (), (1,), 0) for number in range(4))
WHOLE = ClusterView(1, 5, -1, 1, [], [TopicView("t", TOPIC, TopicConfig(min_isr=1), PARTITIONS, 4)])


@pytest.mark.parametrize(("end", "left"), [(-1, [0, 1, 2, 3]), (4, [0, 1, 2, 3]), (2, [0, 1]), (1, [0])])
def test_partitions_beyond_the_end_of_their_topic_are_gone(end: int, left: list[int]) -> None:
    routing = Routing()
    assert routing.merge(WHOLE)
    shrunk = evolve(WHOLE.topics[0], partitions=PARTITIONS[:1], end=end)
    assert routing.merge(evolve(WHOLE, version=6, since=5, topics=[shrunk]))
    assert [p.partition for p in routing.topics[TOPIC].partitions] == left
    assert [p.partition for p in routing.answer(Metadata(1, -1, -1)).topics[0].partitions] == left
    assert [number for number in range(5) if routing.partition(TOPIC, number)] == left


def test_a_number_that_is_added_again_takes_the_place_of_the_old_one() -> None:
    routing = Routing()
    routing.merge(WHOLE)
    again = evolve(WHOLE.topics[0], partitions=(evolve(PARTITIONS[3], creation=1),), end=4)
    routing.merge(evolve(WHOLE, version=6, since=5, topics=[again]))
    assert [p.creation for p in routing.topics[TOPIC].partitions] == [0, 0, 0, 1]
    assert [found.creation for number in range(5) if (found := routing.partition(TOPIC, number))] == [0, 0, 0, 1]


def names(routing: Routing) -> list[tuple[str, bytes]]:
    return [(topic.topic, topic.topic_id) for topic in routing.answer(Metadata(1, -1, -1)).topics]


def test_a_hidden_topic_stays_as_it_was_and_no_other() -> None:
    routing = Routing()
    other = evolve(WHOLE.topics[0], topic="other", topic_id=b"o" * 16)
    routing.merge(evolve(WHOLE, topics=[*WHOLE.topics, other]))
    assert routing.merge(evolve(WHOLE, controller_epoch=2, version=1, topics=[], hidden=["t", "never seen"]))
    assert names(routing) == [("t", TOPIC)]
    assert routing.answer(Metadata(1, -1, -1)).hidden == ["never seen", "t"]
    assert routing.partition(TOPIC, 0) == PARTITIONS[0]
    assert (routing.answer(Metadata(1, 2, 1)).since, routing.answer(Metadata(1, 2, 1)).hidden) == (1, [])
    sought = routing.answer(Metadata(1, 2, 1, ["t"]))
    assert (sought.since, sought.topics) == (-1, WHOLE.topics), "others may not know it"
    again = evolve(WHOLE.topics[0], topic_id=b"n" * 16, partitions=PARTITIONS[:1], end=1)
    routing.merge(evolve(WHOLE, controller_epoch=2, version=2, since=1, topics=[again]))
    assert names(routing) == [("t", b"n" * 16)], "that one was deleted unseen, and another has its name"
    assert routing.partition(TOPIC, 0) is None
    routing.merge(evolve(WHOLE, controller_epoch=2, version=3, topics=[again]))
    assert (names(routing), routing.answer(Metadata(1, -1, -1)).hidden) == ([("t", b"n" * 16)], [])
    assert routing.answer(Metadata(1, 2, 3, ["t"])).since == 3


def test_partitions_go_with_their_topic() -> None:
    routing = Routing()
    routing.merge(WHOLE)
    assert routing.merge(evolve(WHOLE, version=6, since=5, topics=[], removed_topics=[TOPIC]))
    assert routing.partition(TOPIC, 0) is None
    routing.merge(evolve(WHOLE, version=7))
    assert routing.partition(TOPIC, 0) == PARTITIONS[0]
    routing.merge(evolve(WHOLE, version=8, topics=[]))
    assert routing.partition(TOPIC, 0) is None
