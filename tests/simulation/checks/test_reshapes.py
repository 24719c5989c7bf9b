"""More and fewer partitions and other configurations: each difference from what was asked for is noticed."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve
from tests.simulation.checks.situations import holds, violates
from tests.simulation.checks.test_wishes import ENTRY, ID, PATH, SESSION, answer, ask, asked

from replog.messages import Admin, AdminAnswer
from replog.metadata import layout
from replog.metadata.layout import TopicEntry
from replog.metadata.wishes import Meant, encode_partition_remove
from replog.model import Assignment
from replog.ports import Create, Delete, Put
from replog.testing.simulator.wishes import Wishes

pytestmark = pytest.mark.simulation

NEW = Assignment((3, 1), 0)
MORE = evolve(ENTRY, partitions={**ENTRY.partitions, 2: NEW})
FEWER = evolve(ENTRY, partitions={0: ENTRY.partitions[0]}, next_creation=1, former=(2, 3))
MEANT = {"partitions": [1], "topic_id": ID.hex(), "creations": [0]}


def stored(*entries: TopicEntry, **wish: Any) -> Wishes:
    """The topic was made; then one wish was made, and these entries were stored one after the other."""
    wishes = asked()
    wishes.applied([Create(PATH, layout.encode_topic(ENTRY))], 3)
    answer(wishes, 1)
    if wish:
        ask(wishes, Admin(2, wish.pop("verb"), {"name": "a", **wish}))
    for entry in entries:
        wishes.applied([Put(PATH, layout.encode_topic(entry), 0)], 3)
    return wishes


RIGHT: dict[str, tuple[dict[str, Any], TopicEntry]] = {
    "more": ({"verb": "add_partitions", "total": 3}, MORE),
    "fewer": ({"verb": "remove_partitions", "partitions": [1]}, FEWER),
    "fewer, as meant": ({"verb": "remove_partitions", **MEANT}, FEWER),
    "another configuration": (
        {"verb": "alter_topic", "config": {"retention_bytes": None, "min_isr": 2}}, evolve(ENTRY, config={"min_isr": 2}),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", RIGHT)
def test_what_was_asked_for(case: str) -> None:
    wish, entry = RIGHT[case]
    wishes = stored(entry, **dict(wish))
    assert wishes.topics[ID].entry == entry
    answer(wishes, 2)
    wishes.sent(1, ("client", 1), AdminAnswer(2, 0))


@pytest.mark.parametrize("case", RIGHT)
def test_without_a_wish_nothing_changes(case: str) -> None:
    violates("asked", lambda: stored(RIGHT[case][1]))


@pytest.mark.parametrize("case", RIGHT)
def test_a_wish_is_not_granted_that_was_not_fulfilled(case: str) -> None:
    wishes = stored(**dict(RIGHT[case][0]))
    granted = AdminAnswer(2, 0)
    answer(wishes, 2)
    if case == "fewer":  # it does not say which one it means: that one may have gone, and come again
        holds(lambda: wishes.sent(1, ("client", 1), granted))
    else:
        violates("asked", lambda: wishes.sent(1, ("client", 1), granted))


WRONG: dict[str, tuple[dict[str, Any], tuple[TopicEntry, ...]]] = {
    "too many": ({"verb": "add_partitions", "total": 4}, (MORE,)),
    "an old creation number": ({"verb": "add_partitions", "total": 3}, (evolve(MORE, next_creation=1),)),
    "another creation number": (
        {"verb": "add_partitions", "total": 3}, (evolve(MORE, partitions={**ENTRY.partitions, 2: Assignment((3, 1), 1)}),),
    ),
    "a hole": ({"verb": "add_partitions", "total": 3}, (evolve(ENTRY, partitions={**ENTRY.partitions, 5: NEW}),)),
    "another one goes": ({"verb": "remove_partitions", "partitions": [0]}, (FEWER,)),
    "an earlier one was meant": ({"verb": "remove_partitions", **MEANT, "creations": [7]}, (FEWER,)),
    "the number may come again": ({"verb": "remove_partitions", **MEANT}, (evolve(FEWER, next_creation=0),)),
    "who held it is forgotten": ({"verb": "remove_partitions", **MEANT}, (FEWER, evolve(FEWER, former=()))),
    "another value": ({"verb": "alter_topic", "config": {"min_isr": 2}}, (evolve(ENTRY, config={"min_isr": 1, "retention_bytes": 8}),)),
    "more than was asked for": ({"verb": "alter_topic", "config": {"min_isr": 2}}, (evolve(ENTRY, config={"min_isr": 2}),)),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_was_not_asked_for(case: str) -> None:
    wish, entries = WRONG[case]
    violates("asked", lambda: stored(*entries, **dict(wish)))


def test_a_number_that_is_added_again_is_new() -> None:
    wishes = stored(FEWER, verb="remove_partitions", **MEANT)
    ask(wishes, Admin(3, "add_partitions", {"name": "a", "total": 2}))
    again = evolve(FEWER, partitions={**FEWER.partitions, 1: Assignment((2, 3), 1)})
    old = evolve(FEWER, partitions={**FEWER.partitions, 1: Assignment((2, 3), 0)})
    violates("asked", lambda: wishes.applied([Put(PATH, layout.encode_topic(old), 1)], 3))
    holds(lambda: wishes.applied([Put(PATH, layout.encode_topic(again), 1)], 3))


def wished_away(creation: int) -> list[Any]:
    return [Create(REMOVAL, encode_partition_remove(Meant(ID, creation)))]


REMOVAL = layout.partition_remove_path("a", 1)
SHRUNK = Put(PATH, layout.encode_topic(FEWER), 0)


@pytest.mark.parametrize("ops", [[SHRUNK, Delete(REMOVAL)], [Delete(REMOVAL), SHRUNK], [SHRUNK]], ids=["with it", "before", "later"])
def test_a_removal_that_is_stored_outlives_who_was_asked(ops: list[Any]) -> None:
    """Another controller finds it in the store, and nobody asks that one for anything."""
    wishes = stored(verb="remove_partitions", **MEANT)
    wishes.applied(wished_away(0), 3)
    wishes.ended(SESSION)
    holds(lambda: wishes.applied(ops, 3))
    assert wishes.topics[ID].entry == FEWER


def test_a_removal_is_stored_only_if_it_was_asked_for() -> None:
    violates("asked", lambda: stored().applied(wished_away(0), 3))
    violates("asked", lambda: stored(verb="remove_partitions", **MEANT).applied(wished_away(7), 3))


def test_what_was_wished_away_is_that_one_alone() -> None:
    wishes = stored(verb="remove_partitions", **MEANT)
    wishes.applied(wished_away(0), 3)
    wishes.ended(SESSION)
    wishes.applied([Delete(REMOVAL)], 3)
    violates("asked", lambda: wishes.applied([SHRUNK], 3))
