"""Why a partition is as it is, asked of a real cluster; elections on demand by its client."""

from __future__ import annotations

import pytest

import replog
from replog.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    PreferredLeaderNotAvailable,
    Rejected,
    UnknownTopicOrPartition,
    UsageError,
)


def test_a_partition_is_explained_through_its_life() -> None:
    with replog.Cluster(brokers=3) as cluster:
        cluster.create_topic("t", assignment={0: [2, 1, 3]}, min_isr=2)
        cluster.append("t", 0, ["a", "b"])
        well = cluster.explain("t", 0)
        assert str(well).splitlines()[2:] == ["In sync are brokers 2, 1, 3: 3 of 3 replicas; min_isr is 2.", "The leader has 2 records."]
        assert (well.leader, well.missing) == (2, {})
        cluster.kill_broker(2)
        cluster.kill_broker(1)
        cluster.append("t", 0, ["c"], acks=1)
        short = str(cluster.explain("t", 0))
        assert "Those are too few: acks=all is refused and nothing is committed until 1 more replica is in sync." in short
        assert "The leader has 3 records, of which the first 2 are known to be committed." in short
        cluster.kill_broker(3)
        cluster.start_broker(2)
        gone = cluster.explain("t", 0)
        assert gone.leader is None
        assert "It waits for brokers 1 or 3: who is eligible (ELR) holds everything that was committed." in str(gone)
        assert "an unclean election of t-0 takes broker 2" in str(gone)
        assert gone.missing[2] == "it may miss records that were committed"
        assert cluster.elect_leaders([("t", 0)], unclean=True) == {("t", 0): None}
        assert "Records may have been lost in epoch" in str(cluster.explain("t", 0))
        assert gone.to_dict()["partition"] == 0
        with pytest.raises(UnknownTopicOrPartition, match="has no partition 5"):
            cluster.explain("t", 5)


def test_elections_say_for_each_partition_why_not() -> None:
    with replog.Cluster(brokers=3) as cluster:
        cluster.create_topic("t", assignment={0: [2, 1, 3], 1: [1, 2, 3]}, min_isr=2)
        cluster.kill_broker(2)
        found = cluster.elect_leaders([("t", 0), ("t", 1), ("none", 0)])
        assert {place: type(problem) for place, problem in found.items()} == {
            ("t", 0): PreferredLeaderNotAvailable,
            ("t", 1): ElectionNotNeeded,
            ("none", 0): UnknownTopicOrPartition,
        }
        problem = found["t", 0]
        assert isinstance(problem, Rejected)
        assert "it is not registered" in str(problem)
        (unclean,) = cluster.elect_leaders([("t", 0)], unclean=True).values()
        assert isinstance(unclean, ElectionNotNeeded)
        assert cluster.elect_leaders([]) == {}
        for broker in (1, 3):
            cluster.kill_broker(broker)
        cluster.start_broker(1)


def test_nobody_is_there_to_be_elected() -> None:
    with replog.Cluster(brokers=2) as cluster:
        cluster.create_topic("t", assignment={0: [2]})
        cluster.kill_broker(2)
        (problem,) = cluster.elect_leaders([("t", 0)], unclean=True).values()
        assert isinstance(problem, EligibleLeadersNotAvailable)


@pytest.mark.parametrize(("arguments", "says"), [
    ({"partitions": "t"}, "not 't'"),
    ({"partitions": ["t"]}, "pairs"),
    ({"partitions": [("t", "0")]}, "'0'"),
    ({"partitions": [("a b", 0)]}, "' '"),
    ({"unclean": "yes"}, "'yes'"),
])  # fmt: skip
def test_bad_arguments(arguments, says) -> None:
    with replog.Cluster(brokers=1) as cluster, pytest.raises(UsageError, match=says):
        cluster.elect_leaders(**arguments)
