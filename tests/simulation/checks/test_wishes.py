"""What clients have asked the controller for, and what the store and the brokers have of it: each difference is noticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve
from tests.simulation.checks.situations import booted, holds, violates

from replog.messages import Admin, AdminAnswer
from replog.metadata import layout
from replog.model import Assignment
from replog.ports import Create, Delete, Put
from replog.testing.simulator.wishes import Wishes
from replog.testing.simulator.world import World

pytestmark = pytest.mark.simulation

CLIENT, BROKERS = ("client", 1), 3
ID, OTHER = b"1" * 16, b"2" * 16
ASKED = {"name": "a", "partitions": 2, "replication_factor": 2, "config": {"min_isr": 1, "retention_bytes": 9}}
ENTRY = layout.TopicEntry(ID, {"min_isr": 1, "retention_bytes": 9}, {0: Assignment((1, 2)), 1: Assignment((2, 3))})
PATH = layout.topic_path("a")


def asked(verb: str = "create_topic", request: int = 1, **arguments: Any) -> Wishes:
    wishes = Wishes()
    wishes.sent(CLIENT, 1, Admin(request, verb, {**ASKED, **arguments} if verb == "create_topic" else arguments))
    return wishes


def create(entry: layout.TopicEntry = ENTRY, path: str = PATH) -> list[Any]:
    return [Create(path, layout.encode_topic(entry))]


def test_a_topic_as_it_was_asked_for() -> None:
    wishes = asked()
    holds(wishes.applied, create(), BROKERS)
    holds(wishes.sent, 1, CLIENT, AdminAnswer(1, 0, result={"topic_id": ID.hex()}))
    holds(wishes.applied, [Put(PATH, layout.encode_topic(ENTRY))], BROKERS)


@pytest.mark.parametrize(
    "entry",
    [
        evolve(ENTRY, config={"min_isr": 2, "retention_bytes": 9}),
        evolve(ENTRY, config={"min_isr": 1}),
        evolve(ENTRY, config={"min_isr": 1, "retention_bytes": 9, "flush": "ack"}),
        evolve(ENTRY, config={"min_isr": 1, "retention_bytes": 9, "what": 1}),
        evolve(ENTRY, partitions={0: Assignment((1, 2))}),
        evolve(ENTRY, partitions={0: Assignment((1, 2)), 2: Assignment((2, 3))}),
        evolve(ENTRY, partitions={0: Assignment((1, 2)), 1: Assignment((2, 3, 1))}),
        evolve(ENTRY, partitions={0: Assignment((1, 2)), 1: Assignment((2, 4))}),
        evolve(ENTRY, partitions={0: Assignment((1, 2)), 1: Assignment((2, 3), adding=(3,))}),
    ],
)
def test_a_topic_other_than_it_was_asked_for(entry: layout.TopicEntry) -> None:
    violates("asked", asked().applied, create(entry), BROKERS)


@pytest.mark.parametrize(("replicas", "right"), [((2, 1), True), ((1, 2), False)])
def test_an_assignment_is_stored_as_given(replicas: tuple[int, ...], right: bool) -> None:
    wishes = asked(assignment={0: [2, 1]}, partitions=None, replication_factor=None)
    entry = evolve(ENTRY, partitions={0: Assignment(replicas)})
    (holds if right else lambda *given: violates("asked", *given))(wishes.applied, create(entry), BROKERS)


def test_min_isr_has_its_default_where_none_was_given() -> None:
    wishes = asked(config={"retention_bytes": 9})
    violates("asked", wishes.applied, create(evolve(ENTRY, config={"min_isr": 2, "retention_bytes": 9})), BROKERS)
    holds(wishes.applied, create(), BROKERS)


def test_nothing_comes_or_goes_that_nobody_asked_for() -> None:
    wishes = asked()
    violates("asked", wishes.applied, create(path=layout.topic_path("b")), BROKERS)
    wishes.applied(create(), BROKERS)
    violates("asked", wishes.applied, [Put(PATH, layout.encode_topic(evolve(ENTRY, next_creation=1)))], BROKERS)
    violates("asked", wishes.applied, [Delete(PATH)], BROKERS)
    violates("asked", wishes.applied, [Create(layout.delete_topic_path("a"), b"")], BROKERS)
    wishes.sent(CLIENT, 1, Admin(2, "delete_topic", {"name": "a"}))
    holds(wishes.applied, [Create(layout.delete_topic_path("a"), b"")], BROKERS)
    holds(wishes.applied, [Delete(PATH)], BROKERS)
    violates("asked", wishes.applied, create(), BROKERS)  # the same id again
    holds(wishes.applied, create(evolve(ENTRY, topic_id=OTHER)), BROKERS)


@pytest.mark.parametrize(
    "answer",
    [AdminAnswer(1, 0, result={"topic_id": OTHER.hex()}), AdminAnswer(9, 0, result={"topic_id": ID.hex()})],
)
def test_a_creation_is_granted_that_was_not_made(answer: AdminAnswer) -> None:
    wishes = asked()
    wishes.applied(create(), BROKERS)
    violates("asked", wishes.sent, 1, CLIENT, answer)
    holds(wishes.sent, 1, CLIENT, evolve(answer, error=36))
    holds(wishes.sent, 1, 2, answer)


def test_a_creation_is_granted_that_somebody_else_asked_for() -> None:
    wishes = asked()
    wishes.sent(("client", 2), 1, Admin(1, "create_topic", {**ASKED, "partitions": 3}))
    wishes.applied(create(), BROKERS)
    violates("asked", wishes.sent, 1, ("client", 2), AdminAnswer(1, 0, result={"topic_id": ID.hex()}))


def test_a_deletion_is_granted_while_the_topic_is_there() -> None:
    wishes = asked()
    wishes.applied(create(), BROKERS)
    wishes.sent(CLIENT, 1, Admin(2, "delete_topic", {"name": "a"}))
    violates("asked", wishes.sent, 1, CLIENT, AdminAnswer(2, 0))
    wishes.applied([Delete(PATH)], BROKERS)
    holds(wishes.sent, 1, CLIENT, AdminAnswer(2, 0))


# ------------------------------------------------------------------------------------------------------------ the end


def changes_the_topic(world: World) -> None:
    found = world.root.read(layout.topic_path("t"))
    assert found is not None
    entry = layout.decode_topic("t", found.value)
    world.root.commit([Put(layout.topic_path("t"), layout.encode_topic(evolve(entry, config={"min_isr": 1})))])


def makes_a_topic(world: World) -> None:
    world.root.commit(create())


def makes_a_partition(world: World) -> None:
    found = world.root.read(layout.partition_state_path("t", 0))
    assert found is not None
    world.root.commit([Create(layout.partition_state_path("t", 7), found.value)])


def loses_a_log(world: World) -> None:
    directory = world.nodes[2].directory
    directory.quarantine(directory.identities()[0], 0)


def keeps_another_configuration(world: World) -> None:
    broker = world.nodes[2].broker
    assert broker is not None
    for partition in broker.partitions.values():
        partition.config = evolve(partition.config, min_isr=1)


@pytest.mark.parametrize("spoil", [changes_the_topic, makes_a_topic, makes_a_partition, loses_a_log, keeps_another_configuration])
def test_at_the_end_all_is_as_it_was_asked_for(spoil: Callable[[World], None]) -> None:
    world = booted()
    holds(world.wishes.check, world)
    spoil(world)
    violates("asked", world.wishes.check, world)
