"""Copies, ledgers and states made by hand, for situations in which an invariant must speak up, or must not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from attrs import evolve

from replog.config import BrokerConfig, TopicConfig
from replog.log.memory import MemoryLog
from replog.messages import PartitionNotice
from replog.metadata.judgements import Candidate, LossRecord
from replog.model import Assignment, BrokerInfo, PartitionId, PartitionState
from replog.partition.partition import Partition
from replog.records import BatchHeader, Record, RecordBatch, encode_records, read_header
from replog.testing.simulator.forks import part
from replog.testing.simulator.ledger import Copy, Entry, Ledger, Violation
from replog.testing.simulator.liveness import boot
from replog.testing.simulator.plan import draw
from replog.testing.simulator.world import World

__all__ = [
    "LOSS",
    "PID",
    "STATE",
    "UNCLEAN",
    "booted",
    "copy_of",
    "entry",
    "frame",
    "header",
    "holds",
    "ledger",
    "node_with",
    "parted",
    "partition",
    "violates",
]

PID = PartitionId(bytes(16), 0, 0)
STATE = PartitionState(leader=1, leader_epoch=3, isr=(1, 2), controller_epoch=1, partition_epoch=4)
UNCLEAN = evolve(STATE, leader=3, leader_epoch=4, partition_epoch=5, isr=(3,), recovering=True)
"""Of an election that may have lost something; LOSS is its record."""
LOSS = LossRecord("t", "unclean", 3, 4, (Candidate(3, -1, -1),), (1, 2))


def entry(n: int, epoch: int = 3) -> Entry:
    """What stands for one record."""
    return Entry(epoch, n, n, 7, 0, n)


def ledger(end: int = 3) -> Ledger:
    """So many committed records; broker 1 leads, 2 is in sync, 3 is not."""
    made = Ledger(PID)
    made.entries = [entry(n) for n in range(end)]
    made.state, made.replicas, made.min_isr = STATE, (1, 2, 3), 2
    return made


def copy_of(broker: int, entries: list[Entry], *, first: int = 0) -> Copy:
    """The mirror of a live copy."""
    made = Copy(broker)
    made.entries, made.first, made.life = entries, first, 1
    return made


def parted(held: int = 1, end: int = 3) -> tuple[Ledger, dict[int, Copy]]:
    """Broker 3, which holds less than is committed, was elected uncleanly; it goes on in epoch 4."""
    book = ledger(end)
    copies = {broker: copy_of(broker, [entry(n) for n in range(end)]) for broker in (1, 2)}
    copies[3] = copy_of(3, [entry(n) for n in range(held)])
    for copy in copies.values():
        copy.mismatch(book, book.end)
    book.state, book.loss = UNCLEAN, LOSS
    part(book, copies[3], copies.values())
    return book, copies


def partition(broker: int = 1, values: int = 3, log: MemoryLog | None = None) -> Partition:
    """A copy that leads (broker 1) or follows, with records of a producer that has no id."""
    brokers = {n: BrokerInfo(n, broker_epoch=n) for n in (1, 2, 3)}
    made = Partition(PID, "t", MemoryLog(PID) if log is None else log, broker_id=broker, limits=BrokerConfig(), brokers=brokers)
    assert made.become(PartitionNotice(PID, "t", STATE, Assignment((1, 2, 3)), TopicConfig(min_isr=2)), now_ms=0) == 0
    if values and made.leading is not None:
        made.append(RecordBatch(encode_records([Record(b"x")] * values, now_ms=0)), -1, 0)
    return made


def node_with(one: Partition | None, broker_id: int = 1, life: int = 1) -> Any:
    """As much of a node as rules about messages look at."""
    partitions = {} if one is None else {one.identity: one}
    directory = SimpleNamespace(get=lambda identity: partitions.get(identity) and partitions[identity].log)
    return SimpleNamespace(broker_id=broker_id, life=life, broker=SimpleNamespace(partitions=partitions), directory=directory)


def frame(base: int, epoch: int, identity: PartitionId = PID, value: bytes = b"x", now_ms: int = 0) -> memoryview:
    """One stored batch of one record."""
    batch = RecordBatch(encode_records([Record(value)], now_ms=now_ms))
    batch.stamp(identity, base, epoch)
    return memoryview(batch.front + bytes(batch.body))


def header(base: int, epoch: int, **made: Any) -> BatchHeader:
    """What such a batch says of itself."""
    return read_header(frame(base, epoch, **made))


def booted(**shape: Any) -> World:
    """A whole cluster, in order. Nothing is removed by age unless it is asked for."""
    shape = {"retention_ms": 0, "files": False, **shape}
    world = World(draw(1, brokers=3, replicas=3, min_isr=2, partitions=1, **shape))
    boot(world)
    return world


def violates(name: str, call: Any, *args: Any, **named: Any) -> None:
    """The call raises a violation of this invariant."""
    with pytest.raises(Violation) as caught:
        call(*args, **named)
    assert caught.value.invariant == name


def holds(call: Any, *args: Any, **named: Any) -> None:
    """The harmless twin: it raises nothing."""
    call(*args, **named)
