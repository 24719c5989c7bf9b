"""Streams whose tasks, commits, drivers and brokers fail: restarts from the checkpoint bring every row into the topic exactly once."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.spark.brokers import Brokers, Row, differences, expected
from tests.integration.spark.conftest import QUIET
from tests.integration.spark.faults import BETWEEN, Fault, Faults, faulty, pairs
from tests.integration.spark.test_faults_batch import ALL, ATOMIC, COMMIT_FAULTS, PIECES, TASK_FAULTS, failures

import replog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

PARTITIONS = 3
EACH = 400
"""Rows in each partition of the source."""
ROWS = PARTITIONS * EACH
BATCHES = 3

GUARANTEES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "exactly once": ({}, {}),
    "exactly once, in pieces": ({}, PIECES),
    "atomic": (ATOMIC, PIECES),
}
"""Options of the query, and the topic's configuration."""

Start = Callable[..., "StreamingQuery"]


def filled(brokers: Brokers) -> str:
    """A topic with rows to stream."""
    topic = brokers.topic(partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        numbers = range(partition, ROWS, PARTITIONS)
        brokers.client.append(topic, partition, [replog.Record(f"row {n}", key=f"k{n % 50}") for n in numbers])
    return topic


def streamed(spark: SparkSession, servers: str, source: str) -> DataFrame:
    """The rows of a topic, in three micro-batches: from given offsets, so that the first one has some of them."""
    reader = spark.readStream.format("replog").option("replog.bootstrap.servers", servers)
    starts = json.dumps({source: {str(partition): 0 for partition in range(PARTITIONS)}})
    return reader.options(subscribe=source, startingOffsets=starts, maxOffsetsPerTrigger=ROWS // BATCHES).load()


@pytest.fixture
def start(spark: SparkSession, brokers: Brokers, tmp_path: Path) -> Start:
    """`start(frame, topic, faults, **options)`: a query that writes what is there; again from its checkpoint."""

    def with_faults(frame: DataFrame, topic: str, faults: Faults, **options: Any) -> StreamingQuery:
        spark.dataSource.register(faulty(faults))
        writer = frame.select("key", "value").writeStream.format("faulty").option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer = writer.options(**{"replog.bootstrap.servers": brokers.servers, "topic": topic, **options})
        return writer.trigger(availableNow=True).start()

    return with_faults


STREAM_FAULTS = {**TASK_FAULTS, **COMMIT_FAULTS}
STREAM_FAULTS = {name: tuple(fault for fault in some if not fault.point.endswith("3")) for name, some in STREAM_FAULTS.items()}
STREAM_FAULTS["all"] = (
    *(fault for some in STREAM_FAULTS.values() for fault in some),
    *(Fault(f"{fault.point} of 2") for fault in ALL if not fault.point.endswith("3")),
)


@pytest.mark.first
@pytest.mark.parametrize(("which", "guarantee"), pairs(STREAM_FAULTS, GUARANTEES, alone=False))
def test_every_row_is_there_once(
    spark: SparkSession, brokers: Brokers, start: Start, tmp_path: Path, which: str, guarantee: str
) -> None:
    """E7: a task is run again within its micro-batch; a commit that fails ends the query, and its restart replays the micro-batch."""
    options, config = GUARANTEES[guarantee]
    source, topic = filled(brokers), brokers.topic(**config)
    wanted = STREAM_FAULTS[which]
    faults = Faults(str(tmp_path), wanted)
    frame = streamed(spark, brokers.servers, source)
    if which == "all":
        frame = frame.repartition(PARTITIONS, "key")
    failed = failures(lambda: start(frame, topic, faults, **options).awaitTermination())
    assert faults.struck() == len(wanted)
    assert [re.findall("fault (.* commit[^\n]*)", error)[0] for error in failed] == [one.point for one in wanted if "commit" in one.point]
    assert differences(brokers.rows(topic), expected(range(ROWS))) == {}


KILLS = [(guarantee, f"{point} of 1") for guarantee in ("exactly once, in pieces", "atomic") for point in ("half way in 1", "written in 2")]
KILLS += [("atomic", "before commit of 1"), ("atomic", "after commit of 1")]  # the other commits do nothing


@pytest.mark.parametrize(("guarantee", "point"), KILLS)
def test_a_broker_that_is_killed(
    spark: SparkSession, mortal_brokers: Brokers, start: Start, tmp_path: Path, point: str, guarantee: str
) -> None:
    """It leads partitions of both topics, of the one that is read and the one that is written."""
    options, config = GUARANTEES[guarantee]
    source, topic = filled(mortal_brokers), mortal_brokers.topic(**config)
    faults = Faults(str(tmp_path), (Fault(point, "kill", pid=mortal_brokers.leader(topic).pid),))
    frame = streamed(spark, mortal_brokers.servers, source)
    failed = failures(lambda: start(frame, topic, faults, **options, **mortal_brokers.option).awaitTermination())
    assert faults.struck() == 1
    if guarantee != "atomic" or point.startswith("after"):
        assert failed == []
    if point.startswith("before"):
        assert [f"replog.errors.UnknownStage: {topic}-" in error for error in failed] == [True]
    assert differences(mortal_brokers.rows(topic), expected(range(ROWS))) == {}


@pytest.mark.parametrize("more", [{}, ATOMIC])
def test_inside_foreach_batch(spark: SparkSession, brokers: Brokers, tmp_path: Path, more: dict[str, str]) -> None:
    """E11: a function that raises after its writes is called again with the same micro-batch; names of its own make it one job."""
    source, topic = filled(brokers), brokers.topic()
    faults = Faults(str(tmp_path), (Fault("after the writes of 0"), Fault("after the writes of 1")))
    options = {"replog.bootstrap.servers": brokers.servers, "topic": topic, "txnAppId": "stream", **more}

    def write(frame: DataFrame, batch: int) -> None:
        rows = frame.select("key", "value")
        rows.write.format("replog").mode("append").options(**options, txnVersion=batch).save()
        faults.at(f"after the writes of {batch}")

    def run() -> None:
        writer = streamed(spark, brokers.servers, source).writeStream.foreachBatch(write)
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start().awaitTermination()

    assert len(failures(run)) == 2
    assert faults.struck() == 2
    assert differences(brokers.rows(topic), expected(range(ROWS))) == {}


# Queries side by side. One that has come to its fault waits there for the others; then this process, Spark's Java and its workers go.
SCRIPT = """
import json, os, sys
from pyspark.sql import SparkSession
from replog.spark import register
from tests.integration.spark.faults import Fault, Faults, faulty
from tests.integration.spark.test_faults_stream import streamed
from replog.testing.eventually import eventually

quiet, servers, source, folder, queries = json.loads(sys.argv[1])
builder = SparkSession.builder.master("local[2]")
for key, value in quiet.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
register(spark)
started = []
for topic, (point, options) in queries.items():
    fault = Fault(point, "kill group", pid=os.getpid(), together=len(queries))
    spark.dataSource.register(faulty(Faults(f"{folder}/{topic}", (fault,)), topic))
    frame = streamed(spark, servers, source).select("key", "value")
    writer = frame.writeStream.format(topic).option("checkpointLocation", f"{folder}/{topic}/checkpoint").option("topic", topic)
    writer = writer.option("replog.bootstrap.servers", servers).options(**options)
    query = writer.trigger(availableNow=True).start()
    eventually(lambda: query.lastProgress or not query.isActive, 120)  # Spark gives a Python process ten seconds to start
    started.append(query)
for query in started:
    query.awaitTermination()
spark.stop()
"""


@pytest.mark.first
@pytest.mark.usefixtures("spark_environment")
def test_a_driver_that_is_killed(brokers: Brokers, tmp_path: Path) -> None:
    """At once in the middle of a task of one query, between two publications of another, and after a commit of a third that Spark has not
    noted. Each goes on from its checkpoint."""
    source = filled(brokers)
    middle, between, after = (brokers.topic(**PIECES) for _ in range(3))
    queries = {middle: ("half way in 1 of 1", {}), between: (f"{BETWEEN} of 1", ATOMIC), after: ("after commit of 2", ATOMIC)}
    for topic in queries:
        (tmp_path / topic).mkdir()
    command = [sys.executable, "-c", SCRIPT, json.dumps([QUIET, brokers.servers, source, str(tmp_path), queries])]

    def run() -> tuple[int, str]:
        said = tmp_path / "said"
        with said.open("w") as file:  # a pipe would not end before the last of Spark's workers does
            process = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True, cwd=tmp_path)
        try:
            return process.wait(600), said.read_text()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)

    status, err = run()
    assert status == -signal.SIGKILL, err
    assert [Faults(str(tmp_path / topic)).struck() for topic in queries] == [1, 1, 1]
    batch = ROWS // BATCHES // PARTITIONS * PARTITIONS
    assert batch < brokers.rows(between).total() < 2 * batch
    assert brokers.rows(after).total() == 3 * batch
    status, err = run()
    assert status == 0, err
    for topic in queries:
        assert differences(brokers.rows(topic), expected(range(ROWS))) == {}


def test_what_is_written_is_read_by_another_query(spark: SparkSession, brokers: Brokers, start: Start, tmp_path: Path) -> None:
    """From topic to topic to a table, with a commit that fails on the way."""
    source, topic = filled(brokers), brokers.topic()
    faults = Faults(str(tmp_path), (Fault("after commit of 1"),))
    frame = streamed(spark, brokers.servers, source)
    assert len(failures(lambda: start(frame, topic, faults).awaitTermination())) == 1
    found: Counter[Row] = Counter()

    def note(frame: DataFrame, batch: int) -> None:
        found.update((bytes(row.key), bytes(row.value)) for row in frame.select("key", "value").collect())

    writer = streamed(spark, brokers.servers, topic).writeStream.foreachBatch(note)
    writer.option("checkpointLocation", str(tmp_path / "second")).trigger(availableNow=True).start().awaitTermination()
    assert differences(found, expected(range(ROWS))) == {}
