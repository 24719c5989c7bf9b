"""What brokers have yet to hear: numbers, newest states, gaps, resends."""

from __future__ import annotations

import pytest
from tests.unit.controller.harness import World, pid

from replog.config import TopicConfig
from replog.controller.changes import HiddenSet
from replog.controller.outboxes import Outboxes
from replog.errors import Code
from replog.messages import LeaderAndIsr, LeaderAndIsrAnswer, PartitionNotice, StopEntry, StopReplica, StopReplicaAnswer
from replog.model import Assignment, PartitionId, PartitionState

P, Q = PartitionId(b"t" * 16, 0, 0), PartitionId(b"t" * 16, 1, 0)


class Boxes:
    """Outboxes of one broker, over states that a test sets."""

    def __init__(self, beat_ms: int = 0) -> None:
        self.epochs = {P: 0, Q: 0}
        self.boxes = Outboxes(1, 5, 3_000, self.look, beat_ms=beat_ms)
        self.boxes.register(2, 77)
        self.boxes.announce(2, [P, Q], (), 0)
        self.box = self.boxes.get(2, 77)

    def look(self, partition):
        if partition not in self.epochs:
            return None
        state = PartitionState(2, 0, (2,), partition_epoch=self.epochs[partition])
        return PartitionNotice(partition, "t", state, Assignment((2,)), TopicConfig(min_isr=1))

    def change(self, partition, now_ms=0):
        self.epochs[partition] += 1
        self.boxes.note(partition, [2])
        return list(self.boxes.flush(now_ms))


def told(messages):
    return [(m.notice, [(e.partition, e.state.partition_epoch) for e in m.entries]) for _, m in messages]


def test_notices_are_numbered_and_name_only_what_changed():
    boxes = Boxes()
    boxes.box.answered(0)
    assert told(boxes.change(P)) == [(1, [(P, 1)])]
    assert told(boxes.change(Q)) == [(2, [(Q, 1)])]
    assert list(boxes.boxes.flush(0)) == []


def test_a_complete_notice_that_is_sent_while_something_is_hidden_is_to_be_followed_by_another() -> None:
    hidden = [HiddenSet(), HiddenSet(frozenset({"t"}))]
    boxes = Outboxes(1, 5, 3_000, lambda _partition: None, hidden=lambda: hidden[0])
    boxes.register(2, 77)
    assert not boxes.announce(2, [], (), 0).is_partial
    assert boxes.blind() == []
    hidden.pop(0)
    ((_, again),) = boxes.overdue(10_000)
    assert isinstance(again, LeaderAndIsr)
    assert again.is_partial
    assert boxes.blind() == [2]


@pytest.mark.parametrize(("broker_epoch", "number"), [(77, 3), (78, 0)])
def test_a_life_that_is_seen_again_goes_on_with_its_numbers_and_another_begins_anew(broker_epoch: int, number: int) -> None:
    boxes = Boxes()
    boxes.change(P)
    boxes.change(Q)
    boxes.boxes.forget(2)
    boxes.boxes.register(2, broker_epoch)
    assert boxes.boxes.announce(2, [P, Q], (), 0).notice == number


def test_changes_between_two_flushes_make_one_notice():
    boxes = Boxes()
    for partition in (Q, P, Q):
        boxes.epochs[partition] += 1
        boxes.boxes.note(partition, [2])
    assert told(boxes.boxes.flush(0)) == [(1, [(P, 1), (Q, 2)])]


def test_what_is_sent_again_is_the_newest_state_under_the_number_it_had():
    boxes = Boxes()
    boxes.box.answered(0)
    boxes.change(P)
    boxes.change(Q)
    boxes.change(P)
    again = told(boxes.boxes.overdue(3_000))
    assert again == [(1, []), (2, [(Q, 1)]), (3, [(P, 2)])]
    assert told(boxes.boxes.overdue(5_999)) == []
    assert [n for n, _ in told(boxes.boxes.overdue(6_000))] == [1, 2, 3]


def test_the_complete_notice_names_everything_whenever_it_is_sent():
    boxes = Boxes()
    boxes.change(P)
    (first, second) = [m for _, m in boxes.boxes.overdue(3_000)]
    assert (first.complete, told([(2, first)])) == (True, [(0, [(P, 1), (Q, 0)])])
    assert (second.complete, second.notice) == (False, 1)


def test_the_complete_notice_is_as_complete_when_it_is_sent_again() -> None:
    """And a copy of any notice says when it was made, so that late ones take back nothing newer."""
    boxes, assigned = Boxes(), PartitionId(b"t" * 16, 2, 0)
    boxes.epochs[assigned] = -1
    ((_, first),) = boxes.change(assigned)
    boxes.boxes.stop(2, StopEntry(P, 0, False))
    ((_, stop),) = boxes.boxes.flush(0)
    again = {m.notice: m for _, m in boxes.boxes.overdue(3_000)}
    assert [e.partition for e in again[0].entries] == [Q, assigned]
    assert [e.partition for e in again[1].entries] == [assigned]
    assert first.as_of < stop.as_of
    assert {m.as_of for m in again.values()} == {stop.as_of}
    boxes.boxes.forget(2)
    boxes.boxes.register(2, 77)
    assert boxes.boxes.announce(2, [Q], (), 0).as_of > stop.as_of


def test_a_heartbeat_acknowledges_everything_below_and_a_gap_is_sent_again_once_it_is_old():
    boxes = Boxes()
    boxes.box.answered(0)
    boxes.change(P, 10)
    boxes.change(Q, 20)
    assert list(boxes.boxes.heartbeat(2, 77, 0, 30)) == []  # may have crossed on the way
    assert [n for n, _ in told(boxes.boxes.heartbeat(2, 77, 0, 2_030))] == [1, 2]
    assert list(boxes.boxes.heartbeat(2, 77, 2, 4_030)) == []
    assert boxes.boxes.unacknowledged() == {}
    assert boxes.boxes.deadline_ms() is None


def test_a_heartbeat_of_another_life_says_nothing():
    boxes = Boxes()
    boxes.change(P)
    assert list(boxes.boxes.heartbeat(2, 76, 9, 0)) == []
    assert boxes.boxes.unacknowledged() == {2: 2}


def test_the_complete_notice_and_stops_wait_for_their_answer():
    boxes = Boxes()
    boxes.boxes.stop(2, StopEntry(P, -2, True))
    assert [type(m) for _, m in boxes.boxes.flush(0)] == [StopReplica]
    list(boxes.boxes.heartbeat(2, 77, 1, 0))
    assert boxes.boxes.unacknowledged() == {2: 2}
    assert boxes.box.answered(0)
    assert not boxes.box.answered(0)
    assert [e.partition for e in boxes.box.stopped(1)] == [P]
    boxes.box.answered(1)
    assert boxes.boxes.unacknowledged() == {}


def test_many_stops_are_under_way_in_slices():
    """A broker puts each copy away on its disk: it gets the next slice when it has done one."""
    boxes = Boxes()
    boxes.box.answered(0)
    boxes.box.stops_max = 10
    many = [P._replace(partition=number) for number in range(25)]
    other = P._replace(topic_id=b"o" * 16)
    for one in (*many, other):
        boxes.boxes.stop(2, StopEntry(one, -2, True))
    sizes = []
    for number in (1, 2, 3):
        sizes += [len(m.entries) for _, m in boxes.boxes.flush(0)]
        assert list(boxes.boxes.flush(0)) == []
        assert P.topic_id in boxes.box.stopping()
        boxes.box.answered(number)
    assert sizes == [10, 10, 6]
    assert P.topic_id not in boxes.box.stopping()
    assert list(boxes.boxes.flush(0)) == []


def test_a_stop_withdraws_states_that_are_still_under_way():
    boxes = Boxes()
    boxes.box.answered(0)
    boxes.change(P)
    boxes.boxes.stop(2, StopEntry(P, -2, True))
    list(boxes.boxes.flush(0))
    assert [(m.notice, len(m.entries)) for _, m in boxes.boxes.overdue(3_000)] == [(1, 0), (2, 1)]


def test_a_stop_withdraws_the_copy_from_the_complete_notice_whether_or_not_a_later_one_names_it_too():
    """Sent again, it would name a leader epoch that the stop is older than: the broker would keep the copy, and refuse for ever."""
    boxes = Boxes()
    boxes.change(P)
    for partition in (P, Q):
        boxes.boxes.stop(2, StopEntry(partition, 0, True))
    list(boxes.boxes.flush(0))
    assert [(m.notice, len(m.entries)) for _, m in boxes.boxes.overdue(3_000)] == [(0, 0), (1, 0), (2, 2)]
    assert boxes.box.answered(0)
    boxes.box.answered(1)
    boxes.box.answered(2)
    assert boxes.boxes.unacknowledged() == {}


def test_a_copy_that_is_assigned_again_is_not_stopped_any_more():
    """Whether the stop waits, is under way, or waits for the complete notice."""
    boxes = Boxes()
    boxes.box.answered(0)
    boxes.boxes.stop(2, StopEntry(P, -2, True))
    assert told(boxes.change(P)) == [(1, [(P, 1)])]
    boxes.box.answered(1)
    boxes.boxes.stop(2, StopEntry(P, -2, True))
    boxes.boxes.stop(2, StopEntry(Q, -2, True))
    list(boxes.boxes.flush(0))
    assert told(boxes.change(P)) == [(3, [(P, 2)])]
    again = {type(m): m.entries for _, m in boxes.boxes.overdue(3_000)}
    assert [e.partition for e in again[StopReplica]] == [Q]
    boxes.boxes.register(2, 78)
    boxes.boxes.stop(2, StopEntry(P, -2, True))
    boxes.boxes.announce(2, [P], (), 0)
    assert list(boxes.boxes.flush(0)) == []


def test_a_new_life_has_heard_nothing():
    boxes = Boxes()
    boxes.change(P)
    boxes.boxes.register(2, 78)
    assert boxes.boxes.silent() == [2]
    assert boxes.change(P) == []
    assert boxes.boxes.get(2, 77) is None
    assert boxes.boxes.announce(2, [P, Q], (), 0).notice == 0


def test_a_silent_broker_is_listed_and_hears_the_newest_state_later():
    world = World(3)
    topic = world.create()
    world.drop = lambda sender, to, message: isinstance(message, LeaderAndIsr) and to == 3
    world.propose(1, pid(topic), [1, 2])
    world.propose(1, pid(topic), [1, 2, 3])
    assert world.leader.unacknowledged == {3: 2}
    assert world.nodes[3].broker.states[pid(topic)].state.partition_epoch == 0
    world.drop = lambda sender, to, message: False
    world.advance(3_000)
    assert world.nodes[3].broker.states[pid(topic)].state == world.state()
    assert world.leader.unacknowledged == {}


@pytest.mark.parametrize("beats", [1, 2])
def test_heartbeats_find_a_gap_before_the_timeout_does(beats):
    world = World(3)
    topic = world.create()
    world.drop = lambda sender, to, message: isinstance(message, LeaderAndIsr) and to == 3
    world.propose(1, pid(topic), [1, 2])
    world.drop = lambda sender, to, message: False
    for _ in range(beats):
        world.advance(1_000)
        world.heartbeat(3)
    heard = world.nodes[3].broker.states[pid(topic)].state.partition_epoch
    assert heard == beats - 1


def test_heartbeats_that_come_together_find_no_gap():
    """A controller that is slow takes several at once: each may have been said before the notice was."""
    world = World(3)
    topic = world.create()
    world.drop = lambda sender, to, message: isinstance(message, LeaderAndIsr) and to == 3
    world.propose(1, pid(topic), [1, 2])
    world.advance(1_999)
    before = len(world.sent)
    for _ in range(5):
        world.heartbeat(3)
    assert not [m for _, to, m in world.sent[before:] if isinstance(m, LeaderAndIsr)]
    world.advance(1)
    for _ in range(5):
        world.heartbeat(3)
    assert len([m for _, to, m in world.sent[before:] if isinstance(m, LeaderAndIsr)]) == 1


ANSWERED, ROOMLESS, BEAT = "answered", "without room", "heartbeat"


@pytest.mark.parametrize(("said", "again"), [
    # what the broker says of the complete notice, 0, and of 1, 2 and 3, all of them sent at 0; when each of the others is sent again
    ([], {0: 3_000, 1: 3_000, 2: 3_000, 3: 3_000}),
    ([(2_000, ANSWERED, 0)], {1: 5_000, 2: 5_000, 3: 5_000}),
    ([(2_000, ANSWERED, 0), (4_000, ANSWERED, 1)], {2: 7_000, 3: 7_000}),
    ([(2_000, ANSWERED, 0), (4_000, ANSWERED, 1), (6_500, ANSWERED, 2)], {3: 9_500}),
    ([(2_000, ANSWERED, 0), (2_500, ANSWERED, 0)], {1: 5_000, 2: 5_000, 3: 5_000}),
    ([(1_000, ANSWERED, 0), (2_000, ANSWERED, 2)], {1: 4_000, 3: 5_000}),
    ([(1_000, ANSWERED, 0), (2_000, ROOMLESS, 1)], {1: 5_000, 2: 4_000, 3: 4_000}),
    ([(1_000, BEAT, -1), (2_500, BEAT, -1)], {0: 2_500, 1: 2_500, 2: 2_500, 3: 2_500}),
    ([(1_000, BEAT, -1), (2_500, BEAT, 0)], {0: 3_000, 1: 5_500, 2: 5_500, 3: 5_500}),
    ([(1_000, BEAT, -1), (2_500, BEAT, 1)], {0: 3_000, 2: 5_500, 3: 5_500}),
    ([(1_000, BEAT, 0), (2_500, BEAT, 0), (3_900, BEAT, 0)], {0: 3_000, 1: 3_900, 2: 3_900, 3: 3_900}),
    ([(1_000, BEAT, 0), (1_500, BEAT, -1), (2_500, BEAT, 0)], {0: 3_000, 1: 4_000, 2: 4_000, 3: 4_000}),
    ([(1_000, ANSWERED, 0), (1_500, BEAT, 0), (2_500, BEAT, 0)], {1: 4_000, 2: 4_000, 3: 4_000}),
    ([(1_000, ANSWERED, 0), (1_500, BEAT, 0), (3_500, BEAT, 0)], {1: 3_500, 2: 3_500, 3: 3_500}),
    ([(1_000, ANSWERED, 0), (1_500, BEAT, 0), (3_500, BEAT, 1)], {2: 6_500, 3: 6_500}),
    ([(1_000, ANSWERED, 0), (3_500, BEAT, 1), (3_600, BEAT, 0), (3_700, BEAT, 1)], {2: 6_500, 3: 6_500}),
])  # fmt: skip
def test_a_broker_that_gets_on_is_not_told_again(said, again):
    """An acknowledgement puts off what comes after the notice that it is about, each once; nothing else puts off anything."""
    boxes = Boxes(beat_ms=2_000)
    names = {1: P, 2: Q, 3: PartitionId(b"u" * 16, 0, 0)}
    boxes.epochs[names[3]] = 0
    for number, partition in names.items():
        assert [n for n, _ in told(boxes.change(partition))] == [number]
    found: dict[int, int] = {}
    for now_ms in range(0, 10_000, 100):
        for _, what, number in [one for one in said if one[0] == now_ms]:
            if what == BEAT:
                sent = list(boxes.boxes.heartbeat(2, 77, number, now_ms))
                found = {**{n: now_ms for n, _ in told(sent)}, **found}
            else:
                boxes.box.answered(number, (names[number],) if what == ROOMLESS else (), now_ms)
        found = {**{n: now_ms for n, _ in told(boxes.boxes.overdue(now_ms))}, **found}
    assert found == again


def test_stops_that_are_answered_put_off_what_was_said_after_them():
    world = World(3)
    world.create("old", assignment={0: [2, 1]})
    world.nodes[2].broker.mute = True
    assert world.admin("delete_topic", name="old") is not None
    world.create("new", assignment={0: [1, 2]})
    (stop,) = [m for _, to, m in world.sent if to == 2 and isinstance(m, StopReplica)]
    world.advance(2_500)
    before, now_ms = len(world.sent), world.now_ms
    broker = world.nodes[2].broker
    world.send(2, ("controller", 1), StopReplicaAnswer(2, broker.broker_epoch, broker.controller_epoch, stop.notice, 0))
    world.settle()
    world.advance(2_999)
    assert not [m for _, to, m in world.sent[before:] if to == 2 and isinstance(m, LeaderAndIsr)]
    world.advance(1)
    assert [m for _, to, m in world.sent[before:] if to == 2 and isinstance(m, LeaderAndIsr)]
    assert world.now_ms - now_ms == 3_000


def test_lost_answers_cost_a_resend_and_nothing_else():
    world = World(3)
    topic = world.create()
    world.drop = lambda sender, to, message: isinstance(message, LeaderAndIsrAnswer) and sender == 3
    world.propose(1, pid(topic), [1, 2])
    sent = len([1 for _, to, m in world.sent if isinstance(m, LeaderAndIsr) and to == 3])
    world.advance(3_000)
    world.drop = lambda sender, to, message: False
    world.advance(3_000)
    assert world.leader.unacknowledged == {}
    assert len([1 for _, to, m in world.sent if isinstance(m, LeaderAndIsr) and to == 3]) == sent + 2
    assert world.state().partition_epoch == 1


def test_a_notice_without_room_goes_on_with_what_is_missing_after_ever_longer_pauses():
    boxes = Boxes()
    boxes.box.answered(0)
    boxes.change(P)
    boxes.boxes.note(Q, [2])
    list(boxes.boxes.flush(0))
    boxes.box = boxes.boxes.get(2, 77)
    times, now = [], 0
    while len(times) < 5:
        for _, message in list(boxes.boxes.overdue(now)):
            if message.notice == 1:
                times.append(now)
                assert [e.partition for e in message.entries] == [P]
                boxes.box.answered(1, (P,), now)
        now += 1_000
        boxes.box.answered(2)
    assert [b - a for a, b in zip([0, *times], times, strict=False)] == [3_000, 3_000, 6_000, 12_000, 12_000]


def test_the_pause_is_not_cut_short_by_heartbeats():
    boxes = Boxes()
    boxes.box.answered(0)
    boxes.change(P)
    for now in (0, 3_000):
        boxes.box.answered(1, (P,), now)
    again = [now for now in range(4_000, 16_000, 2_000) if list(boxes.boxes.heartbeat(2, 77, 0, now))]
    assert again[0] == 8_000
    assert boxes.box.room_news() == {P: False}


def test_what_the_complete_notice_had_no_room_for_goes_into_another_and_its_broker_is_let_in():
    boxes = Boxes()
    assert boxes.box.answered(0, (Q,), 0)
    assert boxes.box.room_news() == {Q: False}
    assert told(boxes.boxes.overdue(2_999)) == []
    assert told(boxes.boxes.overdue(3_000)) == [(1, [(Q, 0)])]
    boxes.box.answered(1, (), 3_001)
    assert boxes.box.room_news() == {Q: True}
    assert boxes.box.room_news() == {}
    assert boxes.box.unacknowledged() == 0


def test_an_answer_that_is_late_does_not_take_back_what_was_made():
    boxes = Boxes()
    boxes.box.answered(0)
    boxes.change(P)
    boxes.box.answered(1, (P,), 0)
    list(boxes.boxes.heartbeat(2, 77, 1, 3_000))  # it counts the notice as applied: its answer was lost
    assert boxes.box.room_news() == {P: True}
    boxes.box.answered(1, (P,), 3_001)
    assert boxes.box.room_news() == {}


def test_a_newer_notice_says_whether_there_is_room():
    boxes = Boxes()
    boxes.box.answered(0)
    boxes.change(P)
    boxes.box.answered(1, (P,), 0)
    assert told(boxes.change(P)) == [(2, [(P, 2)])]
    boxes.box.answered(1, (P,), 1)  # of what was sent before
    assert boxes.box.room_news() == {P: False}
    boxes.box.answered(2, (), 2)
    assert boxes.box.room_news() == {P: True}
    assert told(boxes.boxes.overdue(20_000)) == [(1, [])]  # closes the gap in the broker's count


def test_a_broker_without_room_leads_nothing_meanwhile_and_joins_when_it_has_made_its_copy():
    world = World(3)
    world.nodes[2].broker.full = True
    topic = world.create(assignment={0: [2, 3]}, config={"min_isr": 1})
    assert (world.state().leader, world.state().isr) == (3, (3,))
    assert world.told("replicas_failed") == []
    assert world.propose(3, pid(topic), [2, 3]).error == Code.INELIGIBLE_REPLICA
    world.advance(60_000)
    assert world.state().leader == 3
    world.nodes[2].broker.full = False
    world.advance(15_000)
    assert pid(topic) in world.nodes[2].broker.states
    assert world.propose(3, pid(topic), [2, 3]).error == Code.NONE
    assert world.state().isr == (2, 3)


def test_a_partition_whose_only_broker_has_no_room_is_led_once_it_has():
    world = World(2)
    world.nodes[2].broker.full = True
    world.create(assignment={0: [2]}, config={"min_isr": 1})
    assert (world.state().leader, world.state().isr, world.state().elr) == (None, (), (2,))
    world.nodes[2].broker.full = False
    world.advance(15_000)
    assert (world.state().leader, world.state().isr) == (2, (2,))


@pytest.mark.parametrize("ends", ["with room", "by hand"])
def test_a_complete_leader_whose_disk_is_full_is_not_replaced_uncleanly(ends):
    """`flush` is altered, and that cannot be recorded: nobody has died, and what is acknowledged must not be cut."""
    world = World(3)
    p = pid(world.create(assignment={0: [2, 3]}, config={"min_isr": 1, "flush": "ack", "unclean_leader_election": True}))
    assert world.propose(2, p, [2]).error == Code.NONE  # 3 misses what is acknowledged from now on
    broker = world.nodes[2].broker
    plain = broker.receive

    def full(message):
        answer = plain(message)
        if isinstance(answer, LeaderAndIsrAnswer) and any(one.config.flush == "os" for one in message.entries):
            answer.errors.append((p, Code.LOG_DIRECTORY_FULL))
        return answer

    broker.receive = full
    world.admin("alter_topic", name="t", config={"flush": "os"})
    world.advance(60_000)
    assert (world.state().leader, world.state().elr) == (None, (2,))
    assert world.told("records_may_be_lost") == []
    if ends == "by hand":
        assert world.admin("elect", partitions=[["t", 0]], unclean=True).error == Code.NONE
        assert world.state().leader == 3
        return
    broker.receive = plain
    world.advance(30_000)
    assert (world.state().leader, world.state().isr) == (2, (2,))


def test_a_broker_that_comes_back_with_a_full_disk_is_let_in():
    world = World(3)
    topic = world.create(assignment={0: [2, 3]}, config={"min_isr": 1})
    world.kill(2)
    world.start(2)
    world.nodes[2].broker.copies.clear()
    world.nodes[2].broker.full = True
    world.settle()
    assert world.state().isr == (3,)
    assert not world.nodes[1].controller._term.cluster.brokers[2].info.fenced
    world.nodes[2].broker.full = False
    world.advance(15_000)
    assert pid(topic) in world.nodes[2].broker.states


def test_that_a_copy_was_made_is_heard_of_by_heartbeat_if_the_answer_is_lost():
    world = World(2)
    world.nodes[2].broker.full = True
    world.create(assignment={0: [2]}, config={"min_isr": 1})
    assert world.state().leader is None
    world.nodes[2].broker.full = False
    world.drop = lambda sender, to, message: isinstance(message, LeaderAndIsrAnswer)
    world.advance(3_000)
    assert world.state().leader is None
    world.nodes[2].broker.notice = 99  # with the notices before it, which a real broker counts
    world.heartbeat(2)
    world.settle()
    assert (world.state().leader, world.state().isr) == (2, (2,))


def test_an_answer_to_a_notice_that_said_nothing_of_a_copy_says_nothing_of_it() -> None:
    """When it was sent the leader had yet to be let in, and its state could not be stored."""
    boxes = Boxes()
    boxes.box.answered(0)
    boxes.box.failed([P])
    epoch = boxes.epochs.pop(P)
    boxes.boxes.name(P, 2)
    assert told(boxes.boxes.flush(0)) == [(1, [])]
    boxes.epochs[P] = epoch
    assert boxes.box.named(1) == []
