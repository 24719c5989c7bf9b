"""A replica that was about to join, and will not: whoever waits for the high watermark waits no longer than that (X-07)."""

from __future__ import annotations

import pytest

from replog.broker.broker import Broker
from replog.config import BrokerConfig, TopicConfig
from replog.log.memory import MemoryLogDirectory
from replog.messages import (
    ClusterView,
    Fetch,
    FetchEntry,
    LeaderAndIsr,
    PartitionNotice,
    Produce,
    Produced,
    ProducedEntry,
    ProduceEntry,
    Registered,
    UpdateMetadata,
)
from replog.model import ACKS_ALL, Assignment, BrokerInfo, PartitionId, PartitionState
from replog.records import Record, encode_records
from replog.testing.clock import SeededIds

P = PartitionId(bytes(16), 0, 0)
LAG_MS = 10_000


class Leader:
    """Broker 1 leads for 2, which is in sync, and for 3, whose copy has just failed."""

    def __init__(self) -> None:
        config = BrokerConfig(replica_lag_ms_max=LAG_MS, heartbeat_ms=2_000)
        self.broker = Broker(1, MemoryLogDirectory(), config=config, ids=SeededIds(1))
        self.version = 0
        self.broker.receive(1, Registered(1, 1), 0)
        self.view([BrokerInfo(n, n) for n in (1, 2, 3)], now_ms=0)
        self.state((1, 2, 3), 0)
        leading = self.broker.partitions[P].leading
        assert leading is not None
        leading.retry_at_ms = 1 << 40  # a proposal was refused: none is made now that would decide it
        for follower in (2, 3):
            self.fetch(follower, 0, 0)
        self.tick(1_000)
        body = encode_records([Record("x")], now_ms=0)
        self.broker.receive("client", Produce(ACKS_ALL, 120_000, [ProduceEntry(7, P, body)]), 1_000)
        self.fetch(2, 1, 1_000)
        self.state((1, 2), 1_010)
        self.tick(1_010)
        assert self.acknowledged() == []

    def view(self, brokers: list[BrokerInfo], *, removed: tuple[int, ...] = (), now_ms: int) -> None:
        since, self.version = self.version if self.version else -1, self.version + 1
        view = ClusterView(1, self.version, since, 2, brokers, [], removed_brokers=list(removed))
        self.broker.receive(("controller", 2), UpdateMetadata(2, 1, 1, view), now_ms)

    def state(self, isr: tuple[int, ...], now_ms: int) -> None:
        state = PartitionState(1, 0, isr, partition_epoch=3 - len(isr))
        notice = PartitionNotice(P, "t", state, Assignment((1, 2, 3)), TopicConfig(min_isr=2))
        message = LeaderAndIsr(2, 1, 1, 3 - len(isr), len(isr) == 3, 3_000, [notice])
        self.broker.receive(("controller", 2), message, now_ms)

    def fetch(self, follower: int, offset: int, now_ms: int) -> None:
        entry = FetchEntry(P, 0, offset, 0 if offset else -1, 1_000)
        self.broker.receive(follower, Fetch(offset + 1, follower, follower, 0, 0, 500, 1, 1_000, [entry]), now_ms)

    def tick(self, now_ms: int) -> None:
        self.broker.tick(now_ms, now_ms)

    def acknowledged(self) -> list[ProducedEntry]:
        said, self.broker.outbox.messages[:] = list(self.broker.outbox.messages), []
        return [entry for _, message in said if isinstance(message, Produced) for entry in message.entries]


def test_the_time_of_it_has_passed() -> None:
    leader = Leader()
    for at in range(2_000, LAG_MS + 1, 500):
        leader.tick(at)
        assert leader.acknowledged() == [], at
    leader.tick(LAG_MS + 2_000)  # with the next heartbeat, not with the next look at who lags
    assert [(entry.request, entry.error, entry.base_offset) for entry in leader.acknowledged()] == [(7, 0, 0)]


@pytest.mark.parametrize(
    ("brokers", "removed"),
    [([], (3,)), ([BrokerInfo(3, 3, fenced=True)], ()), ([BrokerInfo(3, 3, draining=True)], ()), ([BrokerInfo(3, 4)], ())],
    ids=["gone", "fenced", "draining", "restarted"],
)
def test_its_broker_is_not_there_any_more(brokers: list[BrokerInfo], removed: tuple[int, ...]) -> None:
    """The notice that it is out of the ISR comes first, then the view that says why."""
    leader = Leader()
    leader.view(brokers, removed=removed, now_ms=1_020)
    assert [(entry.request, entry.error, entry.base_offset) for entry in leader.acknowledged()] == [(7, 0, 0)]
