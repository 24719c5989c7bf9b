"""Which task of Spark this is: who it writes for, and under which version."""

from __future__ import annotations

from replog.spark.delivery import Attempt

__all__ = ["attempt", "in_a_task", "streaming_attempt"]

_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"


def in_a_task() -> bool:
    """Whether Spark runs this."""
    from pyspark import TaskContext

    return TaskContext.get() is not None


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
