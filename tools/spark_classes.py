"""What lets the processes of Spark start in half the time, of which tests start hundreds: a SPARK_HOME, and Spark's classes in a file.

    python -m tools.spark_classes     makes the file, unless there is one for this Java and this PySpark

The file holds the classes as Java keeps them in memory, and a Java maps it. The home has Spark without its zip of PySpark, from which
Python workers would import: each of them compiles anew what is in a zip. So they import what is installed.

Without the file everything works: a Java that finds none, or one of another Java or other jars, loads its classes from the jars.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tools.java import java, java_home, spark_jars

__all__ = ["HASTY", "archive", "java_options", "spark_home"]

HASTY = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a Java that lives for minutes: optimising its code would take more of the processor than it saves."""
WAIT_S = 300
"""For all of it; Java writes some 150 MB."""
_HOME = Path(sys.prefix) / "spark-home"
STALE_S = 3_600
"""Nobody is at work any more at what is so old."""


def spark_home() -> Path:
    """The SPARK_HOME, made if it is not there, always at one place: the file of classes is of its jars. Spark's own if it cannot be."""
    try:
        _HOME.mkdir(exist_ok=True)
        for name in ("bin", "sbin", "jars"):
            link = _HOME / name
            if not link.exists():
                link.unlink(missing_ok=True)  # it led to a PySpark that is gone
                with suppress(FileExistsError):  # another process makes it too
                    link.symlink_to(spark_jars().parent / name)
    except OSError:
        return spark_jars().parent
    return _HOME


def archive() -> Path | None:
    """The file for this Java and this PySpark, in the environment of this Python, whether or not it is there.

    None where there can be none: Java has no archive of its own classes to add to, or its options cannot name the place.
    """
    said = subprocess.run([java(), "-version"], capture_output=True, text=True, check=False).stderr
    if "sharing" not in said or set(sys.prefix) & set(" \t\n'\""):
        return None
    name = sha256(f"{java()} {said} {_HOME} {version('pyspark')}".encode()).hexdigest()[:16]
    return Path(sys.prefix) / f"spark-classes-{name}.jsa"


def java_options() -> str:
    """What has a Java map the file, if it is there. Of one that does not fit it says nothing: its stdout is read by others."""
    found = archive()
    return f"-XX:SharedArchiveFile={found} -Xlog:disable" if found is not None and found.exists() else ""


def make(target: Path) -> None:
    """Do a little of everything with Spark, and have its Java write down on leaving which classes that took."""
    for left in target.parent.glob("spark-classes-*.part"):
        if time.time() - left.stat().st_mtime > STALE_S:
            left.unlink(missing_ok=True)
    written = target.with_suffix(f".{os.getpid()}.part")  # whole it takes the other's place; another process may be making it too
    with tempfile.TemporaryDirectory() as folder:
        os.environ["JAVA_HOME"] = str(java_home(Path(folder)))
        os.environ["SPARK_HOME"] = str(spark_home())
        os.environ["PYSPARK_PYTHON"] = sys.executable
        options = f"{HASTY} -XX:ArchiveClassesAtExit={written} -Xlog:disable"
        os.environ["PYSPARK_SUBMIT_ARGS"] = f'--driver-java-options "{options}" pyspark-shell'
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        try:
            _work(folder)
            if (status := _leave()) or not written.exists():
                raise OSError(f"Java ended with status {status} and left {'something' if written.exists() else 'nothing'}")
            with written.open("rb") as file:
                os.fsync(file.fileno())  # what is broken off behind its head crashes a Java
            written.replace(target)
        finally:
            _kill()  # or it would write the file after all
            written.unlink(missing_ok=True)


def _leave() -> int:
    """Have Java end, which writes the file; its exit status."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()
    status: int = gateway.proc.wait()
    return status


def _kill() -> None:
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    if gateway is not None and gateway.proc.poll() is None:
        gateway.proc.kill()
        gateway.proc.wait()


def _too_long(number: int, frame: object) -> None:
    raise TimeoutError(f"took longer than {WAIT_S} s")


def _work(folder: str) -> None:
    """Rows to a topic, and from there as a stream to another."""
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
    spark.stop()


def main() -> None:
    """Make the file if it can be there and is not. Nothing depends on it."""
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(WAIT_S)
    try:
        wanted = archive()
        if wanted is not None and not wanted.exists():
            make(wanted)
    except Exception as error:
        print(f"tests do without Spark's classes in a file: {error!r}", file=sys.stderr)


if __name__ == "__main__":
    main()
