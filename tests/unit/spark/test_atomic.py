"""Tasks put aside, the driver publishes: what readers see before, between and after, and what is left when something goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import replog
from replog.errors import TimedOut, UnknownStage, UsageError
from replog.marks import ATTEMPTS_MAX
from replog.spark import atomic
from replog.spark.atomic import Atomic
from replog.spark.cells import Cells, Placed, packed
from replog.spark.delivery import Attempt, Written

ATOMIC = Atomic(None, 3_000)
"""Pieces of three records."""


@pytest.fixture
def cluster() -> Iterator[replog.Cluster]:
    with replog.Cluster(brokers=3) as cluster:
        cluster.create_topic("t", partitions=2)
        yield cluster


def row(number: int) -> bytes:
    return b"%03d" % number * 330


def staged(cluster: replog.Cluster, task: int, rows: range, *, version: int = 1, partitions: int = 1, attempt: int = 0) -> Written:
    sink = ATOMIC.begin(cluster, Attempt("job", version, task, attempt))
    for number in rows:
        cells = packed([row(number)])
        sink.add(Placed("t", number % partitions, Cells(1, len(cells), cells)))
    return sink.finish()


def numbers(cluster: replog.Cluster, partition: int | None = None) -> list[int]:
    return [int((record.value or b"")[:3]) for record in cluster.read("t") if partition in (None, record.partition)]


def test_nothing_is_seen_before_the_commit_and_everything_after(cluster: replog.Cluster) -> None:
    messages = [staged(cluster, 1, range(10, 20)), staged(cluster, 0, range(10)), staged(cluster, 2, range(0))]
    assert numbers(cluster) == []
    assert [(one.records, one.pieces) for one in messages] == [(10, (("t", 0, 4),)), (10, (("t", 0, 4),)), (0, ())]
    ATOMIC.commit(cluster, messages, 1)
    assert numbers(cluster) == list(range(20))


def test_only_the_attempts_that_spark_chose(cluster: replog.Cluster) -> None:
    lost = staged(cluster, 0, range(7), attempt=1)
    chosen = staged(cluster, 0, range(9, -1, -1), attempt=1)
    assert lost.name != chosen.name
    ATOMIC.commit(cluster, [chosen], 1)
    assert numbers(cluster) == list(range(9, -1, -1))


def test_a_commit_may_come_again(cluster: replog.Cluster) -> None:
    messages = [staged(cluster, task, range(task * 10, task * 10 + 10), partitions=2) for task in range(3)]
    for _ in range(2):
        ATOMIC.commit(cluster, messages, 1)
    again = [staged(cluster, task, range(task * 10, task * 10 + 10), partitions=2) for task in range(3)]
    ATOMIC.commit(cluster, again, 1)
    assert [one.records for one in again] == [10] * 3
    assert sorted(numbers(cluster)) == list(range(30))


def test_a_commit_that_ended_between_two_partitions_is_completed(cluster: replog.Cluster) -> None:
    message = staged(cluster, 0, range(20), partitions=2)
    cluster.publish("t", 0, [(message.name, 4)], writer="job/all", version=1)  # as far as the driver came
    ATOMIC.commit(cluster, [staged(cluster, 0, range(20), partitions=2)], 1)
    assert numbers(cluster, 0) == list(range(0, 20, 2))
    assert numbers(cluster, 1) == list(range(1, 20, 2))


def test_an_abort_undoes_nothing(cluster: replog.Cluster) -> None:
    message = staged(cluster, 0, range(10))
    ATOMIC.commit(cluster, [message], 1)
    ATOMIC.abort(cluster, [message], 1)
    assert numbers(cluster) == list(range(10))
    ATOMIC.abort(cluster, [staged(cluster, 0, range(10, 20), version=2)], 2)
    assert numbers(cluster) == list(range(10))


def test_versions_follow_each_other_and_an_earlier_one_is_done(cluster: replog.Cluster) -> None:
    for version, rows in ((3, range(5)), (4, range(5, 10)), (3, range(10, 15)), (2, range(15, 20))):
        ATOMIC.commit(cluster, [staged(cluster, 0, rows, version=version)], version)
    assert numbers(cluster) == list(range(10))


def test_another_leader_has_nothing_to_publish(cluster: replog.Cluster) -> None:
    message = staged(cluster, 0, range(10))
    cluster.stop_broker(cluster.leader("t", 0))
    with pytest.raises(UnknownStage, match=r"t-0: what was put aside there is gone: .* a job with the same txnAppId and txnVersion"):
        ATOMIC.commit(cluster, [message], 1)
    assert numbers(cluster) == []
    ATOMIC.commit(cluster, [staged(cluster, 0, range(10))], 1)
    assert numbers(cluster) == list(range(10))


def test_more_tasks_than_one_publication_takes(cluster: replog.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = [staged(cluster, task, range(task, task + 1)) for task in range(4)]
    monkeypatch.setattr(atomic, "ATTEMPTS_MAX", 3)
    with pytest.raises(UsageError, match=r"4 tasks have written to t-0; one publication takes 3 at most: .*coalesce"):
        ATOMIC.commit(cluster, messages, 1)
    ATOMIC.commit(cluster, messages[:3], 1)
    assert numbers(cluster) == [0, 1, 2]


def test_a_publication_of_as_many_tasks_as_are_allowed_fits_into_a_request() -> None:
    with replog.Cluster(brokers=1, listen="tcp://127.0.0.1:0") as cluster, replog.connect(cluster.endpoints) as client:
        cluster.create_topic("t")
        names: list[tuple[str, int]] = [(f"{2**31 - 1 - n}-{n:016x}", 1_000_000) for n in range(ATTEMPTS_MAX)]
        with pytest.raises(UnknownStage):  # they were looked for
            client.publish("t", 0, names, writer="j" * 255, version=2**62 - 1)


def test_nothing_to_publish(cluster: replog.Cluster) -> None:
    ATOMIC.commit(cluster, [], 1)
    ATOMIC.commit(cluster, [staged(cluster, 0, range(0))], 1)
    assert numbers(cluster) == []


def test_no_room_to_put_aside() -> None:
    config: dict[str, Any] = {"stage_bytes_max": 20_000}
    with replog.Cluster(brokers=1, config=config, client_config={"delivery_timeout_ms": 300}) as cluster:
        cluster.create_topic("t")
        with pytest.raises(TimedOut, match="a stage of version 1 of writer 'job/all'; the last answer was QuotaExceeded"):
            staged(cluster, 0, range(40))
