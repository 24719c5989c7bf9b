"""A partition with its log as plain numbers, and back: what it takes to go on from any state that was seen.

A snapshot is a tuple of ints and tuples. It is normal: two copies that can only behave alike have the same one. What is
left out, and why that is right:

- times: one is only ever compared with the lag time, so each becomes 0 (within it) or 1 (longer ago); the pause after a
  refused proposal is over, because nobody says how long the next step takes;
- `Log.generation` and the batches that a log keeps in memory for its followers: a copy that is rebuilt reads its records
  from where they are stored, and every flush token is gone;
- how short a log has been since a checkpoint: nobody writes one here;
- the segments of the log, which retention alone looks at, and its producers, of which there are none;
- what a follower was told of the high watermark, which decides when it tells of a flush: nobody flushes here;
- groups of batches: nobody publishes here;
- how far a replica was when its broker went (`seen_end`): that is told to people, and nothing is decided by it;
- what the broker hangs on a partition (`sessions`): nobody waits between two steps. `waiting` is kept as it is, a tuple.

Nobody is 0 here: brokers are numbered from 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from replog.config import BrokerConfig, TopicConfig
from replog.log.epochs import EpochTable
from replog.log.memory import MemoryLog
from replog.messages import PartitionNotice
from replog.model import Assignment, BrokerInfo, PartitionId, PartitionState
from replog.partition.following import Following
from replog.partition.isr import Committed, IsrState, PendingExpand, PendingShrink
from replog.partition.leading import Leading
from replog.partition.partition import Partition
from replog.partition.replica import NOBODY, Contact, Replica
from replog.records import RecordBatch, encode_records, read_header

__all__ = [
    "COMMITTED",
    "EXPAND",
    "IDENTITY",
    "LIMITS",
    "NOW_MS",
    "SHRINK",
    "TOPIC",
    "Frozen",
    "Setting",
    "body",
    "freeze",
    "freeze_log",
    "freeze_state",
    "slice_of",
    "thaw",
    "thaw_log",
    "thaw_state",
]

Frozen = tuple[Any, ...]
"""Ints, and tuples of such."""

IDENTITY: Final = PartitionId(bytes(16), 0, 0)
TOPIC: Final = "t"
LIMITS: Final = BrokerConfig()
NOW_MS: Final = 10**9
"""When every step happens."""
_LONG_AGO_MS: Final = NOW_MS - LIMITS.replica_lag_ms_max - 1
COMMITTED, EXPAND, SHRINK = range(3)
"""The states of an ISR."""


class Setting:
    """What stays the same in one exploration: who holds a copy, and how many of them must."""

    def __init__(self, replicas: int, min_isr: int, *, piecemeal: bool = False) -> None:
        self.assignment = Assignment(tuple(range(1, replicas + 1)))
        self.config = TopicConfig(min_isr=min_isr)
        self.min_isr = min_isr
        self.answer_bytes = 1 if piecemeal else LIMITS.fetch_partition_bytes_max
        """At most so much in one answer, one batch at least."""

    def notice(self, state: Frozen) -> PartitionNotice:
        """What the controller tells about a stored state."""
        return PartitionNotice(IDENTITY, TOPIC, thaw_state(state), self.assignment, self.config)


# ------------------------------------------------------------------------------------------------------------------ records


@cache
def body(record: int) -> bytes:
    """The batch of one record, as its producer sends it."""
    return encode_records([str(record)], now_ms=0)


@cache
def _batch(offset: int, epoch: int, record: int) -> RecordBatch:
    batch = RecordBatch(body(record))
    batch.stamp(IDENTITY, offset, epoch)
    return batch


_records: Final[dict[int, int]] = {}


def _record(payload_crc: int) -> int:
    """Which record has this checksum."""
    while payload_crc not in _records:
        record = len(_records)
        assert record < 1_000, f"nobody wrote a record with checksum {payload_crc}"
        _records[RecordBatch(body(record)).payload_crc] = record
    return _records[payload_crc]


def entries_of(data: memoryview) -> Frozen:
    """Stored batches as (leader epoch, record) each."""
    found, at = [], 0
    while at < len(data):
        header = read_header(data, at)
        found.append((header.leader_epoch, _record(header.payload_crc)))
        at += header.length
    return tuple(found)


def slice_of(offset: int, entries: Frozen) -> Any:
    """What a leader's log gives its follower: these entries from `offset` on."""
    log = MemoryLog(IDENTITY, start_offset=offset)
    log.append_many([_batch(offset + n, *entry) for n, entry in enumerate(entries)])
    return log.read(offset, log.end_offset, 1 << 20)[0]


# --------------------------------------------------------------------------------------------------------------------- logs


def freeze_log(log: MemoryLog) -> Frozen:
    """(entries, (epoch, start) of its epochs, last epoch, flushed end)."""
    assert log.start_offset == 0, "nothing is trimmed here"
    assert log.epochs.below < 0, "so nothing is known of what was in front of it"
    assert not len(log.producers), "nobody has a producer id here"
    entries = tuple(entry for piece in log.read(0, log.end_offset, 1 << 20) for entry in entries_of(piece.view()))
    return entries, tuple(map(tuple, log.epochs.entries())), log.last_epoch, log.flushed_end


def thaw_log(frozen: Frozen, config: TopicConfig) -> MemoryLog:
    """A log as `freeze_log` saw it."""
    entries, epochs, last_epoch, flushed_end = frozen
    log = MemoryLog(IDENTITY, config)
    log.append_many([_batch(offset, *entry) for offset, entry in enumerate(entries)])
    log.epochs = EpochTable(epochs)
    log.last_epoch = last_epoch
    log.flushed_end = flushed_end
    return log


# ------------------------------------------------------------------------------------------------------------------- states


def freeze_state(state: PartitionState) -> Frozen:
    """(leader, leader epoch, ISR, ELR, last known, recovering, partition epoch); the controller epoch never changes here."""
    assert not state.anew, "no disk is replaced here"
    return (
        state.leader or 0,
        state.leader_epoch,
        state.isr,
        state.elr,
        state.last_known,
        int(state.recovering),
        state.partition_epoch,
    )


@cache
def thaw_state(frozen: Frozen) -> PartitionState:
    """A stored state as `freeze_state` saw it."""
    leader, leader_epoch, isr, elr, last_known, recovering, partition_epoch = frozen
    return PartitionState(leader or None, leader_epoch, isr, elr, last_known, bool(recovering), 1, partition_epoch)


# --------------------------------------------------------------------------------------------------------------- partitions


def freeze(partition: Partition, now_ms: int = NOW_MS) -> Frozen:
    """(leader, leader epoch, partition epoch, in sync, high watermark, following, leading, log, waiting)."""
    assert partition.failed is None, "no disk fails here"
    following, leading, log = partition.following, partition.leading, partition.log
    assert isinstance(log, MemoryLog)
    return (
        partition.leader or 0,
        partition.leader_epoch,
        partition.partition_epoch,
        int(partition.in_sync),
        partition.high_watermark,
        () if following is None else (following.leader or 0, following.leader_epoch, int(following.agrees)),
        () if leading is None else _freeze_leading(leading, now_ms),
        freeze_log(log),
        partition.waiting or (),
    )


def _freeze_leading(leading: Leading, now_ms: int) -> Frozen:
    assert not leading.group_open, "nobody publishes here"
    return (
        leading.leader_epoch,
        leading.partition_epoch,
        leading.epoch_start,
        leading.high_watermark,
        int(leading.recovering),
        leading.effective_min_isr,
        _freeze_isr(leading.isr),
        tuple(_freeze_replica(leading.replicas[b], now_ms) for b in sorted(leading.replicas)),
        tuple(leading.refused.items()),
        leading.eligible,
    )


def _freeze_isr(isr: IsrState) -> Frozen:
    if isinstance(isr, PendingExpand):
        return EXPAND, isr.isr, isr.joining
    if isinstance(isr, PendingShrink):
        return SHRINK, isr.isr, isr.leaving, int(isr.recovered)
    return COMMITTED, isr.isr


def _freeze_replica(replica: Replica, now_ms: int) -> Frozen:
    since = now_ms - LIMITS.replica_lag_ms_max
    return (
        replica.broker_id,
        replica.broker_epoch,
        replica.end_offset,
        replica.position,
        int(replica.caught_up_ms < since),
        int(replica.told_ms < since),
        replica.told_end,
        int(replica.contact.last_fetch_ms < since),
    )


def thaw(frozen: Frozen, broker_id: int, brokers: dict[int, BrokerInfo], setting: Setting) -> Partition:
    """A partition as `freeze` saw it, on a broker that knows these others."""
    leader, leader_epoch, partition_epoch, in_sync, high_watermark, following, leading, log, waiting = frozen
    partition = Partition(
        IDENTITY,
        TOPIC,
        thaw_log(log, setting.config),
        broker_id=broker_id,
        limits=LIMITS,
        brokers=brokers,
        high_watermark=high_watermark,
    )
    partition.high_watermark = high_watermark
    partition.leader = leader or None
    partition.leader_epoch = leader_epoch
    partition.partition_epoch = partition_epoch
    partition.in_sync = bool(in_sync)
    partition.waiting = waiting or None
    if partition_epoch >= 0:
        partition.assignment = setting.assignment
    if following:
        partition.following = Following(following[0] or None, following[1], partition.log, LIMITS)
        partition.following.agrees = bool(following[2])
    if leading:
        partition.leading = _thaw_leading(leading, partition, setting)
    return partition


def _thaw_leading(frozen: Frozen, partition: Partition, setting: Setting) -> Leading:
    leader_epoch, partition_epoch, epoch_start, high_watermark, recovering, effective_min_isr, isr, replicas, refused, eligible = frozen
    leading = Leading.__new__(Leading)  # its constructor begins a leadership: it writes to the log
    leading.leader_id = partition.broker_id
    leading.log = partition.log
    leading.limits = LIMITS
    leading.brokers = partition.brokers
    leading.policy = _policy()
    leading.retry_at_ms = 0
    leading.leader_epoch = leader_epoch
    leading.partition_epoch = partition_epoch
    leading.eligible = eligible
    leading.epoch_start = epoch_start
    leading.group_open = False
    leading.slices = ()
    leading.newest_group = (epoch_start, epoch_start)
    leading.high_watermark = high_watermark
    leading.recovering = bool(recovering)
    leading.assignment = setting.assignment
    leading.config = setting.config
    leading.durable = setting.config.flush == "ack"
    leading.effective_min_isr = effective_min_isr
    leading.replicas = {one[0]: _thaw_replica(one) for one in replicas}
    leading.refused = dict(refused)
    leading._settle(_thaw_isr(isr))
    return leading


@cache
def _policy() -> Any:
    from replog.partition.isr import InSyncCommit

    return InSyncCommit()


def _thaw_isr(frozen: Frozen) -> IsrState:
    if frozen[0] == EXPAND:
        return PendingExpand(frozen[1], frozen[2])
    if frozen[0] == SHRINK:
        return PendingShrink(frozen[1], frozen[2], bool(frozen[3]))
    return Committed(frozen[1])


def _thaw_replica(frozen: Frozen) -> Replica:
    broker_id, broker_epoch, end_offset, position, caught_up_old, fetch_old, fetch_end, contact_old = frozen
    replica = Replica(broker_id, _time(caught_up_old))
    replica.broker_epoch = broker_epoch
    replica.end_offset = end_offset
    replica.position = position
    replica.told_ms = _time(fetch_old)
    replica.told_end = fetch_end
    if not contact_old:
        replica.contact = Contact()
        replica.contact.last_fetch_ms = NOW_MS
    else:
        replica.contact = NOBODY
    return replica


def _time(old: int) -> int:
    return _LONG_AGO_MS if old else NOW_MS


def view_of(brokers: Sequence[Frozen]) -> dict[int, BrokerInfo]:
    """What a broker knows of the others; each is (broker epoch, fenced), or () if it is not known."""
    return {n: BrokerInfo(n, one[0], fenced=bool(one[1])) for n, one in enumerate(brokers, 1) if one}
