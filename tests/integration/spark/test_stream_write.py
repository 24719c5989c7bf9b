"""Streaming writes through real Spark: every micro-batch once it is committed, replays, output modes, and topics that go away."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.functions import udf

import replog
from replog.spark import PartitionWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


class Files:
    """A folder that a stream reads: a file of lines is a micro-batch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        (folder / "in").mkdir()
        self._count = 0

    def add(self, numbers: range) -> None:
        hidden = self._folder / "next"
        hidden.write_text("".join(f"{n}\n" for n in numbers))
        self._count += 1
        hidden.rename(self._folder / "in" / f"{self._count:03}.txt")

    def stream(self) -> DataFrame:
        return self._spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(self._folder / "in"))


@pytest.fixture
def files(spark: SparkSession, tmp_path: Path) -> Files:
    return Files(spark, tmp_path)


@pytest.fixture
def start(servers: str, tmp_path: Path) -> Any:
    """`start(frame, topic="t", ...)`: a query that writes what is there, and ends."""

    def with_options(frame: DataFrame, *, mode: str = "append", **options: Any) -> StreamingQuery:
        writer = frame.writeStream.format("replog").outputMode(mode).option("checkpointLocation", str(tmp_path / "checkpoint"))
        for name, value in {"replog.bootstrap.servers": servers, "deliveryGuarantee": "at-least-once", **options}.items():
            writer = writer.option(name, value)
        return writer.trigger(availableNow=True).start()

    return with_options


def counted(cluster: replog.Cluster, topic: str = "t") -> Counter[int]:
    return Counter(int(record.text()) for record in cluster.read(topic))


def test_a_stream_goes_on_where_it_stopped(cluster: replog.Cluster, files: Files, start: Any) -> None:
    cluster.create_topic("t", partitions=2)
    files.add(range(100))
    files.add(range(100, 150))
    start(files.stream(), topic="t").awaitTermination()
    assert counted(cluster) == Counter(range(150))
    files.add(range(150, 200))
    query = start(files.stream(), topic="t")
    query.awaitTermination()
    assert counted(cluster) == Counter(range(200))
    assert query.lastProgress["batchId"] == 2


def test_a_task_that_fails(cluster: replog.Cluster, files: Files, start: Any, tmp_path: Path) -> None:
    """E7: a task is run again within its micro-batch; a query that died replays the whole one. At least once: nothing is missing."""
    cluster.create_topic("t")
    told = tmp_path / "told"
    told.mkdir()

    def fail_at_the_last(value: str) -> str:
        before = len(list(told.iterdir()))
        if value == "49" and before < 5:  # four attempts, and one of the next run
            (told / str(before)).touch()
            raise ValueError("the task has failed")
        return value

    files.add(range(50))
    frame = files.stream().select(udf(fail_at_the_last, "string", useArrow=False)("value").alias("value"))
    with pytest.raises(Exception, match="the task has failed"):
        start(frame, topic="t").awaitTermination()
    start(frame, topic="t").awaitTermination()
    found = counted(cluster)
    assert set(found) == set(range(50))
    assert len(list(told.iterdir())) == 5


def test_output_modes(cluster: replog.Cluster, files: Files, start: Any) -> None:
    """A complete result is appended whole each time, as by Spark's Kafka connector; Spark has no update mode for sinks in Python."""
    cluster.create_topic("t")
    files.add(range(1))
    files.add(range(1, 2))
    frame = files.stream().groupBy("value").count().select("value")
    with pytest.raises(Exception, match="replog does not support Update mode"):
        start(frame, mode="update", topic="t").awaitTermination()
    start(frame, mode="complete", topic="t").awaitTermination()
    assert sorted(counted(cluster).values()) == [1, 2]


def test_a_topic_that_was_deleted_between_micro_batches(cluster: replog.Cluster, files: Files, start: Any) -> None:
    cluster.create_topic("t")
    cluster.create_topic("u")
    files.add(range(5))
    start(files.stream(), topic="t").awaitTermination()
    cluster.delete_topic("t")
    files.add(range(5, 10))
    with pytest.raises(Exception, match=r"replog.errors.UnknownTopicOrPartition: unknown topic 't'; known topics are u"):
        start(files.stream(), topic="t").awaitTermination()
    cluster.create_topic("t")
    start(files.stream(), topic="t").awaitTermination()
    assert counted(cluster) == Counter(range(5, 10))


def test_inside_foreach_batch(cluster: replog.Cluster, servers: str, files: Files, tmp_path: Path) -> None:
    """E11: both the data source and a PartitionWriter work there."""
    for topic in ("t", "u"):
        cluster.create_topic(topic)

    def write(frame: DataFrame, batch: int) -> None:
        options = {"replog.bootstrap.servers": servers, "deliveryGuarantee": "at-least-once", "topic": "t"}
        frame.write.format("replog").mode("append").options(**options).save()
        frame.foreachPartition(PartitionWriter("u", bootstrap=servers, value="value", guarantee="at-least-once"))

    files.add(range(10))
    files.add(range(10, 20))
    writer = files.stream().writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert counted(cluster) == counted(cluster, "u") == Counter(range(20))
