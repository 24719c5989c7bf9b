"""Jobs for a session whose executors are other processes, perhaps on other hosts; run by tests in a process of its own.

    python -m tests.integration.spark.cluster_jobs '{"master": ..., "config": {...}, "servers": ..., "executors": 2, "jobs": [...]}'

Each job has a folder for its faults, a topic, and a kind: "read", "save" (the data source) or "rows" (`foreachPartition`). What each
of them found is the last line, in JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
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
    """Place and value of every row, and the addresses of the executors that read them: of so many `hosts`, each has some to read."""
    wanted = options.pop("hosts", 1)

    def told(rows: Iterable[Any]) -> Iterator[tuple[int, int, str, str]]:
        here = os.environ.get("SPARK_LOCAL_IP", "")
        Path(faults.folder, f"{here}.host").touch()
        eventually(lambda: len(list(Path(faults.folder).glob("*.host"))) >= wanted, WAIT_S)
        for row in faults.half_way(rows):
            yield row.partition, row.offset, bytes(row.value).decode(), here

    frame = spark.read.format("replog").option("replog.bootstrap.servers", servers).option("subscribe", topic).options(**options).load()
    found = frame.rdd.mapPartitions(told).collect()
    return {"rows": sorted(row[:3] for row in found), "hosts": sorted({row[3] for row in found})}


def save(spark: SparkSession, servers: str, topic: str, faults: Faults, options: dict[str, Any]) -> Any:
    spark.dataSource.register(faulty(faults))
    writer = rows_of(spark).write.format("faulty").mode("append").option("replog.bootstrap.servers", servers)
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
    results = []
    for job in plan["jobs"]:
        eventually(lambda: running.getExecutorMemoryStatus().size() > plan["executors"], 300)  # the driver is one
        faults = Faults(job["folder"], tuple(Fault(point, action) for point, action in job["faults"]))
        results.append(KINDS[job["kind"]](spark, plan["servers"], job["topic"], faults, job["options"]))
    print(json.dumps(results))
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
