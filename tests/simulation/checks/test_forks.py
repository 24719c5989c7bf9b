"""What an election that may lose something leaves of a ledger: what is forgiven, what is not, and who has to be told."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from attrs import evolve
from tests.simulation.checks.situations import (
    LOSS,
    PID,
    STATE,
    UNCLEAN,
    booted,
    copy_of,
    entry,
    holds,
    ledger,
    parted,
    partition,
    violates,
)

from replog.errors import LogTruncated, OffsetOutOfRange
from replog.messages import Fetched, FetchedEntry, ListedOffset, ListedOffsets
from replog.metadata.judgements import Candidate, LossRecord
from replog.model import Assignment
from replog.testing.simulator.clients import Acknowledged, SimulatedClient
from replog.testing.simulator.consume import _Reader
from replog.testing.simulator.ending import _compare
from replog.testing.simulator.forks import Fork, gives_up, holding_more, is_of_a_fork, may_have_lost, part, take_up, texts
from replog.testing.simulator.invariants import (
    CandidatesAreComplete,
    CandidatesAreDurable,
    CandidatesAreNeverCut,
    DoneIsCommitted,
    FollowersBelieveCommitted,
    LeadersAreComplete,
    LossesAreRecorded,
    NothingTwice,
    ReadersNeverGoBack,
    StatesAreSound,
    VersionsGrow,
)
from replog.testing.simulator.known import Known, told_lost
from replog.testing.simulator.ledger import NEVER_SEEN, Copy, Entry, Ledger
from replog.testing.simulator.world import World

pytestmark = pytest.mark.simulation

CLIENT = ("client", 1)


# ------------------------------------------------------------------------------------------------------------- the ledger


def test_what_a_damaged_disk_hid_is_lost_as_well() -> None:
    """It was confirmed, and the ledger has nothing of it: whoever was told so is forgiven no less."""
    book = ledger(3)
    book.hidden = 5
    copies = {broker: copy_of(broker, [entry(n) for n in range(held)]) for broker, held in ((1, 3), (3, 1))}
    book.state, book.loss = UNCLEAN, LOSS
    fork = part(book, copies[3], copies.values())
    assert (fork.end, fork.reach, book.reach) == (1, 5, 1)
    assert [fork.is_unseen(offset) for offset in range(6)] == [False, False, False, True, True, False]


def test_only_an_election_that_is_recorded_forgives() -> None:
    book = ledger()
    book.state = UNCLEAN
    assert not may_have_lost(book, STATE)
    book.loss = LOSS
    assert may_have_lost(book, STATE)
    assert not may_have_lost(book, UNCLEAN)  # it was so before
    book.loss = evolve(LOSS, leader_epoch=3)  # of an election before
    assert not may_have_lost(book, STATE)


def test_the_ledger_is_what_the_leader_holds_and_the_rest_is_remembered() -> None:
    book, copies = parted()
    assert (book.entries, book.since) == ([entry(0)], 4)
    assert (book.forks[0].end, book.forks[0].entries) == (1, [entry(1), entry(2)])
    holds(CandidatesAreComplete().stored, book, copies, STATE)
    assert copies[1].mismatch(book, 1) is None
    book.entries.append(entry(7, epoch=4))
    assert "has other bytes at committed offset 1" in str(copies[1].mismatch(book, 2))


def test_s2_s3_what_is_committed_after_it_is_not_forgiven() -> None:
    book, copies = parted()
    book.entries.append(entry(7, epoch=4))
    violates("S3", CandidatesAreComplete().stored, book, copies, STATE)
    leader = partition()
    leader.leader_epoch = 4
    violates("S2", LeadersAreComplete().led, book, copies[3], leader)
    copies[3].entries.append(entry(7, epoch=4))
    holds(CandidatesAreComplete().stored, book, copies, STATE)
    holds(LeadersAreComplete().led, book, copies[3], leader)


def test_half_a_group_is_not_left() -> None:
    book, copy = ledger(0), copy_of(3, [])
    book.entries = [entry(0), entry(1)._replace(is_open=True), entry(2)]
    copy.entries = book.entries[:2]
    book.state, book.loss = UNCLEAN, LOSS
    assert part(book, copy, [copy]).end == 1


def test_a_later_election_brings_back_what_its_leader_holds_of_a_fork() -> None:
    book, copies = parted()
    copies[3].entries.append(entry(7, epoch=4))
    book.entries.append(entry(7, epoch=4))
    book.state = evolve(UNCLEAN, leader=1, leader_epoch=5, isr=(1,))
    fork = part(book, copies[1], copies.values())
    assert (fork.end, fork.entries) == (1, [entry(7, epoch=4)])
    assert book.entries == [entry(n) for n in range(3)]
    assert [book.fork_of(epoch) for epoch in (3, 4, 5)] == [*book.forks, None]


def test_a_leader_that_brings_a_fork_back_has_trimmed_where_that_parts() -> None:
    """What was committed meanwhile is gone from there on, not from the start of its log on."""
    book, copies = parted()
    meanwhile = [entry(7, epoch=4), entry(8, epoch=4), entry(9, epoch=4)]
    book.entries += meanwhile
    copies[1].first = copies[1].start = 2
    copies[1].entries = [entry(2)]
    book.state = evolve(UNCLEAN, leader=1, leader_epoch=5, isr=(1,))
    fork = part(book, copies[1], copies.values())
    assert (fork.end, fork.entries) == (1, meanwhile)
    assert book.entries == [entry(n) for n in range(3)]
    book.entries[1] = NEVER_SEEN  # it may have been what is in the next line
    assert part(book, copies[1], copies.values()).end == 3


def test_a_leader_that_has_not_heard_of_it_commits_to_its_fork() -> None:
    book, copies = parted()
    old = partition()
    copies[1].led = (1, 3)
    assert is_of_a_fork(book, copies[1], old)
    assert is_of_a_fork(book, copies[1], None)  # it answers what was acknowledged before it dropped the copy
    copies[1].entries.append(entry(3))
    book.forks[0].grow(copies[1], 4)
    assert book.forks[0].entries == [entry(1), entry(2), entry(3)]
    old.leader_epoch = 4
    assert not is_of_a_fork(book, copies[1], old)
    assert not is_of_a_fork(ledger(), copies[1], old)


def test_the_first_leader_may_have_followed_the_old_one_until_it_heard_of_its_election() -> None:
    book, copies = parted()
    copies[3].entries = [entry(n) for n in range(3)]
    leader = partition(broker=3)
    leader.leader_epoch = 3
    assert not take_up(book, copies[3], leader)
    leader.leader_epoch = 4
    assert take_up(book, copies[3], leader)
    assert book.entries == [entry(n) for n in range(3)]
    book, _ = parted()
    book.leaders[4] = (3, 1)  # somebody has led since: it is late
    assert not take_up(book, copies[3], leader)


def elected_again() -> tuple[Ledger, dict[int, Copy]]:
    """Broker 1 would bring back what is at 1 and 2, if its leader of now had not made it fetch that anew before it hears of that."""
    book, copies = parted()
    book.state = evolve(UNCLEAN, leader=1, leader_epoch=5, isr=(1,))
    part(book, copies[1], copies.values())
    copies[1].mismatch(book, book.end)
    return book, copies


def test_the_first_leader_may_have_been_trimmed_until_it_heard_of_its_election() -> None:
    """Who led before had said again what was in front; that is lost, and the work is done once more."""
    filler = [Entry(3, n, n, 9, 0, 0, into=0, version=n) for n in range(1, 8)]
    line = [version(1, 0), *filler, version(1, 8)._replace(is_control=True)]
    rule, book = VersionsGrow(), ledger(0)
    book.entries = list(line)
    rule.committed(book, {}, copy_of(1, []), partition())
    copy = copy_of(3, line[:2])
    book.state, book.loss = UNCLEAN, LOSS
    fork = part(book, copy, [copy])
    rule.parted(book)
    copy.entries, copy.first, copy.start, copy.matched = line[5:7], 5, 5, 0
    leader = partition(broker=3)
    leader.leader_epoch, leader.high_watermark = 4, 7
    assert take_up(book, copy, leader)
    assert (fork.start, book.end) == (5, 7)
    rule.parted(book)
    holds(rule.committed, book, {}, copy, leader)
    book.entries.append(version(1, 99, epoch=4))
    holds(rule.committed, book, {}, copy, leader)
    book.entries.append(version(1, 100, epoch=4))
    violates("S17", rule.committed, book, {}, copy, leader)


def test_the_first_leader_may_have_forgotten_something_and_brought_nothing_back() -> None:
    book, copies = parted(held=2)
    copies[3].entries, copies[3].first, copies[3].start = [entry(1)], 1, 1
    leader = partition(broker=3)
    leader.leader_epoch = 4
    assert take_up(book, copies[3], leader)
    assert (book.forks[0].start, book.end) == (1, 2)
    assert not take_up(book, copies[3], leader)


@pytest.mark.parametrize("unclean", [False, True])
def test_s17_an_election_that_has_lost_nothing_of_a_writer_forgives_nothing_of_it(unclean: bool) -> None:
    """Retention took its work, and did not say it again."""
    rule, book = VersionsGrow(), ledger(0)
    book.entries = [version(1, 0), Entry(3, 1, 1, 9, 0, 0, into=0, version=1)]
    rule.committed(book, {}, copy_of(1, []), partition())
    copy = copy_of(3, list(book.entries))
    copy.start = 1
    if unclean:
        book.state, book.loss = UNCLEAN, LOSS
        assert part(book, copy, []).entries == []
        rule.parted(book)
    book.entries.append(version(1, 9, epoch=4))
    violates("S17", rule.committed, book, {}, copy, partition())


def test_s11_a_leader_may_be_cut_until_it_hears_of_its_election() -> None:
    book, copies = elected_again()
    assert not gives_up(book, copies, copies[1], 5, 1)  # it has heard of it
    assert not gives_up(book, copies, copies[1], -1, 1)  # it follows nobody
    assert not gives_up(book, copies, copies[1], 4, 0)  # both have that
    assert not gives_up(book, copies, copies[2], 4, 1)  # it was not elected
    violates("S11", CandidatesAreNeverCut().cut, book, copies[1], 1)
    assert gives_up(book, copies, copies[1], 4, 1)
    assert (book.entries, book.given_up, copies[1].matched) == ([entry(0)], [1], 1)
    holds(CandidatesAreNeverCut().cut, book, copies[1], 1)
    book, copies = elected_again()
    book.leaders[5] = (1, 1)  # it has led
    assert not gives_up(book, copies, copies[1], 4, 1)


def test_a_leader_that_has_not_heard_of_two_elections_may_be_cut_where_the_first_of_them_parts() -> None:
    book, copies = elected_again()
    book.state = evolve(UNCLEAN, leader=2, leader_epoch=6, isr=(2,))
    assert part(book, copies[2], copies.values()).end == 3
    assert not gives_up(book, copies, copies[2], 4, 0)
    assert gives_up(book, copies, copies[2], 4, 2)
    assert (book.entries, book.forks[-1].end, book.forks[-1].entries) == ([entry(0), entry(1)], 2, [entry(2)])


# ----------------------------------------------------------------------------------------------------------- invariants


def test_s9_a_follower_that_has_compared_its_log_believes_nothing_of_a_fork() -> None:
    (book, copies), rule, follower = parted(), FollowersBelieveCommitted(), partition(broker=2)
    follower.high_watermark = 3
    copies[2].agreed = 3
    holds(rule.changed, book, copies[2], follower)
    copies[2].agreed = 4
    copies[2].entries = [entry(n) for n in range(3)]
    holds(rule.changed, book, copies[2], follower)  # the leader has brought them back, or they would be cut
    copies[2].entries[2] = entry(7, epoch=4)
    violates("S9", rule.changed, book, copies[2], follower)
    follower.high_watermark, copies[2].entries[2] = 4, entry(2)
    violates("S9", rule.changed, book, copies[2], follower)


def test_s17_what_is_lost_may_be_stored_again_and_nothing_else() -> None:
    rule, book = NothingTwice(), ledger(3)
    holds(rule.committed, book, {}, copy_of(1, []), partition())
    book.state, book.loss = UNCLEAN, LOSS
    part(book, copy_of(3, [entry(0)]), [])
    rule.parted(book)
    book.entries.append(entry(1, epoch=4))
    holds(rule.committed, book, {}, copy_of(3, []), partition())
    book.entries.append(entry(0, epoch=4))
    violates("S17", rule.committed, book, {}, copy_of(3, []), partition())


def version(number: int, n: int, epoch: int = 3) -> Entry:
    return Entry(epoch, n, n, 7, 0, 0, into=0, version=number)


def test_s17_s12_a_version_that_is_lost_may_be_stored_again() -> None:
    rule, done, book = VersionsGrow(), DoneIsCommitted(), ledger(0)
    book.entries = [version(1, 0), version(2, 1)]
    for one in (rule, done):
        one.committed(book, {}, copy_of(1, []), partition())
    book.state, book.loss = UNCLEAN, LOSS
    part(book, copy_of(3, book.entries[:1]), [])
    for one in (rule, done):
        one.parted(book)
    assert done._places[book] == {(7, 1): (0, 1)}
    book.entries.append(version(2, 9, epoch=4))
    holds(rule.committed, book, {}, copy_of(3, []), partition())
    book.entries.append(version(1, 10, epoch=4))
    violates("S17", rule.committed, book, {}, copy_of(3, []), partition())


def test_s17_what_was_said_again_of_a_version_may_be_lost_with_it() -> None:
    """Retention took the work, the leader had said it again, and that is lost: nobody knows of it any more."""
    for start, fires in ((1, False), (0, True)):
        rule, book = VersionsGrow(), ledger(0)
        book.entries = [version(1, 0), version(1, 1)._replace(is_control=True)]
        rule.committed(book, {}, copy_of(1, []), partition())
        book.state, book.loss = UNCLEAN, LOSS
        copy = copy_of(3, book.entries[:1])
        copy.start = start
        part(book, copy, [])
        rule.parted(book)
        book.entries.append(version(1, 9, epoch=4))
        (violates if fires else holds)(*(("S17",) if fires else ()), rule.committed, book, {}, copy, partition())


def test_s3_what_such_a_leader_had_of_before_is_flushed_before_more_is_committed() -> None:
    (book, copies), rule = parted(), CandidatesAreDurable()
    book.durable = True
    violates("S3", rule.stored, book, copies, book.state)
    rule.parted(book)
    holds(rule.stored, book, copies, STATE)
    leader = partition()
    leader.high_watermark = 1
    violates("S3", rule.committed, book, copies, copies[3], leader)


def test_s8_a_reader_may_be_shown_less_after_it() -> None:
    rule, book, leader = ReadersNeverGoBack(), ledger(), partition()
    leader.high_watermark = 3
    for shown in (3, 2):
        call = (rule.shown, CLIENT, book, leader, FetchedEntry(PID, 3, 0, high_watermark=shown), [])
        (holds if shown == 3 else violates)(*(() if shown == 3 else ("S8",)), *call)
    book.state, book.loss = evolve(UNCLEAN, leader=1, leader_epoch=3), LOSS
    part(book, copy_of(1, [entry(0)]), [])
    holds(rule.shown, CLIENT, book, leader, FetchedEntry(PID, 3, 0, high_watermark=2), [])
    violates("S8", rule.shown, CLIENT, book, leader, FetchedEntry(PID, 3, 0, high_watermark=1), [])


def test_s15_who_recovers_is_alone_until_it_says_otherwise() -> None:
    rule, book = StatesAreSound(), ledger()
    book.state = evolve(UNCLEAN, partition_epoch=6, isr=(2, 3))
    violates("S15", rule.stored, book, {}, UNCLEAN)
    book.state = evolve(UNCLEAN, partition_epoch=6, recovering=False)
    holds(rule.stored, book, {}, UNCLEAN)
    book.state = evolve(book.state, leader_epoch=5)  # by another election
    violates("S15", rule.stored, book, {}, UNCLEAN)
    book.assigned_before = Assignment((1, 2, 3))  # a move ends with it
    holds(rule.stored, book, {}, UNCLEAN)


def test_s26_an_unclean_election_needs_leave_and_nobody_who_is_complete() -> None:
    rule, book = LossesAreRecorded(), ledger()
    book.state, book.loss = UNCLEAN, LOSS
    violates("S26", rule.stored, book, {}, STATE)
    book.is_unclean_allowed = True
    holds(rule.stored, book, {}, STATE)
    book.able = (2,)
    violates("S26", rule.stored, book, {}, STATE)
    book.assigned_before = Assignment((1, 2, 3))  # a move is taken back
    holds(rule.stored, book, {}, STATE)
    book.able, book.loss = (), evolve(LOSS, missing=(1,))
    violates("S26", rule.stored, book, {}, STATE)


def test_s26_the_same_broker_may_be_elected_uncleanly() -> None:
    """It has lost its disk, and nobody else is there."""
    rule, book = LossesAreRecorded(), ledger()
    book.state = evolve(UNCLEAN, leader=1, isr=(1,))
    violates("S26", rule.stored, book, {}, STATE)
    book.loss, book.is_unclean_allowed = evolve(LOSS, leader=1, candidates=(Candidate(1, -1, -1),), missing=(2, 3)), True
    holds(rule.stored, book, {}, STATE)


def test_s26_the_longest_of_those_who_were_asked_leads() -> None:
    book, copies = ledger(), {1: copy_of(1, [entry(n) for n in range(3)]), 2: copy_of(2, [entry(0)])}
    before = evolve(STATE, leader=None, isr=(), last_known=(1, 2))
    answers = (Candidate(1, 3, 1), Candidate(2, 3, 1))  # broker 1 had more
    book.state, book.loss = evolve(UNCLEAN, leader=2, isr=(2,)), LossRecord("t", "last_known", 2, 4, answers, ())
    book.longer = holding_more(book, copies, before)
    assert book.longer == (1,)
    violates("S26", LossesAreRecorded().stored, book, {}, before)
    copies[1].suspect = True  # nobody can say what it gives back
    book.longer = holding_more(book, copies, before)
    holds(LossesAreRecorded().stored, book, {}, before)


# --------------------------------------------------------------------------------------------------------------- readers


def lossy_world() -> World:
    """The leader of the run's partition was elected uncleanly, and lacks the last two of four records."""
    world = booted(unclean="topic")
    (book,) = world.checks.ledgers.values()
    assert book.state is not None
    book.entries = [entry(n, epoch=0) for n in range(4)]
    book.state = evolve(book.state, leader=1, leader_epoch=book.state.leader_epoch + 1)
    book.loss = evolve(LOSS, leader=1, leader_epoch=book.state.leader_epoch)
    copy = world.checks.copy(book.identity, 1)
    copy.entries, copy.epochs, copy.agreed = book.entries[:2], [(0, 0)], book.state.leader_epoch
    part(book, copy, [])
    copy.entries = [*copy.entries, entry(9, epoch=book.since)]
    return world


def written(*values: bytes) -> tuple[World, SimulatedClient, Ledger]:
    """Where elections may lose something: these values, committed, and the client that has appended them."""
    world = booted(unclean="topic")
    client = next(iter(world.clients.values()))
    batch = client.begin("t", 0, list(values), client.writer())
    world.run_until(world.now_ms + 2_000, lambda: batch.done)
    (book,) = world.checks.ledgers.values()
    return world, client, book


def test_s8_a_reader_is_told_if_its_records_are_gone_and_only_then() -> None:
    world = lossy_world()
    (book,) = world.checks.ledgers.values()
    old = book.since - 1
    assert told_lost(world, LogTruncated("t", 0, 4, 2), old, [(0, 0)], "a reader") == 2
    assert world.marks.hits["a reader is told that its records are gone"] == 1
    violates("S8", told_lost, world, LogTruncated("t", 0, 2, 2), old, [(0, 0)], "a reader")  # it has read nothing of that
    violates("S8", told_lost, world, LogTruncated("t", 0, 4, 2), book.since, [(0, 0)], "a reader")  # it was told before
    violates("S8", told_lost, world, LogTruncated("t", 0, 4, 3), old, [(0, 0)], "a reader")  # other records are at 2
    violates("S8", told_lost, world, LogTruncated("t", 0, 4, 1), old, [(0, 0)], "a reader")  # what is at 1 is in both


def test_a_position_in_the_log_of_now_is_not_out_of_range_because_an_election_has_lost_something() -> None:
    world = lossy_world()
    (book,) = world.checks.ledgers.values()
    book.entries = [*book.entries, *(entry(n, epoch=book.since) for n in range(10, 20))]
    reader = _Reader(next(iter(world.clients.values())), "p")
    went: list[object] = []
    reader._seek = lambda number, to=None: went.append(to)  # type: ignore[method-assign,assignment]
    gone = OffsetOutOfRange("offset 8 is out of range", topic="t", partition=0)
    reader._followed = lambda number: SimpleNamespace(offset=8, known_epoch=book.since - 1)  # type: ignore[method-assign,assignment,return-value]
    reader._failed(gone)
    assert went == ["latest"]
    reader._followed = lambda number: SimpleNamespace(offset=8, known_epoch=book.since)  # type: ignore[method-assign,assignment,return-value]
    violates("readable", reader._failed, gone)


def test_s13_a_follower_of_the_leader_since_tells_of_the_log_of_now() -> None:
    world, _, book = written(b"a", b"b")
    assert book.state is not None
    epoch = book.state.leader_epoch
    node = next(node for node in world.nodes.values() if node.broker_id != book.state.leader)

    def tell(leader_epoch: int, watermark: int) -> None:
        entry = FetchedEntry(book.identity, leader_epoch, 0, high_watermark=watermark)
        world.checks.sent(node, CLIENT, Fetched(1, -1, 0, 0, [entry]))

    violates("S13", tell, epoch, 99)
    book.forks.append(Fork(epoch, book.end, 0, []))
    violates("S13", tell, epoch, 99)
    holds(tell, epoch - 1, 99)  # of a leadership before
    violates("S13", world.checks.sent, node, CLIENT, ListedOffsets(1, [ListedOffset(book.identity, 0, 99, -1, epoch, 99, 0)]))


def test_s8_a_reader_is_told_of_nothing_in_front_of_where_it_began() -> None:
    world = lossy_world()
    (book,) = world.checks.ledgers.values()
    copy, old = world.checks.copy(book.identity, 1), book.since - 1
    copy.entries = [*copy.entries, entry(8, epoch=book.since)]
    gone = LogTruncated("t", 0, 4, 3)
    assert told_lost(world, gone, old, [(0, 3)], "a reader") == 3  # other records are at 2
    violates("S8", told_lost, world, gone, old, [(0, 2)], "a reader")
    copy.start = 3  # nor of what is trimmed
    assert told_lost(world, gone, old, [(0, 2)], "a reader") == 3
    violates("S8", told_lost, world, LogTruncated("t", 0, 5, 4), old, [(0, 2)], "a reader")


def test_what_a_client_may_rely_on_ends_where_an_election_has_lost_something_since() -> None:
    world = booted(unclean="topic")
    (book,) = world.checks.ledgers.values()
    book.entries = [entry(n, epoch=0) for n in range(4)]
    assert book.state is not None
    known, epoch = Known(world, 0), book.state.leader_epoch
    assert (known.end, known.holds_in(epoch)) == (4, True)
    book.state = evolve(book.state, leader_epoch=epoch + 1)
    part(book, copy_of(1, book.entries[:2]), [])
    assert (known.end, known.holds_in(epoch), known.holds_in(epoch + 1)) == (2, False, False)
    later = Known(world, 0)
    assert (later.end, later.holds_in(epoch), later.holds_in(epoch + 1)) == (2, False, True)
    book.given_up.append(1)
    assert (later.end, Known(world, 0).end) == (1, 2)


def test_values_of_a_fork_are_those_that_were_sent() -> None:
    world, _, book = written(b"a", b"b")
    assert texts(book.entries, 0, world.checks.bodies) == {0: b"a", 1: b"b"}
    assert texts(book.entries, 0, {}) == {}
    book.state, book.loss = UNCLEAN, LOSS
    trimmed = copy_of(3, [])
    trimmed.first = trimmed.start = 1  # in the middle of that batch
    fork = part(book, trimmed, [])
    assert (fork.end, fork.into) == (1, 1)
    assert world.checks.lost(book.identity) == [{1: b"b"}]


def test_readable_what_was_confirmed_and_is_lost_is_forgiven_by_its_value() -> None:
    world, client, book = written(b"a")
    client.acknowledged.append(Acknowledged(book.identity, 0, [b"a"]))
    violates("readable", _compare, world, book, 0, {0: b"other"}, 1)
    part(book, copy_of(1, []), [])
    holds(_compare, world, book, 0, {0: b"other"}, 0)
    client.acknowledged.append(Acknowledged(book.identity, 0, [b"later"]))  # confirmed after it
    violates("readable", _compare, world, book, 0, {0: b"other"}, 0)


def test_readable_what_nobody_has_seen_may_be_what_is_lost() -> None:
    """Retention took it in the event in which it was committed."""
    world = booted(unclean="topic")
    client = next(iter(world.clients.values()))
    (book,) = world.checks.ledgers.values()
    book.entries = [entry(0), NEVER_SEEN]
    part(book, copy_of(1, []), [])
    client.acknowledged.append(Acknowledged(book.identity, 1, [b"a"]))
    holds(_compare, world, book, 0, {}, 0)
    client.acknowledged.append(Acknowledged(book.identity, 0, [b"b"]))
    violates("readable", _compare, world, book, 0, {}, 0)


def test_readable_what_is_in_the_log_of_now_is_missed_whatever_was_hidden_before() -> None:
    world, client, book = written(b"later")
    book.forks.append(Fork(1, 0, 0, [NEVER_SEEN]))
    client.acknowledged.append(Acknowledged(book.identity, 0, [b"before"]))
    holds(_compare, world, book, 0, {0: b"other"}, 0)
    client.acknowledged.append(Acknowledged(book.identity, 0, [b"later"]))
    violates("readable", _compare, world, book, 0, {0: b"other"}, 0)
