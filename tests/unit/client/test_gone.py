"""Queues and routes of what is gone are forgotten, without a look at all others for each news."""

from __future__ import annotations

import random
from itertools import count

import pytest
from attrs import evolve
from tests.unit.client.fake import make

from replog.config import TopicConfig
from replog.errors import Unavailable
from replog.messages import ClusterView, PartitionView, TopicView
from replog.model import BrokerInfo
from replog.testing.clock import SeededIds

PARTITIONS = tuple(PartitionView(number, 0, 1, 0, (1,), (), (1,), 0) for number in range(4))
BROKERS = [BrokerInfo(1, 11, ("tcp://host1:1",))]
NAMES = [f"t{number}" for number in range(6)]


class Told:
    """A core that is told of topics: by deltas, and now and then everything."""

    def __init__(self, dice: random.Random) -> None:
        _, self.driver, _ = make()
        self.dice = dice
        self.topics: dict[str, TopicView] = {}
        self.version = 0
        self._ids = count(1)
        self.tell(since=-1)

    def tell(self, since: int, **news: list[object]) -> None:
        view = ClusterView(1, self.version, since, 1, BROKERS, list(self.topics.values()) if since < 0 else [])
        self.driver.core.receive(1, evolve(view, **news), self.driver.now_ms())

    def change(self) -> None:
        """One topic comes, goes, is made anew, or has another number of partitions."""
        name, what = self.dice.choice(NAMES), self.dice.choice(["come", "go", "anew", "size", "nothing"])
        known = self.topics.get(name)
        since, self.version = self.version, self.version + 1
        news: dict[str, list[object]] = {}
        if what == "nothing":
            pass
        elif known is None or what == "anew":
            end = self.dice.randrange(1, 5)
            self.topics[name] = TopicView(name, next(self._ids).to_bytes(16, "big"), TopicConfig(min_isr=1), PARTITIONS[:end], end)
            news["topics"] = [self.topics[name]]
            news["removed_topics"] = [known.topic_id] if known is not None and self.dice.random() < 0.5 else []
        elif what == "go":
            news["removed_topics"] = [self.topics.pop(name).topic_id]
        else:
            end = self.dice.randrange(1, 5)
            self.topics[name] = evolve(known, partitions=PARTITIONS[:end], end=end)
            news["topics"] = [self.topics[name]]
        if self.dice.random() < 0.1:
            self.tell(since=-1)
        else:
            self.tell(since, **news)


@pytest.mark.parametrize("seed", range(30))
def test_a_queue_stays_as_long_as_its_partition_is_there_or_it_has_batches(seed: int) -> None:
    dice = random.Random(seed)
    told = Told(dice)
    driver, view = told.driver, told.driver.core.view  # it is the same one all along
    writer = driver.core.open_writer(acks=-1, idempotent=True, compression=None, batch_bytes=1_000)
    forgotten = 0
    for _ in range(150):
        for _ in range(dice.randrange(3)):
            queue = writer.queue(dice.choice(NAMES), dice.randrange(4))
            if dice.random() < 0.3:
                queue.begin(driver.now_ms(), 0, 1_000).add(b"x")
        for queue in list(writer.queues.values()):
            if queue.has_batches and dice.random() < 0.3:
                queue.crash(Unavailable("settled"))
        routed = {name for name in told.topics if dice.random() < 0.5} | set(writer.routes)
        writer.routes.update(dict.fromkeys(routed))
        before = dict(writer.queues)
        told.change()
        placed = {place for place in before if view.place(*place) is not None}
        assert list(writer.queues) == [place for place, queue in before.items() if place in placed or queue.has_batches]
        assert set(writer.unplaced) == {queue for place, queue in writer.queues.items() if place not in placed}
        assert set(writer.routes) == set(told.topics) & routed
        forgotten += len(before) - len(writer.queues)
    assert forgotten > 20


def test_another_producer_remembers_none_of_them() -> None:
    writer = Told(random.Random(0)).driver.core.open_writer(acks=-1, idempotent=True, compression=None, batch_bytes=1_000)
    writer.queue("unknown", 0)
    assert len(writer.unplaced) == 1
    writer.renew(SeededIds(1))
    assert (writer.queues, writer.unplaced) == ({}, {})
