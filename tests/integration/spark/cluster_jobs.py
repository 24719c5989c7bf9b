"""Jobs for a session whose executors are other processes, perhaps on other hosts; run by tests in a process of its own.

    python -m tests.integration.spark.cluster_jobs
        '{"master": ..., "config": {...}, "servers": ..., "executors": 2, "at_once": 1, "jobs": [...]}'

Each job has a folder for its faults, a topic, and a kind: "read", "save" (the data source) or "rows" (`foreachPartition`); so many of
them run `at_once`. What each of them found is the last line, in JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from tests.integration.spark.brokers import columns
from tests.integration.spark.faults import WAIT_S, Fault, Faults, FaultyRows, faulty

from replog.spark import PartitionWriter, register
from replog.testing.eventually import eventually

ROWS = 2_000
TASKS = 4


def rows_of(spark: SparkSession) -> DataFrame:
    """Behind a shuffle, whose files are lost with their executor."""
    return spark.range(0, ROWS, 1, TASKS).repartition(TASKS, "id").selectExpr(*columns())


def read(spark: SparkSession, servers: str, topic: str, faults: Faults, options: dict[str, Any]) -> Any:
    """Place and value of every row, and the addresses of the executors that have read some: so many `hosts`, which wait for each other."""
    wanted = options.pop("hosts", 1)

    def told(rows: Iterable[Any]) -> Iterator[tuple[int, int, str]]:
        for count, row in enumerate(faults.half_way(rows)):
            if not count:
                Path(faults.folder, f"{os.environ.get('SPARK_LOCAL_IP', '')}.host").touch()
                eventually(lambda: len(list(Path(faults.folder).glob("*.host"))) >= wanted, WAIT_S)
            yield row.partition, row.offset, bytes(row.value).decode()

    frame = spark.read.format("replog").option("replog.bootstrap.servers", servers).option("subscribe", topic).options(**options).load()
    found = frame.rdd.mapPartitions(told).collect()
    return {"rows": sorted(found), "hosts": sorted(path.stem for path in Path(faults.folder).glob("*.host"))}


def save(spark: SparkSession, servers: str, topic: str, faults: Faults, options: dict[str, Any]) -> Any:
    spark.dataSource.register(faulty(faults, topic))
    writer = rows_of(spark).write.format(topic).mode("append").option("replog.bootstrap.servers", servers)
    writer.option("topic", topic).options(**options).save()


def rows(spark: SparkSession, servers: str, topic: str, faults: Faults, options: dict[str, Any]) -> Any:
    writer = PartitionWriter(topic, bootstrap=servers, key="key", value="value", **options)
    rows_of(spark).foreachPartition(FaultyRows(writer, faults))


KINDS = {"read": read, "save": save, "rows": rows}


def main(plan: dict[str, Any]) -> None:
    builder = SparkSession.builder.master(plan["master"])
    for key, value in plan["config"].items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    running = spark.sparkContext._jsc.sc()

    def run(job: dict[str, Any]) -> Any:
        register(spark)  # a new thread has no session
        eventually(lambda: running.getExecutorMemoryStatus().size() > plan["executors"], 300)  # the driver is one
        faults = Faults(job["folder"], tuple(Fault(point, action, together=plan["at_once"]) for point, action in job["faults"]))
        return KINDS[job["kind"]](spark, plan["servers"], job["topic"], faults, job["options"])

    with ThreadPoolExecutor(plan["at_once"]) as threads:
        print(json.dumps(list(threads.map(run, plan["jobs"]))))
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
