"""Rules about where logs start, and about appends that do not wait for the in-sync replicas."""

from __future__ import annotations

import pytest
from tests.simulation.checks.situations import booted, copy_of, entry, frame, holds, ledger, partition, violates

from replog.messages import Produce, ProducedEntry, ProduceEntry
from replog.model import ACKS_LEADER
from replog.records import Record, encode_records
from replog.testing.simulator.invariants import AnsweredIsStored, Asked, NothingIsInvented, StartsAreEarned
from replog.testing.simulator.ledger import NEVER_SEEN, Copy, Entry, Ledger

SIZE = len(frame(0, 3))


def kept(ends: int, start: int) -> Copy:
    """The mirror of a log of so many batches, each of one record, which starts at `start`."""
    made = Copy(1)
    for base in range(ends):
        made.take(frame(base, 3))
    made.start = start
    return made


@pytest.mark.parametrize(("start", "fires"), [(0, False), (1, True), (5, True)])
def test_s23_without_retention_a_log_starts_at_0(start: int, fires: bool) -> None:
    book, leader = ledger(5), partition()
    (violates if fires else holds)(*(("S23",) if fires else ()), StartsAreEarned().changed, book, kept(5, start), leader)


def test_s23_retention_keeps_so_many_bytes() -> None:
    book, leader, rule = ledger(5), partition(), StartsAreEarned()
    book.retention_bytes = 2 * SIZE
    violates("S23", rule.changed, book, kept(5, 4), leader)
    holds(rule.changed, book, kept(5, 3), leader)
    holds(StartsAreEarned().changed, book, kept(6, 4), leader)


def test_s23_whoever_follows_may_start_where_another_one_may() -> None:
    book, leader, rule = ledger(5), partition(), StartsAreEarned()
    book.retention_bytes = 2 * SIZE
    violates("S23", rule.changed, book, kept(4, 3), leader)
    holds(rule.changed, book, kept(5, 3), leader)
    holds(rule.changed, book, kept(4, 3), partition(2))  # it trims to the leader's start, and has less behind it
    holds(rule.changed, book, kept(4, 2), partition(2))  # a start may also lie further back
    violates("S23", rule.changed, book, kept(5, 4), partition(2))
    other = ledger(5)
    violates("S23", rule.changed, other, kept(5, 3), leader)  # what one partition may, another may not


def test_s23_what_cannot_be_told_is_not_held_against_anybody() -> None:
    book, leader = ledger(5), partition()
    book.retention_bytes = 2 * SIZE
    spoiled = kept(5, 4)
    spoiled.unreadable = True
    holds(StartsAreEarned().changed, book, spoiled, leader)
    book.retention_ms = 1
    holds(StartsAreEarned().changed, book, kept(5, 5), leader)
    violates("S23", StartsAreEarned().changed, ledger(5), kept(5, 5), leader)


def test_bytes_behind_an_offset_are_those_of_whole_batches() -> None:
    copy = kept(4, 0)
    assert [copy.bytes_from(offset) for offset in range(6)] == [4 * SIZE, 3 * SIZE, 2 * SIZE, SIZE, 0, 0]
    copy.follow(None)
    assert copy.bytes_from(0) == 0


def question(book: Ledger, acks: int = ACKS_LEADER, sequence: int = 3, value: bytes = b"x", count: int = 1) -> Asked:
    """An append of a producer that has an id."""
    return Asked(book, acks, encode_records([Record(value)] * count, now_ms=0, producer_id=7, producer_epoch=0, base_sequence=sequence))


def stored(asked: Asked, n: int = 0, epoch: int = 3) -> Entry:
    """What stands for its n-th record in a log."""
    return Entry(epoch, 99, asked.payload_crc, asked.producer_id, asked.producer_epoch, asked.sequence + n)


def test_s12_acks_1_is_answered_with_where_it_is() -> None:
    leader, book = partition(), ledger(3)
    asked = question(book, count=2)
    copy = copy_of(1, [*(entry(n) for n in range(3)), stored(asked), stored(asked, 1)])
    rule = AnsweredIsStored()
    holds(rule.produced, book, leader, ProducedEntry(1, 0, 9), asked)  # nobody has seen it lead
    rule.led(book, copy, leader)
    holds(rule.produced, book, leader, ProducedEntry(1, 0, 3), asked)
    for wrong in (-1, 0, 2, 4, 5):
        violates("S12", rule.produced, book, leader, ProducedEntry(1, 0, wrong), asked)
    holds(rule.produced, book, leader, ProducedEntry(1, 0, 2), question(book, acks=-1))  # that is compared with the ledger
    holds(rule.produced, book, None, ProducedEntry(1, 0, 2), asked)
    holds(rule.produced, book, partition(2), ProducedEntry(1, 0, 2), asked)
    copy.entries[4] = stored(question(book, value=b"y", sequence=4))
    violates("S12", rule.produced, book, leader, ProducedEntry(1, 0, 3), asked)


def test_s12_a_repetition_may_be_of_what_retention_has_removed() -> None:
    leader, book, rule = partition(), ledger(3), AnsweredIsStored()
    rule.led(book, copy_of(1, [entry(3)], first=3), leader)
    holds(rule.produced, book, leader, ProducedEntry(1, 0, 1), question(book))
    violates("S12", rule.produced, book, leader, ProducedEntry(1, 0, 3), question(book))


@pytest.mark.parametrize(("epoch", "fires"), [(3, True), (4, False)])
def test_s12_only_an_election_gives_an_answered_offset_to_others(epoch: int, fires: bool) -> None:
    leader, book, rule = partition(), ledger(3), AnsweredIsStored()
    asked = question(book)
    copy = copy_of(1, [*(entry(n) for n in range(3)), stored(asked)])
    rule.led(book, copy, leader)
    rule.produced(book, leader, ProducedEntry(1, 0, 3), asked)
    book.entries.append(stored(question(book, value=b"y"), epoch=epoch))
    leader.leader_epoch = epoch
    (violates if fires else holds)(*(("S12",) if fires else ()), rule.committed, book, {1: copy}, copy, leader)


def test_s12_what_was_answered_is_committed() -> None:
    leader, book, rule = partition(), ledger(3), AnsweredIsStored()
    asked = question(book)
    copy = copy_of(1, [*(entry(n) for n in range(3)), stored(asked)])
    rule.led(book, copy, leader)
    rule.produced(book, leader, ProducedEntry(1, 0, 3), asked)
    book.entries.append(stored(asked))
    holds(rule.committed, book, {1: copy}, copy, leader)
    rule.produced(book, leader, ProducedEntry(1, 0, 3), asked)  # again: it is in the ledger, S1 looks after it
    assert rule._answered[book] == {}


@pytest.mark.parametrize(
    ("change", "fires"),
    [({}, False), ({"payload_crc": 1}, True), ({"producer_id": 8}, True), ({"producer_epoch": 1}, True), ({"sequence": 5}, True)],
)
def test_s17_what_is_committed_was_sent(change: dict[str, int], fires: bool) -> None:
    book, leader, rule = ledger(0), partition(), NothingIsInvented()
    asked = question(book, acks=0, count=2)
    rule.asked(asked)
    book.entries = [stored(asked), stored(asked, 1)._replace(**change)]
    (violates if fires else holds)(*(("S17",) if fires else ()), rule.committed, book, {}, copy_of(1, []), leader)


def test_s17_nobody_sent_it_to_this_partition() -> None:
    book, leader, rule = ledger(0), partition(), NothingIsInvented()
    asked = question(book)
    rule.asked(question(ledger(0)))
    book.entries = [NEVER_SEEN]
    holds(rule.committed, book, {}, copy_of(1, []), leader)
    book.entries = [NEVER_SEEN, stored(asked)]
    violates("S17", NothingIsInvented().committed, book, {}, copy_of(1, []), leader)
    violates("S17", rule.committed, book, {}, copy_of(1, []), leader)


@pytest.mark.simulation
def test_what_clients_send_is_known_before_it_is_stored() -> None:
    """The occasion itself, and the retention of a topic, as the store has it."""
    world = booted(retention_bytes=4_096)
    (book,) = world.checks.expected()
    assert (book.retention_bytes, book.retention_ms) == (4_096, None)
    (rule,) = (one for one in world.checks.invariants if isinstance(one, NothingIsInvented))
    sent = ProduceEntry(7, book.identity, bytes(encode_records([Record(b"x")] * 3, now_ms=0)))
    world.checks.asked(("client", 1), Produce(0, 100, [sent]))
    assert len(rule._sent[book]) == 1  # no sequences: three that look alike
    (book,) = booted(retention_bytes=0).checks.expected()
    assert (book.retention_bytes, book.retention_ms) == (None, None)
