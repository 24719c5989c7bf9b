"""Batches to append and ways to look at a log, for the contract suites of logs and for tests of backends."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, Protocol

import pytest

from replog.config import BrokerConfig, TopicConfig
from replog.errors import UsageError
from replog.marks import WriterMark, marked
from replog.model import PartitionId
from replog.ports import Log, LogDirectory
from replog.records import Record, RecordBatch, decode_records, encode_records

__all__ = [
    "FIRST",
    "SECOND",
    "SMALL",
    "TOPIC_ID",
    "Ending",
    "Lives",
    "append",
    "append_group",
    "batch_of",
    "entries_of",
    "flush",
    "refuses_what_is_not_next",
    "shown",
    "stored_batches",
]

TOPIC_ID = bytes(range(16))
FIRST = PartitionId(TOPIC_ID, 0, 0)
SECOND = PartitionId(TOPIC_ID, 1, 0)
SMALL = TopicConfig(segment_bytes=600)

Ending = Literal["clean", "process", "power"]


class Lives(Protocol):
    """One directory through its lives."""

    def open(self, *, limits: BrokerConfig | None = None) -> LogDirectory:
        """Open the directory: empty the first time, after that with what its last life left.

        A directory is of one life at a time. While one is open this raises UsageError and leaves it alone; `end` still ends that one.
        It must be the directory that refuses, as it would another process. Set `is_locked = False` in the suite if it cannot.
        """

    def end(self, how: Ending) -> None:
        """End the current life: stop cleanly, kill the process, or cut the power so that whatever was not flushed is lost."""


def batch_of(values: Sequence[str] | int, *, at_ms: int = 1_000, producer: tuple[int, int, int] = (-1, -1, -1)) -> RecordBatch:
    """A batch with these values, or with so many; `producer` is id, epoch and sequence."""
    values = [f"value {n}" for n in range(values)] if isinstance(values, int) else values
    producer_id, producer_epoch, sequence = producer
    records = [Record(value, timestamp_ms=at_ms) for value in values]
    return RecordBatch(
        encode_records(records, now_ms=at_ms, producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=sequence)
    )


def append(log: Log, values: Sequence[str] | int = 1, *, epoch: int = 0, **options: Any) -> RecordBatch:
    """Append one batch at the end of a log."""
    batch = batch_of(values, **options)
    batch.stamp(log.identity, log.end_offset, epoch)
    log.append(batch)
    return batch


def append_group(
    log: Log, *sizes: int, key: str = "w", version: int = 1, epoch: int = 0, at_ms: int = 1_000, made_ms: int = 1_000, whole: bool = True
) -> list[RecordBatch]:
    """Append batches of so many records as one group of marked work, asked for at `made_ms`; `whole`: the last one ends it."""
    made: list[RecordBatch] = []
    start = log.end_offset
    for number, size in enumerate(sizes, 1):
        mark = WriterMark(key, version, log.end_offset - start, made_ms=made_ms)
        batch = RecordBatch(marked(batch_of(size, at_ms=at_ms).body, mark, is_last=whole and number == len(sizes)))
        batch.stamp(log.identity, log.end_offset, epoch)
        log.append(batch)
        made.append(batch)
    return made


def refuses_what_is_not_next(log: Log, end: int, epoch: int) -> None:
    """A log that ends so takes no batch but the next one, alone or behind that, says what is due, and stores nothing."""

    def stamped(identity: PartitionId | None, base: int, epoch: int) -> RecordBatch:
        batch = batch_of(1)
        if identity is not None:
            batch.stamp(identity, base, epoch)
        return batch

    mine, other = log.identity, log.identity._replace(creation=log.identity.creation + 1)
    for front in ([], [stamped(mine, end, epoch)]):
        due = end + len(front)
        for identity, base, of, why in (
            *[(mine, base, epoch, f"is stamped for offset {base}; the next one begins at {due}") for base in (0, due - 1, due + 1)],
            (mine, due, epoch - 1, f"is of leader epoch {epoch - 1}; the next one is of {epoch} at least"),
            (other, due, epoch, f"is stamped for log {other!r}"),
            (None, due, epoch, f"is not stamped; stamp(log.identity, {due}, {epoch}) makes it the next one"),
        ):
            wrong = stamped(identity, base, of)
            calls = [partial(log.append_many, [*front, wrong, *rest]) for rest in ([], [wrong])]
            for call in calls if front else [*calls, partial(log.append, wrong)]:
                with pytest.raises(UsageError, match=re.escape(f"log {mine!r}: the batch {why}")):
                    call()
                assert log.end_offset == end


def stored_batches(log: Log, offset: int | None = None, limit: int | None = None, max_bytes: int = 1 << 20) -> list[RecordBatch]:
    """What one read returns, verified."""
    offset = log.start_offset if offset is None else offset
    found: list[RecordBatch] = []
    for part in log.read(offset, log.end_offset if limit is None else limit, max_bytes):
        data, at = part.view(), 0
        assert len(data) == part.length
        before = len(found)
        while at < len(data):
            batch = RecordBatch.parse(data, at, identity=log.identity)
            found.append(batch)
            at += batch.length
        assert (part.base_offset, part.end_offset) == (found[before].base_offset, found[-1].end_offset)
        part.release()
    return found


def shown(log: Log) -> list[bytes | None]:
    """All values of a log, by as many reads as that takes."""
    values: list[bytes | None] = []
    offset = log.start_offset
    while offset < log.end_offset:
        batches = stored_batches(log, offset)
        assert batches
        assert batches[0].base_offset <= offset
        for batch in batches:
            values += [record.value for record in decode_records(batch)]
            offset = batch.end_offset
    return values


def entries_of(log: Log) -> list[tuple[int, int]]:
    """The epoch table as plain pairs."""
    return [(entry.epoch, entry.start) for entry in log.epochs.entries()]


def flush(log: Log) -> None:
    """Make everything durable."""
    token = log.flush()
    if token is not None:
        log.flushed(token.run())
