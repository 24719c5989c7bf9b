"""Faults in Spark's tasks and commits, put there by tests: each strikes so many times in all, and files tell how often it has.

A data source of the test's own has the real one inside, and a function of the test's own calls the real `PartitionWriter`. Tasks reach
"half way in SLICE" once they have handed over half of their rows, or a hundred; "written in SLICE" when everything is written, and Spark
was not told. The driver reaches "before commit" and "after commit"; and "between publications", where a fault is wanted there, once a
partition has its part and before the next one is asked for. In a micro-batch each is also reached as "... of N".
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import frozen
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from replog.spark.datasource import ReplogDataSource
from replog.spark.work import Work
from replog.testing.eventually import eventually

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

EVERY_PAIR = bool(os.environ.get("REPLOG_SPARK_FAULTS"))
"""`make spark-faults`: each fault by itself under each guarantee. Otherwise all in one run under each, and each of a batch by itself under
one."""
HALF_WAY = 100
BETWEEN = "between publications"
WAIT_S = 120.0


def pairs(faults: Iterable[str], ways: Iterable[Any], *, alone: bool = True) -> list[tuple[str, Any]]:
    """Which faults to try in which ways; "all" of them are one run, in every way. Whether each of them is also tried `alone`, in one."""
    every = list(ways)
    return [
        (which, way)
        for number, which in enumerate(faults)
        for way in (every if EVERY_PAIR or which == "all" else [every[number % len(every)]] if alone else [])
    ]


@frozen
class Fault:
    """What happens to whoever is first at a point."""

    point: str
    action: str = "raise"
    """"raise", "exit" (the Python worker), "kill" (process `pid`), "kill group" (`pid`, and the worker), "kill executor", "hang", "meet"
    (wait for another attempt that comes to the same point)."""
    times: int = 1
    pid: int = 0
    together: int = 1
    """It waits at its point until so many have come to theirs, in this folder and in those beside it."""


@frozen
class Faults:
    """Some faults, and the folder in which files tell what has happened. Travels to Spark's workers."""

    folder: str
    wanted: tuple[Fault, ...] = ()

    def struck(self) -> int:
        """How many faults there have been."""
        return len(list(Path(self.folder).glob("*.fault")))

    def attempts(self, point: str) -> list[tuple[int, int]]:
        """(attempt's number, attempt's id) of each attempt that came to a point, by id."""
        names = [path.stem.rpartition(".")[2].split("-") for path in Path(self.folder).glob(f"{point}.*-*.seen")]
        return sorted(((int(number), int(ident)) for number, ident in names), key=lambda one: one[1])

    def at(self, point: str) -> None:
        """Somebody is there."""
        context = TaskContext.get()
        seen = (context.attemptNumber(), context.taskAttemptId()) if context is not None else (0, 0)
        Path(self.folder, f"{point}.{seen[0]}-{seen[1]}.seen").touch()
        for fault in self.wanted:
            if fault.point == point and any(self._claimed(f"{point}.{fault.action}.{turn}") for turn in range(fault.times)):
                self._strike(fault)

    def half_way(self, items: Iterable[Any], version: int | None = None) -> Iterator[Any]:
        """Rows, or Arrow batches of rows, with the point in the middle of the first ones."""
        first = True
        for done, item in enumerate(items):
            if first and hasattr(item, "num_rows"):
                half = item.num_rows // 2
                yield item.slice(0, half)
                self.in_task("half way", version)
                yield item.slice(half)
                first = False
                continue
            if first and done == HALF_WAY:
                self.in_task("half way", version)
                first = False
            yield item

    def in_task(self, point: str, version: int | None = None) -> None:
        """A task is there."""
        context = TaskContext.get()
        assert context is not None
        name = f"{point} in {context.partitionId()}"
        self.at(name)
        if version is not None:
            self.at(f"{name} of {version}")

    def _claimed(self, name: str) -> bool:
        try:
            os.close(os.open(Path(self.folder, f"{name}.fault"), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return False
        return True

    def _strike(self, fault: Fault) -> None:
        executor = executor_here() if fault.action == "kill executor" else None
        if fault.together > 1:
            eventually(lambda: len(list(Path(self.folder).parent.glob("*/*.fault"))) >= fault.together, WAIT_S)
        if fault.action == "raise":
            raise ValueError(f"fault {fault.point}")
        if fault.action == "exit":
            os._exit(3)
        elif fault.action == "kill":
            os.kill(fault.pid, signal.SIGKILL)
        elif fault.action == "kill group":
            with suppress(ProcessLookupError):
                os.killpg(fault.pid, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)  # Spark's Python workers have groups of their own, and would go on
        elif fault.action == "kill executor":
            if executor is not None:
                with suppress(ProcessLookupError):
                    os.kill(executor, signal.SIGKILL)
        elif fault.action == "hang":
            eventually(lambda: Path(self.folder, "go on").exists(), WAIT_S)
        elif fault.action == "meet":
            eventually(lambda: len(self.attempts(fault.point)) > 1, WAIT_S)
        else:
            raise AssertionError(f"no action {fault.action!r}")


@contextmanager
def one_by_one(faults: Faults, point: str = BETWEEN) -> Iterator[None]:
    """Where a fault is wanted there, publications wait for the one before, with the point behind each."""
    publish = Work.publish

    def publish_and_wait(work: Work, *arguments: Any) -> None:
        publish(work, *arguments)
        work.finish()
        faults.at(point)

    if any(fault.point == point for fault in faults.wanted):
        Work.publish = publish_and_wait  # type: ignore[method-assign]
    try:
        yield
    finally:
        Work.publish = publish  # type: ignore[method-assign]


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def executor_here() -> int | None:
    """The executor of this worker, whose parent is a daemon; None if it is killed already, and the daemon has another parent."""
    found = parent_of(os.getppid())
    return found if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{found}/cmdline").read_bytes() else None


def faulty(faults: Faults, name: str = "faulty") -> type[ReplogDataSource]:
    """A data source to register: the real one with these faults."""

    class Faulty(ReplogDataSource):
        name = classmethod(lambda cls: name)

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
            return FaultyBatch(super().writer(schema, overwrite), faults)

        def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
            return FaultyStream(super().streamWriter(schema=schema, overwrite=overwrite), faults)

    return Faulty


class FaultyBatch(DataSourceArrowWriter):
    """The writer of a batch, with faults."""

    def __init__(self, inner: Any, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        message = self._inner.write(self._faults.half_way(iterator))
        self._faults.in_task("written")
        return message

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._faults.at("before commit")
        with one_by_one(self._faults):
            self._inner.commit(messages)
        self._faults.at("after commit")

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._inner.abort(messages)


class FaultyStream(DataSourceStreamArrowWriter):
    """The writer of a micro-batch, with faults."""

    def __init__(self, inner: Any, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        version = int(context.getLocalProperty("streaming.sql.batchId"))
        message = self._inner.write(self._faults.half_way(iterator, version))
        self._faults.in_task("written", version)
        return message

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        for name in ("before commit", f"before commit of {batchId}"):
            self._faults.at(name)
        with one_by_one(self._faults, f"{BETWEEN} of {batchId}"):
            self._inner.commit(messages, batchId)
        for name in ("after commit", f"after commit of {batchId}"):
            self._faults.at(name)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        self._inner.abort(messages, batchId)


@frozen
class FaultyRows:
    """What `foreachPartition` calls: the real function, with faults."""

    inner: Callable[[Iterable[Any]], None]
    faults: Faults

    def __call__(self, rows: Iterable[Any]) -> None:
        self.inner(self.faults.half_way(rows))
        self.faults.in_task("written")
