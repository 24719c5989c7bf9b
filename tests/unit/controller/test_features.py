"""The feature level of a cluster: raised once everybody supports it, and never lowered (KIP-584)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.controller.harness import World

from replog.codec import decode, encode
from replog.errors import Code
from replog.features import Levels
from replog.messages import Admin
from replog.metadata import layout
from replog.ports import Put

NEXT = Levels(1, 2)


def upgrade(world: World, *nodes: int, supports: Levels = NEXT) -> None:
    """One after the other: stopped, and started as a later version."""
    for node in nodes:
        world.kill(node)
        world.start(node, settle=True, supports=supports)


def upgraded(brokers: int = 3, supports: Levels = NEXT) -> World:
    """A cluster of level 1 of which everybody supports more."""
    world = World(brokers)
    upgrade(world, *range(1, brokers + 1), supports=supports)
    return world


def stored(world: World) -> int:
    value = world.store.read(layout.CLUSTER)
    assert value is not None
    return layout.decode_cluster("", value.value).feature_level


def levels(world: World) -> list[int]:
    """As each broker's process knows it."""
    return [node.membership.feature_level for _, node in sorted(world.nodes.items())]


def raised(world: World, level: object) -> tuple[int, str]:
    answer = world.admin("raise_feature_level", level=level)
    assert answer is not None
    return answer.error, answer.message


def described(world: World) -> dict[str, Any]:
    answer = world.admin("describe_features")
    assert answer is not None
    assert answer.error == Code.NONE, answer.message
    return answer.result


def test_a_cluster_is_upgraded_broker_by_broker_and_then_raised():
    world = World(3)
    upgrade(world, 1, 3)
    assert described(world)["brokers"] == {1: [1, 2], 2: [1, 1], 3: [1, 2]}
    assert raised(world, 2) == (Code.FEATURE_UPDATE_FAILED, "feature level 2 is not supported by broker 2 (level 1)")
    assert (stored(world), levels(world)) == (1, [1, 1, 1])
    upgrade(world, 2)
    assert raised(world, 2) == (Code.NONE, "")
    assert (stored(world), levels(world)) == (2, [2, 2, 2])
    assert [(told["before"], told["level"]) for told in world.told("feature_level_raised")] == [(1, 2)]
    assert described(world)["level"] == 2


def test_whoever_comes_back_as_an_older_version_is_refused():
    world = upgraded()
    assert raised(world, 2) == (Code.NONE, "")
    upgrade(world, 1, supports=Levels(1, 1))
    assert world.nodes[1].membership.broker_epoch == -1
    assert "the cluster has feature level 2; this version of replog supports level 1" in (world.nodes[1].membership.refused or "")
    assert sorted(described(world)["brokers"]) == [2, 3]


def test_a_level_that_the_cluster_has_is_fine_and_stores_nothing():
    world = upgraded()
    assert raised(world, 2) == (Code.NONE, "")
    world.commits.clear()
    assert raised(world, 2) == (Code.NONE, "")
    assert world.commits == []
    assert len(world.told("feature_level_raised")) == 1


def test_it_never_goes_back():
    world = upgraded()
    assert raised(world, 2) == (Code.NONE, "")
    code, text = raised(world, 1)
    assert code == Code.FEATURE_UPDATE_FAILED
    assert "has feature level 2 and cannot go back to 1" in text
    assert stored(world) == 2


@pytest.mark.parametrize("level", [None, "2", 2.0, True, 0, -1, 2**31])
def test_what_is_no_level_is_refused(level: object):
    world = upgraded(1)
    code, text = raised(world, level)
    assert code == Code.INVALID_REQUEST
    assert repr(level) in text
    assert stored(world) == 1


@pytest.mark.parametrize("fault", ["lost", "applied"])
def test_an_outcome_that_nobody_heard_is_looked_up(fault: str):
    world = upgraded()
    faults = [fault]

    def before(_address: Any, call: Any) -> str | None:
        is_raise = call.verb == "commit_each" and any(op.path == layout.CLUSTER for ops in call.argument for op in ops)
        return faults.pop() if is_raise and faults else None

    world.before_store = before
    assert raised(world, 2) == (Code.NONE, "")
    assert faults == []
    assert (stored(world), levels(world)) == (2, [2, 2, 2])


def test_a_record_that_has_changed_underneath_is_read_again():
    world = upgraded()
    value = world.store.read(layout.CLUSTER)
    assert value is not None
    world.store.commit([Put(layout.CLUSTER, value.value)])
    assert raised(world, 2) == (Code.NONE, "")
    assert stored(world) == 2


def test_two_who_raise_it_at_once():
    world = upgraded(supports=Levels(1, 3))
    for level in (2, 3, 2, 3):
        world.admin("raise_feature_level", level=level, settle=False)
    world.settle()
    assert [answer.error for answer in world.client] == [Code.NONE, Code.NONE, Code.FEATURE_UPDATE_FAILED, Code.NONE]
    assert levels(world) == [3, 3, 3]
    assert [told["level"] for told in world.told("feature_level_raised")] == [2, 3]


def test_the_next_controller_knows_the_level():
    world = upgraded()
    assert raised(world, 2) == (Code.NONE, "")
    world.kill(world.controller_id)
    assert described(world)["level"] == 2
    assert raised(world, 1)[0] == Code.FEATURE_UPDATE_FAILED


def test_a_broker_that_registers_at_the_same_moment_leaves_again():
    """The controller that raises has not heard of it yet."""
    world = upgraded(2)
    epochs: list[int] = []

    def before(_address: Any, call: Any) -> None:
        is_raise = call.verb == "commit_each" and any(op.path == layout.CLUSTER for ops in call.argument for op in ops)
        if is_raise and not epochs:
            late = world.start(3, settle=True, supports=Levels(1, 1))
            epochs.append(late.membership.broker_epoch)

    world.before_store = before
    assert raised(world, 2) == (Code.NONE, "")
    assert epochs[0] > 0, "it was registered first"
    assert world.nodes[3].membership.broker_epoch == -1
    assert "feature level 2" in (world.nodes[3].membership.refused or "")
    assert sorted(described(world)["brokers"]) == [1, 2]


T0 = 1_700_000_000_000


def tell_time(world: World, wall_ms: int) -> None:
    """Everybody hears what time it is."""
    world.wall_ms = wall_ms
    for node in world.nodes.values():
        world._tick(node)
    world.settle()


def test_who_answers_says_who_it_is_and_since_when():
    world = World(3)
    said = described(world)["controller"]
    assert said == {"broker": world.controller_id, "epoch": 1, "since_ms": None, "queued_events": 0, "due_partitions": 0}, "no clock yet"
    tell_time(world, T0)
    world.now_ms += 20_000  # nothing is due at the others meanwhile, so nobody tells them the time
    world.kill(world.controller_id)
    took_ms = T0 + 20_000
    said = described(world)["controller"]
    assert (said["broker"], said["epoch"], said["since_ms"]) == (world.controller_id, 2, took_ms)
    tell_time(world, T0 + 50_000)
    assert described(world)["controller"]["since_ms"] == took_ms


def test_an_older_client_finds_what_it_takes_from_an_answer():
    """These names, whatever else there is."""
    answer = World(1).admin("describe_features")
    assert answer is not None
    assert {"cluster_id", "level", "brokers"} < answer.result.keys()
    assert decode(b"".join(encode(answer))) == answer


def test_a_term_that_has_to_load_again_began_before_that():
    world = World(3)
    tell_time(world, T0)
    who: list[Any] = []

    def before(address: Any, call: Any) -> str | None:
        """The first look of the new term is in vain."""
        if not who and call.verb == "commit" and any(op.path == layout.CONTROLLER_EPOCH for op in call.argument):
            who.append(address)
        elif who == [address] and call.verb.startswith("read"):
            who.append("its look")
            return "lost"
        return None

    world.before_store = before
    world.kill(world.controller_id)
    world.wall_ms = T0 + 5_000
    world.advance(5_000)
    assert len(world.told("store_outcome_unknown")) == 1
    assert described(world)["controller"]["since_ms"] == T0


def test_what_is_ahead_of_a_question_is_counted_when_it_comes():
    """By the time that it is answered nothing urgent is left, and nothing that was asked before it."""
    world = World(3)
    for number in range(3):
        world.admin("create_topic", name=f"t{number}", replication_factor=1, settle=False)
    world.admin("describe_features", settle=False)
    world.settle()
    assert [answer.result["controller"]["queued_events"] for answer in world.client if "controller" in answer.result] == [3]
    assert described(world)["controller"]["queued_events"] == 0


def test_partitions_that_wait_for_a_decision_are_counted_one_by_one():
    world = World(3, slice_partitions_max=10)
    world.create(partitions=30)
    world.kill(next(n for n in world.nodes if n != world.controller_id), settle=False)
    term = world.leader._term
    assert term is not None
    while not term.cluster.due:
        world.queue.popleft()()
    due = len(term.cluster.due)
    world.give(world.nodes[world.controller_id], ("controller", world.controller_id), "client", Admin(9, "describe_features", {}))
    world.settle()
    assert due > 10
    assert world.client[-1].result["controller"]["due_partitions"] == due
    assert described(world)["controller"]["due_partitions"] == 0


def test_a_record_that_cannot_be_read_stops_nothing_else():
    world = upgraded()
    world.store.commit([Put(layout.CLUSTER, b"{")])
    world.kill(world.controller_id)
    answer = world.admin("raise_feature_level", level=2)
    assert answer is not None
    assert answer.error == Code.UNKNOWN_SERVER_ERROR
    assert layout.CLUSTER in answer.message
    assert layout.CLUSTER in [told["path"] for told in world.told("store_value_unreadable")]
    world.create()
    assert world.state().leader is not None


def test_a_record_that_is_mended_is_read_again_by_the_same_controller():
    world = upgraded()
    record = world.store.read(layout.CLUSTER)
    assert record is not None
    world.store.commit([Put(layout.CLUSTER, b"{")])
    world.kill(world.controller_id)
    assert raised(world, 2)[0] == Code.UNKNOWN_SERVER_ERROR
    controller = world.controller_id
    world.store.commit([Put(layout.CLUSTER, record.value)])
    world.advance(world.config.reconcile_ms)
    assert raised(world, 2) == (Code.NONE, "")
    assert (stored(world), world.controller_id) == (2, controller)
