"""Moves that a topic's node could not hold are refused before anything of them is stored."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.controller.harness import World

from replog.config import TopicConfig
from replog.controller.changes import Topic
from replog.controller.growth import Growth
from replog.controller.refusal import Refusal
from replog.errors import Code
from replog.metadata import layout
from replog.metadata.wishes import encode_replicas
from replog.model import Assignment
from replog.ports import Create

PATH = layout.topic_path("t")


def a_world(**config: Any) -> World:
    """Ten partitions, on brokers 1 and 2."""
    world = World(4, **config)
    world.create(assignment={number: [1, 2] for number in range(10)})
    return world


def stored(world: World) -> int:
    found = world.store.read(PATH)
    assert found is not None
    return len(found.value)


def reassign(world: World, *wished: list[Any]) -> list[list[Any]]:
    answer = world.admin("reassign", partitions=[["t", *one] for one in wished])
    assert answer is not None
    errors: list[list[Any]] = answer.result["errors"]
    return errors


SIZE = stored(a_world())


def size_after(*wished: list[Any]) -> int:
    """While these move, of a node that has room enough."""
    world = a_world()
    assert reassign(world, *wished) == []
    return stored(world)


WISHED = [[number, [3, 4]] for number in range(10)]
ROOM = size_after(*WISHED[:4])


def test_as_many_move_as_there_is_room_for_and_the_answer_names_the_size_of_one_more() -> None:
    world = a_world(topic_bytes_max=ROOM)
    errors = reassign(world, *WISHED)
    assert [tuple(error[:3]) for error in errors] == [("t", number, Code.INVALID_REPLICA_ASSIGNMENT) for number in range(4, 10)]
    assert errors[0][3] == (
        f"topic 't' of 10 partitions would take {size_after(*WISHED[:5])} bytes in the metadata store while t-4 moves to [3, 4]; "
        f"the limit is {ROOM} (topic_bytes_max)"
    )
    assert stored(world) == ROOM
    assert world.store.list(f"{layout.PARTITIONS_REASSIGNED}/t") == ["0", "1", "2", "3"]


@pytest.mark.parametrize("target", [[1, 2], [2, 1], [1]], ids=["where it is", "in another order", "less"])
def test_what_takes_no_more_room_in_the_end_is_judged_by_what_it_takes_on_the_way(target: list[int]) -> None:
    refused = [error[1] for error in reassign(a_world(topic_bytes_max=SIZE), [0, target])]
    assert refused == ([0] if target == [1] else [])


def test_a_way_back_takes_no_room_and_makes_some() -> None:
    former = len(',"former":[3,4]')
    world = a_world(topic_bytes_max=ROOM + former)
    reassign(world, *WISHED[:4])
    assert [error[1] for error in reassign(world, WISHED[4], [0, None])] == [4]
    assert stored(world) == size_after(*WISHED[1:4]) + former
    assert reassign(world, WISHED[4]) == []


def test_what_moves_already_may_be_sent_elsewhere() -> None:
    world = a_world(topic_bytes_max=ROOM)
    reassign(world, *WISHED[:4])
    assert reassign(world, [0, [4, 3]]) == []


def test_a_node_that_is_too_large_already_may_still_change_as_long_as_it_does_not_grow() -> None:
    topic = Topic("t", bytes(16), TopicConfig(), {0: Assignment((1, 2))})
    Growth(1).take(topic, 0, [2, 1])
    with pytest.raises(Refusal, match="the limit is 1 "):
        Growth(1).take(topic, 0, [2])


def test_wishes_by_path_are_put_away() -> None:
    world = a_world(topic_bytes_max=ROOM)
    world.store.commit([Create(layout.reassigned_path("t", number), encode_replicas((3, 4))) for number in range(5)])
    world.settle()
    assert world.store.list(f"{layout.PARTITIONS_REASSIGNED}/t") == ["0", "1", "2", "3"]
    put_away = world.store.read(layout.rejected_path(layout.reassigned_path("t", 4)))
    assert f"{size_after(*WISHED[:5])} bytes" in layout.decode_rejection("", put_away.value).message
    assert stored(world) == ROOM
