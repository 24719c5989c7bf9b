"""What a follower owes its leader under flush="ack": it is said until this leader says that it counts."""

from __future__ import annotations

import pytest

from replog.broker.durability import FlushReports
from replog.config import BrokerConfig, TopicConfig
from replog.log.memory import MemoryLog
from replog.messages import FetchedEntry, Flushed, PartitionNotice
from replog.model import Assignment, BrokerInfo, PartitionId, PartitionState
from replog.partition.partition import Partition
from replog.ports import Outbox
from replog.records import RecordBatch, encode_records

P = PartitionId(bytes(16), 0, 0)


def follower(isr: tuple[int, ...]) -> Partition:
    """It led epoch 0 and committed three records; now broker 2 leads epoch 1."""
    config = TopicConfig(min_isr=1, flush="ack")
    partition = Partition(P, "t", MemoryLog(P), broker_id=1, limits=BrokerConfig(), brokers={n: BrokerInfo(n, n) for n in (1, 2)})
    partition.become(PartitionNotice(P, "t", PartitionState(1, 0, (1,)), Assignment((1, 2)), config), 0)
    partition.append(RecordBatch(encode_records(["a", "b", "c"], now_ms=0)), -1, 0)
    token = partition.log.flush()
    assert token is not None
    partition.flushed(token.run(), 0)
    assert partition.high_watermark == 3
    state = PartitionState(2, 1, isr, partition_epoch=1)
    partition.become(PartitionNotice(P, "t", state, Assignment((1, 2)), config), 0)
    return partition


@pytest.mark.parametrize(
    ("isr", "theirs", "said"),
    [((1, 2), 1, True), ((1, 2), 3, False), ((2,), 3, True)],
    ids=["the leader does not know what was committed", "it knows", "it knows, and this copy is to join"],
)
def test_it_is_said_until_this_leader_counts_it(isr: tuple[int, ...], theirs: int, said: bool) -> None:
    """A leader that took over from one that lives may know a lower high watermark than its followers (L3)."""
    outbox = Outbox()
    partition, reports = follower(isr), FlushReports(1, outbox)
    reports.owe(partition)
    reports.send(2, 1)
    assert outbox.messages == [], "the leader has not compared the logs yet"
    partition.take(FetchedEntry(P, 1, 3, high_watermark=theirs, start_offset=0, end_offset=3))
    reports.send(2, 1)
    assert [(to, m.entries[0].flushed_end) for to, m in outbox.messages if isinstance(m, Flushed)] == ([(2, 3)] if said else [])
