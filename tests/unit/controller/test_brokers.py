"""Brokers die, come back, lose data, bounce: P-28, P-40, P-41, P-44, P-45, P-47, P-68, P-71, P-73."""

from __future__ import annotations

from itertools import pairwise

import attrs
import pytest
from tests.unit.controller.harness import World, pid

from replog.controller.changes import BrokerGone, StateSet, TopicSet
from replog.controller.events import LastKnownAnswered
from replog.errors import Code
from replog.messages import (
    LeaderAndIsr,
    LeaderAndIsrAnswer,
    ReplicasFailed,
    ReplicaStates,
    ReplicaStatesAnswer,
    StopReplica,
    UpdateMetadata,
)
from replog.metadata import judgements
from replog.model import PartitionId
from replog.ports import LossReport


def facts(world: World, partition: int = 0):
    state = world.state(partition)
    return state.leader, state.leader_epoch, state.isr, state.elr, state.last_known


def power(topic: bytes, *partitions: int) -> LossReport:
    return LossReport("power", lossy=tuple(pid(topic, p) for p in partitions))


# ---- death and return


def test_a_dead_leader_is_replaced_and_a_dead_follower_costs_no_epoch():
    world = World(4)
    world.create(assignment={0: [2, 3, 4], 1: [3, 2, 4], 2: [3, 4, 1]})
    world.kill(2)
    assert facts(world, 0) == (3, 1, (3, 4), (), ())
    assert facts(world, 1) == (3, 0, (3, 4), (), ())
    assert facts(world, 2) == (3, 0, (3, 4, 1), (), ())


def test_a_death_costs_only_its_own_partitions():
    world = World(4)
    world.create(assignment={p: [1 + p % 2, 3] for p in range(40)} | {p: [4, 3] for p in range(40, 44)}, config={"min_isr": 1})
    world.commits.clear()
    world.kill(4)
    writes = [op for ops in world.commits for op in ops[1:]]
    assert len(writes) == 4


def test_what_is_told_was_stored_first_and_only_the_replicas_hear_it():
    world = World(4)
    world.create(assignment={0: [2, 3]}, config={"min_isr": 1})
    for node in world.nodes.values():
        node.broker.received.clear()
    world.kill(2)
    heard = {n: [m for m in world.nodes[n].broker.received if isinstance(m, LeaderAndIsr)] for n in (1, 3, 4)}
    assert [len(heard[n]) for n in (1, 3, 4)] == [0, 1, 0]
    (entry,) = heard[3][0].entries
    assert entry.state == world.state()
    assert (entry.topic, entry.config.min_isr, heard[3][0].complete) == ("t", 1, False)


def test_a_returning_follower_is_let_in_and_stays_out_of_the_isr_until_its_leader_asks():
    world = World(3)
    topic = world.create()
    world.kill(3)
    world.start(3, settle=True)
    assert facts(world) == (1, 0, (1, 2), (), ())
    assert world.nodes[3].broker.states[pid(topic)].state == world.state()
    assert world.propose(1, pid(topic), [1, 2, 3]).error == Code.NONE
    assert facts(world) == (1, 0, (1, 2, 3), (), ())


def test_nobody_left_keeps_who_was_complete_and_the_first_to_return_leads():
    """P-45: unclean off; comes back by itself when a candidate returns."""
    world = World(4)
    world.create(assignment={0: [2, 3, 4]})
    for node in (2, 3):
        world.kill(node)
    assert facts(world) == (4, 2, (4,), (3,), (3, 4))
    world.kill(4)
    assert facts(world) == (None, 3, (), (3, 4), (3, 4))
    world.start(2, settle=True)
    assert facts(world)[0] is None
    world.start(3, settle=True)
    assert facts(world) == (3, 4, (3,), (4,), (3, 4))


def test_a_flapping_broker_costs_one_change_a_flap():
    """P-73: no churn beyond the flaps themselves."""
    world = World(3)
    world.create(assignment={0: [1, 2]}, config={"min_isr": 1})
    for _ in range(20):
        world.kill(2)
        world.start(2, settle=True)
    assert world.state().partition_epoch == 1
    assert world.state().leader_epoch == 0


# ---- incarnations


def test_a_bounce_inside_the_session_timeout_costs_leadership_before_anything_else():
    """P-44: lossy, back before anybody noticed. Out of every ISR, another leads, and only then is it let in."""
    world = World(3)
    topic = world.create(assignment={0: [3, 2, 1]})
    before = world.nodes[3].membership.broker_epoch
    node = world.bounce(3, power(topic, 0))
    assert node.membership.broker_epoch > before
    assert facts(world, 0) == (2, 1, (2, 1), (), ())
    complete = next(m for m in node.broker.received if isinstance(m, LeaderAndIsr))
    assert complete.complete
    assert complete.broker_epoch == node.membership.broker_epoch
    assert next(e for e in complete.entries if e.partition == pid(topic, 0)).state.leader == 2


def test_a_restart_always_costs_a_leader_epoch():
    """Of the only replica too: nothing was lost, so it leads again, at a higher epoch."""
    world = World(3)
    topic = world.create(assignment={0: [3]})
    node = world.bounce(3)
    assert facts(world) == (3, 2, (3,), (), ())
    assert [m.entries[0].state.leader for m in node.broker.received if isinstance(m, LeaderAndIsr)] == [None, 3]
    assert node.broker.states[pid(topic)].state.leader_epoch == 2


def test_a_fenced_broker_leads_nothing_and_joins_nothing_until_it_has_acknowledged():
    """P-27, KIP-841."""
    world = World(4)
    topic = world.create(assignment={0: [3, 4]}, config={"min_isr": 1})
    world.create("alone", assignment={0: [4]})
    world.kill(4)
    node = world.start(4)
    node.broker.mute = True
    world.settle()
    assert world.state(0, "alone").leader is None
    node.broker.broker_epoch = node.membership.broker_epoch
    assert world.propose(3, pid(topic), [3, 4]).error == Code.INELIGIBLE_REPLICA
    node.broker.mute = False
    world.advance(4_000)  # the complete notice is sent again
    assert world.state(0, "alone").leader == 4
    assert world.propose(3, pid(topic), [3, 4]).error == Code.NONE


def test_a_proposal_built_from_a_fetch_of_an_earlier_life_is_refused():
    """P-28: 3 went away and came back empty; the leader's wish names its earlier life."""
    world = World(3)
    topic = world.create()
    old = world.nodes[3].membership.broker_epoch
    world.kill(3)
    world.start(3, loss=LossReport("replaced"), settle=True)
    assert world.propose(1, pid(topic), [1, 2, 3], lives={3: old}).error == Code.INELIGIBLE_REPLICA
    assert world.propose(1, pid(topic), [1, 2, 3]).error == Code.NONE


def test_a_proposal_of_an_earlier_life_of_the_leader_is_refused():
    world = World(3)
    topic = world.create()
    answer = world.propose(1, pid(topic), [1, 2], broker_epoch=world.nodes[1].membership.broker_epoch - 1)
    assert answer.error == Code.STALE_BROKER_EPOCH
    assert facts(world)[2] == (1, 2, 3)


def test_a_lost_session_of_a_living_process_loses_nothing():
    """Its loss report was dealt with when that incarnation was let in."""
    world = World(3)
    topic = world.create(assignment={0: [3]})
    world.kill(3)
    node = world.start(3, loss=power(topic, 0), settle=True)
    assert len(world.told("records_may_be_lost")) == 1
    node.session.expire()
    world.session(3, "lost")
    node.session = world.store.session()
    world.session(3, "connected")
    world.settle()
    assert world.state().leader == 3
    assert len(world.told("records_may_be_lost")) == 1


@pytest.mark.parametrize(
    ("loss", "directory", "lossy"),
    [
        (LossReport("none"), None, False),
        (LossReport("process"), None, False),
        (LossReport("power"), None, False),
        (LossReport("none", lives=("another",)), None, True),
        (LossReport("process", lives=("another",)), None, True),
        (LossReport("corrupt", lossy=(pid(b"o" * 16),), lives=("another",)), None, True),
        (LossReport("corrupt", lossy=(pid(b"o" * 16),)), None, False),
        (LossReport("replaced"), None, True),
        (LossReport("replaced", lives=("3.3",)), None, True),
        (LossReport("none"), "f" * 32, True),
    ],
    ids=[
        "clean",
        "killed",
        "power, nothing lost",
        "a clean stop of another life",
        "another life was killed",
        "the same, and another log is damaged",
        "the life that was let in, and another log is damaged",
        "replaced",
        "too many copies to be named",
        "another directory",
    ],
)
def test_what_counts_as_loss(loss, directory, lossy):
    world = World(3)
    world.create(assignment={0: [3]})
    world.kill(3)
    world.start(3, loss=loss, directory=directory, settle=True)
    assert world.state().leader == 3
    assert len(world.told("records_may_be_lost")) == lossy


@pytest.mark.parametrize("kind", ["none", "process", "power"])
@pytest.mark.parametrize("is_known", [True, False])
def test_a_later_life_has_lost_nothing_if_the_directory_knows_the_one_that_was_let_in(kind, is_known):
    """The controller that told it everything was gone before it could store that it was let in."""
    world = World(3)
    world.create(assignment={0: [3]})
    (admitted,) = world.incarnations[3]
    world.kill(3)
    world.start(3, loss=LossReport(kind, lives=("later", admitted if is_known else "earlier")), settle=True)
    assert world.state().leader == 3
    assert len(world.told("records_may_be_lost")) == (not is_known)


@pytest.mark.parametrize(
    ("lives", "since", "lossy"),
    [
        (("later", "admitted"), "", True),  # nobody has reported it before
        (("later", "admitted"), "later", True),  # nobody came to let in who did
        (("admitted", "earlier"), "admitted", False),  # who did was let in
        (("admitted", "earlier"), "earlier", False),  # or one after it
        (("later", "admitted"), "forgotten", True),
    ],
)
@pytest.mark.parametrize("is_named", [True, False])
def test_a_loss_counts_until_a_life_that_has_reported_it_was_let_in(lives, since, lossy, is_named):
    world = World(3)
    topic = world.create(assignment={0: [3]})
    (admitted,) = world.incarnations[3]
    names = {"admitted": admitted}
    named = (pid(topic, 0),) if is_named else ()
    world.kill(3)
    loss = LossReport("power" if is_named else "replaced", named, tuple(names.get(n, n) for n in lives), names.get(since, since))
    world.start(3, loss=loss, settle=True)
    assert world.state().leader == 3
    assert len(world.told("records_may_be_lost")) == lossy


def test_a_directory_that_names_no_life_has_lost_everything():
    """It is what it was before the first: an image of an empty one."""
    world = World(3)
    world.create(assignment={0: [3]})
    world.incarnations[3].clear()
    world.kill(3)
    world.start(3, settle=True)
    assert world.state().leader == 3
    assert len(world.told("records_may_be_lost")) == 1


# ---- last replicas


def test_the_last_replica_standing_loses_its_tail():
    """P-40: min_isr 2; 2 leaves, 3 leaves, 4 loses power and its tail: 3, which left last, leads; nothing is lost."""
    world = World(4)
    topic = world.create(assignment={0: [2, 3, 4]})
    world.kill(2)
    world.kill(3)
    assert facts(world) == (4, 2, (4,), (3,), (3, 4))
    world.kill(4)
    world.start(4, loss=power(topic, 0), settle=True)
    assert facts(world) == (None, 3, (), (3,), (3, 4))
    world.start(2, settle=True)
    assert facts(world)[0] is None
    world.start(3, settle=True)
    assert facts(world) == (3, 4, (3,), (), (3, 4))
    assert world.told("records_may_be_lost") == []


def test_a_power_cut_of_everything_asks_everyone_who_was_complete():
    """P-41: ISR [] ELR [] last known [3, 4]; both are asked, the larger (epoch, end) leads, and what may be lost is recorded."""
    world = World(4)
    topic = world.create(assignment={0: [2, 3, 4]})
    for node in (2, 3, 4):
        world.kill(node)
    world.disks[3][pid(topic)] = (1, 10)
    world.disks[4][pid(topic)] = (1, 12)
    world.start(2, loss=power(topic, 0), settle=True)
    world.start(3, loss=power(topic, 0), settle=True)
    assert facts(world)[:1] == (None,)
    asked = [m for _, _, m in world.sent if isinstance(m, ReplicaStates)]
    assert asked == []
    world.start(4, loss=power(topic, 0), settle=True)
    state = world.state()
    assert (state.leader, state.isr, state.elr, state.last_known, state.recovering) == (4, (4,), (), (3, 4), True)
    path = judgements.loss_path(topic, 0)
    record = judgements.decode_loss(path, world.store.read(path).value)
    assert (record.kind, record.leader, record.leader_epoch, record.topic) == ("last_known", 4, state.leader_epoch, "t")
    assert record.candidates == (judgements.Candidate(2, -1, 0), judgements.Candidate(3, 1, 10), judgements.Candidate(4, 1, 12))
    assert world.propose(4, pid(topic), [3, 4], recovering=True).error == Code.INVALID_REQUEST
    assert world.propose(4, pid(topic), [4], recovering=False).error == Code.NONE
    assert world.propose(4, pid(topic), [3, 4]).error == Code.NONE


@pytest.mark.parametrize("anew", [LossReport(), LossReport("replaced"), "corrupt"], ids=["empty folder", "memory", "damage"])
def test_who_was_never_complete_is_waited_for_and_may_lead_once_the_only_complete_log_is_lost(anew):
    """X-16: others may hold more, and would be cut by an empty leader: nobody is elected before all have been asked."""
    world = World(4)
    topic = world.create(assignment={0: [2, 3, 4]}, config={"min_isr": 1})
    assert world.propose(2, pid(topic), [2]).error == Code.NONE
    world.disks[3][pid(topic)], world.disks[4][pid(topic)] = (0, 8), (0, 9)
    for node in (2, 3, 4):
        world.kill(node)
    world.disks[2][pid(topic)] = (0, 5) if anew == "corrupt" else (-1, 0)
    loss = LossReport("corrupt", (pid(topic),)) if anew == "corrupt" else anew
    if loss.kind == "none":
        world.incarnations[2].clear()  # the folder goes on from no life
    world.start(2, loss=loss, directory=None if anew == "corrupt" else "f" * 32, settle=True)
    world.start(3, settle=True)
    assert facts(world)[0] is None
    sentences = world.admin("explain", name="t", partition=0).result["sentences"]
    assert [one for one in sentences if "anew" in one or "Start" in one] == [
        "Of them broker 2 began anew, in an empty folder or cut at damage: brokers 3 and 4 may hold more now, so it waits for all.",
        "Start broker 4.",
    ]
    world.start(4, settle=True)
    assert (world.state().leader, world.state().isr, world.state().recovering) == (4, (4,), True)
    assert world.told("records_may_be_lost")[0]["candidates"] == ((2, *world.disks[2][pid(topic)]), (3, 0, 8), (4, 0, 9))


@pytest.mark.parametrize("how", ["ends", "ended", "is silent"])
def test_who_is_asked_although_nobody_waits_for_it_holds_up_nothing(how):
    world = World(4)
    topic = world.create(assignment={0: [2, 3, 4]})
    for node in (2, 3, 4):
        world.kill(node)
    world.disks[3][pid(topic)], world.disks[4][pid(topic)] = (1, 10), (1, 12)
    world.drop = lambda sender, _to, message: sender == 2 and isinstance(message, ReplicaStatesAnswer)
    for node in (2, 3, 4):
        world.start(node, loss=power(topic, 0), settle=True)
    assert (facts(world)[0], facts(world)[4], world.leader.questions) == (None, (3, 4), 1)
    if how == "ends":
        world.kill(2)
    elif how == "ended":  # it has answered, and the controller has heard since that it has gone
        late = LastKnownAnswered(pid(topic), world.state().leader_epoch, ((2, 9, 99), (3, 1, 10), (4, 1, 12)), (2, 3, 4))
        world.kill(2, settle=False)
        controller = world.leader._term.controller
        controller.cluster.apply(BrokerGone(2))
        (after,) = [c.state for step in controller.decide(late).steps for c in step.changes if isinstance(c, StateSet)]
        assert after.leader == 4
        return
    else:
        world.advance(world.config.ack_timeout_ms + 100)  # it lives, and hears nothing
    assert facts(world)[0] == 4
    assert world.leader.questions == 0


def test_a_person_decides_where_one_that_is_waited_for_does_not_come_back():
    world = World(3)
    topic = world.create(assignment={0: [2, 3]}, config={"min_isr": 1})
    assert world.propose(2, pid(topic), [2]).error == Code.NONE
    for node in (2, 3):
        world.kill(node)
    world.start(2, loss=LossReport("replaced"), settle=True)
    assert facts(world)[0] is None
    assert world.admin("elect", partitions=[["t", 0]], unclean=True).result["partitions"] == [["t", 0, 0, ""]]
    assert facts(world)[0] == 2
    assert world.told("records_may_be_lost")[0]["missing"] == (3,)


@pytest.mark.parametrize("comes", [True, False])
def test_who_comes_or_goes_while_others_are_asked_counts(comes):
    """The answers of before are not enough, or no longer all that is waited for."""
    world = World(4)
    topic = world.create(assignment={0: [2, 3]}, config={"min_isr": 1})
    assert world.propose(2, pid(topic), [2]).error == Code.NONE
    world.disks[3][pid(topic)] = (0, 9)
    for node in (2, 3):
        world.kill(node)
    world.drop = lambda _sender, _to, message: isinstance(message, ReplicaStates)
    loss = power(topic, 0) if comes else LossReport("replaced")
    if not comes:
        world.start(3, settle=True)
    world.start(2, loss=loss, settle=True)
    assert world.leader.questions == 1
    answers = ((2, -1, 0),) if comes else ((2, -1, 0), (3, 0, 9))
    old = LastKnownAnswered(pid(topic), world.state().leader_epoch, answers, tuple(broker for broker, _, _ in answers))
    if comes:
        world.start(3, settle=True)
    else:
        world.kill(3)
    assert world.leader._term.controller.decide(old).steps == ()
    world.drop = lambda _sender, _to, _message: False
    if not comes:
        world.advance(4_000)
        assert facts(world)[0] is None
        world.start(3, settle=True)
    world.advance(4_000)
    assert facts(world)[0] == 3


def test_questions_to_a_last_known_set_are_repeated_until_answered():
    world = World(3)
    topic = world.create(assignment={0: [3]})
    world.kill(3)
    world.drop = lambda sender, to, message: isinstance(message, ReplicaStates)
    world.start(3, loss=LossReport("replaced"), settle=True)
    assert facts(world)[0] is None
    world.drop = lambda sender, to, message: False
    world.advance(3_100)
    assert facts(world)[0] == 3
    assert world.told("records_may_be_lost")[0]["candidates"] == ((3, -1, 0),)
    assert topic


@pytest.mark.parametrize("then", ["reports the failure", "restarts", "goes away"])
def test_a_question_of_which_somebody_says_nothing_is_asked_again_at_leisure_until_its_copy_is_known_to_have_failed(then):
    """X-13: a broker does not answer for a copy that has failed, and its report may come later than the question."""
    world = World(4)
    topic = world.create(assignment={0: [2, 3]}, config={"min_isr": 2})
    for node in (2, 3):
        world.kill(node)
    world.disks[2][pid(topic)] = (0, 7)
    silent = [2]
    world.drop = lambda sender, to, message: sender in silent and isinstance(message, ReplicaStatesAnswer)
    for node in (2, 3):
        world.start(node, loss=power(topic, 0), settle=True)
    before = len(world.sent)
    says_nothing = ReplicaStatesAnswer(2, world.nodes[2].membership.broker_epoch, 2**40, [])
    for _ in range(3):
        world.send(2, ("controller", 1), says_nothing)
        world.advance(10_000)
    asked = [to for _, to, m in world.sent[before:] if isinstance(m, ReplicaStates)]
    assert set(asked) == {2}  # the other has answered
    assert len(asked) == 30_000 // world.config.ack_timeout_ms
    assert (facts(world)[0], world.leader.questions) == (None, 1)
    if then == "reports the failure":
        world.send(2, ("controller", 1), ReplicasFailed(2, world.nodes[2].membership.broker_epoch, "EIO", [pid(topic)]))
        world.settle()
        sentences = " ".join(world.admin("explain", name="t", partition=0).result["sentences"])
        assert "waits until all are live" in sentences
        assert "its disk has failed under this copy" in sentences
    elif then == "goes away":
        world.kill(2)
    if then != "restarts":
        assert (facts(world)[0], world.leader.questions) == (None, 0)
    silent.clear()
    world.nodes.pop(2, None)
    world.start(2, loss=power(topic, 0), settle=True)
    assert (world.state().leader, world.leader.questions) == (2, 0)


def test_a_question_ends_when_one_of_the_asked_dies():
    world = World(3)
    topic = world.create(assignment={0: [2, 3]}, config={"min_isr": 2})
    for node in (2, 3):
        world.kill(node)
    world.drop = lambda sender, to, message: isinstance(message, ReplicaStates) and to == 2
    for node in (2, 3):
        world.start(node, loss=power(topic, 0), settle=True)
    world.kill(2)
    world.drop = lambda sender, to, message: False
    world.advance(10_000)
    assert facts(world)[0] is None
    world.start(2, loss=power(topic, 0), settle=True)
    assert world.state().leader == 2  # the same end: replica order


def test_an_unclean_election_needs_permission_is_recorded_and_recovers():
    """P-47, the controller's part."""
    world = World(3)
    config = {"min_isr": 1, "unclean_leader_election": True}
    topic = world.create(assignment={0: [2, 3]}, config=config)
    world.kill(3)
    world.start(3, settle=True)
    assert facts(world)[2] == (2,)
    world.kill(2)
    state = world.state()
    assert (state.leader, state.isr, state.elr, state.recovering) == (3, (3,), (), True)
    path = judgements.loss_path(topic, 0)
    record = judgements.decode_loss(path, world.store.read(path).value)
    assert (record.kind, record.leader, record.missing) == ("unclean", 3, (2,))
    world.start(2, settle=True)
    assert world.propose(3, pid(topic), [2, 3], recovering=True).error == Code.INVALID_REQUEST
    assert world.propose(3, pid(topic), [2, 3]).error == Code.NONE
    world.kill(3)
    world.start(3, settle=True)
    world.kill(2)  # a second loss overwrites the record of the first
    assert judgements.decode_loss(path, world.store.read(path).value).leader == 3
    assert len(world.told("records_may_be_lost")) == 2


def test_a_failed_disk_hands_leadership_over_and_is_not_trusted_again_in_this_life():
    """P-54, the controller's part."""
    world = World(3)
    topic = world.create(assignment={0: [3, 2], 1: [3, 2]}, config={"min_isr": 1})
    alone = world.create("alone", assignment={0: [3]})
    epoch = world.nodes[3].membership.broker_epoch
    world.send(3, ("controller", 1), ReplicasFailed(3, epoch, "fsync", [pid(topic, 0), pid(alone)]))
    world.settle()
    assert facts(world, 0) == (2, 1, (2,), (), ())
    assert facts(world, 1)[0] == 3
    state = world.state(0, "alone")
    assert (state.leader, state.leader_epoch, state.isr, state.elr, state.last_known) == (None, 1, (), (), (3,))
    assert world.propose(2, pid(topic, 0), [2, 3]).error == Code.INELIGIBLE_REPLICA
    world.send(3, ("controller", 1), ReplicasFailed(3, epoch - 1, "an earlier life", []))
    world.settle()
    assert facts(world, 1)[0] == 3
    world.send(3, ("controller", 1), ReplicasFailed(3, epoch, "fsync", []))
    world.settle()
    assert facts(world, 1)[0] == 2


def a_failed_copy_that_was_made_anew(world: World) -> tuple[PartitionId, ReplicasFailed]:
    """Of the copies on brokers 2 and 3 that on 3 fails, moves to 4, and is to come back. Returns the report of the failure as well."""
    partition = pid(world.create(assignment={0: [2, 3]}, config={"min_isr": 1}))
    report = ReplicasFailed(3, world.nodes[3].membership.broker_epoch, "EIO", [partition])
    world.send(3, ("controller", 1), report)
    world.settle()
    assert world.propose(2, partition, [2, 3]).error == Code.INELIGIBLE_REPLICA
    assert world.admin("reassign", partitions=[["t", 0, [2, 4]]]).error == Code.NONE
    assert world.propose(2, partition, [2, 4]).error == Code.NONE
    assert partition not in world.nodes[3].broker.copies
    assert world.admin("reassign", partitions=[["t", 0, [2, 3]]]).error == Code.NONE
    return partition, report


def test_a_failed_copy_that_was_moved_away_and_made_anew_may_be_let_in():
    world = World(4)
    partition, _ = a_failed_copy_that_was_made_anew(world)
    assert world.propose(2, partition, [2, 4, 3]).error == Code.NONE
    assert world.state().isr == (2, 3)
    assert world.told("replicas_made_anew") == [{"broker": 3, "partitions": 1}]


@pytest.mark.parametrize("late", ["before the new copy has taken its notice", "after it"])
def test_a_late_report_of_the_copy_that_was_put_away_does_not_keep_the_new_one_out(late):
    world = World(4)
    if late == "after it":
        partition, report = a_failed_copy_that_was_made_anew(world)
    else:
        world.drop = lambda sender, to, message: sender == 3 and isinstance(message, LeaderAndIsrAnswer)
        partition, report = a_failed_copy_that_was_made_anew(world)
        world.drop = lambda sender, to, message: False
    world.send(3, ("controller", 1), report)
    world.nodes[3].broker.failed.clear()  # what it says now is true of the copy that was put away
    world.settle()
    assert world.propose(2, partition, [2, 4, 3]).error == Code.INELIGIBLE_REPLICA
    world.advance(world.config.reconcile_ms + 1_000)
    assert world.propose(2, partition, [2, 4, 3]).error == Code.NONE


def test_an_answer_from_before_a_failure_does_not_let_the_failed_copy_in():
    """A shrink is applied, and its answer is late; then the disk fails, and the report is faster."""
    world = World(4)
    partition = pid(world.create(assignment={0: [2, 3]}, config={"min_isr": 1}))
    held = []
    world.drop = lambda sender, to, message: sender == 3 and isinstance(message, LeaderAndIsrAnswer) and not held.append(message)
    assert world.propose(2, partition, [2]).error == Code.NONE
    world.drop = lambda sender, to, message: False
    world.send(3, ("controller", 1), ReplicasFailed(3, world.nodes[3].membership.broker_epoch, "EIO", [partition]))
    world.settle()
    for message in held:
        world.send(3, ("controller", 1), message)
    assert world.propose(2, partition, [2, 3]).error == Code.INELIGIBLE_REPLICA
    world.advance(2 * world.config.reconcile_ms)
    assert world.propose(2, partition, [2, 3]).error == Code.INELIGIBLE_REPLICA
    assert world.told("replicas_made_anew") == []


def test_nor_does_the_answer_to_the_notice_under_which_it_failed():
    """The directory fails when the broker notes its registration, with the complete notice applied: the report leaves before the answer."""
    world = World(3)
    partition = pid(world.create(assignment={0: [2, 3]}, config={"min_isr": 1}))
    world.kill(3)
    report = []

    def fails(sender, to, message):
        if sender == 3 and isinstance(message, LeaderAndIsrAnswer) and not report:
            report.append(ReplicasFailed(3, message.broker_epoch, "EIO", [partition]))
            world.send(3, ("controller", 1), report[0])
            world.send(3, ("controller", 1), message)
            return True
        return False

    world.drop = fails
    world.start(3, settle=True)
    assert report
    assert world.propose(2, partition, [2, 3]).error == Code.INELIGIBLE_REPLICA
    assert world.told("replicas_made_anew") == []


def test_a_broker_with_a_failed_copy_that_answers_nothing_is_not_told_of_it_in_ever_more_notices():
    world = World(3)
    topic = world.create(assignment={0: [2, 3]}, config={"min_isr": 1})
    world.send(3, ("controller", 1), ReplicasFailed(3, world.nodes[3].membership.broker_epoch, "EIO", [pid(topic)]))
    world.settle()
    world.nodes[3].broker.mute = True
    world.advance(2 * world.config.reconcile_ms)
    before = world.leader.unacknowledged[3]
    world.advance(20 * world.config.reconcile_ms)
    assert world.leader.unacknowledged[3] == before


def test_a_failed_copy_that_was_not_put_away_stays_out():
    """The order to put it away is withdrawn when the copy is wanted again before it was heard."""
    world = World(4)
    world.drop = lambda sender, to, message: to == 3 and isinstance(message, StopReplica)
    topic = world.create(assignment={0: [2, 3]}, config={"min_isr": 1})
    world.send(3, ("controller", 1), ReplicasFailed(3, world.nodes[3].membership.broker_epoch, "EIO", [pid(topic)]))
    world.settle()
    for target, isr in ([2, 4], [2, 4]), ([2, 3], None):
        assert world.admin("reassign", partitions=[["t", 0, target]]).error == Code.NONE
        if isr:
            assert world.propose(2, pid(topic), isr).error == Code.NONE
    world.drop = lambda sender, to, message: False
    for _ in range(3):
        world.advance(world.config.reconcile_ms)
        assert world.propose(2, pid(topic), [2, 4, 3]).error == Code.INELIGIBLE_REPLICA


def test_nobody_leads_until_a_copy_that_was_taken_for_failed_has_taken_a_notice():
    """A report of a copy that was put away arrives when the new one is the last that was complete: it is asked how far it reaches."""
    world = World(3)
    partition = pid(world.create(assignment={0: [3]}))
    world.send(3, ("controller", 1), ReplicasFailed(3, world.nodes[3].membership.broker_epoch, "EIO", [partition]))
    world.nodes[3].broker.failed.clear()
    world.settle()
    assert (world.state().leader, world.state().isr) == (3, (3,))


def test_a_failure_that_is_reported_again_is_no_news():
    world = World(3)
    topic = world.create(assignment={0: [3, 2]}, config={"min_isr": 1})
    report = ReplicasFailed(3, world.nodes[3].membership.broker_epoch, "fsync", [pid(topic, 0)])
    for _ in range(3):
        world.send(3, ("controller", 1), report)
        world.settle()
    assert facts(world) == (2, 1, (2,), (), ())
    assert len(world.told("replicas_failed")) == 1


def test_a_log_that_could_not_be_opened_is_a_failed_disk():
    world = World(3)
    topic = world.create(assignment={0: [3, 2]}, config={"min_isr": 1})
    node = world.nodes[3]
    answer = LeaderAndIsrAnswer(3, node.membership.broker_epoch, 1, 1, Code.NONE, [(pid(topic), Code.STORAGE_ERROR)])
    world.send(3, ("controller", 1), answer)
    world.settle()
    assert facts(world)[0] == 2


# ---- finding out


def test_a_lost_watch_is_found_by_the_next_scan():
    """P-71."""
    world = World(3)
    world.create(assignment={0: [3, 2]}, config={"min_isr": 1})
    world.drop_watches = True
    world.kill(3)
    assert world.state().leader == 3
    world.advance(world.config.reconcile_ms + 1_000)
    assert world.state().leader == 2


def test_a_lost_watch_on_the_seat_is_found_by_the_next_scan():
    world = World(2)
    world.drop_watches = True
    world.kill(1)
    assert not world.nodes[2].controller.is_controller
    world.advance(world.config.reconcile_ms + 1_000)
    assert world.controller_id == 2


def test_a_watch_that_was_lost_is_armed_again():
    """The first change after a lost watch costs a scan; the next one does not."""
    world = World(4)
    world.create(assignment={0: [3, 2]}, config={"min_isr": 1})
    world.drop_watches = True
    world.kill(4)
    world.kill(1)
    world.advance(world.config.reconcile_ms + 1_000)
    assert world.controller_id == 2
    world.start(4, settle=True)
    world.advance(world.config.reconcile_ms + 1_000)
    world.drop_watches = False
    world.kill(3)
    assert world.state().leader == 2
    world.kill(2)
    assert world.controller_id == 4


def test_a_partition_left_out_of_nothing_a_stray_is_kept_unless_the_store_says_otherwise():
    """P-68, the controller's side: an unknown topic id is no evidence; not being assigned is."""
    world = World(3)
    topic = world.create(assignment={0: [1, 2]}, config={"min_isr": 1})
    unknown, not_mine, other_life = PartitionId(b"?" * 16, 0, 0), pid(topic), PartitionId(topic, 0, 7)
    world.kill(3)
    world.disks[3].update(dict.fromkeys((unknown, not_mine, other_life), (0, 5)))
    world.start(3, settle=True)
    assert list(world.disks[3]) == [unknown]
    assert len(world.told("stray_kept")) == 1


def test_metadata_goes_to_everyone_in_order_and_completely_after_a_gap():
    world = World(3)
    world.create("a")
    views = [m.view for m in world.nodes[3].broker.received if isinstance(m, UpdateMetadata)]
    versions = [v.version for v in views]
    assert versions == sorted(versions)
    assert all(after.since == before.version for before, after in pairwise(views))
    (topic,) = views[-1].topics
    assert (topic.topic, topic.partitions[0].leader) == ("a", 1)
    assert {b.broker_id: b.fenced for v in views for b in v.brokers} == {1: False, 2: False, 3: False}
    world.kill(2)
    last = [m.view for m in world.nodes[3].broker.received if isinstance(m, UpdateMetadata)][-1]
    assert last.removed_brokers in ([2], [])
    gone = [m.view.removed_brokers for m in world.nodes[3].broker.received if isinstance(m, UpdateMetadata)]
    assert gone.count([2]) == 1
    world.create("b")
    world.admin("delete_topic", name="b")
    views = [m.view for m in world.nodes[3].broker.received if isinstance(m, UpdateMetadata)]
    assert len([v for v in views if v.removed_topics]) == 1


@pytest.mark.parametrize(("stored", "altered", "last_known"), [(2, 1, (3, 4)), (1, 2, ())])
def test_who_is_remembered_follows_from_the_min_isr_of_the_state(stored, altered, last_known):
    """All have answered just after the topic was altered, and before its states were: both fields of a state go together."""
    world = World(4)
    topic = world.create(assignment={0: [2, 3, 4]}, config={"min_isr": stored})
    for node in (2, 3, 4):
        world.kill(node)
    world.drop = lambda _sender, _to, message: isinstance(message, ReplicaStates)
    for node in (2, 3, 4):
        world.start(node, loss=power(topic, 0), settle=True)
    controller, state = world.leader._term.controller, world.state()
    assert (state.leader, state.isr, state.elr, state.min_isr) == (None, (), (), stored)
    known = controller.cluster.topics[topic]
    controller.cluster.apply(TopicSet(attrs.evolve(known, config=attrs.evolve(known.config, min_isr=altered))))
    answers = tuple((node, 1, 10 + node) for node in (2, 3, 4))
    decision = controller.decide(LastKnownAnswered(pid(topic), state.leader_epoch, answers, (2, 3, 4)))
    (after,) = [change.state for step in decision.steps for change in step.changes if isinstance(change, StateSet)]
    assert (after.isr, after.min_isr, after.last_known) == ((state.last_known[-1],), stored, last_known)
