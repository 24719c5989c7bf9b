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


def test_partitions_go_with_their_topic() -> None:
    routing = Routing()
    routing.merge(WHOLE)
    assert routing.merge(evolve(WHOLE, version=6, since=5, topics=[], removed_topics=[TOPIC]))
    assert routing.partition(TOPIC, 0) is None
    routing.merge(evolve(WHOLE, version=7))
    assert routing.partition(TOPIC, 0) == PARTITIONS[0]
    routing.merge(evolve(WHOLE, version=8, topics=[]))
    assert routing.partition(TOPIC, 0) is None
