"""What the tests of reading share: readers without Spark around them, and logs that lose what they held."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

import replog
from replog.records import Record
from replog.spark.batch_reading import BatchReading
from replog.spark.columns import read_schema
from replog.spark.options import ReadOptions
from replog.spark.stream_reading import StreamReading
from replog.testing.eventually import eventually

LONG_AGO_MS = 1_600_000_000_000
ROLLING = {"segment_bytes": 256}
"""Each batch is a segment of its own, so that retention can take it away alone."""


def parsed(servers: str, options: dict[str, Any], *, streaming: bool) -> ReadOptions:
    """Options as Spark passes them: texts."""
    texts = {name: json.dumps(value) if isinstance(value, dict) else str(value) for name, value in options.items()}
    return ReadOptions.parse({"replog.bootstrap.servers": servers, **texts}, streaming=streaming)


def batch(servers: str, **options: Any) -> BatchReading:
    made = parsed(servers, options, streaming=False)
    return BatchReading(made, read_schema(headers=made.include_headers))


def stream(servers: str, **options: Any) -> StreamReading:
    made = parsed(servers, options, streaming=True)
    return StreamReading(made, read_schema(headers=made.include_headers))


def rows(reader: BatchReading | StreamReading, partitions: Iterable[InputPartition]) -> list[tuple[int, int, bytes | None]]:
    """(partition, offset, value) of everything, task by task."""
    found = []
    for partition in partitions:
        for arrow in reader.read(partition):
            columns = (arrow.column(name).to_pylist() for name in ("partition", "offset", "value"))
            found += list(zip(*columns, strict=True))
    return found


def latest(reader: StreamReading, start: dict[str, Any], limit: ReadLimit | None = None) -> dict[str, Any]:
    """The end of the next micro-batch, through JSON as Spark passes it."""
    return json.loads(json.dumps(reader.latestOffset(json.loads(json.dumps(start)), limit or ReadAllAvailable())))


def begun(reader: StreamReading) -> dict[str, Any]:
    """Where a new query begins, once its first micro-batch, which is empty, has put that into the checkpoint."""
    start: dict[str, Any] = reader.initialOffset()
    assert latest(reader, start) == start
    return start


def micro_batch(reader: StreamReading, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int, bytes | None]]:
    return rows(reader, reader.partitions(json.loads(json.dumps(start)), json.loads(json.dumps(end))))


def append(client: replog.Client, texts: Iterable[str], *, topic: str = "t", partition: int = 0, timestamp_ms: int | None = None) -> None:
    """Each in a batch of its own."""
    for text in texts:
        client.append(topic, partition, [Record(text, timestamp_ms=timestamp_ms)])


def trimmed(client: replog.Client, topic: str = "t") -> int:
    """Let retention take away what is old; returns the first offset that is left."""
    before = client.offset(topic, 0, "earliest")
    client.alter_topic(topic, retention_ms=60_000)
    eventually(lambda: client.offset(topic, 0, "earliest") != before)
    found = client.offset(topic, 0, "earliest")
    assert found is not None
    return found


def recreated(client: replog.Client, topic: str = "t", **arguments: Any) -> None:
    """Another topic of the same name."""
    client.delete_topic(topic)
    client.create_topic(topic, **arguments)
