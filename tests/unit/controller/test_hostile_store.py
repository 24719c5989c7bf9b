"""Values, names and outcomes that must neither stop the controller nor be half of an operation."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.controller import harness
from tests.unit.controller.harness import World

from replog.controller.decision import BYTES_MAX, Piece, pack
from replog.errors import Code
from replog.metadata import judgements, layout
from replog.metadata.wishes import encode_partition_remove, encode_replicas
from replog.ports import Check, Create, Op, Put


def write(world: World, *ops: Op) -> None:
    """As a tool does, which knows nothing but the store."""
    world.store.session().commit(list(ops))
    world.settle()


def loses_the_outcome_of(world: World, count: int = 1) -> None:
    """The next commits of the controller are applied, and nobody hears of it."""
    left = [count]

    def before(address: Any, call: Any) -> str | None:
        if call.verb == "commit_each" and address[0] == "controller" and left[0]:
            left[0] -= 1
            return "applied"
        return None

    world.before_store = before


def follower_dies(world: World, topic: str = "t") -> None:
    """A broker that leads `topic` and is not the controller's."""
    state = world.state(0, topic)
    assert state.leader not in (None, world.controller_id)
    world.kill(state.leader)
    world.advance(120_000)
    assert world.state(0, topic).leader not in (None, state.leader)


def test_what_was_stored_unheard_has_its_consequences() -> None:
    """A min ISR that was stored is in force; partitions that were added have leaders."""
    world = World(3)
    world.create(partitions=2, config={"min_isr": 1})
    loses_the_outcome_of(world)
    assert world.admin("alter_topic", name="t", config={"min_isr": 2}).error == Code.NONE
    world.advance(60_000)
    assert [world.state(number).min_isr for number in (0, 1)] == [2, 2]
    loses_the_outcome_of(world)
    write(world, *(Create(layout.partition_add_path("t", number), encode_replicas(None)) for number in range(2, 302)))
    world.advance(60_000)
    assert all(world.state(number).leader is not None for number in range(302))


def test_two_who_wish_for_different_values_are_both_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "STEPS_MAX", 3_000)
    world = World(3)
    world.create(partitions=1)
    said = len(world.client)
    for value in (1_000, 2_000):
        world.admin("alter_topic", name="t", config={"retention_ms": value}, settle=False)
    world.settle()
    assert [answer.error for answer in world.client[said:]] == [Code.NONE, Code.NONE]


@pytest.mark.parametrize("what", ["state", "topic", "draining", "deletion"])
def test_a_value_that_cannot_be_read_holds_up_nobody_else(what: str) -> None:
    world = World(4)
    others = [broker for broker in (1, 2, 3, 4) if broker != world.controller_id]
    world.create("t", assignment={0: others[:2]})
    world.create("u", assignment={0: others[:2]})
    path = {
        "state": layout.partition_state_path("t", 0),
        "topic": layout.topic_path("t"),
        "draining": layout.draining_path(others[2]),
        "deletion": layout.delete_topic_path("t"),
    }[what]
    write(world, Put(path, b"junk", None) if what in ("state", "topic") else Create(path, b"junk"))
    match what:
        case "topic":
            assert world.admin("alter_topic", name="t", config={"retention_ms": 1_000}).error != Code.NONE
        case "deletion":
            world.admin("delete_topic", name="t")
        case "draining":
            world.admin("drain", broker=others[2])
        case _:
            pass
    follower_dies(world, "u")
    assert world.admin("create_topic", name="new", partitions=1).error == Code.NONE


@pytest.mark.parametrize(
    "path",
    [
        f"{judgements.ADMITTED}/x",
        f"{layout.TOPICS}/bad name",
        f"{layout.DELETE_TOPICS}/bad name",
    ],
)
def test_a_name_that_is_none_stops_no_controller(path: str) -> None:
    world = World(4)
    others = [broker for broker in (1, 2, 3, 4) if broker != world.controller_id]
    world.create("u", assignment={0: others[:2]})
    value = layout.encode_delete_topic(bytes(16)) if "delete" in path else world.store.read(layout.topic_path("u")).value
    write(world, Create(path, value))
    follower_dies(world, "u")
    world.kill(world.controller_id)
    world.advance(120_000)
    assert world.admin("create_topic", name="new", partitions=1).error == Code.NONE


def test_a_wish_that_cannot_be_removed_is_not_tried_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody has written below it."""
    monkeypatch.setattr(harness, "STEPS_MAX", 3_000)
    world = World(3)
    world.create(partitions=2)
    write(world, Create(f"{layout.partition_add_path('t', 2)}/x", b""))
    assert world.admin("create_topic", name="new", partitions=1).error == Code.NONE


def test_a_thousand_removals_of_what_has_gone_end() -> None:
    world = World(3)
    world.create(partitions=1_100)
    numbers = list(range(100, 1_100))
    assert world.admin("remove_partitions", name="t", partitions=numbers).error == Code.NONE
    gone = [Create(layout.partition_remove_path("t", number), encode_partition_remove(0)) for number in numbers]
    world.store.session().commit(gone[:500])
    world.store.session().commit(gone[500:])
    world.settle()
    world.advance(60_000)
    assert world.store.list(layout.PARTITIONS_REMOVE) == []


def test_a_step_is_limited_in_bytes() -> None:
    """One piece goes whatever its size: it belongs together."""
    guard = Check(layout.CONTROLLER_EPOCH, 0)
    sizes = (BYTES_MAX // 2 - 10, BYTES_MAX // 2 - 10, 100, 2 * BYTES_MAX, 10)
    steps = pack(guard, [Piece((Put("/p", b"x" * size),), ()) for size in sizes])
    assert [len(step.ops) - 1 for step in steps] == [2, 1, 1, 1]
