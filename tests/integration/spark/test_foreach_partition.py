"""`PartitionWriter` in real tasks: data frames, RDDs, connections, and executors that lack replog."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import pytest

import replog
from replog.spark import PartitionWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_data_frame(spark: SparkSession, cluster: replog.Cluster, servers: str) -> None:
    cluster.create_topic("t", partitions=3)
    frame = spark.range(2_000).selectExpr("id", "concat('c', id % 7) as carrier", "cast('2013-01-01' as date) as day")
    frame.repartition(4).foreachPartition(PartitionWriter("t", bootstrap=servers, key="carrier", guarantee="at-least-once"))
    rows = {}
    for record in cluster.read("t"):
        row = json.loads(record.text())
        rows[row["id"]] = row
        assert record.key == row["carrier"].encode()
        assert record.partition == crc32(record.key) % 3
    assert rows == {n: {"id": n, "carrier": f"c{n % 7}", "day": "2013-01-01"} for n in range(2_000)}


def test_columns_and_functions(spark: SparkSession, cluster: replog.Cluster, servers: str) -> None:
    for topic in ("t", "u"):
        cluster.create_topic(topic, partitions=2)
    frame = spark.range(100).selectExpr(
        *("id", "cast(concat('v', id) as binary) as raw", "cast(id % 2 as int) as p"),
        "array(struct('h' as key, cast('x' as binary) as value)) as hs",
    )
    offset = 1_000
    frame.foreachPartition(PartitionWriter("t", bootstrap=servers, value="raw", partition="p", headers="hs", guarantee="at-least-once"))
    shifted = {"value": lambda row: str(row.id + offset), "key": lambda row: row.raw}
    frame.foreachPartition(PartitionWriter("u", bootstrap=servers, **shifted, guarantee="at-least-once", acks=1))
    assert {(r.text(), r.partition) for r in cluster.read("t")} == {(f"v{n}", n % 2) for n in range(100)}
    assert {tuple(r.headers) for r in cluster.read("t")} == {(("h", b"x"),)}
    assert {(int(r.text()), r.key) for r in cluster.read("u")} == {(n + 1_000, b"v%d" % n) for n in range(100)}


def test_rdds(spark: SparkSession, cluster: replog.Cluster, servers: str) -> None:
    for topic in ("t", "u"):
        cluster.create_topic(topic, partitions=2)
    numbers = spark.sparkContext.range(50, numSlices=2)
    numbers.map(str).foreachPartition(PartitionWriter("t", bootstrap=servers.split(","), guarantee="at-least-once"))
    assert {(r.text(), r.partition) for r in cluster.read("t")} == {(str(n), n // 25) for n in range(50)}
    pairs = numbers.map(lambda n: (str(n % 3), str(n)))
    pairs.foreachPartition(PartitionWriter("u", bootstrap=servers, key=0, value=1, guarantee="at-least-once"))
    assert {(r.text(), r.key) for r in cluster.read("u")} == {(str(n), b"%d" % (n % 3)) for n in range(50)}


def test_connections_are_shared_by_the_tasks_of_a_process(spark: SparkSession, cluster: replog.Cluster, servers: str) -> None:
    cluster.create_topic("t")
    writer = PartitionWriter("t", bootstrap=servers, guarantee="at-least-once")

    def write(rows: Iterator[str]) -> Iterator[tuple[int, int, int]]:
        from replog.spark.appending import Appender

        writer(rows)
        client = writer._connection.client()
        appender = Appender(client, acks=-1, compression="lz4")
        yield os.getpid(), id(client), appender._writer.producer_id
        appender.finish()

    used = spark.sparkContext.range(800, numSlices=8).map(str).mapPartitions(write).collect()
    assert len(used) == 8
    assert len(set(used)) == len({pid for pid, _, _ in used}) <= 2
    assert len(list(cluster.read("t"))) == 800


def test_bad_rows_are_named(spark: SparkSession, cluster: replog.Cluster, servers: str) -> None:
    cluster.create_topic("t")
    frame = spark.range(600).coalesce(1)
    writer = PartitionWriter("t", bootstrap=servers, key=lambda row: row.id if row.id == 599 else "k", guarantee="at-least-once")
    with pytest.raises(Exception, match="row 599 of Spark partition 0 is int; a key is bytes, str or None"):
        frame.foreachPartition(writer)


def test_executors_without_replog_say_so(spark: SparkSession, servers: str, tmp_path: Path) -> None:
    """S11: a folder in front of theirs hides the package from workers that are started for this job."""
    (tmp_path / "replog").mkdir()
    (tmp_path / "replog" / "__init__.py").write_text('raise ModuleNotFoundError("No module named \'replog\'")\n')
    context = spark.sparkContext
    before = context.environment.get("PYTHONPATH")
    context.environment["PYTHONPATH"] = str(tmp_path)
    try:
        rdd = context.range(4, numSlices=1).map(str)
        with pytest.raises(Exception, match=r"Spark's Python workers cannot import what they need .No module named 'replog'.: install"):
            rdd.foreachPartition(PartitionWriter("t", bootstrap=servers, guarantee="at-least-once"))
    finally:
        if before is None:
            del context.environment["PYTHONPATH"]
        else:
            context.environment["PYTHONPATH"] = before
