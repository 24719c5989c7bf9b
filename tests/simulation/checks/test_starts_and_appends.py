"""Rules about where logs start, and about appends that do not wait for the in-sync replicas."""

from __future__ import annotations

import pytest
from attrs import evolve
from tests.simulation.checks.situations import PID, booted, copy_of, entry, frame, holds, ledger, partition, violates

from replog.log.memory import MemoryLog
from replog.messages import Produce, ProducedEntry, ProduceEntry
from replog.model import ACKS_LEADER
from replog.records import Record, encode_records, read_header
from replog.testing.simulator import Fault, Plan, Shape, draw, run
from replog.testing.simulator.invariants import AnsweredIsStored, Asked, NothingIsInvented, StartsAreEarned
from replog.testing.simulator.ledger import NEVER_SEEN, Copy, Entry, Ledger
from replog.testing.simulator.world import World

SIZE = len(frame(0, 3))


NOW, AGE = 100_000, 1_000


def kept(ends: int, start: int, *, broker: int = 1) -> Copy:
    """The mirror of a log of so many batches, each of one record, which starts at `start`."""
    made = Copy(broker)
    for base in range(ends):
        made.take(frame(base, 3))
    made.start = start
    return made


@pytest.mark.parametrize(("start", "fires"), [(0, False), (1, True), (5, True)])
def test_s23_without_retention_a_log_starts_at_0(start: int, fires: bool) -> None:
    book, leader = ledger(5), partition()
    (violates if fires else holds)(*(("S23",) if fires else ()), StartsAreEarned().changed, book, kept(5, start), leader)
    assert book.removed == 0


def test_s23_retention_keeps_so_many_bytes() -> None:
    book, leader, rule = ledger(5), partition(), StartsAreEarned()
    book.retention_bytes = 2 * SIZE
    violates("S23", rule.changed, book, kept(5, 4), leader)
    holds(rule.changed, book, kept(5, 3), leader)
    assert book.removed == 3
    book.removed = 0
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


def aged(*ages: int, start: int, ahead: int = 0, unreadable_from: int | None = None) -> tuple[StartsAreEarned, Ledger, Copy]:
    """A copy of batches that were made so many ms ago, on a broker whose clock is that far ahead; and a rule that has seen them."""
    rule, book, copy = StartsAreEarned(), ledger(0), Copy(1)
    book.retention_ms = AGE
    for base, age in enumerate(ages):
        made = frame(base, 3, now_ms=NOW - age)
        rule.batch(book, copy, read_header(made))
        if unreadable_from is None or base < unreadable_from:
            copy.take(made)
        else:
            copy.unreadable = True
    copy.log = MemoryLog(PID, start_offset=len(ages))
    copy.start, copy.wall_ms = start, NOW + ahead
    return rule, book, copy


@pytest.mark.parametrize(
    ("ages", "start", "ahead", "fires"),
    [
        ((1_001, 1_001, 1_001), 3, 0, False),  # all of it, the newest as well
        ((1_001, 1_000), 1, 0, False),
        ((1_001, 1_000), 2, 0, True),
        ((1_001, 1_000), 2, 1, False),  # by its own clock it is as old as that
        ((1_001, 1_001), 2, -1, True),
        ((1_000, 5_000), 2, 0, True),  # no segment goes before those in front of it
        ((5_000, 1_000), 2, 0, True),
    ],
)
def test_s23_retention_removes_what_is_old_by_the_clock_of_the_broker(ages: tuple[int, ...], start: int, ahead: int, fires: bool) -> None:
    rule, book, copy = aged(*ages, start=start, ahead=ahead)
    (violates if fires else holds)(*(("S23",) if fires else ()), rule.changed, book, copy, partition())
    assert book.removed == (0 if fires else start)


@pytest.mark.parametrize(("limit", "fires"), [(2, False), (3, True)])
def test_s23_by_size_and_then_by_age(limit: int, fires: bool) -> None:
    """The first segment is young, and too much; the second one is old; three stay."""
    rule, book, copy = aged(10, 5_000, 10, 10, 10, start=2)
    book.retention_bytes = (limit + 2) * SIZE
    (violates if fires else holds)(*(("S23",) if fires else ()), rule.changed, book, copy, partition())


def test_s23_what_is_gone_from_a_mirror_is_known_from_others() -> None:
    """A copy that appends and removes at once is judged by what was committed; where nobody has seen it, by what was sent."""
    rule, book, copy = aged(2_000, 2_000, start=2)
    book.entries = list(copy.entries)
    copy._begin(MemoryLog(PID, start_offset=2), 0)
    copy.wall_ms = NOW
    holds(rule.changed, book, copy, partition())
    book.removed, book.retention_ms = 0, 3_000
    violates("S23", rule.changed, book, copy, partition())
    book.entries = [NEVER_SEEN] * 2
    violates("S23", rule.changed, book, copy, partition())
    rule.asked(Asked(book, -1, encode_records([Record(b"x")], now_ms=NOW - 3_000)))
    violates("S23", rule.changed, book, copy, partition())
    rule.asked(Asked(book, -1, encode_records([Record(b"x")], now_ms=NOW - 3_001)))
    holds(rule.changed, book, copy, partition())


@pytest.mark.parametrize(("limit", "sent", "fires"), [(4, 1, False), (5, 1, True), (5, 2, False), (8, 2, True)])
def test_s23_what_cannot_be_read_is_no_more_than_was_sent(limit: int, sent: int, fires: bool) -> None:
    """Of five batches from offset 1 on the last three cannot be read: each may be as large as the largest that was asked for."""
    rule, book, copy = aged(10, 10, 10, 10, 10, start=1, unreadable_from=2)
    book.retention_ms, book.retention_bytes = None, limit * SIZE
    rule.asked(Asked(book, -1, encode_records([Record(b"x" * (1 + (sent - 1) * SIZE))], now_ms=NOW)))
    (violates if fires else holds)(*(("S23",) if fires else ()), rule.changed, book, copy, partition())
    book.removed, book.retention_bytes = 0, None
    violates("S23", rule.changed, book, copy, partition())


def test_s23_an_unreadable_copy_earns_nothing_for_others() -> None:
    """Ages are those of what was committed."""
    rule, book, copy = aged(5_000, 5_000, 10, start=3, unreadable_from=1)
    others = aged(5_000, 5_000, 10, start=0)[2]
    book.entries = list(others.entries)
    violates("S23", rule.changed, book, copy, partition())
    copy.start = 2
    holds(rule.changed, book, copy, partition())
    assert book.removed == 2


def test_a_share_of_the_plans_has_retention_by_age_and_no_other_field_depends_on_it() -> None:
    shapes = [draw(seed).shape for seed in range(1, 301)]
    aged = [shape for shape in shapes if shape.retention_ms]
    assert 0.15 < len(aged) / len(shapes) < 0.35
    assert any(shape.retention_bytes for shape in aged)
    for seed in range(1, 20):
        drawn = draw(seed)
        assert draw(seed, retention_ms=0) == evolve(drawn, shape=evolve(drawn.shape, retention_ms=0))


@pytest.mark.parametrize(("shape", "idempotent"), [({}, True), ({"retention_ms": 500}, False), ({"retention_bytes": 500}, False)])
def test_what_retention_removes_of_a_producer_no_history_remembers(shape: dict[str, int], idempotent: bool) -> None:
    assert World(Plan(3, Shape(**shape), (), 0)).history.settings.idempotent == idempotent


@pytest.mark.parametrize("files", [False, True])
def test_retention_by_age_leaves_nothing_of_a_log_and_the_run_goes_on(files: bool) -> None:
    shape = Shape(retention_ms=500, think_ms=1_500, files=files, workloads=("append", "follow"))
    found = run(3, plan=Plan(3, shape, (Fault(4_000, "kill", "leader", 500), Fault(8_000, "kill_all", "all", 500)), 12_000))
    assert found.violation is None
    assert found.marks["retention leaves nothing of a log"] >= 3


def test_retention_goes_by_the_clock_of_each_broker() -> None:
    """The runs are shorter than records may be old: they go only where a clock has jumped."""
    clocks = tuple(Fault(at, "clock", str(1 + at // 1_000 % 3), 2_000) for at in range(1_000, 10_000, 1_000))
    outcomes = [run(seed, plan=Plan(seed, Shape(retention_ms=600_000), clocks, 12_000)) for seed in (1, 2)]
    assert [found.violation for found in outcomes] == [None, None]
    assert all(found.marks["a log starts later than before"] for found in outcomes)


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
    world = booted(retention_bytes=4_096, retention_ms=700)
    (book,) = world.checks.expected()
    assert (book.retention_bytes, book.retention_ms) == (4_096, 700)
    (rule,) = (one for one in world.checks.invariants if isinstance(one, NothingIsInvented))
    sent = ProduceEntry(7, book.identity, bytes(encode_records([Record(b"x")] * 3, now_ms=0)))
    world.checks.asked(("client", 1), Produce(0, 100, [sent]))
    assert len(rule._sent[book]) == 1  # no sequences: three that look alike
    (book,) = booted(retention_bytes=0).checks.expected()
    assert (book.retention_bytes, book.retention_ms) == (None, None)
