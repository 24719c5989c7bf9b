"""A replica that was about to join, and will not: whoever waits for the high watermark waits no longer than that (X-07). And brokers that
are gone, or there again: what they have acknowledged counts no more (P-28)."""

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
from replog.partition.replica import UNKNOWN
from replog.records import Record, encode_records
from replog.testing.clock import SeededIds

P = PartitionId(bytes(16), 0, 0)
LAG_MS = 10_000


class Leader:
    """Broker 1 leads for 2, which is in sync, and for 3, whose copy has just failed."""

    def __init__(self) -> None:
        config = BrokerConfig(replica_lag_ms_max=LAG_MS, heartbeat_ms=2_000)
        self.broker = Broker(1, MemoryLogDirectory(), config=config, ids=SeededIds(1))
        self.version = self.requests = 0
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
        message = LeaderAndIsr(2, 1, 1, 3 - len(isr), len(isr) == 3, 3_000, [notice], as_of=3 - len(isr))
        self.broker.receive(("controller", 2), message, now_ms)

    def fetch(self, follower: int, offset: int, now_ms: int, *, life: int | None = None) -> None:
        entry = FetchEntry(P, 0, offset, 0 if offset else -1, 1_000)
        life = follower if life is None else life
        self.requests += 1
        self.broker.receive(follower, Fetch(self.requests, follower, life, 0, 0, 500, 1, 1_000, [entry]), now_ms)

    def position(self, follower: int) -> int:
        """How far a follower counts."""
        leading = self.broker.partitions[P].leading
        assert leading is not None
        return leading.replicas[follower].position

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


# ------------------------------------------------------------------------------------------------- lives of brokers (P-28)


def test_what_a_life_has_acknowledged_ends_with_it() -> None:
    leader = Leader()
    leader.view([], removed=(2,), now_ms=1_020)
    assert (leader.position(2), leader.position(3)) == (UNKNOWN, 0)
    leader.view([BrokerInfo(2, 7)], now_ms=1_030)
    assert leader.position(2) == UNKNOWN
    leader.fetch(2, 1, 1_040, life=7)
    assert leader.position(2) == 1


@pytest.mark.parametrize("seen", ["gone", "never registered", "complete views"])
def test_what_a_broker_acknowledges_while_it_is_not_registered_ends_with_its_next_life(seen: str) -> None:
    """It has not heard that its session is over, or its fetch is late: where it comes back is perhaps another disk."""
    leader = Leader()
    others = [BrokerInfo(1, 1), BrokerInfo(3, 3)]
    if seen == "complete views":
        leader.version = 0
        leader.view(others, now_ms=1_020)
    else:
        leader.view([], removed=(2,), now_ms=1_020)
    leader.fetch(2, 1, 1_030, life=2 if seen == "gone" else 5)
    assert leader.position(2) == 1
    if seen == "complete views":
        leader.version = 0
        leader.view([*others, BrokerInfo(2, 7)], now_ms=1_040)
    else:
        leader.view([BrokerInfo(2, 7)], now_ms=1_040)
    assert leader.position(2) == UNKNOWN


def test_a_broker_that_comes_back_in_one_delta_is_another_life() -> None:
    leader = Leader()
    leader.view([BrokerInfo(2, 7)], now_ms=1_020)
    assert leader.position(2) == UNKNOWN


def test_what_is_ahead_of_the_news_stays() -> None:
    """The next life has fetched before this leader hears that the one before is gone, and that it is there."""
    leader = Leader()
    leader.fetch(2, 1, 1_015, life=7)
    leader.view([], removed=(2,), now_ms=1_020)
    assert leader.position(2) == 1
    leader.view([BrokerInfo(2, 7)], now_ms=1_030)
    assert leader.position(2) == 1


def test_a_life_that_was_not_seen_for_a_while_may_be_heard_again() -> None:
    """The registration could not be read, perhaps: nobody else has its number."""
    leader = Leader()
    leader.view([], removed=(2,), now_ms=1_020)
    leader.view([BrokerInfo(2, 2)], now_ms=1_030)
    leader.fetch(2, 1, 1_040)
    assert leader.position(2) == 1


def test_news_that_change_no_life_and_old_ones_take_nothing_back() -> None:
    leader = Leader()
    leader.view([BrokerInfo(2, 2, draining=True), BrokerInfo(3, 3, fenced=True)], now_ms=1_020)
    leader.version -= 1
    leader.view([], removed=(2, 3), now_ms=1_030)
    assert (leader.position(2), leader.position(3)) == (1, 0)
