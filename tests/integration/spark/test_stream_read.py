"""Streaming reads through real Spark: micro-batches, checkpoints, replays, lag, and what is said when the log changes underneath."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import replog
from replog.testing.eventually import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

OnBatch = Callable[["DataFrame", int], None]


class Runs:
    """Queries over topic t with one checkpoint; collects what each micro-batch held."""

    def __init__(self, spark: SparkSession, servers: str, folder: Path) -> None:
        self.spark = spark
        self.servers = servers
        self.checkpoint = folder / "checkpoint"
        self.batches: dict[int, list[tuple[int, int]]] = {}

    def keep(self, frame: DataFrame, number: int) -> None:
        self.batches[number] = sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())

    def found(self) -> list[tuple[int, int]]:
        """(partition, offset) of every row of every micro-batch."""
        return [place for _, batch in sorted(self.batches.items()) for place in batch]

    def start(self, on_batch: OnBatch | None = None, *, available_now: bool = True, **options: Any) -> StreamingQuery:
        reader = self.spark.readStream.format("replog").option("replog.bootstrap.servers", self.servers)
        for name, value in {"subscribe": "t", "startingOffsets": "earliest", **options}.items():
            reader = reader.option(name, json.dumps(value) if isinstance(value, dict) else value)
        writer = reader.load().writeStream.foreachBatch(on_batch or self.keep).option("checkpointLocation", str(self.checkpoint))
        return (writer.trigger(availableNow=True) if available_now else writer.trigger(processingTime="50 milliseconds")).start()

    def run(self, on_batch: OnBatch | None = None, **options: Any) -> StreamingQuery:
        """To its end."""
        query = self.start(on_batch, **options)
        query.awaitTermination()
        return query


@pytest.fixture
def runs(spark: SparkSession, servers: str, tmp_path: Path) -> Runs:
    return Runs(spark, servers, tmp_path)


def test_available_now_keeps_to_limits_and_a_later_run_goes_on(cluster: replog.Cluster, runs: Runs) -> None:
    cluster.create_topic("t", partitions=2)
    for partition in (0, 1):
        cluster.append("t", partition, [str(n) for n in range(10)])
    query = runs.run(maxOffsetsPerTrigger=8)
    assert [len(found) for _, found in sorted(runs.batches.items())] == [0, 8, 8, 4], "the first one keeps where it begins"
    assert sorted(runs.found()) == [(partition, n) for partition in (0, 1) for n in range(10)]
    progress = [json.loads(one.json) for one in query.recentProgress]
    first = next(one for one in progress if one["batchId"] == 1)["sources"][0]
    assert (first["endOffset"], first["latestOffset"]) == ({"t": {"0": 4, "1": 4}}, {"t": {"0": 10, "1": 10}})
    written = (runs.checkpoint / "offsets" / "3").read_text(encoding="utf-8").splitlines()
    assert json.loads(written[-1]) == {"t": {"0": 10, "1": 10}}
    cluster.append("t", 1, ["more"])
    runs.batches.clear()
    runs.run()
    assert runs.batches == {4: [(1, 10)]}


@pytest.mark.parametrize("failing", [0, 1])
def test_a_micro_batch_that_failed_is_read_again_as_it_was(cluster: replog.Cluster, runs: Runs, failing: int) -> None:
    """The first one holds nothing; a run that replays it goes on."""
    cluster.create_topic("t")
    cluster.append("t", 0, [str(n) for n in range(10)])

    def fail(frame: DataFrame, number: int) -> None:
        runs.keep(frame, number)
        if number == failing:
            raise RuntimeError("after its writes")

    with pytest.raises(Exception, match="after its writes"):
        runs.run(fail, maxOffsetsPerTrigger=6, minPartitions=3)
    whole = {0: [], 1: [(0, n) for n in range(6)], 2: [(0, n) for n in range(6, 11)]}
    assert runs.batches == {number: whole[number] for number in range(failing + 1)}
    cluster.append("t", 0, ["meanwhile"])
    runs.batches.clear()
    runs.run(maxOffsetsPerTrigger=6, minPartitions=3)
    assert runs.batches == {number: whole[number] for number in range(failing, 3)}


def test_a_running_query_follows_and_fails_when_its_topic_is_another_one(cluster: replog.Cluster, runs: Runs) -> None:
    cluster.create_topic("t")
    query = runs.start(available_now=False, startingOffsets="latest")
    try:
        eventually(lambda: 0 in runs.batches)
        cluster.append("t", 0, ["a", "b"])
        eventually(lambda: runs.found() == [(0, 0), (0, 1)])
        cluster.delete_topic("t")
        cluster.create_topic("t")
        cluster.append("t", 0, ["x", "y", "z"])
        eventually(lambda: not query.isActive)
    finally:
        query.stop()
    for again in (query, runs.start(startingOffsets="latest")):  # which has offsets alone, and finds more than it had read
        eventually(lambda again=again: not again.isActive, 60)
        error = again.exception()
        assert error is not None
        assert "DataLost: t-0: " in str(error)
    assert runs.found() == [(0, 0), (0, 1)]


def test_a_query_that_may_lose_data_goes_on_in_the_other_topic(cluster: replog.Cluster, runs: Runs) -> None:
    cluster.create_topic("t")
    cluster.append("t", 0, ["a", "b"])
    query = runs.start(available_now=False, failOnDataLoss="false")
    try:
        eventually(lambda: runs.found() == [(0, 0), (0, 1)])
        runs.batches.clear()
        cluster.delete_topic("t")
        cluster.create_topic("t")
        cluster.append("t", 0, ["x", "y", "z"])
        eventually(lambda: runs.found() == [(0, 0), (0, 1), (0, 2)])
    finally:
        query.stop()
    assert query.exception() is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"endingOffsets": "latest"}, "option endingOffsets: a stream has no end; it is for spark.read"),
        ({"minOffsetsPerTrigger": "5"}, "is not supported: a data source in Python can give Spark one limit only"),
        ({"subscribe": "nope"}, "unknown topic 'nope'; known topics are t"),
    ],
)
def test_the_query_says_what_is_wrong(cluster: replog.Cluster, runs: Runs, options: dict[str, Any], says: str) -> None:
    cluster.create_topic("t")
    with pytest.raises(Exception, match=says) as caught:
        runs.run(**options)
    assert "Traceback" not in str(caught.value)
