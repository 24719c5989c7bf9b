"""Spark's classes as Java keeps them in memory, in a file: a Java that maps it starts in half the time, and tests start dozens.

    python -m tools.spark_classes     makes the file, unless there is one for this Java and this PySpark

Without the file everything works: a Java that finds none, or one of another Java or other jars, loads its classes from the jars.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from tools.java import java, java_home

__all__ = ["archive", "java_options"]

WAIT_S = 300
"""For Java to write the file, some 150 MB."""


def archive() -> Path:
    """The file for this Java and this PySpark, in the environment of this Python, whether or not it is there."""
    said = subprocess.run([java(), "-version"], capture_output=True, text=True, check=False).stderr
    name = sha256(f"{java()} {said} {version('pyspark')}".encode()).hexdigest()[:16]
    return Path(sys.prefix) / f"spark-classes-{name}.jsa"


def java_options() -> str:
    """What has a Java map the file. It says nothing of one that does not fit: on stdout others read what is meant for them."""
    return f"-XX:SharedArchiveFile={archive()} -Xlog:disable"


def make(target: Path) -> None:
    """Do a little of everything with Spark, and have its Java write down on leaving which classes that took."""
    written = target.with_suffix(f".{os.getpid()}")  # beside it: whole it takes its place, another process may be making it too
    with tempfile.TemporaryDirectory() as folder:
        options = f"-XX:ArchiveClassesAtExit={written} -Xlog:disable"
        os.environ["JAVA_HOME"] = str(java_home(Path(folder)))
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ["PYSPARK_SUBMIT_ARGS"] = f'--driver-java-options "{options}" pyspark-shell'
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        try:
            _work(folder).wait(WAIT_S)
            written.replace(target)
        finally:
            written.unlink(missing_ok=True)


def _work(folder: str) -> subprocess.Popen[bytes]:
    """Rows to a topic, and from there as a stream to another; the process of Java, which is about to leave."""
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

    import replog

    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "OFF"}
    near = {"spark.sql.shuffle.partitions": "2", "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    spark = SparkSession.builder.master("local[2]").config(map={**quiet, **near}).getOrCreate()
    with replog.Cluster(brokers=1, listen="tcp://127.0.0.1:0") as cluster:
        for topic in ("rows", "totals"):
            cluster.create_topic(topic)
        there = {"replog.bootstrap.servers": ",".join(cluster.endpoints)}
        rows = spark.range(100).selectExpr("CAST(id % 7 AS STRING) AS key", "to_json(struct(id)) AS value")
        rows.write.format("replog").mode("append").options(**there, topic="rows").save()
        spark.read.format("replog").options(**there, subscribe="rows").load().groupBy("key").count().collect()

        def write(frame: DataFrame, batch: int) -> None:
            frame.write.format("replog").mode("append").options(**there, topic="totals").save()

        stream = spark.readStream.format("replog").options(**there, subscribe="rows", startingOffsets="earliest").load()
        totals = stream.groupBy("key").count().selectExpr("CAST(key AS STRING)", "CAST(count AS STRING) AS value")
        begun = totals.writeStream.outputMode("update").option("checkpointLocation", f"{folder}/totals").foreachBatch(write)
        begun.trigger(availableNow=True).start().awaitTermination()
        sink = stream.select("key", "value").writeStream.format("replog").options(**there, topic="totals")
        sink.option("checkpointLocation", f"{folder}/rows").trigger(availableNow=True).start().awaitTermination()
    gateway = SparkContext._gateway
    spark.stop()
    process: subprocess.Popen[bytes] = gateway.proc  # type: ignore[union-attr]
    gateway.shutdown()  # type: ignore[union-attr]
    assert process.stdin is not None
    process.stdin.close()
    return process


if __name__ == "__main__":
    wanted = archive()
    if not wanted.exists():
        try:
            make(wanted)
        except Exception as error:
            print(f"tests do without Spark's classes in a file: {error}", file=sys.stderr)
