"""Each invariant speaks up about what it forbids, and about nothing else: on copies and states made by hand."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from replog.config import BrokerConfig, TopicConfig
from replog.log.memory import MemoryLog
from replog.messages import Fetched, FetchedEntry, PartitionNotice, Produced, ProducedEntry
from replog.metadata import layout
from replog.model import Assignment, BrokerInfo, PartitionId, PartitionState
from replog.partition.partition import Partition
from replog.ports import Put
from replog.records import Record, RecordBatch, encode_records
from replog.testing.simulator import checks as checks_module
from replog.testing.simulator.invariants import (
    AcknowledgedIsCommitted,
    Asked,
    CandidatesAreComplete,
    CommittedNeverChanges,
    EnoughAreCounted,
    EpochsNeverGoBack,
    LeadersAreComplete,
    LeadersNeverGoBack,
    LogsMatch,
    NothingTwice,
    OneLeaderPerEpoch,
    ReadersSeeCommitted,
    StatesAreSound,
)
from replog.testing.simulator.ledger import Copy, Entry, Ledger, Violation
from replog.testing.simulator.liveness import boot
from replog.testing.simulator.plan import draw
from replog.testing.simulator.world import World

pytestmark = pytest.mark.simulation

PID = PartitionId(bytes(16), 0, 0)
STATE = PartitionState(leader=1, leader_epoch=3, isr=(1, 2), controller_epoch=1, partition_epoch=4)


def entry(n: int, epoch: int = 3) -> Entry:
    return Entry(epoch, n, n, 7, 0, n)


def ledger(end: int = 3) -> Ledger:
    made = Ledger(PID)
    made.entries = [entry(n) for n in range(end)]
    made.state, made.replicas, made.min_isr = STATE, (1, 2, 3), 2
    return made


def copy_of(broker: int, entries: list[Entry]) -> Copy:
    made = Copy(broker)
    made.entries, made.life = entries, 1
    return made


def partition(broker: int = 1, values: int = 3) -> Partition:
    """A copy that leads (broker 1) or follows, with records of a producer that has no id."""
    brokers = {n: BrokerInfo(n, broker_epoch=n) for n in (1, 2, 3)}
    made = Partition(PID, "t", MemoryLog(PID), broker_id=broker, limits=BrokerConfig(), brokers=brokers)
    assert made.become(PartitionNotice(PID, "t", STATE, Assignment((1, 2, 3)), TopicConfig(min_isr=2)), now_ms=0) == 0
    if values and made.leading is not None:
        made.append(RecordBatch(encode_records([Record(b"x")] * values, now_ms=0)), -1, 0)
    return made


def violates(name: str, call: Any, *args: Any) -> None:
    with pytest.raises(Violation) as caught:
        call(*args)
    assert caught.value.invariant == name


def test_s1_a_committed_entry_is_other_later() -> None:
    leader = partition()
    leader.high_watermark = 3
    same = copy_of(1, [entry(n) for n in range(3)])
    CommittedNeverChanges().committed(ledger(2), {}, same, leader)
    other = copy_of(1, [entry(0), entry(1, epoch=2), entry(2)])
    violates("S1", CommittedNeverChanges().committed, ledger(2), {}, other, leader)


def test_s1_takes_in_what_is_new() -> None:
    leader = partition()
    leader.high_watermark = 3
    book = ledger(1)
    CommittedNeverChanges().committed(book, {}, copy_of(1, [entry(n) for n in range(4)]), leader)
    assert book.end == 3


def test_s2_a_leader_lacks_committed_entries() -> None:
    LeadersAreComplete().led(ledger(2), copy_of(1, [entry(0), entry(1)]), partition())
    violates("S2", LeadersAreComplete().led, ledger(2), copy_of(1, [entry(0)]), partition())


def test_s2_a_leader_that_has_been_replaced_may_lack_them() -> None:
    book = ledger(2)
    book.state = evolve(STATE, leader=2, leader_epoch=4)
    LeadersAreComplete().led(book, copy_of(1, []), partition())


def test_s3_candidates() -> None:
    whole, short = copy_of(1, [entry(n) for n in range(3)]), copy_of(2, [entry(0)])
    violates("S3", CandidatesAreComplete().stored, ledger(), {1: whole, 2: short}, None)
    short.lossy = True
    CandidatesAreComplete().stored(ledger(), {1: whole, 2: short}, None)
    eligible = ledger()
    eligible.state = evolve(STATE, isr=(1,), elr=(3,))
    violates("S3", CandidatesAreComplete().stored, eligible, {1: whole, 3: copy_of(3, [])}, None)


def test_s4_too_few_are_counted() -> None:
    leader = partition()
    EnoughAreCounted().committed(ledger(), {}, copy_of(1, []), leader)
    wider = ledger()
    wider.state = evolve(STATE, isr=(1, 2, 3))
    violates("S4", EnoughAreCounted().committed, wider, {}, copy_of(1, []), leader)
    demanding = ledger()
    demanding.min_isr = 3
    violates("S4", EnoughAreCounted().committed, demanding, {}, copy_of(1, []), leader)


def test_s5_two_processes_lead_one_epoch() -> None:
    book, rule = ledger(), OneLeaderPerEpoch()
    rule.led(book, copy_of(1, []), partition())
    rule.led(book, copy_of(1, []), partition())
    again = copy_of(1, [])
    again.life = 2
    violates("S5", rule.led, book, again, partition())


def test_s6_an_epoch_goes_back() -> None:
    copy = copy_of(1, [])
    copy.leader_epoch, copy.partition_epoch = 3, 4
    EpochsNeverGoBack().changed(ledger(), copy, partition())
    copy.leader_epoch = 4
    violates("S6", EpochsNeverGoBack().changed, ledger(), copy, partition())
    violates("S6", EpochsNeverGoBack().stored, ledger(), {}, evolve(STATE, leader_epoch=4))


def test_s8_a_leader_goes_back() -> None:
    copy = copy_of(1, [])
    copy.led, copy.high_watermark = (1, 3), 2
    leader = partition()
    leader.high_watermark = 2
    LeadersNeverGoBack().changed(ledger(), copy, leader)
    leader.high_watermark = 1
    violates("S8", LeadersNeverGoBack().changed, ledger(), copy, leader)


def test_s9_a_follower_believes_in_other_entries() -> None:
    follower = partition(broker=2)
    follower.high_watermark = 1
    LogsMatch().changed(ledger(), copy_of(2, [entry(0), entry(9)]), follower)
    follower.high_watermark = 2
    violates("S9", LogsMatch().changed, ledger(), copy_of(2, [entry(0), entry(9)]), follower)
    follower.high_watermark = 4
    violates("S9", LogsMatch().changed, ledger(), copy_of(2, [entry(n) for n in range(4)]), follower)


def test_s12_an_answer_comes_too_early_or_about_others() -> None:
    leader, book = partition(), ledger()
    leader.high_watermark = 3
    body = encode_records([Record(b"x")], now_ms=0, producer_id=7, producer_epoch=0, base_sequence=2)
    question = Asked(book, -1, body)
    book.entries[2] = Entry(3, 2, question.payload_crc, 7, 0, 2)
    rule, said = AcknowledgedIsCommitted(), Produced([ProducedEntry(1, 0, 2)])
    rule.sent(book, leader, ("client", 1), said, {1: question})
    violates("S12", rule.sent, book, leader, ("client", 1), Produced([ProducedEntry(1, 0, 1)]), {1: question})
    leader.high_watermark = 2
    violates("S12", rule.sent, book, leader, ("client", 1), said, {1: question})


def test_s13_a_reader_is_shown_too_much() -> None:
    leader, book, rule = partition(), ledger(2), ReadersSeeCommitted()
    rule.sent(book, leader, ("client", 1), Fetched(1, 0, 0, 0, [FetchedEntry(PID, 3, 0, high_watermark=2)]), {})
    beyond = Fetched(1, 0, 0, 0, [FetchedEntry(PID, 3, 0, high_watermark=3)])
    violates("S13", rule.sent, book, leader, ("client", 1), beyond, {})
    shown = Fetched(1, 0, 0, 0, [FetchedEntry(PID, 3, 0, high_watermark=2, slices=leader.log.read(0, 3, 1_000))])
    violates("S13", rule.sent, book, leader, ("client", 1), shown, {})


@pytest.mark.parametrize(
    "after",
    [
        evolve(STATE, partition_epoch=6),
        evolve(STATE, partition_epoch=4),
        evolve(STATE, partition_epoch=5, isr=(1, 2, 9)),
        evolve(STATE, partition_epoch=5, isr=(2,)),
        evolve(STATE, partition_epoch=5, elr=(2,)),
        evolve(STATE, partition_epoch=5, leader=2),
        evolve(STATE, partition_epoch=5, leader=2, leader_epoch=5),
        evolve(STATE, partition_epoch=5, leader=3, leader_epoch=4, isr=(2, 3)),
    ],
)
def test_s15_a_state_does_not_follow(after: PartitionState) -> None:
    book = ledger()
    book.state = after
    violates("S15", StatesAreSound().stored, book, {}, STATE)


def test_s15_a_state_follows() -> None:
    book = ledger()
    for after in (evolve(STATE, isr=(1,), elr=(2,)), evolve(STATE, leader=2, leader_epoch=4), evolve(STATE, leader=None, leader_epoch=4)):
        book.state = evolve(after, partition_epoch=5)
        StatesAreSound().stored(book, {}, STATE)


def frame(base: int, epoch: int) -> memoryview:
    """One stored batch of one record."""
    batch = RecordBatch(encode_records([Record(b"x")], now_ms=0))
    batch.stamp(PID, base, epoch)
    return memoryview(batch.front + bytes(batch.body))


def test_s10_an_epoch_goes_back_in_a_log() -> None:
    copy = Copy(1)
    copy.take(frame(0, epoch=5))
    violates("S10", copy.take, frame(1, epoch=4))


def test_s16_a_log_has_a_gap() -> None:
    copy = Copy(1)
    violates("S16", copy.take, frame(1, epoch=3))
    log = MemoryLog(PID)
    log.reset_to(5)
    violates("S16", copy.follow, log)


def test_s17_a_sequence_is_committed_twice() -> None:
    rule, book = NothingTwice(), ledger(2)
    rule.committed(book, {}, copy_of(1, []), partition())
    book.entries.append(entry(1))
    violates("S17", rule.committed, book, {}, copy_of(1, []), partition())


def test_s14_an_old_controller_writes() -> None:
    world = World(draw(1))
    boot(world)
    book = next(iter(world.checks.ledgers.values()))
    assert book.state is not None
    path = layout.partition_state_path("t", book.identity.partition)
    stale = evolve(book.state, controller_epoch=book.state.controller_epoch - 1)
    ops = [Put(path, layout.encode_partition_state(stale))]
    world.root.commit(ops)
    violates("S14", world.applied, ops)


def test_s21_a_storm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks_module, "EVENTS_MAX", 5)
    violates("S21", boot, World(draw(1)))


def test_losses_are_bounded_by_what_acks_all_survives() -> None:
    """The simulator must not lose more than min_isr - 1 copies, or it would find faults of its own making."""
    world = World(draw(1, min_isr=2, replicas=3, brokers=3, partitions=1))
    boot(world)
    assert all(world.checks.may_lose(broker) for broker in world.nodes)
    world.nodes[1].kill(power=True)
    assert world.checks.may_lose(1)
    assert not world.checks.may_lose(2)
    assert not world.checks.may_lose(3)
