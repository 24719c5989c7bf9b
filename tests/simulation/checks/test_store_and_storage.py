"""Rules about what controllers write, what brokers do to their disks, and how much of anything there may be."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve
from tests.simulation.checks.situations import PID, STATE, booted, holds, ledger, node_with, partition, violates

from replog.errors import Code
from replog.messages import Flushed, FlushedEntry, Produced, ProducedEntry
from replog.metadata import layout
from replog.metadata.judgements import Candidate, LossRecord
from replog.model import Assignment, PartitionState
from replog.ports import FlushDone, FlushToken, Put
from replog.testing.simulator.flushes import Flushes
from replog.testing.simulator.invariants import (
    BuffersAreBounded,
    FailedDisksConfirmNothing,
    LossesAreRecorded,
    MessagesAreBounded,
    MovesAreComplete,
    NothingIsDropped,
    OnlyTheSeatWrites,
    StatesAreSound,
    storms,
)
from replog.testing.simulator.stepping import pause


def test_s14_a_state_is_signed_by_another_controller() -> None:
    holds(OnlyTheSeatWrites().signed, ledger(), STATE.controller_epoch)
    violates("S14", OnlyTheSeatWrites().signed, ledger(), STATE.controller_epoch + 1)


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
    holds(StatesAreSound().stored, book, {}, STATE)  # it is the same: somebody was let in
    book.state = after
    violates("S15", StatesAreSound().stored, book, {}, STATE)


def test_s15_a_state_follows() -> None:
    book = ledger()
    for after in (evolve(STATE, isr=(1,), elr=(2,)), evolve(STATE, leader=2, leader_epoch=4), evolve(STATE, leader=None, leader_epoch=4)):
        book.state = evolve(after, partition_epoch=5)
        holds(StatesAreSound().stored, book, {}, STATE)


@pytest.mark.parametrize("left", [{"elr": (3,)}, {"last_known": (1, 2, 3)}])
def test_s15_who_is_eligible_where_enough_are_in_sync(left: dict[str, tuple[int, ...]]) -> None:
    book = ledger()
    book.state = evolve(STATE, partition_epoch=5, isr=(1,), min_isr=2, **left)
    holds(StatesAreSound().stored, book, {}, STATE)
    book.state = evolve(book.state, isr=(1, 2))
    violates("S15", StatesAreSound().stored, book, {}, STATE)


NOBODY = evolve(STATE, leader=None, leader_epoch=4, partition_epoch=5, isr=(), last_known=(1, 2))
LOSS = LossRecord("t", "last_known", 2, 5, (Candidate(1, 3, 10), Candidate(2, 3, 11)), ())


def test_s26_who_may_lack_something_leads_with_a_record_of_it() -> None:
    rule, book = LossesAreRecorded(), ledger()
    book.state = evolve(NOBODY, leader=2, leader_epoch=5, partition_epoch=6, isr=(2,), recovering=True)
    violates("S26", rule.stored, book, {}, NOBODY)
    book.loss = LOSS
    holds(rule.stored, book, {}, NOBODY)
    holds(StatesAreSound().stored, book, {}, NOBODY)
    for other in (
        evolve(LOSS, leader_epoch=4),  # of an election before
        evolve(LOSS, leader=1),
        evolve(LOSS, kind="unclean"),  # the topic does not allow that
        evolve(LOSS, candidates=(Candidate(2, 3, 11),)),  # somebody was not asked
        evolve(LOSS, candidates=(Candidate(1, 4, 1), Candidate(2, 3, 11))),  # another log is longer
    ):
        book.loss = other
        violates("S26", rule.stored, book, {}, NOBODY)
    book.loss = LOSS
    violates("S26", rule.stored, book, {}, evolve(NOBODY, elr=(1,)))  # somebody complete could still come


def test_s26_whoever_recovers_may_have_other_leaders() -> None:
    rule, book = LossesAreRecorded(), ledger()
    before = evolve(STATE, recovering=True, isr=(1, 2))
    for leader, isr in ((2, (2,)), (None, ())):
        book.state = evolve(before, leader=leader, leader_epoch=4, partition_epoch=5, isr=isr)
        holds(rule.stored, book, {}, before)
    book.state = evolve(before, leader=3, leader_epoch=4, partition_epoch=5, isr=(3,))
    violates("S26", rule.stored, book, {}, before)


HALF_WAY = Assignment((3, 2, 1), adding=(3,), removing=(1,), original=(1, 2))


def test_s24_an_old_replica_leaves_too_early() -> None:
    rule, book = MovesAreComplete(), ledger()
    book.assigned_before, book.assignment = HALF_WAY, Assignment((3, 2))
    book.state = evolve(STATE, partition_epoch=5, isr=(2,), leader=2, leader_epoch=4)
    violates("S24", rule.stored, book, {}, STATE)
    book.state = evolve(book.state, isr=(3, 2))
    holds(rule.stored, book, {}, STATE)


def test_s24_the_way_back_needs_somebody_in_sync() -> None:
    rule, book = MovesAreComplete(), ledger()
    book.assigned_before, book.assignment = HALF_WAY, Assignment((1, 2))
    book.state = evolve(STATE, partition_epoch=5, isr=(), leader=None, leader_epoch=4)
    violates("S24", rule.stored, book, {}, STATE)
    book.assigned_before = Assignment((2, 1), removing=(1,), original=(1, 2))  # nobody leaves: it was about to be smaller
    holds(rule.stored, book, {}, STATE)
    book.assigned_before = HALF_WAY
    book.state = evolve(book.state, isr=(2,), leader=2)
    holds(rule.stored, book, {}, STATE)


def test_s15_who_joins_and_leads_in_one_record_ends_a_move() -> None:
    book = ledger()
    book.assigned_before, book.assignment = HALF_WAY, Assignment((3, 2))
    book.replicas, book.state = (3, 2), evolve(STATE, partition_epoch=5, isr=(3, 2), leader=3, leader_epoch=4)
    holds(StatesAreSound().stored, book, {}, STATE)
    book.assigned_before = book.assignment
    violates("S15", StatesAreSound().stored, book, {}, STATE)


def test_s19_whoever_was_sent_away_may_still_be_told_to_drop_what_it_had() -> None:
    """Also if it is a replica again, as long as it has not been in the ISR since."""
    rule, book = NothingIsDropped(), ledger()
    book.sent_away = {3}
    holds(rule.vanished, book, 3)
    violates("S19", rule.vanished, book, 2)


def test_s19_the_books_know_who_was_sent_away() -> None:
    world = booted(flush="os")
    book = next(iter(world.checks.ledgers.values()))
    assert book.state is not None
    assert not book.sent_away

    def assign(replicas: tuple[int, ...], isr: tuple[int, ...]) -> set[int]:
        assert book.assignment is not None
        assert book.state is not None
        topic = layout.TopicEntry(book.identity.topic_id, {}, {0: evolve(book.assignment, replicas=replicas)})
        state = evolve(book.state, isr=isr, partition_epoch=book.state.partition_epoch + 1)
        ops = [
            Put(layout.topic_path("t"), layout.encode_topic(topic)),
            Put(layout.partition_state_path("t", 0), layout.encode_partition_state(state)),
        ]
        world.root.commit(ops)
        world.checks._books.see([op.path for op in ops])
        return book.sent_away

    assert assign((1, 2), (1, 2)) == {3}
    assert assign((1, 2, 3), (1, 2)) == {3}
    assert assign((1, 2, 3), (1, 2, 3)) == set()


def test_s19_a_log_is_dropped() -> None:
    rule, book = NothingIsDropped(), ledger()
    violates("S19", rule.vanished, book, 3)
    holds(rule.vanished, book, 4)  # assigned elsewhere
    book.closed = True
    holds(rule.vanished, book, 3)


def test_s19_the_directory_is_compared_with_what_was_there() -> None:
    world = booted()
    node = world.nodes[1]
    holds(world.checks.look, node)
    identity = next(iter(world.checks.ledgers))
    node.directory.quarantine(identity, 0)
    node.broker.partitions.clear()
    world.checks._looks[1] = 0
    violates("S19", world.checks.look, node)


def test_s19_a_file_stands_elsewhere() -> None:
    world = booted()
    node = world.nodes[1]
    node.directory.fs, node.directory.path = Folders(), "/data/logs"
    holds(world.checks._sweep, node)
    node.directory.fs.names["/data"].append("mine")
    violates("S19", world.checks._sweep, node)


class Folders:
    """As much of a file system as is looked at."""

    def __init__(self) -> None:
        self.names = {"/": ["data"], "/data": ["logs"]}

    def listdir(self, path: str) -> list[str]:
        return self.names[path]


def test_s20_too_much_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    world = booted()
    node, rule = world.nodes[1], BuffersAreBounded()
    for _ in range(8):
        holds(rule.handled, node)
    assert {what for what, _ in rule.measure(node)} >= {"appends that wait", "sessions of followers", "events to come"}
    monkeypatch.setattr(node.broker._waiting, "count", storms.LIMITS["appends that wait"] + 1)

    def handle_some() -> None:
        for _ in range(8):
            rule.handled(node)

    violates("S20", handle_some)


def test_s20_too_much_is_put_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    world = booted()
    node, rule = world.nodes[1], BuffersAreBounded()
    monkeypatch.setattr(node.broker._publishing.stages, "bytes", world.config.stage_bytes_max)
    holds(rule.handled, node)
    monkeypatch.setattr(node.broker._publishing.stages, "bytes", world.config.stage_bytes_max + 1)
    violates("S20", rule.handled, node)


def test_s20_every_limit_is_of_something_that_is_measured() -> None:
    world = booted()
    measured = {what for node in world.nodes.values() for what, _ in BuffersAreBounded().measure(node)}
    leftover = {"messages of one event", "notices that a broker has not confirmed"}
    assert measured | leftover >= set(storms.LIMITS)


def test_s20_a_broker_says_too_much_at_once() -> None:
    world = booted()
    node = world.nodes[1]
    node.broker.outbox.messages += [(2, None)] * (storms.LIMITS["messages of one event"] + 1)
    violates("S20", BuffersAreBounded().handled, node)


def test_s21_a_storm(monkeypatch: pytest.MonkeyPatch) -> None:
    holds(MessagesAreBounded().passed, 1, 3 * storms.EVENTS_MAX, 3)
    violates("S21", MessagesAreBounded().passed, 1, 3 * storms.EVENTS_MAX + 1, 3)
    monkeypatch.setattr(storms, "EVENTS_MAX", 5)
    violates("S21", booted)


def test_s21_the_fsyncs_of_one_flush_are_no_storm() -> None:
    """There is one for each segment since the last flush, and a worker does them one after the other: no message is among them."""
    world = booted()
    limit = storms.EVENTS_MAX * (len(world.nodes) + len(world.clients))
    before = world.events

    def run() -> None:
        for _ in range(limit + 1):
            pause()

    Flushes(world.nodes[1])._begin(FlushToken(PID, 0, 0, run), 0)
    world.run_until(world.now_ms + 1)
    assert world.events > before + limit


_CONFIRMS = {
    "append": Produced([ProducedEntry(1, Code.NONE, 0)]),
    "flushed end": Flushed(1, 1, [FlushedEntry(PID, 3, 3)]),
}


@pytest.mark.parametrize("message", _CONFIRMS.values(), ids=_CONFIRMS)
def test_s22_something_is_confirmed_after_a_failed_flush(message: Any) -> None:
    def flushed(error: OSError | None) -> FlushDone:
        return FlushDone(FlushToken(PID, 0, 3, lambda: None, error))

    rule, node = FailedDisksConfirmNothing(), node_with(partition())
    rule.received(node, None, flushed(None))
    holds(rule.said, node, ("client", 1), message)
    rule.received(node, None, flushed(OSError(5, "the disk fails")))
    violates("S22", rule.said, node, ("client", 1), message)
    holds(rule.said, node, ("client", 1), Produced([ProducedEntry(1, Code.STORAGE_ERROR)]))
    holds(rule.said, node_with(partition(), broker_id=2), ("client", 1), message)
    holds(rule.said, node_with(partition(), life=2), ("client", 1), message)
    rule = FailedDisksConfirmNothing()
    rule.received(node_with(None), None, flushed(OSError(5, "the disk fails")))  # of a log that was dropped meanwhile
    holds(rule.said, node, ("client", 1), message)
