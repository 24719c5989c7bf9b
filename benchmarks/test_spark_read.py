"""What Spark reads from a broker process, against a data source in Python that makes its rows from nothing: Arrow both ways.

Run with `pytest benchmarks/test_spark_read.py --benchmark-enable -s`; it needs Java and the extra `spark`. A million records of 8 and 100
bytes in two partitions, `local[2]`, into Spark's own sink that drops them. Rounds take turns in one run; the broker, the two Python
workers and the JVM share the processors there are, which the report names.
"""

from __future__ import annotations

import contextlib
import os
import random
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from benchmarks.measuring import in_turns, report
from benchmarks.spark_sessions import spark_session
from benchmarks.spark_sources import RowsFromNothing
from benchmarks.targets import at_least
from benchmarks.test_processes import cpu_us

import replog
from replog.spark.batch_reading import BatchReading
from replog.spark.columns import read_schema
from replog.spark.connections import close_clients
from replog.spark.options import ReadOptions
from replog.spark.ranges import RangeReading

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS = 1_000_000
PARTITIONS = 2
ROUNDS = 5

pytestmark = [pytest.mark.processes, pytest.mark.spark]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_session(tmp_path_factory.mktemp("java")) as session:
        session.dataSource.register(RowsFromNothing)
        yield session


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[replog.BrokerProcess]:
    """One broker process with a topic `t`, filled with bytes that do not compress."""
    folder = tmp_path_factory.mktemp("broker")
    chance = random.Random(1)
    with replog.BrokerProcess(1, data=folder / "b1", store=f"file://{folder / 'store.db'}") as process:
        with replog.connect(process.endpoint) as client:
            client.create_topic("t", partitions=PARTITIONS)
            with client.producer(compression=None) as producer:
                for start in range(0, RECORDS, 10_000):
                    values = [chance.randbytes(100) for _ in range(10_000)]
                    keys = [number.to_bytes(8, "big") for number in range(start, start + 10_000)]
                    producer.send_many("t", values, keys=keys, partition=start // 10_000 % PARTITIONS)
        yield process


def test_a_million_records(benchmark: Any, capsys: Any, spark: SparkSession, broker: replog.BrokerProcess) -> None:
    """Whole reads. Nanoseconds are of processor time per record: of Spark and its workers (`replog_ns`, `nothing_ns`), of the broker, and
    of the two halves of a task, taken in this process afterwards. `processor_ratio` is disturbed less by neighbours than `ratio` is."""
    options = {"replog.bootstrap.servers": broker.endpoint, "subscribe": "t"}
    assert broker.pid is not None

    worked: dict[str, float] = {"replog": 0.0, "nothing": 0.0}

    def drop(name: str, frame: DataFrame) -> None:
        before = family_cpu_us(broker.pid)
        frame.write.format("noop").mode("overwrite").save()
        worked[name] += family_cpu_us(broker.pid) - before

    def read() -> None:
        drop("replog", spark.read.format("replog").options(**options).load())

    def nothing() -> None:
        reader = spark.read.format("rows_from_nothing").option("records", RECORDS).option("partitions", PARTITIONS)
        drop("nothing", reader.load())

    assert spark.read.format("replog").options(**options).load().count() == RECORDS
    before = cpu_us(broker.pid)
    pairs = in_turns(read, nothing, ROUNDS)
    spent = cpu_us(broker.pid) - before
    mine, other = (statistics.median(seconds) for seconds in zip(*pairs, strict=True))
    ratios = [theirs / ours for ours, theirs in pairs]
    figures = {"ratio": statistics.median(ratios), "ratio_min": min(ratios), "ratio_max": max(ratios)}
    figures |= {"rows_per_s": RECORDS / mine, "rows_per_s_from_nothing": RECORDS / other, "processors": float(os.cpu_count() or 0)}
    figures |= {"processor_ratio": worked["nothing"] / worked["replog"]}
    figures |= {f"{name}_ns": us * 1e3 / RECORDS / (ROUNDS + 1) for name, us in {**worked, "broker": spent}.items()} | halves(options)
    benchmark.pedantic(lambda: None, rounds=1)
    report(benchmark, capsys, "a million records read / rows from nothing", figures, at_least("ratio", 0.6))


def family_cpu_us(without: int | None) -> float:
    """Processor time so far of this process and of all that come from it and live, without one of them."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    family = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in family and pid != without} - family:
        family |= more
    total = 0.0
    for pid in family:
        with contextlib.suppress(OSError):
            total += cpu_us(pid)
    return total


def halves(options: dict[str, str]) -> dict[str, float]:
    """Nanoseconds of processor time per record: fetching and checking stored batches, and making Arrow batches of them."""
    reader = BatchReading(ReadOptions.parse(options, streaming=False), read_schema(headers=False))
    task = reader.partitions()[0]
    count = task.value.size

    def fetch() -> None:
        for _ in RangeReading(reader._options.connection.client(), reader._options, task.value).stretches():
            pass

    def both() -> None:
        for _ in reader.read(task):
            pass

    spent = {}
    for name, loop in (("fetch", fetch), ("both", both)):
        loop()
        before = cpu_us(os.getpid())
        loop()
        spent[name] = (cpu_us(os.getpid()) - before) * 1e3 / count
    close_clients()
    return {"fetch_ns": spent["fetch"], "unpack_ns": spent["both"] - spent["fetch"]}
