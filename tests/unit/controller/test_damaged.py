"""Nodes of a topic, or of a state, that somebody has damaged: what needs them waits, everybody else goes on, and people are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.controller import harness
from tests.unit.controller.harness import World, pid

from replog.errors import Code, ReplogError, StoreFull
from replog.messages import AlterIsr, AlterIsrEntry, ControlledShutdown, ControlledShutdownAnswer, UpdateMetadata
from replog.metadata import layout
from replog.metadata.wishes import encode_replicas
from replog.model import Assignment, PartitionId
from replog.ports import Conflict, Create, Delete, Op, Put, UnknownOutcome

JUNK = b"{"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "STEPS_MAX", 6_000)


def damage(world: World, path: str, value: bytes = JUNK) -> bytes:
    """Somebody writes over a node; what was there."""
    known = world.store.read(path)
    world.store.session().commit([Put(path, value, known.version)])
    world.settle()
    return known.value


def given_up(world: World) -> list[dict[str, Any]]:
    return world.told("decision_given_up")


def idles(world: World) -> bool:
    """Whether nothing is stored from now on until the next `reconcile`."""
    before = len(world.commits)
    world.advance(5_000)
    world.advance(4_000)
    return len(world.commits) == before


# ------------------------------------------------------------------------------------------------------- brokers that leave


@pytest.mark.parametrize("verb", ["drain", "stop"])
def test_a_broker_leaves_although_a_state_of_what_it_leads_is_damaged(verb: str) -> None:
    world = World(4, reconcile_ms=10_000)
    leaves = next(b for b in (1, 2) if b != world.controller_id)
    t = world.create(assignment={0: [leaves, 3], 1: [leaves, 3]})
    path = layout.partition_state_path("t", 0)
    before = damage(world, path)
    if verb == "drain":
        answer = world.admin("drain", broker=leaves)
        assert (answer.error, answer.result["remaining"]) == (Code.NONE, [["t", 0]])
    else:
        epoch = world.nodes[leaves].broker.broker_epoch
        world.send(leaves, ("controller", world.controller_id), ControlledShutdown(leaves, epoch))
        world.settle()
        (said,) = [m for _, to, m in world.sent if to == leaves and isinstance(m, ControlledShutdownAnswer)]
        assert (said.error, said.remaining, said.remaining_total) == (Code.NONE, [pid(t, 0)], 1)
    assert world.state(1).leader == 3, "the other one has been moved"
    assert list(world.leader._term.cluster.parked) == [pid(t, 0)]
    assert idles(world)
    assert [told["path"] for told in world.told("store_value_unreadable")] == [path]
    assert world.create("new", assignment={0: [3, 4]}), "others are heard"
    damage(world, path, before)
    world.advance(20_000)
    assert world.state(0).leader == 3, "it is decided again when it can be read"
    assert world.leader._term.cluster.parked == {}


# ------------------------------------------------------------------------------------------------------------------ moves


def stored(world: World, topic: str, number: int = 0) -> Assignment:
    return layout.decode_topic(layout.topic_path(topic), world.store.read(layout.topic_path(topic)).value).partitions[number]


def wish(world: World, *wished: tuple[str, int, list[int]]) -> None:
    answer = world.admin("reassign", partitions=[list(one) for one in wished])
    assert (answer.error, answer.result) == (Code.NONE, {"errors": []})


def held(world: World) -> list[PartitionId]:
    """Whose wishes have no turn."""
    return [partition for partition, waits in world.leader._term.cluster.held.items() if waits]


def test_a_damaged_state_stops_the_move_of_its_partition_alone() -> None:
    world = World(4, reconcile_ms=10_000, reassignments_max=1_000, slice_partitions_max=5)
    a = world.create("a", assignment={n: [1, 2] for n in range(12)})
    world.create("b", assignment={0: [1, 2]})
    paths = [layout.partition_state_path("a", n) for n in (0, 7)]
    before = [damage(world, path) for path in paths]
    for n in range(12):
        wish(world, ("a", n, [2, 3]))
    wish(world, ("b", 0, [2, 3]))
    assert [n for n in range(12) if not stored(world, "a", n).adding] == [0, 7]
    assert stored(world, "b").adding == (3,)
    assert idles(world)
    world.advance(30_000)
    assert [(told["event"], told["count"]) for told in given_up(world)] == [("MovesDue", 1)] * 2, "told once"
    for path, told in zip(paths, given_up(world), strict=True):
        assert f"{path} cannot be read" in told["why"]
    damage(world, paths[0], before[0])
    world.advance(10_000)
    assert [n for n in range(12) if not stored(world, "a", n).adding] == [7], "what can be read again moves"
    assert held(world) == [pid(a, 7)]


def test_a_damaged_topic_stops_the_moves_of_no_other() -> None:
    world = World(4, reconcile_ms=10_000, slice_partitions_max=5)
    world.create("a", assignment={n: [1, 2] for n in range(12)})
    world.create("b", assignment={0: [1, 2]})
    path = layout.topic_path("a")
    before = damage(world, path)
    for n in range(12):
        wish(world, ("a", n, [2, 3]))
    wish(world, ("b", 0, [2, 3]))
    assert stored(world, "b").adding == (3,)
    assert idles(world)
    world.advance(30_000)
    assert sum(told["count"] for told in given_up(world)) == 12, "told once of each"
    assert {told["event"] for told in given_up(world)} == {"MovesDue"}
    damage(world, path, before)
    world.advance(10_000)
    assert [n for n in range(12) if not stored(world, "a", n).adding] == []
    assert held(world) == []


@pytest.mark.parametrize("error", [StoreFull("too large"), UnknownOutcome("too large"), Conflict("/elsewhere", "it is")])
def test_moves_that_the_store_refuses_hold_up_no_others(error: ReplogError) -> None:
    world = World(4, reconcile_ms=10_000)
    a = world.create("a", assignment={0: [1, 2], 1: [1, 2]})
    world.create("b", assignment={0: [1, 2]})
    refused = [layout.topic_path("a")]
    for node in world.nodes.values():
        taken = node.session.commit_each

        def commit_each(batches: list[list[Op]], taken: Callable[..., list[object]] = taken) -> list[object]:
            return [error if any(op.path in refused for op in ops) else taken([ops])[0] for ops in batches]

        node.session.commit_each = commit_each  # type: ignore[assignment]
    wish(world, ("a", 0, [2, 3]), ("a", 1, [2, 3]), ("b", 0, [2, 3]))
    assert stored(world, "b").adding == (3,)
    assert held(world) == [pid(a, 0), pid(a, 1)]
    assert idles(world)
    refused.clear()
    wish(world, ("a", 1, [3, 1]))
    assert [stored(world, "a", n).adding for n in (0, 1)] == [(), (3,)], "another wish is tried at once"
    world.advance(20_000)
    assert stored(world, "a").adding == (3,)
    assert [(told["event"], told["count"]) for told in given_up(world)] == [("MovesDue", 2)]


def test_a_lost_race_holds_no_move_up() -> None:
    world = World(4)
    t = world.create(assignment={0: [1, 2]})
    lost = [Conflict(layout.topic_path("t"), "a race")] * 9
    for node in world.nodes.values():
        taken = node.session.commit_each

        def commit_each(batches: list[list[Op]], taken: Callable[..., list[object]] = taken) -> list[object]:
            return [lost.pop() if lost and any(op.path == layout.topic_path("t") for op in ops) else taken([ops])[0] for ops in batches]

        node.session.commit_each = commit_each  # type: ignore[assignment]
    wish(world, ("t", 0, [2, 3]))
    assert (lost, stored(world, "t").adding, given_up(world)) == ([], (3,), [])
    assert held(world) == []
    assert t in world.leader._term.cluster.topics


def test_a_lost_race_holds_no_move_up_whose_turn_comes_after_others_were_given_up() -> None:
    world = World(4, slice_partitions_max=1)
    a = world.create("a", assignment={0: [1, 2]})
    world.create("b", assignment={0: [1, 2]})
    path, lost = layout.topic_path("a"), [Conflict(layout.topic_path("b"), "a race")]
    for node in world.nodes.values():
        taken = node.session.commit_each

        def commit_each(batches: list[list[Op]], taken: Callable[..., list[object]] = taken) -> list[object]:
            paths = {op.path for ops in batches for op in ops}
            if path in paths:
                return [Conflict("/elsewhere", "it is")] * len(batches)
            return [lost.pop() if lost and layout.topic_path("b") in paths else taken([ops])[0] for ops in batches]

        node.session.commit_each = commit_each  # type: ignore[assignment]
    world.drop_watches = True
    by_path = [Create(layout.reassigned_path(name, 0), encode_replicas((2, 3))) for name in ("a", "b")]
    world.store.session().commit(by_path)
    world.advance(world.config.reconcile_ms)
    assert (lost, stored(world, "b").adding) == ([], (3,))
    assert held(world) == [pid(a, 0)]


# -------------------------------------------------------------------------------------------------------------- deletions


def states(world: World, topic: str) -> list[str]:
    """Paths of the states that are there."""
    paths = (layout.partition_state_path(topic, int(n)) for n in world.store.list(layout.topic_path(topic)))
    return [path for path in paths if world.store.read(path) is not None]


@pytest.mark.parametrize("count", [3, 150])
def test_a_topic_whose_node_is_damaged_keeps_its_states_and_its_deletion_goes_on_when_it_can_be_read(count: int) -> None:
    world = World(3, reconcile_ms=10_000)
    world.create(assignment={n: [1, 2] for n in range(count)})
    path, wished = layout.topic_path("t"), layout.delete_topic_path("t")
    before = damage(world, path)
    answer = world.admin("delete_topic", name="t")
    assert (answer.error, answer.result) == (Code.UNKNOWN_SERVER_ERROR, {})
    assert answer.message.startswith(f"delete_topic was not done, because what the store has at {path} cannot be read: not JSON")
    assert (len(states(world, "t")), world.store.read(wished) is None) == (count, False)
    assert idles(world)
    asked = len(world.client)
    world.advance(30_000)
    assert [told["event"] for told in given_up(world)] == ["FinishDeletion"], "told once"
    again = world.admin("delete_topic", name="t")
    assert (again.error, len(world.client)) == (Code.UNKNOWN_SERVER_ERROR, asked + 1), "each who asks is answered once"
    damage(world, path, before)
    world.advance(20_000)
    assert (world.store.list(layout.TOPICS), world.store.list(layout.DELETE_TOPICS)) == ([], [])
    assert len(world.client) == asked + 1
    assert {b: len(disk) for b, disk in world.disks.items()} == {1: 0, 2: 0, 3: 0}


@pytest.mark.parametrize("name", ["/t", "/t/1/leaderAndISR"])
def test_the_next_controller_keeps_the_wish_to_delete_what_it_cannot_read(name: str) -> None:
    world = World(3, reconcile_ms=10_000)
    t = world.create(assignment={n: [1, 2] for n in range(3)})
    path = f"{layout.TOPICS}{name}"
    before = damage(world, path)
    world.drop_watches = True
    world.store.session().commit([Create(layout.delete_topic_path("t"), layout.encode_delete_topic(t))])
    deposed = world.controller_id
    world.kill(deposed)
    world.drop_watches = False
    world.start(deposed, settle=True)
    world.advance(30_000)
    assert (len(states(world, "t")), world.store.list(layout.DELETE_TOPICS)) == (3, ["t"])
    assert world.told("wish_dropped") == []
    assert idles(world)
    damage(world, path, before)
    world.advance(20_000)
    assert (world.store.list(layout.TOPICS), world.store.list(layout.DELETE_TOPICS)) == ([], [])
    assert {b: len(disk) for b, disk in world.disks.items()} == {1: 0, 2: 0, 3: 0}


def test_states_that_are_gone_already_do_not_end_a_deletion() -> None:
    world = World(3)
    world.create(assignment={n: [1, 2] for n in range(40)})
    world.store.session().commit([Delete(path) for path in states(world, "t")[5:35]])
    assert world.admin("delete_topic", name="t").error == Code.NONE
    assert (world.store.list(layout.TOPICS), given_up(world)) == ([], [])


def test_a_topic_that_is_known_is_deleted_by_a_path_although_a_state_of_it_is_damaged() -> None:
    world = World(3)
    t = world.create(assignment={0: [1, 2]})
    damage(world, layout.partition_state_path("t", 0))
    assert world.admin("drain", broker=1).result["remaining"] == [["t", 0]]
    assert len(world.told("store_value_unreadable")) == 1, "it has been found"
    world.store.session().commit([Create(layout.delete_topic_path("t"), layout.encode_delete_topic(t))])
    world.settle()
    assert (world.store.list(layout.TOPICS), world.store.list(layout.DELETE_TOPICS)) == ([], [])


# --------------------------------------------------------------------------------------------------------- what people read


@pytest.mark.parametrize("name", ["/t", "/t/1/leaderAndISR"])
def test_a_request_that_damage_is_in_the_way_of_is_told_where_it_is(name: str) -> None:
    world = World(3)
    path = f"{layout.TOPICS}{name}"
    world.create(assignment={0: [1, 2]})
    if name == "/t":
        damage(world, path)
    else:
        world.store.session().commit([Create(path, JUNK)])
    answer = world.admin("add_partitions", name="t", total=2)
    assert answer.error == Code.UNKNOWN_SERVER_ERROR
    assert answer.message.startswith(f"add_partitions was not done, because what the store has at {path} cannot be read: not JSON")
    assert [told["why"] for told in given_up(world)] == [answer.message.replace("add_partitions", "AdminAsked")]


# ---------------------------------------------------------------------------------------------------------------- proposals


def test_what_is_proposed_for_others_in_one_message_with_a_damaged_one_is_answered() -> None:
    """A refusal that is not heard leaves a high watermark where it is: nobody else tells the leader."""
    world = World(5, reconcile_ms=30_000)
    leader = next(b for b in (1, 2) if b != world.controller_id)
    t = world.create(assignment={n: [leader, 3, 4] for n in range(3)})
    for n in (1, 2):
        world.propose(leader, pid(t, n), [leader, 4])
    damage(world, layout.partition_state_path("t", 0))
    node = world.nodes[leader]
    epochs = {b: world.nodes[b].membership.broker_epoch for b in (leader, 3, 4)}

    def entry(n: int, isr: dict[int, int], proposal: int) -> AlterIsrEntry:
        state = node.broker.states[pid(t, n)].state
        return AlterIsrEntry(pid(t, n), state.leader_epoch, state.partition_epoch, list(isr.items()), proposal=proposal)

    whole = entry(0, {leader: epochs[leader], 4: epochs[4]}, 1_001)
    of_a_life_that_is_over = entry(1, {**epochs, 3: epochs[3] - 1}, 1_002)
    good = entry(2, epochs, 1_003)
    for request in (7, 8, 9):
        before, answers = len(world.commits), len(node.broker.answers)
        wish = AlterIsr(request, leader, node.membership.broker_epoch, [whole, of_a_life_that_is_over, good], node.broker.controller_epoch)
        world.send(leader, ("controller", world.controller_id), wish)
        world.settle()
        (answer,) = node.broker.answers[answers:]
        found = {one.partition.partition: one.error for one in answer.entries}
        assert found == {1: Code.INELIGIBLE_REPLICA, 2: Code.INVALID_UPDATE_VERSION}, "2 is stored by the time that it is judged again"
        assert len(world.commits) - before <= 4
    assert world.state(2).isr == (leader, 3, 4)
    assert given_up(world) == [], "what is damaged was told, once"
    assert len(world.told("store_value_unreadable")) == 1


def test_a_move_that_cannot_be_completed_keeps_nobody_from_leaving() -> None:
    """Only the end of the move needs the topic's node: an election does not."""
    world = World(5, reconcile_ms=30_000)
    t = world.create(assignment={0: [2, 3]}, config={"min_isr": 1})
    assert world.admin("reassign", partitions=[["t", 0, [2, 3, 4]]]).result["errors"] == []
    damage(world, layout.topic_path("t"))
    world.propose(2, pid(t), [2, 3, 4], settle=False)
    world.settle()
    answer = world.admin("drain", broker=2)
    assert answer.result["remaining"] == []
    assert world.state().leader == 3


# ------------------------------------------------------------------------------------------------------------ what is mended


def mend(world: World, path: str, value: bytes) -> None:
    world.store.session().commit([Put(path, value, world.store.read(path).version)])
    world.advance(65_000)


def test_a_proposal_of_which_nothing_can_be_stored_is_answered_with_nothing() -> None:
    """Rather than tried ten times, and told each time that its leader asks again."""
    world = World(4, reconcile_ms=30_000)
    leader = next(b for b in (1, 2) if b != world.controller_id)
    t = world.create(assignment={0: [leader, 3, 4]})
    damage(world, layout.partition_state_path("t", 0))
    node = world.nodes[leader]
    for _ in range(3):
        before, answers = len(world.commits), len(node.broker.answers)
        world.propose(leader, pid(t), [leader, 4], settle=False)
        world.settle()
        (answer,) = node.broker.answers[answers:]
        assert answer.entries == []
        assert len(world.commits) - before <= 4
    assert given_up(world) == []


@pytest.mark.parametrize("what", ["topic", "state"])
def test_a_topic_that_can_be_read_again_hears_of_who_died_meanwhile(what: str) -> None:
    world = World(4, reconcile_ms=30_000)
    first = world.controller_id
    leader, follower = [b for b in world.nodes if b != first][:2]
    world.create(assignment={0: [leader, follower]}, config={"min_isr": 1})
    path = layout.topic_path("t") if what == "topic" else layout.partition_state_path("t", 0)
    good = damage(world, path)
    world.kill(first)
    world.advance(5_000)
    world.kill(leader)
    world.advance(31_000)
    mend(world, path, good)
    assert (world.state().leader, world.state().isr) == (follower, (follower,))


def test_wishes_wait_until_their_topic_can_be_read_again() -> None:
    """They were accepted: a new controller put them away, with the reason that there is no such topic."""
    world = World(5, reconcile_ms=30_000, reassignments_max=1)
    world.create(assignment={n: [2, 3] for n in range(3)}, config={"min_isr": 2})
    for n in (0, 1):
        world.admin("reassign", partitions=[["t", n, [4, 5]]])
    assert world.admin("reassign", partitions=[["t", 0, [5, 4]]]).result["errors"] == []
    path = layout.partition_state_path("t", 2)
    good = damage(world, path)
    world.kill(1)
    world.advance(5_000)
    assert world.store.list(layout.REJECTED) == []
    mend(world, path, good)
    listed = world.admin("list_reassignments").result["reassignments"]
    assert [(one["partition"], one["target"]) for one in listed] == [(0, [5, 4]), (1, [4, 5])]


def test_a_broker_whose_rack_no_message_can_carry_keeps_nobody_else_out() -> None:
    """A broker of an earlier version, or somebody by hand, has registered it."""
    world = World(2)
    world.start(3, rack="r\udcff", settle=True)
    world.start(4, settle=True)
    world.advance(5_000)
    assert sorted(world.leader._term.cluster.live_brokers()) == [1, 2, 4]
    assert "rack" in world.told("store_value_unreadable")[0]["error"]
    views = [m.view for _, _, m in world.sent if isinstance(m, UpdateMetadata)]
    assert {broker.broker_id for view in views for broker in view.brokers} == {1, 2, 4}
