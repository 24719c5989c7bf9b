"""A streaming write: `df.writeStream.format("replog")`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from replog.errors import UsageError
from replog.spark.attempts import streaming_attempt
from replog.spark.columns import check_written_schema
from replog.spark.sentences import in_a_sentence
from replog.spark.shipping import Shipped
from replog.spark.task_writing import CommitMessage, delivery_for, messages_of, write_task

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from replog.spark.options import WriteOptions

__all__ = ["StreamWriting"]


class StreamWriting(Shipped, DataSourceStreamArrowWriter):
    """Made anew for each micro-batch and again for its commit, so it remembers nothing: the id of the query comes with the messages."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        """`overwrite` says that the output mode is `complete`: as Spark's Kafka connector does, each result is appended whole."""
        if options.txn_app_id is not None:
            raise UsageError(
                "txnAppId and txnVersion are for batches: a stream is told from others by its query id, which its checkpoint keeps, and "
                "its micro-batches by their ids; under a name of your own a new checkpoint would begin with ids that count as written"
            )
        self._columns = check_written_schema(schema, has_topic=options.topic is not None)
        self._options = options

    @in_a_sentence()
    def write(self, iterator: Iterator[Any]) -> CommitMessage:
        """One task of one micro-batch: its rows as Arrow batches."""
        return write_task(self._options, self._columns, streaming_attempt(), iterator)

    @in_a_sentence()
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Every task of this micro-batch has ended well. Comes again, with other messages, if Spark replays it."""
        with self._options.connection.explained() as client:
            delivery_for(self._options).commit(client, messages_of(messages), batchId)

    @in_a_sentence()
    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """The micro-batch has failed: perhaps only its commit, after it took effect."""
        with self._options.connection.explained() as client:
            delivery_for(self._options).abort(client, messages_of(messages), batchId)
