"""Records of elections that may have lost something: how long they stay."""

from __future__ import annotations

import pytest
from tests.unit.controller.harness import World

from replog.errors import Code
from replog.metadata import judgements, layout
from replog.metadata.wishes import encode_partition_remove
from replog.ports import Create, Delete, Put


def lost(world: World, partitions: int = 1) -> bytes:
    """A topic all of whose partitions have been led by a replica that was not in sync."""
    config = {"min_isr": 1, "unclean_leader_election": True}
    topic = world.create(assignment={number: [2, 3] for number in range(partitions)}, config=config)
    lose(world)
    return topic


def lose(world: World) -> None:
    for node in (3, 2):
        world.start(node, settle=True)
    world.kill(3)
    world.start(3, settle=True)
    world.kill(2)


def recorded(world: World, topic: bytes) -> list[str]:
    return world.store.list(f"{judgements.LOSSES}/{topic.hex()}")


@pytest.mark.parametrize("same_controller", [True, False])
def test_they_go_with_their_topic(same_controller: bool) -> None:
    world = World(4)
    topic = lost(world, 3)
    assert recorded(world, topic) == ["0", "1", "2"]
    if not same_controller:
        world.bounce(world.controller_id)
        world.advance(20_000)
    assert world.admin("delete_topic", name="t").error == Code.NONE
    assert world.store.list(judgements.LOSSES) == []
    cluster = world.leader._term.cluster
    assert (cluster.losses, cluster.loss_records) == ({}, {})


@pytest.mark.parametrize("by_path", [False, True])
def test_they_go_with_their_partition_and_the_next_of_this_number_has_lost_nothing(by_path: bool) -> None:
    world = World(4)
    topic = lost(world, 2)
    if by_path:
        world.store.commit([Create(layout.partition_remove_path("t", 1), encode_partition_remove())])
        world.settle()
    else:
        assert world.admin("remove_partitions", name="t", partitions=[1]).error == Code.NONE
    assert recorded(world, topic) == ["0"]
    assert world.admin("add_partitions", name="t", total=2).error == Code.NONE
    said = [world.admin("explain", name="t", partition=number).result["sentences"] for number in (0, 1)]
    assert ["may have been lost" in " ".join(sentences) for sentences in said] == [True, False]


def test_one_that_somebody_has_removed_is_written_anew() -> None:
    world = World(4)
    topic = lost(world)
    path = judgements.loss_path(topic, 0)
    world.store.commit([Delete(path)])
    before = len(world.told("records_may_be_lost"))
    lose(world)
    assert len(world.told("records_may_be_lost")) > before
    assert judgements.decode_loss(path, world.store.read(path).value).topic == "t"
    world.store.commit([Delete(path)])
    assert world.admin("delete_topic", name="t").error == Code.NONE
    assert world.store.list(judgements.LOSSES) == []


def test_one_that_cannot_be_removed_does_not_keep_the_topic() -> None:
    world = World(4)
    topic = lost(world)
    world.store.commit([Create(f"{judgements.loss_path(topic, 0)}/below", b"")])
    world.store.commit([Create(layout.delete_topic_path("t"), layout.encode_delete_topic(topic))])
    world.settle()
    assert world.store.read(layout.topic_path("t")) is None
    assert recorded(world, topic) == ["0"]
    assert len(world.told("topic_deleted")) == 1


def test_one_that_somebody_has_changed_goes_all_the_same() -> None:
    world = World(4)
    topic = lost(world)
    path = judgements.loss_path(topic, 0)
    world.store.commit([Put(path, world.store.read(path).value)])
    assert world.admin("delete_topic", name="t").error == Code.NONE
    assert world.store.list(judgements.LOSSES) == []
