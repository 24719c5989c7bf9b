"""When a broker flushes a topic that is altered, seen from its driver."""

from __future__ import annotations

from typing import Any

from replog.broker.broker import Broker
from replog.config import BrokerConfig, TopicConfig
from replog.log.memory import MemoryLogDirectory
from replog.messages import LeaderAndIsr, PartitionNotice, Produce, ProduceEntry, Registered
from replog.model import Assignment, PartitionId, PartitionState
from replog.records import encode_records
from replog.testing.clock import SeededIds

P = PartitionId(bytes(16), 0, 0)


def notice(number: int, interval_ms: int) -> LeaderAndIsr:
    config = TopicConfig(min_isr=1, flush="interval", flush_interval_ms=interval_ms)
    led = PartitionNotice(P, "t", PartitionState(1, 0, (1,)), Assignment((1,)), config)
    return LeaderAndIsr(1, 1, 1, number, number == 0, 1_000, [led], as_of=number)


def test_a_shorter_interval_counts_at_once() -> None:
    """Also for a record that was appended under the longer one."""
    broker = Broker(1, MemoryLogDirectory(), config=BrokerConfig(), ids=SeededIds(1))

    def tell(message: Any, now_ms: int) -> None:
        broker.receive("somebody", message, now_ms)
        broker.tick(now_ms, now_ms)

    tell(Registered(1, 1), 0)
    tell(notice(0, 3_600_000), 0)
    tell(Produce(-1, 1_000, [ProduceEntry(1, P, encode_records(["x"], now_ms=0))]), 0)
    tell(notice(1, 150), 10)
    broker.tick(110, 110)
    assert broker.outbox.flushes == []
    assert broker.deadline_ms() == 160
    broker.tick(160, 160)
    assert [token.identity for token in broker.outbox.flushes] == [P]
