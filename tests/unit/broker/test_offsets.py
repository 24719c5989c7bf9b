"""Questions about offsets, asked of a leader whose copy cannot be read."""

from __future__ import annotations

import pytest

from replog.broker.offsets import Offsets
from replog.broker.routing import Routing
from replog.config import BrokerConfig, TopicConfig
from replog.errors import Code, LogCorrupt, LogDamaged, ReplogError
from replog.log.memory import MemoryLog, MemoryLogDirectory
from replog.messages import ListOffsets, ListOffsetsEntry, PartitionNotice
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


@pytest.mark.parametrize("problem", [LogCorrupt("Input/output error"), LogDamaged("gone")])
def test_a_copy_that_cannot_be_searched_leads_no_longer_and_the_broker_goes_on(problem: ReplogError) -> None:
    bad = Unreadable(P)
    bad.problem = problem
    partitions = {P: led(P, bad), Q: led(Q, MemoryLog(Q))}
    failed: list[tuple[PartitionId, str]] = []
    offsets = Offsets(partitions, Routing(), failed=lambda partition, why: failed.append((partition.identity, why)))
    answer = offsets.list(ListOffsets(1, [ListOffsetsEntry(P, 5, 1_000), ListOffsetsEntry(Q, 5, 1_000)]))
    assert [(entry.partition, entry.error, entry.offset) for entry in answer.entries] == [(P, Code.STORAGE_ERROR, -1), (Q, Code.NONE, -1)]
    assert failed == [(P, str(problem))]


def test_the_entries_of_one_partition_are_answered_in_order_and_of_one_moment() -> None:
    """A time with its batch, and the high watermark up to which was looked for it."""
    log = MemoryLog(P)
    partition = led(P, log)
    for at_ms in (100, 300):
        body = encode_records([Record(b"a", timestamp_ms=at_ms - 50), Record(b"b", timestamp_ms=at_ms)], now_ms=0)
        assert partition.append(RecordBatch(body), 1, 0).error == Code.NONE
    offsets = Offsets({P: partition}, Routing(), failed=lambda partition, why: None)
    for at, found in ((60, (0, 100)), (101, (2, 300)), (301, (-1, -1))):
        entries = [ListOffsetsEntry(P, 5, at), ListOffsetsEntry(P, 5, -1), ListOffsetsEntry(P, 5, -2)]
        answer = offsets.list(ListOffsets(1, entries))
        assert [(entry.offset, entry.timestamp_ms) for entry in answer.entries] == [found, (4, -1), (0, -1)]


def test_a_copy_that_has_failed_is_not_said_to_be_empty() -> None:
    """X-13: an election among the last that were complete would pass over what is in it."""
    has, directory = MemoryLog(P), MemoryLogDirectory()
    partitions = {P: led(P, has), Q: led(Q, MemoryLog(Q))}
    partitions[P].fail("Input/output error")
    states = Offsets(partitions, Routing(), failed=lambda partition, why: None).states([P, Q, GONE], directory, {})
    assert [(state.partition, state.end_offset) for state in states] == [(Q, 0), (GONE, 0)]
