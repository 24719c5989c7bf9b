"""A producer's sequence: new, repeated, or out of order (KIP-98, KIP-360)."""

from __future__ import annotations

import pytest
from tests.unit.partition.copies import IDENTITY

from replog.errors import Code, LogCorrupt, LogFull, ReplogError
from replog.log.memory import MemoryLog
from replog.partition.sequences import judge_sequence, next_sequence, start_of
from replog.ports import Slice, Writer
from replog.records import RecordBatch, encode_records

LAST = 2**31 - 1


def batch(sequence: int, *, epoch: int = 0, producer: int = 7, text: str = "") -> RecordBatch:
    value = text or f"record {sequence}"
    return RecordBatch(encode_records([value], now_ms=0, producer_id=producer, producer_epoch=epoch, base_sequence=sequence))


def log_with(*sequences: int, epoch: int = 3) -> MemoryLog:
    log = MemoryLog(IDENTITY)
    for sequence in sequences:
        made = batch(sequence, epoch=epoch)
        made.stamp(IDENTITY, log.end_offset, 0)
        log.append(made)
    return log


@pytest.mark.parametrize(
    ("known", "asked", "code", "offset"),
    [
        ((0, 1, 2), batch(3, epoch=3), Code.NONE, None),
        ((0, 1, 2), batch(4, epoch=3), Code.OUT_OF_ORDER_SEQUENCE, None),
        ((0, 1, 2), batch(1, epoch=3), Code.NONE, 1),
        ((0, 1, 2), batch(1, epoch=3, text="other bytes"), Code.INVALID_RECORD, None),
        ((0, 1, 2, 3, 4, 5), batch(0, epoch=3), Code.OUT_OF_ORDER_SEQUENCE, None),  # older than the last five
        ((0, 1, 2, 3, 4, 5), batch(1, epoch=3), Code.NONE, 1),
        ((0,), batch(1, epoch=2), Code.INVALID_PRODUCER_EPOCH, None),
        ((0,), batch(0, epoch=4), Code.NONE, None),
        ((0,), batch(1, epoch=4), Code.OUT_OF_ORDER_SEQUENCE, None),
        ((), batch(0, producer=9), Code.NONE, None),
        ((), batch(1, producer=9), Code.OUT_OF_ORDER_SEQUENCE, None),
        ((LAST - 1, LAST), batch(0, epoch=3), Code.NONE, None),
        ((LAST - 1, LAST, 0), batch(LAST, epoch=3), Code.NONE, 1),
    ],
)
def test_each_case(known: tuple[int, ...], asked: RecordBatch, code: int, offset: int | None) -> None:
    error, original = judge_sequence(log_with(*known), asked)
    assert error == code
    assert (original.base_offset if original else None) == offset


def test_a_producer_that_may_have_been_forgotten_may_go_on_anywhere() -> None:
    log = log_with(0, 1)
    log.trim_to(1)
    assert judge_sequence(log, batch(17, producer=9)) == (Code.NONE, None)
    forgetful = MemoryLog(IDENTITY)
    forgetful.producers.forgetful = True
    assert judge_sequence(forgetful, batch(17, producer=9)) == (Code.NONE, None)


@pytest.mark.parametrize(("sequence", "count", "following"), [(0, 1, 1), (LAST, 1, 0), (LAST - 1, 3, 1)])
def test_sequences_wrap(sequence: int, count: int, following: int) -> None:
    assert next_sequence(sequence, count) == following


@pytest.mark.parametrize("problem", [LogCorrupt("the disk does not say"), LogFull("no descriptors")])
def test_where_a_work_begins_is_not_known_while_its_mark_cannot_be_read(problem: ReplogError) -> None:
    class Unreadable(MemoryLog):
        def read(self, offset: int, limit: int, max_bytes: int) -> list[Slice]:
            raise problem

    assert start_of(Unreadable(IDENTITY), Writer(1, 5, 2, 0, 0)) == -1
