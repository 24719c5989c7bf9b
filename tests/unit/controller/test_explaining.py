"""What the controller says of a partition: a table of situations, each with the sentences that tell it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.controller.harness import World, pid

from replog.errors import Code
from replog.messages import ReplicasFailed
from replog.ports import LossReport


def well(world: World, topic: bytes) -> None:
    pass


def follower_gone(world: World, topic: bytes) -> None:
    world.kill(2)


def lagging(world: World, topic: bytes) -> None:
    world.propose(1, pid(topic), [1, 3])


def below_min_isr(world: World, topic: bytes) -> None:
    world.kill(2)
    world.kill(3)


def leaderless(world: World, topic: bytes) -> None:
    world.propose(1, pid(topic), [1, 3])
    world.kill(3)
    world.kill(1)


def fenced(world: World, topic: bytes) -> None:
    world.kill(2)
    world.drop = lambda _sender, to, _message: to == 2
    world.start(2, settle=True)


def at_the_endpoint_of_another(world: World, topic: bytes) -> None:
    for broker in (2, 3):
        world.kill(broker)
    world.drop = lambda _sender, to, _message: to == 2
    for broker in (3, 2):
        world.start(broker, settle=True, endpoints=("tcp://a:1",))


def lossy(world: World, topic: bytes) -> None:
    world.kill(2)
    world.drop = lambda _sender, to, _message: to == 2
    world.start(2, loss=LossReport("power", (pid(topic),)), settle=True)


def broken(world: World, topic: bytes) -> None:
    world.send(2, ("controller", world.controller_id), ReplicasFailed(2, world.nodes[2].broker.broker_epoch, "I/O error", [pid(topic)]))
    world.settle()


def last_known_gone_or_with_a_failed_disk(world: World, topic: bytes) -> None:
    last_known_with_a_failed_disk(world, topic)
    world.kill(3)


def broken_below_min_isr(world: World, topic: bytes) -> None:
    for broker in (2, 3):
        failed = ReplicasFailed(broker, world.nodes[broker].broker.broker_epoch, "I/O error", [pid(topic)])
        world.send(broker, ("controller", world.controller_id), failed)
        world.settle()


def draining(world: World, topic: bytes) -> None:
    world.admin("drain", broker=2)


def draining_and_alone(world: World, topic: bytes) -> None:
    world.propose(1, pid(topic), [1])
    world.admin("drain", broker=1)


def preferred_is_not_the_leader(world: World, topic: bytes) -> None:
    world.kill(1)
    world.start(1, settle=True)
    world.propose(2, pid(topic), [2, 3, 1])


def unclean(world: World, topic: bytes) -> None:
    leaderless(world, topic)
    world.admin("elect", partitions=[["t", 0]], unclean=True)


def leaderless_with_a_failed_disk(world: World, topic: bytes) -> None:
    world.propose(1, pid(topic), [1, 3])
    world.kill(3)
    world.send(1, ("controller", world.controller_id), ReplicasFailed(1, world.nodes[1].broker.broker_epoch, "I/O error", [pid(topic)]))
    world.settle()


def last_known_with_a_failed_disk(world: World, topic: bytes) -> None:
    last_known(world, topic)
    world.send(1, ("controller", world.controller_id), ReplicasFailed(1, world.nodes[1].broker.broker_epoch, "I/O error", [pid(topic)]))
    world.settle()


def last_known(world: World, topic: bytes) -> None:
    world.propose(1, pid(topic), [1, 3])
    for broker in (1, 3):
        world.kill(broker)
    world.start(1, loss=LossReport("power", (pid(topic),)), settle=True)
    world.drop = lambda _sender, to, _message: to == 3
    world.start(3, loss=LossReport("power", (pid(topic),)), settle=True)


SITUATIONS: dict[Callable[[World, bytes], None], tuple[list[str], list[str]]] = {
    well: (
        ["Broker 1 leads t-0, in epoch 0.", "In sync are brokers 1, 2, 3: 3 of 3 replicas; min_isr is 2."],
        ["not in sync", "too few", "lost", "moved", "preferred"],
    ),
    follower_gone: (["In sync are brokers 1, 3: 2 of 3", "Broker 2 is not in sync: it is not registered"], ["too few", "ELR", "lost"]),
    lagging: (["Broker 2 is not in sync: it has yet to catch up with the leader."], ["fenced", "ELR", "lost"]),
    below_min_isr: (
        ["In sync is broker 1: 1 of 3", "Those are too few: acks=all is refused", "until 1 more replica is in sync",
         "Start brokers 2 or 3.", "Broker 3 is not in sync: it is not registered",
         "It is eligible all the same (ELR): it holds everything that was committed."],
        ["Nobody leads", "lost records"],
    ),
    leaderless: (
        ["Nobody leads t-0, in epoch 1", "It waits for brokers 1 or 3: who is eligible (ELR)", "Start brokers 1 or 3.",
         "an unclean election of t-0 takes broker 2, and loses the records that are not there",
         "Broker 2 is not in sync: it is live, but may miss"],
        ["In sync"],
    ),
    fenced: (["Broker 2 is not in sync: it is fenced: it has yet to apply the controller's first notice"], ["lost records"]),
    at_the_endpoint_of_another: (
        ["Broker 2 is not in sync: it is fenced: it is said to be reached at tcp://a:1, as broker 3 is; one of them has to"],
        ["Broker 3 is not in sync: it is fenced"],
    ),
    lossy: (["Broker 2 is not in sync: it is fenced", "and it has lost records of this partition."], []),
    broken: (["Broker 2 is not in sync: its disk has failed under this copy, and it has lost records"], []),
    draining: (["Broker 2 is not in sync: it is draining."], ["too few"]),
    draining_and_alone: (
        ["Broker 1 is draining, and leads because nobody else is in sync", "Those are too few"], ["Nobody leads", "Start"],
    ),
    broken_below_min_isr: (
        ["until 1 more replica is in sync", "Repair the disk of brokers 2 or 3 and start them again."], ["Start", "room"],
    ),
    preferred_is_not_the_leader: (["Broker 2 leads t-0, in epoch 1", "The preferred leader, broker 1, is in sync: electing it"], []),
    unclean: (
        ["Broker 2 leads t-0, in epoch 2", "was elected although records may be missing there: until it has recovered nobody joins",
         "Records may have been lost in epoch 2: broker 2 was elected although others may have held more; away: brokers 1 and 3."],
        ["Nobody leads"],
    ),
    last_known: (
        ["Nobody leads t-0", "No replica is known to be complete. The last that were are brokers 1 and 3; it waits until all are live",
         "Broker 3 is not in sync: it is fenced", "an unclean election of t-0 takes brokers 1 or 2"],
        ["In sync", "ELR", "Start"],
    ),
    leaderless_with_a_failed_disk: (
        ["It waits for broker 3: who is eligible", "Start broker 3.", "Broker 1 is not in sync: its disk has failed"],
        ["Repair"],
    ),
    last_known_with_a_failed_disk: (
        ["The last that were are brokers 1 and 3", "Repair the disk of broker 1 and start it again."],
        ["Start broker"],
    ),
    last_known_gone_or_with_a_failed_disk: (
        ["The last that were are brokers 1 and 3", "Start broker 3, and repair the disk of broker 1 and start it again."], [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda one: one.__name__)
def test_a_situation_is_told(situation):
    world = World(4, ack_timeout_ms=3_000)
    topic = world.create(assignment={0: [1, 2, 3]}, config={"min_isr": 2})
    situation(world, topic)
    world.drop = lambda _sender, _to, _message: False
    answer = world.admin("explain", name="t", partition=0)
    assert answer.error == Code.NONE
    text = "\n".join(answer.result["sentences"])
    says, does_not_say = SITUATIONS[situation]
    for part in says:
        assert part in text
    for part in does_not_say:
        assert part not in text
    assert all(line.endswith(".") and line[0].isupper() for line in answer.result["sentences"])
    assert {int(b) for b in answer.result["missing"]} == {1, 2, 3} - set(world.state().isr)


def test_who_has_no_room_is_not_to_be_started():
    world = World(3)
    for broker in (2, 3):
        world.nodes[broker].broker.full = True
    world.create(assignment={0: [2, 3]}, config={"min_isr": 1})
    sentences = world.admin("explain", name="t", partition=0).result["sentences"]
    assert "Make room on the disk of brokers 2 or 3." in sentences
    assert not [one for one in sentences if "tart" in one]


def test_room_is_made_only_where_it_is_waited_for():
    world = World(4)
    world.nodes[2].broker.full = True
    world.create(assignment={0: [2, 3, 4]}, config={"min_isr": 2})
    for broker in (3, 4):
        world.kill(broker)
    sentences = world.admin("explain", name="t", partition=0).result["sentences"]
    assert [one for one in sentences if "tart" in one or "room on" in one] == ["Start brokers 3 or 4."]


def test_what_was_lost_is_told_by_the_next_controller_too():
    world = World(4)
    topic = world.create(assignment={0: [1, 2, 3]}, config={"min_isr": 2})
    unclean(world, topic)
    world.kill(world.controller_id)
    answer = world.admin("explain", name="t", partition=0)
    text = "\n".join(answer.result["sentences"])
    assert "Records may have been lost in epoch 2" in text
    assert answer.result["since_ms"] is None


def test_nobody_is_not_called_elected():
    world = World(4)
    topic = world.create(assignment={0: [1, 2, 3]}, config={"min_isr": 2})
    unclean(world, topic)
    world.kill(world.state().leader)
    assert (world.state().leader, world.state().recovering) == (None, True)
    answer = world.admin("explain", name="t", partition=0)
    assert not [sentence for sentence in answer.result["sentences"] if "None" in sentence]


def test_since_when_is_known_for_what_this_term_has_seen():
    world = World(3)
    world.create(assignment={0: [2, 1, 3]})
    world.leader.tick(world.now_ms, 1_700_000_000_000)
    world.kill(2)
    answer = world.admin("explain", name="t", partition=0)
    assert answer.result["sentences"][0] == "Broker 1 leads t-0, in epoch 1."
    assert answer.result["since_ms"] == 1_700_000_000_000
    world.kill(1)
    answer = world.admin("explain", name="t", partition=0)
    assert answer.result["leader"] == 3


def test_nothing_is_remembered_of_what_is_gone():
    world = World(3)
    world.create(partitions=5)
    assert len(world.leader._term.controller.led_since) == 5
    world.admin("delete_topic", name="t")
    assert world.leader._term.controller.led_since == {}


def test_a_partition_that_never_had_a_leader():
    world = World(3)
    world.create(assignment={0: [1]})
    world.kill(3)
    world.drop = lambda _sender, to, _message: to == 3
    world.start(3, settle=True)
    world.admin("create_topic", name="u", assignment={0: [3]}, settle=False)
    world.settle()
    answer = world.admin("explain", name="u", partition=0)
    assert answer.result["sentences"][0] == "u-0 has never had a leader: none of its replicas has been live yet."
    assert "Broker 3 is not in sync: it is fenced" in answer.result["sentences"][1]
    world.kill(3)
    assert world.admin("explain", name="u", partition=0).result["sentences"][1] == "Start broker 3."


@pytest.mark.parametrize(("arguments", "code"), [
    ({"name": "none", "partition": 0}, Code.UNKNOWN_TOPIC_OR_PARTITION),
    ({"name": "t", "partition": 9}, Code.UNKNOWN_TOPIC_OR_PARTITION),
    ({"name": "t", "partition": "0"}, Code.INVALID_REQUEST),
    ({"name": "t"}, Code.INVALID_REQUEST),
    ({"name": "a b", "partition": 0}, Code.INVALID_TOPIC),
])  # fmt: skip
def test_bad_questions(arguments, code):
    world = World(1)
    world.create()
    assert world.admin("explain", **arguments).error == code
