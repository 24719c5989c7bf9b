"""What was wished of a topic is not done to the next topic of its name."""

from __future__ import annotations

import pytest
from tests.unit.controller.harness import World
from tests.unit.controller.test_hidden_moves import HIDDEN, WISH
from tests.unit.controller.test_reassign import assignment, assignments, reassign, wishes
from tests.unit.controller.test_refused import REFUSALS, refuse

from replog.errors import Code
from replog.metadata import layout
from replog.metadata.values import encode
from replog.metadata.wishes import Meant, encode_partition_remove, encode_replicas
from replog.model import Assignment
from replog.ports import Create, Delete, Put


def a_topic(world: World) -> bytes:
    return world.create("t", assignment={0: [2, 3], 1: [3, 4]}, config={"min_isr": 1})


def rejection(world: World, path: str = WISH) -> layout.Rejection:
    value = world.store.read(layout.rejected_path(path))
    assert value is not None
    return layout.decode_rejection("", value.value)


def leaders(world: World) -> list[int | None]:
    states = [world.store.read(layout.partition_state_path("t", n)) for n in (0, 1)]
    return [layout.decode_partition_state("", state).leader for state in states if state is not None]


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
        (layout.partition_remove_path("t", 1), encode_partition_remove()),
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
    world.store.session().commit([Create(WISH, encode_replicas((4, 5), Meant(t)))])
    back = [Create(path, state.value) for path, state in zip(paths, states.values(), strict=True) if state is not None]
    world.store.session().commit([Create(layout.topic_path("t"), node.value), *back])
    world.drop_watches = False
    world.kill(world.controller_id)
    world.advance(25_000)
    assert assignment(world).replicas[:2] == (4, 5)


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (WISH, {"replicas": [4, 5]}),
        (layout.partition_remove_path("t", 1), {"creation": None}),
        (layout.partition_add_path("t", 2), {"replicas": None}),
        (layout.elect_path("t", 0), {"unclean": False, "to": 3}),
    ],
    ids=["move", "remove", "add", "elect"],
)
def test_a_wish_that_names_what_is_no_topic_is_put_away(path: str, fields: dict[str, object]) -> None:
    world = World(5)
    a_topic(world)
    before = assignments(world), leaders(world)
    world.store.session().commit([Create(path, encode({**fields, "topic_id": "73686f7274"}))])
    world.settle()
    assert (assignments(world), leaders(world)) == before
    assert rejection(world, path).code == Code.INVALID_REQUEST
    assert "topic_id is '73686f7274', not 32 hexadecimal digits" in rejection(world, path).message


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (layout.reassigned_path("t", 1), encode_replicas((4, 5), Meant(b"x" * 16))),
        (layout.reassigned_path("t", 1), encode_replicas((4, 5), Meant(creation=7))),
        (layout.partition_remove_path("t", 1), encode_partition_remove(Meant(b"x" * 16))),
        (layout.partition_add_path("t", 2), encode_replicas(None, Meant(b"x" * 16))),
        (layout.elect_path("t", 0), encode({"unclean": False, "to": 3, "topic_id": "78" * 16})),
        (layout.elect_path("t", 0), encode({"unclean": False, "to": 3, "topic_id": None, "creation": 7})),
    ],
    ids=["move", "move a partition", "remove", "add", "elect", "elect of a partition"],
)
def test_a_wish_that_names_another_topic_or_partition_is_put_away(path: str, value: bytes) -> None:
    world = World(5)
    a_topic(world)
    led = leaders(world)
    world.store.session().commit([Create(path, value)])
    world.settle()
    assert (assignments(world), leaders(world)) == ({0: Assignment((2, 3)), 1: Assignment((3, 4))}, led)
    assert "is another one than that about which this was written" in rejection(world, path).message
    assert world.store.list(layout.place_of(path).row + "/t") == []


FOREIGN = {
    "an earlier topic": encode_partition_remove(),
    "another topic": encode_partition_remove(Meant(b"x" * 16)),
    "another partition": encode_partition_remove(Meant(creation=9)),
    "no wish": b"\xff",
}


@pytest.mark.parametrize("number", [5, 4, 3])
@pytest.mark.parametrize("what", FOREIGN)
def test_a_removal_that_was_granted_is_completed_by_the_next_controller_whatever_stood_in_its_place(what: str, number: int) -> None:
    """A request writes its wishes over what is about something else: that would be put away, and what is above or below it then too."""
    world = World(4, reconcile_ms=10_000, slice_partitions_max=1)
    six = {n: [2, 3] for n in range(6)}
    paths = [layout.partition_remove_path("t", n) for n in (5, 4, 3)]
    world.create("t", assignment=six, config={"min_isr": 1})
    assert world.admin("delete_topic", name="t").error == Code.NONE  # type: ignore[union-attr]
    foreign = Create(layout.partition_remove_path("t", number), FOREIGN[what])
    world.drop_watches = True
    if what == "an earlier topic":
        world.store.session().commit([foreign])
    t = world.create("t", assignment=six, config={"min_isr": 1})
    if what != "an earlier topic":
        world.store.session().commit([foreign])
    world.drop_watches = False
    world.admin("remove_partitions", name="t", partitions=[5, 4, 3], settle=False)
    meant = [encode_partition_remove(Meant(t, 0))] * 3
    while world.queue and [getattr(world.store.read(path), "value", None) for path in paths] != meant:
        world.queue.popleft()()
    assert len(assignments(world)) == 6
    world.kill(world.controller_id)
    world.advance(25_000)
    assert sorted(assignments(world)) == [0, 1, 2]
    assert world.store.list(layout.PARTITIONS_REMOVE + "/t") == []
    assert world.told("wish_rejected") == []


@pytest.mark.parametrize("is_seen", [True, False])
@pytest.mark.parametrize("what", ["another topic", "another partition", "no wish"])
def test_a_removal_goes_on_where_a_tool_writes_over_one_of_its_wishes(what: str, is_seen: bool) -> None:
    """Its wish is written once more before its turn comes."""
    world = World(4, reconcile_ms=10_000, slice_partitions_max=1)
    t = world.create("t", assignment={n: [2, 3] for n in range(6)}, config={"min_isr": 1})
    paths = [layout.partition_remove_path("t", n) for n in (5, 4, 3)]
    wish, back = encode_partition_remove(Meant(t, 0)), []

    def look(address: object, call: object) -> None:
        found = world.store.read(paths[1])
        if found is not None and found.value == wish:
            back.append(len(assignments(world)))

    def meddle(address: object, call: object) -> None:
        if all(world.store.read(path) for path in paths) and len(assignments(world)) == 6:
            world.after_store = look
            world.store.session().commit([Delete(paths[1])])
            world.store.session().commit([Create(paths[1], b"")])
            world.store.session().commit([Put(paths[1], FOREIGN[what], 0)])

    world.after_store = meddle
    world.drop_watches = not is_seen
    answer = world.admin("remove_partitions", name="t", partitions=[5, 4, 3])
    assert (answer.error, answer.result) == (Code.NONE, {"partitions": 3})  # type: ignore[union-attr]
    world.drop_watches = False
    world.advance(25_000)
    assert sorted(assignments(world)) == [0, 1, 2]
    assert world.store.list(layout.PARTITIONS_REMOVE + "/t") == []
    assert back[0] > 4
    assert world.told("decision_given_up") == []


def test_a_wish_that_another_one_has_taken_the_place_of_is_believed_no_more() -> None:
    """A tool has removed a wish of this topic and written one about another, and the controller finds that when its turn comes: whoever
    asks for the first one again is not told that it is there."""
    world = World(6, reconcile_ms=30_000, reassignments_max=1)
    world.create("t", assignment={0: [2, 3], 1: [2, 3]}, config={"min_isr": 1})
    assert reassign(world, ("t", 0, [4, 5]), ("t", 1, [4, 5])) == []
    path = layout.reassigned_path("t", 1)
    world.drop_watches = True
    world.store.session().commit([Delete(path)])
    world.store.session().commit([Create(path, encode_replicas((5, 6), Meant(b"x" * 16)))])
    assert reassign(world, ("t", 0, None)) == []
    assert reassign(world, ("t", 1, [4, 5])) == []
    world.drop_watches = False
    world.advance(120_000)
    assert assignments(world)[1].replicas[:2] == (4, 5)


def test_a_request_to_move_is_not_done_to_the_next_partition_of_its_number() -> None:
    world = World(5, reconcile_ms=10_000)
    t = a_topic(world)
    path = layout.reassigned_path("t", 1)
    refused = {path}
    assert reassign(world, ("t", 1, [4, 5])) == []
    assert world.store.read(path).value == encode_replicas((4, 5), Meant(t, 0))  # type: ignore[union-attr]
    refuse(world, refused, REFUSALS["checksum"])
    world.kill(world.controller_id)
    world.advance(25_000)
    assert world.admin("remove_partitions", name="t", partitions=[1]).error == Code.NONE  # type: ignore[union-attr]
    assert world.admin("add_partitions", name="t", total=2, assignment={1: [2, 3]}).error == Code.NONE  # type: ignore[union-attr]
    refused.clear()
    world.advance(25_000)
    assert assignments(world)[1] == Assignment((2, 3), 1)
    assert rejection(world, path).message == "partition 1 of topic 't' is another one than that about which this was written"
