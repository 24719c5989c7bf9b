"""What a broker tells its clients of the cluster: merged from the controller's deltas."""

from __future__ import annotations

import pytest
from attrs import evolve

from replog.broker.routing import Routing
from replog.config import TopicConfig
from replog.messages import ClusterView, PartitionView, TopicView

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
    assert [p.partition for p in routing.answer(1, -1, -1).topics[0].partitions] == left
    assert [number for number in range(5) if routing.partition(TOPIC, number)] == left


def test_a_number_that_is_added_again_takes_the_place_of_the_old_one() -> None:
    routing = Routing()
    routing.merge(WHOLE)
    again = evolve(WHOLE.topics[0], partitions=(evolve(PARTITIONS[3], creation=1),), end=4)
    routing.merge(evolve(WHOLE, version=6, since=5, topics=[again]))
    assert [p.creation for p in routing.topics[TOPIC].partitions] == [0, 0, 0, 1]
    assert [found.creation for number in range(5) if (found := routing.partition(TOPIC, number))] == [0, 0, 0, 1]


def test_what_a_partial_view_does_not_name_stays_as_it_was() -> None:
    routing = Routing()
    routing.merge(WHOLE)
    other = evolve(WHOLE.topics[0], topic="other", topic_id=b"o" * 16)
    assert routing.merge(evolve(WHOLE, controller_epoch=2, version=1, topics=[other], is_partial=True))
    assert [topic.topic for topic in routing.answer(1, -1, -1).topics] == ["other", "t"]
    assert routing.answer(1, -1, -1).is_partial
    assert routing.partition(TOPIC, 0) == PARTITIONS[0]
    assert not routing.answer(1, 2, 1).is_partial, "of an answer without news it says nothing"
    again = evolve(WHOLE.topics[0], topic_id=b"n" * 16, partitions=PARTITIONS[:1], end=1)
    routing.merge(evolve(WHOLE, controller_epoch=2, version=2, topics=[again], is_partial=True))
    assert [topic.topic_id for topic in routing.answer(1, -1, -1).topics] == [b"n" * 16, b"o" * 16]
    assert routing.partition(TOPIC, 0) is None, "another topic has its name"
    routing.merge(evolve(WHOLE, controller_epoch=2, version=3, topics=[again]))
    assert [topic.topic_id for topic in routing.answer(1, -1, -1).topics] == [b"n" * 16]
    assert not routing.answer(1, -1, -1).is_partial


def test_partitions_go_with_their_topic() -> None:
    routing = Routing()
    routing.merge(WHOLE)
    assert routing.merge(evolve(WHOLE, version=6, since=5, topics=[], removed_topics=[TOPIC]))
    assert routing.partition(TOPIC, 0) is None
    routing.merge(evolve(WHOLE, version=7))
    assert routing.partition(TOPIC, 0) == PARTITIONS[0]
    routing.merge(evolve(WHOLE, version=8, topics=[]))
    assert routing.partition(TOPIC, 0) is None
