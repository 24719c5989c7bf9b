"""Topics: created, found, deleted, and finished by the next controller whatever the last one left (P-65)."""

from __future__ import annotations

import pytest
from tests.unit.controller.harness import World, pid

from replog.controller.changes import DeletionSet
from replog.controller.events import DeletionsSeen, Wish
from replog.errors import Code
from replog.messages import AlterIsr, LeaderAndIsr, LeaderAndIsrAnswer, StopReplica
from replog.metadata import layout
from replog.model import Assignment
from replog.ports import Create, Delete

DELETED = Code.UNKNOWN_TOPIC_OR_PARTITION


def paths(world: World, path: str = "/") -> list[str]:
    found = []
    for name in world.store.list(path):
        child = f"{path.rstrip('/')}/{name}"
        found += [child, *paths(world, child)]
    return found


def test_a_topic_is_placed_resolved_stored_and_answered_after_the_commit():
    world = World(3)
    answer = world.admin("create_topic", name="t", partitions=3, config={"flush": "ack"})
    assert (answer.error, answer.origin) == (Code.NONE, 7)
    entry = layout.decode_topic("", world.store.read(layout.topic_path("t")).value)
    assert entry.topic_id.hex() == answer.result["topic_id"]
    assert entry.config == {"flush": "ack", "min_isr": 2}
    assert [a.replicas for a in entry.partitions.values()] == [(1, 2, 3), (2, 3, 1), (3, 1, 2)]
    assert [world.state(p).leader for p in range(3)] == [1, 2, 3]
    assert all(n.broker.states[pid(entry.topic_id, p)].config.min_isr == 2 for n in world.nodes.values() for p in range(3))


def test_a_small_topic_is_one_transaction():
    world = World(3)
    world.commits.clear()
    world.create(partitions=5)
    assert len(world.commits) == 1


REFUSED = {
    "a name twice": (Code.TOPIC_ALREADY_EXISTS, {"name": "there"}, "'there' exists"),
    "a bad name": (Code.INVALID_TOPIC, {"name": "a/b"}, "'/'"),
    "no name": (Code.INVALID_TOPIC, {}, "None"),
    "no partitions": (Code.INVALID_PARTITIONS, {"name": "t", "partitions": 0}, "partitions is 0; allowed are 1 to 50"),
    "too many partitions": (Code.INVALID_PARTITIONS, {"name": "t", "partitions": 51}, "51; allowed are 1 to 50"),
    "partitions as text": (Code.INVALID_PARTITIONS, {"name": "t", "partitions": "3"}, "'3'"),
    "too many replicas": (Code.INVALID_REPLICATION_FACTOR, {"name": "t", "replication_factor": 4}, "4; allowed are 1 to 3"),
    "an unknown broker": (Code.INVALID_REPLICA_ASSIGNMENT, {"name": "t", "assignment": {0: [9]}}, "broker 9"),
    "two wishes": (Code.INVALID_REPLICA_ASSIGNMENT, {"name": "t", "assignment": {0: [1]}, "partitions": 2}, "partitions 1"),
    "an unknown key": (Code.INVALID_CONFIG, {"name": "t", "config": {"min_irs": 1}}, "did you mean 'min_isr'"),
    "a bad value": (Code.INVALID_CONFIG, {"name": "t", "config": {"flush": "never"}}, "'never'"),
    "min_isr above the replicas": (
        Code.INVALID_CONFIG,
        {"name": "t", "replication_factor": 1, "config": {"min_isr": 2}},
        "min_isr is 2; allowed are 1 to 1",
    ),
    "a configuration that is none": (Code.INVALID_CONFIG, {"name": "t", "config": [1]}, "mapping"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wish_that_cannot_be_granted_is_refused_with_the_value_and_the_limit(case):
    code, arguments, text = REFUSED[case]
    world = World(3, topic_partitions_max=50)
    world.create("there")
    before = paths(world)
    answer = world.admin("create_topic", **arguments)
    assert answer.error == code
    assert text in answer.message
    assert paths(world) == before


def test_an_unknown_verb_is_refused():
    answer = World(1).admin("dance")
    assert (answer.error, "create_topic" in answer.message) == (Code.INVALID_REQUEST, True)


def test_without_a_live_broker_there_is_nowhere_to_put_a_replica():
    world = World(0)
    world.start(1)
    world.nodes[1].broker.mute = True
    world.settle()
    assert world.admin("create_topic", name="t").error == Code.INVALID_REPLICATION_FACTOR


def test_a_topic_made_by_a_tool_is_initialised_where_there_is_no_state_and_only_there():
    """S35: the state that exists stays, whatever is live."""
    world = World(3)
    entry = layout.TopicEntry(b"x" * 16, {}, {0: Assignment((2, 1)), 1: Assignment((3,))}, 0)
    world.store.commit([Create(layout.topic_path("t"), layout.encode_topic(entry))])
    world.settle()
    assert [(world.state(p).leader, world.state(p).isr) for p in (0, 1)] == [(2, (2, 1)), (3, (3,))]
    assert world.nodes[2].broker.states[pid(b"x" * 16)].config.min_isr == 1
    world.kill(2)
    world.kill(1)
    assert world.state(0).leader is None
    epoch = world.state(0).leader_epoch
    world.kill(3)
    world.start(3, settle=True)
    assert (world.state(0).leader, world.state(0).leader_epoch) == (None, epoch)


def test_partitions_without_a_live_replica_wait_for_one():
    world = World(3)
    world.drop_watches = True
    world.kill(3)
    answer = world.admin("create_topic", name="t", assignment={0: [1, 2], 1: [2, 3]}, config={"min_isr": 1})
    assert answer.error == Code.NONE
    world.drop_watches = False
    entry = layout.TopicEntry(b"x" * 16, {}, {0: Assignment((3,))}, 0)
    world.store.commit([Create(layout.topic_path("later"), layout.encode_topic(entry))])
    world.advance(40_000)
    assert world.store.read(layout.partition_state_path("later", 0)) is None
    world.start(3, settle=True)
    assert world.state(0, "later").leader == 3


def test_a_value_that_cannot_be_read_stops_nothing_else():
    world = World(3)
    world.store.commit([Create(layout.topic_path("broken"), b"{")])
    world.settle()
    world.create("fine")
    world.kill(1)
    assert world.state(0, "fine").leader == 2
    assert {e["path"] for e in world.told("store_value_unreadable")} == {layout.topic_path("broken")}


# ---- deletion


def test_deletion_leaves_nothing_and_frees_the_name():
    world = World(3)
    before = paths(world)
    topic = world.create(partitions=3)
    answer = world.admin("delete_topic", name="t")
    assert (answer.error, answer.origin) == (Code.NONE, 7)
    assert [p for p in paths(world) if p not in before] == []
    for node in world.nodes.values():
        assert node.broker.copies == {}
        (stop,) = [m for m in node.broker.received if isinstance(m, StopReplica)]
        assert [(e.partition, e.leader_epoch, e.delete) for e in stop.entries] == [(pid(topic, p), -2, True) for p in range(3)]
    assert world.create() != topic


def test_states_go_first_and_the_wish_last():
    world = World(3)
    world.create(partitions=2)
    world.commits.clear()
    world.admin("delete_topic", name="t")
    shape = [[(type(op).__name__, op.path.split("/")[1:3]) for op in ops[1:]] for ops in world.commits]
    assert shape[0] == [("Create", ["admin", "delete_topics"])]
    assert shape[1] == [("Check", ["brokers", "topics"]), ("Delete", ["brokers", "topics"])] * 2
    assert shape[2] == [("Delete", ["brokers", "topics"]), ("Create", ["admin", "removed"]), ("Delete", ["admin", "delete_topics"])]


def test_deleting_an_unknown_topic_lists_the_known_ones():
    world = World(1)
    world.create("orders")
    answer = world.admin("delete_topic", name="order")
    assert answer.error == DELETED
    assert "orders" in answer.message


def test_a_broker_that_was_away_is_told_when_it_comes_back():
    """P-80, the controller's part: the list of remaining copies is kept until the last broker has confirmed."""
    world = World(3)
    topic = world.create(partitions=2)
    world.kill(3)
    world.admin("delete_topic", name="t")
    removed = world.store.read(layout.removed_path(topic))
    assert layout.decode_removed("", removed.value) == (3,)
    world.create(partitions=2)
    world.kill(world.controller_id)  # the next controller knows it from the store
    world.start(3, settle=True)
    assert world.store.read(layout.removed_path(topic)) is None
    assert pid(topic) not in world.nodes[3].broker.copies
    assert world.store.list(layout.TOPICS) == ["t"]


def test_a_stop_that_was_lost_is_sent_again():
    world = World(3)
    topic = world.create()
    world.drop = lambda sender, to, message: isinstance(message, StopReplica) and to == 3
    world.admin("delete_topic", name="t")
    assert layout.decode_removed("", world.store.read(layout.removed_path(topic)).value) == (3,)
    world.drop = lambda sender, to, message: False
    world.advance(3_100)
    assert world.store.read(layout.removed_path(topic)) is None


def test_a_proposal_for_a_topic_that_is_going_is_refused():
    world = World(3, slice_partitions_max=1)
    topic = world.create(partitions=3)
    codes = []

    def look(address, call):
        if len(codes) < 2 and world.store.read(layout.delete_topic_path("t")) is not None and call.verb == "commit_each":
            codes.append(None)
            world.propose(1, pid(topic), [1, 2], settle=False)

    world.after_store = look
    world.admin("delete_topic", name="t")
    answers = [a for a in world.nodes[1].broker.answers if hasattr(a, "entries")]
    assert [a.entries[0].error for a in answers] == [Code.UNKNOWN_TOPIC_ID] * 2
    assert world.store.list(layout.TOPICS) == []


def test_a_wish_written_by_a_tool_is_granted_and_one_that_names_no_topic_is_dropped():
    world = World(3)
    topic = world.create()
    for name, topic_id in (("t", topic), ("ghost", b"g" * 16)):
        world.store.commit([Create(layout.delete_topic_path(name), layout.encode_delete_topic(topic_id))])
        world.settle()
    assert world.store.list(layout.TOPICS) == []
    assert world.store.list(layout.DELETE_TOPICS) == []
    assert [e["topic"] for e in world.told("wish_dropped")] == ["ghost"]


def test_a_wish_for_an_earlier_topic_of_that_name_deletes_nothing():
    world = World(3)
    old = world.create()
    world.admin("delete_topic", name="t")
    world.create()
    world.store.commit([Create(layout.delete_topic_path("t"), layout.encode_delete_topic(old))])
    world.settle()
    assert world.store.list(layout.TOPICS) == ["t"]


def test_a_topic_removed_by_hand_is_stopped_and_kept():
    world = World(3)
    topic = world.create()
    world.store.commit([Delete(layout.partition_state_path("t", 0))])
    world.store.commit([Delete(layout.topic_path("t"))])
    world.settle()
    assert all(pid(topic) in n.broker.copies and pid(topic) not in n.broker.states for n in world.nodes.values())
    assert len(world.told("topic_vanished")) == 1


# ---- P-65: the controller dies after every commit


def crash_after(commit: int, world: World, act) -> bool:
    """Run `act`, kill the controller right after its n-th commit from now was stored, let the next one finish. False: fewer came."""
    seen = []
    victim = world.controller_id

    def watch(address, call):
        if address == ("controller", victim) and call.verb.startswith("commit"):
            seen.append(call)
            if len(seen) == commit:
                world.kill(victim, settle=False)

    world.after_store = watch
    act()
    world.settle()
    world.after_store = lambda address, call: None
    world.settle()
    return len(seen) >= commit


@pytest.mark.parametrize("commit", range(1, 9))
def test_a_deletion_is_finished_by_the_next_controller(commit):
    world = World(4, slice_partitions_max=2)
    before = [p for p in paths(world) if not p.startswith("/brokers/ids")]
    topic = world.create(partitions=5, replication_factor=3)
    crashed = crash_after(commit, world, lambda: world.admin("delete_topic", name="t", settle=False))
    assert world.store.list(layout.TOPICS) == []
    assert world.store.list(layout.DELETE_TOPICS) == []
    if crashed:
        assert world.nodes.keys() == {2, 3, 4}
        world.start(1, settle=True)
    assert [p for p in paths(world) if p not in before and not p.startswith("/brokers/ids")] == []
    assert all(p.topic_id != topic for n in world.nodes.values() for p in n.broker.copies)


@pytest.mark.parametrize("commit", range(1, 5))
def test_a_big_creation_is_finished_by_the_next_controller(commit):
    world = World(4, slice_partitions_max=2)
    crash_after(commit, world, lambda: world.admin("create_topic", name="t", partitions=6, settle=False))
    assert len(world.nodes) == 3
    leaders = [world.state(p).leader for p in range(6)]
    assert all(leader in (2, 3, 4) for leader in leaders)
    for node in world.nodes.values():
        assert all(e.state == world.state(p.partition) for p, e in node.broker.states.items())


@pytest.mark.parametrize("commit", range(1, 3))
def test_a_failover_is_finished_by_the_next_controller(commit):
    world = World(5, slice_partitions_max=2)
    world.create(partitions=6, replication_factor=3)
    crash_after(commit, world, lambda: world.kill(5, settle=False))
    assert len(world.nodes) == 3
    for p in range(6):
        state = world.state(p)
        assert state.leader in world.nodes
        assert set(state.isr) <= world.nodes.keys()
    for node in world.nodes.values():
        assert all(e.state == world.state(p.partition) for p, e in node.broker.states.items())


def test_a_proposal_whose_controller_dies_after_the_commit_is_told_by_the_next_one():
    world = World(3)
    topic = world.create(assignment={0: [2, 3, 1]})
    crash_after(1, world, lambda: world.propose(2, pid(topic), [2, 3], settle=False))
    assert (world.state().isr, world.state().partition_epoch) == ((2, 3), 1)
    assert world.nodes[2].broker.states[pid(topic)].state == world.state()
    assert not any(isinstance(m, AlterIsr) for m in world.nodes[2].broker.received)
    assert [m.controller_epoch for m in world.nodes[2].broker.received if isinstance(m, LeaderAndIsr)][-1] == 2


@pytest.mark.parametrize("outcome", ["applied", "lost"])
def test_copies_of_a_topic_whose_deletion_nobody_heard_of_are_deleted(outcome: str):
    """The store has it; the brokers must hear of it without being registered anew."""
    world = World(3)
    topic = world.create(partitions=2)
    done = []

    def lose(address, call):
        ops = [op for batch in call.argument for op in batch] if call.verb == "commit_each" else []
        if not done and any(isinstance(op, Create) and op.path == layout.removed_path(topic) for op in ops):
            done.append(outcome)
            return outcome
        return None

    world.before_store = lose
    world.admin("delete_topic", name="t")
    world.settle()
    assert done == [outcome]
    assert world.store.list(layout.TOPICS) == []
    assert world.store.read(layout.removed_path(topic)) is None
    assert all(pid(topic, n) not in node.broker.copies for node in world.nodes.values() for n in (0, 1))


def test_a_wish_that_went_away_while_it_was_looked_at_is_looked_at_once_more_and_no_more():
    world = World(3)
    path = layout.delete_topic_path("ghost")
    asked = []

    def take_away(address, call):
        ops = [op for batch in call.argument for op in batch] if call.verb == "commit_each" else []
        if any(isinstance(op, Delete) and op.path == path for op in ops):
            asked.append(None)
            if world.store.read(path) is not None:
                world.store.commit([Delete(path)])

    world.before_store = take_away
    world.store.commit([Create(path, layout.encode_delete_topic(b"g" * 16))])
    world.settle()
    assert len(asked) == 1
    assert world.told("decision_given_up") == []


def test_a_broker_that_restarts_hears_nothing_of_a_topic_that_is_being_deleted():
    """It would lead the same epoch once more: nobody gives such a topic a new one (S5)."""
    world = World(3)
    topic = world.create()
    restarts = next(b for b in (1, 2, 3) if b != world.controller_id)
    path = layout.partition_state_path("t", 0)

    def hold(address, call):
        ops = [op for batch in call.argument for op in batch] if call.verb == "commit_each" else []
        return "lost" if any(isinstance(op, Delete) and op.path == path for op in ops) else None

    world.before_store = hold
    world.admin("delete_topic", name="t", settle=False)
    for _ in range(12):  # turns: it is being tried
        world.queue.popleft()()
    assert world.store.read(path) is not None
    assert world.store.read(layout.delete_topic_path("t")) is not None
    world.sent.clear()
    world.kill(restarts, settle=False)
    world.start(restarts, settle=True)
    told = [entry for _, to, message in world.sent if to == restarts and isinstance(message, LeaderAndIsr) for entry in message.entries]
    assert told == []
    assert any(to == restarts and isinstance(message, LeaderAndIsr) for _, to, message in world.sent)
    assert len(world.told("decision_given_up")) == 1
    world.before_store = lambda _address, _call: None
    world.advance(world.config.reconcile_ms)  # the next scan finds the wish
    assert world.store.list(layout.TOPICS) == []
    assert world.store.read(layout.removed_path(topic)) is None


def test_a_wish_that_was_seen_long_ago_does_not_undo_the_one_in_its_place():
    """Both have version 0: the old topic is gone, another has its name, and its deletion is under way."""
    world = World(3)
    old = world.create()
    world.admin("delete_topic", name="t")
    new = world.create()
    term = world.leader._term
    seen = DeletionsSeen((Wish(layout.delete_topic_path("t"), layout.encode_delete_topic(old), 0),))
    assert [step.ops[-1].path for step in term.controller.decide(seen).steps] == [layout.delete_topic_path("t")]
    term.cluster.apply(DeletionSet("t", new, 0))
    assert term.controller.decide(seen).steps == ()


@pytest.mark.parametrize("lost", ["notice", "answer"])
def test_a_broker_that_may_hold_what_nobody_knows_of_is_asked_before_the_deletion_is_forgotten(lost: str) -> None:
    """Broker 3 was down as its partition went. Only its complete notice finds that copy: the answer to a stop says nothing of it."""
    world = World(3)
    world.create(assignment={0: [1, 2], 1: [1, 3]}, config={"min_isr": 1})
    world.kill(3)
    assert world.admin("remove_partitions", name="t", partitions=[1]).error == 0
    dropped: list[object] = []

    def drop(sender: object, to: object, message: object) -> bool:
        is_notice = isinstance(message, LeaderAndIsr) and to == 3 and message.complete
        is_answer = isinstance(message, LeaderAndIsrAnswer) and message.broker_id == 3
        if dropped or not (is_notice if lost == "notice" else is_answer):
            return False
        dropped.append(message)
        return True

    world.drop = drop
    world.start(3, settle=True)
    assert dropped
    assert list(world.disks[3])
    assert world.admin("delete_topic", name="t").error == 0
    for _ in range(3):
        world.advance(3_000)
        for broker_id in world.nodes:
            world.heartbeat(broker_id)
    assert not list(world.disks[3])
    assert world.told("stray_kept") == []
