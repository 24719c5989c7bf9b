"""acks=1, where every failover may lose records and bring old ones back: whatever a leader's log holds, it holds once and in order."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.unit.client.fake import CLIENT, FakeCluster, FakeDriver, make

from replog.errors import Code, ReplogError
from replog.messages import Disconnected, Produce, Produced, ProducedEntry
from replog.records import RecordBatch, decode_records

BROKERS = (1, 2, 3)


class Logs:
    """A log per broker. Who leads has its own; who follows has a part of what the leader had, or still what it had when it led."""

    def __init__(self, cluster: FakeCluster, rng: random.Random) -> None:
        self._partition = cluster.partition("t")
        self._cluster = cluster
        self._rng = rng
        self._logs: dict[int, list[RecordBatch]] = {broker: [] for broker in BROKERS}
        self._logs[1] = self._partition.log

    def follow(self) -> None:
        """Some broker gets what the leader has, perhaps not all of it: what it had besides is cut."""
        log = self._partition.log
        broker = self._rng.choice(BROKERS)
        if broker != self._partition.leader:
            self._logs[broker] = log[: len(log) - self._rng.choice((0, 0, 1, 3))] if log else []

    def elect(self) -> None:
        """Somebody leads, with what it has."""
        leader = self._rng.choice(BROKERS)
        self._partition.log = self._logs[leader]
        self._cluster.move("t", 0, leader)

    def check(self, sent: list[bytes]) -> None:
        for log in self._logs.values():
            values = [record.value for batch in log for record in decode_records(batch)]
            assert len(values) == len(set(values)), "stored twice"
            assert values == [value for value in sent if value in set(values)], "out of order"


def happen(logs: Logs, driver: FakeDriver, rng: random.Random) -> None:
    """One thing that goes wrong, or right."""
    choice = rng.randrange(8)
    if choice < 3:
        logs.follow()
    elif choice < 5:
        logs.elect()
        if rng.random() < 0.5:
            driver.core.refresh(driver.now_ms())
    elif choice == 5:
        driver.core.receive(None, Disconnected(rng.choice(BROKERS)), driver.now_ms())


@pytest.mark.parametrize("block", range(10))
def test_nothing_is_stored_twice_or_out_of_order_in_any_log(block: int) -> None:
    outcomes = [run(seed) for seed in range(block * 40, block * 40 + 40)]
    assert any(failed for failed, _ in outcomes)
    assert any(epoch for _, epoch in outcomes), "no producer had to begin again"


def run(seed: int) -> tuple[int, int]:
    """(how many batches failed, how often the producer began again)."""
    rng = random.Random(seed)
    cluster, driver, client = make({"t": 1}, seed=seed, request_timeout_ms=500, delivery_timeout_ms=rng.choice((4_000, 60_000)))
    cluster.partition("t").forgetful = rng.random() < 0.7
    logs = Logs(cluster, rng)
    client.topics()
    loss = rng.choice((0.0, 0.05, 0.2))

    def lose(to: Any, message: Any) -> bool:
        if isinstance(message, Produce) and to != CLIENT:
            message.entries[:] = [entry for entry in message.entries if rng.random() >= loss]
            return not message.entries
        return isinstance(message, Produced) and rng.random() < loss

    def refuse(message: Any, broker: int) -> list[Any] | None:
        """A batch here and there, for this time or for good; answers come in any order."""
        if not isinstance(message, Produce):
            return None
        answers = []
        for entry in message.entries:
            code = 0 if rng.random() < 0.9 else rng.choice((Code.QUOTA_EXCEEDED, Code.QUOTA_EXCEEDED, Code.INVALID_RECORD))
            answers.append(ProducedEntry(entry.request, code) if code else cluster._produced(broker, 1, entry))
        rng.shuffle(answers)
        return [Produced([answer]) for answer in answers]

    driver.filter, cluster.override = lose, refuse
    producer = client.producer(acks=1, batch_bytes=64)
    sent: list[bytes] = []
    deliveries = []
    for n in range(rng.randrange(10, 60)):
        sent.append(b"%040d" % n)
        deliveries.append(producer.send("t", sent[-1], partition=0))
        if rng.random() < 0.4:
            happen(logs, driver, rng)
            driver.pass_time(rng.randrange(1_500))
            logs.check(sent)
    try:
        producer.flush()
    except ReplogError:
        assert any(delivery.exception() is not None for delivery in deliveries)
    logs.check(sent)
    assert producer._writer.buffered == 0
    assert not driver.core._requests
    epoch = producer._writer.queue("t", 0).epoch
    producer.close()
    return sum(delivery.exception() is not None for delivery in deliveries), epoch
