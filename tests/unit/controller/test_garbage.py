"""What somebody has written at a path that the controller reads counts as absent: it is told once, and written over."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.controller import harness
from tests.unit.controller.harness import World, pid

from replog.controller.changes import Stranger, Unreadable
from replog.errors import Code
from replog.metadata import judgements, layout
from replog.ports import Create, Delete, Op, Put

GARBAGE = (b"", b"junk", b"[]", b'{"version":1}', b'{"version":9}', b"\xff\xfe", b"[" * 5_000)


def write(world: World, *ops: Op) -> None:
    """As a tool does, which knows nothing but the store."""
    world.store.session().commit(list(ops))
    world.settle()


def unreadable(world: World) -> list[str]:
    """Paths that were told to hold what cannot be read."""
    return [told["path"] for told in world.told("store_value_unreadable")]


def admitted(world: World, broker: int) -> judgements.Admission:
    path = judgements.admitted_path(broker)
    return judgements.decode_admission(path, world.store.read(path).value)


# ------------------------------------------------------------------------------------------ which life of a broker is let in


@pytest.mark.parametrize("value", GARBAGE)
@pytest.mark.parametrize("when", ["before the broker", "before the controller", "afterwards"])
def test_a_broker_is_let_in_over_garbage(when: str, value: bytes) -> None:
    world = World(2)
    path = judgements.admitted_path(3)
    if when != "afterwards":
        write(world, Create(path, value))
        if when == "before the controller":
            world.kill(world.controller_id)
        world.start(3, settle=True)
    else:
        world.start(3, settle=True)
        write(world, Put(path, value))
        world.kill(3)
        world.start(3, settle=True)
    epoch = world.nodes[3].membership.broker_epoch
    assert admitted(world, 3).broker_epoch == epoch
    assert world.leader._term.cluster.is_admitted(3)
    assert world.told("decision_given_up") == []
    assert unreadable(world) == [path]
    world.create(assignment={0: [3]})
    assert world.state().leader == 3


@pytest.mark.parametrize("name", ["03", "3 ", "٣", "-3", "3/below"])
def test_a_record_under_a_name_that_is_no_number_says_nothing_about_the_broker(name: str) -> None:
    world = World(2)
    value = judgements.encode_admission(judgements.Admission(1, "x", "y"))
    write(world, Create(f"{judgements.ADMITTED}/{name}", value))
    world.kill(world.controller_id)
    world.start(3, settle=True)
    assert world.leader._term.cluster.is_admitted(3)
    assert admitted(world, 3).broker_epoch == world.nodes[3].membership.broker_epoch
    assert unreadable(world) == [f"{judgements.ADMITTED}/{name.removesuffix('/below')}"]


def test_a_record_of_another_broker_keeps_nobody_out() -> None:
    world = World(3)
    value = world.store.read(judgements.admitted_path(1)).value
    path = judgements.admitted_path(4)
    write(world, Create(path, value))
    world.kill(world.controller_id)
    world.start(4, settle=True)
    assert admitted(world, 4).broker_epoch == world.nodes[4].membership.broker_epoch
    assert world.leader._term.cluster.is_admitted(4)


def test_a_record_that_was_removed_is_written_again() -> None:
    world = World(2)
    world.start(3, settle=True)
    world.kill(3)
    write(world, Delete(judgements.admitted_path(3)))
    world.start(3, settle=True)
    assert admitted(world, 3).broker_epoch == world.nodes[3].membership.broker_epoch
    assert world.leader._term.cluster.is_admitted(3)


# --------------------------------------------------------------------------------------------------------- brokers that leave


@pytest.mark.parametrize("value", [*GARBAGE, layout.encode_draining(987_654)])
@pytest.mark.parametrize("when", ["before the controller", "afterwards"])
def test_a_broker_is_drained_over_garbage(when: str, value: bytes) -> None:
    world = World(4)
    leaves = next(b for b in (1, 2) if b != world.controller_id)
    world.create(assignment={0: [leaves, 3]})
    path = layout.draining_path(leaves)
    write(world, Create(path, value))
    if when == "before the controller":
        world.kill(world.controller_id)
    answer = world.admin("drain", broker=leaves)
    assert (answer.error, answer.result["remaining"]) == (Code.NONE, [])
    assert layout.decode_draining(path, world.store.read(path).value) == world.nodes[leaves].membership.broker_epoch
    assert world.state().leader == 3
    assert world.told("decision_given_up") == []
    assert unreadable(world) == ([path] if value in GARBAGE else [])
    world.kill(leaves)
    world.advance(60_000)
    assert world.store.read(path) is None, "it goes with the life that it is about"


def test_garbage_over_the_record_of_a_broker_that_leaves_is_written_over() -> None:
    world = World(4)
    leaves = next(b for b in (1, 2) if b != world.controller_id)
    world.create(assignment={0: [leaves, 3]})
    assert world.admin("drain", broker=leaves).error == Code.NONE
    path = layout.draining_path(leaves)
    write(world, Put(path, b"junk"))
    world.kill(leaves)
    world.start(leaves, settle=True)
    world.advance(60_000)
    assert world.admin("drain", broker=leaves).error == Code.NONE
    assert layout.decode_draining(path, world.store.read(path).value) == world.nodes[leaves].membership.broker_epoch
    assert len(unreadable(world)) == 1


# ------------------------------------------------------------------------------------------------------------ wishes to move


@pytest.mark.parametrize("value", GARBAGE)
@pytest.mark.parametrize("below", [False, True])
def test_a_request_to_move_is_written_over_garbage(value: bytes, below: bool) -> None:
    world = World(4)
    t = world.create(assignment={0: [1, 2]})
    path = layout.reassigned_path("t", 0)
    world.drop_watches = True
    write(world, Create(path, value), *([Create(f"{path}/x", b"")] if below else []))
    assert world.admin("reassign", partitions=[["t", 0, [1, 3]]]).result == {"errors": []}
    world.drop_watches = False
    assert world.leader._term.cluster.topics[t].assignments[0].adding == (3,)
    assert world.told("decision_given_up") == []
    world.propose(1, pid(t), [1, 2, 3])
    assert world.leader._term.cluster.topics[t].assignments[0].replicas == (1, 3)


@pytest.mark.parametrize("below", [False, True])
def test_a_request_to_move_is_written_over_garbage_that_was_looked_at(below: bool) -> None:
    world = World(4)
    t = world.create(assignment={0: [1, 2]})
    path = layout.reassigned_path("t", 0)
    write(world, Create(path, b"junk"), *([Create(f"{path}/x", b"")] if below else []))
    assert world.admin("reassign", partitions=[["t", 0, [1, 3]]]).result == {"errors": []}
    assert world.leader._term.cluster.topics[t].assignments[0].adding == (3,)
    assert world.told("decision_given_up") == []


def test_another_request_is_written_over_garbage_in_the_place_of_a_wish_that_is_known() -> None:
    world = World(4)
    t = world.create(assignment={0: [1, 2]})
    world.admin("reassign", partitions=[["t", 0, [1, 3]]])
    write(world, Put(layout.reassigned_path("t", 0), b"junk"))
    assert world.admin("reassign", partitions=[["t", 0, [1, 4]]]).result == {"errors": []}
    assert world.leader._term.cluster.topics[t].assignments[0].adding == (4,)
    assert world.told("decision_given_up") == []


def test_garbage_that_has_gone_meanwhile_is_not_written_over() -> None:
    world = World(4)
    t = world.create(assignment={0: [1, 2]})
    cluster = world.leader._term.cluster
    cluster.apply(Unreadable(layout.reassigned_path("t", 0), 5))
    assert world.admin("reassign", partitions=[["t", 0, [1, 3]]]).result == {"errors": []}
    assert cluster.topics[t].assignments[0].adding == (3,)
    assert cluster.unreadable == {}


def test_what_was_found_in_the_way_is_not_remembered_for_ever() -> None:
    world = World(1, reconcile_ms=10_000)
    cluster = world.leader._term.cluster
    cluster.apply(Unreadable("/admin/partitions_reassigned/gone/0", 5))
    cluster.apply(Stranger("/brokers/topics/gone/x", "/brokers/topics/gone"))
    world.advance(10_000)
    assert cluster.unreadable == cluster.below == {}


def test_a_request_to_delete_is_written_over_garbage() -> None:
    world = World(3)
    world.create()
    world.drop_watches = True
    write(world, Create(layout.delete_topic_path("t"), b"junk"))
    assert world.admin("delete_topic", name="t").error == Code.NONE
    assert world.store.list(layout.TOPICS) == []
    assert world.store.list(layout.DELETE_TOPICS) == []
    assert world.told("decision_given_up") == []


def test_garbage_written_over_the_wish_of_a_deletion_that_is_under_way_goes_with_it() -> None:
    world = World(3, slice_partitions_max=2)
    t = world.create(partitions=10)
    path, done = layout.delete_topic_path("t"), []

    def after(_address: Any, _call: Any) -> None:
        if not done and len(world.store.list(layout.topic_path("t"))) == 6:
            done.append(world.store.commit([Put(path, b"junk")]))
            world.leader._term.fired(layout.DELETE_TOPICS)  # and it is looked at meanwhile

    world.after_store = after
    assert world.admin("delete_topic", name="t").error == Code.NONE
    assert len(done) == 1
    assert world.store.list(layout.TOPICS) == []
    assert world.store.read(path) is None
    assert world.told("wish_rejected") == []
    assert [p for disk in world.disks.values() for p in disk if p.topic_id == t] == []


def test_garbage_over_the_list_of_who_holds_copies_keeps_nobody_from_being_struck_off() -> None:
    world = World(3)
    t = world.create(assignment={0: [1, 2, 3]})
    away = next(b for b in (1, 2) if b != world.controller_id)
    world.kill(away)
    world.admin("delete_topic", name="t")
    path = layout.removed_path(t)
    assert layout.decode_removed(path, world.store.read(path).value) == (away,)
    write(world, Put(path, b"junk"))
    world.start(away, settle=True)
    assert world.store.read(path) is None
    assert pid(t) not in world.disks[away]
    assert unreadable(world) == [path]


def test_what_a_broker_holds_of_a_deleted_topic_is_recorded_over_garbage() -> None:
    world = World(3)
    t = world.create(assignment={0: [1, 2, 3]})
    path = layout.removed_path(t)
    write(world, Create(path, b"junk"))
    assert world.admin("delete_topic", name="t").error == Code.NONE
    assert world.store.read(path) is None, "every broker has confirmed"
    assert unreadable(world) == [path]
    assert world.told("decision_given_up") == []


# -------------------------------------------------------------------------------------------------------------- told once


@pytest.mark.parametrize(
    "path",
    [
        layout.broker_path(9),
        judgements.admitted_path(9),
        layout.draining_path(9),
        layout.topic_path("x"),
        layout.removed_path(bytes(16)),
        f"{layout.TOPICS}/bad name",
        f"{layout.REJECTED}{layout.ELECT}/t/0",
    ],
)
def test_what_cannot_be_read_is_told_once_and_again_when_it_is_something_else(path: str) -> None:
    world = World(3, reconcile_ms=10_000)
    write(world, Create(path, b"junk"))
    others = [n for n in world.nodes if n != world.controller_id]
    world.kill(world.controller_id)
    world.advance(60_000)
    assert unreadable(world).count(path) in (1, 2), "by the controller of then, and by the next"
    before = unreadable(world).count(path)
    world.advance(60_000)
    assert unreadable(world).count(path) == before
    assert set(others) == set(world.nodes)
    write(world, Delete(path))
    world.advance(20_000)
    write(world, Create(path, b"[]"))
    world.advance(20_000)
    levels = (layout.BROKER_IDS, layout.TOPICS, layout.REJECTED)  # the others are read when a term begins
    assert unreadable(world).count(path) == before + path.startswith(levels)


def listing(world: World, parent: str, name: str) -> None:
    """A level of the store has a name that others' clients can write, and ours cannot."""
    for node in world.nodes.values():
        listed = node.session.list
        node.session.list = lambda path, listed=listed: [*listed(path), name] if path == parent else listed(path)  # type: ignore[method-assign]


@pytest.mark.parametrize(
    "parent",
    [
        layout.BROKER_IDS,
        judgements.ADMITTED,
        layout.DRAINING,
        layout.TOPICS,
        layout.REMOVED,
        layout.DELETE_TOPICS,
        judgements.LOSSES,
        f"{judgements.LOSSES}/{'0' * 32}",
        layout.ELECT,
        f"{layout.ELECT}/t",
        layout.PARTITIONS_REASSIGNED,
        f"{layout.REJECTED}{layout.ELECT}",
        f"{layout.REJECTED}{layout.ELECT}/t",
        f"{layout.REJECTED}{layout.DELETE_TOPICS}",
    ],
)
@pytest.mark.parametrize("name", ["x" * 1_100, "\x7f"])
def test_a_name_that_makes_no_path_stops_nothing(monkeypatch: pytest.MonkeyPatch, parent: str, name: str) -> None:
    monkeypatch.setattr(harness, "STEPS_MAX", 3_000)
    world = World(3, reconcile_ms=10_000)
    row, _, last = parent.rpartition("/")
    if last in ("t", "0" * 32):
        write(world, Create(f"{parent}/1000", b"junk"))
        if row == layout.ELECT:
            write(world, Create(f"{parent}/1001/below", b""))
    listing(world, parent, name)
    world.kill(world.controller_id)
    world.advance(30_000)
    assert world.create("new") is not None
    assert world.admin("delete_topic", name="new").error == Code.NONE
    assert world.told("controller_retries") == []
    assert unreadable(world).count(f"{parent}/{name}") == 1
