"""What somebody has written below the node of a topic, or of a state, goes with it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.controller import harness
from tests.unit.controller.harness import World, pid

from replog.errors import Code
from replog.metadata import layout
from replog.metadata.wishes import encode_partition_remove
from replog.ports import Create, Op, Put, UnknownOutcome

TOPIC = layout.topic_path("t")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "STEPS_MAX", 10_000)


def write(world: World, *ops: Op) -> None:
    """As a tool does, which knows nothing but the store."""
    world.store.session().commit(list(ops))
    world.settle()


def clinging(world: World, path: str) -> list[str]:
    """The store refuses to remove that node, while it is in the list that is given back."""
    kept = [path]
    for node in world.nodes.values():

        def commit_each(batches: list[list[Op]], stored: Any = node.session.commit_each) -> list[Any]:
            return [UnknownOutcome("no right") if any(op.path in kept for op in ops) else stored([ops])[0] for ops in batches]

        node.session.commit_each = commit_each  # type: ignore[method-assign]
    return kept


@pytest.mark.parametrize(
    "below",
    [
        [f"{TOPIC}/stranger"],
        [f"{TOPIC}/1"],
        [f"{TOPIC}/0/stranger"],
        [f"{TOPIC}/0/leaderAndISR/stranger"],
        [f"{TOPIC}/{n}/leaderAndISR/stranger" for n in range(10)],
        [f"{TOPIC}/0/leaderAndISR/a/b/c", f"{TOPIC}/x/y/z", f"{TOPIC}/x/y", f"{TOPIC}/x", f"{TOPIC}/9/leaderAndISR/x"],
        [f"{TOPIC}/77/leaderAndISR"],
        [f"{TOPIC}{'/a' * 150}"],
    ],
)
@pytest.mark.parametrize("ephemeral", [False, True])
def test_a_topic_is_deleted_with_what_is_below_it(below: list[str], ephemeral: bool) -> None:
    world = World(3)
    t = world.create(partitions=10)
    owner = world.store.session()
    for path in below:
        if world.store.read(path) is None:
            owner.commit([Create(path, b"junk", ephemeral=ephemeral and path == below[0])])
    assert world.admin("delete_topic", name="t").error == Code.NONE
    assert world.store.list(layout.TOPICS) == []
    assert world.store.list(layout.DELETE_TOPICS) == []
    assert [p for disk in world.disks.values() for p in disk if p.topic_id == t] == []
    told = {one["path"] for one in world.told("stranger_removed")}
    assert told >= {path for path in below if path != f"{TOPIC}/1"}
    assert not any(path.endswith("/leaderAndISR") and "77" not in path for path in told), "what is the controller's is no stranger's"
    assert world.told("decision_given_up") == []
    assert world.leader._term.cluster.below == {}
    assert world.create(partitions=10)


def test_what_is_below_is_removed_in_slices() -> None:
    world = World(3, slice_partitions_max=20)
    world.create()
    for number in range(300):
        world.store.commit([Create(f"{TOPIC}/wide/{number}", b"")])
    world.commits.clear()
    runs = [0]

    def after(_address: Any, call: Any) -> None:
        if call.verb == "list":
            runs[-1] += 1
        else:
            runs.append(0)

    world.after_store = after
    assert world.admin("delete_topic", name="t").error == Code.NONE
    assert world.store.list(layout.TOPICS) == []
    assert max(runs) <= 101, "whatever is urgent does not wait for more questions"
    assert max(len(ops) for ops in world.commits) <= 21
    assert world.told("decision_given_up") == []


def test_what_is_below_many_states_is_found_together() -> None:
    world = World(3)
    world.create(partitions=50)
    for number in range(50):
        world.store.commit([Create(f"{layout.partition_state_path('t', number)}/x", b"")])
    world.commits.clear()
    assert world.admin("delete_topic", name="t").error == Code.NONE
    assert len(world.told("stranger_removed")) == 50
    assert len(world.commits) <= 8


def test_what_cannot_be_removed_from_below_is_told_once_and_stops_no_other_deletion() -> None:
    world = World(3, reconcile_ms=10_000)
    t = world.create("t")
    u = world.create("u")
    stranger = f"{TOPIC}/stranger"
    write(world, Create(stranger, b"junk"))
    kept = clinging(world, stranger)
    world.admin("delete_topic", name="t", settle=False)
    world.admin("delete_topic", name="u", settle=False)
    world.settle()
    answers = sorted((one.error, one.result.get("topic_id")) for one in world.client[2:])
    assert answers == [(Code.UNKNOWN_SERVER_ERROR, None), (Code.NONE, u.hex())], "who asked for the other is told that it is not done"
    assert world.store.list(layout.TOPICS) == ["t"]
    for _ in range(3):
        world.commits.clear()
        world.advance(10_000)
        assert 0 < sum(op.path == stranger for ops in world.commits for op in ops) <= 11
    assert [told["event"] for told in world.told("decision_given_up")] == ["FinishDeletion"]
    assert "no right" in world.told("decision_given_up")[0]["why"]
    assert world.told("store_value_unreadable") == []
    world.drop_watches = True
    write(world, Put(layout.delete_topic_path("t"), b"junk"))  # it was wished for, and is under way
    kept.clear()
    world.advance(10_000)
    assert world.store.list(layout.TOPICS) == []
    assert (len(world.client), t in world.leader._term.cluster.topics) == (4, False), "each has been answered once"
    assert world.leader._term.cluster.deletions == {}
    assert len(world.told("stranger_removed")) == 1
    assert world.leader._term._queues._given_up == set()


@pytest.mark.parametrize("by", ["request", "path"])
@pytest.mark.parametrize("many", [1, 150])
def test_a_partition_is_removed_with_what_is_below_its_state(by: str, many: int) -> None:
    world = World(3, reconcile_ms=10_000)
    t = world.create(partitions=3)
    for number in range(many):
        world.store.commit([Create(f"{layout.partition_state_path('t', 2)}/{number}", b"junk")])
    if by == "request":
        assert world.admin("remove_partitions", name="t", partitions=[1, 2]).error == Code.NONE
    else:
        write(world, *(Create(layout.partition_remove_path("t", n), encode_partition_remove()) for n in (1, 2)))
    assert sorted(world.leader._term.cluster.topics[t].assignments) == [0]
    assert world.store.list(TOPIC) == ["0"]
    assert len(world.told("stranger_removed")) == many
    assert world.told("decision_given_up") == []
    assert pid(t, 2) not in world.leader._term.cluster.states


def test_who_writes_below_a_topic_meanwhile_stops_its_deletion_only_while_he_does() -> None:
    world = World(3, reconcile_ms=10_000)
    world.create()
    left = [40]

    def before(address: Any, call: Any) -> str | None:
        deletes = call.verb == "commit_each" and any(op.path == TOPIC for ops in call.argument for op in ops)
        if deletes and left[0] and not world.store.list(f"{TOPIC}/x"):
            left[0] -= 1
            world.store.commit([Create(f"{TOPIC}/x/{left[0]}", b"")])
        return None

    world.before_store = before
    world.admin("delete_topic", name="t")
    world.advance(100_000)
    assert left == [0]
    assert world.store.list(layout.TOPICS) == []
