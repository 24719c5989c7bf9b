"""Nodes that the store itself refuses to give out: they cost what they are about, and a controller goes on with everything else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.unit.controller import harness
from tests.unit.controller.harness import World, pid

from replog.errors import Code, ReplogError, StoreCorrupt, UsageError
from replog.metadata import judgements, layout
from replog.metadata.wishes import encode_elect, encode_replicas
from replog.ports import Create, Op, Put, StoreCall

Refusal = Callable[[str], ReplogError]
READ_ONCE = (layout.DRAINING, layout.REMOVED, judgements.LOSSES, judgements.ADMITTED)
"""By a controller that takes its seat."""


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "STEPS_MAX", 6_000)


REFUSALS: dict[str, Refusal] = {
    "checksum": lambda path: StoreCorrupt(path, "the value does not match its checksum"),
    "access list": lambda _path: UsageError("the access list of a node does not allow this"),
}
"""As FileStore says it, and as ZooKeeperStore does."""


@pytest.fixture(params=list(REFUSALS))
def refusal(request: pytest.FixtureRequest) -> Refusal:
    return REFUSALS[request.param]


def refuse(world: World, paths: set[str], refusal: Refusal) -> None:
    """From now on no session reads these nodes, writes to them, or lists (with a slash behind it) what is below them."""
    for node in world.nodes.values():
        _refuse(node.session, paths, refusal)


def _refuse(session: Any, paths: set[str], refusal: Refusal) -> None:
    read_each, commit_each, names, watch = session.read_each, session.commit_each, session.list, session.watch

    def reads(asked: Sequence[str]) -> Any:
        for path in asked:
            if path in paths:
                raise refusal(path)
        return read_each(asked)

    def writes(batches: Sequence[Sequence[Op]]) -> list[Any]:
        found = [next((op.path for op in ops if op.path in paths), None) for ops in batches]
        return [commit_each([ops])[0] if path is None else refusal(path) for ops, path in zip(batches, found, strict=True)]

    def listed(path: str) -> Any:
        if f"{path}/" in paths:
            raise refusal(f"{path}/")
        return names(path)

    def watched(path: str, changed: Callable[[str], None]) -> Any:
        if f"{path}/" in paths:
            raise refusal(f"{path}/")
        return watch(path, changed)

    session.read_each, session.commit_each, session.list, session.watch = reads, writes, listed, watched


def told(world: World) -> list[str]:
    return [event["path"] for event in world.told("store_value_unreadable")]


@pytest.mark.parametrize("what", ["topic", "state"])
def test_the_next_controller_goes_on_without_a_topic_that_it_may_not_read(what: str, refusal: Refusal) -> None:
    world = World(4, reconcile_ms=10_000)
    t = world.create(assignment={0: [1, 2], 1: [2, 3]}, config={"min_isr": 1})
    world.create("u", assignment={0: [1, 4]}, config={"min_isr": 1})
    path = layout.topic_path("t") if what == "topic" else layout.partition_state_path("t", 1)
    refused, before = {path}, world.store.read(path)
    first = world.controller_id
    refuse(world, refused, refusal)
    world.kill(first)
    world.advance(1_000)
    assert world.controller_id != first
    assert t not in world.leader._term.cluster.topics
    assert world.create("new", replication_factor=1)
    if first == 1:
        assert world.state(0, "u").leader == 4
    assert told(world) == [path]
    assert world.store.read(path) == before, "nothing is written over it"
    world.advance(25_000)
    assert told(world) == [path], "told once"
    refused.clear()
    world.advance(25_000)
    assert t in world.leader._term.cluster.topics
    assert world.state().leader != first


def test_topics_that_cannot_be_read_count_among_those_there_may_be(refusal: Refusal) -> None:
    world = World(4, reconcile_ms=10_000, auto_create_topics=True, auto_create_topics_max=2)
    world.create(assignment={0: [1, 2]}, config={"min_isr": 1})
    world.create("u", assignment={0: [1, 4]}, config={"min_isr": 1})
    refuse(world, {layout.topic_path("t")}, refusal)
    world.kill(world.controller_id)
    world.advance(1_000)
    answer = world.admin("create_missing_topic", name="v")
    assert answer.error == Code.POLICY_VIOLATION
    assert "there are 2 topics; the limit is 2" in answer.message
    assert world.store.list(layout.TOPICS) == ["t", "u"]


def test_a_known_topic_is_served_although_its_state_is_refused_and_decided_once_it_can_be_read(refusal: Refusal) -> None:
    world = World(4, reconcile_ms=10_000)
    controller = world.controller_id
    leader, follower = [b for b in world.nodes if b != controller][:2]
    t = world.create(assignment={0: [leader, follower], 1: [leader, follower]}, config={"min_isr": 1})
    path = layout.partition_state_path("t", 0)
    refused, before = {path}, world.store.read(path)
    refuse(world, refused, refusal)
    world.kill(leader)
    world.advance(1_000)
    assert world.state(1).leader == follower, "the other one has been decided"
    assert world.store.read(path) == before
    assert list(world.leader._term.cluster.parked) == [pid(t, 0)]
    assert world.create("new", replication_factor=1)
    refused.clear()
    world.advance(20_000)
    assert world.state(0).leader == follower
    assert world.leader._term.cluster.parked == {}


def test_many_nodes_that_are_refused_are_found_among_many(refusal: Refusal) -> None:
    world = World(3, reconcile_ms=10_000, slice_partitions_max=16)
    for n in range(40):
        world.create(f"t{n:02}", replication_factor=1)
    refused = {layout.topic_path(f"t{n:02}") for n in (0, 7, 8, 31, 39)}
    first = world.controller_id
    refuse(world, refused, refusal)
    world.kill(first)
    world.advance(1_000)
    known = {topic.topic for topic in world.leader._term.cluster.topics.values()}
    assert known == {f"t{n:02}" for n in range(40)} - {path.rpartition("/")[2] for path in refused}
    assert told(world) == sorted(refused)


@pytest.mark.parametrize("kind", ["checksum", "access list", "below"])
@pytest.mark.parametrize("row", [layout.ELECT, layout.PARTITIONS_REASSIGNED, layout.PARTITIONS_ADD, layout.DELETE_TOPICS])
def test_wishes_that_are_refused_wait_and_hold_up_no_other(row: str, kind: str) -> None:
    world = World(4, reconcile_ms=10_000)
    t = world.create(assignment={0: [1, 2]})
    world.create("u", assignment={0: [1, 2]})
    values = {
        layout.ELECT: (layout.elect_path("t", 0), encode_elect(unclean=False)),
        layout.PARTITIONS_REASSIGNED: (layout.reassigned_path("t", 0), encode_replicas((3, 4))),
        layout.PARTITIONS_ADD: (f"{layout.PARTITIONS_ADD}/t/1", encode_replicas((3, 4))),
        layout.DELETE_TOPICS: (layout.delete_topic_path("t"), layout.encode_delete_topic(t)),
    }
    path, value = values[row]
    refused = {f"{path.rpartition('/')[0]}/" if kind == "below" and row != layout.DELETE_TOPICS else path}
    refuse(world, refused, REFUSALS["checksum" if kind == "checksum" else "access list"])
    world.store.session().commit([Create(path, value), Create(layout.reassigned_path("u", 0), encode_replicas((3, 4)))])
    world.settle()
    assert world.store.read(path) is not None, "it waits"
    placed = layout.decode_topic(layout.topic_path("u"), world.store.read(layout.topic_path("u")).value).partitions[0]
    assert placed.adding == (3, 4)
    first = world.controller_id
    world.kill(first)
    world.advance(25_000)
    assert world.create("new", replication_factor=1)
    assert told(world)[0] in refused
    assert world.store.read(path) is not None
    refused.clear()
    world.advance(25_000)
    if row != layout.PARTITIONS_REASSIGNED:  # a wish to move is kept until the move is done
        assert world.store.read(path) is None
    else:
        assert pid(t) in world.leader._term.cluster.moving


@pytest.mark.parametrize("path", [judgements.admitted_path(2), layout.DRAINING + "/2", layout.CLUSTER])
def test_what_is_kept_of_one_broker_or_of_the_cluster_stops_nothing_else(path: str, refusal: Refusal) -> None:
    world = World(4, reconcile_ms=10_000)
    world.create(assignment={0: [3, 4]}, config={"min_isr": 1})
    value = world.store.read(path)
    if value is None:
        world.store.session().commit([Create(path, b"{}")])
        value = world.store.read(path)
    refused = {path}
    refuse(world, refused, refusal)
    world.kill(world.controller_id)
    world.advance(5_000)
    assert world.create("new", assignment={0: [3, 4]})
    world.kill(3)
    world.advance(5_000)
    assert world.state().leader == 4
    assert world.store.read(path) == value, "nothing is written over it"
    refused.clear()
    world.advance(30_000)
    assert 2 in world.leader._term.cluster.live_brokers()


def test_a_record_of_a_loss_that_is_refused_stops_the_election_that_would_replace_it_and_no_other(refusal: Refusal) -> None:
    lossy = {"unclean_leader_election": True, "min_isr": 1}
    world = World(4, reconcile_ms=10_000)
    controller = world.controller_id
    a, b = [n for n in world.nodes if n != controller][:2]
    t = world.create(assignment={0: [a, b], 1: [a, b]}, config=lossy)
    path = judgements.loss_path(t, 0)
    world.store.session().commit([Create(path, b"garbage")])
    refused = {path}
    refuse(world, refused, refusal)
    for n in (0, 1):
        world.propose(a, pid(t, n), [a])
    world.kill(a)
    world.advance(1_000)
    assert world.state(1).leader == b
    assert world.store.read(path).value == b"garbage"
    refused.clear()
    world.advance(25_000)
    assert world.state(0).leader == b


def test_a_store_that_refuses_everything_is_not_an_empty_one() -> None:
    world = World(3, reconcile_ms=10_000)
    t = world.create(replication_factor=1)
    node = world.nodes[world.controller_id]
    read_each, read, closed = node.session.read_each, node.session.read, [True]

    def refused(kept: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def call(argument: Any) -> Any:
            if closed:
                raise UsageError("the store is closed")
            return kept(argument)

        return call

    node.session.read_each, node.session.read = refused(read_each), refused(read)  # type: ignore[method-assign]
    world.advance(25_000)
    assert told(world) == []
    assert t in world.leader._term.cluster.topics
    closed.clear()
    world.advance(25_000)
    assert world.create("new", replication_factor=1)


def test_a_damaged_store_is_not_a_damaged_node() -> None:
    world = World(3, reconcile_ms=10_000)
    world.create(replication_factor=1)
    refused = {layout.topic_path("t")}
    refuse(world, refused, lambda _path: StoreCorrupt("/the/file", "the database is damaged"))
    first = world.controller_id
    world.kill(first)
    world.advance(20_000)
    assert told(world) == []
    assert world.told("controller_retries")
    refused.clear()
    world.advance(30_000)
    assert world.create("new", replication_factor=1)


def test_a_node_that_is_given_out_again_and_damaged_then_is_told_anew() -> None:
    world = World(3, reconcile_ms=10_000)
    world.create(replication_factor=1)
    path = layout.topic_path("t")
    refused = {path}
    refuse(world, refused, lambda path: StoreCorrupt(path, "the value does not match its checksum"))
    world.kill(world.controller_id)
    world.advance(11_000)
    refused.clear()
    world.advance(11_000)
    world.store.session().commit([Put(path, b"{")])
    assert world.admin("add_partitions", name="t", total=2).error == Code.UNKNOWN_SERVER_ERROR
    assert told(world) == [path, path]


def half_delete(world: World) -> int:
    """The controller stops in the middle of the deletion of topic t, which has six partitions; who that was."""
    deposed = world.controller_id

    def stop(address: object, call: StoreCall) -> str | None:
        if address != ("controller", deposed) or not call.verb.startswith("commit") or len(world.store.list(layout.topic_path("t"))) > 2:
            return None
        world.nodes[deposed].paused = True
        return "lost"

    world.before_store = stop
    world.admin("delete_topic", name="t", at=deposed)
    world.before_store = lambda _address, _call: None
    return deposed


def test_a_topic_that_is_half_deleted_is_not_made_whole_while_the_wish_to_delete_it_is_refused(refusal: Refusal) -> None:
    world = World(4, reconcile_ms=10_000, slice_partitions_max=2)
    t = world.create(assignment={n: [1, 2] for n in range(6)}, config={"min_isr": 1})
    deposed, wish = half_delete(world), layout.delete_topic_path("t")
    left = world.store.list(layout.topic_path("t"))
    assert 0 < len(left) < 6
    refused = {wish}
    refuse(world, refused, refusal)
    elect = Create(layout.elect_path("t", 5), encode_elect(unclean=False))
    world.store.session().commit([elect])
    world.nodes.pop(deposed).session.expire()
    world.settle()
    world.advance(25_000)
    assert world.store.list(layout.topic_path("t")) == left
    assert t not in world.leader._term.cluster.topics
    assert world.admin("create_topic", name="t", replication_factor=1).error != Code.NONE
    assert world.store.list(layout.topic_path("t")) == left
    assert world.store.read(elect.path) is not None, "what is wished about it waits"
    assert world.create("new", replication_factor=1)
    assert told(world) == [wish]
    refused.clear()
    world.advance(25_000)
    assert (world.store.list(layout.TOPICS), world.store.list(layout.DELETE_TOPICS)) == (["new"], [])
    assert world.create("t", replication_factor=1)


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize(
    "row",
    [
        layout.ELECT,
        layout.PARTITIONS_ADD,
        layout.PARTITIONS_REMOVE,
        layout.PARTITIONS_REASSIGNED,
        layout.rejected_path(layout.ELECT),
        layout.DRAINING,
        layout.REMOVED,
        judgements.LOSSES,
        judgements.ADMITTED,
    ],
)
def test_a_level_that_may_not_be_listed_holds_up_nothing_else(row: str, again: bool) -> None:
    world = World(4, reconcile_ms=10_000)
    world.create(assignment={0: [1, 2], 1: [2, 1]}, config={"min_isr": 1})
    world.create("u", assignment={0: [1, 2]})
    refused = {f"{row}/"}
    refuse(world, refused, REFUSALS["access list"])
    if again:
        world.kill(world.controller_id)
    world.advance(25_000)
    other = layout.elect_path("t", 0) if row != layout.ELECT else f"{layout.PARTITIONS_ADD}/t/2"
    world.store.session().commit([Create(other, encode_elect(unclean=False) if row != layout.ELECT else encode_replicas((3, 4)))])
    world.advance(11_000)
    assert world.store.read(other) is None
    assert world.admin("delete_topic", name="u").error == Code.NONE
    world.advance(11_000)
    assert world.store.list(layout.TOPICS) == ["t"]
    assert told(world) == (sorted(refused) if again or row not in READ_ONCE else [])
    assert world.told("controller_retries") == []


def test_a_known_controller_goes_on_although_the_row_of_deletions_may_not_be_listed() -> None:
    world = World(4, reconcile_ms=10_000)
    world.create(assignment={0: [1, 2], 1: [2, 1]}, config={"min_isr": 1})
    world.create("u", assignment={0: [1, 2]})
    refused = {f"{layout.DELETE_TOPICS}/"}
    refuse(world, refused, REFUSALS["access list"])
    world.advance(25_000)
    elect = layout.elect_path("t", 0)
    world.store.session().commit([Create(elect, encode_elect(unclean=False))])
    world.advance(11_000)
    assert world.store.read(elect) is None
    assert world.admin("delete_topic", name="u").error == Code.NONE
    assert told(world) == sorted(refused)
    world.kill(world.controller_id)
    world.advance(11_000)
    cluster = world.leader._term.cluster
    assert (cluster.topics, cluster.hidden.topics) == ({}, {"t"}), "nobody knows which are half deleted"
    assert world.create("new", replication_factor=1)
    refused.clear()
    world.advance(25_000)
    assert {topic.topic for topic in cluster.topics.values()} == {"t", "new"}
