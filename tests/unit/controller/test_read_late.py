"""What a controller could not read when its term began, and can read later: it is as if it had been there from the beginning."""

from __future__ import annotations

import pytest
from tests.unit.controller.harness import World, pid
from tests.unit.controller.test_refused import REFUSALS, half_delete, refuse

from replog.errors import Code
from replog.messages import LeaderAndIsr, UpdateMetadata
from replog.metadata import judgements, layout
from replog.ports import Create, Delete, StoreCall

HIDDEN = {
    "checksum": ("", REFUSALS["checksum"]),
    "access list": ("", REFUSALS["access list"]),
    "access list of the level": ("/", REFUSALS["access list"]),
}


def deleted_while_away() -> tuple[World, int, bytes]:
    """A topic that was deleted while one of its brokers was away, which has a copy of it on its disk."""
    world = World(4, reconcile_ms=10_000)
    away = next(n for n in world.nodes if n != world.controller_id)
    other = next(n for n in world.nodes if n not in (away, world.controller_id))
    t = world.create(assignment={0: [away, other]}, config={"min_isr": 1})
    world.kill(away)
    world.admin("delete_topic", name="t")
    assert layout.decode_removed(layout.removed_path(t), world.store.read(layout.removed_path(t)).value) == (away,)  # type: ignore[union-attr]
    assert pid(t) in world.disks[away]
    return world, away, t


@pytest.mark.parametrize("how", HIDDEN)
def test_copies_of_a_deleted_topic_go_once_it_can_be_read_who_holds_them(how: str) -> None:
    world, away, t = deleted_while_away()
    level, refusal = HIDDEN[how]
    refused = {f"{layout.REMOVED}/" if level else layout.removed_path(t)}
    refuse(world, refused, refusal)
    world.kill(world.controller_id)
    world.start(away, settle=True)
    refuse(world, refused, refusal)
    world.advance(25_000)
    assert pid(t) in world.disks[away], "nobody says that it is to go"
    assert world.told("stray_kept") == [], "nor that it is to stay"
    refused.clear()
    world.advance(25_000)
    assert pid(t) not in world.disks[away]
    assert world.store.list(layout.REMOVED) == []


def test_a_record_of_copies_that_are_gone_goes_once_it_can_be_read() -> None:
    world, away, t = deleted_while_away()
    world.disks[away].clear()
    refused = {f"{layout.REMOVED}/"}
    refuse(world, refused, REFUSALS["access list"])
    world.kill(world.controller_id)
    world.start(away, settle=True)
    world.advance(25_000)
    refused.clear()
    world.advance(25_000)
    assert world.store.read(layout.removed_path(t)) is None


@pytest.mark.parametrize("how", HIDDEN)
def test_who_is_to_drain_leads_nothing_once_that_can_be_read(how: str) -> None:
    world = World(4, reconcile_ms=10_000)
    one, other = [n for n in world.nodes if n != world.controller_id][:2]
    world.create(assignment={0: [one, other]}, config={"min_isr": 1})
    level, refusal = HIDDEN[how]
    path = layout.draining_path(one)
    epoch = world.nodes[one].broker.broker_epoch
    world.store.session().commit([Create(path, layout.encode_draining(epoch))])
    refused = {f"{layout.DRAINING}/" if level else path}
    refuse(world, refused, refusal)
    world.kill(world.controller_id)
    world.advance(25_000)
    assert world.state().leader == one
    refused.clear()
    world.advance(25_000)
    assert world.state().leader == other
    assert world.leader._term.cluster.live_brokers()[one].draining


def test_what_an_election_may_have_lost_is_known_once_it_can_be_read() -> None:
    world = World(4, reconcile_ms=10_000)
    t = world.create(assignment={0: [1, 2]})
    path = judgements.loss_path(t, 0)
    record = judgements.LossRecord("t", "unclean", 1, 3, (), ())
    world.store.session().commit([Create(path, judgements.encode_loss(record))])
    refused = {path}
    refuse(world, refused, REFUSALS["access list"])
    world.kill(world.controller_id)
    world.advance(25_000)
    assert path not in world.leader._term.cluster.losses
    refused.clear()
    world.advance(25_000)
    assert world.leader._term.cluster.loss_records[path] == record


def test_what_was_read_whole_is_not_read_again() -> None:
    world = World(3, reconcile_ms=10_000)
    asked: list[object] = []
    world.after_store = lambda _address, call: asked.append(call.argument)
    world.advance(45_000)
    assert layout.TOPICS in asked
    assert not {layout.REMOVED, layout.DRAINING, judgements.LOSSES}.intersection(one for one in asked if isinstance(one, str))


# ----------------------------------------------------------------------------------------------------- half deleted topics


def test_a_topic_that_is_read_late_is_not_made_whole_if_the_wish_to_delete_it_is_refused_by_then() -> None:
    """Seed 50000267: the wish was readable when the topic was found, and refused a moment later."""
    world = World(4, reconcile_ms=10_000, slice_partitions_max=2)
    t = world.create(assignment={n: [1, 2] for n in range(6)}, config={"min_isr": 1})
    refused = {layout.topic_path("t")}
    deposed = half_delete(world)
    left = world.store.list(layout.topic_path("t"))
    refuse(world, refused, REFUSALS["checksum"])
    world.nodes.pop(deposed).session.expire()
    world.settle()
    assert t not in world.leader._term.cluster.topics

    def read(address: object, call: StoreCall) -> None:
        if call.verb == "read_each" and layout.partition_state_path("t", 5) in call.argument:
            refused.add(layout.delete_topic_path("t"))

    refused.clear()
    world.after_store = read
    world.advance(25_000)
    assert refused
    assert t not in world.leader._term.cluster.topics
    assert world.store.list(layout.topic_path("t")) == left
    refused.clear()
    world.after_store = lambda _address, _call: None
    world.advance(25_000)
    assert world.store.list(layout.TOPICS) == []


def test_a_topic_whose_creation_nobody_heard_of_waits_as_well() -> None:
    world = World(4, reconcile_ms=10_000)
    refused: set[str] = set()
    refuse(world, refused, REFUSALS["checksum"])
    wish = layout.delete_topic_path("t")

    def unheard(address: object, call: StoreCall) -> str | None:
        return "applied" if call.verb == "commit_each" and world.store.read(layout.topic_path("t")) is None else None

    def wished(address: object, call: StoreCall) -> None:
        found = world.store.read(layout.topic_path("t"))
        if found is not None and not refused:
            topic_id = layout.decode_topic(layout.topic_path("t"), found.value).topic_id
            world.store.session().commit([Create(wish, layout.encode_delete_topic(topic_id))])
            refused.add(wish)

    world.before_store, world.after_store = unheard, wished
    world.admin("create_topic", name="t", replication_factor=1)
    assert refused
    assert world.leader._term.cluster.topics == {}
    world.before_store, world.after_store = lambda _address, _call: None, lambda _address, _call: None
    refused.clear()
    world.advance(25_000)
    assert world.store.list(layout.TOPICS) == []


def test_a_topic_that_may_be_half_deleted_is_deleted_once_the_wish_can_be_read_and_its_path_is_looked_at() -> None:
    """Seed 50001316: a request to create it met the old one, which the controller took for whole."""
    world = World(4, reconcile_ms=10_000, slice_partitions_max=2)
    world.create(assignment={n: [1, 2] for n in range(6)}, config={"min_isr": 1})
    refused = {layout.delete_topic_path("t")}
    deposed = half_delete(world)
    refuse(world, refused, REFUSALS["checksum"])
    world.nodes.pop(deposed).session.expire()
    world.settle()
    assert world.leader._term.cluster.topics == {}
    before = len(world.commits)
    refused.clear()
    world.store.session().commit([Create(layout.delete_topic_path("other"), b"")])  # the row is looked at, and the topics are not
    world.settle()
    world.leader._term._unsure[layout.topic_path("t")] = None
    world.create("new", replication_factor=1)
    done = [op for ops in world.commits[before:] for op in ops if op.path.startswith(f"{layout.TOPICS}/t/")]
    assert all(isinstance(op, Delete) for op in done), "it is not made whole"
    world.advance(25_000)
    assert world.store.list(layout.TOPICS) == ["new"]
    assert world.store.read(layout.delete_topic_path("t")) is None


# ------------------------------------------------------------------------------------------------------------ what is told


@pytest.mark.parametrize("what", ["topic", "state", "wish"])
def test_a_request_about_a_topic_that_cannot_be_read_is_not_told_that_there_is_none(what: str) -> None:
    world = World(4, reconcile_ms=10_000, slice_partitions_max=2)
    world.create(assignment={n: [1, 2] for n in range(6)}, config={"min_isr": 1})
    paths = {"topic": layout.topic_path("t"), "state": layout.partition_state_path("t", 0), "wish": layout.delete_topic_path("t")}
    if what == "wish":
        deposed = half_delete(world)
        refuse(world, {paths[what]}, REFUSALS["checksum"])
        world.nodes.pop(deposed).session.expire()
        world.settle()
    else:
        refuse(world, {paths[what]}, REFUSALS["checksum"])
        world.kill(world.controller_id)
    asked = {"create_topic": {"replication_factor": 1}, "delete_topic": {}, "find_topic": {}, "explain": {"partition": 0}}
    for verb, arguments in asked.items():
        answer = world.admin(verb, name="t", **arguments)
        assert answer is not None
        assert (answer.error, "topic 't' is there" in answer.message) == (Code.UNKNOWN_SERVER_ERROR, True)
        other = world.admin(verb, name="other", **{**arguments, "validate_only": True})
        assert other is not None
        assert other.error == (Code.NONE if verb == "create_topic" else Code.UNKNOWN_TOPIC_OR_PARTITION)


def hidden_and_led() -> tuple[World, int, bytes, set[str]]:
    """A topic that its leader serves and the new controller cannot read: (world, leader, topic id, what is refused)."""
    world = World(4, reconcile_ms=10_000)
    leader = next(n for n in world.nodes if n != world.controller_id)
    t = world.create(assignment={0: [leader]}, config={"min_isr": 1})
    refused = {layout.topic_path("t")}
    refuse(world, refused, REFUSALS["checksum"])
    world.kill(world.controller_id)
    world.advance(1_000)
    return world, leader, t, refused


def test_brokers_hear_that_topics_may_be_missing_and_everything_once_none_is() -> None:
    world, leader, t, refused = hidden_and_led()

    def complete() -> tuple[UpdateMetadata, LeaderAndIsr]:
        received = world.nodes[leader].broker.received
        views = [one for one in received if isinstance(one, UpdateMetadata) and one.view.since < 0]
        return views[-1], [one for one in received if isinstance(one, LeaderAndIsr) and one.complete][-1]

    view, notice = complete()
    assert (view.view.hidden, view.view.topics, notice.is_partial, notice.entries) == (["t"], [], True, [])
    version = view.view.version
    refused.clear()
    world.advance(25_000)
    view, notice = complete()
    assert (view.view.hidden, [one.topic_id for one in view.view.topics]) == ([], [t])
    assert view.view.version > version
    assert (notice.is_partial, [entry.partition for entry in notice.entries]) == (False, [pid(t)])


def test_nobody_who_serves_what_cannot_be_told_is_told_everything_before_that_is_over() -> None:
    world = World(4, reconcile_ms=10_000)
    leader = next(n for n in world.nodes if n != world.controller_id)
    t = world.create(assignment={0: [leader]}, config={"min_isr": 1})
    world.create("hidden", replication_factor=1)
    refused = {layout.topic_path("hidden")}
    refuse(world, refused, REFUSALS["checksum"])
    world.kill(world.controller_id)
    world.advance(1_000)

    def complete() -> list[bool]:
        return [one.is_partial for one in world.nodes[leader].broker.received if isinstance(one, LeaderAndIsr) and one.complete]

    path = layout.partition_state_path("t", 0)
    value = world.store.read(path)
    assert value is not None
    world.store.session().commit([Delete(path)])
    world.leader._term._unsure[path] = None
    world.create("new", replication_factor=1)
    assert list(world.leader._term.cluster.vanished) == [pid(t)]
    told = complete()
    refused.clear()
    world.advance(25_000)
    assert world.leader._term.cluster.hidden.topics == frozenset()
    assert complete() == told, "it would put its copy away"
    world.store.session().commit([Create(path, value.value)])
    world.advance(25_000)
    assert complete() == [*told, False]
    assert pid(t) in world.nodes[leader].broker.states


def test_topics_are_found_although_the_row_of_deletions_may_not_be_listed() -> None:
    world = World(4, reconcile_ms=10_000)
    t = world.create(assignment={0: [1, 2]}, config={"min_isr": 1})
    refused = {layout.topic_path("t")}
    refuse(world, refused, REFUSALS["access list"])
    world.kill(world.controller_id)
    world.advance(1_000)
    refused.clear()
    refused.add(f"{layout.DELETE_TOPICS}/")
    world.advance(25_000)
    assert t not in world.leader._term.cluster.topics, "it may be half deleted"
    assert world.create("new", replication_factor=1)
    refused.clear()
    world.advance(25_000)
    assert t in world.leader._term.cluster.topics


def test_a_copy_of_a_topic_that_somebody_removes_while_it_is_hidden_is_put_away_then() -> None:
    world, leader, t, _ = hidden_and_led()
    world.store.session().commit([Delete(layout.partition_state_path("t", 0))])
    world.store.session().commit([Delete(layout.topic_path("t"))])
    world.advance(25_000)
    received = [one for one in world.nodes[leader].broker.received if isinstance(one, LeaderAndIsr) and one.complete]
    assert (received[-1].is_partial, received[-1].entries) == (False, [])
    assert [told["partition"] for told in world.told("stray_kept")] == [repr(pid(t))]
