"""The writers of the data source without Spark around them: what travels, what a task writes, and what it leaves behind."""

from __future__ import annotations

import os
import sys
import types
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


def test_partitions_that_are_added_during_a_job_move_no_key(cluster: replog.Cluster) -> None:
    made = BatchWriting(options(cluster, deliveryGuarantee="exactly-once"), SCHEMA, False)
    keys = [f"key-{n}".encode() for n in range(40)]
    rows = pa.RecordBatch.from_arrays([pa.array([str(n) for n in range(40)]), pa.array(keys, pa.binary())], names=["value", "key"])
    there = cloudpickle.dumps(made)
    cloudpickle.loads(there).write(iter([rows]))
    cluster.add_partitions("t", 5)
    close_clients()  # the next attempt runs in another worker
    cloudpickle.loads(there).write(iter([rows]))
    assert sorted(int(record.text()) for record in cluster.read("t")) == list(range(40))
    assert {record.partition for record in cluster.read("t")} == {0, 1}


def test_partitions_that_are_added_during_a_job_move_no_row_without_a_key(cluster: replog.Cluster) -> None:
    """They follow the task's number, modulo the number of partitions."""
    made = BatchWriting(options(cluster, deliveryGuarantee="exactly-once"), SCHEMA, False)
    for attempt in range(2):
        write_task(made._options, made._columns, Attempt("job", 0, 3, attempt), [batch("a", "b")], made._partitions)
        cluster.add_partitions("t", 5 + attempt)
        close_clients()
    assert [(record.partition, record.text()) for record in cluster.read("t")] == [(1, "a"), (1, "b")]


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


def test_errors_reach_the_driver_as_a_sentence(cluster: replog.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "__main__", types.SimpleNamespace(__spec__=types.SimpleNamespace(name="pyspark.daemon")))
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")
    made = BatchWriting(options(cluster), SCHEMA, False)
    cluster.delete_topic("t")
    with pytest.raises(UnknownTopicOrPartition):
        made.write(iter([batch("a")]))
    assert os.environ["SPARK_HIDE_TRACEBACK"] == "1"


def test_the_default_stores_a_job_once_however_often_its_tasks_run(cluster: replog.Cluster) -> None:
    for _ in range(2):
        made = BatchWriting(options(cluster, deliveryGuarantee="exactly-once"), SCHEMA, False)
        for _ in range(2):  # a task, and the task once more
            messages = [cloudpickle.loads(cloudpickle.dumps(made)).write(iter([batch("a", "b")]))]
        made.commit(messages)
    assert sorted(record.text() for record in cluster.read("t")) == ["a", "a", "b", "b"]


@pytest.mark.parametrize("guarantee", ["exactly-once", "atomic"])
def test_a_job_that_is_run_again_under_its_name(cluster: replog.Cluster, guarantee: str) -> None:
    for version, text in ((7, "a"), (7, "a"), (8, "b"), (6, "c")):
        named = options(cluster, deliveryGuarantee=guarantee, txnAppId="nightly", txnVersion=str(version))
        made = BatchWriting(named, SCHEMA, False)
        made.commit([made.write(iter([batch(text)]))])
    assert [record.text() for record in cluster.read("t")] == ["a", "b"]


def test_a_job_that_failed_leaves_nothing_under_atomic(cluster: replog.Cluster) -> None:
    made = BatchWriting(options(cluster, deliveryGuarantee="atomic"), SCHEMA, False)
    made.abort([made.write(iter([batch("a")])), None])
    assert list(cluster.read("t")) == []


def test_a_stream_takes_no_name_of_ours(cluster: replog.Cluster) -> None:
    named = options(cluster, deliveryGuarantee="exactly-once", txnAppId="nightly", txnVersion="1")
    with pytest.raises(UsageError, match="txnAppId and txnVersion are for batches: a stream is told from others by its query id"):
        StreamWriting(named, SCHEMA, False)
