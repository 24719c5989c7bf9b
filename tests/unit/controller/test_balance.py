"""Leaderships go back to preferred leaders by themselves, where too many are away; in slices, and behind everything urgent."""

from __future__ import annotations

import pytest
from tests.unit.controller.harness import World, pid

from replog.config import BrokerConfig
from replog.controller.balance import Rhythm, misplaced
from replog.controller.changes import StateSet, Topic, TopicSet
from replog.controller.cluster import Cluster
from replog.errors import Code, UsageError
from replog.metadata import layout
from replog.model import Assignment, PartitionState


def cluster_of(leaders: dict[int, tuple[int | None, int]]) -> Cluster:
    """{partition: (leader, preferred leader)}."""
    cluster = Cluster()
    topic = Topic("t", bytes(16), None, {p: Assignment((first, 9)) for p, (_, first) in leaders.items()})  # type: ignore[arg-type]
    cluster.apply(TopicSet(topic))
    for p, (leader, _) in leaders.items():
        cluster.apply(StateSet(topic.identity(p), PartitionState(leader, 0, () if leader is None else (leader,))))
    return cluster


@pytest.mark.parametrize(("leaders", "limit", "expected"), [
    ({p: (1, 1) for p in range(10)}, 0.1, []),
    ({**{p: (1, 1) for p in range(9)}, 9: (2, 1)}, 0.1, []),  # exactly the limit is not over it
    ({**{p: (1, 1) for p in range(8)}, 8: (2, 1), 9: (None, 1)}, 0.1, [8, 9]),
    ({0: (2, 1)}, 0.0, [0]),
    ({0: (2, 1)}, 1, []),
    ({**{p: (1, 1) for p in range(20)}, 20: (1, 2), 21: (2, 1)}, 0.1, [20]),  # broker 2 leads nothing of its one; broker 1 nearly all
])  # fmt: skip
def test_misplaced(leaders, limit, expected):
    assert [p.partition for p in misplaced(cluster_of(leaders), limit)] == expected


def test_rhythm():
    rhythm = Rhythm(100)
    assert [rhythm.is_due(now) for now in (5, 50, 104, 105, 106, 300, 301)] == [False, False, False, True, False, True, False]
    assert rhythm.deadline_ms(301) == 400
    never = Rhythm(0)
    assert [never.is_due(now) for now in (0, 10**9)] == [False, False]
    assert never.deadline_ms(5) is None


@pytest.mark.parametrize("value", [-0.1, 1.1, "0.1", True])
def test_a_share_is_from_0_to_1(value):
    with pytest.raises(UsageError, match="leader_imbalance_max"):
        BrokerConfig(leader_imbalance_max=value)


def back_in_sync(**config) -> World:
    world = World(3, **config)
    topic = world.create(assignment={p: [3, 1, 2] for p in range(30)}, config={"min_isr": 1})
    world.kill(3)
    world.start(3, settle=True)
    for p in range(30):
        assert world.propose(1, pid(topic, p), [1, 2, 3]).error == Code.NONE
    return world


def test_after_an_interval_everything_is_back_in_slices():
    world = back_in_sync(leader_imbalance_check_ms=60_000, slice_partitions_max=10)
    world.commits.clear()
    world.advance(50_000)
    assert {world.state(p).leader for p in range(30)} == {1}
    world.advance(20_000)
    assert {world.state(p).leader for p in range(30)} == {3}
    assert [len(ops) - 1 for ops in world.commits] == [10, 10, 10]
    assert sum(one["partitions"] for one in world.told("leaders_balanced")) == 30
    world.commits.clear()
    world.advance(130_000)
    assert world.commits == []


@pytest.mark.parametrize("config", [{"leader_imbalance_check_ms": 0}, {"leader_imbalance_check_ms": 60_000, "leader_imbalance_max": 1.0}])
def test_never_if_it_is_switched_off(config):
    world = back_in_sync(**config)
    world.advance(400_000)
    assert {world.state(p).leader for p in range(30)} == {1}


def test_what_cannot_be_now_is_left_alone():
    world = World(3, leader_imbalance_check_ms=60_000)
    world.create(assignment={p: [3, 1, 2] for p in range(4)}, config={"min_isr": 1})
    world.kill(3)
    world.commits.clear()
    world.advance(70_000)
    assert world.commits == []
    assert world.told("leaders_balanced") == []
    assert {world.state(p).leader for p in range(4)} == {1}


def test_a_failover_goes_first():
    world = back_in_sync(leader_imbalance_check_ms=60_000, slice_partitions_max=5)
    world.create("u", assignment={0: [2, 1]}, config={"min_isr": 1})
    order = []

    def watch(address, call):
        if address[0] == "controller" and call.verb == "commit_each":
            order.append([op.path.split("/")[3] for ops in call.argument for op in ops[1:] if op.path.startswith(layout.TOPICS)])
            if len(order) == 2:
                world.kill(2, settle=False)

    world.after_store = watch
    world.advance(70_000)
    at = next(i for i, names in enumerate(order) if "u" in names)
    assert at <= 8
    assert {world.state(p).leader for p in range(30)} == {3}
    assert world.state(0, "u").leader == 1
