"""A batch write: `df.write.format("replog").mode("append").save()`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from replog.errors import UsageError
from replog.spark.attempts import attempt
from replog.spark.columns import check_written_schema
from replog.spark.placing import partitions_of
from replog.spark.sentences import in_a_sentence
from replog.spark.shipping import Shipped
from replog.spark.task_writing import CommitMessage, delivery_for, messages_of, write_task

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from replog.spark.options import WriteOptions

__all__ = ["BatchWriting"]


class BatchWriting(Shipped, DataSourceArrowWriter):
    """Made once per job, on the driver; what was made travels to the tasks and to the commit, so they all know the job by one id."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        """Refuses on the driver what every task would fail for, an unknown topic included."""
        if overwrite:
            raise UsageError('a log cannot be overwritten: write .mode("append"); delete_topic and create_topic begin a topic anew')
        self._columns = check_written_schema(schema, has_topic=options.topic is not None)
        self._options = options
        self._writer = uuid4().hex if options.txn_app_id is None else options.txn_app_id
        self._version = options.txn_version or 0
        self._partitions: dict[str, list[int]] = {}
        """Of the topic as the job begins: a task that is run again sends no key elsewhere because partitions were added meanwhile."""
        if options.topic is not None:
            self._partitions[options.topic] = options.connection.ask(partial(partitions_of, topic=options.topic))

    @in_a_sentence()
    def write(self, iterator: Iterator[Any]) -> CommitMessage:
        """One task: its rows as Arrow batches."""
        return write_task(self._options, self._columns, attempt(self._writer, self._version), iterator, self._partitions)

    @in_a_sentence()
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Every task has ended well. Another cluster than theirs has nothing to commit, and says so."""
        delivery = delivery_for(self._options)
        self._options.connection.ask(lambda client: delivery.commit(client, messages_of(messages), self._version))

    @in_a_sentence()
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """A task has failed for good, the job was cancelled, or the commit failed: perhaps after it took effect."""
        delivery = delivery_for(self._options)
        self._options.connection.ask(lambda client: delivery.abort(client, messages_of(messages), self._version))
