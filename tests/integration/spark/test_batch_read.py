"""Batch reads through real Spark: columns, positions, slicing, and what is said when something is wrong."""

from __future__ import annotations

import json
import re
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

import replog
from replog.records import Record
from replog.spark import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def load(spark: SparkSession, servers: str) -> Any:
    """`load(subscribe="t", ...)`: a DataFrame of the data source."""

    def with_options(**options: Any) -> DataFrame:
        reader = spark.read.format("replog").option("replog.bootstrap.servers", servers)
        for name, value in options.items():
            reader = reader.option(name, json.dumps(value) if isinstance(value, dict) else value)
        return reader.load()

    return with_options


def offsets(frame: DataFrame) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())


def test_the_columns_are_those_of_kafka(cluster: replog.Cluster, load: Any) -> None:
    cluster.create_topic("t", partitions=2)
    cluster.append("t", 0, [Record("a", key="k", headers=[("h", b"1"), ("h", b"")], timestamp_ms=1_700_000_000_123)])
    cluster.append("t", 1, [Record(None, timestamp_ms=1_700_000_001_000), Record(b"\xff\x00", timestamp_ms=1_700_000_002_000)])
    frame = load(subscribe="t", includeHeaders="true")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
        "headers:array<struct<key:string,value:binary>>>"
    )
    rows = sorted(frame.collect(), key=lambda row: (row.partition, row.offset))
    assert [(r.key, r.value, r.topic, r.partition, r.offset, r.timestampType) for r in rows] == [
        (b"k", b"a", "t", 0, 0, 0),
        (None, None, "t", 1, 0, 0),
        (None, b"\xff\x00", "t", 1, 1, 0),
    ]
    assert rows[0].timestamp.astimezone(UTC) == datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)
    assert [[tuple(pair) for pair in r.headers] if r.headers is not None else None for r in rows] == [[("h", b"1"), ("h", b"")], None, None]


def test_ranges_and_slices(cluster: replog.Cluster, load: Any) -> None:
    cluster.create_topic("t", partitions=2)
    for partition in (0, 1):
        for n in range(4):
            cluster.append("t", partition, [f"{n}-{i}" * 5 for i in range(25)])
    begin, end = {"t": {"0": 10, "1": -2}}, {"t": {"0": -1, "1": 33}}
    frame = load(subscribe="t", startingOffsets=begin, endingOffsets=end, minPartitions=5)
    assert frame.rdd.getNumPartitions() == 5
    assert offsets(frame) == [(0, n) for n in range(10, 100)] + [(1, n) for n in range(33)]
    assert load(subscribe="t", maxRecordsPerPartition=30).rdd.getNumPartitions() == 8


def test_filters_give_right_answers_on_a_frame_that_is_used_twice(spark: SparkSession, cluster: replog.Cluster, load: Any) -> None:
    """A data source that took filters over would be asked with those of an earlier action."""
    cluster.create_topic("t", partitions=3)
    for partition in range(3):
        cluster.append("t", partition, [str(n) for n in range(100)])
    frame = load(subscribe="t")
    assert frame.where("partition = 1").count() == 100
    assert frame.count() == 300
    assert frame.alias("a").join(frame.alias("b"), ["partition", "offset"]).count() == 300
    frame.createOrReplaceTempView("records")
    assert spark.sql("SELECT count(*) FROM records WHERE offset < 10").first() == (30,)
    assert spark.sql("SELECT count(*) FROM records").first() == (300,)


def test_a_frame_is_a_snapshot_from_its_first_action_on(cluster: replog.Cluster, load: Any) -> None:
    cluster.create_topic("t")
    cluster.append("t", 0, ["a"])
    frame = load(subscribe="t")
    cluster.append("t", 0, ["b"])
    assert frame.count() == 2
    cluster.append("t", 0, ["c"])
    assert frame.count() == 2
    assert load(subscribe="t").count() == 3


def test_nothing_to_read(cluster: replog.Cluster, load: Any) -> None:
    cluster.create_topic("t", partitions=2)
    assert load(subscribe="t").collect() == []
    assert load(subscribePattern="nothing.*").collect() == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "exactly one of the options subscribe, subscribePattern and assign says what to read; given is none of them"),
        ({"subscribe": "t", "startingOfsets": "earliest"}, "unknown option 'startingofsets'; did you mean startingOffsets?"),
        ({"subscribe": "t", "kafka.bootstrap.servers": "h:1"}, "is Kafka's; it is called replog.bootstrap.servers here"),
        ({"subscribe": "nope"}, "unknown topic 'nope'; known topics are t"),
        ({"subscribe": "t", "startingOffsets": "latest"}, "startingOffsets is 'latest'; allowed here are 'earliest' and JSON of offsets"),
        ({"subscribe": "t", "startingOffsets": {"t": {"0": 9}}}, "t-0: offsets 1 to 8 cannot be read any more: the partition ends before"),
        ({"subscribe": "t", "includeHeaders": "maybe"}, "option includeHeaders is 'maybe'; allowed are true and false"),
        (
            {"subscribe": "t", "replog.bootstrap.servers": "127.0.0.1:1", "replog.fetch.timeout.ms": 200},
            "no broker was reached at tcp://127.0.0.1:1 (replog.bootstrap.servers): waited 0.",
        ),
    ],
)
def test_the_driver_says_what_is_wrong(cluster: replog.Cluster, load: Any, options: dict[str, Any], says: str) -> None:
    cluster.create_topic("t")
    cluster.append("t", 0, ["a"])
    with pytest.raises(Exception, match=re.escape(says)) as caught:
        load(**options).collect()
    assert "Traceback" not in str(caught.value)
    assert len([line for line in str(caught.value).splitlines() if says in line]) == 1


def test_a_schema_of_ones_own_is_refused(spark: SparkSession, cluster: replog.Cluster, servers: str) -> None:
    cluster.create_topic("t")
    reader = spark.read.format("replog").option("replog.bootstrap.servers", servers).option("subscribe", "t").schema("value string")
    with pytest.raises(Exception, match="the columns of a topic are fixed: key binary, value binary, topic string, partition int, offset"):
        reader.load().collect()


@pytest.mark.parametrize("fails", ["true", "false"])
def test_what_is_lost_while_tasks_run(cluster: replog.Cluster, load: Any, fails: str) -> None:
    """A frame is planned at its first action; by the second one the topic is gone."""
    cluster.create_topic("t")
    cluster.append("t", 0, ["a", "b"])
    frame = load(subscribe="t", failOnDataLoss=fails)
    assert frame.count() == 2
    cluster.delete_topic("t")
    if fails == "true":
        with pytest.raises(Exception, match="t-0: offsets 0 to 1 cannot be read any more: the topic or the partition does not exist"):
            frame.collect()
    else:
        assert frame.collect() == []


def test_sessions_find_it_by_themselves_and_threads_after_registering(spark: SparkSession, cluster: replog.Cluster, servers: str) -> None:
    cluster.create_topic("t")
    cluster.append("t", 0, ["a"])
    other = spark.newSession()

    def count(session: SparkSession) -> int:
        return session.read.format("replog").option("replog.bootstrap.servers", servers).option("subscribe", "t").load().count()

    try:
        assert count(other) == 1
    finally:
        register(spark)  # the newest session is the active one: what others register would not be found
    found: list[int] = []

    def in_a_thread() -> None:
        register(spark)
        register(spark)
        found.append(count(spark))

    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()
    assert found == [1]
