"""The end of a poll in which nothing has become due: each acknowledgement passes through several of them."""

from __future__ import annotations

import pytest
from tests.calling import called

from replog.broker.broker import Broker
from replog.config import BrokerConfig, TopicConfig
from replog.log.memory import MemoryLogDirectory
from replog.messages import LeaderAndIsr, PartitionNotice, Registered
from replog.model import Assignment, PartitionId, PartitionState
from replog.testing.clock import SeededIds

P = PartitionId(bytes(16), 0, 0)
QUIET = BrokerConfig(heartbeat_ms=60_000)


@pytest.mark.parametrize("flush", ["os", "ack", "interval"])
def test_a_tick_looks_only_at_what_is_due(flush: str) -> None:
    broker = Broker(1, MemoryLogDirectory(), config=QUIET, ids=SeededIds(1))
    broker.receive("membership", Registered(1, 1), 0)
    state, assignment = PartitionState(1, 1, (1,)), Assignment((1,))
    notice = PartitionNotice(P, "t", state, assignment, TopicConfig(min_isr=1, flush=flush))
    broker.receive(("controller", 1), LeaderAndIsr(1, 1, 1, 0, True, 60_000, [notice], as_of=0), 0)
    broker.tick(0, 0)
    names = called(lambda: broker.tick(1, 1))
    assert names == ["Broker.tick", "Upkeep.told", "Parked.has_told"]
    assert called(broker.deadline_ms) == ["Broker.deadline_ms", "Upkeep.deadline_ms"]
    assert broker.deadline_ms() == 100, "what waits is swept"
