"""Executors in processes of their own: they import replog themselves, reach the brokers themselves, and may be killed under a read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.spark.conftest import QUIET

import replog

# Two executors with a core each. The first task that has read a row kills its executor: worker <- daemon <- executor.
SCRIPT = """
import json, os, signal, sys
from pyspark import TaskContext
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local-cluster[2,1,1024]")
for key, value in json.loads(sys.argv[1]).items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
reader = spark.read.format("replog").option("replog.bootstrap.servers", sys.argv[2]).option("subscribe", "t")

def deadly(rows, flag=sys.argv[3]):
    for row in rows:
        if TaskContext.get().partitionId() == 0 and not os.path.exists(flag):
            open(flag, "w").close()
            executor = int(open(f"/proc/{os.getppid()}/stat").read().rpartition(")")[2].split()[1])
            os.kill(executor, signal.SIGKILL)
        yield row.partition, row.offset

found = reader.option("minPartitions", 6).load().rdd.mapPartitions(deadly).collect()
print(json.dumps(sorted(found)))
spark.stop()
"""


@pytest.mark.usefixtures("spark_environment")
def test_an_executor_that_dies_under_a_read(cluster: replog.Cluster, servers: str, tmp_path: Path) -> None:
    cluster.create_topic("t", partitions=2)
    for partition in (0, 1):
        cluster.append("t", partition, [str(n) for n in range(300)])
    flag = tmp_path / "killed"
    command = [sys.executable, "-c", SCRIPT, json.dumps(QUIET), servers, str(flag)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [[partition, n] for partition in (0, 1) for n in range(300)]
    assert flag.exists()
