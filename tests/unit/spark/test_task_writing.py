"""The writers of the data source without Spark around them: what travels, what a task writes, and what it leaves behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.types import StructType

import replog
from replog.errors import UnknownTopicOrPartition, UsageError
from replog.spark.at_least_once import AppendingSink
from replog.spark.batch_writing import BatchWriting
from replog.spark.connections import close_clients
from replog.spark.delivery import Attempt, Written
from replog.spark.options import WriteOptions
from replog.spark.stream_writing import StreamWriting
from replog.spark.task_writing import CommitMessage, write_task

SCHEMA = StructType().add("value", "string").add("key", "binary")


@pytest.fixture
def cluster() -> Iterator[replog.Cluster]:
    with replog.Cluster(brokers=1, listen="tcp://127.0.0.1:0") as cluster:
        cluster.create_topic("t", partitions=2)
        yield cluster
        close_clients()


def options(cluster: replog.Cluster, **more: str) -> WriteOptions:
    given = {"replog.bootstrap.servers": ",".join(cluster.endpoints), "deliveryGuarantee": "at-least-once", "topic": "t", **more}
    return WriteOptions.parse(given)


def batch(*values: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values), pa.array([None] * len(values), pa.binary())], names=["value", "key"])


def test_a_batch_writer_is_one_job_wherever_it_travels(cluster: replog.Cluster) -> None:
    made = BatchWriting(options(cluster), SCHEMA, False)
    there, also = (cloudpickle.loads(cloudpickle.dumps(made)) for _ in range(2))
    messages = [there.write(iter([batch("a", "b"), batch("c")])), also.write(iter([]))]
    assert [message.written.attempt.writer for message in messages] == [made._writer] * 2
    assert BatchWriting(options(cluster), SCHEMA, False)._writer != made._writer
    assert messages[0] == CommitMessage(Written(Attempt(made._writer, 0, 0, 0), 3, (("t", 0, 3),)))
    made.commit([cloudpickle.loads(cloudpickle.dumps(message)) for message in messages])
    made.abort([messages[0], None])
    assert [record.text() for record in cluster.read("t")] == ["a", "b", "c"]


def test_what_a_batch_writer_refuses(cluster: replog.Cluster) -> None:
    with pytest.raises(UsageError, match=r"a log cannot be overwritten: write \.mode\(\"append\"\)"):
        BatchWriting(options(cluster), SCHEMA, True)
    with pytest.raises(UnknownTopicOrPartition, match="unknown topic 'u'; known topics are t"):
        BatchWriting(options(cluster, topic="u"), SCHEMA, False)
    with pytest.raises(UsageError, match="a column 'value'"):
        BatchWriting(options(cluster), StructType().add("v", "string"), False)


def test_a_stream_writer_knows_its_query_from_its_task_only(cluster: replog.Cluster) -> None:
    made = cloudpickle.loads(cloudpickle.dumps(StreamWriting(options(cluster), SCHEMA, True)))
    with pytest.raises(RuntimeError, match="this task belongs to no streaming query"):
        made.write(iter([]))
    made.commit([], 3)
    made.abort([None], 3)
    assert list(cluster.read("t")) == []


def test_a_task_that_fails_leaves_nothing_to_be_sent(cluster: replog.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    abandoned: list[AppendingSink] = []
    monkeypatch.setattr(AppendingSink, "abandon", lambda sink: abandoned.append(sink))

    def failing() -> Iterator[Any]:
        yield batch("a")
        raise ValueError("the task has failed")

    made = BatchWriting(options(cluster), SCHEMA, False)
    with pytest.raises(ValueError, match="the task has failed"):
        write_task(made._options, made._columns, Attempt("job", 0, 0, 0), failing())
    assert len(abandoned) == 1
    assert list(cluster.read("t")) == []


def test_errors_come_without_the_frames_they_passed_through(cluster: replog.Cluster) -> None:
    made = BatchWriting(options(cluster), SCHEMA, False)
    cluster.delete_topic("t")
    with pytest.raises(UnknownTopicOrPartition) as told:
        made.write(iter([batch("a")]))
    assert len(told.traceback) == 2  # this function's, and the last one
