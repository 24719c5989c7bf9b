"""`PartitionWriter`: what `df.foreachPartition` and `rdd.foreachPartition` are given to write each partition to a topic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from itertools import islice
from typing import Any, Final, Literal
from uuid import uuid4

from replog.client.arguments import check_choice, check_count, parse_acks
from replog.client.client import Client
from replog.client.partitioner import PARTITIONERS
from replog.config import check_topic_name
from replog.errors import UsageError
from replog.spark.attempts import attempt, only_once, stage
from replog.spark.connections import Connection
from replog.spark.delivery import Attempt, Guarantee, Sink
from replog.spark.grouping import placed
from replog.spark.guarantees import batch_bytes_of, check_guarantee, check_identity, delivery_of
from replog.spark.placing import Topics, partitions_of, room_in
from replog.spark.rows import RowColumns, Selector
from replog.spark.sentences import in_a_sentence
from replog.spark.shipping import Shipped

__all__ = ["PartitionWriter"]

ROWS_AT_ONCE: Final = 256
"""Rows that are looked at together: held in memory besides those that Spark's own reader holds."""


class PartitionWriter(Shipped):
    """Writes the rows of each partition that it is called with to a topic::

        df.foreachPartition(PartitionWriter("flights", bootstrap="host:9092", key="carrier"))

    Made on the driver, called on executors; it opens nothing before it is called, and shares the connections of its worker process. A
    call returns when everything is acknowledged as `acks` says, and raises what the cluster refused; then Spark runs the task again.

    Each action on the driver is work of its own, whose tasks store their rows once: its id is drawn when this object is packed to be sent
    to them, and has the number of the action's stage behind it. So it is made on the driver, and a task calls it once. With `txn_app_id`
    and `txn_version` it is the same work whenever both are the same.
    """

    def __init__(
        self,
        topic: str,
        *,
        bootstrap: str | Iterable[str],
        key: Selector = None,
        value: Selector = None,
        headers: Selector = None,
        partition: Selector = None,
        format: Literal["json", "msgpack"] = "json",
        acks: int | Literal["all"] = "all",
        guarantee: Guarantee = "exactly-once",
        txn_app_id: str | None = None,
        txn_version: int | None = None,
        partitioner: Literal["crc32", "murmur2"] = "crc32",
        compression: Literal["lz4"] | None = "lz4",
        batch_bytes: int | None = None,
        config: Mapping[str, Any] | None = None,
        security: str | None = None,
    ) -> None:
        """`key`, `value`, `headers`, `partition`: a column's name, a place in a tuple, or a function of the row.

        Without `value` a row that is bytes or str is written as it is, any other one whole, as `format` says. A row goes to the
        partition it names, else to its key's, else all such rows of a task go to one. `config` (with `batch_bytes`) is a client's:
        `ClientConfig`; `security` names a file of settings that each executor has. `txn_app_id` and `txn_version`, which grows, say
        that another run writes the same rows again. Raises UsageError naming the argument.
        """
        self.topic = check_topic_name(topic)
        self._columns = RowColumns(key, value, headers, partition, format)
        self._columns.check()
        check_choice("partitioner", partitioner, PARTITIONERS)
        self._partitioner = partitioner
        self._acks = parse_acks(acks)
        self.guarantee = check_guarantee("guarantee", guarantee, "acks", self._acks)
        if self.guarantee == "atomic":
            raise UsageError(
                "guarantee 'atomic' needs a commit on the driver, which foreachPartition does not have: "
                "write with df.write.format(\"replog\"), or with guarantee 'exactly-once'"
            )
        self.txn_app_id = None if txn_app_id is None else _text("txn_app_id", txn_app_id)
        self.txn_version = None if txn_version is None else check_count("txn_version", txn_version, 0)
        check_identity(("txn_app_id", "txn_version"), self.txn_app_id, self.txn_version, self.guarantee)
        self._action: str | None = None
        settings = dict(config or {})
        if batch_bytes is not None:
            settings["batch_bytes"] = batch_bytes
        if security is not None and (not isinstance(security, str) or not security):
            raise UsageError(f"security is {type(security).__name__}; name a file of settings that each executor has")
        self._connection = Connection.of(bootstrap, settings, security)
        self._compression = check_choice("compression", compression, ("lz4", None))

    @in_a_sentence()
    def __call__(self, rows: Iterable[Any]) -> None:
        """Write one partition."""
        mine = attempt(self._writer(), self.txn_version or 0)
        is_repeatable = self.guarantee == "at-least-once" or stage() is None
        with nullcontext() if is_repeatable else only_once(mine, self.topic):
            self._connection.ask(partial(partitions_of, topic=self.topic))  # which cluster is there: before a row is taken
            with self._connection.explained() as client:
                self._write(client, mine, iter(rows))

    def _packed_state(self) -> dict[str, Any]:
        """One action's, however often it is unpacked; this object and its copies may be used for others."""
        return self.__dict__ if stage() is not None else {**self.__dict__, "_action": uuid4().hex}

    def _writer(self) -> str:
        """Whose work this is; outside of Spark, where nobody repeats a call, that of each call. Raises UsageError where a task that is run
        again would have another name."""
        if self.txn_app_id is not None:
            return self.txn_app_id
        number = stage()
        if number is None or self.guarantee == "at-least-once":
            return uuid4().hex
        if self._action is None:
            raise UsageError(
                f"this PartitionWriter for topic {self.topic!r} was made in a task: tried again, the task would write under another name, "
                "and its rows twice. Make it on the driver, give it txn_app_id and txn_version, or guarantee 'at-least-once'"
            )
        return f"{self._action}-{number}"  # what was packed once, as in a broadcast, may serve several actions

    def _write(self, client: Client, mine: Attempt, rows: Iterator[Any]) -> None:
        config = client._core.config
        topics = Topics(partial(partitions_of, client), partitioner=self._partitioner, task=mine.slice, room=partial(room_in, client))
        batch_bytes = batch_bytes_of(self._connection)
        delivery = delivery_of(self.guarantee, acks=self._acks, compression=self._compression, batch_bytes=batch_bytes)
        sink = delivery.begin(client, mine)
        try:
            self._add_all(sink, topics, mine, rows, min(config.max_record_bytes, config.buffer_bytes))
            sink.finish()
        except BaseException:
            sink.abandon()
            raise

    def _add_all(self, sink: Sink, topics: Topics, mine: Attempt, rows: Iterator[Any], record_bytes_max: int) -> None:
        done = 0
        while some := list(islice(rows, ROWS_AT_ONCE)):

            def place(index: int, before: int = done) -> str:
                return f"row {before + index} of Spark partition {mine.slice}"

            chosen = self._columns.of(some, place)
            for each in placed(chosen, topics.placement(self.topic), place, record_bytes_max):
                sink.add(each)
            done += len(some)

    def __repr__(self) -> str:
        return f"PartitionWriter({self.topic!r}, bootstrap={','.join(self._connection.bootstrap)!r}, guarantee={self.guarantee!r})"


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{name} is {value!r:.80}; it is a str that is not empty")
    return value
