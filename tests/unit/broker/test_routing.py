"""What a broker tells its clients of the cluster: merged from the controller's deltas."""

from __future__ import annotations

import random
from itertools import count

import pytest
from attrs import evolve

from replog.broker import recent
from replog.broker.routing import Routing
from replog.client.view import STALE, View
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


@pytest.mark.parametrize("seed", range(30))
def test_whoever_is_told_what_has_changed_ends_up_with_what_there_is(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers that hear of changes late, together, or anew; a client that asks any of them, against one that is told everything."""
    monkeypatch.setattr(recent, "CHANGES_MAX", 6)
    dice = random.Random(seed)
    brokers, topics, ids = {1: BrokerInfo(1, 1)}, dict[str, TopicView](), count(1)
    version, history = 0, list[ClusterView]()
    whole = ClusterView(1, 0, -1, 1, list(brokers.values()), [])
    routings, client, deltas = [Routing() for _ in range(3)], View(), 0
    for routing in routings:
        routing.merge(whole)
    for _ in range(120):
        version += 1
        news = ClusterView(1, version, version - 1, 1, [], [])
        name = f"t{dice.randrange(8)}"
        what = dice.choice(["make", "make", "drop", "grow", "cut", "anew", "broker"])
        known = topics.get(name)
        if what == "broker":
            number = dice.randrange(2, 5)
            if brokers.pop(number, None) is None:
                brokers[number] = BrokerInfo(number, version)
                news.brokers.append(brokers[number])
            else:
                news.removed_brokers.append(number)
        elif known is None or what == "anew":
            news.removed_topics += [known.topic_id] if known is not None else []
            topics[name] = TopicView(name, next(ids).to_bytes(16, "big"), TopicConfig(min_isr=1), PARTITIONS[:2], 2)
            news.topics.append(topics[name])
        elif what == "drop":
            news.removed_topics.append(topics.pop(name).topic_id)
        elif what in ("grow", "cut"):
            end = min(4, known.end + 1) if what == "grow" else max(1, known.end - 1)
            topics[name] = evolve(known, partitions=PARTITIONS[:end], end=end)
            news.topics.append(evolve(topics[name], partitions=PARTITIONS[known.end : end]))
        history.append(news)
        whole = ClusterView(1, version, -1, 1, [brokers[b] for b in sorted(brokers)], sorted(topics.values(), key=lambda t: t.topic_id))
        for routing in routings:
            if dice.random() < 0.1:
                routing.merge(whole)
            elif dice.random() < 0.6:
                assert all(routing.merge(one) for one in history[routing.version :])
            assert routing.names == {one.topic: topic_id for topic_id, one in routing.topics.items()}
        routing = dice.choice(routings)
        if routing.version < client.version or dice.random() < 0.3:
            continue
        said = routing.answer(Metadata(1, client.controller_epoch, client.version))
        deltas += said.since >= 0
        other = View()
        other.merge(routing.answer(Metadata(1, -1, -1)))
        assert client.merge(said) != STALE
        assert client.brokers == other.brokers
        assert {n: (t.topic_id, t.partitions) for n, t in client.topics.items()} == {
            n: (t.topic_id, t.partitions) for n, t in other.topics.items()
        }
    assert deltas > 10
