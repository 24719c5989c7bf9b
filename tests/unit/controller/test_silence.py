"""A broker that does not answer notices counts as fenced after a session timeout, although its session lives (section 6, Notices)."""

from __future__ import annotations

import pytest
from tests.unit.controller.harness import World, pid

from replog.controller.changes import BrokerSet
from replog.controller.decision import Step
from replog.controller.outboxes import Outboxes
from replog.errors import Code
from replog.messages import Heartbeat, LeaderAndIsr, LeaderAndIsrAnswer, ReplicaStates, ReplicaStatesAnswer, UpdateMetadata
from replog.model import PartitionId
from replog.ports import LossReport


def pass_time(world: World, ms: int) -> None:
    """With heartbeats of everybody who is not mute."""
    for _ in range(0, ms, 1_000):
        world.advance(1_000)
        for node, one in sorted(world.nodes.items()):
            if not one.broker.mute:
                world.heartbeat(node)


def seen(world: World, broker: int) -> tuple[bool, bool]:
    """(fenced, overdue) as others are told."""
    views = [m.view for _, to, m in world.sent if isinstance(m, UpdateMetadata) and to == 1]
    return [(b.fenced, b.overdue) for view in views for b in view.brokers if b.broker_id == broker][-1]


def silent_leader() -> tuple[World, bytes]:
    """Broker 2 leads, and does not answer what it is told."""
    world = World(3, ack_timeout_ms=3_000, session_ms=9_000)
    assert world.controller_id == 1
    topic = world.create(assignment={0: [2, 1, 3]}, config={"min_isr": 2})
    world.propose(2, pid(topic), [2, 1])
    world.nodes[2].broker.mute = True
    topic2 = world.create("u", assignment={0: [2, 3, 1]}, config={"min_isr": 2})
    assert world.state(0, "u").leader == 2
    return world, topic2


def test_after_an_ack_timeout_people_are_told_after_a_session_timeout_others_lead():
    world, _ = silent_leader()
    pass_time(world, 2_000)
    assert world.leader._term.cluster.is_overdue(2) is False
    pass_time(world, 5_000)
    assert seen(world, 2) == (False, True)
    assert world.state().leader == 2
    assert world.told("broker_silent") == []
    pass_time(world, 7_000)
    assert seen(world, 2) == (True, True)
    assert [one["broker"] for one in world.told("broker_silent")] == [2]
    assert (world.state().leader, world.state().isr, world.state().elr) == (1, (1,), (2,))
    assert (world.state(0, "u").leader, world.state(0, "u").isr) == (3, (3, 1))
    assert 2 in [int(b) for b in world.store.list("/brokers/ids")]


def test_nobody_lets_it_in_until_it_answers_again():
    world, topic = silent_leader()
    pass_time(world, 14_000)
    assert world.propose(3, pid(topic), [3, 1, 2]).error == Code.INELIGIBLE_REPLICA
    world.nodes[2].broker.mute = False
    pass_time(world, 4_000)
    assert seen(world, 2) == (False, False)
    assert [one["broker"] for one in world.told("broker_answers_again")] == [2]
    assert world.nodes[2].broker.states[pid(topic)].state.leader == 3
    assert world.propose(3, pid(topic), [3, 1, 2]).error == Code.NONE


def test_what_only_it_can_lead_comes_back_with_it():
    world = World(3)
    world.create(assignment={0: [2]})
    world.nodes[2].broker.mute = True
    world.create("u", assignment={0: [2, 3]}, config={"min_isr": 1})
    pass_time(world, 14_000)
    assert (world.state().leader, world.state().elr) == (None, (2,))
    world.nodes[2].broker.mute = False
    pass_time(world, 4_000)
    assert (world.state().leader, world.state().elr) == (2, ())
    assert world.commits[-1][-1].path.endswith("leaderAndISR")  # nothing was stored about silence itself


def test_a_controller_that_nobody_answers_takes_nothing_away():
    world = World(3)
    world.create(assignment={0: [2, 3, 1]}, config={"min_isr": 2})
    for broker in (2, 3):
        world.nodes[broker].broker.mute = True
    world.create("u", assignment={0: [2, 3, 1]})
    pass_time(world, 30_000)
    assert world.told("broker_silent") == []
    assert world.state(0, "u").leader == 2


def test_a_pause_of_the_controller_itself_blames_nobody():
    """Time has jumped, and what was answered meanwhile has yet to be heard."""
    world = World(3)
    world.create(assignment={0: [2, 3, 1]})
    world.nodes[2].broker.mute = True
    world.create("u", assignment={0: [2, 3, 1]})
    world.now_ms += 60_000
    world.nodes[2].broker.mute = False
    world.advance(0)
    pass_time(world, 4_000)
    assert world.told("broker_silent") == []


def asked_and_deaf() -> tuple[World, bytes]:
    """Broker 2, of a last-known set, is asked how far it reaches, and those questions are lost."""
    world = World(4, ack_timeout_ms=3_000, session_ms=9_000)
    topic = world.create(assignment={0: [2, 3]}, config={"min_isr": 2})
    for node in (2, 3):
        world.kill(node)
    world.disks[2][pid(topic)] = (0, 7)
    world.drop = lambda _sender, to, message: to == 2 and isinstance(message, ReplicaStates)
    for node in (2, 3):
        world.start(node, loss=LossReport("power", (pid(topic),)), settle=True)
    assert world.leader.questions == 1
    return world, topic


def test_who_does_not_say_how_far_it_reaches_is_silent_until_it_does():
    """X-19. Nobody asks it any more once the partition is decided without it; it must not come back by that."""
    world, _ = asked_and_deaf()
    world.advance(8_000)
    (result,) = world.admin("elect", partitions=[["t", 0]], unclean=True).result["partitions"]
    assert result[2] == Code.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert "being asked" in result[3]
    pass_time(world, 60_000)
    assert [one["broker"] for one in world.told("broker_silent")] == [2]
    assert world.told("broker_answers_again") == []
    assert "it does not answer the controller" in " ".join(world.admin("explain", name="t", partition=0).result["sentences"])
    world.drop = lambda _sender, _to, _message: False
    pass_time(world, 4_000)
    assert [one["broker"] for one in world.told("broker_answers_again")] == [2]
    assert world.state().leader == 2
    assert world.told("records_may_be_lost")[0]["candidates"] == ((2, 0, 7), (3, -1, 0))
    pass_time(world, 30_000)
    assert len(world.told("broker_silent")) == 1


def test_a_person_decides_without_one_that_does_not_say_how_far_it_reaches():
    world, _ = asked_and_deaf()
    world.nodes[2].broker.mute = True
    pass_time(world, 15_000)
    assert world.admin("elect", partitions=[["t", 0]], unclean=True).result["partitions"] == [["t", 0, 0, ""]]
    assert world.state().leader == 3
    pass_time(world, 30_000)
    assert world.told("broker_answers_again") == [], "it still says nothing"
    world.nodes[2].broker.mute = False
    world.drop = lambda _sender, _to, _message: False
    pass_time(world, 4_000)
    assert len(world.told("broker_answers_again")) == 1


@pytest.mark.parametrize("broker_says", ["nothing of the copy", "nothing"])
def test_a_broker_that_only_says_nothing_of_a_failed_copy_answers(broker_says):
    world, _ = asked_and_deaf()
    epoch = world.nodes[2].broker.broker_epoch
    for number in range(30):
        if broker_says == "nothing of the copy" and number % 3 == 0:
            world.send(2, ("controller", 1), ReplicaStatesAnswer(2, epoch, 2**40, []))
        pass_time(world, 1_000)
    assert bool(world.told("broker_silent")) == (broker_says == "nothing")


def test_whoever_answers_something_else_is_not_silent_for_a_session_after_that():
    world, _ = asked_and_deaf()
    for number in range(3):
        world.create(f"u{number}", assignment={0: [2, 3]})
        pass_time(world, 6_000)
        assert world.told("broker_silent") == []
    pass_time(world, 6_000)
    assert [one["broker"] for one in world.told("broker_silent")] == [2]


@pytest.mark.parametrize("times", [1, 2])
def test_a_question_that_was_sent_at_one_time_says_nothing_of_whom_it_was_sent_to(times):
    """Time has jumped: nobody had the time to answer. With each question to somebody all that wait are sent again."""
    world, _ = asked_and_deaf()
    for _ in range(times - 1):
        world.leader._term.publisher.ask_replicas((), world.now_ms)
    world.now_ms += 60_000
    world.heartbeat(3)
    world.drop = lambda _sender, _to, _message: False
    world.advance(0)
    pass_time(world, 4_000)
    assert world.told("broker_silent") == []
    assert world.state().leader == 2


@pytest.mark.parametrize("seen", ["ended", "replaced", "both"])
def test_another_life_owes_nothing_that_an_earlier_one_was_asked(seen):
    world, topic = asked_and_deaf()
    world.advance(8_000)
    term = world.leader._term
    assert set(term.publisher.last_known.owed()) == {2}
    if seen == "replaced":  # whoever comes back at once is never seen to be gone
        term.publisher.note(Step(changes=(BrokerSet(term.cluster.brokers[2]),)), ())
        assert term.publisher.last_known.owed() == {}
        return
    world.kill(2)
    if seen == "both":
        world.start(2, loss=LossReport("power", (pid(topic),)), settle=True)
        pass_time(world, 6_000)
        assert world.told("broker_silent") == []
    else:
        before = len(world.sent)
        pass_time(world, 30_000)
        assert not [m for _, _, m in world.sent[before:] if isinstance(m, ReplicaStates)]
        assert term.publisher.last_known.owed() == {}


P0 = PartitionId(bytes(16), 0, 0)


@pytest.mark.parametrize(("answers", "owes"), [
    ((), True),
    (("heartbeat without progress",), True),
    (("heartbeat",), False),
    (("no room",), False),
    (("an error",), False),
])  # fmt: skip
def test_what_counts_as_an_answer(answers, owes):
    world = World(2)
    world.create(assignment={0: [2, 1]})
    broker = world.nodes[2].broker
    broker.mute = True
    topic = world.create("u", assignment={0: [2, 1]})
    world.advance(8_000)
    to, epoch = ("controller", 1), broker.controller_epoch
    number = [m.notice for _, to, m in world.sent if to == 2 and isinstance(m, LeaderAndIsr)][-1]
    for answer in answers:
        match answer:
            case "heartbeat without progress":
                world.send(2, to, Heartbeat(2, broker.broker_epoch, epoch, number - 1))
            case "heartbeat":
                world.send(2, to, Heartbeat(2, broker.broker_epoch, epoch, number))
            case "no room":
                errors = [(pid(topic), Code.LOG_DIRECTORY_FULL)]
                world.send(2, to, LeaderAndIsrAnswer(2, broker.broker_epoch, epoch, number, 0, errors))
            case "an error":
                world.send(2, to, LeaderAndIsrAnswer(2, broker.broker_epoch, epoch, number, 0, [(pid(topic), Code.STORAGE_ERROR)]))
        world.settle()
    world.advance(4_000)
    assert bool(world.told("broker_silent")) == owes


def test_notices_that_were_sent_once_say_nothing():
    boxes = Outboxes(1, 1, 3_000, lambda partition: None)
    boxes.register(2, 7)
    boxes.announce(2, [P0], (), 0)
    assert boxes.owing(50_000, 9_000, {}) == {}
    assert len(list(boxes.overdue(50_000))) == 1
    assert boxes.owing(50_000, 9_000, {}) == {2: True}


@pytest.mark.parametrize("last", [0, 1, 2])
def test_a_broker_that_got_on_for_a_while_is_fenced_a_session_after_its_last_answer(last):
    """Answers put off that anything is sent again; they do not put off what follows from silence any further than that."""
    boxes = Outboxes(1, 1, 3_000, lambda partition: None, beat_ms=2_000)
    boxes.register(2, 7)
    boxes.announce(2, [P0], (), 0)
    for _ in range(3):
        boxes.note(P0, [2])
        list(boxes.flush(0))
    box = boxes.get(2, 7)
    seen: dict[bool, int] = {}
    for now_ms in range(0, 30_000, 500):
        if now_ms in range(2_500, 2_500 * (last + 1) + 1, 2_500):
            box.answered(now_ms // 2_500 - 1, (), now_ms)
            box.heard(now_ms)
        list(boxes.overdue(now_ms))
        for is_silent in boxes.owing(now_ms, 9_000, {}).values():
            seen.setdefault(is_silent, now_ms)
    heard_ms = 2_500 * (last + 1)
    assert seen == {False: heard_ms + 3_000, True: heard_ms + 9_000}


def test_whoever_answers_again_leads_what_only_it_can():
    """Also a partition that was made meanwhile, which has no state yet."""
    world, _ = silent_leader()
    pass_time(world, 14_000)
    assert world.told("broker_silent")
    assert world.admin("create_topic", name="v", assignment={0: [2]}).error == Code.NONE
    world.nodes[2].broker.mute = False
    pass_time(world, 30_000)
    assert world.state(0, "v").leader == 2
