"""Topics that are made because somebody seeks them: what brokers may ask for, what may come of it, and what clients may be told."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve
from tests.simulation.checks.situations import booted, holds, violates

from replog.broker.missing import CREATE_MISSING
from replog.config import BrokerConfig
from replog.errors import InvalidReplicationFactor, PolicyViolation, ReplogError, Unavailable, UnknownTopicOrPartition
from replog.messages import Admin, AdminAnswer
from replog.metadata import layout
from replog.model import Assignment
from replog.ports import Create
from replog.testing.simulator.plan import draw
from replog.testing.simulator.racks import Placements
from replog.testing.simulator.running import run
from replog.testing.simulator.sought import Seek
from replog.testing.simulator.wishes import Wishes
from replog.testing.simulator.world import World

pytestmark = pytest.mark.simulation

CONFIG = BrokerConfig(auto_create_topics=True, auto_create_topics_max=2, auto_create_replication_factor=2, auto_create_min_isr=1)
ENTRY = layout.TopicEntry(b"1" * 16, {"min_isr": 1}, {0: Assignment((1, 2))})


def wished(name: str = "a", broker: int = 1) -> Admin:
    return Admin(-1, CREATE_MISSING, {"name": name}, [broker, name])


def sought(wishes: Wishes, name: str = "a", broker: int = 1) -> None:
    """A client seeks a topic at a broker, which asks the controller for it."""
    wishes.sought.add(name)
    wishes.sent(broker, ("controller", 2), wished(name, broker))
    wishes.heard(("controller", 2), broker, wished(name, broker), 7)


def made(name: str = "a", topic_id: bytes = b"1" * 16, **other: Any) -> list[Any]:
    return [Create(layout.topic_path(name), layout.encode_topic(evolve(ENTRY, topic_id=topic_id, **other)))]


def test_a_topic_is_made_as_the_brokers_configuration_says() -> None:
    two = {n: Assignment((1, 2)) for n in (0, 1)}
    for entry in ({"config": {"min_isr": 2}}, {"partitions": {0: Assignment((1,))}}, {"partitions": two}):
        wishes = Wishes(Placements.none(), CONFIG)
        sought(wishes)
        violates("asked", wishes.applied, made(**entry), 3)
    wishes = Wishes(Placements.none(), CONFIG)
    sought(wishes)
    sought(wishes, broker=3)
    holds(wishes.applied, made(), 3)
    holds(wishes.sent, ("controller", 2), 1, AdminAnswer(-1, 0, origin=[1, "a"]))


def test_nothing_is_made_that_nobody_seeks() -> None:
    violates("asked", Wishes(Placements.none(), CONFIG).sent, 1, ("controller", 2), wished())
    off = Wishes()
    off.sought.add("a")
    violates("asked", off.sent, 1, ("controller", 2), wished())
    answered = Wishes(Placements.none(), CONFIG)
    sought(answered)
    answered.sent(("controller", 2), 1, AdminAnswer(-1, 44, origin=[1, "a"]))
    violates("asked", answered.applied, made(), 3)


def test_no_more_are_made_than_there_may_be() -> None:
    wishes = Wishes(Placements.none(), CONFIG)
    for name, topic_id in (("a", b"1" * 16), ("b", b"2" * 16)):
        sought(wishes, name)
        holds(wishes.applied, made(name, topic_id), 3)
    assert wishes.topics_most == 2
    sought(wishes, "c")
    violates("asked", wishes.applied, made("c", b"3" * 16), 3)


def world_with(most: int) -> World:
    return booted(auto_create_topics_max=most)


@pytest.mark.parametrize(
    ("most", "topics", "error", "right"),
    [
        (0, 1, UnknownTopicOrPartition("none"), True),
        (0, 1, PolicyViolation("off"), False),
        (3, 3, PolicyViolation("too many"), True),
        (3, 2, PolicyViolation("too many"), False),
        (3, 2, UnknownTopicOrPartition("none"), False),
        (3, 2, InvalidReplicationFactor("one broker is live"), True),
        (3, 2, Unavailable("nobody answers"), True),
    ],
)
def test_a_refusal_is_the_one_that_is_documented(most: int, topics: int, error: ReplogError, right: bool) -> None:
    world = world_with(most)
    world.wishes.topics_most = topics
    (holds if right else lambda *given: violates("sought", *given))(Seek()._refused, world, "sought-1", error)


def test_a_topic_is_made_once_and_stays() -> None:
    world, work = world_with(9), Seek()
    work._kept["sought-0"] = {b"1" * 16}
    violates("sought", work.check, world)  # it was never made
    world.wishes.sought.add("sought-0")
    sought(world.wishes, "sought-0")
    world.wishes.applied(made("sought-0", partitions={n: Assignment((1, 2, 3)) for n in (0, 1)}, config={"min_isr": 2}), 3)
    holds(work.check, world)
    work._kept["sought-0"].add(b"2" * 16)
    violates("sought", work.check, world)
    work._kept.clear()
    world.wishes.topics[b"1" * 16].gone = True
    violates("sought", work.check, world)


def test_a_share_of_the_runs_seeks_and_where_power_may_fail_everywhere_none_is_made() -> None:
    shapes = [draw(seed).shape for seed in range(300)]
    seeking = [shape for shape in shapes if "seek" in shape.workloads]
    assert 0.12 < len(seeking) / len(shapes) < 0.28
    assert {shape.auto_create_topics_max for shape in seeking} == {0, 2, 3, 5, 10_000}
    assert not any(shape.auto_create_topics_max for shape in shapes if shape.flush == "ack" or "seek" not in shape.workloads)


@pytest.mark.parametrize(
    ("most", "mark"),
    [
        (10_000, "a topic that was sought is used"),
        (2, "a topic that was sought is one too many"),
        (0, "a topic that was sought is not made"),
    ],
)
def test_topics_are_sought(most: int, mark: str) -> None:
    plan = draw(5, only=("kill", "pause"), workloads=("append", "seek"), flush="os", auto_create_topics_max=most, brokers=3, clients=3)
    found = run(5, plan=plan)
    assert found.violation is None
    assert found.marks[mark] > 0
