"""What a look at the topics costs where little has changed, and what it finds out all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.controller.harness import World, pid

from replog.config import TopicConfig
from replog.controller import nodes
from replog.controller.changes import Topic, TopicSet
from replog.controller.cluster import Cluster
from replog.controller.reading import DECODED_MAX, Reader, Script
from replog.errors import ReplogError, StoreCorrupt
from replog.metadata import layout
from replog.model import Assignment, PartitionState
from replog.ports import Delete, Put, UnknownOutcome, Versioned

TOPICS = 12


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths whose topics, or states, have been decoded."""
    paths: list[str] = []

    def noting(decode: Callable[..., Any]) -> Callable[..., Any]:
        return lambda path, value: (paths.append(path), decode(path, value))[1]

    monkeypatch.setattr(layout, "decode_topic", noting(layout.decode_topic))
    monkeypatch.setattr(layout, "decode_partition_state", noting(layout.decode_partition_state))
    return paths


def world_of_topics(**config: Any) -> World:
    world = World(3, reconcile_ms=30_000, **config)
    for number in range(TOPICS):
        world.create(f"t{number:02}", partitions=1)
    return world


# ------------------------------------------------------------------------------------------------------------ what it costs


def test_a_topic_that_comes_or_goes_costs_no_decoding_of_the_others(decoded: list[str]) -> None:
    world = world_of_topics()
    decoded.clear()
    world.create("another", partitions=1)
    world.admin("delete_topic", name="t03")
    assert decoded == []
    tool = Topic("tool", b"t" * 16, TopicConfig(min_isr=1), {0: Assignment((1,))})
    world.store.commit([nodes.create(tool)])
    world.settle()
    assert decoded == [layout.topic_path("tool")]
    assert world.state(0, "tool").leader == 1


def test_a_reconcile_decodes_nothing_where_nothing_has_changed(decoded: list[str]) -> None:
    world = world_of_topics()
    world.admin("alter_topic", name="t05", config={"min_isr": 2})
    decoded.clear()
    world.calls.clear()
    world.advance(60_000)
    assert world.calls["read_each"] > 0
    assert decoded == []


def test_the_next_controller_decodes_every_topic_once(decoded: list[str]) -> None:
    world = world_of_topics()
    decoded.clear()
    world.kill(world.controller_id)
    world.advance(1_000)
    assert sorted(path for path in decoded if path.count("/") == 3) == [layout.topic_path(f"t{n:02}") for n in range(TOPICS)]


def test_no_turn_decodes_more_than_a_slice(decoded: list[str]) -> None:
    names = [f"t{number:04}" for number in range(2 * DECODED_MAX + 1)]
    values = {layout.topic_path(name): nodes.create(a_topic(name)).value for name in names}
    state = layout.encode_partition_state(PartitionState(1, 0, (1,)))
    script, answer, turns = Reader(10_000, lambda _told: None).topics(Cluster()), None, []
    while True:
        decoded.clear()
        try:
            verb, argument = script.send(answer)
        except StopIteration as end:
            seen = end.value
            break
        turns.append(len(decoded))
        found = {"list": lambda _path: names, "watch": lambda _path: None}
        found["read_each"] = lambda paths: [Versioned(values.get(path, state), 0, 1) for path in paths]
        answer = found[verb](argument)
    assert (len(seen.topics), len(seen.states)) == (len(names), len(names))
    assert (max(turns), sum(turns) + len(decoded)) == (DECODED_MAX, 2 * len(names))


def a_topic(name: str) -> Topic:
    return Topic(name, name.encode().rjust(16, b"-"), TopicConfig(min_isr=1), {0: Assignment((1,))})


# ------------------------------------------------------------------------------------------------------- what it finds out


@pytest.mark.parametrize("is_watched", [True, False])
@pytest.mark.parametrize("is_together", [True, False])
def test_a_topic_that_was_made_anew_between_two_looks_is_another_one(is_watched: bool, is_together: bool) -> None:
    world = world_of_topics()
    old = world.leader._term.cluster.names["t03"]
    new = Topic("t03", b"n" * 16, TopicConfig(min_isr=1), {0: Assignment((2,))})
    path = layout.topic_path("t03")
    value = world.store.read(path)
    assert value is not None
    world.drop_watches = not is_watched
    world.store.commit([Delete(layout.partition_state_path("t03", 0))])
    for ops in [[Delete(path), nodes.create(new)]] if is_together else [[Delete(path)], [nodes.create(new)]]:
        world.store.commit(ops)
    made = world.store.read(path)
    assert made is not None
    assert made.version == value.version
    world.settle()
    world.drop_watches = False
    world.advance(0 if is_watched else 30_000)
    assert [told["topic_id"] for told in world.told("topic_vanished")] == [old.hex()]
    assert world.leader._term.cluster.names["t03"] == new.topic_id
    assert world.state(0, "t03").leader == 2
    assert pid(new.topic_id) in world.nodes[2].broker.states
    assert all(pid(old) not in node.broker.states for node in world.nodes.values())


def test_what_is_written_over_a_topic_that_is_known_is_told_once_and_stays_known() -> None:
    world = world_of_topics()
    topic, path = world.leader._term.cluster.names["t03"], layout.topic_path("t03")
    good = world.store.read(path)
    assert good is not None
    world.store.commit([Put(path, b"junk")])
    world.advance(60_000)
    assert [told["path"] for told in world.told("store_value_unreadable")] == [path]
    assert world.leader._term.cluster.names["t03"] == topic
    world.store.commit([Put(path, good.value)])
    world.advance(30_000)
    assert not world.leader._reader.unreadable
    assert world.told("topic_vanished") == []


# ------------------------------------------------------------------------------------------------------------ by the reader


def run(script: Script, values: dict[str, Versioned], failing: dict[str, ReplogError] | None = None) -> Any:
    """What a script returns over these topics; reading some of them fails."""
    answer, error = None, None
    while True:
        try:
            verb, argument = script.send(answer) if error is None else script.throw(error)
        except StopIteration as end:
            return end.value
        error = next((why for path, why in (failing or {}).items() if verb == "read_each" and path in argument), None)
        if verb == "list":
            answer = sorted(path.rpartition("/")[2] for path in values)
        else:
            answer = [values.get(path) for path in argument] if verb == "read_each" else None


def test_a_value_that_cannot_be_read_is_decoded_again_although_its_version_is_known() -> None:
    """It has changed in its place, on the disk of the store: nobody has written it."""
    topic, reader, known = a_topic("t"), Reader(10, lambda _told: None), Cluster()
    path, value = layout.topic_path("t"), nodes.create(topic).value
    run(reader.topics(known), {path: Versioned(b"junk", 0, 7)})
    assert list(reader.unreadable) == [path]
    known.apply(TopicSet(Topic("t", topic.topic_id, topic.config, topic.assignments, created=7)))
    assert run(reader.topics(known), {path: Versioned(b"junk", 0, 7)}).gone == ()
    assert list(reader.unreadable) == [path]
    run(reader.topics(known), {path: Versioned(value, 0, 7)})
    assert not reader.unreadable


@pytest.mark.parametrize("is_refused", [True, False])
def test_a_reading_that_is_broken_off_has_not_found_out_that_a_topic_can_be_read_again(is_refused: bool) -> None:
    """Whoever looks closer because of it has not got it yet."""
    reader, known = Reader(1, lambda _told: None), Cluster()
    first, second = (layout.topic_path(name) for name in "ab")
    good = {path: Versioned(nodes.create(a_topic(path[-1])).value, 0, 7) for path in (first, second)}
    bad = good if is_refused else {**good, first: Versioned(b"junk", 0, 7)}
    run(reader.topics(known), bad, {first: StoreCorrupt(first, "checksum")} if is_refused else None)
    with pytest.raises(UnknownOutcome):
        run(reader.topics(known), good, {second: UnknownOutcome("connection lost")})
    assert reader.is_blind(known)
    assert len(run(reader.topics(known), good).topics) == 2
    assert not reader.is_blind(known)


def test_a_name_that_no_topic_can_have_is_told_and_left_out() -> None:
    reader, known = Reader(10, lambda _told: None), Cluster()
    strange = f"{layout.TOPICS}/no topic"
    good = {layout.topic_path("a"): Versioned(nodes.create(a_topic("a")).value, 0, 7)}
    seen = run(reader.topics(known), {**good, strange: good[layout.topic_path("a")]})
    assert [topic.topic for topic in seen.topics] == ["a"]
    assert list(reader.unreadable) == [strange]
    assert reader.hidden(known).topics == {"a"}


def test_a_topic_of_that_name_is_not_taken_for_the_one_that_is_known() -> None:
    """At the same version: of another creation, or of one that nobody knows; at the same creation: of another version."""
    reader, known, other = Reader(10, lambda _told: None), Cluster(), a_topic("u")
    value = nodes.create(other).value
    for created, there in ((7, Versioned(value, 0, 8)), (None, Versioned(value, 0, 7)), (7, Versioned(value, 1, 7))):
        topic = a_topic("t")
        known.apply(TopicSet(Topic("t", topic.topic_id, topic.config, topic.assignments, created=created)))
        seen = run(reader.topics(known), {layout.topic_path("t"): there})
        assert ([t.topic_id for t in seen.topics], seen.gone) == ([other.topic_id], (topic.topic_id,))
