"""What a broker tells its clients of the cluster: merged from the controller's deltas."""

from __future__ import annotations

import random
from itertools import count

import pytest
from attrs import evolve

from replog.broker import recent
from replog.broker.routing import Routing
from replog.client.view import NEWS, STALE, View
from replog.config import TopicConfig
from replog.messages import ClusterView, Metadata, PartitionView, TopicView
from replog.model import BrokerInfo

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


# -------------------------------------------------------------------------------------------------------- what has changed


def topic(number: int, *partitions: PartitionView) -> TopicView:
    return TopicView(f"t{number}", bytes([number]) * 16, TopicConfig(min_isr=1), partitions or PARTITIONS[:1], len(partitions) or 1)


def many(count: int) -> Routing:
    """A broker that was told of so many topics, at version 5."""
    routing = Routing()
    routing.merge(evolve(WHOLE, brokers=[BrokerInfo(1, 1), BrokerInfo(2, 1)], topics=[topic(n) for n in range(count)]))
    return routing


def test_a_client_hears_of_what_has_changed_since_however_much_there_is() -> None:
    routing = many(100)
    for version, delta in enumerate(
        [
            {"topics": [topic(200)]},
            {"brokers": [BrokerInfo(3, 1)]},
            {"topics": [topic(7, *PARTITIONS[:2])], "removed_topics": [bytes([9]) * 16]},
            {"removed_brokers": [2]},
        ],
        start=6,
    ):
        nothing = ClusterView(1, version, version - 1, 1, [], [])
        assert routing.merge(evolve(nothing, **delta))
    for since, topics, gone, brokers, away in [
        (5, ["t7", "t200"], [bytes([9]) * 16], [3], [2]),
        (6, ["t7"], [bytes([9]) * 16], [3], [2]),
        (7, ["t7"], [bytes([9]) * 16], [], [2]),
        (8, [], [], [], [2]),
        (9, [], [], [], []),
    ]:
        said = routing.answer(Metadata(1, 1, since))
        assert (said.since, said.version) == (since, 9)
        assert [one.topic for one in said.topics] == topics
        assert (said.removed_topics, [one.broker_id for one in said.brokers], said.removed_brokers) == (gone, brokers, away)


@pytest.mark.parametrize(
    ("asked", "is_whole"),
    [
        (Metadata(1, 1, 5), False),
        (Metadata(1, 1, 4), True),  # before what is remembered
        (Metadata(1, 1, 7), True),  # of another broker, which knows more
        (Metadata(1, 0, 5), True),
        (Metadata(1, 1, -1), True),
        (Metadata(1, 1, 5, ["t200"]), False),
        (Metadata(1, 1, 5, ["unknown"]), False),
        (Metadata(1, 1, 5, ["t200", "t3"]), True),  # whoever seeks t3 lacks it, and it has not changed
        (Metadata(1, 1, 6, ["t3"]), False),
    ],
)
def test_everything_is_shown_to_whom_what_has_changed_is_not_enough(asked: Metadata, is_whole: bool) -> None:
    routing = many(10)
    routing.merge(ClusterView(1, 6, 5, 1, [], [topic(200)]))
    said = routing.answer(asked)
    assert said.since == (-1 if is_whole else asked.since)
    assert len(said.topics) == (11 if is_whole else 1 if asked.since == 5 else 0)


def test_while_topics_are_hidden_whoever_is_behind_is_shown_everything() -> None:
    routing = many(3)
    routing.merge(evolve(WHOLE, version=6, topics=[topic(0)], hidden=["t1"]))
    routing.merge(ClusterView(1, 7, 6, 1, [], [topic(5)]))
    said = routing.answer(Metadata(1, 1, 6))
    assert (said.since, [one.topic for one in said.topics], said.hidden) == (-1, ["t0", "t1", "t5"], ["t1"])
    assert routing.answer(Metadata(1, 1, 7)).since == 7


def test_a_topic_made_anew_takes_the_place_of_the_one_that_had_its_name() -> None:
    routing, client = many(2), View()
    client.merge(routing.answer(Metadata(1, -1, -1)))
    anew = evolve(topic(1), topic_id=b"n" * 16)
    routing.merge(ClusterView(1, 6, 5, 1, [], [anew]))
    assert names(routing) == [("t0", bytes(16)), ("t1", b"n" * 16)]
    assert routing.partition(topic(1).topic_id, 0) is None
    routing.merge(ClusterView(1, 7, 6, 1, [], [], removed_topics=[anew.topic_id]))
    client.merge(routing.answer(Metadata(1, 1, 5)))
    assert list(client.topics) == ["t0"], "it had not heard of the other one"


class Changing:
    """A cluster that changes at random, as its controllers tell of it."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._brokers, self._topics, self._ids = {1: BrokerInfo(1, 1)}, dict[str, TopicView](), count(1)
        self.epoch = 0
        self.shown: dict[tuple[int, int], ClusterView] = {}
        """(controller epoch, version) -> everything that there was."""
        self.begin()

    def begin(self) -> None:
        """A new controller: it counts anew."""
        self.epoch, self.history = self.epoch + 1, list[ClusterView]()
        self._show()

    def _show(self) -> None:
        version, topics = len(self.history), sorted(self._topics.values(), key=lambda one: one.topic_id)
        self.whole = ClusterView(self.epoch, version, -1, 1, [self._brokers[b] for b in sorted(self._brokers)], topics)
        self.shown[self.epoch, version] = self.whole

    def change(self) -> None:
        dice, version = self._dice, len(self.history) + 1
        news = ClusterView(self.epoch, version, version - 1, 1, [], [])
        name = f"t{dice.randrange(8)}"
        what = dice.choice(["make", "make", "drop", "grow", "cut", "anew", "broker"])
        known = self._topics.get(name)
        if what == "broker":
            number = dice.randrange(2, 5)
            if self._brokers.pop(number, None) is None:
                self._brokers[number] = BrokerInfo(number, version)
                news.brokers.append(self._brokers[number])
            else:
                news.removed_brokers.append(number)
        elif known is None or what == "anew":
            news.removed_topics += [known.topic_id] if known is not None and dice.random() < 0.5 else []
            self._topics[name] = TopicView(name, next(self._ids).to_bytes(16, "big"), TopicConfig(min_isr=1), PARTITIONS[:2], 2)
            news.topics.append(self._topics[name])
        elif what == "drop":
            news.removed_topics.append(self._topics.pop(name).topic_id)
        elif what in ("grow", "cut"):
            end = min(4, known.end + 1) if what == "grow" else max(1, known.end - 1)
            self._topics[name] = evolve(known, partitions=PARTITIONS[:end], end=end)
            news.topics.append(evolve(self._topics[name], partitions=PARTITIONS[known.end : end]))
        self.history.append(news)
        self._show()


@pytest.mark.parametrize("seed", range(30))
def test_whoever_is_told_what_has_changed_ends_up_with_what_there_is(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers that hear of changes late, together, or anew; a client that asks any of them, and is answered in any order."""
    monkeypatch.setattr(recent, "CHANGES_MAX", 6)
    dice = random.Random(seed)
    cluster = Changing(dice)
    routings, client, answers, deltas, stale = [Routing() for _ in range(3)], View(), list[ClusterView](), 0, 0
    for _ in range(300):
        if dice.random() < 0.03:
            cluster.begin()
        else:
            cluster.change()
        for at, routing in enumerate(routings):
            if dice.random() < 0.02:
                routing = routings[at] = Routing()  # it has begun anew
            if dice.random() < 0.1:
                routing.merge(cluster.whole)
            elif dice.random() < 0.6 and not all(routing.merge(one) for one in cluster.history[max(0, routing.version) :]):
                assert routing.controller_epoch < cluster.epoch
            assert routing.names == {one.topic: topic_id for topic_id, one in routing.topics.items()}
        answers += [one.answer(Metadata(1, client.controller_epoch, client.version)) for one in routings if dice.random() < 0.5]
        while answers and dice.random() < 0.6:
            said = answers.pop(dice.randrange(len(answers)))
            merged = client.merge(said)
            deltas += merged == NEWS and said.since >= 0
            stale += merged == STALE
            if merged != STALE:
                there = cluster.shown[client.controller_epoch, client.version]
                assert client.brokers == {one.broker_id: one for one in there.brokers}
                found = {name: (one.topic_id, tuple(one.partitions.values())) for name, one in client.topics.items()}
                assert found == {one.topic: (one.topic_id, one.partitions) for one in there.topics}
    assert deltas > 10
    assert stale > 10
