"""Rules about what is committed: each fires at what it forbids, and not at what only looks like it."""

from __future__ import annotations

from attrs import evolve
from tests.simulation.checks.situations import PID, STATE, copy_of, entry, holds, ledger, partition, violates

from replog.config import BrokerConfig
from replog.log.memory import MemoryLog
from replog.records import Record, RecordBatch, encode_records
from replog.testing.simulator.invariants import (
    CandidatesAreComplete,
    CandidatesAreDurable,
    CandidatesAreNeverCut,
    CommittedNeverChanges,
    EnoughAreCounted,
    LeadersAreComplete,
    NothingTwice,
)
from replog.testing.simulator.ledger import NEVER_SEEN, Copy, Entry


def test_s1_a_committed_entry_is_other_later() -> None:
    leader = partition()
    leader.high_watermark = 3
    holds(CommittedNeverChanges().committed, ledger(2), {}, copy_of(1, [entry(n) for n in range(3)]), leader)
    other = copy_of(1, [entry(0), entry(1, epoch=2), entry(2)])
    violates("S1", CommittedNeverChanges().committed, ledger(2), {}, other, leader)


def test_s1_takes_in_what_is_new_and_knows_that_a_log_may_start_later() -> None:
    leader = partition()
    leader.high_watermark = 3
    book = ledger(1)
    CommittedNeverChanges().committed(book, {}, copy_of(1, [entry(n) for n in range(4)]), leader)
    assert book.end == 3
    trimmed = ledger(2)
    CommittedNeverChanges().committed(trimmed, {}, copy_of(1, [entry(n) for n in range(1, 4)], first=1), leader)
    assert trimmed.entries == [entry(n) for n in range(3)]
    violates("S1", CommittedNeverChanges().committed, ledger(1), {}, copy_of(1, [], first=4), leader)


def test_s1_what_was_committed_and_trimmed_in_one_event_was_never_seen() -> None:
    leader, alone, one_of_two = partition(), ledger(1), ledger(1)
    leader.high_watermark = 3
    only = copy_of(1, [entry(2)], first=2)
    CommittedNeverChanges().committed(alone, {1: only}, only, leader)
    assert alone.entries == [entry(0), NEVER_SEEN, entry(2)]
    other = copy_of(2, [entry(n) for n in range(3)])
    CommittedNeverChanges().committed(one_of_two, {1: only, 2: other}, only, leader)
    assert one_of_two.entries == [entry(n) for n in range(3)]
    not_in_sync, behind = ledger(1), copy_of(3, [entry(0)])
    CommittedNeverChanges().committed(not_in_sync, {1: only, 3: behind}, only, leader)
    assert not_in_sync.entries == [entry(0), NEVER_SEEN, entry(2)]


def test_s1_what_a_leader_cannot_read_any_more_is_taken_from_another_copy() -> None:
    leader, book = partition(), ledger(1)
    leader.high_watermark = 3
    unreadable = copy_of(1, [entry(0)])
    unreadable.suspect = unreadable.unreadable = True
    CommittedNeverChanges().committed(book, {1: unreadable, 2: copy_of(2, [entry(0, epoch=1)] * 3)}, unreadable, leader)
    assert (book.end, book.reach) == (1, 3)
    CommittedNeverChanges().committed(book, {1: unreadable, 2: copy_of(2, [entry(n) for n in range(4)])}, unreadable, leader)
    assert (book.entries, book.reach) == ([entry(n) for n in range(3)], 3)


def test_s2_a_leader_lacks_committed_entries() -> None:
    holds(LeadersAreComplete().led, ledger(2), copy_of(1, [entry(0), entry(1)]), partition())
    holds(LeadersAreComplete().led, ledger(2), copy_of(1, [entry(1)], first=1), partition())
    violates("S2", LeadersAreComplete().led, ledger(2), copy_of(1, [entry(0)]), partition())


def test_s2_a_leader_that_has_been_replaced_may_lack_them() -> None:
    book = ledger(2)
    book.state = evolve(STATE, leader=2, leader_epoch=4)
    holds(LeadersAreComplete().led, book, copy_of(1, []), partition())


def test_s3_candidates() -> None:
    whole, short = copy_of(1, [entry(n) for n in range(3)]), copy_of(2, [entry(0)])
    rule = CandidatesAreComplete()
    for call in (lambda: rule.stored(ledger(), {1: whole, 2: short}, None), lambda: rule.changed(ledger(), short, partition(2))):
        violates("S3", call)
    short.lossy = True
    holds(rule.stored, ledger(), {1: whole, 2: short}, None)
    eligible = ledger()
    eligible.state = evolve(STATE, isr=(1,), elr=(3,))
    violates("S3", rule.committed, eligible, {1: whole, 3: copy_of(3, [])}, whole, partition())
    eligible.state = evolve(STATE, isr=(1,))
    holds(rule.committed, eligible, {1: whole, 3: copy_of(3, [])}, whole, partition())


def test_s3_what_a_damaged_disk_does_not_give_back_is_nobodys_fault() -> None:
    short = copy_of(2, [entry(0)])
    short.suspect = short.unreadable = True
    holds(CandidatesAreComplete().stored, ledger(), {2: short}, None)
    other = copy_of(2, [entry(0), entry(1, epoch=2)])
    other.suspect = other.unreadable = True
    violates("S3", CandidatesAreComplete().stored, ledger(), {2: other}, None)


def test_s3_candidates_have_flushed_what_is_committed() -> None:
    book, copies = ledger(), {n: copy_of(n, [entry(n) for n in range(3)]) for n in (1, 2, 3)}
    rule = CandidatesAreDurable()
    copies[1].durable, copies[2].durable = 3, 2
    holds(rule.stored, book, copies, None)
    book.durable = True
    violates("S3", rule.stored, book, copies, None)
    violates("S3", rule.committed, book, copies, copies[1], partition())
    copies[2].lossy = True
    holds(rule.stored, book, copies, None)
    copies[2].lossy, copies[2].durable = False, 3
    holds(rule.stored, book, copies, None)


def test_s3_who_is_elected_after_all_were_lost_may_have_flushed_less() -> None:
    """Until more is committed: it flushes what it has before."""
    book, copies = ledger(), {3: copy_of(3, [entry(n) for n in range(3)])}
    rule, leader, before = CandidatesAreDurable(), partition(), evolve(STATE, leader=None, isr=())
    book.durable, copies[3].durable = True, 1
    book.state = evolve(STATE, leader=3, leader_epoch=4, isr=(3,))
    violates("S3", rule.stored, book, copies, before)
    book.state = evolve(book.state, recovering=True)
    holds(rule.stored, book, copies, before)
    leader.high_watermark = 3
    violates("S3", rule.committed, book, copies, copies[3], leader)
    violates("S3", rule.stored, book, copies, book.state)


def test_a_mirror_remembers_what_was_flushed_until_it_is_cut() -> None:
    log, copy = MemoryLog(PID), Copy(1)
    for epoch in (1, 1, 2):
        batch = RecordBatch(encode_records([Record(b"x")], now_ms=0))
        batch.stamp(PID, log.end_offset, epoch)
        log.append(batch)
    token = log.flush()
    assert token is not None
    log.flushed(token.run())
    assert copy.follow(log) is None
    assert copy.durable == 3
    reopened = log.revived(3)
    reopened.flushed_end = 0  # what a checkpoint says may be old
    assert copy.follow(reopened) is None
    assert copy.durable == 3
    reopened.truncate_to(2)
    assert copy.follow(reopened) == 2
    assert copy.durable == 2


def test_s4_too_few_are_counted() -> None:
    leader = partition()
    leader.high_watermark = 1
    holds(EnoughAreCounted().committed, ledger(), {}, copy_of(1, []), leader)
    wider = ledger()
    wider.state = evolve(STATE, isr=(1, 2, 3))
    violates("S4", EnoughAreCounted().committed, wider, {}, copy_of(1, []), leader)
    demanding = ledger()
    demanding.min_isr = 3
    violates("S4", EnoughAreCounted().committed, demanding, {}, copy_of(1, []), leader)
    told = copy_of(1, [])
    told.high_watermark = 1  # by the leader before, as a follower
    holds(EnoughAreCounted().committed, demanding, {}, told, leader)


def test_s11_a_member_of_the_isr_is_cut() -> None:
    rule = CandidatesAreNeverCut()
    violates("S11", rule.cut, ledger(), copy_of(2, [entry(0)]), 1)
    holds(rule.cut, ledger(), copy_of(2, [entry(n) for n in range(3)]), 3)
    holds(rule.cut, ledger(), copy_of(3, [entry(0)]), 1)
    lossy = copy_of(2, [entry(0)])
    lossy.lossy = True
    holds(rule.cut, ledger(), lossy, 1)


def test_s17_a_sequence_is_committed_twice() -> None:
    rule, book = NothingTwice(), ledger(2)
    holds(rule.committed, book, {}, copy_of(1, []), partition())
    book.entries.append(entry(1))
    violates("S17", rule.committed, book, {}, copy_of(1, []), partition())


def test_s17_again_what_a_log_has_forgotten() -> None:
    """Of the producer that had to go, and of nobody else, although both were committed above the start of the log."""
    one, other, third = 7, 8, 9
    log = MemoryLog(PID, limits=BrokerConfig(producers_max=2))
    rule, book, leader, copy = NothingTwice(), ledger(0), partition(log=log, values=0), Copy(1)
    copy.life = 1

    def appended(*producers: int) -> None:
        for producer in producers:
            framing = {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0}
            batch = RecordBatch(encode_records([Record(b"x")], now_ms=0, **framing))
            batch.stamp(PID, log.end_offset, 3)
            log.append(batch)
            book.entries.append(Entry(3, 0, 0, producer, 0, 0))
        copy.follow(log)
        rule.changed(book, copy, leader)

    appended(one, other)
    holds(rule.committed, book, {}, copy, leader)
    appended(third)
    appended(one)
    holds(rule.committed, book, {}, copy, leader)
    appended(other, third)  # each makes room for the next, and is there again when somebody looks
    holds(rule.committed, book, {}, copy, leader)
    strict, again = NothingTwice(), ledger(0)
    again.entries = [Entry(3, n, 0, one, 0, 0) for n in range(2)]
    strict._forgetful.add(again)
    strict._forgotten[again] = {other}
    violates("S17", strict.committed, again, {}, copy, leader)
