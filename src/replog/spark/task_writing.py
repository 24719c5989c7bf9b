"""What one task of the data source does: Arrow batches in, a commit message out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from attrs import frozen
from pyspark.sql.datasource import WriterCommitMessage

from replog.spark.arrow_rows import ArrowRows
from replog.spark.delivery import Attempt, Delivery, Written
from replog.spark.guarantees import batch_bytes_of, delivery_of
from replog.spark.placing import Topics, partitions_of, room_in

if TYPE_CHECKING:
    from replog.spark.columns import WrittenColumns
    from replog.spark.options import WriteOptions

__all__ = ["CommitMessage", "delivery_for", "messages_of", "write_task"]


@frozen
class CommitMessage(WriterCommitMessage):
    """What Spark carries from a task to the driver."""

    written: Written


def delivery_for(options: WriteOptions) -> Delivery:
    """The strategy that the options ask for."""
    batch_bytes = batch_bytes_of(options.connection)
    return delivery_of(options.guarantee, acks=options.acks, compression=options.compression, batch_bytes=batch_bytes)


def write_task(
    options: WriteOptions,
    at: WrittenColumns,
    mine: Attempt,
    batches: Iterable[Any],
    planned: Mapping[str, Sequence[int]] = MappingProxyType({}),
) -> CommitMessage:
    """Write the batches of one task, and wait until they are as safe as was asked for. `planned`: the partitions of topics that the
    driver has looked up for all tasks."""
    for topic in planned:  # asked all the same: with the answer comes what a batch may hold, and which cluster is there
        options.connection.ask(partial(partitions_of, topic=topic))
    with options.connection.explained() as client:

        def partitions_for(topic: str) -> Sequence[int]:
            return planned[topic] if topic in planned else partitions_of(client, topic)

        config = client._core.config
        rows = ArrowRows(
            Topics(partitions_for, partitioner=options.partitioner, task=mine.slice, room=partial(room_in, client)),
            at,
            topic=options.topic,
            task=mine.slice,
            cells_bytes=batch_bytes_of(options.connection),
            record_bytes_max=min(config.max_record_bytes, config.buffer_bytes),
        )
        sink = delivery_for(options).begin(client, mine)
        try:
            for batch in batches:
                for placed in rows.placed(batch):
                    sink.add(placed)
            return CommitMessage(sink.finish())
        except BaseException:
            sink.abandon()
            raise


def messages_of(messages: Sequence[WriterCommitMessage | None]) -> list[Written]:
    """Of the tasks that ended well: the others have none."""
    return [message.written for message in messages if isinstance(message, CommitMessage)]
