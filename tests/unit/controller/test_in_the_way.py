"""What somebody has written where the controller writes: it costs what it is about, once, and nobody else."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.unit.controller.harness import World, pid

from replog.errors import Code
from replog.messages import AlterIsr, AlterIsrAnswer, AlterIsrEntry
from replog.metadata import judgements, layout
from replog.metadata.wishes import Meant, encode_elect, encode_replicas
from replog.model import Assignment, PartitionId
from replog.ports import Create, Put

LOSSY = {"unclean_leader_election": True, "min_isr": 1}


def placed(world: World, topic: str = "t") -> dict[int, Assignment]:
    value = world.store.read(layout.topic_path(topic))
    return layout.decode_topic(layout.topic_path(topic), value.value).partitions


def reconciled(world: World) -> None:
    """A reconcile, with everything that follows."""
    for _ in range(8):
        world.advance(5_000)
        for node in list(world.nodes):
            world.heartbeat(node)


@pytest.mark.parametrize("when", ["before", "after the record"])
def test_an_unreadable_record_of_what_may_be_lost_gives_way(when):
    world = World(3)
    topic = world.create(assignment={0: [1, 2]}, config=LOSSY)
    path = judgements.loss_path(topic, 0)
    if when == "before":
        world.store.session().commit([Create(path, b"garbage")])
        world.settle()
    world.propose(1, pid(topic), [1])
    world.kill(1)  # elected is somebody who may lack records, which is recorded
    assert (world.state().leader, world.state().recovering) == (2, True)
    if when == "before":
        assert judgements.decode_loss(path, world.store.read(path).value) is not None
    else:
        world.store.session().commit([Put(path, b"garbage")])
    assert world.create("u", replication_factor=1)
    assert world.admin("delete_topic", name="t").error == Code.NONE
    assert world.store.list(layout.TOPICS) == ["u"]
    assert world.store.read(path) is None


def test_a_wish_that_cannot_be_removed_is_not_for_the_next_topic_of_that_name():
    world = World(4)
    topic = world.create(assignment={0: [1, 2]})
    path = layout.reassigned_path("t", 0)
    world.store.session().commit([Create(path, encode_replicas((1, 3))), Create(f"{path}/below", b"")])
    world.settle()
    world.propose(1, pid(topic), [1, 2, 3])
    assert placed(world)[0].replicas == (1, 3)
    assert world.store.read(path).value == encode_replicas(None, Meant(topic, 0))
    assert world.admin("delete_topic", name="t").error == Code.NONE
    world.create(assignment={0: [2, 4]})
    reconciled(world)
    assert placed(world)[0] == Assignment((2, 4))
    assert len(world.told("wish_stuck")) == 1


def test_wishes_that_cannot_be_removed_are_found_together():
    world = World(3)
    world.create(partitions=50, replication_factor=1)
    for number in range(50):
        path = layout.elect_path("t", number)
        world.store.session().commit([Create(path, encode_elect(unclean=False)), Create(f"{path}/below", b"")])
    world.commits.clear()
    world.settle()
    assert len(world.told("wish_stuck")) == 50
    assert len(world.commits) <= 2


def test_a_wish_that_is_overwritten_with_anything_stops_no_proposal():
    world = World(4)
    topic = world.create(partitions=3, assignment={n: [1, 2] for n in range(3)})
    world.admin("reassign", partitions=[["t", n, [1, 3]] for n in range(3)])
    world.store.session().commit([Put(layout.reassigned_path("t", 1), b"{")])
    world.settle()
    broker = world.nodes[1].broker
    lives = {number: node.membership.broker_epoch for number, node in world.nodes.items()}
    entries = []
    for number in range(3):
        state = broker.states[PartitionId(topic, number, 0)].state
        isr = [(b, lives[b]) for b in (1, 2, 3)]
        entries.append(AlterIsrEntry(PartitionId(topic, number, 0), state.leader_epoch, state.partition_epoch, isr, proposal=5))
    world.send(1, ("controller", world.controller_id), AlterIsr(77, 1, lives[1], entries, broker.controller_epoch))
    world.settle()
    (answer,) = [one for one in broker.answers if isinstance(one, AlterIsrAnswer) and one.request == 77]
    assert [entry.error for entry in answer.entries] == [Code.NONE] * 3
    assert [world.state(n).isr for n in range(3)] == [(1, 3)] * 3
    reconciled(world)
    assert world.store.read(layout.reassigned_path("t", 1)) is None


@pytest.mark.parametrize("by", ["request", "path"])
def test_a_hundred_deletions_cost_a_hundred_times_one(by):
    world = World(3)
    topics = {f"t{n}": world.create(f"t{n}", replication_factor=1) for n in range(100)}
    before = Counter(world.calls)
    for name, topic_id in topics.items():
        if by == "request":
            world.admin("delete_topic", name=name, settle=False)
        else:
            world.store.session().commit([Create(layout.delete_topic_path(name), layout.encode_delete_topic(topic_id))])
    world.settle()
    assert world.store.list(layout.TOPICS) == []
    assert (world.calls - before)["list"] <= 4 * 100
    assert world.told("decision_given_up") == []


def test_a_deletion_that_is_asked_for_again_is_not_for_the_next_topic_of_that_name():
    world = World(3)
    topic = world.create()
    wish = {"name": "t", "topic_id": topic.hex()}
    assert world.admin("delete_topic", **wish).error == Code.NONE
    world.create()
    refused = world.admin("delete_topic", **wish)
    assert (refused.error, topic.hex() in refused.message) == (Code.UNKNOWN_TOPIC_OR_PARTITION, True)
    assert world.store.list(layout.TOPICS) == ["t"]
