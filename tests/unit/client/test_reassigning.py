"""How far moves are is asked of every leader at once: those that are away cost one wait, and nobody else's answer."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.client.fake import FakeCluster, FakeDriver, make

from replog.client.client import Client
from replog.errors import Code
from replog.messages import Admin, AdminAnswer
from replog.model import BrokerInfo

TOPIC_ID = "0" * 31 + "1"
BROKERS = 12


def moving(partition: int, leader: int | None) -> dict[str, Any]:
    """A partition of topic t that moves, as the controller lists it."""
    return {
        "topic": "t", "topic_id": TOPIC_ID, "partition": partition, "creation": 0, "status": "moving", "replicas": [1, 2], "adding": [2],
        "removing": [1], "original": [1], "target": [2], "isr": [1], "leader": leader,
    }  # fmt: skip


@pytest.fixture
def world() -> tuple[FakeCluster, FakeDriver, Client]:
    """A cluster of twelve brokers, each leading one partition that moves."""
    cluster, driver, client = make()
    cluster.brokers = {n: BrokerInfo(n, 10 + n, (f"tcp://host{n}:1",)) for n in range(1, BROKERS + 1)}

    def answer(message: Any, broker: int) -> list[Any] | None:
        if not isinstance(message, Admin):
            return None
        if message.verb == "list_reassignments":
            rows = [moving(n, n) for n in range(1, BROKERS + 1)]
            return [AdminAnswer(message.request, 0, result={"reassignments": rows})]
        ((topic_id, partition, creation),) = message.arguments["partitions"]
        assert partition == broker
        followers = [{"broker": 2, "end_offset": 70, "bytes_behind": 300}]
        told = {"topic_id": topic_id, "partition": partition, "creation": creation, "end_offset": 100, "followers": followers}
        return [AdminAnswer(message.request, 0, result={"partitions": [told]})]

    cluster.override = answer
    client.topics()
    return cluster, driver, client


def test_ten_leaders_that_do_not_answer_cost_one_wait(world: tuple[FakeCluster, FakeDriver, Client]) -> None:
    cluster, driver, client = world
    cluster.paused = set(range(2, BROKERS))
    before_ms = driver.now_ms()
    found = client.reassignments(timeout_s=30)
    assert driver.now_ms() - before_ms <= 5_000
    known = {one.partition: one.progress[0].offsets_behind for one in found}
    assert known == {n: 30 if n in (1, BROKERS) else None for n in range(1, BROKERS + 1)}


def test_all_answer(world: tuple[FakeCluster, FakeDriver, Client]) -> None:
    _, driver, client = world
    before_ms = driver.now_ms()
    assert [one.end_offset for one in client.reassignments()] == [100] * BROKERS
    assert driver.now_ms() == before_ms


def test_a_refusal_leaves_one_out(world: tuple[FakeCluster, FakeDriver, Client]) -> None:
    cluster, _, client = world
    usual = cluster.override
    assert usual is not None

    def answer(message: Any, broker: int) -> list[Any] | None:
        if isinstance(message, Admin) and message.verb == "followers" and broker == 3:
            return [AdminAnswer(message.request, Code.INVALID_REQUEST, "no")]
        return usual(message, broker)

    cluster.override = answer
    assert [one.partition for one in client.reassignments() if one.end_offset is None] == [3]
