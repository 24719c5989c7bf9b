"""A broker that publishes: groups in slices, what comes in between, and every way in which one ends before it is whole."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from attrs import evolve

from replog.broker import publishing
from replog.broker.broker import Broker
from replog.config import BrokerConfig, TopicConfig
from replog.errors import Code, LogCorrupt
from replog.log.directory import FileLogDirectory
from replog.log.memory import MemoryLogDirectory
from replog.marks import PIECES_MAX, VERSION_MAX, WriterMark, framing, mark_of
from replog.messages import (
    Fetch,
    FetchEntry,
    LeaderAndIsr,
    PartitionNotice,
    Produce,
    Produced,
    ProduceEntry,
    Publish,
    Published,
    Registered,
    Stage,
    StagedAttempt,
    StopEntry,
    StopReplica,
)
from replog.model import ACKS_ALL, ACKS_LEADER, ACKS_NONE, Assignment, BrokerInfo, PartitionId, PartitionState
from replog.partition.partition import Partition
from replog.ports import Log, LogDirectory
from replog.records import RecordBatch, encode_records
from replog.testing.clock import SeededIds
from replog.testing.disk import SimulatedDisk
from replog.testing.log_samples import shown, stored_batches

TOPIC_ID = bytes(range(16))
DATA = "value of some length, so that a slice is soon full "


def body_of(*values: str, **options: Any) -> bytes:
    return encode_records(list(values), now_ms=5, **options)


def piece(number: int, attempt: str = "a") -> bytes:
    """Two records."""
    return body_of(f"{attempt}{number} {DATA}", f"{attempt}{number}+")


class Desk:
    """Broker 1, which leads t-0 for itself or with 2; a slice holds one piece."""

    def __init__(self, directory: LogDirectory | None = None, *, isr: tuple[int, ...] = (1,), min_isr: int = 1, **config: Any) -> None:
        self.config = BrokerConfig(**{"publish_slice_bytes": 1, "stage_expiry_ms": 10_000, **config})
        self.directory = directory or MemoryLogDirectory(limits=self.config, directory_id="d" * 32)
        self.broker = Broker(1, self.directory, config=self.config, ids=SeededIds(1))
        self.identity = PartitionId(TOPIC_ID, 0, 0)
        self.min_isr = min_isr
        self.state = PartitionState(1, 0, isr)
        self.now_ms = 1
        self.commands = 0
        self.requests = 100
        self.tell(Registered(1, 1))
        for other in (2, 3):
            self.broker.routing.brokers[other] = BrokerInfo(other, other)
        self.lead()

    @property
    def partition(self) -> Partition:
        return self.broker.partitions[self.identity]

    @property
    def stages(self) -> Any:
        return self.broker._publishing.stages

    def receive(self, *messages: Any, sender: str = "client") -> None:
        """Several messages in one poll, whose end has yet to come."""
        for message in messages:
            self.broker.receive(sender, message, self.now_ms)

    def tick(self) -> list[Any]:
        """The end of a poll: what was said since the last one."""
        self.broker.tick(self.now_ms, self.now_ms)
        said, self.broker.outbox.messages[:] = [said for _, said in self.broker.outbox.messages], []
        return said

    def tell(self, *messages: Any, sender: str = "client") -> list[Any]:
        self.receive(*messages, sender=sender)
        return self.tick()

    def lead(self, *, leader: int = 1, isr: tuple[int, ...] | None = None, epochs: tuple[int, int] = (0, 0)) -> list[Any]:
        """The controller says who leads, in so many more leader epochs and partition epochs."""
        state = self.state
        self.state = evolve(
            state,
            leader=leader,
            isr=state.isr if isr is None else isr,
            leader_epoch=state.leader_epoch + epochs[0],
            partition_epoch=state.partition_epoch + epochs[1],
        )
        self.commands += 1
        return self.tell(self.notice(), sender="controller")

    def notice(self) -> LeaderAndIsr:
        config = TopicConfig(min_isr=self.min_isr, segment_bytes=100_000, max_batch_bytes=10_000)
        notice = PartitionNotice(self.identity, "t", self.state, Assignment((1, 2)), config)
        return LeaderAndIsr(1, 1, 1, self.commands, False, 1_000, [notice], as_of=self.commands)

    def put(
        self, count: int = 1, *, attempt: str = "a", writer: str = "w", version: int = 7, body: bytes | None = None, at: int = 0
    ) -> list[Published]:
        """Stage so many pieces."""
        said: list[Published] = []
        for number in range(at, at + count):
            self.requests += 1
            entry = ProduceEntry(self.requests, self.identity, piece(number, attempt) if body is None else body)
            said += self.published(self.tell(Stage(writer, version, attempt, number, entry)))
        return said

    def publish(
        self, *attempts: tuple[str, int], writer: str = "w", version: int = 7, timeout_ms: int = 60_000, made_ms: int | None = None
    ) -> Publish:
        self.requests += 1
        listed = [StagedAttempt(*one) for one in attempts]
        made_ms = self.now_ms if made_ms is None else made_ms
        return Publish(self.requests, self.identity, writer, version, timeout_ms, listed, made_ms)

    def append(self, *values: str, acks: int = ACKS_ALL, **options: Any) -> Produce:
        self.requests += 1
        return Produce(acks, 1_000, [ProduceEntry(self.requests, self.identity, body_of(*(values or ("other",)), **options))])

    def once(self, version: int, writer: str = "w", made_ms: int | None = None) -> Produce:
        mark = WriterMark(writer, version, made_ms=self.now_ms if made_ms is None else made_ms)
        return self.append("once", **framing(mark))

    def fetch(self, offset: int, last: int = 0) -> list[Any]:
        """Broker 2 has what is below `offset`. Returns what is said then."""
        self.requests += 1
        entry = FetchEntry(self.identity, self.partition.leader_epoch, offset, last if offset else -1, 1 << 20)
        return self.tell(Fetch(self.requests, 2, 2, 0, 0, 0, 0, 1 << 20, [entry], []), sender="broker 2")

    def published(self, said: Sequence[Any]) -> list[Published]:
        return [one for one in said if isinstance(one, Published)]

    def ticks(self, most: int = 100) -> tuple[int, list[Published]]:
        """Tick as long as something is under way; how often, and what was said about publications."""
        said: list[Published] = []
        for count in range(most):
            if self.broker._publishing.due_ms is None:
                return count, said
            self.now_ms = max(self.now_ms, self.broker._publishing.due_ms)
            said += self.published(self.tick())
        raise AssertionError("it does not end")

    def groups(self) -> list[tuple[str, int, int, bool]]:
        """(writer, version, offset within the group, whether it ends there) of every marked batch."""
        found = []
        for batch in stored_batches(self.partition.log):
            mark = mark_of(batch)
            if mark is not None:
                found.append((mark.key, mark.version, mark.group_offset, not batch.attributes & 128))
        return found

    def values(self) -> list[str]:
        return [(value or b"").decode().removesuffix(" " + DATA) for value in shown(self.partition.log)]

    def assert_idle(self) -> None:
        """Nothing is left of anything."""
        assert self.broker._publishing.due_ms is None
        assert (self.stages.bytes, self.stages._works) == (0, {})


def results(said: Sequence[Any]) -> list[tuple[int, int, int]]:
    """(error, base offset, end offset) of answers, (error, base offset, -1) of those to appends."""
    found = []
    for one in said:
        if isinstance(one, Published):
            found.append((one.error, one.base_offset, one.end_offset))
        elif isinstance(one, Produced):
            found += [(entry.error, entry.base_offset, -1) for entry in one.entries]
    return found


def whole(count: int, writer: str = "w", version: int = 7) -> list[tuple[str, int, int, bool]]:
    return [(writer, version, 2 * n, n == count - 1) for n in range(count)]


def pieces(count: int, attempt: str = "a") -> list[str]:
    return [value for n in range(count) for value in (f"{attempt}{n}", f"{attempt}{n}+")]


# ------------------------------------------------------------------------------------------------------------- in slices


def test_groups_of_several_partitions_share_a_slice_a_turn() -> None:
    """A job commits to hundreds at once: what others ask is not to wait until each has had its slice."""
    desk = Desk()
    identities = [desk.identity, *(PartitionId(TOPIC_ID, number, 0) for number in (1, 2))]
    notice = desk.notice()
    notice.entries[:] = [evolve(notice.entries[0], partition=identity) for identity in identities]
    notice.notice = desk.commands = desk.commands + 1
    desk.tell(notice, sender="controller")
    for number, identity in enumerate(identities):
        for piece_number in (0, 1):
            desk.tell(Stage("w", 7, "a", piece_number, ProduceEntry(10 * number + piece_number, identity, piece(piece_number))))
    desk.receive(*(Publish(number, one, "w", 7, 60_000, [StagedAttempt("a", 2)], 1) for number, one in enumerate(identities)))
    ends: list[tuple[int, ...]] = []
    said: list[Any] = []
    while not ends or desk.broker._publishing.due_ms is not None:
        said += desk.published(desk.tick())
        ends.append(tuple(desk.broker.partitions[identity].log.end_offset for identity in identities))
    assert ends == [(2, 0, 0), (2, 2, 0), (2, 2, 2), (4, 2, 2), (4, 4, 2), (4, 4, 4)]
    assert results(said) == [(0, 0, 4)] * 3
    desk.assert_idle()


@pytest.mark.parametrize(("slice_bytes", "ticks"), [(1, 10), (300, 5), (600, 3), (1 << 20, 1)])
def test_a_group_takes_as_many_turns_as_it_has_slices(slice_bytes: int, ticks: int) -> None:
    assert 200 > len(piece(0)) > 120
    desk = Desk(publish_slice_bytes=slice_bytes)
    desk.put(10)
    desk.receive(desk.publish(("a", 10)))
    count, said = desk.ticks()
    assert count == ticks
    assert results(said) == [(0, 0, 20)]
    assert desk.values() == pieces(10)
    assert desk.groups() == whole(10)
    assert desk.partition.high_watermark == 20
    desk.assert_idle()


def test_readers_see_nothing_before_all_of_it_is_there() -> None:
    desk = Desk()
    desk.put(6)
    desk.tell(desk.append("before"))
    desk.receive(desk.publish(("a", 6)))
    seen = []
    while desk.broker._publishing.due_ms is not None:
        desk.tick()
        seen.append((desk.partition.log.end_offset, desk.partition.high_watermark))
    assert seen == [(3, 1), (5, 1), (7, 1), (9, 1), (11, 1), (13, 13)]


@pytest.mark.parametrize("attempts", [[("a", 2), ("b", 1)], [("b", 1), ("a", 2)], [("b", 1)]])
def test_attempts_are_published_in_the_order_that_is_asked_for(attempts: list[tuple[str, int]]) -> None:
    desk = Desk()
    desk.put(2)
    desk.put(1, attempt="b")
    desk.put(3, attempt="c")
    desk.receive(desk.publish(*attempts))
    desk.ticks()
    assert desk.values() == [value for attempt, count in attempts for value in pieces(count, attempt)]
    desk.assert_idle()


def test_pieces_come_in_any_order_and_again() -> None:
    desk = Desk()
    for number in (3, 0, 2, 0, 3, 1, 1):
        desk.put(at=number)
    assert desk.stages.bytes > 0
    desk.put(at=2, body=body_of("another under the same number"))
    desk.receive(desk.publish(("a", 4)))
    desk.ticks()
    assert desk.values() == pieces(4)


@pytest.mark.parametrize(
    ("put", "asked"),
    [
        ((0, 2), ("a", 3)),
        ((1, 2), ("a", 2)),
        ((0, 1), ("a", 3)),
        ((0, 1), ("a", 1)),
        ((0, 1), ("b", 2)),
        ((0, 1), ("a", 0)),
        ((0, 1), ("a", -1)),
        ((0, 1), ("a", 2**62)),
        ((), ("a", 0)),
    ],
)
def test_with_a_piece_missing_nothing_is_published(put: tuple[int, ...], asked: tuple[str, int]) -> None:
    desk = Desk()
    for number in put:
        desk.put(at=number)
    code = Code.UNKNOWN_STAGE if 0 < asked[1] <= PIECES_MAX else Code.INVALID_REQUEST
    assert results(desk.tell(desk.publish(asked))) == [(code, -1, -1)]
    assert results(desk.tell(desk.publish())) == [(Code.INVALID_REQUEST, -1, -1)]
    assert desk.ticks() == (0, [])
    assert desk.partition.log.end_offset == 0


# -------------------------------------------------------------------------------------------------- what comes in between


def test_appends_of_others_wait_for_their_turn_and_go_on_after_it() -> None:
    desk = Desk()
    desk.put(3)
    assert results(desk.tell(desk.publish(("a", 3)), desk.append("at the same time"))) == [(0, 0, -1)]
    for acks in (ACKS_ALL, ACKS_LEADER):
        desk.receive(desk.append(acks=acks))
        assert results(desk.broker.outbox.messages and desk.tick()) == [(Code.QUOTA_EXCEEDED, -1, -1)] if acks == ACKS_ALL else True
    desk.ticks()
    assert results(desk.tell(desk.append("after"))) == [(0, 7, -1)]
    assert desk.values() == ["at the same time", *pieces(3), "after"]


def test_who_finds_no_room_to_put_a_piece_aside_is_told_what_it_asked_for_and_the_limit() -> None:
    desk = Desk(stage_bytes_max=5_000)
    body = body_of("x" * 300)
    asked = len(body) + 256 + 4096
    assert results(desk.put(body=body)) == [(0, -1, -1)]
    assert results(desk.put(body=body, attempt="b")) == [(Code.QUOTA_EXCEEDED, asked, 5_000)]


def test_a_client_that_puts_aside_what_it_can_leaves_room_for_another() -> None:
    desk = Desk(stage_bytes_max=50_000)
    said = {}
    for who in ("client/a", "client/b"):
        staged = [Stage("w", 1, f"{who} {n}", 0, ProduceEntry(n, desk.identity, body_of("x"))) for n in range(100)]
        for one in staged:
            one.principal = who
        said[who] = [answer.error for answer in desk.tell(*staged)]
    assert said["client/a"] == said["client/b"] == [0] * 5 + [Code.QUOTA_EXCEEDED] * 95


@pytest.mark.parametrize("acks", [ACKS_ALL, ACKS_LEADER])
@pytest.mark.parametrize("values", [("once", "more"), ("once",) * 5])
def test_work_that_was_done_with_another_number_of_records_is_answered_with_where_it_ends(acks: int, values: tuple[str, ...]) -> None:
    """The answer to an append has no end: its writer would take its own number of records for that of the first time."""
    desk = Desk(isr=(1, 2))
    mark = WriterMark("w", 7, made_ms=desk.now_ms)
    desk.tell(desk.append("a", "b", "c", **framing(mark)))
    again = desk.append(*values, acks=acks, **framing(mark))
    waits = desk.tell(again)
    assert desk.partition.log.end_offset == 3
    found = [one for one in (waits + desk.fetch(3)) if isinstance(one, Published)]
    assert len(waits) == (acks == ACKS_LEADER), "with all in-sync replicas, once they have it"
    assert [(one.request, one.partition, one.error, one.base_offset, one.end_offset) for one in found] == [
        (again.entries[0].request, desk.identity, 0, 0, 3)
    ]
    assert results(desk.tell(desk.append(*values, acks=acks, **framing(mark)))) == [(0, 0, 3)]
    assert results(desk.tell(desk.append("x", "y", "z", **framing(mark)))) == [(0, 0, -1)]
    assert desk.tell(desk.append(*values, acks=ACKS_NONE, **framing(mark))) == []


@pytest.mark.parametrize("acks", [ACKS_ALL, ACKS_LEADER, ACKS_NONE])
def test_an_append_is_refused_while_a_group_is_open(acks: int) -> None:
    desk = Desk()
    desk.put(3)
    desk.tell(desk.publish(("a", 3)))
    desk.receive(desk.append(acks=acks), desk.once(8))
    said = desk.tick()
    refused = [(Code.QUOTA_EXCEEDED, -1, -1)]
    assert results(said) == (refused if acks == ACKS_NONE else refused * 2)
    desk.ticks()
    assert desk.groups() == whole(3)
    assert desk.partition.log.end_offset == 6


@pytest.mark.parametrize(("version", "kept"), [(6, 7), (7, 7), (8, 8)])
@pytest.mark.parametrize("is_first", [True, False])
def test_the_same_writer_appends_in_the_poll_in_which_it_publishes(version: int, kept: int, is_first: bool) -> None:
    """Whichever is first in the log: no version twice, and none after a later one."""
    desk = Desk()
    desk.put(2)
    messages = [desk.publish(("a", 2)), desk.once(version)]
    desk.receive(*(messages if is_first else messages[::-1]))
    said = desk.published(desk.tick()) + desk.ticks()[1]
    versions = [version for _, version, offset, _ in desk.groups() if offset == 0]
    assert versions == sorted(set(versions))
    if version >= 7:
        assert versions == [version], "the publication comes after it"
        assert results(said) == [(0, 0 if version == 7 else -1, 1)]
        assert kept == version
        desk.assert_idle()
    else:
        assert versions == [6, 7]


def test_a_publication_that_is_asked_for_again_is_the_same() -> None:
    desk = Desk()
    desk.put(4)
    desk.put(4, attempt="b")
    desk.tell(desk.publish(("a", 4)))
    desk.tell(desk.publish(("a", 4)))
    desk.tell(desk.publish(("b", 4)))  # of another attempt: the one under way counts
    _, said = desk.ticks()
    assert results(said) == [(0, 0, 8)] * 3
    for attempt in "abc":
        assert results(desk.tell(desk.publish((attempt, 4)))) == [(0, 0, 8)]
    assert desk.values() == pieces(4)
    desk.assert_idle()


def test_a_stage_after_its_publication_is_told_where_it_is_and_put_nowhere() -> None:
    desk = Desk()
    desk.put(2)
    desk.receive(desk.publish(("a", 2)))
    desk.ticks()
    assert results(desk.put(attempt="late")) == [(0, 0, 4)]
    assert results(desk.put(attempt="late", version=6)) == [(0, -1, 4)]
    assert results(desk.put(attempt="next", version=8)) == [(0, -1, -1)]
    assert desk.stages.bytes > 0
    desk.receive(desk.publish(("next", 1), version=8))
    desk.ticks()
    desk.assert_idle()


def test_a_stage_is_not_told_of_a_publication_that_may_yet_be_lost() -> None:
    """Nobody goes on to the next work before this is committed."""
    desk = Desk(isr=(1, 2))
    desk.put(2)
    desk.receive(desk.publish(("a", 2)))
    desk.ticks()
    assert desk.partition.log.end_offset == 4
    assert results(desk.put(attempt="late")) == [(0, -1, -1)]
    desk.fetch(4)
    assert results(desk.put(attempt="late")) == [(0, 0, 4)]


@pytest.mark.parametrize(("writer", "version"), [("w", 8), ("v", 7), ("w", 6)])
def test_one_publication_at_a_time(writer: str, version: int) -> None:
    desk = Desk()
    desk.put(3)
    desk.put(2, writer=writer, version=version, attempt="b")
    desk.tell(desk.publish(("a", 3)))
    other = desk.publish(("b", 2), writer=writer, version=version)
    assert results(desk.tell(other)) == [(Code.QUOTA_EXCEEDED, -1, -1)]
    desk.ticks()
    desk.receive(other)
    _, said = desk.ticks()
    if (writer, version) == ("w", 6):
        assert (said, desk.groups()) == ([], whole(3)), "it was answered at once"
    else:
        assert results(said) == [(0, 6, 10)]
        assert desk.groups() == whole(3) + whole(2, writer, version)
    desk.assert_idle()


def test_a_version_from_before_is_answered_with_what_came_after_it() -> None:
    desk = Desk()
    for version in range(1, 9):
        desk.put(2, version=version)
        desk.receive(desk.publish(("a", 2), version=version))
        desk.ticks()
    found = {version: results(desk.tell(desk.publish(("x", 1), version=version))) for version in range(9)}
    # Of five, where they were; of older ones, that they were.
    assert found == {v: [(0, 4 * v - 4, 4 * v)] if v > 3 else [(0, -1, 32)] for v in range(9)}
    assert results(desk.tell(desk.once(4), desk.once(0))) == [(0, 12, 16), (0, -1, -1)]
    assert desk.partition.log.end_offset == 32


# --------------------------------------------------------------------------------------------- another leader on the way


@pytest.mark.parametrize("slices", range(4))
def test_whoever_leads_no_more_stops_and_says_so(slices: int) -> None:
    desk = Desk(isr=(1, 2))
    desk.put(4)
    desk.receive(desk.publish(("a", 4)), desk.publish(("a", 4)))
    for _ in range(slices):
        assert desk.published(desk.tick()) == []
    desk.receive(desk.publish(("a", 4)))
    said = desk.lead(leader=2, epochs=(1, 1))
    assert results(desk.published(said)) == [(Code.NOT_LEADER_OR_FOLLOWER, -1, -1)] * 3
    assert desk.partition.log.end_offset == 2 * slices
    assert desk.broker._publishing.due_ms is None
    assert results(desk.tell(desk.publish(("a", 4)))) == [(Code.NOT_LEADER_OR_FOLLOWER, -1, -1)]
    assert results(desk.put()) == [(Code.NOT_LEADER_OR_FOLLOWER, -1, -1)]
    desk.now_ms += 2_000
    desk.tick()
    desk.assert_idle()


@pytest.mark.parametrize("slices", range(4))
def test_the_same_leader_in_a_new_epoch_cuts_what_is_there_and_begins_again(slices: int) -> None:
    desk = Desk(isr=(1, 2))
    desk.tell(desk.append("before", acks=ACKS_LEADER))
    desk.put(4)
    desk.receive(desk.publish(("a", 4)))
    for _ in range(slices):
        desk.tick()
    said = desk.lead(epochs=(1, 1))
    assert results(desk.published(said)) == [(Code.NOT_LEADER_OR_FOLLOWER, -1, -1)]
    assert desk.partition.log.end_offset == 1
    assert results(desk.tell(desk.append("between", acks=ACKS_LEADER))) == [(0, 1, -1)]
    desk.receive(desk.publish(("a", 4)))
    desk.ticks()
    desk.fetch(10, 1)
    assert desk.values() == ["before", "between", *pieces(4)]
    assert desk.groups() == whole(4)
    desk.assert_idle()


def test_who_waited_for_the_epoch_before_is_answered_although_it_is_asked_for_again_at_once() -> None:
    """The notice and the repetition in one poll: nobody waits until its time is over."""
    desk = Desk(isr=(1, 2))
    desk.put(2)
    first = desk.publish(("a", 2))
    desk.tell(first)
    again = desk.publish(("a", 2))
    desk.state = evolve(desk.state, leader_epoch=1, partition_epoch=1)
    desk.commands += 1
    desk.receive(desk.notice(), sender="controller")
    desk.receive(again)
    _, said = desk.ticks()
    said += desk.published(desk.tick())
    assert [(one.request, one.error) for one in said] == [(first.request, Code.NOT_LEADER_OR_FOLLOWER)]
    desk.fetch(4, 1)
    desk.assert_idle()


def test_after_another_leader_its_pieces_are_staged_again() -> None:
    desk = Desk(isr=(1, 2))
    desk.put(3)
    desk.tell(desk.publish(("a", 3)))
    desk.lead(leader=2, epochs=(1, 1))
    desk.now_ms += 2_000
    desk.tick()  # of partitions that are led elsewhere, nothing is kept
    desk.lead(epochs=(1, 1))
    assert desk.partition.log.end_offset == 0
    assert results(desk.tell(desk.publish(("a", 3)))) == [(Code.UNKNOWN_STAGE, -1, -1)]
    desk.put(3)
    desk.receive(desk.publish(("a", 3)))
    desk.ticks()
    desk.fetch(6, 2)
    assert desk.groups() == whole(3)
    assert desk.partition.high_watermark == 6


def test_acknowledgements_of_a_whole_group_end_with_the_leadership() -> None:
    """It is in the log, and not committed: its writer is told who leads, and asks there."""
    desk = Desk(isr=(1, 2))
    desk.put(2)
    desk.receive(desk.publish(("a", 2)), desk.publish(("a", 2)))
    _, said = desk.ticks()
    assert said == []
    desk.receive(desk.publish(("a", 2)), desk.publish(("a", 2), version=3))
    assert desk.published(desk.tick()) == []
    said = desk.lead(leader=2, epochs=(1, 1))
    assert [(one.error, one.base_offset, one.end_offset) for one in desk.published(said)] == [(Code.NOT_LEADER_OR_FOLLOWER, -1, -1)] * 4
    assert [one for one in said if isinstance(one, Produced)] == []


def test_a_topic_that_is_made_again_knows_nothing_of_the_other() -> None:
    desk = Desk()
    desk.put(2)
    desk.put(2, attempt="b", version=8)
    desk.tell(desk.publish(("a", 2)))
    desk.receive(StopReplica(1, 1, 1, 99, [StopEntry(desk.identity, 99, True)], as_of=99), sender="controller")
    said = desk.tick()
    assert [one.error for one in desk.published(said)] == [Code.NOT_LEADER_OR_FOLLOWER]
    desk.identity = PartitionId(b"another topic id", 0, 0)
    desk.commands, desk.state = 100, PartitionState(1, 0, (1,))
    desk.lead()
    assert results(desk.tell(desk.publish(("b", 2), version=8))) == [(Code.UNKNOWN_STAGE, -1, -1)]
    desk.now_ms += 2_000
    desk.tick()
    desk.assert_idle()
    desk.put(1, attempt="c")
    desk.receive(desk.publish(("c", 1)))
    desk.ticks()
    assert desk.values() == pieces(1, "c")


# ------------------------------------------------------------------------------------------------- too few in-sync replicas


def test_below_min_isr_nothing_begins() -> None:
    desk = Desk(isr=(1, 2), min_isr=2)
    desk.put(2)
    desk.lead(isr=(1,), epochs=(0, 1))
    assert results(desk.tell(desk.publish(("a", 2)))) == [(Code.NOT_ENOUGH_REPLICAS, -1, -1)]
    assert desk.partition.log.end_offset == 0
    desk.lead(isr=(1, 2), epochs=(0, 1))
    desk.receive(desk.publish(("a", 2)))
    desk.ticks()
    desk.fetch(4)
    assert desk.partition.high_watermark == 4


def test_below_min_isr_a_group_that_has_begun_ends_and_waits_to_be_committed() -> None:
    desk = Desk(isr=(1, 2), min_isr=2)
    desk.put(3)
    desk.tell(desk.publish(("a", 3)))
    desk.lead(isr=(1,), epochs=(0, 1))
    desk.ticks()
    said = desk.tell(desk.publish(("a", 3)))
    assert results(said) == [(Code.NOT_ENOUGH_REPLICAS, -1, -1)]
    assert (desk.partition.log.end_offset, desk.partition.high_watermark) == (6, 0)
    desk.lead(isr=(1, 2), epochs=(0, 1))
    waiting = desk.publish(("a", 3))
    assert results(desk.tell(waiting)) == []
    desk.fetch(6)
    assert desk.partition.high_watermark == 6
    assert results(desk.tell(desk.publish(("a", 3)))) == [(0, 0, 6)]


def test_who_waits_below_min_isr_is_told_that_it_is_stored() -> None:
    desk = Desk(isr=(1, 2), min_isr=2)
    desk.put(3)
    desk.tell(desk.publish(("a", 3)))
    said = desk.lead(isr=(1,), epochs=(0, 1))
    said += desk.ticks()[1] + desk.published(desk.lead(isr=(1,), epochs=(0, 1)))
    assert [one.error for one in desk.published(said)] == [Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND]


def test_who_waits_is_answered_when_its_time_is_over() -> None:
    desk = Desk(isr=(1, 2))
    desk.put(2)
    desk.receive(desk.publish(("a", 2), timeout_ms=500))
    desk.ticks()
    desk.now_ms += 1_000
    assert results(desk.published(desk.tick())) == [(Code.REQUEST_TIMED_OUT, -1, -1)]
    desk.receive(desk.publish(("a", 2)))
    desk.fetch(4)
    assert results(desk.tell(desk.publish(("a", 2)))) == [(0, 0, 4)]


# ------------------------------------------------------------------------------------------------------------ broken disks


class Disks(Desk):
    """The same with files on a disk that can break."""

    def __init__(self, **options: Any) -> None:
        self.disk = SimulatedDisk(random.Random(3))
        super().__init__(FileLogDirectory("/d", fs=self.disk, limits=BrokerConfig(publish_slice_bytes=1)), **options)


@pytest.mark.parametrize("fits", range(0, 700, 60))
def test_a_full_disk_interrupts_a_group_which_goes_on_when_there_is_room(fits: int) -> None:
    desk = Disks(publish_slice_bytes=500)
    desk.tell(desk.append("before"))
    desk.put(4)
    desk.disk.arm("no_space", paths=".log", space=fits)
    desk.receive(desk.publish(("a", 4)))
    for _ in range(3):
        assert desk.published(desk.tick()) == []
    end = desk.partition.log.end_offset
    assert end < 9
    assert desk.partition.high_watermark == 1
    assert desk.broker._publishing.due_ms == desk.now_ms + 1_000, "it does not try all the time"
    assert desk.partition.failed is None
    desk.disk.disarm()
    _, said = desk.ticks()
    assert results(said) == [(0, 1, 9)]
    assert desk.values() == ["before", *pieces(4)]
    assert desk.groups() == whole(4)
    desk.assert_idle()


def test_a_group_whose_pieces_cannot_be_opened_for_now_goes_on_when_they_can(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Disks()
    desk.put(3)

    def none_left(path: str, *, create: bool = False) -> int:
        raise OSError(errno.EMFILE, "Too many open files", path)

    with monkeypatch.context() as patch:
        patch.setattr(desk.disk, "open", none_left)
        desk.receive(desk.publish(("a", 3)))
        for _ in range(3):
            assert desk.published(desk.tick()) == []
    assert (desk.partition.failed, desk.partition.log.end_offset) == (None, 0)
    _, said = desk.ticks()
    assert results(said) == [(0, 0, 6)]
    desk.assert_idle()


def test_an_interrupted_group_holds_up_no_other_partition_and_is_left_alone_meanwhile() -> None:
    desk = Disks()
    first, second = desk.identity, PartitionId(TOPIC_ID, 1, 0)
    desk.put(3)
    desk.disk.arm("no_space", paths=".log")
    desk.tell(desk.publish(("a", 3)))
    desk.disk.disarm()
    tried = desk.now_ms
    desk.identity, desk.commands = second, 50
    desk.lead()
    desk.put(9)
    desk.receive(desk.publish(("a", 9)))
    said: list[Published] = []
    while not said:
        said += desk.published(desk.tick())
    assert results(said) == [(0, 0, 18)]
    assert desk.now_ms == tried
    assert desk.broker.partitions[first].log.end_offset == 0
    assert results(desk.ticks()[1]) == [(0, 0, 6)]


def test_what_gets_in_before_the_first_batch_of_an_interrupted_group_moves_it() -> None:
    desk = Disks()
    desk.put(2)
    desk.disk.arm("no_space", paths=".log")
    desk.tell(desk.publish(("a", 2)))
    assert desk.partition.log.end_offset == 0
    desk.disk.disarm()
    assert results(desk.tell(desk.append("first"))) == [(0, 0, -1)]
    _, said = desk.ticks()
    assert results(said) == [(0, 1, 5)]
    assert desk.values() == ["first", *pieces(2)]


def test_a_later_version_that_gets_in_before_the_first_batch_ends_an_interrupted_group() -> None:
    desk = Disks()
    desk.put(2)
    desk.disk.arm("no_space", paths=".log")
    desk.tell(desk.publish(("a", 2)))
    desk.disk.disarm()
    assert results(desk.tell(desk.once(9))) == [(0, 0, -1)]
    _, said = desk.ticks()
    assert results(said) == [(0, -1, 1)]
    assert [version for _, version, _, _ in desk.groups()] == [9]
    desk.assert_idle()


def test_who_waits_for_an_interrupted_group_is_answered_when_its_time_is_over() -> None:
    desk = Disks()
    desk.put(2)
    desk.disk.arm("no_space", paths=".log")
    desk.tell(desk.publish(("a", 2), timeout_ms=5_000))
    said: list[Published] = []
    for _ in range(8):
        desk.now_ms += 1_000
        said += desk.published(desk.tick())
    assert results(said) == [(Code.REQUEST_TIMED_OUT, -1, -1)]
    desk.disk.disarm()
    desk.receive(desk.publish(("a", 2)))
    assert results(desk.ticks()[1]) == [(0, 0, 4)]


def test_so_many_wait_for_one_group_and_whoever_else_asks_for_it_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they ask for may be done meanwhile: they hear of doubt, not of a refusal."""
    monkeypatch.setattr(publishing, "_WAITING_MAX", 3)
    desk = Disks()
    desk.put(2)
    desk.disk.arm("no_space", paths=".log")
    asked = [desk.publish(("a", 2), timeout_ms=seconds * 1_000) for seconds in (60, 1, 2, 60, 60)]
    late = Code.REQUEST_TIMED_OUT
    assert [(one.request, one.error) for one in desk.published(desk.tell(*asked))] == [(one.request, late) for one in asked[3:]]
    desk.now_ms += 2_000
    assert [(one.request, one.error) for one in desk.published(desk.tick())] == [(one.request, late) for one in asked[1:3]]
    again = [desk.publish(("a", 2)) for _ in range(3)]
    assert [(one.request, one.error) for one in desk.published(desk.tell(*again))] == [(again[2].request, late)], "there is room for two"
    desk.disk.disarm()
    said = desk.ticks()[1]
    assert [(one.request, one.error, one.end_offset) for one in said] == [(one.request, 0, 4) for one in (asked[0], *again[:2])]
    assert results(desk.tell(again[2])) == [(0, 0, 4)]


def test_an_interrupted_group_keeps_its_pieces_however_long_it_takes() -> None:
    desk = Disks()
    desk.put(3)
    desk.put(3, version=8)
    desk.tell(desk.publish(("a", 3)))
    desk.disk.arm("no_space", paths=".log")
    for _ in range(30):
        desk.now_ms += 1_000
        desk.tick()
    assert results(desk.tell(desk.publish(("a", 3), version=8))) == [(Code.QUOTA_EXCEEDED, -1, -1)]
    desk.disk.disarm()
    desk.ticks()
    assert desk.groups() == whole(3)
    assert desk.values() == pieces(3)
    assert desk.partition.failed is None


@pytest.mark.parametrize("slices", range(3))
def test_a_broken_disk_costs_the_copy_so_that_another_leader_cuts(slices: int) -> None:
    desk = Disks(isr=(1, 2))
    desk.put(3)
    desk.receive(desk.publish(("a", 3)))
    for _ in range(slices):
        desk.tick()
    desk.disk.arm("write_error", paths=".log")
    _, said = desk.ticks()
    assert [one.error for one in said] == [Code.STORAGE_ERROR]  # not certain, also for the first slice
    assert "error" in (desk.partition.failed or "")
    assert desk.partition.high_watermark == 0
    assert results(desk.tell(desk.publish(("a", 3)))) == [(Code.STORAGE_ERROR, -1, -1)]
    assert results(desk.put()) == [(Code.STORAGE_ERROR, -1, -1)]


def test_a_publication_whose_only_write_was_not_taken_back_may_have_been_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk has it all and says that it failed: the next life of the broker finds the group whole, and counts it."""
    desk = Disks(publish_slice_bytes=10_000)
    desk.tell(desk.append("before"))
    desk.put(1)
    write = desk.disk.pwritev

    def unheard(*written: Any) -> int:
        write(*written)
        raise OSError(errno.EIO, "the answer was lost")

    def broken(_fd: int, _size: int) -> None:
        raise OSError(errno.EIO, "nothing is cut")

    with monkeypatch.context() as bad:
        bad.setattr(desk.partition.log, "_pwritev", unheard)
        bad.setattr(desk.disk, "ftruncate", broken)
        desk.receive(desk.publish(("a", 1)))
        _, said = desk.ticks()
    assert results(said) == [(Code.STORAGE_ERROR, -1, -1)]
    assert desk.partition.failed
    desk.directory.close(clean=False)
    desk.disk.kill()
    log = FileLogDirectory("/d", fs=desk.disk, limits=BrokerConfig(publish_slice_bytes=1)).get(desk.identity)
    assert log is not None
    assert log.end_offset == 3


SPOILS: dict[str, Callable[[SimulatedDisk], Any]] = {
    "EIO": lambda disk: disk.arm("read_error", paths="staged/"),
    "gone": lambda disk: disk.unlink("/d/staged/1"),
    "cut": lambda disk: disk.content("/d/staged/1").__delitem__(slice(-3, None)),
    "damaged": lambda disk: disk.content("/d/staged/1").__setitem__(slice(-3, None), b"xyz"),
    "empty": lambda disk: disk.content("/d/staged/1").clear(),
}


@pytest.mark.parametrize("spoil", SPOILS.values(), ids=SPOILS)
def test_what_was_put_aside_and_cannot_be_read_is_put_aside_again(spoil: Callable[[SimulatedDisk], Any]) -> None:
    """Before anything of it is in the log, this costs nobody anything."""
    desk = Disks(publish_slice_bytes=10_000)
    desk.put(3)
    spoil(desk.disk)
    desk.receive(desk.publish(("a", 3)))
    _, said = desk.ticks()
    assert results(said) == [(Code.UNKNOWN_STAGE, -1, -1)]
    assert desk.partition.failed is None
    assert desk.partition.log.end_offset == 0
    desk.disk.disarm()
    desk.put(3)  # under the same name
    desk.receive(desk.publish(("a", 3)))
    _, said = desk.ticks()
    assert results(said) == [(0, 0, 6)]
    assert desk.values() == pieces(3)
    desk.assert_idle()


@pytest.mark.parametrize("spoil", SPOILS.values(), ids=SPOILS)
def test_what_cannot_be_read_in_the_middle_costs_the_copy(spoil: Callable[[SimulatedDisk], Any]) -> None:
    desk = Disks(isr=(1, 2))
    desk.put(3)
    desk.tell(desk.publish(("a", 3)))
    spoil(desk.disk)
    _, said = desk.ticks()
    assert [one.error for one in said] == [Code.STORAGE_ERROR]
    assert desk.partition.failed
    assert desk.partition.high_watermark == 0


@pytest.mark.parametrize(("stored", "error", "failed"), [(0, Code.UNKNOWN_STAGE, False), (2, Code.STORAGE_ERROR, True)])
def test_a_log_that_stores_part_of_the_first_slice_and_refuses_the_rest_costs_the_copy(
    stored: int, error: Code, failed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the group would stay open, and every append to the partition would wait for its end."""
    desk = Desk(publish_slice_bytes=10_000)
    desk.put(3)
    log = type(desk.partition.log)
    store = log.append_many

    def append_many(self: Log, batches: Sequence[RecordBatch]) -> None:
        store(self, batches[:stored])
        raise LogCorrupt("no more")

    monkeypatch.setattr(log, "append_many", append_many)
    desk.receive(desk.publish(("a", 3)))
    _, said = desk.ticks()
    assert [one.error for one in said] == [error]
    assert (desk.partition.failed is not None, desk.partition.log.end_offset) == (failed, 2 * stored)
    assert results(desk.tell(desk.append("x"))) == [(Code.STORAGE_ERROR, -1, -1) if failed else (0, 0, -1)]


def test_who_cannot_tell_what_to_cut_gives_its_copy_up_and_goes_on_serving_others() -> None:
    desk = Disks(isr=(1, 2))
    desk.put(3)
    desk.tell(desk.publish(("a", 3)))
    (path,) = (path for path in desk.disk.paths() if path.endswith(".log"))
    desk.disk.content("/" + path)[-1] ^= 1
    desk.partition.log.forget_tail()
    said = desk.lead(epochs=(1, 1))
    assert [one.error for one in desk.published(said)] == [Code.NOT_LEADER_OR_FOLLOWER]
    assert "checksum" in (desk.partition.failed or "")
    assert desk.partition.log.end_offset == 2, "nothing was cut"
    assert results(desk.tell(desk.append("x"))) == [(Code.STORAGE_ERROR, -1, -1)]


def test_a_full_disk_takes_no_stages_and_says_so() -> None:
    desk = Disks()
    desk.put(1)
    desk.disk.arm("no_space", paths="staged/")
    assert results(desk.put(at=1)) == [(Code.LOG_DIRECTORY_FULL, -1, -1)]
    desk.disk.arm("write_error", paths="staged/")
    desk.disk.disarm("no_space")
    assert results(desk.put(at=1)) == [(Code.STORAGE_ERROR, -1, -1)]
    assert desk.partition.failed is None, "what is put aside is not what is stored"
    desk.disk.disarm()
    desk.put(at=1)
    desk.receive(desk.publish(("a", 2)))
    desk.ticks()
    assert desk.values() == pieces(2)


# -------------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"writer": ""}, Code.INVALID_REQUEST),
        ({"writer": "x" * 256}, Code.INVALID_REQUEST),
        ({"version": -1}, Code.INVALID_REQUEST),
        ({"version": VERSION_MAX + 1}, Code.INVALID_REQUEST),
        ({"at": -1}, Code.INVALID_RECORD),
        ({"at": 1_000_000}, Code.INVALID_RECORD),
        ({"attempt": "x" * 256}, Code.INVALID_REQUEST),
        ({"attempt": ""}, Code.INVALID_REQUEST),
        ({"body": b"too short"}, Code.CORRUPT_MESSAGE),
        ({"body": piece(0)[:-1] + b"!"}, Code.CORRUPT_MESSAGE),
        ({"body": body_of("x", producer_id=4, producer_epoch=0, base_sequence=0)}, Code.INVALID_RECORD),
        ({"body": body_of("x", **framing(WriterMark("w", 7)))}, Code.INVALID_RECORD),
        ({"body": body_of("x", extension=b"some other")}, Code.INVALID_RECORD),
        ({"body": body_of("x", attributes=128)}, Code.INVALID_RECORD),
        ({"body": body_of("x" * 10_000, compression=None)}, Code.MESSAGE_TOO_LARGE),
    ],
)
def test_what_is_no_piece_is_refused(changes: dict[str, Any], code: int) -> None:
    desk = Desk()
    assert results(desk.put(**changes)) == [(code, -1, -1)]
    assert desk.stages.bytes == 0
    if changes.keys() & {"writer", "version"}:
        assert results(desk.tell(desk.publish(("a", 1), **changes))) == [(code, -1, -1)]


def test_the_largest_piece_fits_with_the_largest_mark() -> None:
    desk = Desk()
    limit = desk.partition.config.max_batch_bytes
    room = limit - RecordBatch(body_of("")).length - 263
    found = []
    for size in range(room - 40, room + 41):
        body = encode_records(["x" * size], now_ms=5, compression=None)
        found.append(desk.put(body=body, at=size - room + 40, writer="k" * 255)[0].error)
    fits = found.count(0)
    assert found == [0] * fits + [Code.MESSAGE_TOO_LARGE] * (len(found) - fits)
    assert 0 < fits < len(found)
    desk.receive(desk.publish(("a", fits), writer="k" * 255))
    desk.ticks()
    assert max(batch.length for offset in range(fits) for batch in stored_batches(desk.partition.log, offset, offset + 1)) == limit


def test_of_a_partition_that_is_not_here_nothing_is_taken() -> None:
    desk = Desk()
    desk.identity = PartitionId(TOPIC_ID, 5, 0)
    said = results([*desk.put(), *desk.tell(desk.publish(("a", 1)))])
    assert len(said) == 2
    assert all(error in (Code.UNKNOWN_TOPIC_OR_PARTITION, Code.UNKNOWN_TOPIC_ID, Code.NOT_LEADER_OR_FOLLOWER) for error, _, _ in said)
    assert desk.stages.bytes == 0


@pytest.mark.parametrize("acks", [ACKS_ALL, ACKS_LEADER, ACKS_NONE])
def test_who_asks_a_broker_that_does_not_lead_is_told_so_although_he_waits_for_no_answer(acks: int) -> None:
    desk = Desk()
    gone = desk.append(acks=acks)
    gone.entries[0].partition = PartitionId(b"g" * 16, 0, 0)
    assert results(desk.tell(gone)) == [(Code.UNKNOWN_TOPIC_ID, -1, -1)]
    desk.lead(leader=2, isr=(1, 2), epochs=(1, 1))
    assert results(desk.tell(desk.append(acks=acks))) == [(Code.NOT_LEADER_OR_FOLLOWER, -1, -1)]
