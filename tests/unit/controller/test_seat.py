"""Who is the controller: campaign, failover, zombies (P-60, P-61), outcomes nobody heard."""

from __future__ import annotations

import pytest
from tests.unit.controller.harness import World, pid

from replog.controller.campaign import campaign
from replog.controller.reading import Reader
from replog.errors import Code
from replog.messages import AlterIsr, AlterIsrAnswer, LeaderAndIsr, LeaderAndIsrAnswer, UpdateMetadata
from replog.metadata import layout
from replog.metadata.memory import MemoryStore
from replog.ports import Conflict, Delete, LossReport, Put, UnknownOutcome, WatchFired


def test_one_of_them_becomes_the_controller_and_tells_everyone_everything():
    world = World(3)
    assert [n.controller.is_controller for n in world.nodes.values()] == [True, False, False]
    assert world.leader.controller_epoch == 1
    for node in world.nodes.values():
        (complete,) = [m for m in node.broker.received if isinstance(m, LeaderAndIsr)]
        assert (complete.complete, complete.controller_epoch, complete.entries) == (True, 1, [])
        assert next(m for m in node.broker.received if isinstance(m, UpdateMetadata)).view.since == -1


def test_the_next_one_takes_over_with_a_higher_epoch_and_sends_everything_again():
    world = World(3)
    topic = world.create(partitions=2)
    world.kill(1)
    assert (world.controller_id, world.leader.controller_epoch) == (2, 2)
    for node in world.nodes.values():
        complete = [m for m in node.broker.received if isinstance(m, LeaderAndIsr) and m.complete][-1]
        assert complete.controller_epoch == 2
        assert [e.partition for e in complete.entries] == [pid(topic, 0), pid(topic, 1)]
        assert all(1 not in e.state.isr and e.state.leader != 1 for e in complete.entries)


def test_every_failover_costs_one_controller_epoch():
    world = World(3)
    for epoch in (2, 3, 4):
        world.kill(world.controller_id)
        assert world.leader.controller_epoch == epoch
        world.start(min({1, 2, 3} - world.nodes.keys()), settle=True)
    assert len(world.nodes) == 3


def test_a_zombie_controller_is_refused_and_resigns():
    """P-60: it comes back from a pause, does not know that its session has ended, and commands."""
    world = World(3)
    topic = world.create()
    world.nodes[1].paused = True
    world.nodes[1].session.expire()
    world.settle()
    assert world.controller_id == 2
    zombie = world.nodes[1]
    assert [world.nodes[n].broker.controller_epoch for n in (2, 3)] == [2, 2]
    before = world.nodes[3].broker.states[pid(topic)]
    zombie.paused = False
    old = LeaderAndIsr(1, 1, world.nodes[3].broker.broker_epoch, 99, True, 3_000, [], as_of=99)
    world.send(("controller", 1), 3, old)
    world.settle()
    assert not zombie.controller.is_controller
    assert world.nodes[3].broker.states[pid(topic)] is before
    assert any(isinstance(m, LeaderAndIsrAnswer) and m.error == Code.STALE_CONTROLLER_EPOCH for _, _, m in world.sent)


def test_what_a_successor_has_written_is_not_told_by_its_predecessor():
    """P-61: the successor's complete notices, still on their way, may be older than that, and would undo it under a higher epoch."""
    world = World(3)
    world.create()
    zombie = world.nodes[1]
    zombie.paused = True
    world.store.session().commit([Delete(layout.CONTROLLER, 0)])  # its session lives
    world.settle()
    assert world.controller_id == 2
    world.create("u")
    zombie.paused = False
    before = len(world.sent)
    world.give(zombie, ("controller", 1), None, WatchFired(layout.TOPICS))
    world.settle()
    assert [m for sender, _, m in world.sent[before:] if sender == ("controller", 1) and isinstance(m, LeaderAndIsr) and m.entries] == []
    assert not zombie.controller.is_controller


def test_a_new_life_hears_nothing_of_a_controller_that_was_deposed_before_it_looked():
    """X-12: it obeys whoever comes first, and takes the complete notice for a sign that what it lost has been dealt with."""
    world = World(3)
    world.create(config={"min_isr": 2})
    world.kill(3)  # as far as the first controller knows it is complete nowhere: nothing is to be stored when it comes back
    zombie = world.nodes[1]
    zombie.paused = True
    world.store.session().commit([Delete(layout.CONTROLLER, 0)])  # its session lives
    world.settle()
    assert world.controller_id == 2
    world.drop = lambda sender, to, message: sender == ("controller", 2) and to == 3
    world.start(3, loss=LossReport("power"), settle=True)
    zombie.paused = False
    world.give(zombie, ("controller", 1), None, WatchFired(layout.BROKER_IDS))
    world.settle()
    assert [m for m in world.nodes[3].broker.received if isinstance(m, LeaderAndIsr)] == []
    assert not zombie.controller.is_controller


def test_a_look_at_the_brokers_that_finds_nothing_new_does_not_ask_for_the_seat():
    world = World(3)
    world.create()
    asked = []
    world.before_store = lambda address, call: asked.append((call.verb, call.argument)) if address == ("controller", 1) else None
    world.give(world.nodes[1], ("controller", 1), None, WatchFired(layout.BROKER_IDS))
    world.settle()
    assert asked
    assert [one for one in asked if layout.CONTROLLER in one[1]] == []


@pytest.mark.parametrize("moment", ["while it loads", "after a commit of which it did not hear"])
def test_whoever_is_deposed_while_it_reads_tells_nothing_of_it(moment):
    world = World(3)
    topic = world.create(config={"min_isr": 1})
    reader, verb = (2, "read_each") if moment == "while it loads" else (1, "commit_each")
    deposed = []

    def before_store(address, call):
        if address != ("controller", reader) or deposed:
            return None
        if call.verb == "commit_each" or (verb == "read_each" and call.verb == "read_each" and "/brokers/topics" in str(call.argument)):
            epoch = world.store.read(layout.CONTROLLER_EPOCH)
            deposed.append(layout.decode_controller_epoch("", epoch.value))
            applied = call.verb == "commit_each" and world._store(world.nodes[reader], address, call).error is None
            world.store.session().commit([Put(layout.CONTROLLER_EPOCH, layout.encode_controller_epoch(9), epoch.version)])
            return "lost" if applied else None
        return None

    world.before_store = before_store
    before = len(world.sent)
    if moment == "while it loads":
        world.kill(1)
    else:
        world.propose(1, pid(topic), [1, 2])
    assert deposed
    notices = [m for sender, _, m in world.sent[before:] if sender == ("controller", reader) and isinstance(m, LeaderAndIsr)]
    assert [m for m in notices if m.controller_epoch == deposed[0] and m.entries] == []
    assert world.leader.controller_epoch == 10


def test_a_write_that_was_under_way_when_another_was_elected_is_rejected_as_a_whole():
    """P-61: the guard is in the transaction, for every batch."""
    world = World(3)
    topic = world.create(partitions=3)
    stored = [world.state(p) for p in range(3)]
    held = []

    def hold(address, call):
        if address == ("controller", 1) and call.verb == "commit_each" and not held:
            held.append(call)
            return "lost"  # the old controller's write stays on its way
        return None

    world.before_store = hold
    world.propose(1, pid(topic, 0), [1, 2], settle=False)
    while not held:
        world.queue.popleft()()
    world.nodes[1].paused = True
    other = world.store.session()
    epoch = world.store.read(layout.CONTROLLER_EPOCH)
    other.commit([Put(layout.CONTROLLER_EPOCH, layout.encode_controller_epoch(2), epoch.version)])
    (refused,) = other.commit_each(held[0].argument)
    assert getattr(refused, "path", None) == layout.CONTROLLER_EPOCH
    assert [world.state(p) for p in range(3)] == stored


def test_every_commit_of_a_controller_checks_its_epoch():
    world = World(3)
    topic = world.create(partitions=2)
    world.propose(1, pid(topic), [1, 2])
    world.kill(3)
    world.admin("delete_topic", name="t")
    guarded = [c for c in world.commits if c[0].path == layout.CONTROLLER_EPOCH]
    campaigns = [c for c in world.commits if any(op.path == layout.CONTROLLER for op in c)]
    assert len(guarded) + len(campaigns) == len(world.commits)
    assert len(campaigns) <= 3
    assert len(guarded) >= 6


def test_a_conflict_on_the_epoch_ends_the_term():
    world = World(2)
    topic = world.create(replication_factor=2, config={"min_isr": 1})
    epoch = world.store.read(layout.CONTROLLER_EPOCH)
    world.store.commit([Put(layout.CONTROLLER_EPOCH, layout.encode_controller_epoch(7), epoch.version)])
    node = world.nodes[1]
    answer = world.propose(1, pid(topic), [1])
    assert isinstance(answer, AlterIsrAnswer)
    assert answer.error == Code.NOT_CONTROLLER
    assert world.leader.controller_epoch == 8
    assert world.told("controller_resigned")
    assert node.broker.controller_epoch == 8


def test_a_resigned_controller_whose_session_lives_gives_up_its_seat():
    world = World(1)
    world.create(replication_factor=1)
    world.send(9, ("controller", 1), LeaderAndIsrAnswer(9, 1, 5, 0, Code.STALE_CONTROLLER_EPOCH))
    world.settle()
    assert world.leader.controller_epoch == 2  # campaigned again, at a higher epoch than its own seat


@pytest.mark.parametrize("outcome", ["lost", "applied"])
def test_a_campaign_whose_outcome_nobody_heard(outcome):
    world = World(0)
    faults = []

    def fault(address, call):
        if address[0] == "controller" and call.verb == "commit" and not faults:
            faults.append(call)
            return outcome
        return None

    world.before_store = fault
    world.start(1, settle=True)
    assert len(faults) == 1
    assert not world.nodes[1].controller.is_controller
    world.advance(5_000)
    assert world.nodes[1].controller.is_controller
    assert world.leader.controller_epoch == 1
    assert layout.decode_controller_epoch("", world.store.read(layout.CONTROLLER_EPOCH).value) == 1


@pytest.mark.parametrize("outcome", ["lost", "applied"])
def test_a_decision_whose_outcome_nobody_heard_is_read_again_before_anything_else(outcome):
    """P-23: stored once, answered from what the store has."""
    world = World(3)
    topic = world.create()
    faults = []

    def fault(address, call):
        if address[0] == "controller" and call.verb == "commit_each" and not faults:
            faults.append(call)
            return outcome
        return None

    world.before_store = fault
    verbs = []
    world.after_store = lambda address, call: verbs.append(call.verb) if faults else None
    result = world.propose(1, pid(topic), [1, 2])
    assert (world.state().isr, world.state().partition_epoch) == ((1, 2), 1)
    # Applied: the proposal is one version behind what is stored, and the leader takes the state that comes with the answer.
    assert result.error == (Code.NONE if outcome == "lost" else Code.INVALID_UPDATE_VERSION)
    assert result.state == world.state()
    assert verbs[0] == "commit_each"
    assert verbs[1:3] == ["read_each", "read_each"]  # the path, then the seat and the epoch; only then the next commit
    assert verbs.count("commit_each") == (2 if outcome == "lost" else 1)


@pytest.mark.parametrize("outcome", ["lost", "applied"])
def test_a_creation_whose_outcome_nobody_heard_makes_one_topic(outcome):
    world = World(3)
    faults = []

    def fault(address, call):
        if address[0] == "controller" and call.verb == "commit_each" and not faults:
            faults.append(call)
            return outcome
        return None

    world.before_store = fault
    answer = world.admin("create_topic", name="t", partitions=2)
    assert answer.error == Code.NONE
    entry = layout.decode_topic("", world.store.read(layout.topic_path("t")).value)
    assert entry.topic_id.hex() == answer.result["topic_id"]
    assert [world.state(p).partition_epoch for p in (0, 1)] == [0, 0]


def test_reads_that_fail_are_tried_again_after_a_pause():
    world = World(0)
    world.before_store = lambda address, call: "lost" if address[0] == "controller" and world.now_ms < 3_000 else None
    world.start(1, settle=True)
    world.advance(1_500)
    assert not world.nodes[1].controller.is_controller
    assert 4 <= len(world.told("store_outcome_unknown")) <= 12
    world.advance(5_000)
    assert world.nodes[1].controller.is_controller


def test_nobody_else_answers_for_the_controller():
    world = World(2)
    assert world.admin("create_topic", at=2, name="t").error == Code.NOT_CONTROLLER
    world.send(2, ("controller", 2), AlterIsr(5, 2, 1, []))
    world.settle()
    assert world.nodes[2].broker.answers == [AlterIsrAnswer(5, Code.NOT_CONTROLLER, [])]


def test_a_lost_session_ends_the_term_and_a_new_one_campaigns_again():
    world = World(2)
    world.session(1, "lost")
    assert not world.nodes[1].controller.is_controller
    assert world.nodes[1].membership.broker_epoch == -1
    world.nodes[1].session.expire()
    world.nodes[1].session = world.store.session()
    world.settle()
    assert world.controller_id == 2
    world.session(1, "connected")
    world.settle()
    assert world.nodes[1].membership.broker_epoch > 0
    assert [n.controller.is_controller for n in world.nodes.values()] == [False, True]
    world.kill(2)
    assert world.controller_id == 1


def test_who_waits_for_an_answer_of_a_resigned_controller_is_told_so():
    world = World(3)
    world.before_store = lambda address, call: "lost" if address[0] == "controller" and call.verb.startswith("commit") else None
    world.admin("create_topic", name="t", settle=False)
    for _ in range(3):
        world.queue.popleft()()
    world.session(1, "lost")
    world.settle()
    assert [a.error for a in world.client] == [Code.REQUEST_TIMED_OUT]


def test_giving_up_a_seat_of_an_earlier_life_deposes_nobody():
    """Every seat has version 0: between the look and the deletion the old session ends, and another broker wins."""
    root = MemoryStore()
    old, new, other = root.session(), root.session(), root.session()

    def run(session, broker_id, until=None):
        """Run a campaign; or up to a commit whose first operation is of that kind, which comes back undone."""
        script = campaign(Reader(1_000, lambda event: None), broker_id, (), ())
        answer = None
        try:
            while True:
                verb, argument = script.send(answer)
                if verb == "commit" and until is not None and any(isinstance(op, until) for op in argument):
                    return argument
                answer = None if verb == "attempt" else getattr(session, verb)(*([argument, print] if verb == "watch" else [argument]))
        except StopIteration as end:
            return end.value

    assert run(old, 1).controller_epoch == 1
    late = run(new, 1, until=Delete)
    old.close()
    assert run(other, 2).controller_epoch == 2
    with pytest.raises(Conflict):
        new.commit(late)
    assert layout.decode_controller(layout.CONTROLLER, new.read(layout.CONTROLLER).value).broker_id == 2


def test_a_watch_that_fires_before_the_store_says_that_it_is_armed_is_armed_again():
    """It was taken for armed from then on, and nobody looked when the seat became free, until the next `reconcile`."""
    reader = Reader(10, lambda _: None)
    script = reader.watch(layout.CONTROLLER)
    assert next(script) == ("watch", layout.CONTROLLER)
    reader.fired(layout.CONTROLLER)
    assert list(script) == []
    assert not reader.is_armed(layout.CONTROLLER)
    assert next(reader.watch(layout.CONTROLLER)) == ("watch", layout.CONTROLLER)
    reader.fired(layout.CONTROLLER)
    script = reader.watch(layout.CONTROLLER)
    next(script)
    with pytest.raises(UnknownOutcome):
        script.throw(UnknownOutcome("lost"))
    assert not reader.is_armed(layout.CONTROLLER)
