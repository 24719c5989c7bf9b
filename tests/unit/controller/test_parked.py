"""A partition whose state cannot be stored waits for the next `reconcile`, or for something about it to change; nobody waits for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import evolve
from tests.unit.controller import harness
from tests.unit.controller.harness import World, pid

from replog.controller.changes import Due
from replog.errors import StoreFull
from replog.metadata import layout
from replog.ports import Conflict, Create, Op, UnknownOutcome

STEPS = 3_000


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "STEPS_MAX", STEPS)


def refusing(world: World, path: str, error: Callable[[], Exception]) -> list[str]:
    """The store refuses, for good, whatever writes there: while the path is in the list that is given back."""
    refused = [path]
    for node in world.nodes.values():
        stored = node.session.commit_each

        def commit_each(batches: list[list[Op]], stored: Callable[..., list[object]] = stored) -> list[object]:
            return [error() if any(op.path in refused for op in ops) else stored([ops])[0] for ops in batches]

        node.session.commit_each = commit_each  # type: ignore[assignment]
    return refused


def tries(world: World, path: str) -> int:
    return sum(any(op.path == path for op in ops) for ops in world.commits)


def given_up(world: World) -> list[str]:
    return [told["event"] for told in world.told("decision_given_up")]


ERRORS: list[Callable[[], Exception]] = [
    lambda: StoreFull("too large"),
    lambda: UnknownOutcome("too large"),
    lambda: Conflict("/elsewhere", "it is"),
]


@pytest.mark.parametrize("error", ERRORS)
def test_an_election_that_the_store_refuses_waits_for_reconcile_and_holds_up_nobody(error: Callable[[], Exception]) -> None:
    world = World(4, reconcile_ms=10_000)
    dies = next(b for b in (1, 2) if b != world.controller_id)
    t = world.create(assignment={0: [dies, 3]})
    world.create("u", assignment={0: [dies, 3]})
    path = layout.partition_state_path("t", 0)
    refused = refusing(world, path, error)
    world.commits.clear()
    world.kill(dies)
    assert (world.state().leader, world.state(0, "u").leader) == (dies, 3)
    at_once = tries(world, path)
    assert at_once <= 11
    assert given_up(world) == ["Recheck"]
    world.kill(3)  # something about it changes: nobody is left
    assert tries(world, path) > at_once
    world.start(3, settle=True)
    world.advance(9_000)
    before = tries(world, path)
    world.create("v", assignment={0: [3, 4]})
    assert tries(world, path) == before, "what happens to others is no reason"
    world.advance(10_000)
    assert before < tries(world, path) <= before + 22
    assert given_up(world) == ["Recheck"], "told once"
    refused.clear()
    world.advance(10_000)
    assert world.state().leader == 3
    assert world.leader._term.cluster.states[pid(t)].leader == 3
    assert world.leader._term.cluster.parked == {}


def test_a_partition_below_which_nothing_can_be_stored_waits_too() -> None:
    """Somebody's session owns the node that is to be the parent of its state."""
    world = World(3, reconcile_ms=10_000)
    owner = world.store.session()
    source = world.create("s", assignment={0: [1, 2], 1: [1, 2]})
    value = layout.decode_topic(layout.topic_path("s"), world.store.read(layout.topic_path("s")).value)
    entry = layout.TopicEntry(b"x" * 16, value.config, value.partitions)
    parent = layout.partition_path("t", 1)
    owner.commit([Create(layout.topic_path("t"), layout.encode_topic(entry)), Create(parent, b"", ephemeral=True)])
    world.settle()
    assert world.state(0).leader is not None
    assert world.store.read(layout.partition_state_path("t", 1)) is None
    assert given_up(world) == ["Recheck"]
    dies = world.state(0, "s").leader
    if dies == world.controller_id:
        assert world.admin("elect") is not None
    world.kill(dies)
    world.advance(30_000)
    assert world.state(0, "s").leader not in (None, dies)
    assert set(given_up(world)) == {"Recheck"}
    owner.expire()
    world.advance(20_000)
    assert world.state(1).leader is not None
    assert source in world.leader._term.cluster.topics


def test_a_thousand_that_cannot_be_stored_delay_no_failover_by_more_than_their_own_tries() -> None:
    world = World(4, reconcile_ms=10_000, slice_partitions_max=10)
    dies = next(b for b in (1, 2) if b != world.controller_id)
    t = world.create(assignment={n: [dies, 3] for n in range(30)})
    world.create("u", assignment={n: [dies, 3] for n in range(5)})
    paths = [layout.partition_state_path("t", n) for n in range(30)]
    refused = refusing(world, paths[0], lambda: StoreFull("too large"))
    refused += paths[1:]
    world.commits.clear()
    world.kill(dies)
    assert [world.state(n, "u").leader for n in range(5)] == [3] * 5
    assert all(1 <= tries(world, path) <= 3 for path in paths), "it is no lost race: each is tried alone once"
    assert len(world.leader._term.cluster.parked) == 30
    assert sum(told["count"] for told in world.told("decision_given_up")) == 30
    assert world.admin("delete_topic", name="t", settle=False) is None
    refused.clear()
    world.settle()
    assert world.store.read(layout.topic_path("t")) is None
    assert world.leader._term.cluster.parked == {}
    assert t not in world.leader._term.cluster.topics


@pytest.mark.parametrize("error", ERRORS)
def test_a_move_whose_end_is_refused_waits(error: Callable[[], Exception]) -> None:
    """All of the target is in sync already, and what was wished instead is taken back: then a recheck completes it."""
    world = World(4, reconcile_ms=10_000)
    t = world.create(assignment={0: [1, 2], 1: [1, 2]})
    world.admin("reassign", partitions=[["t", 0, [1, 3]]])
    cluster = world.leader._term.cluster
    wish = cluster.wishes[pid(t)]
    cluster.apply(evolve(wish, target=(1, 4)))
    world.propose(1, pid(t), [1, 2, 3])
    assert set(world.state().isr) == {1, 2, 3}
    refused = refusing(world, layout.topic_path("t"), error)
    cluster.apply(wish)
    cluster.apply(Due((pid(t),)))
    world.commits.clear()
    world.heartbeat(1)
    assert 0 < tries(world, layout.topic_path("t")) <= 11
    assert list(cluster.parked) == [pid(t)]
    world.advance(25_000)
    assert given_up(world) == ["Recheck"]
    refused.clear()
    world.advance(10_000)
    assert cluster.topics[t].assignments[0].replicas == (1, 3)
    assert cluster.parked == {}


def test_a_first_state_whose_outcome_nobody_heard_is_stored() -> None:
    """It was not applied: then there is nothing to read again, and the partition is decided again all the same."""
    world = World(3)
    world.create("s", assignment={0: [1, 2]})
    value = layout.decode_topic(layout.topic_path("s"), world.store.read(layout.topic_path("s")).value)
    entry = layout.TopicEntry(b"x" * 16, value.config, value.partitions)
    lost = [1]

    def before(_address: object, call: object) -> str | None:
        if lost and call.verb == "commit_each":  # type: ignore[attr-defined]
            lost.pop()
            return "lost"
        return None

    world.before_store = before
    world.store.session().commit([Create(layout.topic_path("t"), layout.encode_topic(entry))])
    world.settle()
    assert lost == []
    assert world.state().leader is not None


def test_a_broker_that_drains_is_told_what_could_not_be_moved() -> None:
    world = World(4, reconcile_ms=10_000)
    leaves = next(b for b in (1, 2) if b != world.controller_id)
    world.create(assignment={0: [leaves, 3], 1: [leaves, 3]})
    refused = refusing(world, layout.partition_state_path("t", 1), lambda: StoreFull("too large"))
    answer = world.admin("drain", broker=leaves)
    assert answer is not None
    assert answer.result["remaining"] == [["t", 1]]
    assert (world.state(0).leader, world.state(1).leader) == (3, leaves)
    refused.clear()
    world.advance(10_000)
    assert world.state(1).leader == 3
    assert world.admin("drain", broker=leaves).result["remaining"] == []
