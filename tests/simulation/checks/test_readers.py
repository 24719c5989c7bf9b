"""Rules about what clients are told, and about every batch that leaves a broker."""

from __future__ import annotations

import pytest
from tests.simulation.checks.situations import PID, STATE, copy_of, frame, header, holds, ledger, partition, violates

from replog.messages import FetchedEntry, ListedOffset, ProducedEntry
from replog.ports import MemorySlice
from replog.records import Record, encode_records
from replog.testing.simulator.invariants import AcknowledgedIsCommitted, Asked, BytesAreIntact, ReadersNeverGoBack, ReadersSeeCommitted
from replog.testing.simulator.ledger import NEVER_SEEN, Entry

CLIENT = ("client", 1)


def test_s12_an_answer_comes_too_early_or_about_others() -> None:
    leader, book = partition(), ledger()
    leader.high_watermark = 3
    body = encode_records([Record(b"x")], now_ms=0, producer_id=7, producer_epoch=0, base_sequence=2)
    question = Asked(book, -1, body)
    book.entries[2] = Entry(3, 2, question.payload_crc, 7, 0, 2)
    rule, said = AcknowledgedIsCommitted(), ProducedEntry(1, 0, 2)
    holds(rule.produced, book, leader, said, question)
    violates("S12", rule.produced, book, leader, ProducedEntry(1, 0, 1), question)
    violates("S12", rule.produced, book, leader, ProducedEntry(1, 0, 3), question)
    violates("S12", rule.produced, book, leader, ProducedEntry(1, 0, -1), question)
    leader.high_watermark = 2
    violates("S12", rule.produced, book, leader, said, question)
    holds(rule.produced, book, None, said, question)  # dropped in the same event
    holds(rule.produced, book, leader, ProducedEntry(1, 0, 3), Asked(book, 1, body))


def test_s12_what_retention_took_at_once_cannot_be_compared() -> None:
    leader, book = partition(), ledger()
    leader.high_watermark = 3
    question = Asked(book, -1, encode_records([Record(b"x")], now_ms=0))
    violates("S12", AcknowledgedIsCommitted().produced, book, leader, ProducedEntry(1, 0, 2), question)
    book.entries[2] = NEVER_SEEN
    holds(AcknowledgedIsCommitted().produced, book, leader, ProducedEntry(1, 0, 2), question)


def test_s12_producers_without_sequences() -> None:
    leader, book = partition(), ledger(2)
    leader.high_watermark = 2
    question = Asked(book, -1, encode_records([Record(b"x"), Record(b"y")], now_ms=0))
    book.entries = [Entry(3, 2, question.payload_crc, -1, -1, -1)] * 2
    holds(AcknowledgedIsCommitted().produced, book, leader, ProducedEntry(1, 0, 0), question)
    book.entries = [Entry(3, 2, question.payload_crc + 1, -1, -1, -1)] * 2
    violates("S12", AcknowledgedIsCommitted().produced, book, leader, ProducedEntry(1, 0, 0), question)


def test_s12_acks_1_is_flushed_where_that_counts() -> None:
    leader, book, rule = partition(), ledger(), AcknowledgedIsCommitted()
    question = Asked(book, 1, encode_records([Record(b"x")], now_ms=0))
    holds(rule.produced, book, leader, ProducedEntry(1, 0, 2), question)
    book.durable = True
    violates("S12", rule.produced, book, leader, ProducedEntry(1, 0, 2), question)
    leader.log.flushed_end = 3
    holds(rule.produced, book, leader, ProducedEntry(1, 0, 2), question)


def test_s13_a_reader_is_shown_too_much() -> None:
    leader, book, rule = partition(), ledger(2), ReadersSeeCommitted()
    leader.high_watermark = 2
    holds(rule.shown, CLIENT, book, leader, FetchedEntry(PID, 3, 0, high_watermark=2), [])
    violates("S13", rule.shown, CLIENT, book, leader, FetchedEntry(PID, 3, 0, high_watermark=3), [])
    pieces = leader.log.read(0, 3, 1_000)
    entry = FetchedEntry(PID, 3, 0, high_watermark=2, slices=pieces)
    violates("S13", rule.shown, CLIENT, book, leader, entry, [[]])


def test_s13_a_reader_is_shown_other_records() -> None:
    leader, book, rule = partition(), ledger(2), ReadersSeeCommitted()
    leader.high_watermark = 2
    entry = FetchedEntry(PID, 3, 0, high_watermark=2, slices=[MemorySlice(0, 1, frame(0, 3))])
    violates("S13", rule.shown, CLIENT, book, leader, entry, [[header(0, 3)]])
    book.entries[0] = book.entries[0]._replace(header_crc=header(0, 3).header_crc)
    holds(rule.shown, CLIENT, book, leader, entry, [[header(0, 3)]])
    holds(rule.shown, CLIENT, book, leader, entry, ["not a batch"])  # that is S18's
    book.entries[0] = NEVER_SEEN
    holds(rule.shown, CLIENT, book, leader, entry, [[header(0, 3)]])
    damaged = header(0, 3)._replace(count=200)  # a flipped bit: the checksum of the header does not cover it
    holds(rule.shown, CLIENT, book, leader, entry, [[damaged]])
    violates("S18", BytesAreIntact().shipped, book, copy_of(1, []), entry.slices[0], [damaged])


def test_s13_a_reader_is_told_an_offset_beyond() -> None:
    rule = ReadersSeeCommitted()
    holds(rule.listed, CLIENT, ledger(2), partition(), ListedOffset(PID, offset=2))
    violates("S13", rule.listed, CLIENT, ledger(2), partition(), ListedOffset(PID, offset=3))


def test_s8_what_one_reader_is_shown_goes_back() -> None:
    leader, book, rule = partition(values=0), ledger(), ReadersNeverGoBack()

    def shown(high_watermark: int, reader: object = CLIENT) -> tuple[object, ...]:
        return rule.shown, reader, book, leader, FetchedEntry(PID, 3, 0, high_watermark=high_watermark), []

    holds(*shown(2))
    holds(*shown(2))
    violates("S8", *shown(1))
    holds(*shown(1, reader=("client", 2)))
    holds(rule.listed, CLIENT, book, leader, ListedOffset(PID, offset=0, start_offset=0))  # the earliest one
    violates("S8", rule.listed, CLIENT, book, leader, ListedOffset(PID, offset=1, start_offset=0))
    holds(rule.listed, CLIENT, book, leader, ListedOffset(PID, offset=1, start_offset=0, timestamp_ms=5))


@pytest.mark.parametrize("why", ["a later epoch is stored", "it does not know yet what was committed", "it follows"])
def test_s8_whoever_may_be_old_may_show_less(why: str) -> None:
    leader, book, rule = partition(values=0), ledger(), ReadersNeverGoBack()
    holds(rule.shown, CLIENT, book, leader, FetchedEntry(PID, 3, 0, high_watermark=2), [])
    if why.startswith("a later"):
        book.state = STATE.__class__(leader=2, leader_epoch=4, isr=(1, 2))
    elif why.startswith("it does not"):
        assert leader.leading is not None
        leader.leading.epoch_start = 2
    else:
        leader = partition(2)
    holds(rule.shown, CLIENT, book, leader, FetchedEntry(PID, 3, 0, high_watermark=1), [])


def test_s18_a_batch_leaves_that_does_not_match() -> None:
    copy, book = copy_of(1, []), ledger()
    whole = MemorySlice(0, 1, frame(0, 3))
    holds(BytesAreIntact().shipped, book, copy, whole, [header(0, 3)])
    violates("S18", BytesAreIntact().shipped, book, copy, whole, "the batch header does not match its checksum")
    violates("S18", BytesAreIntact().shipped, book, copy, whole, [header(1, 3)])
    violates("S18", BytesAreIntact().shipped, book, copy, whole, [header(0, 3, identity=PID._replace(partition=1))])
    violates("S18", BytesAreIntact().shipped, book, copy, MemorySlice(0, 2, frame(0, 3)), [header(0, 3)])
    copy.suspect = True
    holds(BytesAreIntact().shipped, book, copy, whole, "the batch header does not match its checksum")


def test_s18_payloads_are_checked_in_a_share() -> None:
    bad = bytearray(frame(0, 3))
    bad[-1] ^= 1

    def ship_many() -> None:
        rule = BytesAreIntact()
        for _ in range(100):
            rule.shipped(ledger(), copy_of(1, []), MemorySlice(0, 1, memoryview(bad)), [header(0, 3)])

    violates("S18", ship_many)
