"""Where a worker knows a cluster there is another one: a batch begins anew with that, a running query says so and stops."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from attrs import evolve
from pyspark.sql.types import StructType

import replog
from replog.client.core import ClientCore
from replog.config import ClientConfig
from replog.errors import Code, UnknownStage
from replog.model import BrokerInfo
from replog.spark import PartitionWriter, ranges
from replog.spark.batch_reading import BatchReading
from replog.spark.batch_writing import BatchWriting
from replog.spark.columns import read_schema
from replog.spark.connections import ClusterReplaced, close_clients
from replog.spark.options import ReadOptions, WriteOptions
from replog.spark.refusing import all_refuse, nobody_serves, refused_with
from replog.spark.stream_reading import StreamReading
from replog.testing.clock import SeededIds

AT_ONCE = r"^another cluster is at tcp://127\.0\.0\.1:\d+ .* \(a stream: with a new checkpoint\); not reached: .* refused with error 104: "
"""What is said before the time has run out."""
REFUSED = "tcp://h:1 refused with error 104: you belong to cluster 'a', broker 1 to cluster 'b'"


@pytest.fixture
def again() -> Iterator[Callable[..., replog.Cluster]]:
    """Makes a cluster with some records in topic t; the next one takes the place of the one before."""
    made: list[replog.Cluster] = []

    def make(*values: str) -> replog.Cluster:
        where = made[-1].endpoints[0] if made else "tcp://127.0.0.1:0"
        for one in made:
            one.close()
        made.append(replog.Cluster(brokers=1, listen=where))
        made[-1].create_topic("t")
        if values:
            made[-1].append("t", 0, values)
        return made[-1]

    yield make
    close_clients()
    made[-1].close()


def options(cluster: replog.Cluster, **more: Any) -> dict[str, Any]:
    return {"replog.bootstrap.servers": ",".join(cluster.endpoints), "replog.fetch.timeout.ms": 15_000, **more}


def batch(cluster: replog.Cluster, **more: Any) -> BatchReading:
    return BatchReading(ReadOptions.parse(options(cluster, subscribe="t", **more), streaming=False), read_schema(headers=False))


def read(reading: BatchReading, tasks: list[Any]) -> list[bytes]:
    return [value for task in tasks for rows in reading.read(task) for value in rows.column("value").to_pylist()]


def test_a_batch_is_planned_in_the_cluster_that_is_there_now(
    again: Callable[..., replog.Cluster], caplog: pytest.LogCaptureFixture
) -> None:
    first = batch(again("a", "b"))
    assert read(first, first.partitions()) == [b"a", b"b"]
    cluster = again("c")
    caplog.clear()
    second = batch(cluster)
    assert read(second, second.partitions()) == [b"c"]
    assert sum("another cluster is at" in text for text in caplog.messages) == 1


def test_a_task_whose_worker_knows_the_old_one_reads_what_was_planned(again: Callable[..., replog.Cluster]) -> None:
    stale = batch(again("a"), **{"replog.fetch.wait.ms": 400})
    assert read(stale, stale.partitions()) == [b"a"]
    tasks = batch(again("b", "c")).partitions()
    assert read(stale, tasks) == [b"b", b"c"]


def test_a_task_that_has_rows_already_does_not_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_row(*_: Any) -> Iterator[str]:
        yield "row"
        raise ClusterReplaced("now")

    monkeypatch.setattr(ranges, "_rows", one_row)
    rows = ranges.read_range(None, None, anew=True)  # type: ignore[arg-type]
    assert next(rows) == "row"  # type: ignore[comparison-overlap]
    with pytest.raises(ClusterReplaced, match="now"):
        next(rows)


def test_a_query_does_not_go_on_in_another_cluster(again: Callable[..., replog.Cluster]) -> None:
    given = options(again("a", "b"), subscribe="t", startingOffsets="earliest")
    query = StreamReading(ReadOptions.parse(given, streaming=True), read_schema(headers=False))
    limit = query.getDefaultReadLimit()
    begin = query.initialOffset()
    assert query.latestOffset(begin, limit) == begin
    end = query.latestOffset(begin, limit)
    assert end == {"t": {"0": 2}}
    (task,) = query.partitions(begin, end)
    again("c", "d", "e")
    with pytest.raises(ClusterReplaced, match=AT_ONCE):
        list(query.read(task))


def test_a_query_that_looks_for_more_stops(again: Callable[..., replog.Cluster]) -> None:
    given = options(again("a"), subscribe="t", startingOffsets='{"t": {"0": 0}}')
    query = StreamReading(ReadOptions.parse(given, streaming=True), read_schema(headers=False))
    begin, limit = query.initialOffset(), query.getDefaultReadLimit()
    assert query.latestOffset(begin, limit) == {"t": {"0": 1}}
    again("b", "c")
    with pytest.raises(ClusterReplaced, match=AT_ONCE):
        query.latestOffset({"t": {"0": 1}}, limit)


@pytest.mark.parametrize("guarantee", ["exactly-once", "atomic", "at-least-once"])
def test_a_batch_is_written_to_the_cluster_that_is_there_now(again: Callable[..., replog.Cluster], guarantee: str) -> None:
    schema = StructType().add("value", "string")

    def made(cluster: replog.Cluster, wait_ms: int) -> BatchWriting:
        given = {"replog.bootstrap.servers": ",".join(cluster.endpoints), "topic": "t", "replog.fetch.wait.ms": wait_ms}
        given["deliveryGuarantee"] = guarantee
        return BatchWriting(WriteOptions.parse(given), schema, False)

    def run(driver: BatchWriting, worker: BatchWriting, committer: BatchWriting, value: str) -> None:
        worker._writer = committer._writer = driver._writer
        rows = pa.RecordBatch.from_arrays([pa.array([value])], names=["value"])
        committer.commit([worker.write(iter([rows]))])

    cluster = again()
    made(cluster, 1)
    for at_worker, at_committer in ((2, 3), (4, 5)):
        run(made(cluster, 1), made(cluster, at_worker), made(cluster, at_committer), "a")
    stale = made(cluster, 2), made(cluster, 3)
    cluster = again()
    run(made(cluster, 1), *stale, "b")
    assert [record.text() for record in cluster.read("t")] == ["b"]


def test_what_was_put_aside_in_another_cluster_is_not_committed(again: Callable[..., replog.Cluster]) -> None:
    given = options(again(), topic="t", deliveryGuarantee="atomic")
    del given["replog.fetch.timeout.ms"]
    job = BatchWriting(WriteOptions.parse(given), StructType().add("value", "string"), False)
    written = job.write(iter([pa.RecordBatch.from_arrays([pa.array(["a"])], names=["value"])]))
    cluster = again()
    with pytest.raises(UnknownStage):
        job.commit([written])
    assert list(cluster.read("t")) == []


def test_partition_writers_write_to_the_cluster_that_is_there_now(again: Callable[..., replog.Cluster]) -> None:
    cluster = again()
    writer = PartitionWriter("t", bootstrap=cluster.endpoints)
    writer(iter(["a"]))
    assert [record.text() for record in cluster.read("t")] == ["a"]
    cluster = again()
    writer(iter(["b"]))
    assert [record.text() for record in cluster.read("t")] == ["b"]


# ------------------------------------------------------------------------------------------------ who refuses, and who is not there


def core(**unreached: str) -> ClientCore:
    """Of a cluster of two brokers, one of which is where the client has met it."""
    found = ClientCore("client", config=ClientConfig(), ids=SeededIds(1), bootstrap=["tcp://h:1"])
    found.view.brokers = {n: BrokerInfo(n, 10 + n, (f"tcp://h:{n}",)) for n in (1, 2)}
    found.unreached = {int(name[1:]) if name[0] == "b" else "tcp://h:1": why for name, why in unreached.items()}
    return found


AWAY = "Connection refused"
OTHER = "tcp://h:2 refused with error 31: you have not proven who you are"


@pytest.mark.parametrize(
    ("unreached", "all_do", "nobody", "some"),
    [
        ({}, False, False, False),
        ({"h": REFUSED}, False, False, True),
        ({"b1": REFUSED}, False, False, True),
        ({"b1": REFUSED, "b2": REFUSED}, True, True, True),
        ({"h": REFUSED, "b2": REFUSED}, True, True, True),
        ({"h": REFUSED, "b2": AWAY}, False, True, True),
        ({"h": REFUSED, "b2": OTHER}, False, True, True),
        ({"h": AWAY, "b2": AWAY}, False, True, False),
        ({"b2": AWAY}, False, False, False),
    ],
)
def test_who_refuses(unreached: dict[str, str], all_do: bool, nobody: bool, some: bool) -> None:
    code, found = Code.INCONSISTENT_CLUSTER_ID, core(**unreached)
    assert (all_refuse(found, code), nobody_serves(found), refused_with(found, code)) == (all_do, nobody, some)


def test_a_broker_that_was_fenced_is_not_waited_for() -> None:
    found = core(h=REFUSED)
    found.view.brokers[2] = evolve(found.view.brokers[2], fenced=True)
    assert all_refuse(found, Code.INCONSISTENT_CLUSTER_ID)
    assert nobody_serves(found)


def test_a_cluster_with_fewer_brokers_is_another_one_too(again: Callable[..., replog.Cluster], caplog: pytest.LogCaptureFixture) -> None:
    """A broker of the old one is not there at all: it may come back, so time has to run out before that is certain."""
    reading = batch(again("a"), **{"replog.fetch.timeout.ms": 1_500})
    client = reading._options.connection.client()
    assert read(reading, reading.partitions()) == [b"a"]
    cluster = again("b")
    with client._driver.lock:
        client._core.bootstrap.append("tcp://127.0.0.1:1")
    caplog.set_level(logging.WARNING, "replog.spark")
    assert read(reading, reading.partitions()) == [b"b"]
    assert sum("another cluster is at" in text for text in caplog.messages) == 1
    assert client._driver.closed
    cluster.append("t", 0, ["c"])
    assert read(reading, reading.partitions()) == [b"b", b"c"]
