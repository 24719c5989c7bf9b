"""Which task of Spark this is: who it writes for, and under which version."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from replog.errors import UsageError
from replog.spark.delivery import Attempt

__all__ = ["attempt", "only_once", "stage", "streaming_attempt"]

_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"
_called: set[tuple[Attempt, str]] = set()
"""The calls of the task that runs in this process, with their topics."""


def stage() -> int | None:
    """Spark's number of the stage that runs here: its own in each action, and the same however often it is tried. None: Spark runs
    nothing here."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return None if context is None else int(context.stageId())


@contextmanager
def only_once(mine: Attempt, topic: str) -> Iterator[None]:
    """One call of a task for a topic, whose rows count as all that the task has for it under this name. Raises UsageError for another
    one, unless the one before has failed."""
    call = mine, topic
    if call in _called:
        raise UsageError(
            f"one task has called a PartitionWriter for topic {topic!r} twice under one name: the rows of the second call would count as "
            "those of the first, written again, and would be dropped. Give all rows of a task to one call, or make a writer for each "
            "call on the driver, or write with guarantee 'at-least-once'"
        )
    _called.difference_update([one for one in _called if one[0].attempt != mine.attempt])
    _called.add(call)
    try:
        yield
    except BaseException:
        _called.discard(call)
        raise


def attempt(writer: str, version: int) -> Attempt:
    """The task that runs here; outside of Spark, the only one of its job."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return Attempt(writer, version, 0, 0)
    return Attempt(writer, version, context.partitionId(), context.taskAttemptId())


def streaming_attempt() -> Attempt:
    """The same in a micro-batch. Its writer is the query, whose id a checkpoint keeps; its version is the micro-batch's."""
    from pyspark import TaskContext

    context = TaskContext.get()
    query = context.getLocalProperty(_QUERY) if context is not None else None
    version = context.getLocalProperty(_BATCH) if context is not None else None
    if context is None or query is None or version is None:
        raise RuntimeError("this task belongs to no streaming query: Spark did not say which micro-batch it writes")
    return Attempt(query, int(version), context.partitionId(), context.taskAttemptId())
