"""Batch jobs whose tasks, workers, commits and brokers fail: every row is there exactly once, and of an atomic job all or none."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.spark.brokers import Brokers, columns, differences, expected
from tests.integration.spark.faults import BETWEEN, Fault, Faults, FaultyRows, faulty, pairs

from replog.spark import PartitionWriter, register
from replog.testing.eventually import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 2_000
TASKS = 4
PIECES = {"max_batch_bytes": 1_000}
"""A topic whose batches take less than a task has for a partition."""

TASK_FAULTS = {
    "half way": (Fault("half way in 2"), Fault("half way in 3")),
    "worker exits": (Fault("half way in 1", "exit"),),
    "after writing": (Fault("written in 0"), Fault("written in 3")),
}
COMMIT_FAULTS = {"before commit": (Fault("before commit"),), "after commit": (Fault("after commit"),)}
ALL = tuple(fault for some in [*TASK_FAULTS.values(), *COMMIT_FAULTS.values()] for fault in some)
FAULTS: dict[str, tuple[Fault, ...]] = {**TASK_FAULTS, **COMMIT_FAULTS, "all": ALL}

ATOMIC = {"deliveryGuarantee": "atomic"}
GUARANTEES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "exactly once": ({}, {}),
    "exactly once, in pieces": ({}, PIECES),
    "atomic": (ATOMIC, PIECES),
}
"""Options of the job, and the topic's configuration."""

Save = Callable[..., None]


@pytest.fixture
def save(spark: SparkSession, brokers: Brokers) -> Save:
    """`save(frame, topic, faults, **options)`: one batch job, through the data source."""

    def with_faults(frame: DataFrame, topic: str, faults: Faults, **options: Any) -> None:
        spark.dataSource.register(faulty(faults))
        writer = frame.write.format("faulty").mode("append")
        writer.options(**{"replog.bootstrap.servers": brokers.servers, "topic": topic, **options}).save()

    return with_faults


def rows_of(spark: SparkSession, *, shuffled: bool = False) -> DataFrame:
    frame = spark.range(0, ROWS, 1, TASKS)
    return (frame.repartition(TASKS, "id") if shuffled else frame).selectExpr(*columns())


def failures(job: Callable[[], None], most: int = 5) -> list[str]:
    """Run a job again until it ends well, as a scheduler of jobs would; returns what the runs before failed with."""
    failed: list[str] = []
    while len(failed) < most:
        try:
            job()
        except Exception as error:
            failed.append(str(error))
        else:
            return failed
    raise AssertionError(f"{most} runs have failed: {failed}")


@pytest.mark.parametrize(("which", "guarantee"), pairs(FAULTS, GUARANTEES))
def test_every_row_is_there_once(spark: SparkSession, brokers: Brokers, save: Save, tmp_path: Path, which: str, guarantee: str) -> None:
    """E1. A job whose commit failed is run again under the same names; one whose tasks failed is not."""
    options, config = GUARANTEES[guarantee]
    topic = brokers.topic(**config)
    faults = Faults(str(tmp_path), FAULTS[which])
    frame = rows_of(spark, shuffled=which == "all")
    options = {"txnAppId": "load", "txnVersion": 7, **options}
    failed = failures(lambda: save(frame, topic, faults, **options))
    assert faults.struck() == len(FAULTS[which])
    for fault, error in zip((fault for fault in FAULTS[which] if fault.point.endswith("commit")), failed, strict=True):
        assert f"fault {fault.point}" in error
    assert differences(brokers.rows(topic), expected(range(ROWS))) == {}


@pytest.mark.parametrize(("which", "pieces"), pairs([*TASK_FAULTS, "all"], [False, True]))
def test_every_row_of_foreach_partition(spark: SparkSession, brokers: Brokers, tmp_path: Path, which: str, pieces: bool) -> None:
    topic = brokers.topic(**PIECES if pieces else {})
    wanted = tuple(fault for fault in FAULTS[which] if not fault.point.endswith("commit"))
    faults = Faults(str(tmp_path), wanted)
    writer = PartitionWriter(topic, bootstrap=brokers.servers, key="key", value="value")
    rows_of(spark, shuffled=which == "all").foreachPartition(FaultyRows(writer, faults))
    assert faults.struck() == len(wanted)
    assert differences(brokers.rows(topic), expected(range(ROWS))) == {}


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_task_that_fails_for_good(spark: SparkSession, brokers: Brokers, save: Save, tmp_path: Path, guarantee: str) -> None:
    """E2: four attempts, then the job fails. An atomic one leaves nothing; either is completed by a run under the same names."""
    options, config = GUARANTEES[guarantee]
    topic = brokers.topic(**config)
    faults = Faults(str(tmp_path), (Fault("half way in 3", times=4),))
    options = {"txnAppId": "load", "txnVersion": 1, **options}
    with pytest.raises(Exception, match="fault half way in 3"):
        save(rows_of(spark), topic, faults, **options)
    assert [number for number, _ in faults.attempts("half way in 3")] == [0, 1, 2, 3]
    left = brokers.rows(topic)
    if guarantee.startswith("atomic"):
        assert left == Counter()
    else:
        assert set(left.values()) <= {1}
    save(rows_of(spark), topic, faults, **options)
    assert differences(brokers.rows(topic), expected(range(ROWS))) == {}


@pytest.mark.parametrize("guarantee", ["exactly once, in pieces", "atomic"])
def test_a_job_that_is_cancelled(spark: SparkSession, brokers: Brokers, save: Save, tmp_path: Path, guarantee: str) -> None:
    """E5: its workers are killed while two tasks have written everything; Spark tells them nothing."""
    options, config = GUARANTEES[guarantee]
    topic = brokers.topic(**config)
    faults = Faults(str(tmp_path), (Fault("written in 0", "hang"), Fault("written in 1", "hang")))
    options = {"txnAppId": "load", "txnVersion": 1, **options}
    failed: list[str] = []

    def job() -> None:
        register(spark)  # a new thread has no session
        try:
            save(rows_of(spark), topic, faults, **options)
        except Exception as error:
            failed.append(str(error))

    thread = threading.Thread(target=job)
    thread.start()
    eventually(lambda: (faults.struck() == 2) or failed, 120)
    spark.sparkContext.cancelAllJobs()
    thread.join(120)
    assert not thread.is_alive()
    assert "cancelled" in failed[0]
    if guarantee.startswith("atomic"):
        assert brokers.rows(topic) == Counter()
    save(rows_of(spark), topic, faults, **options)
    assert differences(brokers.rows(topic), expected(range(ROWS))) == {}


KILLS = [(guarantee, point) for guarantee in GUARANTEES for point in ("half way in 1", "written in 2")]
KILLS += [("atomic", "before commit"), ("atomic", "after commit")]  # the other commits do nothing


@pytest.mark.parametrize(("guarantee", "point"), KILLS)
def test_a_broker_that_is_killed(
    spark: SparkSession, mortal_brokers: Brokers, save: Save, tmp_path: Path, point: str, guarantee: str
) -> None:
    """During the write, between write and commit, and during the commit: with it goes what was only staged."""
    options, config = GUARANTEES[guarantee]
    topic = mortal_brokers.topic(**config)
    faults = Faults(str(tmp_path), (Fault(point, "kill", pid=mortal_brokers.leader(topic).pid),))
    options = {"txnAppId": "load", "txnVersion": 1, **options}
    failed = failures(lambda: save(rows_of(spark), topic, faults, **options, **mortal_brokers.option))
    if guarantee != "atomic" or point == "after commit":
        assert failed == []
    if point == "before commit":
        assert [f"replog.errors.UnknownStage: {topic}-" in error for error in failed] == [True]
    assert differences(mortal_brokers.rows(topic), expected(range(ROWS))) == {}
    assert mortal_brokers.whole() == 1
    assert differences(mortal_brokers.rows(topic), expected(range(ROWS))) == {}


def test_a_broker_that_is_killed_between_two_publications(spark: SparkSession, mortal_brokers: Brokers, save: Save, tmp_path: Path) -> None:
    """Some partitions have their part, one has lost it: the run that comes again leaves the first as they are, and brings the other."""
    topic = mortal_brokers.topic(**PIECES)
    lost = next(p for p in (1, 2) if mortal_brokers.leader(topic, p) is not mortal_brokers.leader(topic, 0))
    faults = Faults(str(tmp_path), (Fault(BETWEEN, "kill", pid=mortal_brokers.leader(topic, lost).pid),))
    parts: list[list[int]] = []

    def job() -> None:
        try:
            save(rows_of(spark), topic, faults, txnAppId="load", txnVersion=1, **ATOMIC, **mortal_brokers.option)
        finally:
            parts.append([len(list(mortal_brokers.client.read(topic, partitions=[partition]))) for partition in range(3)])

    failed = failures(job)
    assert faults.struck() == 1
    assert [f"replog.errors.UnknownStage: {topic}-{lost}" in error for error in failed] == [True]
    before, after = parts
    assert before[0] == after[0] > before[lost] == 0
    assert differences(mortal_brokers.rows(topic), expected(range(ROWS))) == {}
    mortal_brokers.whole()
    assert differences(mortal_brokers.rows(topic), expected(range(ROWS))) == {}


def test_a_broker_that_is_killed_under_foreach_partition(spark: SparkSession, mortal_brokers: Brokers, tmp_path: Path) -> None:
    topic = mortal_brokers.topic(**PIECES)
    faults = Faults(str(tmp_path), (Fault("half way in 1", "kill", pid=mortal_brokers.leader(topic).pid),))
    writer = PartitionWriter(topic, bootstrap=mortal_brokers.servers, key="key", value="value")
    rows_of(spark).foreachPartition(FaultyRows(writer, faults))
    assert faults.struck() == 1
    assert differences(mortal_brokers.rows(topic), expected(range(ROWS))) == {}


def test_a_writer_is_used_for_several_actions(spark: SparkSession, brokers: Brokers) -> None:
    """Each action is a job of its own, whether the writer is the same, a copy, or another one."""
    topic = brokers.topic()
    writer = PartitionWriter(topic, bootstrap=brokers.servers, key="key", value="value")
    again = copy(writer)
    for prefix, each in (("a", writer), ("b", writer), ("c", again), ("c", copy(again)), ("a", writer)):
        spark.range(0, 100, 1, 2).selectExpr(*columns(prefix)).foreachPartition(each)
    once, twice = expected(range(100), "b"), expected(range(100), "a") + expected(range(100), "c")
    assert differences(brokers.rows(topic), once + twice + twice) == {}


def test_a_writer_with_names_is_one_job(spark: SparkSession, brokers: Brokers) -> None:
    topic = brokers.topic()
    names = {"txn_app_id": "load", "txn_version": 3}
    for _ in range(2):
        writer = PartitionWriter(topic, bootstrap=brokers.servers, key="key", value="value", **names)
        spark.range(0, 100, 1, 2).selectExpr(*columns()).foreachPartition(writer)
    assert differences(brokers.rows(topic), expected(range(100))) == {}
