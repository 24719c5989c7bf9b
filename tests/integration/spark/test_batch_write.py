"""Batch writes through real Spark: which rows go where, tasks that Spark runs again, and what is said when something is wrong."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest

import replog
from replog.spark import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VALUES = "cast(id as string) as value"


@pytest.fixture
def save(servers: str) -> Any:
    """`save(frame, topic="t", ...)`: write it with the data source, at least once."""

    def with_options(frame: DataFrame, mode: str | None = "append", **options: Any) -> None:
        writer = frame.write.format("replog")
        for name, value in {"replog.bootstrap.servers": servers, "deliveryGuarantee": "at-least-once", **options}.items():
            if value is not None:
                writer = writer.option(name, value)
        (writer if mode is None else writer.mode(mode)).save()

    return with_options


def failing(where: Path, task: int, times: int) -> Any:
    """Rows of a task that fails half way so many times; files in a folder tell how often it has."""

    def rows(number: int, rows: Iterator[Any]) -> Iterator[Any]:
        for done, row in enumerate(rows):
            before = len(list(where.iterdir()))
            if number == task and done == 500 and before < times:
                (where / str(before)).touch()
                raise ValueError("the task has failed")
            yield row

    return rows


def test_every_column(spark: SparkSession, cluster: replog.Cluster, save: Any) -> None:
    for topic in ("t", "u"):
        cluster.create_topic(topic, partitions=3)
    rows = spark.range(3_000).selectExpr(
        *("cast(concat('v', id) as binary) as value", "case when id % 10 = 0 then null else concat('k', id % 100) end as key"),
        "case when id % 7 = 0 then array(struct('h' as key, cast(concat('', id) as binary) as value)) end as headers",
        *("case when id % 2 = 0 then 't' else 'u' end as topic", "case when id % 5 = 0 then 2 end as partition", "id as left_out"),
    )
    save(rows.repartition(4), includeHeaders="true")
    found: dict[int, replog.Record] = {}
    for topic in ("t", "u"):
        for record in cluster.read(topic):
            found[int(record.text()[1:])] = record
    assert sorted(found) == list(range(3_000))
    for number, record in found.items():
        key = None if number % 10 == 0 else b"k%d" % (number % 100)
        assert (record.topic, record.key) == ("t" if number % 2 == 0 else "u", key)
        assert record.headers == ([("h", b"%d" % number)] if number % 7 == 0 else [])
        if key is not None:
            assert record.partition == (2 if number % 5 == 0 else crc32(key) % 3)


def test_the_option_goes_before_the_column(spark: SparkSession, cluster: replog.Cluster, save: Any) -> None:
    cluster.create_topic("t")
    frame = spark.createDataFrame([(None, "gone")], "value string, topic string")
    save(frame, topic="t", **{"replog.acks": "1", "replog.compression": "none"})
    assert [(r.value, r.key, r.headers) for r in cluster.read("t")] == [(None, None, [])]
    save(frame.limit(0), topic="t")
    assert len(list(cluster.read("t"))) == 1


def test_a_task_that_fails_is_run_again(spark: SparkSession, cluster: replog.Cluster, save: Any, tmp_path: Path) -> None:
    """E1: at least once, so rows of the first attempt may be there twice; each is there."""
    cluster.create_topic("t", partitions=2)
    rdd = spark.sparkContext.range(4_000, numSlices=4).mapPartitionsWithIndex(failing(tmp_path, 2, 1))
    save(rdd.map(lambda n: (str(n),)).toDF("value string"), topic="t", **{"replog.batch.bytes": 1_000})
    found = Counter(int(record.text()) for record in cluster.read("t"))
    assert sorted(found) == list(range(4_000))
    assert {number for number, times in found.items() if times > 1} <= set(range(2_000, 3_000))
    assert len(list(tmp_path.iterdir())) == 1


def test_a_task_that_fails_for_good(spark: SparkSession, cluster: replog.Cluster, save: Any, tmp_path: Path) -> None:
    """E2: the job fails after four attempts; at-least-once undoes nothing."""
    cluster.create_topic("t")
    rdd = spark.sparkContext.range(2_000, numSlices=2).mapPartitionsWithIndex(failing(tmp_path, 1, 100))
    with pytest.raises(Exception, match="the task has failed"):
        save(rdd.map(lambda n: (str(n),)).toDF("value string"), topic="t")
    assert len(list(tmp_path.iterdir())) == 4
    assert set(range(1_000)) <= {int(record.text()) for record in cluster.read("t")}


def test_from_a_new_thread(spark: SparkSession, cluster: replog.Cluster, save: Any) -> None:
    """E12: a new thread has no active session; `register` gives it one."""
    cluster.create_topic("t")
    failed: list[BaseException] = []

    def write() -> None:
        try:
            register(spark)
            save(spark.range(5).selectExpr(VALUES), topic="t")
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    thread.join()
    assert failed == []
    assert len(list(cluster.read("t"))) == 5


DRIVER: list[tuple[str, dict[str, Any], str]] = [
    (VALUES, {"topic": "orders"}, "UnknownTopicOrPartition: unknown topic 'orders'; known topics are t"),
    (VALUES, {"mode": "overwrite"}, "UsageError: a log cannot be overwritten: write .mode"),
    (VALUES, {"mode": None}, "cannot be written in the \"ErrorIfExists\" mode"),
    (VALUES, {"topic": None}, "UsageError: nothing says which topic to write to"),
    ("id as value", {}, "UsageError: column 'value' is bigint; expected is string or binary"),
    ("cast(id as string) as vlaue", {}, "UsageError: there is a column 'vlaue', which is not known; did you mean 'value'"),
    ("cast(id as string) as text", {}, "UsageError: a column 'value' .string or binary. is required; there are 'text'"),
    (VALUES, {"acks": "all"}, "UsageError: unknown option 'acks'; did you mean replog.acks"),
    (VALUES, {"deliveryGuarantee": None, "replog.acks": 1}, "UsageError: replog.acks is 1; exactly-once needs 'all'"),
    (VALUES, {"deliveryGuarantee": "atomic", "txnAppId": "j"}, "UsageError: txnAppId needs txnVersion beside it"),
    (
        VALUES,
        {"replog.bootstrap.servers": "127.0.0.1:9", "replog.request.timeout.ms": 200},
        "TimedOut: no broker was reached at tcp://127.0.0.1:9",
    ),
]


@pytest.mark.parametrize(("column", "options", "said"), DRIVER)
def test_what_is_refused_before_any_task(
    spark: SparkSession, cluster: replog.Cluster, save: Any, column: str, options: dict[str, Any], said: str
) -> None:
    cluster.create_topic("t")
    with pytest.raises(Exception, match=said) as told:
        save(spark.range(3).selectExpr(column), **{"topic": "t", **options})
    assert "task" not in str(told.value)
    assert list(cluster.read("t")) == []


TASKS: list[tuple[list[str], dict[str, Any], str]] = [
    (
        [VALUES],
        {"replog.max.record.bytes": 1},
        "MessageTooLarge: row 0 of Spark partition 0: a record of 2 bytes is too large; max_record_bytes is 1",
    ),
    ([VALUES, "3 as partition"], {}, "UnknownTopicOrPartition: row 0 of Spark partition 0: topic 't' has no partition 3; it has 0"),
    ([VALUES, "'orders' as topic"], {"topic": None}, "UnknownTopicOrPartition: unknown topic 'orders'; known topics are t"),
]


@pytest.mark.parametrize(("columns", "options", "said"), TASKS)
def test_what_a_task_refuses_is_the_last_sentence(
    spark: SparkSession, cluster: replog.Cluster, save: Any, columns: list[str], options: dict[str, Any], said: str
) -> None:
    cluster.create_topic("t")
    with pytest.raises(Exception, match="Python worker") as told:
        save(spark.range(10, 12, 1, 1).selectExpr(*columns), **{"topic": "t", **options})
    lines = [line for line in str(told.value).splitlines() if line.strip()]
    assert lines[-1] == f"replog.errors.{said}"
    assert not [line for line in lines if line.lstrip().startswith("File")]
