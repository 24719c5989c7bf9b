"""A partition over a log in memory, and the little it needs around it."""

from __future__ import annotations

from replog.config import BrokerConfig, TopicConfig
from replog.log.memory import MemoryLog
from replog.messages import FetchedEntry, FetchEntry, PartitionNotice
from replog.model import Assignment, BrokerInfo, PartitionId, PartitionState
from replog.partition.partition import Partition
from replog.partition.replica import Contact
from replog.ports import EpochEnd, MemorySlice
from replog.records import RecordBatch, encode_records

IDENTITY = PartitionId(b"topic".ljust(16, b"\0"), 0, 0)
LIMITS = BrokerConfig(replica_lag_ms_max=10_000)


def batch(text: str, base_offset: int, epoch: int) -> RecordBatch:
    """`a+b` is a batch of two records, stamped."""
    made = RecordBatch(encode_records(text.split("+"), now_ms=0))
    made.stamp(IDENTITY, base_offset, epoch)
    return made


def log_of(*records: tuple[str, int], start: int = 0, kind: type[MemoryLog] = MemoryLog) -> MemoryLog:
    """A log with these (batch, epoch)."""
    log = kind(IDENTITY, start_offset=start)
    for text, epoch in records:
        log.append(batch(text, log.end_offset, epoch))
    return log


def partition_of(log: MemoryLog, *, broker_id: int = 1, brokers: int = 3, high_watermark: int = 0) -> Partition:
    """A copy on `broker_id`; brokers 1 to `brokers` are registered under their own number as epoch."""
    known = {n: BrokerInfo(n, n) for n in range(1, brokers + 1)}
    return Partition(IDENTITY, "t", log, broker_id=broker_id, limits=LIMITS, brokers=known, high_watermark=high_watermark)


def notice(
    leader: int | None,
    epoch: int,
    isr: tuple[int, ...],
    *,
    partition_epoch: int = 0,
    min_isr: int = 1,
    flush: str = "os",
    replicas: tuple[int, ...] = (1, 2, 3),
    recovering: bool = False,
) -> PartitionNotice:
    """What the controller says."""
    state = PartitionState(leader, epoch, isr, recovering=recovering, partition_epoch=partition_epoch)
    config = TopicConfig.from_mapping({"min_isr": min_isr, "flush": flush})
    return PartitionNotice(IDENTITY, "t", state, Assignment(replicas), config)


def leading(log: MemoryLog, isr: tuple[int, ...] = (1, 2, 3), *, epoch: int = 5, min_isr: int = 1, flush: str = "os") -> Partition:
    """A partition that leads since 0 ms."""
    partition = partition_of(log)
    assert partition.become(notice(1, epoch, isr, min_isr=min_isr, flush=flush), 0) == 0
    return partition


def fetch(
    partition: Partition,
    replica: int,
    offset: int,
    last: int,
    now_ms: int = 0,
    *,
    epoch: int = 5,
    life: int | None = None,
    flushes: bool = False,
) -> tuple[int, EpochEnd | None]:
    """A follower's fetch."""
    entry = FetchEntry(IDENTITY, epoch, offset, last, 1 << 20, flushes)
    return partition.acknowledge(replica, replica if life is None else life, entry, Contact(), now_ms)


def fetched(epoch: int, offset: int, *records: tuple[str, int], high_watermark: int = 0, **more: int) -> FetchedEntry:
    """A leader's answer, with these (batch, epoch) from `offset` on."""
    slices, at = [], offset
    for text, of in records:
        made = batch(text, at, of)
        slices.append(MemorySlice(at, made.end_offset, made.to_bytes()))
        at = made.end_offset
    return FetchedEntry(IDENTITY, epoch, offset, high_watermark=high_watermark, slices=slices, **more)
