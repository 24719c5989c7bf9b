"""From rows to a topic to a stream to another topic, exactly once, while a task, a broker and the stream itself are killed.

What it does, in the order of `run`:

1. starts three broker processes, and a Spark session in this one;
2. writes the 336,776 flights that left New York City in 2013 to the topic `flights` with `foreachPartition`; one of Spark's Python workers
   is killed in the middle of its task, so Spark runs that task again;
3. reads the topic as a stream, adds up delays per airline and hour of the day, and writes the totals to the topic `delays`; on the way
   a broker is killed, and the stream fails after it has written, so that a restart writes the same totals again;
4. checks both topics against what plain Python makes of the same file: nothing is missing, and nothing is there twice.

    python examples/spark_pipeline.py [--data DIR] [--limit N] [--source FILE]

It needs `pip install "replog[spark]"` and Java 17 or newer; `make spark-demo` takes care of both.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

from quickstart import load_flights

import replog

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's workers run the Python that has replog
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from replog.spark import PartitionWriter, register

BROKERS = 3
PARTITIONS = 6
BATCHES = 8  # micro-batches of the stream, about
SESSION_MS = 4_000  # a broker that gives no sign of life for this long is taken for dead
COLUMNS = [
    *("year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay", "carrier"),
    *("flight", "tailnum", "origin", "dest", "air_time", "distance", "hour", "minute", "time_hour"),
]
FLIGHT = ", ".join(f"{name} STRING" for name in COLUMNS)


class Wrong(Exception):
    """A topic does not hold what it should."""


def say(what: str, text: str) -> None:
    print(f"  {what:<12} {text}", flush=True)


def rate(count: int, started: float) -> str:
    seconds = time.perf_counter() - started
    return f"{seconds:.1f} s, {count / seconds:,.0f} rows/s"


def servers(brokers: dict[int, replog.BrokerProcess]) -> str:
    """What `replog.bootstrap.servers` is: the addresses of those that run."""
    return ",".join(process.endpoint for process in brokers.values() if process.is_running)


def session() -> SparkSession:
    """Two tasks at a time, each with four attempts."""
    builder = SparkSession.builder.master("local[2,4]").appName("replog pipeline")
    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "OFF"}
    small = {"spark.sql.shuffle.partitions": "2", "spark.sql.files.maxPartitionBytes": "4m", "spark.driver.bindAddress": "127.0.0.1"}
    spark = builder.config(map={**quiet, **small, "spark.driver.host": "127.0.0.1"}).getOrCreate()
    register(spark)
    return spark


def killed_once(rows: Iterable[object], after: int, marker: Path) -> Iterator[object]:
    """Hands rows on, until the process that asks for them is killed. A file tells the next attempt that this has happened."""
    is_first = TaskContext.get().partitionId() == 0
    for count, row in enumerate(rows):
        if is_first and count == after and not marker.exists():
            marker.write_text(f"{os.getpid()}")
            os.kill(os.getpid(), signal.SIGKILL)
        yield row


def write_flights(spark: SparkSession, servers: str, lines: list[str], data: Path) -> None:
    """Each line of the file becomes a record, its airline the key: an airline's flights stay in one partition."""
    source, marker = data / "flights.csv", data / "killed"
    source.write_text("\n".join(lines))
    flights = spark.read.text(str(source)).selectExpr("value AS line", f"from_csv(value, '{FLIGHT}').carrier AS carrier")
    writer = PartitionWriter("flights", bootstrap=servers, key="carrier", value="line")
    after = min(20_000, len(lines) // 20)

    started = time.perf_counter()
    flights.foreachPartition(lambda rows: writer(killed_once(rows, after, marker)))
    say("written", f"{len(lines):,} flights in {rate(len(lines), started)}")
    say("killed", f"Python worker {marker.read_text()} of Spark, {after:,} rows into its task; Spark ran the task again")


class Delays:
    """The stream: totals per airline and hour, kept by Spark's state, written by `write` once per micro-batch.

    Each micro-batch writes the totals that it has changed, under its own number; the last record of a key is its total. (The output mode
    `complete` would append all of them each time; append with a watermark would drop flights, for the file is not in order of time.)
    """

    def __init__(self, spark: SparkSession, client: replog.Client, brokers: dict[int, replog.BrokerProcess], data: Path) -> None:
        self._spark = spark
        self._client = client
        self._brokers = brokers
        self._data = data
        self.batches: set[int] = set()

    def start(self, rows: int) -> StreamingQuery:
        """A new query, or the same again from its checkpoint."""
        flights = self._spark.readStream.format("replog").option("replog.bootstrap.servers", servers(self._brokers))
        flights = flights.options(subscribe="flights", startingOffsets="earliest", maxOffsetsPerTrigger=max(1, rows // BATCHES)).load()
        totals = (
            flights.selectExpr(f"from_csv(CAST(value AS STRING), '{FLIGHT}', map('nullValue', 'NA')) AS flight")
            .selectExpr("flight.carrier", "CAST(flight.hour AS INT) AS hour", "CAST(flight.dep_delay AS INT) AS delay")
            .groupBy("carrier", "hour")
            .agg({"*": "count", "delay": "sum"})
            .selectExpr("concat(carrier, ' ', hour) AS key", "`count(1)` AS flights", "coalesce(`sum(delay)`, 0) AS minutes")
        )
        writer = totals.writeStream.outputMode("update").foreachBatch(self.write).option("checkpointLocation", str(self._data / "delays"))
        return writer.trigger(availableNow=True).start()

    def write(self, totals: DataFrame, batch: int) -> None:
        """Called again with the same totals after a failure: `txnAppId` and `txnVersion` make both calls one."""
        if batch == 1:
            self._kill_a_broker()
        rows = totals.selectExpr("key", "to_json(struct(flights, minutes)) AS value").write.format("replog").mode("append")
        names = {"txnAppId": "delays", "txnVersion": batch, "topic": "delays"}
        rows.options(**{"replog.bootstrap.servers": servers(self._brokers), **names}).save()
        if batch == BATCHES // 2 and batch not in self.batches:
            self.batches.add(batch)
            raise RuntimeError(f"micro-batch {batch} has failed")
        self.batches.add(batch)

    def _kill_a_broker(self) -> None:
        lost = self._client.leader("delays", 0)
        if lost is not None and all(process.is_running for process in self._brokers.values()):
            self._brokers[lost].kill()
            say("killed", f"broker {lost}, a leader of both topics, at micro-batch 1")


def aggregate(delays: Delays, count: int) -> None:
    """Run the stream until it has read everything; a query that fails is started again."""
    started = time.perf_counter()
    while True:
        query = delays.start(count)
        try:
            query.awaitTermination()
            break
        except Exception as error:
            if "has failed" not in str(error):
                raise
            say("failed", f"micro-batch {max(delays.batches)}, after its writes; started again from the checkpoint")
    say("aggregated", f"{count:,} flights in {len(delays.batches)} micro-batches: {rate(count, started)}")


def totals_of(lines: list[str]) -> dict[str, tuple[int, int]]:
    """The same sums in plain Python: flights, and minutes of delay at departure of those that left."""
    flights: Counter[str] = Counter()
    minutes: Counter[str] = Counter()
    for row in csv.DictReader(lines, fieldnames=COLUMNS):
        key = f"{row['carrier']} {int(row['hour'])}"
        flights[key] += 1
        minutes[key] += 0 if row["dep_delay"] in ("NA", "") else int(row["dep_delay"])
    return {key: (flights[key], minutes[key]) for key in flights}


def check(client: replog.Client, lines: list[str]) -> None:
    """Raises Wrong unless both topics hold exactly what they should."""
    found = Counter(record.text() for record in client.read("flights"))
    wanted = Counter(lines)
    if found != wanted:
        raise Wrong(f"flights: {(wanted - found).total():,} are missing, {(found - wanted).total():,} are there too often")
    say("checked", f"flights: each of {found.total():,} is there exactly once")

    totals: dict[str, tuple[int, int]] = {}
    for record in client.read("delays"):  # records of one key are in order: the last one counts
        value, key = json.loads(record.text()), record.key.decode()
        if value["flights"] <= totals.get(key, (0, 0))[0]:
            raise Wrong(f"delays: a total of {key} is there twice: {value}")
        totals[key] = (value["flights"], value["minutes"])
    if totals != totals_of(lines):
        raise Wrong("delays: the totals differ from those that plain Python computes")
    worst = max(totals, key=lambda key: totals[key][1])
    say("checked", f"delays: {len(totals):,} totals, as in plain Python; most of it: {worst} h, {totals[worst][1]:,} minutes")


def run(data: Path, lines: list[str]) -> None:
    """Steps 1 to 4."""
    with ExitStack() as stack:
        started = time.perf_counter()
        store, config = f"file://{data / 'store.db'}", {"session_ms": SESSION_MS, "heartbeat_ms": SESSION_MS // 10}
        brokers = {n: replog.BrokerProcess(n, data=data / f"broker-{n}", store=store, config=config) for n in range(1, BROKERS + 1)}
        for process in brokers.values():
            stack.enter_context(process)
        client = stack.enter_context(replog.connect(servers(brokers)))
        for topic in ("flights", "delays"):
            client.create_topic(topic, partitions=PARTITIONS, replication_factor=BROKERS, min_isr=2)
        spark = session()
        stack.callback(spark.stop)
        say("started", f"{BROKERS} brokers and Spark {spark.version} in {time.perf_counter() - started:.1f} s")
        write_flights(spark, servers(brokers), lines, data)
        aggregate(Delays(spark, client, brokers, data), len(lines))
        check(client, lines)


def main() -> int:
    """Read the arguments, run, and turn what went wrong into an exit status."""
    parser = argparse.ArgumentParser(description="Flights through Spark and replog, exactly once.")
    parser.add_argument("--data", type=Path, help="a folder for everything, new or empty (default: one that is deleted afterwards)")
    parser.add_argument("--limit", type=int, help="use only the first N flights, 100 at least")
    parser.add_argument("--source", type=Path, help="another copy of the flights (.csv or .zip)")
    arguments = parser.parse_args()
    if arguments.limit is not None and arguments.limit < 100:
        parser.error(f"--limit is {arguments.limit}; it must be at least 100")
    lines = [flight.line for flight in load_flights(arguments.source)][: arguments.limit]
    with tempfile.TemporaryDirectory(prefix="replog-") as folder:
        data = (arguments.data or Path(folder)).absolute()
        data.mkdir(parents=True, exist_ok=True)
        if any(data.iterdir()):
            parser.error(f"{data} is not empty")
        print("replog and Spark: a pipeline that writes exactly once\n")
        try:
            run(data, lines)
        except Wrong as wrong:
            print(f"\nWRONG: {wrong}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
