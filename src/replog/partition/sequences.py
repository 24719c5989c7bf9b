"""Is this batch new, a repetition, or out of order? The leader's check of a producer's sequence (KIP-98, KIP-360), or of a version."""

from __future__ import annotations

from replog.errors import Code, LogCorrupt, LogFull
from replog.log.marked import stored_mark
from replog.marks import WriterMark
from replog.ports import Log, Writer
from replog.records import RecordBatch

__all__ = ["judge_sequence", "judge_version", "mark_at", "next_sequence", "start_of"]

_SEQUENCES = 2**31


def next_sequence(sequence: int, count: int) -> int:
    """The sequence `count` records after `sequence`: 31 bits, wrapping to 0."""
    return (sequence + count) % _SEQUENCES


def judge_sequence(log: Log, batch: RecordBatch) -> tuple[int, Writer | None]:
    """(0, None) for a new batch in order; (0, original) for a repetition; otherwise an error code.

    A repetition has the same producer, epoch, sequences *and bytes*: other bytes under a used sequence are refused.
    A producer this log cannot know starts at 0; one it may have forgotten (trimmed, expired) may start anywhere.
    """
    known = log.producers.get(batch.producer_id)
    if known is None or not known.recent:
        fresh = batch.base_sequence == 0 or log.producers.forgetful or log.start_offset > 0
        return (Code.NONE if fresh else Code.OUT_OF_ORDER_SEQUENCE), None
    if batch.producer_epoch < known.producer_epoch:
        return Code.INVALID_PRODUCER_EPOCH, None
    if batch.producer_epoch > known.producer_epoch:
        return (Code.NONE if batch.base_sequence == 0 else Code.OUT_OF_ORDER_SEQUENCE), None
    last = known.recent[-1]
    if batch.base_sequence == next_sequence(last.last_sequence, 1):
        return Code.NONE, None
    last_sequence = next_sequence(batch.base_sequence, batch.count - 1)
    for written in known.recent:
        if written.base_sequence == batch.base_sequence and written.last_sequence == last_sequence:
            if written.payload_crc == batch.payload_crc:
                return Code.NONE, written
            return Code.INVALID_RECORD, None
    return Code.OUT_OF_ORDER_SEQUENCE, None


def judge_version(log: Log, producer_id: int, version: int) -> Writer | None:
    """What the log has of this piece of marked work: None if nothing, so that it is to be stored.

    A version below the last one is done too, or must never be: whoever comes with it is a leftover of an earlier attempt
    (PROTOCOL P-104). It is shown the last.
    """
    known = log.producers.writer(producer_id)
    if known is None or not known.recent or known.recent[-1].base_sequence < version:
        return None
    return next((written for written in known.recent if written.base_sequence == version), known.recent[-1])


def start_of(log: Log, written: Writer) -> int:
    """Where that piece of work begins; -1 if that is gone, or cannot be read, or if this only says again that it was here."""
    if written.base_offset < log.start_offset or written.last_sequence <= written.base_offset:
        return -1
    try:
        base = written.base_offset - mark_at(log, written.base_offset).group_offset
    except (LogCorrupt, LogFull):
        return -1
    return base if base >= log.start_offset else -1


def mark_at(log: Log, offset: int) -> WriterMark:
    """The mark of a writer's batch that begins there. Raises LogCorrupt, or LogFull."""
    mark = stored_mark(log, offset)
    if mark is None:
        raise LogCorrupt(f"log {log.identity!r} at offset {offset}: a batch without the mark of its writer")
    return mark
