"""Under any network, with brokers that stand still: what is acknowledged is stored once, in order, and no failure hides behind it."""

from __future__ import annotations

import random

import pytest
from tests.unit.client.fake import FakeCluster, FakeDriver, make

from replog.errors import ReplogError


def storm(cluster: FakeCluster, driver: FakeDriver, rng: random.Random, partitions: int) -> None:
    """Leaders move, brokers go and come back or stand still, replicas fall short, whenever time passes."""

    def happen() -> None:
        number = rng.randrange(partitions)
        partition = cluster.partition("t", number)
        choice = rng.randrange(10)
        if choice < 3:
            cluster.move("t", number, rng.choice((1, 2, 3, 3, None)))
        elif choice == 3:
            cluster.down = {rng.choice((1, 2, 3))}
        elif choice == 4:
            partition.enough_replicas = False
        elif choice == 5:
            cluster.paused.add(rng.choice((1, 2, 3)))
        elif choice == 6:
            driver.resume()
        else:
            cluster.down.clear()
            partition.enough_replicas = True

    def calm() -> None:
        driver.chaos = 0
        cluster.down.clear()
        driver.resume()
        for number in range(partitions):
            cluster.partition("t", number).enough_replicas = True
            cluster.move("t", number, rng.choice((1, 2, 3)))

    driver.events = [happen if rng.random() < 0.3 else (lambda: None) for _ in range(rng.randrange(150))] + [calm]


@pytest.mark.parametrize("block", range(24))
def test_acknowledged_records_are_there_once_and_in_order(block: int) -> None:
    moved = [run(seed) for seed in range(block * 30, block * 30 + 30)]
    assert any(moved), "no leader that stood still was ever left for another"


def run(seed: int) -> int:
    """Returns how many requests went from a leader that did not answer to a new one."""
    rng = random.Random(seed)
    partitions = rng.choice((1, 1, 3))
    cluster, driver, client = make(
        {"t": partitions},
        seed=seed,
        chaos=rng.choice((0.05, 0.2, 0.4)),
        delivery_timeout_ms=rng.choice((3_000, 20_000, 120_000)),
        request_timeout_ms=rng.choice((500, 3_000, 30_000)),
        unanswered_ms=rng.choice((100, 400, 3_000)),
    )
    for number in range(partitions):
        cluster.partition("t", number).forgetful = seed % 2 == 1
    storm(cluster, driver, rng, partitions)
    producer = client.producer(linger_ms=rng.choice((0, 0, 30)), max_block_ms=600_000)
    sent = []
    for n in range(rng.randrange(5, 60)):
        number = rng.randrange(partitions)
        sent.append((number, b"%d" % n, producer.send("t", b"%d" % n, partition=number)))
        if rng.random() < 0.3:
            driver.pass_time(rng.randrange(400))
    try:
        producer.flush()
    except ReplogError:
        assert any(delivery.exception() is not None for _, _, delivery in sent)
    driver.pass_time(300_000)
    for number in range(partitions):
        stored = cluster.partition("t", number).values()
        mine = [(value, delivery) for where, value, delivery in sent if where == number]
        acknowledged = [value for value, delivery in mine if delivery.exception() is None]
        known = {value for value, _ in mine}
        assert len(stored) == len(set(stored)), f"seed {seed}: stored twice"
        assert set(stored) <= known
        order = [value for value, _ in mine if value in set(stored)]
        assert stored == order, f"seed {seed}: out of order"
        assert set(acknowledged) <= set(stored), f"seed {seed}: acknowledged but not stored"
        for value, delivery in mine:
            if delivery.exception() is None:
                assert stored[delivery.result().offset or 0] == value
    assert producer._writer.buffered == 0
    assert not driver.core._requests
    producer.close()
    return driver.core.moved
