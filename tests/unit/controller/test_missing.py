"""Topics that brokers ask for because a client seeks them: made once, as the configuration says, or refused with a reason."""

from __future__ import annotations

import pytest
from tests.unit.controller.harness import World

from replog.errors import Code
from replog.metadata import layout
from replog.model import Assignment
from replog.ports import Create

ON = {"auto_create_topics": True}


def entry(world: World, name: str = "t") -> layout.TopicEntry:
    value = world.store.read(layout.topic_path(name))
    assert value is not None
    return layout.decode_topic("", value.value)


def test_it_is_made_as_create_topic_makes_it_and_told():
    world = World(3, **ON)
    answer = world.admin("create_missing_topic", name="t")
    assert (answer.error, answer.origin) == (Code.NONE, 7)
    assert entry(world).config == {"min_isr": 2}
    assert [len(a.replicas) for a in entry(world).partitions.values()] == [3]
    assert world.state().leader is not None
    (told,) = world.told("topic_auto_created")
    assert (told["topic"], told["topic_id"]) == ("t", entry(world).topic_id.hex())


def test_the_configuration_says_how():
    world = World(4, **ON, auto_create_partitions=5, auto_create_replication_factor=4, auto_create_min_isr=3)
    assert world.admin("create_missing_topic", name="t").error == Code.NONE
    assert entry(world).config == {"min_isr": 3}
    assert [len(a.replicas) for a in entry(world).partitions.values()] == [4] * 5


def test_however_many_ask_it_is_made_once():
    world = World(3, **ON)
    world.commits.clear()
    for _ in range(20):
        world.admin("create_missing_topic", name="t", settle=False)
    world.settle()
    assert [a.error for a in world.client] == [Code.NONE] * 20
    assert len(world.commits) == 1
    assert len(world.told("topic_auto_created")) == 1
    world.create("s")
    before = entry(world, "s")
    assert world.admin("create_missing_topic", name="s").error == Code.NONE  # it exists: that is all that was wished
    assert entry(world, "s") == before


@pytest.mark.parametrize(
    ("config", "name", "code", "said"),
    [
        ({"auto_create_topics": False}, "t", Code.POLICY_VIOLATION, "auto_create_topics off"),
        ({"auto_create_topics_max": 1}, "t", Code.POLICY_VIOLATION, "there are 1 topics; the limit is 1 (auto_create_topics_max)"),
        ({}, "a b", Code.INVALID_TOPIC, "'a b'"),
        ({}, None, Code.INVALID_TOPIC, "None"),
        ({"auto_create_replication_factor": 4}, "t", Code.INVALID_REPLICATION_FACTOR, "4; allowed are 1 to 3"),
        ({"auto_create_min_isr": 4}, "t", Code.INVALID_CONFIG, "min_isr is 4; allowed are 1 to 3"),
        ({"auto_create_partitions": 100, "topic_bytes_max": 256}, "t", Code.INVALID_PARTITIONS, "topic_bytes_max"),
        ({"auto_create_partitions": 100, "topic_partitions_max": 50}, "t", Code.INVALID_PARTITIONS, "allowed are 1 to 50"),
    ],
)
def test_what_cannot_be_made_is_refused_with_the_value_and_the_limit(config, name, code, said):
    world = World(3, **{**ON, **config})
    world.create("first")
    answer = world.admin("create_missing_topic", name=name)
    assert answer.error == code
    assert said in answer.message
    assert world.store.list(layout.TOPICS) == ["first"]
    assert world.told("topic_auto_created") == []


def test_more_partitions_than_a_slice_are_made_slice_by_slice():
    world = World(3, **ON, auto_create_partitions=7, slice_partitions_max=3)
    assert world.admin("create_missing_topic", name="t").error == Code.NONE
    assert all(world.state(p).leader is not None for p in range(7))
    assert len(world.told("topic_auto_created")) == 1


def test_a_conflict_is_no_second_topic():
    """Another controller's topic of that name is in the store, and this one has not seen it."""
    world = World(3, **ON)
    world.drop_watches = True
    value = layout.encode_topic(layout.TopicEntry(b"o" * 16, {"min_isr": 1}, {0: Assignment((1,))}))
    world.store.commit([Create(layout.topic_path("t"), value)])
    assert world.admin("create_missing_topic", name="t").error == Code.NONE
    assert entry(world).topic_id == b"o" * 16
    assert world.told("topic_auto_created") == []


def test_a_creation_whose_outcome_nobody_heard_is_answered_and_made_once():
    world = World(3, **ON)
    seen = []

    def unheard(address, call):
        made = call.verb == "commit_each" and any(op.path == layout.topic_path("t") for batch in call.argument for op in batch)
        if made:
            seen.append(call)
        return "applied" if made and len(seen) == 1 else None

    world.before_store = unheard
    world.admin("create_missing_topic", name="t", settle=False)
    world.settle()
    world.advance(10_000)
    assert [a.error for a in world.client] == [Code.NONE]
    assert len(seen) == 1
    assert world.state().leader is not None
