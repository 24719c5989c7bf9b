"""Checks of one step each, for bugs whose effect is hard to bring about or stands behind a second defence."""

from __future__ import annotations

from errno import EIO

import pytest
from tests.unit.partition.copies import IDENTITY, leading, log_of

from replog.broker.broker import Broker
from replog.config import BrokerConfig, TopicConfig
from replog.errors import Code
from replog.log.directory import FileLogDirectory
from replog.log.memory import MemoryLogDirectory
from replog.messages import LeaderAndIsr, PartitionNotice, Registered, StopEntry, StopReplica
from replog.model import ACKS_LEADER, Assignment, PartitionState
from replog.ports import LogStart
from replog.records import RecordBatch, encode_records
from replog.testing.clock import SeededIds
from replog.testing.disk import FaultyFs, MemoryFs
from replog.testing.log_contract import append


def test_a_failed_flush_is_not_repeated() -> None:
    """After a failed fsync the pages count as clean: a second one succeeds, and proves nothing."""
    fsyncs: list[str] = []

    def fail_the_first(operation: str, path: str) -> int | None:
        if operation == "fsync" and path.endswith(".log"):
            fsyncs.append(path)
            if len(fsyncs) == 1:
                raise OSError(EIO, "injected", path)
        return None

    directory = FileLogDirectory("/d", fs=FaultyFs(MemoryFs(), fail_the_first))
    (log,) = directory.create([LogStart(IDENTITY, "t", TopicConfig())])
    append(log, 1)
    token = log.flush()
    assert token is not None
    assert token.run().error is not None
    assert len(fsyncs) == 1


def test_other_records_under_a_used_sequence_are_refused() -> None:
    """A repetition has the same bytes."""
    partition = leading(log_of())

    def send(text: str) -> int:
        batch = RecordBatch(encode_records([text], now_ms=0, producer_id=7, producer_epoch=0, base_sequence=0))
        return partition.append(batch, ACKS_LEADER, 0).error

    assert send("a") == Code.NONE
    assert send("a") == Code.NONE
    assert send("b") == Code.INVALID_RECORD


@pytest.mark.parametrize(("epoch", "stays"), [(7, True), (8, False)])
def test_a_stop_of_an_older_leader_epoch_leaves_the_copy(epoch: int, stays: bool) -> None:
    """Also if its number says nothing: no controller numbers a stop after a notice of a newer epoch (P-69)."""
    directory = MemoryLogDirectory(limits=BrokerConfig(), directory_id="d" * 32)
    broker = Broker(1, directory, config=BrokerConfig(), ids=SeededIds(1))
    notice = PartitionNotice(IDENTITY, "t", PartitionState(1, 8, (1,)), Assignment((1,)), TopicConfig(min_isr=1))
    for message in (
        Registered(1, 1),
        LeaderAndIsr(1, 1, 1, 0, True, 1_000, [notice], as_of=0),
        StopReplica(1, 1, 1, 1, [StopEntry(IDENTITY, epoch, True)], as_of=1),
    ):
        broker.receive(("controller", 1), message, 1)
    assert (IDENTITY in broker.partitions, directory.get(IDENTITY) is not None) == (stays, stays)
