"""Writing from Spark against sinks of the same shape that keep nothing: each figure is a ratio of two jobs that take turns in one run.

Run with `pytest benchmarks/test_spark_write.py --benchmark-enable -s`. `local[2]`: two tasks, each a thread of Spark's Java with a Python
worker beside it, and the broker processes share the machine's processors. A row is a key of 8 and a value of 100 bytes that do not
compress, from a cached frame. Processor time is that of all processes, by kind.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from benchmarks.measuring import in_turns, report
from benchmarks.spark_sessions import spark_session
from benchmarks.targets import at_least, at_most
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

import replog
from replog.spark import PartitionWriter
from replog.spark.delivery import GUARANTEES, Guarantee

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.processes, pytest.mark.spark, pytest.mark.long]

ROWS = 1_000_000
ROUNDS = 3
PARTITIONS = 4
TARGETS = {"arrow": 0.6, "rows": 0.8}
"""Of the rate at which the same job writes to nowhere, to one broker."""


class NoOpWriter(DataSourceArrowWriter):
    """Looks at every batch, and keeps nothing."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        assert sum(batch.num_rows for batch in iterator) > 0
        return WriterCommitMessage()


class NoOp(DataSource):
    """The data source around it."""

    @classmethod
    def name(cls) -> str:
        return "no_op_arrow"

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        return NoOpWriter()


def no_op(rows: Iterator[Any]) -> None:
    """Takes every row, and keeps nothing."""
    for _ in rows:
        pass


def rows_of(spark: SparkSession, count: int) -> DataFrame:
    """Keys of 8 bytes, a thousand times fewer than rows; values of 100 random ones."""
    value = "unhex(concat(sha2(cast(id as string), 512), substring(sha2(cast(-id as string), 512), 1, 72)))"
    key = "unhex(substring(sha2(cast(id % 1000 as string), 256), 1, 16))"
    frame = spark.range(0, count, 1, 2).selectExpr(f"{key} as key", f"{value} as value").cache()
    assert frame.count() == count
    return frame


def processor_seconds(pids: Iterable[int]) -> dict[int, float]:
    """Of each of these processes so far; those that have ended are left out."""
    ticks = os.sysconf("SC_CLK_TCK")
    spent = {}
    for pid in pids:
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            spent[pid] = (int(fields[11]) + int(fields[12])) / ticks
    return spent


def kinds_of(brokers: list[int]) -> dict[str, list[int]]:
    """Spark's Java, Python workers, brokers: every process below this one."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                name, _, rest = (entry / "stat").read_text().partition("(")[2].rpartition(")")
                names[int(entry.name)], parents[int(entry.name)] = name, int(rest.split()[1])
    mine = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= more
    java = [pid for pid in mine if names.get(pid) == "java"]
    return {"java": java, "python": sorted(mine - {os.getpid(), *java, *brokers}), "brokers": brokers}


class Watched:
    """A job, and the processor seconds that each run of it costs, by kind. Workers are kept between jobs, so they can be asked."""

    def __init__(self, job: Callable[[], object], brokers: list[int]) -> None:
        self._job = job
        self._brokers = brokers
        self._spent: list[dict[str, float]] = []

    def __call__(self) -> None:
        kinds = kinds_of(self._brokers)
        before = processor_seconds(pid for pids in kinds.values() for pid in pids)
        self._job()
        after = processor_seconds(before)
        self._spent.append({kind: sum(after[pid] - before[pid] for pid in pids if pid in after) for kind, pids in kinds.items()})

    def cpu_s(self) -> dict[str, float]:
        """Medians; the first run warms up."""
        return {kind: statistics.median(one[kind] for one in self._spent[1:]) for kind in self._spent[0]}


@pytest.mark.parametrize("count", [1, 3])
def test_write(benchmark: Any, capsys: Any, tmp_path: Path, count: int) -> None:
    """To one broker process, and to three that keep three copies."""
    with ExitStack() as stack:
        store = f"file://{tmp_path / 'store.db'}"
        processes = [
            stack.enter_context(replog.BrokerProcess(n, data=tmp_path / f"b{n}", store=store)) for n in range(1, count + 1)
        ]
        client = stack.enter_context(replog.connect([one.endpoint for one in processes]))
        servers = ",".join(one.endpoint.removeprefix("tcp://") for one in processes)
        pids = [one.pid for one in processes]
        client.create_topic("t", partitions=PARTITIONS, segment_bytes=64 << 20, retention_bytes=256 << 20)
        spark = stack.enter_context(spark_session(tmp_path))
        spark.dataSource.register(NoOp)
        frame = rows_of(spark, ROWS)
        options = {"replog.bootstrap.servers": servers, "topic": "t"}

        def arrow(**more: str) -> None:
            frame.write.format("replog").mode("append").options(**options, **more).save()

        def arrow_plain() -> None:
            arrow(**{"replog.compression": "none"})

        def arrow_at_least_once() -> None:
            arrow(deliveryGuarantee="at-least-once")

        def arrow_atomic() -> None:
            arrow(deliveryGuarantee="atomic")

        def arrow_no_op() -> None:
            frame.write.format("no_op_arrow").mode("append").save()

        def rows() -> None:
            frame.foreachPartition(PartitionWriter("t", bootstrap=servers, key="key", value="value"))

        def rows_at_least_once() -> None:
            writer = PartitionWriter("t", bootstrap=servers, key="key", value="value", guarantee="at-least-once")
            frame.foreachPartition(writer)

        def rows_no_op() -> None:
            frame.foreachPartition(no_op)

        jobs = {
            "arrow": (arrow, arrow_no_op),
            "arrow, at least once": (arrow_at_least_once, arrow_no_op),
            "arrow, atomic": (arrow_atomic, arrow_no_op),
            "arrow, not compressed": (arrow_plain, arrow_no_op),
            "rows": (rows, rows_no_op),
            "rows, at least once": (rows_at_least_once, rows_no_op),
        }
        for name, both in jobs.items():
            ours, other = (Watched(job, pids) for job in both)
            pairs = in_turns(ours, other, ROUNDS)
            cpu, no_op_cpu = ours.cpu_s(), other.cpu_s()
            figures = {
                "ratio": statistics.median(no_op_s / our_s for our_s, no_op_s in pairs),
                "cpu_ratio": sum(no_op_cpu.values()) / sum(cpu.values()),
                "rows_per_s": ROWS / statistics.median(our_s for our_s, _ in pairs),
                "no_op_rows_per_s": ROWS / statistics.median(no_op_s for _, no_op_s in pairs),
                **{f"{kind}_cpu_s": value for kind, value in cpu.items()},
                **{f"no_op_{kind}_cpu_s": value for kind, value in no_op_cpu.items()},
            }
            targets = [at_least("ratio", TARGETS[name])] if count == 1 and name in TARGETS else []
            report(benchmark, capsys, f"write {name}, {count} broker(s) / to nowhere", figures, *targets)
    benchmark.pedantic(lambda: None, rounds=1)


MANY = 10_000_000
GROWTH_MAX = 1.5
"""A hundred times the rows may cost a worker half as much memory again: its buffers are full then. All rows would be nine times as much."""


def peaks(kinds: dict[str, list[int]]) -> list[float]:
    """MiB that each Python worker held at most."""
    found = []
    for pid in kinds["python"]:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        found += [int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")]
    return found


MEMORY: list[tuple[str, Guarantee]] = [("arrow", each) for each in GUARANTEES] + [("rows", "exactly-once"), ("rows", "at-least-once")]


@pytest.mark.parametrize(("door", "guarantee"), MEMORY)
def test_memory_of_a_worker(benchmark: Any, capsys: Any, tmp_path: Path, door: str, guarantee: Guarantee) -> None:
    """A partition of ten million rows through one task, against one of a hundredth: the most that a worker held."""
    with ExitStack() as stack:
        process = stack.enter_context(replog.BrokerProcess(1, data=tmp_path / "b1", store=f"file://{tmp_path / 'store.db'}"))
        client = stack.enter_context(replog.connect(process.endpoint))
        client.create_topic("t", partitions=PARTITIONS, segment_bytes=64 << 20, retention_bytes=256 << 20)
        spark = stack.enter_context(spark_session(tmp_path))
        options = {"replog.bootstrap.servers": process.endpoint, "deliveryGuarantee": guarantee, "topic": "t"}
        figures = {}
        for name, count in (("few", MANY // 100), ("many", MANY)):
            columns = ("cast(id % 1000 as string) as key", "lpad(cast(id as string), 100, '0') as value")
            frame = spark.range(0, count, 1, 1).selectExpr(*columns)
            if door == "arrow":
                frame.write.format("replog").mode("append").options(**options).save()
            else:
                frame.foreachPartition(PartitionWriter("t", bootstrap=process.endpoint, key="key", value="value", guarantee=guarantee))
            figures[f"{name}_mib"] = max(peaks(kinds_of([process.pid or 0])))
        ends = [one.high_watermark or 0 for one in client.describe("t").partitions]
        assert sum(ends) == MANY // 100 + MANY
    figures["ratio"] = figures["many_mib"] / figures["few_mib"]
    report(benchmark, capsys, f"memory of a worker, {door}, {guarantee}", figures, at_most("ratio", GROWTH_MAX))
    benchmark.pedantic(lambda: None, rounds=1)
