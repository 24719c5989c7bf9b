"""What there is for a broker that cannot be reached stays bounded, and it hears the newest of everything once it can be."""

from __future__ import annotations

import pytest
from tests.unit.controller.harness import World, pid
from tests.unit.controller.test_outboxes import Boxes, P, Q, told
from tests.unit.controller.test_silence import pass_time

from replog.controller import outboxes
from replog.messages import LeaderAndIsr, StopEntry, StopReplica

MOST = outboxes._NOTICES_MAX
R = P._replace(partition=2)


def unheard() -> Boxes:
    """So many notices are unanswered that no other is opened: the complete one, and all the others of Q."""
    boxes = Boxes()
    for _ in range(MOST - 1):
        assert boxes.change(Q)
    return boxes


def test_notices_that_nobody_answers_do_not_pile_up() -> None:
    boxes = unheard()
    for _ in range(3 * MOST):
        assert boxes.change(P) == boxes.change(Q) == []
    assert boxes.boxes.unacknowledged() == {2: MOST}
    assert len(list(boxes.boxes.overdue(3_000))) == MOST


@pytest.mark.parametrize("heard", ["answer", "heartbeat"])
def test_what_waits_goes_out_in_one_newest_only_with_the_next_acknowledgement(heard: str) -> None:
    boxes = unheard()
    newest = MOST - 1
    for _ in range(3):
        boxes.change(P)
        boxes.change(Q)
    assert list(boxes.boxes.flush(0)) == []
    assert boxes.box.named(newest) == [], "the broker may have answered before it was sent with what is new by now"
    if heard == "answer":
        boxes.box.answered(newest)
    else:
        list(boxes.boxes.heartbeat(2, 77, 1, 0))
    assert told(boxes.boxes.flush(0)) == [(MOST, [(P, 3), (Q, MOST + 2)])]
    assert boxes.change(P) == []
    boxes.box.answered(MOST)
    assert told(boxes.boxes.flush(0)) == [(MOST + 1, [(P, 4)])]
    assert list(boxes.boxes.flush(0)) == []


def test_an_older_notice_that_is_sent_again_has_the_newest_state_although_that_waits() -> None:
    boxes = Boxes()
    boxes.change(P)
    for _ in range(MOST):
        boxes.change(Q)
    assert boxes.change(P) == []
    assert dict(told(boxes.boxes.overdue(3_000)))[1] == [(P, 2)]


def test_the_complete_notice_waits_for_nobody() -> None:
    boxes = unheard()
    boxes.change(P)
    assert boxes.boxes.announce(2, [P, Q], (), 0).notice == MOST
    assert boxes.boxes.unacknowledged() == {2: 1}
    assert list(boxes.boxes.flush(0)) == []
    assert told(boxes.change(P)) == [(MOST + 1, [(P, 2)])]


def test_a_stop_goes_out_although_many_notices_wait_and_takes_the_place_of_states_that_wait() -> None:
    boxes = unheard()
    boxes.change(P)
    boxes.boxes.stop(2, StopEntry(P, -2, True))
    ((_, stop),) = boxes.boxes.flush(0)
    assert isinstance(stop, StopReplica)
    assert [entry.partition for entry in stop.entries] == [P]
    boxes.box.answered(0)
    assert list(boxes.boxes.flush(0)) == []


def test_who_leaves_hears_first_what_waited_when_it_asked() -> None:
    """Others lead what it led: a stop that is opened meanwhile does not get the number (KAFKA-14296)."""
    boxes = unheard()
    boxes.change(P)
    leaves_after = boxes.box.let_go()
    boxes.boxes.stop(2, StopEntry(R, -2, True))
    assert list(boxes.boxes.flush(0)) == []
    boxes.box.answered(0)
    (news, stop) = [m for _, m in boxes.boxes.flush(0)]
    assert (news.notice, [e.partition for e in news.entries]) == (leaves_after, [P])
    assert isinstance(stop, StopReplica)
    assert boxes.box.let_go() == leaves_after, "settled at the first request (KAFKA-14292)"


def test_what_a_full_disk_has_no_room_for_keeps_nothing_else_back() -> None:
    """There may be such a notice for each copy, for days; each was answered."""
    boxes = Boxes()
    boxes.box.answered(0)
    for number in range(1, 2 * MOST):
        one = P._replace(partition=number + 1)
        boxes.epochs[one] = 0
        assert [n for n, _ in told(boxes.change(one))] == [number]
        boxes.box.answered(number, (one,), 0)
    assert told(boxes.change(P)) == [(2 * MOST, [(P, 1)])]


def test_stops_that_were_taken_back_do_not_pile_up() -> None:
    boxes = Boxes()
    boxes.box.stops_max = 10
    for _ in range(MOST):
        boxes.boxes.stop(2, StopEntry(P, -2, True))
        list(boxes.boxes.flush(0))
        boxes.change(P)
    assert boxes.boxes.unacknowledged() == {2: MOST + 10}
    boxes.boxes.stop(2, StopEntry(P, -2, True))
    assert list(boxes.boxes.flush(0)) == []
    list(boxes.boxes.heartbeat(2, 77, 2 * MOST, 0))
    boxes.box.answered(1)  # the first stop
    assert [type(m) for _, m in boxes.boxes.flush(0)] == [StopReplica]


def test_a_leader_that_was_replaced_unheard_hears_of_it_once_it_can_be_reached() -> None:
    world = World(3)
    topic, busy = world.create(assignment={0: [2, 1, 3]}), world.create("busy", assignment={0: [1, 2, 3]})
    world.nodes[2].broker.mute = True
    for _ in range(MOST):
        world.propose(1, pid(busy), [1, 2])
        world.propose(1, pid(busy), [1, 2, 3])
    assert world.leader.unacknowledged == {2: MOST}
    before = len(world.sent)
    pass_time(world, 15_000)
    sent = [m for _, to, m in world.sent[before:] if isinstance(m, LeaderAndIsr) and to == 2]
    assert len(sent) <= MOST * 5
    assert world.told("broker_silent")
    assert (world.state().leader, world.leader.unacknowledged) == (1, {2: MOST})
    assert world.nodes[2].broker.states[pid(topic)].state.leader == 2
    world.nodes[2].broker.mute = False
    pass_time(world, 4_000)
    assert world.leader.unacknowledged == {}
    assert world.nodes[2].broker.states[pid(topic)].state == world.state()
    assert world.nodes[2].broker.states[pid(busy)].state == world.state(0, "busy")
    assert world.told("broker_answers_again")
