"""What the cluster keeps up with each change, so that no change costs a look at everything, against the same counted from scratch."""

from __future__ import annotations

import random

import pytest
from attrs import evolve

from replog.config import TopicConfig
from replog.controller.changes import (
    DeletionGone,
    DeletionSet,
    Due,
    MoveWished,
    MoveWishGone,
    Parked,
    Settled,
    StateGone,
    StateSet,
    Topic,
    TopicGone,
    TopicSet,
)
from replog.controller.cluster import Cluster
from replog.metadata import layout
from replog.model import Assignment, PartitionId, PartitionState

BROKERS = (1, 2, 3, 4)


class Changes:
    """Changes as the store brings them, at random: of topics by six names, made anew, reshaped, moved and deleted."""

    def __init__(self, seed: int, cluster: Cluster) -> None:
        self._dice = random.Random(seed)
        self._cluster = cluster
        self._ids = 0

    def _assignment(self, creation: int = 0) -> Assignment:
        replicas = tuple(self._dice.sample(BROKERS, 2))
        original = tuple(self._dice.sample(BROKERS, 2)) if self._dice.random() < 0.3 else ()
        return Assignment(replicas, creation=creation, original=original)

    def _topic(self) -> Topic:
        """A new one, perhaps of a name that is taken; or one that is there, with other partitions."""
        known = self._dice.choice([None, *self._cluster.topics.values()])
        if known is None:
            self._ids += 1
            assignments = {number: self._assignment() for number in range(self._dice.randrange(1, 4))}
            name = f"t{self._dice.randrange(6)}"
            return Topic(name, self._ids.to_bytes(16, "big"), TopicConfig(min_isr=1), assignments)
        count = self._dice.randrange(1, 5)
        assignments = {
            n: self._assignment(self._dice.randrange(2)) if self._dice.random() < 0.5 else known.assignments.get(n, self._assignment())
            for n in range(count)
        }
        return evolve(known, assignments=assignments, version=known.version + 1)

    def next(self) -> list[object]:
        topics = list(self._cluster.topics.values())
        kind = self._dice.randrange(9)
        if not topics or kind < 2:
            return [TopicSet(self._topic())]
        topic = self._dice.choice(topics)
        partition = self._dice.choice(list(topic.identities()))
        wish = MoveWished(partition, layout.reassigned_path(topic.topic, partition.partition), self._dice.randrange(3), (1, 2))
        return [
            [TopicGone(topic.topic_id)],
            [StateSet(partition, PartitionState(leader=1, leader_epoch=0, isr=(1,)))],
            [StateGone(partition)],
            [wish],
            [MoveWishGone(partition)],
            [DeletionSet(topic.topic, topic.topic_id, 0)] if self._dice.random() < 0.5 else [DeletionGone(topic.topic_id)],
            [self._dice.choice([Parked, Due, Settled])((partition,))],
        ][kind - 2]


def existing(cluster: Cluster) -> list[tuple[PartitionId, Assignment]]:
    return [(topic.identity(number), one) for topic in cluster.topics.values() for number, one in topic.assignments.items()]


@pytest.mark.parametrize("seed", range(20))
def test_what_is_kept_is_what_would_be_counted(seed: int) -> None:
    cluster = Cluster()
    changes = Changes(seed, cluster)
    most = 0
    for _ in range(400):
        for change in changes.next():
            cluster.apply(change)  # type: ignore[arg-type]
        there = existing(cluster)
        assert cluster.names == {topic.topic: topic_id for topic_id, topic in cluster.topics.items()}
        assert cluster.partitions_total == len(there)
        for broker_id in BROKERS:
            assert cluster.on_broker(broker_id) == sorted(partition for partition, one in there if broker_id in one.replicas)
        assert set(cluster.moving) == {partition for partition, one in there if one.original}
        identities = {partition for partition, _ in there}
        for kept in (cluster.states, cluster.wishes, cluster.held):
            assert set(kept) <= identities
        most = max(most, len(there))
    assert most >= 8
