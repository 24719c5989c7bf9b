"""Controlled shutdown and draining: stored before it is granted, once per life, whatever dies in between (P-93)."""

from __future__ import annotations

import pytest
from tests.unit.controller.harness import World, pid

from replog.errors import Code
from replog.messages import ControlledShutdown, ControlledShutdownAnswer, LeaderAndIsr
from replog.metadata import layout


def ask(world: World, broker: int, *, settle: bool = True) -> ControlledShutdownAnswer | None:
    """The broker asks to be let go; the newest answer it has."""
    life = world.nodes[broker].broker
    world.send(broker, ("controller", world.controller_id), ControlledShutdown(broker, life.broker_epoch))
    if not settle:
        return None
    world.settle()
    told = [m for _, to, m in world.sent if to == broker and isinstance(m, ControlledShutdownAnswer)]
    return told[-1] if told else None


def draining(world: World) -> dict[int, int]:
    found = {}
    for name in world.store.list(layout.DRAINING):
        path = f"{layout.DRAINING}/{name}"
        found[int(name)] = layout.decode_draining(path, world.store.read(path).value)
    return found


def test_p_93_a_hundred_partitions_are_moved_before_it_is_granted():
    world = World(3)
    topic = world.create(assignment={**{p: [2, 1, 3] for p in range(99)}, 99: [2, 3, 1]}, config={"min_isr": 1})
    world.propose(2, pid(topic, 99), [2])
    world.commits.clear()
    world.sent.clear()
    stored_first = []

    def look(sender, to, message):
        if isinstance(message, ControlledShutdownAnswer):
            stored_first.append({world.state(p).leader for p in range(99)})
        return False

    world.drop = look
    answer = ask(world, 2)
    assert (answer.error, answer.remaining, answer.remaining_total) == (Code.NONE, [pid(topic, 99)], 1)
    assert stored_first == [{1}]
    assert {world.state(p).isr for p in range(99)} == {(1, 3)}
    assert (world.state(99).leader, world.state(99).isr) == (2, (2,))
    assert draining(world) == {2: world.nodes[2].broker.broker_epoch}
    assert [len(ops) - 1 for ops in world.commits] == [1, 99]  # the record, then the states, in one transaction
    notices = [m.notice for _, to, m in world.sent if to == 2 and isinstance(m, LeaderAndIsr)]
    assert answer.notice == notices[-1] == world.nodes[2].broker.notice  # and it has applied them meanwhile (KAFKA-14296)
    world.kill(2)
    assert (world.state(99).leader, world.state(99).isr, world.state(99).elr) == (None, (), (2,))
    assert draining(world) == {}
    world.start(2, settle=True)
    assert world.leader._term.cluster.leaving() == frozenset()


def test_those_who_are_eligible_take_over_when_the_last_one_in_sync_has_left():
    world = World(3)
    topic = world.create(assignment={0: [2, 1, 3]}, config={"min_isr": 2})
    world.propose(2, pid(topic), [2])
    assert ask(world, 2).remaining_total == 1
    world.kill(2)
    assert (world.state().leader, world.state().elr) == (1, (2, 3))


def test_the_number_to_wait_for_is_settled_at_the_first_request():
    """KAFKA-14292: it moved with each request, and the end never came."""
    world = World(3)
    world.create(assignment={0: [2, 1, 3]})
    first = ask(world, 2)
    topic = world.create("u", assignment={0: [1, 2, 3]})
    world.propose(1, pid(topic), [1, 3])
    assert world.nodes[2].broker.notice > first.notice
    assert ask(world, 2).notice == first.notice


def test_it_comes_slice_by_slice_and_urgent_events_get_their_turn():
    world = World(3, slice_partitions_max=10)
    world.create(assignment={p: [2, 1, 3] for p in range(100)})
    world.commits.clear()
    assert ask(world, 2).remaining_total == 0
    assert [len(ops) - 1 for ops in world.commits] == [1, *[10] * 10]


@pytest.mark.parametrize("fault", ["lost", "applied"])
@pytest.mark.parametrize("at", range(4))
def test_an_outcome_that_nobody_heard_at_any_step_ends_the_same(fault, at):
    world = World(3, slice_partitions_max=2)
    world.create(assignment={p: [2, 1, 3] for p in range(6)})
    calls = []

    def hurt(address, call):
        if call.verb == "commit_each":
            calls.append(call)
            return fault if len(calls) == at + 1 else None
        return None

    world.before_store = hurt
    ask(world, 2)
    world.advance(5_000)
    answer = ask(world, 2)
    assert (answer.error, answer.remaining_total) == (Code.NONE, 0)
    assert len(calls) > at
    assert {(world.state(p).leader, world.state(p).isr) for p in range(6)} == {(1, (1, 3))}


@pytest.mark.parametrize("at", range(1, 5))
def test_the_controller_dies_at_any_step_and_the_next_one_goes_on(at):
    world = World(4, slice_partitions_max=2)
    world.create(assignment={p: [2, 3, 4] for p in range(6)})
    assert world.controller_id == 1
    calls = []

    def watch(address, call):
        if address[0] == "controller" and call.verb == "commit_each":
            calls.append(call)
            if len(calls) == at:
                world.kill(1, settle=False)

    world.after_store = watch
    ask(world, 2)
    world.after_store = lambda address, call: None
    assert 1 not in world.nodes
    assert {world.state(p).leader for p in range(6)} == {3}  # the record says it all: nobody has to ask again
    answer = ask(world, 2)
    assert (answer.error, answer.remaining_total) == (Code.NONE, 0)
    assert answer.notice <= world.nodes[2].broker.notice
    assert answer.controller_epoch == world.leader.controller_epoch


@pytest.mark.parametrize("at", range(1, 5))
def test_the_broker_dies_at_any_step(at):
    world = World(4, slice_partitions_max=2)
    world.create(assignment={p: [2, 3, 4] for p in range(6)})
    calls = []

    def watch(address, call):
        if address[0] == "controller" and call.verb == "commit_each":
            calls.append(call)
            if len(calls) == at:
                world.kill(2, settle=False)

    world.after_store = watch
    ask(world, 2)
    world.after_store = lambda address, call: None
    assert {(world.state(p).leader, world.state(p).isr) for p in range(6)} == {(3, (3, 4))}
    assert draining(world) == {}
    world.start(2, settle=True)
    assert world.propose(3, pid(world.leader._term.cluster.names["t"]), [2, 3, 4]).error == Code.NONE


def test_a_later_life_is_not_draining():
    world = World(3)
    world.create(assignment={0: [2, 1, 3]})
    ask(world, 2)
    before = draining(world)
    world.bounce(2)
    assert world.nodes[2].broker.broker_epoch > before[2]
    assert draining(world) == {}
    assert world.leader._term.cluster.leaving() == frozenset()


def test_a_stale_request_moves_nothing():
    world = World(3)
    world.create(assignment={0: [2, 1, 3]})
    world.send(2, ("controller", world.controller_id), ControlledShutdown(2, world.nodes[2].broker.broker_epoch - 1))
    world.settle()
    answers = [m for _, to, m in world.sent if isinstance(m, ControlledShutdownAnswer)]
    assert [a.error for a in answers] == [Code.STALE_BROKER_EPOCH]
    assert world.state().leader == 2
    world.send(2, ("controller", 2), ControlledShutdown(2, world.nodes[2].broker.broker_epoch))
    world.settle()
    answers = [m for _, to, m in world.sent if isinstance(m, ControlledShutdownAnswer)]
    assert answers[-1].error == Code.NOT_CONTROLLER


def test_a_draining_leader_lets_others_in_and_is_then_replaced():
    world = World(3)
    topic = world.create(assignment={0: [2, 1, 3]}, config={"min_isr": 1})
    world.propose(2, pid(topic), [2])
    assert ask(world, 2).remaining_total == 1
    assert world.propose(2, pid(topic), [2, 1]).error == Code.NONE
    assert (world.state().leader, world.state().isr) == (1, (1,))


def test_nobody_lets_a_draining_broker_in():
    world = World(3)
    topic = world.create(assignment={0: [1, 2, 3]}, config={"min_isr": 1})
    ask(world, 2)
    assert world.state().isr == (1, 3)
    assert world.propose(1, pid(topic), [1, 3, 2]).error == Code.INELIGIBLE_REPLICA


def test_two_that_leave_at_once_share_what_nobody_else_can_lead():
    world = World(3)
    world.create(assignment={0: [2, 3], 1: [3, 2], 2: [2, 1]}, config={"min_isr": 1})
    ask(world, 2)
    answer = ask(world, 3)
    assert answer.error == Code.NONE
    assert {world.state(0).leader, world.state(1).leader} == {3}
    assert world.state(2).leader == 1


@pytest.mark.parametrize("min_isr", [1, 2])
def test_two_members_that_drain_keep_nobody_out_and_leave_once_somebody_stays(min_isr):
    world = World(5)
    topic = world.create(assignment={0: [2, 3, 4, 5]}, config={"min_isr": min_isr})
    world.propose(2, pid(topic), [2, 3])
    for broker in (2, 3):
        world.admin("drain", broker=broker, settle=False)
    world.settle()
    assert (world.state().leader, world.state().isr) == (2, (2, 3)), "nobody else can be in sync"
    assert world.propose(2, pid(topic), [2, 3, 4]).error == Code.NONE
    state = world.state()
    assert (state.leader, state.isr) == (4, (4,))
    assert state.elr == ((2, 3) if min_isr == 2 else ()), "below min ISR those who left are still complete"
    assert world.propose(4, pid(topic), [4, 3]).error == Code.INELIGIBLE_REPLICA, "whoever has left does not come back"
    assert world.propose(4, pid(topic), [4, 5]).error == Code.NONE
    assert (world.state().isr, world.state().elr) == ((4, 5), ())
    for broker in (2, 3):
        assert world.admin("drain", broker=broker).result["remaining"] == []


def test_two_members_that_drain_let_go_of_one_that_lags():
    """Else its place holds the high watermark as long as they drain."""
    world = World(4)
    topic = world.create(assignment={0: [2, 3, 4]}, config={"min_isr": 1})
    for broker in (2, 3, 4):
        world.admin("drain", broker=broker, settle=False)
    world.settle()
    assert world.state().isr == (2, 3, 4)
    assert world.propose(2, pid(topic), [2, 3]).error == Code.NONE
    assert world.state().isr == (2, 3)


def test_a_member_that_drains_leaves_also_with_the_end_of_a_move():
    world = World(4)
    topic = world.create(assignment={0: [2, 3]}, config={"min_isr": 1})
    world.admin("reassign", partitions=[["t", 0, [3, 4]]])
    for broker in (2, 3):
        world.admin("drain", broker=broker, settle=False)
    world.settle()
    assert (world.state().leader, world.state().isr) == (2, (2, 3))
    world.propose(2, pid(topic), [2, 3, 4])
    assert world.leader._term.cluster.replicas(pid(topic)) == (3, 4)
    assert (world.state().leader, world.state().isr) == (4, (4,))


def test_new_topics_are_put_elsewhere_while_a_broker_drains():
    world = World(3)
    world.admin("drain", broker=2)
    topic = world.create(partitions=4)
    placed = world.leader._term.cluster.topics[topic].assignments.values()
    assert {b for one in placed for b in one.replicas} == {1, 3}
    world.create("there", assignment={0: [2]})
    assert world.state(0, "there").leader == 2  # it was asked for, and nobody else can


def test_drain_moves_and_says_what_remains():
    world = World(3)
    topic = world.create(assignment={0: [2, 1, 3], 1: [2, 3, 1]}, config={"min_isr": 1})
    world.propose(2, pid(topic, 1), [2])
    answer = world.admin("drain", broker=2)
    epoch = world.nodes[2].broker.broker_epoch
    assert (answer.error, answer.result) == (Code.NONE, {"broker": 2, "broker_epoch": epoch, "remaining": [["t", 1]]})
    assert world.state(0).leader == 1
    again = world.admin("drain", broker=2)
    assert again.result == answer.result


def test_a_late_request_to_drain_is_not_about_the_next_life():
    world = World(3)
    world.create(assignment={0: [2, 1, 3]}, config={"min_isr": 1})
    epoch = world.nodes[2].broker.broker_epoch
    world.kill(2)
    world.start(2, settle=True)
    answer = world.admin("drain", broker=2, broker_epoch=epoch)
    assert (answer.error, draining(world)) == (Code.STALE_BROKER_EPOCH, {})
    answer = world.admin("drain", broker=2, broker_epoch=world.nodes[2].broker.broker_epoch)
    assert answer.error == Code.NONE


@pytest.mark.parametrize(("broker", "code", "text"), [
    (9, Code.BROKER_ID_NOT_REGISTERED, "registered are 1"),
    ("1", Code.INVALID_REQUEST, "'1'"),
    (True, Code.INVALID_REQUEST, "True"),
])  # fmt: skip
def test_bad_requests_to_drain(broker, code, text):
    world = World(1)
    answer = world.admin("drain", broker=broker)
    assert answer.error == code
    assert text in answer.message
