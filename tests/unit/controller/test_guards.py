"""Guards that only a particular order of events can tell from luck; each of these tests fails if its guard is removed."""

from __future__ import annotations

import re

import pytest
from attrs import evolve
from tests.unit.controller.harness import World, pid

from replog.config import BrokerConfig, TopicConfig
from replog.controller.changes import Broker, BrokerSet, RemovedSet, ReplicaBroken, StateSet, Topic, TopicSet
from replog.controller.cluster import Cluster
from replog.controller.controller import Controller
from replog.controller.decision import Ask, Decision, Step
from replog.controller.election import choose
from replog.controller.events import BrokerAcknowledged, IsrProposed, ReplicasLost, RoomChanged
from replog.controller.lastknown import LastKnown
from replog.controller.topics import strays
from replog.errors import Code, StoreFull, UsageError
from replog.messages import (
    AlterIsr,
    AlterIsrAnswer,
    AlterIsrEntry,
    ReplicaState,
    ReplicaStates,
    ReplicaStatesAnswer,
    StopReplica,
    StopReplicaAnswer,
    UpdateMetadata,
)
from replog.metadata import layout
from replog.model import Assignment, BrokerInfo, PartitionId, PartitionState
from replog.ports import Conflict, Create, Delete, LossReport, Put, UnknownOutcome

T = b"t" * 16
P = PartitionId(T, 0, 3)


def a_controller() -> Controller:
    """Brokers 1 and 2 at epochs 11 and 12, unfenced; topic t with one partition of creation 3 on both."""
    controller = Controller(controller_epoch=4, epoch_version=3, config=BrokerConfig())
    cluster = controller.cluster
    for broker_id in (1, 2):
        cluster.apply(BrokerSet(Broker(BrokerInfo(broker_id, 10 + broker_id))))
        cluster.brokers[broker_id] = Broker(BrokerInfo(broker_id, 10 + broker_id))
    cluster.apply(TopicSet(Topic("t", T, TopicConfig(min_isr=1), {0: Assignment((1, 2), creation=3)})))
    cluster.apply(StateSet(P, PartitionState(1, 0, (1, 2))))
    return controller


def judged(controller: Controller, *entries: AlterIsrEntry) -> list[int]:
    decision = controller.decide(IsrProposed("me", AlterIsr(1, 1, 11, list(entries))))
    for step in decision.steps:
        controller.apply(step)
    ((_, answer),) = decision.answers
    return [entry.error for entry in answer.entries]


@pytest.mark.parametrize(
    ("partition", "code"),
    [
        (PartitionId(b"?" * 16, 0, 3), Code.UNKNOWN_TOPIC_ID),
        (PartitionId(T, 1, 3), Code.UNKNOWN_TOPIC_OR_PARTITION),
        (PartitionId(T, 0, 2), Code.INCONSISTENT_TOPIC_ID),
        (P, Code.NONE),
    ],
)
def test_a_proposal_names_the_partition_by_id_number_and_creation(partition, code):
    assert judged(a_controller(), AlterIsrEntry(partition, 0, 0, [(1, 11)])) == [code]


GOOD, BAD = [(1, 11), (2, 12)], [(1, 11), (2, 11)]


def test_what_was_refused_is_refused_for_good_though_its_reason_is_gone():
    controller = a_controller()
    controller.apply(Step(changes=(StateSet(P, PartitionState(1, 0, (1,), partition_epoch=5)),)))
    first, second = (AlterIsrEntry(P, 0, 5, GOOD, proposal=n) for n in (7, 8))
    controller.cluster.brokers[2] = Broker(BrokerInfo(2, 12, draining=True))
    assert judged(controller, first) == [Code.INELIGIBLE_REPLICA]
    controller.cluster.brokers[2] = Broker(BrokerInfo(2, 12))
    earlier = evolve(first, proposal=6)  # given up even before: its leader wishes for one thing at a time
    assert judged(controller, first) == judged(controller, earlier) == [Code.INELIGIBLE_REPLICA]
    assert controller.cluster.states[P].isr == (1,)
    assert judged(controller, second) == [Code.NONE]
    assert controller.cluster.states[P].isr == (1, 2)


def test_a_refusal_is_about_one_state_of_one_partition():
    controller = a_controller()
    controller.apply(Step(changes=(StateSet(P, PartitionState(1, 0, (1,), partition_epoch=5)),)))
    assert judged(controller, AlterIsrEntry(P, 0, 5, BAD, proposal=7)) == [Code.INELIGIBLE_REPLICA]
    assert judged(controller, AlterIsrEntry(P, 0, 5, BAD, proposal=3)) == [Code.INELIGIBLE_REPLICA]
    assert judged(controller, AlterIsrEntry(P, 0, 5, GOOD, proposal=7)) == [Code.INELIGIBLE_REPLICA]  # 3 did not make it forget 7
    controller.apply(Step(changes=(StateSet(P, PartitionState(1, 0, (1,), partition_epoch=6)),)))
    assert judged(controller, AlterIsrEntry(P, 0, 5, GOOD, proposal=7)) == [Code.INVALID_UPDATE_VERSION]
    assert judged(controller, AlterIsrEntry(P, 0, 6, GOOD, proposal=7)) == [Code.NONE]


def test_a_proposal_that_was_stored_is_answered_as_such_when_it_comes_again():
    controller = a_controller()
    entry = AlterIsrEntry(P, 0, 0, [(1, 11)], proposal=7)
    assert judged(controller, entry) == [Code.NONE]
    assert judged(controller, entry) == [Code.INVALID_UPDATE_VERSION]  # with the state that it made


@pytest.mark.parametrize("wrong", [-1, 1])
def test_a_proposal_for_another_controller_is_left_undecided(wrong):
    world = World(3)
    topic = world.create(min_isr=1)
    epoch = world.nodes[1].controller.controller_epoch
    assert world.propose(1, pid(topic), [1, 2], controller_epoch=epoch + wrong).error == Code.NOT_CONTROLLER
    assert world.state().isr == (1, 2, 3)
    assert world.nodes[1].controller.is_controller
    assert world.propose(1, pid(topic), [1, 2]).error == Code.NONE


def test_a_proposal_for_a_later_controller_makes_this_one_look_whether_it_still_is():
    world = World(3)
    topic = world.create(min_isr=1)
    world.drop_watches = True
    world.store.commit([Delete(layout.CONTROLLER)])
    world.settle()
    assert world.nodes[1].controller.is_controller  # it has not noticed
    assert world.propose(1, pid(topic), [1, 2], controller_epoch=9).error == Code.NOT_CONTROLLER
    world.settle()
    assert [event.name for event in world.events].count("controller_resigned") == 1


def test_two_wishes_for_one_partition_in_one_request():
    entries = [AlterIsrEntry(P, 0, 0, [(1, 11)]), AlterIsrEntry(P, 0, 0, [(1, 11)])]
    assert judged(a_controller(), *entries) == [Code.NONE, Code.INVALID_REQUEST]


def test_what_an_earlier_life_of_a_broker_said_decides_nothing():
    controller = a_controller()
    controller.cluster.brokers[2] = Broker(BrokerInfo(2, 12, fenced=True))
    assert controller.decide(BrokerAcknowledged(2, 11)) == Decision()
    assert controller.decide(BrokerAcknowledged(2, 12)).steps != ()
    assert controller.decide(ReplicasLost(2, 11, "disk")) == Decision()
    assert controller.decide(ReplicasLost(3, 11, "disk")) == Decision()


class Listed(tuple):
    """What is asked for each partition: nobody may go through it each time."""

    __slots__ = ()

    def __contains__(self, item: object) -> bool:
        raise AssertionError("it may be a hundred thousand copies")


def test_a_copy_is_looked_up_among_those_that_are_lossy():
    cluster = a_controller().cluster
    many = Listed(PartitionId(T, number, 3) for number in range(1_000))
    cluster.brokers[2] = Broker(BrokerInfo(2, 13, fenced=True), LossReport("power", lossy=many))
    assert cluster.lossy(P) == [2]
    assert cluster.lossy(PartitionId(T, 0, 4)) == []


def test_a_disk_that_failed_in_an_earlier_life_works_again():
    cluster = a_controller().cluster
    cluster.apply(ReplicaBroken(P, 2, 12))
    assert (list(cluster.live(P)), cluster.lossy(P)) == ([1], [2])
    cluster.brokers[2] = Broker(BrokerInfo(2, 13))
    assert (list(cluster.live(P)), cluster.lossy(P)) == ([1, 2], [])


def test_strays_are_judged_by_what_is_assigned_now():
    cluster = a_controller().cluster
    gone, unknown = PartitionId(b"g" * 16, 0, 0), PartitionId(b"u" * 16, 0, 0)
    earlier = PartitionId(T, 0, 2)
    cluster.apply(RemovedSet(b"g" * 16, (2,), 0))
    stops, topics, told = strays(cluster, 2, [P, earlier, gone, unknown])
    assert [(b, e.partition, e.delete) for b, e in stops] == [(2, earlier, True), (2, gone, True)]
    assert topics == {T, b"g" * 16}
    assert [t.name for t in told] == ["stray_kept"]
    stops, _, told = strays(cluster, 1, [gone])  # the list of remaining copies does not name broker 1
    assert (stops, len(told)) == ((), 1)


def test_only_the_asked_may_answer():
    questions = LastKnown(0)
    questions.begin([Ask(P, 5, (1, 2))])
    assert [m[0] for m in questions.messages(0, 3_000)] == [1, 2]
    assert questions.answered(ReplicaStatesAnswer(3, 13, 1, [ReplicaState(P, 9, 9)])) == []
    assert questions.answered(ReplicaStatesAnswer(2, 12, 1, [ReplicaState(P, 1, 2)])) == []
    assert [m[0] for m in questions.messages(0, 3_000)] == [1]
    (event,) = questions.answered(ReplicaStatesAnswer(1, 11, 1, [ReplicaState(P, 3, 4)]))
    assert event.answers == ((1, 3, 4), (2, 1, 2))
    assert questions.answered(ReplicaStatesAnswer(1, 11, 1, [ReplicaState(P, 3, 4)])) == []


def test_an_answer_to_an_earlier_question_is_none_to_this_one():
    """Of an earlier term of this broker's controller, or from before the partition was led again."""
    before, now = LastKnown(1), LastKnown(2)
    questions = [before, now, now]
    asked = []
    for each in questions:
        each.drop(P)
        each.begin([Ask(P, 5, (1,))])
        assert each.answered(ReplicaStatesAnswer(1, 11, 2**62, [ReplicaState(P, 1, 2)])) == []  # nobody has been asked yet
        asked += [request for _, request, _ in each.messages(0, 3_000)]
    assert asked == sorted(set(asked))
    for request in asked[:2]:
        assert now.answered(ReplicaStatesAnswer(1, 11, request, [ReplicaState(P, 1, 2)])) == []
    again = [request for _, request, _ in now.messages(0, 3_000)]
    assert again > asked[2:]
    (event,) = now.answered(ReplicaStatesAnswer(1, 11, asked[2], [ReplicaState(P, 3, 4)]))  # late, but to this question
    assert event.answers == ((1, 3, 4),)


def test_a_last_known_set_is_never_asked_while_somebody_is_eligible():
    state = PartitionState(None, 5, (), (1,), (2,))
    assert choose(state, replicas=(1, 2), min_isr=2, live=(2,)).ask == ()


def test_the_index_follows_topics_that_come_and_go():
    cluster = a_controller().cluster
    again = Topic("t", b"n" * 16, TopicConfig(min_isr=1), {0: Assignment((2,)), 1: Assignment((2,))})
    cluster.apply(TopicSet(again))
    assert (cluster.on_broker(1), len(cluster.on_broker(2)), cluster.partitions_total) == ([], 2, 2)
    assert (list(cluster.topics), cluster.states) == ([b"n" * 16], {})


def test_an_empty_cluster_has_nothing_to_say():
    cluster = Cluster()
    assert (cluster.live(P), cluster.replicas(P), cluster.on_broker(1), cluster.is_broken(P, 1)) == ({}, (), [], False)


# ---- orders of events


def test_an_epoch_that_moved_under_a_campaign_is_not_overwritten():
    world = World(1)
    world.kill(1)
    moved = []

    def move(address, call):
        if address[0] == "controller" and call.verb == "commit" and not moved:
            moved.append(call)
            stored = world.store.read(layout.CONTROLLER_EPOCH)
            world.store.commit([Put(layout.CONTROLLER_EPOCH, layout.encode_controller_epoch(9), stored.version)])

    world.before_store = move
    world.start(1, settle=True)
    world.advance(40_000)
    assert world.leader.controller_epoch == 10


def test_a_state_that_somebody_else_changed_is_read_again_and_decided_again():
    world = World(3)
    world.create(assignment={0: [2, 3, 1]})
    path = layout.partition_state_path("t", 0)
    changed = evolve(world.state(), isr=(2, 1))
    world.store.commit([Put(path, layout.encode_partition_state(changed), 0)])
    world.kill(2)
    state = world.state()
    assert (state.leader, state.leader_epoch, state.isr, state.elr, state.partition_epoch) == (1, 1, (1,), (2,), 2)


@pytest.mark.parametrize(
    ("refusal", "says"),
    [
        (StoreFull("no space"), r"^the metadata store's disk is full: create_topic was not done \(no space\)$"),
        (UsageError("too large"), "^the metadata store refused create_topic, which was not done: too large$"),
        (Conflict("/brokers/topics/t"), "^the store kept changing under create_topic; try again$"),
        (UnknownOutcome("gone"), "^the store failed under create_topic, which may have been done: gone$"),
    ],
)
def test_a_wish_that_is_given_up_says_what_the_store_said_last(monkeypatch, refusal, says):
    world = World(3)
    session = type(world.nodes[1].session)
    monkeypatch.setattr(session, "commit_each", lambda self, batches: [refusal] * len(batches))
    answer = world.admin("create_topic", name="t")
    assert answer.error == Code.UNKNOWN_SERVER_ERROR
    assert re.search(says, answer.message), answer.message
    (told,) = [event for event in world.events if event.name == "decision_given_up"]
    assert told.fields["event"] == "AdminAsked"


def test_a_store_that_fails_a_whole_call_for_what_it_does_not_take_holds_nobody_up(monkeypatch):
    world = World(3)
    session = type(world.nodes[1].session)
    stored = session.commit_each

    def commit_each(self, batches):
        if any(op.path == layout.topic_path("t") for ops in batches for op in ops):
            raise UsageError("too large")
        return stored(self, batches)

    monkeypatch.setattr(session, "commit_each", commit_each)
    answer = world.admin("create_topic", name="t")
    assert (answer.error, "was not done: too large" in answer.message) == (Code.UNKNOWN_SERVER_ERROR, True)
    assert world.admin("create_topic", name="u").error == Code.NONE
    monkeypatch.undo()
    world.create("t")


def test_a_leader_that_knows_more_makes_the_controller_look_again():
    """P-66: the proposal is from the future: the controller is not trusted, by itself least of all."""
    world = World(3)
    topic = world.create()
    path = layout.partition_state_path("t", 0)
    changed = evolve(world.state(), isr=(1, 2))
    world.store.commit([Put(path, layout.encode_partition_state(changed), 0)])
    reads = world.calls["read_each"]
    assert world.propose(1, pid(topic), [1], partition_epoch=1).error == Code.NOT_CONTROLLER
    assert world.calls["read_each"] == reads + 2  # the seat with its epoch, and the state
    assert world.propose(1, pid(topic), [1], partition_epoch=1).error == Code.NONE
    assert world.state().partition_epoch == 2


def test_a_proposal_from_a_life_that_is_not_known_yet_makes_the_controller_look_first():
    world = World(3)
    topic = world.create(assignment={0: [2]})
    world.drop_watches = True
    world.bounce(2)
    epoch = world.nodes[2].membership.broker_epoch
    world.send(2, ("controller", 1), AlterIsr(1, 2, epoch, [AlterIsrEntry(pid(topic), 0, 0, [(2, epoch)])], 1))
    world.settle()
    (answer,) = [a for a in world.nodes[2].broker.answers if isinstance(a, AlterIsrAnswer)]
    assert (answer.error, answer.entries[0].error) == (Code.NONE, Code.INELIGIBLE_REPLICA)
    assert world.state().leader == 2
    assert world.state().leader_epoch == 2


def test_a_replica_that_was_eligible_and_comes_back_lossy_is_eligible_no_more():
    world = World(4)
    topic = world.create(assignment={0: [2, 3, 4]})
    world.kill(2)
    world.kill(3)
    assert world.state().elr == (3,)
    world.start(3, loss=LossReport("power", lossy=(pid(topic),)), settle=True)
    assert (world.state().isr, world.state().elr, world.state().last_known) == ((4,), (), (3, 4))
    world.kill(4)
    assert world.state().leader is None


def test_an_answer_about_a_log_that_has_since_lost_more_counts_no_more():
    world = World(3)
    topic = world.create(assignment={0: [2, 3]}, config={"min_isr": 2})
    lossy = LossReport("power", lossy=(pid(topic),))
    for node in (2, 3):
        world.kill(node)
    world.disks[2][pid(topic)], world.disks[3][pid(topic)] = (1, 7), (1, 12)
    world.drop = lambda sender, to, message: isinstance(message, ReplicaStates) and to == 2
    for node in (2, 3):
        world.start(node, loss=lossy, settle=True)
    world.disks[3][pid(topic)] = (1, 3)
    world.bounce(3, lossy)
    world.send(3, ("controller", 1), ReplicaStatesAnswer(3, 1, 1, [ReplicaState(pid(topic), 1, 99)]))  # a late one
    world.settle()
    world.drop = lambda sender, to, message: False
    world.advance(3_100)
    assert world.state().leader == 2
    assert world.told("records_may_be_lost")[0]["candidates"] == ((2, 1, 7), (3, 1, 3))


def test_a_copy_that_could_not_be_stopped_is_asked_for_again():
    world = World(3)
    topic = world.create()
    failed = []

    def fail(sender, to, message):
        if isinstance(message, StopReplicaAnswer) and sender == 3 and not failed:
            failed.append(message)
            message.errors.append((pid(topic), Code.STORAGE_ERROR))
        return False

    world.drop = fail
    world.admin("delete_topic", name="t")
    assert layout.decode_removed("", world.store.read(layout.removed_path(topic)).value) == (3,)
    world.advance(3_100)
    assert world.store.read(layout.removed_path(topic)) is None
    assert len([1 for _, to, m in world.sent if isinstance(m, StopReplica) and to == 3]) == 2


def test_a_topic_that_is_being_deleted_gets_no_states_back():
    world = World(4, slice_partitions_max=2)
    world.create(partitions=7, replication_factor=3)
    world.commits.clear()
    deletes = []

    def die(address, call):
        if address == ("controller", 1) and call.verb == "commit_each":
            deletes.append(call)
            if len(deletes) == 3:
                world.kill(1, settle=False)

    world.after_store = die
    world.admin("delete_topic", name="t")
    assert world.store.list(layout.TOPICS) == []
    made = [op for ops in world.commits for op in ops if isinstance(op, Create) and op.path.startswith(layout.TOPICS)]
    assert made == []


def test_urgent_events_pass_everything_that_can_wait():
    world = World(3)
    topic = world.create("first")
    world.commits.clear()
    for n in range(20):
        world.admin("create_topic", name=f"t{n}", settle=False)
    world.propose(1, pid(topic), [1, 2])
    (at,) = [i for i, ops in enumerate(world.commits) if any(isinstance(op, Put) for op in ops)]
    assert at <= 1  # behind the creation that was under way, before the nineteen that were asked for earlier
    assert len(world.commits) == 21


def test_a_stream_of_proposals_does_not_hold_up_a_failover():
    """Nor the other way round: they take turns, a slice and a proposal at a time."""
    world = World(4, slice_partitions_max=2)
    topic = world.create("first", assignment={p: [1, 2, 3] for p in range(60)})
    world.create(partitions=10, replication_factor=3)
    waiting = list(range(60))
    failed_over = []

    def more(sender, to, message):
        if isinstance(message, AlterIsrAnswer):
            if not failed_over and all(4 not in world.state(p).isr for p in range(10)):
                failed_over.append(len(waiting))
            if waiting:  # there are always some more
                world.propose(1, pid(topic, waiting.pop()), [1, 2], settle=False)
        return False

    world.drop = more
    for _ in range(3):
        world.propose(1, pid(topic, waiting.pop()), [1, 2], settle=False)
    world.kill(4)
    assert waiting == []
    assert failed_over
    assert failed_over[0] > 30


def test_a_question_ends_as_soon_as_one_of_the_asked_comes_back_as_another():
    """What it said in its earlier life would otherwise be counted with what the others say now."""
    world = World(3)
    topic = world.create(assignment={0: [2, 3]}, config={"min_isr": 2})
    lossy = LossReport("power", lossy=(pid(topic),))
    for node in (2, 3):
        world.kill(node)
    world.drop = lambda sender, to, message: isinstance(message, ReplicaStates) and to == 2
    for node in (2, 3):
        world.start(node, loss=lossy, settle=True)
    assert world.leader.questions == 1
    node = world.start(3, loss=lossy)
    node.broker.mute = True
    world.settle()
    assert world.leader.questions == 0
    assert world.state().leader is None


def test_every_delta_has_a_number_of_its_own():
    world = World(3)
    for n in range(3):
        world.create(f"t{n}")
    views = [m.view for m in world.nodes[3].broker.received if isinstance(m, UpdateMetadata) and m.view.since >= 0]
    assert len({v.version for v in views}) == len(views) >= 3


def test_watches_of_an_ended_session_are_armed_again():
    world = World(2)
    world.session(2, "lost")
    world.nodes[2].session.expire()
    world.nodes[2].session = world.store.session()
    world.session(2, "connected")
    world.settle()
    assert world.controller_id == 1
    world.kill(1)
    assert world.controller_id == 2


def test_a_candidate_whose_watch_was_lost_arms_another():
    world = World(3)
    world.drop_watches = True
    world.kill(1)
    world.advance(world.config.reconcile_ms + 1_000)
    (third,) = [n for n in world.nodes.values() if not n.controller.is_controller]
    world.advance(world.config.reconcile_ms + 1_000)
    world.drop_watches = False
    world.kill(world.controller_id)
    assert world.controller_id == third.id


def test_room_is_news_only_where_it_changes_and_where_a_topic_is():
    controller = a_controller()
    gone = PartitionId(b"?" * 16, 0, 0)

    def decided(partition, has_room, epoch=12):
        decision = controller.decide(RoomChanged(2, epoch, ((partition, has_room),)))
        for step in decision.steps:
            controller.apply(step)
        return len(decision.steps)

    assert [decided(P, True), decided(P, False, 11), decided(gone, False)] == [0, 0, 0]
    assert [decided(P, False), decided(P, False)] == [1, 0]
    assert list(controller.cluster.live(P)) == [1]
    assert controller.cluster.lossy(P) == []
    assert list(controller.cluster.due) == [P]
    assert [decided(P, True), decided(P, True)] == [1, 0]
    assert list(controller.cluster.live(P)) == [1, 2]
