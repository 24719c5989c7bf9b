"""Partitions of an embedded cluster move while records are written; wishes are taken back; bad ones are refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

import replog
from replog.errors import InvalidReplicaAssignment, NoReassignmentInProgress, UnknownTopicOrPartition, UsageError
from replog.testing.eventually import eventually


def replicas(cluster: replog.Cluster, topic: str = "t") -> list[tuple[int, ...]]:
    return [p.replicas for p in cluster.describe(topic).partitions]


def test_partitions_move_while_records_are_written(data: Path | None) -> None:
    with replog.Cluster(data, brokers=5) as cluster:
        cluster.create_topic("t", assignment={0: [1, 2, 3], 1: [2, 3, 4]})
        cluster.append("t", 0, [f"a{n}" for n in range(300)])
        cluster.append("t", 1, ["b"])
        cluster.reassign({("t", 0): [4, 5], ("t", 1): [5, 4, 1]})
        written = 0
        while cluster.reassignments():
            cluster.append("t", 0, [f"c{written}"])
            written += 1
        assert replicas(cluster) == [(4, 5), (5, 4, 1)]
        cluster.append("t", 0, ["last"])
        read = [record.text() for record in cluster.read("t", partitions=[0])]
        assert read == [*(f"a{n}" for n in range(300)), *(f"c{n}" for n in range(written)), "last"]
        described = cluster.describe("t").partitions[0]
        assert (described.isr, described.leader, described.adding, described.removing) == ((4, 5), 4, (), ())


def test_how_far_a_move_is_and_back_again() -> None:
    with replog.Cluster(brokers=4) as cluster:
        cluster.create_topic("t", assignment={0: [2, 1]}, min_isr=1)
        cluster.append("t", 0, [b"x" * 100] * 50)
        cluster.stop_broker(4)
        cluster.reassign({("t", 0): [4, 3]})
        eventually(lambda: len(cluster.describe("t").partitions[0].isr) == 3)
        (found,) = cluster.reassignments()
        assert (found.topic, found.partition, found.status, found.target) == ("t", 0, "moving", (4, 3))
        assert (found.replicas, found.adding, found.removing, found.original) == ((4, 3, 2, 1), (4, 3), (2, 1), (2, 1))
        away, here = found.progress
        assert (away.broker_id, away.offsets_behind, away.bytes_behind) == (4, None, None)
        assert (here.broker_id, here.end_offset, here.offsets_behind, here.bytes_behind) == (3, 50, 0, 0)
        assert found.end_offset == 50
        assert found.to_dict()["progress"][1]["end_offset"] == 50
        described = cluster.describe("t")
        assert described.partitions[0].placed == ("4+", "3+", "2-", "1-")
        assert "4+,3+,2-,1-" in str(described)
        cluster.reassign({("t", 0): None})
        eventually(lambda: cluster.reassignments() == [])
        assert replicas(cluster) == [(2, 1)]
        assert [r.value for r in cluster.read("t")] == [b"x" * 100] * 50


def test_refusals_name_those_refused_and_the_others_go_on() -> None:
    with replog.Cluster(brokers=3) as cluster:
        cluster.create_topic("t", assignment={0: [1, 2], 1: [1, 2]})
        with pytest.raises(NoReassignmentInProgress, match="1 of 1 refused: t-0 is not being reassigned"):
            cluster.reassign({("t", 0): None})
        with pytest.raises(InvalidReplicaAssignment, match=r"1 of 2 refused: .*broker 9"):
            cluster.reassign({("t", 0): [1, 9], ("t", 1): [1, 3]})
        eventually(lambda: replicas(cluster) == [(1, 2), (1, 3)])
        with pytest.raises(UnknownTopicOrPartition):
            cluster.reassign({("x", 0): [1]})
        assert cluster.reassignments() == []


@pytest.mark.parametrize(
    "targets", [None, {}, [("t", 0)], {"t": [1]}, {("t", -1): [1]}, {("t", 0): "12"}, {("t", 0): [True]}], ids=repr
)
def test_what_is_no_wish_is_refused_before_it_is_sent(targets: object) -> None:
    with replog.Cluster(brokers=1) as cluster, pytest.raises(UsageError):
        cluster.reassign(targets)  # type: ignore[arg-type]
