"""Reassignments as a controller carries them out: one transaction each, whatever is wished in between (V3 F, P-83 to P-91)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import nullcontext
from random import Random
from typing import Any

import pytest
from attrs import evolve
from tests.unit.controller.harness import World, pid

from replog.config import BrokerConfig, TopicConfig
from replog.controller.changes import (
    Broker,
    BrokerSet,
    DeletionGone,
    DeletionSet,
    MoveWished,
    MoveWishGone,
    NodesFreed,
    NodeStuck,
    StateSet,
    Topic,
    TopicGone,
    TopicSet,
)
from replog.controller.controller import Controller
from replog.controller.events import AdminAsked, IsrProposed, MovesDue, Recheck, Wish, WishesSeen
from replog.controller.reassign import check_cancellation
from replog.controller.refusal import Refusal
from replog.controller.turns import urgency
from replog.errors import Code
from replog.messages import Admin, AlterIsr, AlterIsrEntry, LeaderAndIsr, StopReplica, UpdateMetadata
from replog.metadata import layout
from replog.metadata.memory import MemoryStore
from replog.metadata.wishes import encode_replicas
from replog.model import Assignment, BrokerInfo, PartitionId, PartitionState
from replog.ports import Check, Create, Delete, Put


def assignments(world: World, topic: str = "t") -> Mapping[int, Assignment]:
    """As stored."""
    path = layout.topic_path(topic)
    value = world.store.read(path)
    assert value is not None
    return layout.decode_topic(path, value.value).partitions


def assignment(world: World, partition: int = 0, topic: str = "t") -> Assignment:
    return assignments(world, topic)[partition]


def wishes(world: World) -> list[str]:
    found = []
    for topic in world.store.list(layout.PARTITIONS_REASSIGNED):
        found += [f"{topic}/{n}" for n in world.store.list(f"{layout.PARTITIONS_REASSIGNED}/{topic}")]
    return found


def reassign(world: World, *wished: Any, **options: Any) -> list[Any]:
    """The errors of the answer."""
    answer = world.admin("reassign", partitions=[list(one) for one in wished], **options)
    assert answer is not None
    assert answer.error == Code.NONE, answer.message
    return answer.result["errors"]


def by_tool(world: World, value: bytes, partition: int = 0, topic: str = "t") -> None:
    """Somebody writes the path and knows nothing else."""
    MemoryStore.session(world.store).commit([Create(layout.reassigned_path(topic, partition), value)])
    world.settle()


def listed(world: World) -> list[dict[str, Any]]:
    answer = world.admin("list_reassignments")
    assert answer is not None
    return answer.result["reassignments"]


def a_world(brokers: int = 4, replicas: tuple[int, ...] = (1, 2), config: dict[str, Any] | None = None) -> tuple[World, bytes]:
    world = World(brokers)
    return world, world.create(assignment={0: list(replicas)}, config=config or {})


def joins(world: World, t: bytes, *isr: int, partition: int = 0) -> Any:
    """The leader proposes this ISR."""
    leader = world.state(partition).leader
    assert leader is not None
    return world.propose(leader, pid(t, partition), list(isr))


# ---------------------------------------------------------------------------------------------------------- one move


def test_a_move_is_two_transactions_and_its_wish_lives_until_the_second() -> None:
    world, t = a_world()
    before = len(world.commits)
    assert reassign(world, ("t", 0, [2, 3])) == []
    wish, start = world.commits[before:]
    path = layout.reassigned_path("t", 0)
    assert [op.path for op in wish[1:]] == [path]
    assert [(type(op), op.path) for op in start[1:]] == [
        (Put, layout.topic_path("t")), (Put, layout.partition_state_path("t", 0)), (Check, path),
    ]
    assert assignment(world) == Assignment((2, 3, 1), 0, (3,), (1,), (1, 2))
    assert (world.state().isr, world.state().leader, world.state().leader_epoch, world.state().partition_epoch) == ((1, 2), 1, 0, 1)
    assert wishes(world) == ["t/0"]
    assert pid(t) in world.nodes[3].broker.states, "it is told to follow"

    before = len(world.commits)
    result = joins(world, t, 1, 2, 3)
    (end,) = world.commits[before:]
    assert [(type(op), op.path) for op in end[1:]] == [
        (Put, layout.topic_path("t")), (Put, layout.partition_state_path("t", 0)), (Delete, path),
    ]
    assert assignment(world) == Assignment((2, 3), 0)
    assert (world.state().isr, world.state().leader, world.state().leader_epoch) == ((2, 3), 2, 1)
    assert (result.error, result.state.leader, result.state.leader_epoch) == (Code.NEW_LEADER_ELECTED, 2, 1)
    assert result.state == world.state()
    assert wishes(world) == []
    assert listed(world) == []
    assert pid(t) not in world.disks[1], "the old copy is deleted, and only now"
    stops = [m for _, to, m in world.sent if isinstance(m, StopReplica)]
    assert [(e.partition, e.leader_epoch, e.delete) for m in stops for e in m.entries] == [(pid(t), 1, True)]


def test_the_leader_that_stays_is_answered_with_success() -> None:
    world, t = a_world()
    reassign(world, ("t", 0, [1, 3]))
    result = joins(world, t, 1, 2, 3)
    assert (result.error, result.state) == (Code.NONE, world.state())
    assert (world.state().leader, world.state().leader_epoch, world.state().isr) == (1, 1, (1, 3))


@pytest.mark.parametrize(
    ("target", "isr", "min_isr"),
    [([1], (1,), 1), ([2], (2,), 1), ([2, 1], (2, 1), 2), ([1, 2], (1, 2), 2)],
    ids=["fewer", "fewer, without the leader", "another order", "as it is"],
)
def test_what_needs_nobody_to_catch_up_is_done_at_once(target: list[int], isr: tuple[int, ...], min_isr: int) -> None:
    world, _ = a_world(config={"min_isr": 2})
    assert reassign(world, ("t", 0, target)) == []
    assert assignment(world) == Assignment(tuple(target), 0)
    assert (set(world.state().isr), world.state().leader) == (set(isr), 1 if 1 in isr else isr[0])
    assert world.state().min_isr == min_isr
    assert wishes(world) == []


def test_min_isr_of_fewer_replicas_survives_the_next_controller_and_an_alteration() -> None:
    world, _ = a_world(4, (2, 3), {"min_isr": 2})
    reassign(world, ("t", 0, [2]))
    assert world.controller_id == 1
    world.kill(1)
    answer = world.admin("alter_topic", name="t", config={"retention_ms": 1_000})
    assert answer is not None
    assert answer.error == Code.NONE, answer.message
    assert world.told("store_value_unreadable") == []
    assert world.state().min_isr == 1


def test_more_replicas_make_more_of_min_isr_count_only_at_the_end() -> None:
    world, t = a_world(config={"min_isr": 2})
    reassign(world, ("t", 0, [1]))
    reassign(world, ("t", 0, [1, 2, 3]))
    assert world.state().min_isr == 1, "appends go on while 2 and 3 catch up"
    joins(world, t, 1, 2)
    world.kill(2)
    assert (world.state().isr, world.state().min_isr) == ((1,), 1)
    world.start(2, settle=True)
    joins(world, t, 1, 2, 3)
    assert (world.state().min_isr, assignment(world)) == (2, Assignment((1, 2, 3), 0))


def test_a_partition_without_a_state_moves_at_once() -> None:
    world = World(3)
    world.kill(3)
    value = layout.encode_topic(layout.TopicEntry(bytes(16), {}, {0: Assignment((3,))}))
    world.store.session().commit([Create(layout.topic_path("u"), value)])
    world.settle()
    assert world.store.read(layout.partition_state_path("u", 0)) is None, "3 is away, and it was never led"
    assert reassign(world, ("u", 0, [1, 2])) == []
    assert assignment(world, topic="u") == Assignment((1, 2), 0)
    assert world.state(topic="u").isr == (1, 2)


# ------------------------------------------------------------------------------------------------- the old scenarios


def test_p84_a_new_replica_that_dies_delays_the_move_and_nothing_else() -> None:
    world, t = a_world()
    reassign(world, ("t", 0, [2, 3]))
    world.kill(3)
    assert assignment(world).adding == (3,)
    assert (world.state().isr, world.state().leader) == ((1, 2), 1)
    world.start(3, settle=True)
    joins(world, t, 1, 2, 3)
    assert assignment(world) == Assignment((2, 3), 0)


def test_p85_an_old_replica_stays_while_one_that_is_kept_is_away() -> None:
    world, t = a_world(config={"min_isr": 1})
    reassign(world, ("t", 0, [2, 3]))  # 1 goes, 2 is kept, 3 comes
    world.kill(2)
    joins(world, t, 1, 3)
    assert assignment(world).removing == (1,)
    assert set(world.state().isr) == {1, 3}
    assert pid(t) in world.disks[1]
    world.start(2, settle=True)
    joins(world, t, 1, 2, 3)
    assert (assignment(world), world.state().isr) == (Assignment((2, 3), 0), (2, 3))


def test_p89_a_dead_old_replica_does_not_block_and_is_stopped_when_it_returns() -> None:
    world, t = a_world(5, (1, 2, 3))
    world.kill(3)
    reassign(world, ("t", 0, [1, 2, 4]))
    joins(world, t, 1, 2, 4)
    assert assignment(world) == Assignment((1, 2, 4), 0)
    assert pid(t) in world.disks[3]
    world.start(3, settle=True)
    assert pid(t) not in world.disks[3]


def test_a_dead_old_replica_is_remembered_when_its_topic_is_deleted() -> None:
    world, t = a_world(5, (1, 2, 3))
    world.kill(3)
    reassign(world, ("t", 0, [1, 2, 4]))
    joins(world, t, 1, 2, 4)
    world.admin("delete_topic", name="t")
    assert world.store.list(layout.REMOVED) == [t.hex()], "3 still holds a copy"
    world.start(3, settle=True)
    assert pid(t) not in world.disks[3]
    assert world.store.list(layout.REMOVED) == []


def test_a_wish_for_where_all_are_in_sync_already_completes_at_once() -> None:
    world, t = a_world()
    reassign(world, ("t", 0, [2, 3]))
    reassign(world, ("t", 0, [2, 4]))
    joins(world, t, 1, 2, 3)
    assert assignment(world).removing == (3, 1)
    reassign(world, ("t", 0, [2, 3]))
    assert assignment(world) == Assignment((2, 3), 0), "all of it is in sync already"


# ---------------------------------------------------------------------------------------------------- changes of mind


def test_a_later_wish_overrides_an_earlier_one() -> None:
    world, t = a_world(5)
    reassign(world, ("t", 0, [2, 3]))
    joins(world, t, 1, 2)
    reassign(world, ("t", 0, [4, 5]))
    assert assignment(world) == Assignment((4, 5, 2, 3, 1), 0, (4, 5), (2, 3, 1), (1, 2))
    joins(world, t, 1, 2, 3, 4, 5)
    assert assignment(world) == Assignment((4, 5), 0)
    assert [n for n in (1, 2, 3) if pid(t) in world.disks[n]] == []


def test_p87a_a_cancelled_move_goes_back_in_the_order_of_before() -> None:
    world, t = a_world(5, (2, 1))
    reassign(world, ("t", 0, [3, 1]))
    reassign(world, ("t", 0, [4, 3]))
    assert pid(t) in world.disks[3]
    epoch = world.state().leader_epoch
    assert reassign(world, ("t", 0, None)) == []
    assert assignment(world) == Assignment((2, 1), 0)
    assert (world.state().leader_epoch, world.state().isr) == (epoch + 1, (2, 1)), "X-10: whoever comes again begins anew"
    assert [n for n in (3, 4) if pid(t) in world.disks[n]] == []
    assert wishes(world) == []
    assert world.store.list(layout.REJECTED) == []


def test_p87a_whoever_had_joined_leaves_the_isr() -> None:
    world, t = a_world(5, (1, 2))
    reassign(world, ("t", 0, [3, 4]))
    joins(world, t, 1, 2, 3)
    reassign(world, ("t", 0, None))
    assert (world.state().isr, world.state().leader, world.state().leader_epoch) == ((1, 2), 1, 1)


def needed() -> tuple[World, bytes]:
    """1 and 2 have 3 and 4 join, and 1 dies: 2 alone would not be two complete copies."""
    world, t = a_world(5, (1, 2), {"min_isr": 2})
    reassign(world, ("t", 0, [3, 4]))
    joins(world, t, 1, 2, 3)
    world.kill(1)
    assert world.state().isr == (3, 2)
    assert reassign(world, ("t", 0, None)) == []
    return world, t


def test_x06_a_cancelled_move_keeps_whoever_is_needed_until_enough_others_are_complete() -> None:
    """What was acknowledged is on as many brokers as min ISR, also afterwards: seed 21000547 lost it with a power cut of two."""
    world, t = needed()
    assert assignment(world) == Assignment((1, 2, 3, 4), 0, (), (3, 4), (1, 2))
    assert world.state().isr == (3, 2)
    assert [(one["target"], one["status"], one["returning"]) for one in listed(world)] == [([1, 2], "moving", True)]
    epoch = world.state().leader_epoch
    commits = len(world.commits)
    assert reassign(world, ("t", 0, None)) == [], "asked again"
    world.advance(60_000)
    assert len(world.commits) == commits, "nothing is to be done until somebody joins"
    assert wishes(world) == ["t/0"]
    world.start(1, settle=True)
    joins(world, t, 1, 2, 3)
    assert assignment(world) == Assignment((1, 2), 0)
    assert (set(world.state().isr), world.state().leader_epoch > epoch) == ({1, 2}, True)
    assert [n for n in (3, 4) if pid(t) in world.disks[n]] == []
    assert wishes(world) == []
    assert [told["replicas"] for told in world.told("reassignment_cancelled")] == [(1, 2)]


def test_x06_on_the_way_back_it_may_be_wished_elsewhere() -> None:
    world, _ = needed()
    reassign(world, ("t", 0, [2, 3]))
    assert assignment(world) == Assignment((2, 3), 0), "both are complete"
    assert wishes(world) == []


def test_x06_the_next_controller_completes_the_way_back() -> None:
    world, t = needed()
    before = world.controller_id
    world.kill(before)
    world.start(before, settle=True)
    world.start(1, settle=True)
    assert world.controller_id != before
    joins(world, t, 1, 2, 3)
    assert assignment(world) == Assignment((1, 2), 0)
    assert wishes(world) == []


def explained(world: World) -> str:
    answer = world.admin("explain", name="t", partition=0)
    assert answer is not None
    return "\n".join(answer.result["sentences"])


def test_x06_what_is_told_of_the_way_back() -> None:
    world, t = needed()
    assert (
        "It was being moved, and that was cancelled: it goes back to brokers 1, 2.\n"
        "That is done when all of these are in sync, and broker 1 is not; then the copies on 3, 4 go."
    ) in explained(world)
    reassign(world, ("t", 0, [2, 1]))
    assert "It is being moved back to brokers 2, 1: that is done when all of them are in sync; then" in explained(world)
    world, t = a_world(6, (1, 2, 3), {"min_isr": 2})
    reassign(world, ("t", 0, [4, 5]))
    joins(world, t, 1, 2, 3, 4)
    world.kill(1)
    world.kill(2)
    world.admin("reassign", partitions=[["t", 0, None]])
    assert "That is done when 2 of these 3 are in sync, and brokers 1 and 2 are not; then the copies on 4, 5 go." in explained(world)
    reassign(world, ("t", 0, [4, 5]))
    assert "4, 5: that is done when all of them are in sync (new: brokers 4, 5); then" in explained(world)


def test_p85_who_wishes_a_partition_back_where_it_was_waits_for_all_of_it() -> None:
    """That is an order, and no cancellation: nothing goes while somebody of it is away, however few are enough."""
    world, t = a_world(5, (1, 2), {"min_isr": 1})
    reassign(world, ("t", 0, [3, 4]))
    joins(world, t, 1, 2, 3)
    world.kill(1)
    reassign(world, ("t", 0, [2, 1]))
    assert assignment(world) == Assignment((2, 1, 3, 4), 0, (), (3, 4), (1, 2))
    assert (set(world.state().isr), pid(t) in world.disks[3]) == ({2, 3}, True)
    assert [one["returning"] for one in listed(world)] == [False]
    world.advance(60_000)
    assert assignment(world).removing == (3, 4), "looked at again"
    world.start(1, settle=True)
    joins(world, t, 1, 2, 3)
    assert assignment(world) == Assignment((2, 1), 0), "in the order that was wished"
    assert [told["replicas"] for told in world.told("reassignment_completed")] == [(2, 1)]


@pytest.mark.parametrize("tool", [False, True])
def test_x06_what_was_wished_back_and_is_cancelled_then_ends_when_enough_are_there(tool: bool) -> None:
    world, t = a_world(5, (1, 2), {"min_isr": 1})
    reassign(world, ("t", 0, [3, 4]))
    joins(world, t, 1, 2, 3)
    world.kill(1)
    reassign(world, ("t", 0, [2, 1]))
    if tool:
        world.store.session().commit([Put(layout.reassigned_path("t", 0), encode_replicas(None))])
        world.advance(60_000)
    else:
        reassign(world, ("t", 0, None))
    assert assignment(world) == Assignment((1, 2), 0), "at once, in the order of before"
    assert world.state().isr == (2,)
    assert [told["replicas"] for told in world.told("reassignment_cancelled")] == [(1, 2)]
    assert wishes(world) == []


def test_x06_a_cancelled_way_back_in_another_order_ends_in_that_of_before() -> None:
    world, t = a_world(5, (1, 2), {"min_isr": 2})
    reassign(world, ("t", 0, [3, 4]))
    joins(world, t, 1, 2, 3)
    world.kill(1)
    reassign(world, ("t", 0, [2, 1]))
    reassign(world, ("t", 0, None))
    assert [(one["target"], one["returning"]) for one in listed(world)] == [([1, 2], True)]
    world.start(1, settle=True)
    joins(world, t, 2, 3, 1)
    assert assignment(world) == Assignment((1, 2), 0)
    assert world.state().isr == (1, 2)


def test_x06_a_cancellation_under_way_outlives_the_last_original_in_sync() -> None:
    world, t = needed()
    world.kill(2)
    assert world.state().isr == (3,)
    assert reassign(world, ("t", 0, None)) == [], "asked again"
    world.advance(60_000)
    assert wishes(world) == ["t/0"]
    world.start(1, settle=True)
    world.start(2, settle=True)
    assert assignment(world).original == (1, 2)
    joins(world, t, 3, 2, 1)
    assert assignment(world) == Assignment((1, 2), 0)
    assert (world.told("wish_rejected"), len(world.told("reassignment_cancelled"))) == ([], 1)
    assert wishes(world) == []


def test_x06_a_cancellation_that_was_answered_is_carried_out_by_a_controller_that_cannot_do_it_at_once() -> None:
    world, t = a_world(5, (1, 2), {"min_isr": 2})
    reassign(world, ("t", 0, [3, 4]))
    joins(world, t, 1, 2, 3)
    world.kill(1)
    assert world.controller_id == 2
    commits: list[Any] = []

    def dies(address: Any, call: Any) -> str | None:
        """The wish is stored, and what comes of it is not: broker 2 is gone, the controller and the last original in sync."""
        if address != ("controller", 2) or not call.verb.startswith("commit"):
            return None
        commits.append(call)
        if len(commits) < 2:
            return None
        world.kill(2, settle=False)
        return "lost"

    world.before_store = dies
    assert reassign(world, ("t", 0, None)) == []
    world.before_store = lambda _address, _call: None
    world.advance(60_000)
    assert world.state().isr == (3,)
    assert assignment(world) == Assignment((1, 2, 3, 4), 0, (), (3, 4), (1, 2)), "it waits on its way back"
    assert (wishes(world), world.told("wish_rejected")) == (["t/0"], [])
    world.start(2, settle=True)
    world.start(1, settle=True)
    joins(world, t, 3, 2, 1)
    assert assignment(world) == Assignment((1, 2), 0)


def test_a_cancellation_by_a_tool_that_cannot_be_done_at_once_waits() -> None:
    world, t = a_world(5, (1, 2), {"min_isr": 1})
    reassign(world, ("t", 0, [3, 4]))
    joins(world, t, 1, 2, 3)
    world.kill(1)
    world.kill(2)
    world.store.session().commit([Put(layout.reassigned_path("t", 0), encode_replicas(None))])
    world.advance(60_000)
    assert assignment(world) == Assignment((1, 2, 3, 4), 0, (), (3, 4), (1, 2))
    world.start(2, settle=True)
    joins(world, t, 3, 2)
    assert assignment(world) == Assignment((1, 2), 0)
    assert (wishes(world), world.told("wish_rejected")) == ([], [])


def test_what_is_on_its_way_back_already_may_be_cancelled_whoever_is_in_sync() -> None:
    world, t = a_world(5, (1, 2), {"min_isr": 1})
    reassign(world, ("t", 0, [3, 4]))
    joins(world, t, 1, 2, 3)
    world.kill(1)
    reassign(world, ("t", 0, [2, 1]))
    world.kill(2)
    assert world.state().isr == (3,)
    assert reassign(world, ("t", 0, None)) == [], "that asks for less than it does"
    world.start(2, settle=True)
    joins(world, t, 3, 2)
    assert assignment(world) == Assignment((1, 2), 0), "enough of them, and in the order of before"


@pytest.mark.parametrize("target", [None, (2, 3)])
def test_a_cancellation_that_is_stored_is_not_judged_again(target: tuple[int, ...] | None) -> None:
    """Not even one that is to be carried out only now, and could not be at once."""
    controller = half_way(MoveWished(P, PATH, 1, target))
    cluster = controller.cluster
    cluster.apply(StateSet(P, PartitionState(3, 1, (3,))))
    with nullcontext() if target is None else pytest.raises(Refusal, match=r"none of these is in its ISR \[3\]"):
        check_cancellation(cluster, cluster.topics[P.topic_id], P)
    decided(controller, MovesDue())
    assert (P in cluster.wishes, cluster.topics[P.topic_id].assignments[0].removing) == (True, (3,) if target is None else (1,))


def test_p85_a_way_back_of_which_the_wish_is_gone_waits_for_all_of_it() -> None:
    world, t = a_world(5, (1, 2), {"min_isr": 1})
    reassign(world, ("t", 0, [3, 4]))
    joins(world, t, 1, 2, 3)
    world.kill(1)
    reassign(world, ("t", 0, [2, 1]))
    world.store.session().commit([Delete(layout.reassigned_path("t", 0))])
    world.settle()
    world.kill(3)
    assert (assignment(world).removing, world.state().isr) == ((3, 4), (2,))
    world.start(1, settle=True)
    joins(world, t, 2, 1)
    assert assignment(world) == Assignment((2, 1), 0)


def test_what_is_told_of_a_cancellation_before_it_is_carried_out() -> None:
    controller = half_way(MoveWished(P, PATH, 1, None))
    decision = controller.decide(AdminAsked("me", Admin(1, "list_reassignments", {})))
    ((_, answer),) = decision.answers
    (one,) = answer.result["reassignments"]
    assert (one["target"], one["status"], one["returning"]) == (None, "moving", False)
    controller.cluster.apply(StateSet(P, PartitionState(1, 0, (1,))))
    ((_, answer),) = controller.decide(AdminAsked("me", Admin(1, "explain", {"name": "t", "partition": 0}))).answers
    assert answer.result["sentences"][-1] == "It was being moved, and that was cancelled: it goes back to brokers 1, 2."


def test_a_move_that_has_begun_is_not_judged_again_when_its_broker_is_gone() -> None:
    world, t = a_world(3, (1, 2))
    world.start(4).broker.mute = True  # registered, and never let in
    world.settle()
    reassign(world, ("t", 0, [2, 4]))
    world.kill(4)
    world.advance(60_000)
    assert reassign(world, ("t", 0, [2, 4])) == [], "asked again"
    assert (wishes(world), world.told("wish_rejected")) == (["t/0"], [])
    ((_, _, code, _),) = reassign(world, ("t", 0, [4, 2]))
    assert code == Code.INVALID_REPLICA_ASSIGNMENT, "that would be another move"
    world.start(4, settle=True)
    joins(world, t, 1, 2, 4)
    assert (assignment(world), wishes(world)) == (Assignment((2, 4), 0), [])


@pytest.mark.parametrize("unclean", [False, True])
def test_p87b_a_way_back_that_would_lose_records_takes_leave(unclean: bool) -> None:
    world, t = a_world(5, (1, 2), {"unclean_leader_election": unclean, "min_isr": 1})
    reassign(world, ("t", 0, [3, 4]))
    joins(world, t, 1, 2, 3)
    world.kill(1)
    world.kill(2)
    world.start(2, settle=True)
    assert world.state().isr == (3,)
    errors = reassign(world, ("t", 0, None))
    if unclean:
        assert errors == []
        assert (world.state().isr, world.state().leader, world.state().recovering) == ((2,), 2, True)
        assert world.told("records_may_be_lost")[-1]["missing"] == (1,), "the others live"
        assert "brokers 3, 4 may hold more, and their copies are put away" in world.told("records_may_be_lost")[-1]["lost"]
        assert assignment(world) == Assignment((1, 2), 0)
    else:
        ((name, number, code, text),) = errors
        assert (name, number, code) == ("t", 0, Code.INVALID_REPLICA_ASSIGNMENT)
        assert "[1, 2]: none of these is in its ISR [3]" in text
        assert assignment(world).adding == (3, 4)


def test_p87d_a_queued_move_is_cancelled_before_it_begins() -> None:
    world = World(4, reassignments_max=1)
    t = world.create(assignment={0: [1, 2], 1: [1, 2]})
    reassign(world, ("t", 0, [2, 3]), ("t", 1, [2, 3]))
    assert [(one["partition"], one["status"]) for one in listed(world)] == [(0, "moving"), (1, "queued")]
    assert reassign(world, ("t", 1, None)) == []
    assert wishes(world) == ["t/0"]
    joins(world, t, 1, 2, 3)
    assert assignment(world, 1) == Assignment((1, 2), 0)
    assert world.store.list(layout.REJECTED) == []


def test_a_cancellation_that_was_granted_wins_over_the_last_replica_that_joins() -> None:
    world, t = a_world()
    reassign(world, ("t", 0, [2, 3]))
    world.admin("reassign", partitions=[["t", 0, None]], settle=False)
    joins(world, t, 1, 2, 3)
    assert assignment(world) == Assignment((1, 2), 0)
    assert world.state().isr == (1, 2)


# --------------------------------------------------------------------------------------------------------- the limit


def test_so_many_move_at_a_time_in_the_order_of_their_names() -> None:
    world = World(4, reassignments_max=2)
    b = world.create("b", assignment={n: [1, 2] for n in range(3)})
    a = world.create("a", assignment={n: [1, 2] for n in range(2)})
    reassign(world, *(("b", n, [1, 3]) for n in range(3)), ("a", 1, [1, 3]), ("a", 0, [1, 3]))
    seen = []
    for topic, t, n in [("a", a, 0), ("a", a, 1), ("b", b, 0), ("b", b, 1), ("b", b, 2)]:
        moving = [(one["topic"], one["partition"]) for one in listed(world) if one["status"] == "moving"]
        assert len(moving) <= 2
        seen.append(moving[0])
        assert moving[0] == (topic, n)
        world.propose(1, pid(t, n), [1, 2, 3])
    assert seen == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2)]
    assert listed(world) == []


def test_a_partition_that_is_elected_and_arrives_at_once_takes_one_epoch() -> None:
    """Seed 20101213: both are one change of what is stored."""
    world, _ = a_world(3, (2,))
    assert reassign(world, ("t", 0, [3])) == []
    world.kill(2)
    assert reassign(world, ("t", 0, [2])) == []
    before = world.state()
    assert (before.leader, before.isr, before.elr, assignment(world).replicas) == (None, (), (2,), (2, 3))
    world.start(2, settle=True)
    after = world.state()
    assert (after.leader, after.isr, assignment(world).replicas) == (2, (2,), (2,))
    assert after.leader_epoch == before.leader_epoch + 1


def test_a_partition_that_goes_to_a_broker_that_leaves_is_led_there_if_nobody_else_is_live() -> None:
    world, _ = a_world(4, (3, 2))
    for broker in (3, 2):
        world.admin("drain", broker=broker, settle=False)
    world.settle()
    assert reassign(world, ("t", 0, [2])) == []
    assert (world.state().leader, world.state().isr, assignment(world).replicas) == (2, (2,), (2,))


def test_a_leader_that_leaves_is_relieved_by_whoever_ends_a_move() -> None:
    world, t = a_world(4, (2,))
    assert reassign(world, ("t", 0, [3, 2])) == []
    answer = world.admin("drain", broker=2)
    assert answer.result["remaining"] == [["t", 0]]
    world.propose(2, pid(t), [2, 3])
    assert assignment(world).replicas == (3, 2)
    assert world.state().leader == 3


@pytest.mark.parametrize("target", [(2, 4), None])
def test_a_move_that_arrives_while_it_is_wished_elsewhere_ends_when_that_wish_is_taken_back(target: tuple[int, ...] | None) -> None:
    """It held its slot, and the old copy, for ever."""
    world = World(4, slice_partitions_max=5)
    t = world.create(assignment={0: [1, 2]}, config={"min_isr": 1})
    path, cluster = layout.reassigned_path("t", 0), world.leader._term.cluster
    assert reassign(world, ("t", 0, [2, 3])) == []
    for n in range(8):  # other work in the background
        world.admin("create_topic", name=f"x{n}", assignment={k: [1, 2] for k in range(30)}, settle=False)
    tool = MemoryStore.session(world.store)
    tool.commit([Delete(path, world.store.read(path).version), Create(path, encode_replicas(target))])
    while cluster.wishes[pid(t)].target != target:
        world.queue.popleft()()
    world.propose(1, pid(t), [1, 2, 3], settle=False)
    while 3 not in world.state().isr:
        world.queue.popleft()()
    assert assignment(world).replicas == (2, 3, 1), "it waits for what is wished"
    tool.commit([Delete(path, world.store.read(path).version)])
    world.settle()
    assert assignment(world).replicas == (2, 3)
    assert not cluster.moving


def test_a_move_that_arrives_between_two_wishes_ends_with_the_second() -> None:
    world, t = a_world(4, (1, 2), {"min_isr": 1})
    reassign(world, ("t", 0, [2, 3]))
    world.admin("reassign", partitions=[["t", 0, [2, 4]]], settle=False)
    world.admin("reassign", partitions=[["t", 0, [2, 3]]], settle=False)
    for _ in range(2):
        world.queue.popleft()()
    world.propose(1, pid(t), [1, 2, 3], settle=False)
    world.settle()
    assert assignment(world).replicas == (2, 3)
    assert wishes(world) == []


def test_partitions_of_one_topic_start_and_arrive_in_one_transaction() -> None:
    world = World(4, reassignments_max=500)
    t = world.create(assignment={n: [1, 2] for n in range(300)})
    before = len(world.commits)
    assert reassign(world, *(("t", n, [1, 3]) for n in range(300))) == []
    wish, start = world.commits[before:]
    assert (len(wish), len(start)) == (1 + 300, 1 + 1 + 2 * 300)
    assert sum(isinstance(op, Put) and op.path == layout.topic_path("t") for op in start) == 1
    before = len(world.commits)
    node = world.nodes[1]
    lives = [(b, world.nodes[b].membership.broker_epoch) for b in (1, 2, 3)]
    states = {n: node.broker.states[pid(t, n)].state for n in range(300)}
    entries = [AlterIsrEntry(pid(t, n), one.leader_epoch, one.partition_epoch, lives) for n, one in states.items()]
    wish_of_1 = AlterIsr(1, 1, node.membership.broker_epoch, entries, node.broker.controller_epoch)
    world.send(1, ("controller", world.controller_id), wish_of_1)
    world.settle()
    (end,) = world.commits[before:]
    assert len(end) == 1 + 1 + 2 * 300, "the guard, the topic, and of each partition its state and its wish"
    assert {one.replicas for one in assignments(world).values()} == {(1, 3)}


def test_more_than_fit_one_transaction_take_several() -> None:
    world = World(4, reassignments_max=1_000)
    world.create(assignment={n: [1, 2] for n in range(700)})
    reassign(world, *(("t", n, [1, 3]) for n in range(700)))
    assert [one.adding for one in assignments(world).values()] == [(3,)] * 700
    assert max(map(len, world.commits)) <= 1_000


# --------------------------------------------------------------------------------------------------------- bad wishes


@pytest.mark.parametrize(
    ("wished", "code", "text"),
    [
        (["x", 0, [1]], Code.UNKNOWN_TOPIC_OR_PARTITION, "unknown topic 'x'"),
        (["t", 9, [1]], Code.UNKNOWN_TOPIC_OR_PARTITION, "has no partition 9"),
        (["t", 0, [1, 9]], Code.INVALID_REPLICA_ASSIGNMENT, "broker 9; registered are [1, 2, 3, 4]"),
        (["t", 0, [1, 1]], Code.INVALID_REPLICA_ASSIGNMENT, "twice to one broker"),
        (["t", 0, []], Code.INVALID_REPLICA_ASSIGNMENT, "needs a list of broker ids"),
        (["t", 0, None], Code.NO_REASSIGNMENT_IN_PROGRESS, "nothing to cancel"),
        (["t", True, [1]], Code.INVALID_PARTITIONS, "a partition is an int"),
        (["t", 0], Code.INVALID_REQUEST, "a wish is [topic, partition"),
    ],
)
def test_a_bad_wish_gets_its_error_and_the_others_are_granted(wished: list[Any], code: int, text: str) -> None:
    world = World(4)
    world.create(assignment={0: [1, 2], 1: [1, 2]})
    ((_, _, got, said),) = reassign(world, wished, ("t", 1, [3, 4]))
    assert got == code
    assert text in said
    assert wishes(world) == ["t/1"]


def test_wishes_of_one_request_are_judged_one_by_one() -> None:
    world, _ = a_world()
    errors = reassign(world, ("t", 0, [2, 3]), ("t", 5, [1]), ("t", 0, [1]))
    assert [(number, code) for _, number, code, _ in errors] == [(5, Code.UNKNOWN_TOPIC_OR_PARTITION), (0, Code.INVALID_REQUEST)]
    assert assignment(world).adding == (3,)


@pytest.mark.parametrize("partitions", [None, [], "t", 3], ids=repr)
def test_a_request_without_wishes_is_refused(partitions: Any) -> None:
    world, _ = a_world()
    answer = world.admin("reassign", partitions=partitions)
    assert answer is not None
    assert answer.error == Code.INVALID_REQUEST
    assert "a list of 1 to 1000" in answer.message


def test_a_topic_under_deletion_moves_no_more() -> None:
    world, t = a_world()
    reassign(world, ("t", 0, [2, 3]))
    world.admin("delete_topic", name="t")
    assert wishes(world) == []
    assert world.store.list(layout.REJECTED) == []
    assert [n for n in (1, 2, 3) if pid(t) in world.disks[n]] == [], "the copy that was to join is deleted, too"
    assert world.store.list(layout.REMOVED) == []


# ----------------------------------------------------------------------------------------------- the path as the wish


def test_a_tool_that_only_writes_the_path_is_served() -> None:
    world, t = a_world()
    by_tool(world, encode_replicas((2, 3)))
    assert assignment(world).adding == (3,)
    joins(world, t, 1, 2, 3)
    assert (assignment(world), wishes(world)) == (Assignment((2, 3), 0), [])


@pytest.mark.parametrize(
    ("value", "partition", "code"),
    [
        (b"{", 0, Code.INVALID_REQUEST),
        (encode_replicas((1, 9)), 0, Code.INVALID_REPLICA_ASSIGNMENT),
        (encode_replicas(()), 0, Code.INVALID_REPLICA_ASSIGNMENT),
        (encode_replicas(None), 0, Code.NO_REASSIGNMENT_IN_PROGRESS),
        (encode_replicas((1,)), 4, Code.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_what_a_tool_writes_wrong_is_put_away_with_its_error(value: bytes, partition: int, code: int) -> None:
    world, _ = a_world()
    by_tool(world, value, partition)
    assert wishes(world) == []
    path = layout.rejected_path(layout.reassigned_path("t", partition))
    found = world.store.read(path)
    assert found is not None
    assert layout.decode_rejection(path, found.value).code == code
    assert assignment(world) == Assignment((1, 2), 0)


def test_a_tool_writes_null_over_a_wish_that_moves_or_is_queued() -> None:
    world = World(4, reassignments_max=1)
    world.create(assignment={0: [1, 2], 1: [1, 2]})
    reassign(world, ("t", 0, [2, 3]), ("t", 1, [2, 3]))
    store = world.store.session()
    for n in (0, 1):
        store.commit([Put(layout.reassigned_path("t", n), encode_replicas(None))])
    world.advance(60_000)
    assert [assignment(world, n) for n in (0, 1)] == [Assignment((1, 2), 0)] * 2
    assert (wishes(world), world.store.list(layout.REJECTED)) == ([], [])


def test_a_wish_that_somebody_takes_back_before_its_turn_is_forgotten() -> None:
    world = World(4, reassignments_max=1)
    t = world.create(assignment={0: [1, 2], 1: [1, 2]})
    reassign(world, ("t", 0, [2, 3]), ("t", 1, [2, 3]))
    world.store.session().commit([Delete(layout.reassigned_path("t", 1))])
    joins(world, t, 1, 2, 3)
    assert assignment(world, 1) == Assignment((1, 2), 0)
    assert listed(world) == []


# ------------------------------------------------------------------------------------------------ lost answers, crashes


def test_an_end_of_which_nobody_heard_is_found_and_the_old_copy_stopped() -> None:
    world, t = a_world()
    reassign(world, ("t", 0, [2, 3]))
    left = ["applied"]
    world.before_store = lambda address, call: left.pop() if left and call.verb == "commit_each" and address[0] == "controller" else None
    result = joins(world, t, 1, 2, 3)
    assert left == []
    assert assignment(world) == Assignment((2, 3), 0)
    assert result.error in (Code.INVALID_REQUEST, Code.FENCED_LEADER_EPOCH)
    assert pid(t) not in world.disks[1]


def _walk(world: World, t: bytes, verb: str) -> None:
    """Wish it, and let whoever leads propose until it is over, however often."""
    world.admin("reassign", partitions=[["t", 0, [3, 4]]])
    if verb == "cancel":
        world.admin("reassign", partitions=[["t", 0, None]])


def _end(world: World, t: bytes, verb: str) -> None:
    """Everybody is back; whatever was not heard is asked again; the leader lets in whoever may."""
    for node in range(1, 7):
        if node not in world.nodes:
            world.start(node, settle=True)
    world.advance(40_000)
    want = None if verb == "cancel" else [3, 4]
    for _ in range(4):
        here = assignment(world)
        if verb == "cancel" and here == Assignment((1, 2), 0):
            break
        if verb == "move" and here == Assignment((3, 4), 0):
            break
        if verb == "cancel" or not here.adding:
            world.admin("reassign", partitions=[["t", 0, want]])
        leader = world.state().leader
        if leader is not None and verb == "move":
            world.propose(leader, pid(t), sorted(assignment(world).replicas))
    world.advance(10_000)


@pytest.mark.parametrize("verb", ["move", "cancel"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("who", ["controller", "leader", "joining"])
def test_p83_whoever_dies_at_whichever_step_it_ends_as_wished(who: str, when: str, verb: str) -> None:
    """Every commit of the controller is a step; so is every message that it sends about the partition: before it, and after it."""
    for step in range(1, 30):
        world, t = a_world(6, (1, 2))
        while world.controller_id != 6:  # a seat of its own, unless it is to die with somebody
            world.kill(world.controller_id)
        for node in range(1, 6):
            if node not in world.nodes:
                world.start(node, settle=True)
        joins(world, t, 1, 2)
        happened = _with_a_death(world, t, who, when, step, verb)
        _end(world, t, verb)
        where = f"{who} killed {when} step {step} of a {verb}"
        target = (1, 2) if verb == "cancel" else (3, 4)
        assert assignment(world) == Assignment(target, 0), where
        assert set(world.state().isr) <= set(target), where
        assert wishes(world) == [], where
        assert sorted(n for n in world.disks if pid(t) in world.disks[n]) == sorted(target), where
        if not happened:
            assert step > 4, "so few steps cannot be all"
            return
    raise AssertionError("this never ends")


def _with_a_death(world: World, t: bytes, who: str, when: str, step: int, verb: str) -> bool:
    """Kill somebody at one step of the operation; whether there was such a step."""
    left = [step]

    def die() -> None:
        victim = {"controller": world.controller_id, "leader": world.state().leader or 1, "joining": 3}[who]
        if victim in world.nodes:
            world.kill(victim, settle=False)

    def count() -> bool:
        left[0] -= 1
        return left[0] == 0

    def at_store(address: Any, call: Any) -> str | None:
        if call.verb.startswith("commit") and address[0] == "controller" and call.argument and count():
            if when == "before":
                world.queue.appendleft(die)
                return "lost" if who == "controller" else None
            world.queue.appendleft(die)
            return "applied"
        return None

    def on_the_way(_sender: Any, to: Any, message: Any) -> bool:
        if isinstance(message, LeaderAndIsr | StopReplica) and count():
            world.queue.append(die) if when == "after" else world.queue.appendleft(die)
        return False

    world.before_store, world.drop = at_store, on_the_way
    _walk(world, t, verb)
    leader = world.state().leader
    if verb == "move" and leader in world.nodes and any(n.controller.is_controller for n in world.nodes.values()):
        known = world.nodes[leader].broker.states.get(pid(t))
        live = [b for b in (known.assignment.replicas if known is not None else ()) if b in world.nodes]
        if known is not None and set(live) >= {3, 4}:
            world.propose(leader, pid(t), sorted(live), settle=False)
            world.settle()
    world.before_store, world.drop = lambda _address, _call: None, lambda _sender, _to, _message: False
    return left[0] <= 0


# ------------------------------------------------------------------------------------------------------- what follows


def test_an_unclean_election_takes_an_old_replica_before_one_that_joins() -> None:
    world, _ = a_world(4, (1, 2), {"unclean_leader_election": True, "min_isr": 1})
    world.kill(2)
    reassign(world, ("t", 0, [3, 4]))
    world.start(2, settle=True)
    world.kill(1)
    assert (world.state().leader, world.state().recovering) == (2, True)


def test_brokers_hear_only_of_the_partitions_that_moved() -> None:
    world = World(4)
    world.create(assignment={n: [1, 2] for n in range(5)})
    world.nodes[4].broker.received.clear()
    reassign(world, ("t", 3, [1, 3]))
    views = [m.view for m in world.nodes[4].broker.received if isinstance(m, UpdateMetadata)]
    told = [p for view in views for topic in view.topics for p in topic.partitions]
    assert [(p.partition, p.replicas, p.adding, p.removing) for p in told] == [(3, (1, 3, 2), (3,), (2,))]


def test_the_list_says_where_from_and_where_to() -> None:
    world, t = a_world()
    reassign(world, ("t", 0, [2, 3]))
    (one,) = listed(world)
    assert one == {
        "topic": "t", "partition": 0, "topic_id": t.hex(), "creation": 0, "status": "moving", "replicas": [2, 3, 1], "adding": [3],
        "removing": [1], "original": [1, 2], "target": [2, 3], "returning": False, "isr": [1, 2], "leader": 1,
    }


# ---------------------------------------------------------------------------------------------- orders of events

P = PartitionId(b"t" * 16, 0, 0)
PATH = layout.reassigned_path("t", 0)


def half_way(wish: MoveWished) -> Controller:
    """t-0 is on its way from 1, 2 to 2, 3, and wished there or elsewhere; brokers 1 to 3 live."""
    controller = Controller(controller_epoch=4, epoch_version=3, config=BrokerConfig())
    cluster = controller.cluster
    for broker_id in (1, 2, 3):
        cluster.apply(BrokerSet(Broker(BrokerInfo(broker_id, 10 + broker_id))))
        cluster.brokers[broker_id] = Broker(BrokerInfo(broker_id, 10 + broker_id))
    moving = Assignment((2, 3, 1), 0, (3,), (1,), (1, 2))
    for change in (TopicSet(Topic("t", P.topic_id, TopicConfig(min_isr=1), {0: moving})), StateSet(P, PartitionState(1, 0, (1, 2))), wish):
        cluster.apply(change)
    return controller


def decided(controller: Controller, event: Any) -> Any:
    decision = controller.decide(event)
    for step in decision.steps:
        controller.apply(step)
    return decision


def test_a_move_waits_for_what_becomes_of_another_wish_and_is_completed_if_that_is_bad() -> None:
    controller = half_way(MoveWished(P, PATH, 1, (2, 9)))
    entry = AlterIsrEntry(P, 0, 0, [(1, 11), (2, 12), (3, 13)])
    decided(controller, IsrProposed("me", AlterIsr(1, 1, 11, [entry], 4)))
    assert controller.cluster.states[P].isr == (2, 3, 1)
    assert P in controller.cluster.moving
    decided(controller, MovesDue())
    assert controller.cluster.wishes == {}
    decision = decided(controller, Recheck())
    assert controller.cluster.topics[P.topic_id].assignments[0] == Assignment((2, 3))
    assert (controller.cluster.states[P].leader, controller.cluster.states[P].leader_epoch) == (2, 1)
    assert decision.after == (MovesDue(),)


def test_an_old_look_at_a_wish_does_not_put_away_the_one_that_took_its_place() -> None:
    """The same version, because the first one was granted and removed meanwhile."""
    controller = half_way(MoveWished(P, PATH, 0, (2, 3)))
    old = WishesSeen(layout.PARTITIONS_REASSIGNED, (Wish(PATH, encode_replicas((9,)), 0),))
    assert [op for step in controller.decide(old).steps for op in step.ops] == []


def test_a_wish_that_is_there_already_is_not_written_again() -> None:
    world, _ = a_world()
    reassign(world, ("t", 0, [2, 3]))
    before = len(world.commits)
    assert reassign(world, ("t", 0, [2, 3])) == []
    assert len(world.commits) == before


def test_the_next_controller_knows_of_a_cancellation_before_it_completes_anything() -> None:
    world, t = a_world(5, (2, 3))
    reassign(world, ("t", 0, [3, 4]))
    assert world.controller_id == 1
    seen: list[str] = []

    def after(address: Any, call: Any) -> None:
        if address != ("controller", 1) or call.verb != "commit_each":
            return
        paths = [op.path for ops in call.argument for op in ops[1:]]
        if paths == [PATH]:  # the cancellation is stored: now the last of the target joins
            seen.append("wish")
            world.propose(2, pid(t), [2, 3, 4], settle=False)
        elif seen == ["wish"]:
            seen.append("isr")
            world.queue.appendleft(lambda: world.kill(1, settle=False))

    world.after_store = after
    world.admin("reassign", partitions=[["t", 0, None]])
    assert seen == ["wish", "isr"]
    assert assignment(world) == Assignment((2, 3), 0)
    assert world.store.list(layout.REJECTED) == []


def test_a_partition_that_is_removed_takes_its_wish_along() -> None:
    world = World(4, reassignments_max=1)
    world.create(assignment={n: [1, 2] for n in range(3)})
    reassign(world, *(("t", n, [1, 3]) for n in range(3)))
    answer = world.admin("remove_partitions", name="t", partitions=[1, 2])
    assert answer is not None
    assert answer.error == Code.NONE, answer.message
    assert wishes(world) == ["t/0"]
    world.admin("add_partitions", name="t", total=2)
    world.advance(60_000)
    assert [(one["partition"], one["status"]) for one in listed(world)] == [(0, "moving")]
    assert world.store.list(layout.REJECTED) == []


# ------------------------------------------------------------------------------------------------------------ many of them


def many(topics: int, partitions: int, *, room: int) -> Controller:
    """Wishes to move every partition of so many topics, of which so many may move at a time."""
    controller = Controller(controller_epoch=4, epoch_version=3, config=BrokerConfig(reassignments_max=room))
    for broker_id in (1, 2, 3):
        controller.cluster.apply(BrokerSet(Broker(BrokerInfo(broker_id, 10 + broker_id))))
        controller.cluster.brokers[broker_id] = Broker(BrokerInfo(broker_id, 10 + broker_id))
    for number in range(topics):
        assignments = {n: Assignment((1, 2)) for n in range(partitions)}
        topic = Topic(f"t{number:05}", number.to_bytes(16, "big"), TopicConfig(min_isr=1), assignments)
        controller.cluster.apply(TopicSet(topic))
        for partition in topic.identities():
            controller.cluster.apply(StateSet(partition, PartitionState(1, 0, (1, 2))))
            path = layout.reassigned_path(topic.topic, partition.partition)
            controller.cluster.apply(MoveWished(partition, path, 0, (1, 3)))
    return controller


def visits(work: Any) -> int:
    """How many functions are called, and how often a generator goes on."""
    count = [0]

    def note(frame: Any, event: str, argument: Any) -> None:
        count[0] += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count[0]


@pytest.mark.parametrize("room", [5, 50])
def test_what_a_slice_of_moves_costs_does_not_depend_on_how_many_wait(room: int) -> None:
    """Each event: the first that starts some, those that find no room, and each completion with what takes its place."""
    costs = []
    for topics in (10, 1_000):
        controller = many(topics, 10, room=room)
        cost = [visits(lambda controller=controller: decided(controller, MovesDue()))]
        assert len(controller.cluster.moving) == room
        cost.append(visits(lambda controller=controller: decided(controller, MovesDue())))
        moving = next(iter(controller.cluster.moving))
        entry = AlterIsrEntry(moving, 0, 1, [(1, 11), (2, 12), (3, 13)])
        cost.append(visits(lambda c=controller, e=entry: decided(c, IsrProposed("me", AlterIsr(1, 1, 11, [e], 4)))))
        assert moving not in controller.cluster.moving
        cost.append(visits(lambda controller=controller: decided(controller, MovesDue())))
        assert len(controller.cluster.moving) == room
        assert len(controller.cluster.turns) == 10 * topics - room - 1
        costs.append(cost)
    few, lots = costs
    assert lots == pytest.approx(few, rel=0.02), "with a hundred times as many wishes"


def test_the_order_of_turns_is_that_of_sorting_everything_whatever_happens() -> None:
    """Wishes come, change and go; topics change, are deleted and come back; nodes cannot be removed, and then can."""
    random = Random(5)
    controller = many(6, 5, room=50)
    cluster = controller.cluster
    places = [partition for topic in cluster.topics.values() for partition in topic.identities()]

    def expected() -> list[PartitionId]:
        found = []
        for partition, wish in cluster.wishes.items():
            topic = cluster.topic_of(partition)
            if topic is None or partition.topic_id in cluster.deletions:
                continue
            urgent = urgency(topic.assignments[partition.partition], wish, is_stuck=cluster.is_stuck(wish.path, wish.version))
            if urgent is not None:
                found.append((urgent, topic.topic, partition))
        return [partition for _, _, partition in sorted(found)]

    for _ in range(2_000):
        partition = random.choice(places)
        topic = cluster.topics[partition.topic_id]
        path = layout.reassigned_path(topic.topic, partition.partition)
        kept = cluster.wishes.get(partition)
        match random.randrange(7):
            case 0 | 1:
                target = random.choice([None, (1, 2), (1, 3), (3,)])
                cluster.apply(MoveWished(partition, path, random.randrange(2), target))
            case 2:
                cluster.apply(MoveWishGone(partition))
            case 3:
                moving = Assignment((1, 3, 2), 0, (3,), (2,), (1, 2))
                here = random.choice([Assignment((1, 2)), Assignment((1, 3)), moving])
                cluster.apply(TopicSet(evolve(topic, assignments={**topic.assignments, partition.partition: here})))
            case 4:
                is_going = topic.topic_id in cluster.deletions
                cluster.apply(DeletionGone(topic.topic_id) if is_going else DeletionSet(topic.topic, topic.topic_id, 0))
            case 5 if kept is not None:
                cluster.apply(NodeStuck(path, kept.version, 7, partition))
            case 6 if random.randrange(10) == 0:
                cluster.apply(NodesFreed())
            case _:
                pass
        assert list(cluster.turns) == expected()
    fewer = evolve(cluster.topics[places[0].topic_id], assignments={0: Assignment((1, 2))})
    cluster.apply(TopicSet(fewer))
    assert list(cluster.turns) == expected()
    for topic_id in list(cluster.topics):
        cluster.apply(TopicGone(topic_id))
    assert (list(cluster.turns), len(cluster.turns), cluster.wishes) == ([], 0, {})
