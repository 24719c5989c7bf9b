"""What was wished of a topic is not done to the next topic of its name."""

from __future__ import annotations

import pytest
from tests.unit.controller.harness import World
from tests.unit.controller.test_hidden_moves import HIDDEN, WISH
from tests.unit.controller.test_reassign import assignment, assignments, by_tool, reassign, wishes
from tests.unit.controller.test_refused import refuse

from replog.errors import Code
from replog.metadata import layout
from replog.metadata.wishes import encode_partition_remove, encode_replicas
from replog.model import Assignment
from replog.ports import Create, Delete


def a_topic(world: World) -> bytes:
    return world.create("t", assignment={0: [2, 3], 1: [3, 4]}, config={"min_isr": 1})


def rejection(world: World, path: str = WISH) -> layout.Rejection:
    value = world.store.read(layout.rejected_path(path))
    assert value is not None
    return layout.decode_rejection("", value.value)


def written_between(world: World, path: str, value: bytes) -> None:
    """A topic is deleted and made again, and somebody has written a wish about it meanwhile, of which no controller has heard."""
    a_topic(world)
    assert world.admin("delete_topic", name="t").error == Code.NONE  # type: ignore[union-attr]
    world.drop_watches = True
    world.store.session().commit([Create(path, value)])
    a_topic(world)
    world.drop_watches = False


@pytest.mark.parametrize("what", HIDDEN)
@pytest.mark.parametrize("by", ["request", "tool"])
def test_a_wish_that_could_not_be_read_while_its_topic_was_deleted_moves_nothing(by: str, what: str) -> None:
    world = World(5, reconcile_ms=10_000)
    a_topic(world)
    path, refusal = HIDDEN[what]
    refused = {path}
    if by == "request":
        assert reassign(world, ("t", 0, [4, 5])) == []
    refuse(world, refused, refusal)
    if by == "tool":
        world.store.session().commit([Create(WISH, encode_replicas((4, 5)))])
    world.kill(world.controller_id)
    world.advance(25_000)
    assert world.admin("delete_topic", name="t").error == Code.NONE  # type: ignore[union-attr]
    assert wishes(world) == ["t/0"]
    a_topic(world)
    refused.clear()
    world.advance(25_000)
    assert (assignment(world), wishes(world)) == (Assignment((2, 3)), [])
    assert rejection(world).message == "topic 't' is another one than that about which this was written"


@pytest.mark.parametrize("by", ["whoever has made the topic", "the next controller"])
@pytest.mark.parametrize(
    ("path", "value"),
    [
        (WISH, encode_replicas((4, 5))),
        (layout.partition_remove_path("t", 1), encode_partition_remove(None)),
        (layout.partition_add_path("t", 2), encode_replicas(None)),
    ],
    ids=["move", "remove", "add"],
)
def test_a_wish_that_names_no_topic_is_about_the_one_that_was_there(path: str, value: bytes, by: str) -> None:
    world = World(5, reconcile_ms=10_000)
    written_between(world, path, value)
    if by == "the next controller":
        world.kill(world.controller_id)
    world.advance(25_000)
    assert assignments(world) == {0: Assignment((2, 3)), 1: Assignment((3, 4))}
    assert "another one" in rejection(world, path).message
    assert world.store.list(layout.place_of(path).row + "/t") == []


def test_a_request_is_written_over_a_wish_about_another_topic() -> None:
    world = World(5, reconcile_ms=10_000)
    written_between(world, WISH, encode_replicas((5, 4)))
    assert reassign(world, ("t", 0, [4, 5])) == []
    world.advance(25_000)
    assert assignment(world).replicas[:2] == (4, 5)
    assert world.store.list(layout.REJECTED) == []


def test_a_request_holds_for_its_topic_when_that_is_put_back() -> None:
    """Its node is younger than the wish then, but it is the topic that the wish names."""
    world = World(5, reconcile_ms=10_000)
    t = a_topic(world)
    node = world.store.read(layout.topic_path("t"))
    states = {n: world.store.read(layout.partition_state_path("t", n)) for n in (0, 1)}
    assert node is not None
    world.drop_watches = True
    paths = [layout.partition_state_path("t", n) for n in states]
    gone = [*paths, *(layout.partition_path("t", n) for n in states), layout.topic_path("t")]
    world.store.session().commit([Delete(path) for path in gone])
    world.store.session().commit([Create(WISH, encode_replicas((4, 5), t))])
    back = [Create(path, state.value) for path, state in zip(paths, states.values(), strict=True) if state is not None]
    world.store.session().commit([Create(layout.topic_path("t"), node.value), *back])
    world.drop_watches = False
    world.kill(world.controller_id)
    world.advance(25_000)
    assert assignment(world).replicas[:2] == (4, 5)


def test_a_wish_that_names_what_is_no_topic_is_put_away() -> None:
    world = World(5)
    a_topic(world)
    by_tool(world, encode_replicas((4, 5), b"short"))
    assert assignment(world) == Assignment((2, 3))
    assert (rejection(world).code, wishes(world)) == (Code.INVALID_REQUEST, [])
    assert "topic_id is '73686f7274', not 32 hexadecimal digits" in rejection(world).message
