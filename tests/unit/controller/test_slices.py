"""Long work runs in slices, urgent events between them; counted in commits and notices, never in time."""

from __future__ import annotations

import pytest
from tests.unit.controller.harness import World, pid

from replog.client.reassigning import _SLICE
from replog.config import MOVE_WISHES_MAX
from replog.errors import Code
from replog.messages import AlterIsrAnswer, LeaderAndIsr, StopReplica, StopReplicaAnswer
from replog.metadata import layout
from replog.ports import Create, Put


def test_ten_thousand_partitions_are_made_and_fail_over_in_slices():
    world = World(3)
    world.commits.clear()
    world.sent.clear()
    world.create(partitions=10_000, config={"min_isr": 2})
    notices = [m for _, to, m in world.sent if isinstance(m, LeaderAndIsr) and to == 2]
    assert len(world.commits) == 1 + 10  # the topic; then 10 slices of 1,000, each in one transaction with the check that guards it
    assert max(map(len, world.commits)) == 1_001
    assert len(notices) == 10
    assert max(len(m.entries) for m in notices) == 1_000
    world.commits.clear()
    world.sent.clear()
    reads = world.calls["read_each"]
    world.kill(3)
    assert world.calls["read_each"] - reads == 2  # who is registered, and who has the seat; nothing of the partitions is read
    puts = [op for ops in world.commits for op in ops if isinstance(op, Put)]
    assert len(puts) == 10_000
    assert len(world.commits) == 10
    notices = [m for _, to, m in world.sent if isinstance(m, LeaderAndIsr) and to == 2]
    assert (len(notices), max(len(m.entries) for m in notices)) == (10, 1_000)
    assert {world.state(p).leader for p in range(0, 10_000, 499)} == {1, 2}


def _calls_until_answered(world: World, topic: bytes, act) -> int:
    """How many commit calls the controller makes between a proposal that arrives in the middle of `act` and its answer."""
    made = []
    asked = []

    def look(address, call):
        if address[0] == "controller" and call.verb == "commit_each":
            made.append(call)
            if len(made) == 3:
                world.propose(1, pid(topic), [1, 2], settle=False)
                asked.append(len(made))

    world.after_store = look
    act()
    answered = []

    def answering(sender, to, message):
        if isinstance(message, AlterIsrAnswer):
            assert message.entries[0].error == Code.NONE
            answered.append(len(made))
        return False

    world.drop = answering
    world.settle()
    assert len(made) > 8
    return answered[0] - asked[0]


def test_a_proposal_overtakes_a_long_creation():
    world = World(3, slice_partitions_max=10)
    topic = world.create("first")
    waited = _calls_until_answered(world, topic, lambda: world.admin("create_topic", name="t", partitions=100, settle=False))
    assert waited <= 2  # the slice that was under way, and its own


def test_a_proposal_overtakes_a_long_deletion():
    world = World(3, slice_partitions_max=10)
    topic = world.create("first")
    world.create(partitions=100)
    waited = _calls_until_answered(world, topic, lambda: world.admin("delete_topic", name="t", settle=False))
    assert waited <= 2


def test_a_deletion_stops_copies_in_slices():
    """Each broker has at most one slice to put away, and is struck off the list of holders with the last one."""
    world = World(3, slice_partitions_max=10)
    topic = world.create(partitions=35)
    under_way = dict.fromkeys((1, 2, 3), 0)
    stopped = dict.fromkeys((1, 2, 3), 0)
    most = []

    def count(sender, to, message):
        if isinstance(message, StopReplica):
            under_way[to] += len(message.entries)
            stopped[to] += len(message.entries)
            most.append(under_way[to])
        if isinstance(message, StopReplicaAnswer):
            under_way[sender] = 0
        return isinstance(message, StopReplica) and (to, stopped[to]) == (3, 20)  # its second slice is lost

    world.drop = count
    world.admin("delete_topic", name="t")
    held = world.store.read(layout.removed_path(topic))
    assert held is not None
    assert layout.decode_removed(layout.removed_path(topic), held.value) == (3,)
    assert stopped == {1: 35, 2: 35, 3: 20}
    assert max(most) == 10
    world.drop = lambda *_: False
    world.advance(10_000)
    assert world.store.read(layout.removed_path(topic)) is None
    assert not any(pid(topic, n) in node.broker.copies for n in range(35) for node in world.nodes.values())


def test_a_proposal_takes_its_turn_in_a_long_failover():
    world = World(4, slice_partitions_max=10)
    topic = world.create("first", assignment={0: [1, 2, 3]})
    world.create(partitions=100, replication_factor=3)
    waited = _calls_until_answered(world, topic, lambda: world.kill(4, settle=False))
    assert waited <= 2


def test_a_failover_overtakes_a_long_deletion():
    world = World(3, slice_partitions_max=10)
    world.create("first", assignment={0: [3, 2]}, config={"min_isr": 1})
    world.create(partitions=100)
    left = []

    def look(address, call):
        if address[0] == "controller" and call.verb == "commit_each":
            left.append(len(world.store.list(layout.topic_path("t"))))
            if len(left) == 3:
                world.kill(3, settle=False)
                world.after_store = lambda address, call: watch()

    def watch():
        if world.state(0, "first").leader == 2:
            left.append(len(world.store.list(layout.topic_path("t"))))
            world.after_store = lambda address, call: None

    world.after_store = look
    world.admin("delete_topic", name="t")
    assert left[3] >= left[2] - 20
    assert left[3] > 0
    assert world.store.list(layout.TOPICS) == ["first"]


def _moved(world: World) -> list[int]:
    """Partitions that move, or are to."""
    answer = world.admin("list_reassignments")
    assert answer is not None
    return [one["partition"] for one in answer.result["reassignments"]]


def test_a_request_may_wish_more_moves_than_go_into_one_slice():
    world = World(4, slice_partitions_max=100, reassignments_max=1)
    world.create(assignment={n: [1, 2] for n in range(250)})
    world.commits.clear()
    answer = world.admin("reassign", partitions=[["t", n, [1, 3]] for n in range(250)])
    assert (answer.error, answer.result) == (Code.NONE, {"errors": []})
    wishes = [[op for op in ops if isinstance(op, Create) and op.path.startswith(layout.PARTITIONS_REASSIGNED)] for ops in world.commits]
    assert [len(some) for some in wishes if some] == [100, 100, 50]
    assert _moved(world) == list(range(250))


@pytest.mark.parametrize("slice_", [1, 100_000])
def test_how_much_one_request_may_wish_does_not_depend_on_the_slice(slice_: int):
    world = World(3, slice_partitions_max=slice_)
    world.create()
    answer = world.admin("reassign", partitions=[["t", 0, None]] * (MOVE_WISHES_MAX + 1))
    assert answer.error == Code.INVALID_REQUEST
    assert f"a list of 1 to {MOVE_WISHES_MAX} [" in answer.message
    assert f"not {MOVE_WISHES_MAX + 1} partitions" in answer.message
    assert len(world.admin("reassign", partitions=[["t", 0, None]] * MOVE_WISHES_MAX).result["errors"]) == MOVE_WISHES_MAX
    assert _SLICE <= MOVE_WISHES_MAX, "what clients send"


_WISHED = [["t", 0, [3, 4]], ["x", 0, [1]], ["t", 1, [3, 4]], ["t", 0, [2, 3]], ["t", 2, None], ["t", 3, [3, 4]], ["t", 4, [4, 3]]]
_ROOM = 500


def _answered(slice_: int, *, at: int = -1, fault: str = "lost") -> tuple[list, list[int]]:
    """What such a request is answered, and what moves then, if nobody hears of the commit `at`."""
    world = World(4, slice_partitions_max=slice_, topic_bytes_max=_ROOM, reassignments_max=1)
    world.create(assignment={n: [1, 2] for n in range(6)})
    calls = []

    def hurt(address, call):
        if address[0] == "controller" and call.verb == "commit_each":
            calls.append(call)
            return fault if len(calls) == at + 1 else None
        return None

    world.before_store = hurt
    answer = world.admin("reassign", partitions=_WISHED)
    if answer is None:
        world.advance(5_000)
        answer = world.client[-1]
    assert answer.error == Code.NONE, answer.message
    assert len(calls) > at
    return answer.result["errors"], _moved(world)


def test_a_request_in_slices_is_answered_as_in_one():
    """Also where a partition is named twice, and where the topic has no room for all of it."""
    errors, moved = _answered(1_000)
    codes = [Code.UNKNOWN_TOPIC_OR_PARTITION, Code.INVALID_REQUEST, Code.NO_REASSIGNMENT_IN_PROGRESS, Code.INVALID_REPLICA_ASSIGNMENT]
    assert [code for _, _, code, _ in errors] == codes
    assert "topic_bytes_max" in errors[-1][-1]
    assert moved == [0, 1, 3]
    assert [_answered(slice_) for slice_ in (1, 2, 3)] == [(errors, moved)] * 3


@pytest.mark.parametrize("fault", ["lost", "applied"])
@pytest.mark.parametrize("at", range(3))
def test_a_slice_of_wishes_that_is_decided_again_is_answered_once(at: int, fault: str):
    assert _answered(2, at=at, fault=fault) == _answered(1_000)
