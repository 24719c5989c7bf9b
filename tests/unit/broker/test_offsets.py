"""Questions about offsets, asked of a leader whose copy cannot be read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from replog.broker.offsets import EARLIEST, LATEST, TIMES_MAX, Offsets
from replog.broker.routing import Routing
from replog.config import BrokerConfig, TopicConfig
from replog.errors import Code, LogCorrupt, LogDamaged, LogFull, ReplogError
from replog.log.memory import MemoryLog, MemoryLogDirectory
from replog.messages import ClusterView, ListOffsets, ListOffsetsEntry, PartitionNotice, PartitionView, TopicView
from replog.model import Assignment, BrokerInfo, PartitionId, PartitionState
from replog.partition.partition import Partition
from replog.records import Record, RecordBatch, encode_records

P, Q, GONE = (PartitionId(bytes(16), number, 0) for number in range(3))


class Unreadable(MemoryLog):
    """What it holds cannot be read."""

    problem: ReplogError

    def offset_for_time(self, timestamp_ms: int) -> tuple[int, int] | None:
        raise self.problem


def led(identity: PartitionId, log: MemoryLog) -> Partition:
    partition = Partition(identity, "t", log, broker_id=1, limits=BrokerConfig(), brokers={1: BrokerInfo(1, 1)})
    state = PartitionState(leader=1, leader_epoch=5, isr=(1,))
    assert partition.become(PartitionNotice(identity, "t", state, Assignment((1,)), TopicConfig(min_isr=1)), 0) == Code.NONE
    return partition


def ignored(partition: Partition, why: object) -> None:
    """Nobody is told."""


@pytest.mark.parametrize("problem", [LogCorrupt("Input/output error"), LogDamaged("gone")])
def test_a_copy_that_cannot_be_searched_leads_no_longer_and_the_broker_goes_on(problem: ReplogError) -> None:
    bad = Unreadable(P)
    bad.problem = problem
    partitions = {P: led(P, bad), Q: led(Q, MemoryLog(Q))}
    failed: list[tuple[PartitionId, str]] = []
    offsets = Offsets(partitions, Routing(), failed=lambda partition, why: failed.append((partition.identity, why)), full=ignored)
    answer = offsets.list(ListOffsets(1, [ListOffsetsEntry(P, 5, 1_000), ListOffsetsEntry(Q, 5, 1_000)]))
    assert [(entry.partition, entry.error, entry.offset) for entry in answer.entries] == [(P, Code.STORAGE_ERROR, -1), (Q, Code.NONE, -1)]
    assert failed == [(P, str(problem))]


def test_a_copy_that_cannot_be_searched_for_now_is_asked_again() -> None:
    busy = Unreadable(P)
    busy.problem = LogFull("no descriptors")
    full: list[tuple[PartitionId, str]] = []
    offsets = Offsets(
        {P: led(P, busy), Q: led(Q, MemoryLog(Q))}, Routing(),
        failed=lambda partition, why: pytest.fail(why), full=lambda partition, problem: full.append((partition.identity, str(problem))),
    )  # fmt: skip
    answer = offsets.list(ListOffsets(1, [ListOffsetsEntry(P, 5, 1_000), ListOffsetsEntry(Q, 5, 1_000)]))
    assert [(entry.error, entry.offset) for entry in answer.entries] == [(Code.LOG_DIRECTORY_FULL, -1), (Code.NONE, -1)]
    assert full == [(P, "no descriptors")]


def test_the_entries_of_one_partition_are_answered_in_order_and_of_one_moment() -> None:
    """A time with its batch, and the high watermark up to which was looked for it."""
    log = MemoryLog(P)
    partition = led(P, log)
    for at_ms in (100, 300):
        body = encode_records([Record(b"a", timestamp_ms=at_ms - 50), Record(b"b", timestamp_ms=at_ms)], now_ms=0)
        assert partition.append(RecordBatch(body), 1, 0).error == Code.NONE
    offsets = Offsets({P: partition}, Routing(), failed=ignored, full=ignored)
    for at, found in ((60, (0, 100)), (101, (2, 300)), (301, (-1, -1))):
        entries = [ListOffsetsEntry(P, 5, at), ListOffsetsEntry(P, 5, -1), ListOffsetsEntry(P, 5, -2)]
        answer = offsets.list(ListOffsets(1, entries))
        assert [(entry.offset, entry.timestamp_ms) for entry in answer.entries] == [found, (4, -1), (0, -1)]


class Searched(MemoryLog):
    """Counts how often it is searched."""

    searches = 0

    def offset_for_time(self, timestamp_ms: int) -> tuple[int, int] | None:
        self.searches += 1
        return super().offset_for_time(timestamp_ms)


def test_one_partition_is_searched_once_for_a_request_and_its_ends_as_often_as_asked() -> None:
    logs = {P: Searched(P), Q: Searched(Q)}
    offsets = Offsets({identity: led(identity, log) for identity, log in logs.items()}, Routing(), failed=ignored, full=ignored)
    entries = [ListOffsetsEntry(identity, 5, at) for at in (7, 7, EARLIEST, LATEST, 8, LATEST) for identity in (P, Q)]
    again = Code.INVALID_REQUEST
    for searches in (1, 2):
        answer = offsets.list(ListOffsets(1, entries))
        assert [entry.error for entry in answer.entries] == [0, 0, again, again, 0, 0, 0, 0, again, again, 0, 0]
        assert [log.searches for log in logs.values()] == [searches] * 2


def test_of_many_partitions_a_request_has_so_many_searched_and_the_others_are_to_be_asked_for_again() -> None:
    identities = [PartitionId(bytes(16), number, 0) for number in range(TIMES_MAX + 2)]
    logs = {identity: Searched(identity) for identity in identities}
    offsets = Offsets({identity: led(identity, log) for identity, log in logs.items()}, Routing(), failed=ignored, full=ignored)
    stale = [ListOffsetsEntry(identity, 4, 7) for identity in identities]  # of another epoch: refused without a search
    answer = offsets.list(ListOffsets(1, [*stale, *(ListOffsetsEntry(identity, 5, at) for at in (7, LATEST) for identity in identities)]))
    errors = [entry.error for entry in answer.entries[len(stale) :]]
    assert errors == [0] * TIMES_MAX + [Code.QUOTA_EXCEEDED] * 2 + [0] * len(identities)
    assert sum(log.searches for log in logs.values()) == TIMES_MAX


class Walked(tuple[PartitionView, ...]):
    """Partitions of a topic; counts how often all of them are walked."""

    walks = 0

    def __iter__(self) -> Iterator[PartitionView]:
        Walked.walks += 1
        return super().__iter__()


def test_why_a_partition_is_not_here_is_known_without_a_walk_through_its_topic() -> None:
    routing = Routing()
    partitions = Walked(PartitionView(number, 1, 1, 0, (1,), (), (1,), 0) for number in range(100))
    routing.merge(ClusterView(1, 5, -1, 1, [], [TopicView("t", bytes(16), TopicConfig(min_isr=1), partitions, 100)]))
    offsets = Offsets({}, routing, failed=ignored, full=ignored)
    walks = Walked.walks
    asked = [PartitionId(bytes(16), 99, 1), PartitionId(bytes(16), 99, 0), PartitionId(bytes(16), 100, 0), PartitionId(b"x" * 16, 0, 0)]
    answer = offsets.list(ListOffsets(1, [ListOffsetsEntry(identity, 5, 7) for identity in asked]))
    assert [entry.error for entry in answer.entries] == [
        Code.NOT_LEADER_OR_FOLLOWER, Code.INCONSISTENT_TOPIC_ID, Code.UNKNOWN_TOPIC_OR_PARTITION, Code.UNKNOWN_TOPIC_ID
    ]  # fmt: skip
    assert Walked.walks == walks


def test_a_copy_that_has_failed_is_not_said_to_be_empty() -> None:
    """X-13: an election among the last that were complete would pass over what is in it."""
    has, directory = MemoryLog(P), MemoryLogDirectory()
    partitions = {P: led(P, has), Q: led(Q, MemoryLog(Q))}
    partitions[P].fail("Input/output error")
    states = Offsets(partitions, Routing(), failed=ignored, full=ignored).states([P, Q, GONE], directory, {})
    assert [(state.partition, state.end_offset) for state in states] == [(Q, 0), (GONE, 0)]
