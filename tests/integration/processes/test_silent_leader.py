"""A leader's process stands still: nobody hangs up, and yet clients are at the new leader long before their requests time out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.processes.lives import ALL, PATIENT_MS, Life, others
from tests.integration.processes.onlooker import stand_still

import replog
from replog.testing.eventually import eventually

pytestmark = pytest.mark.processes

BROKER = {"session_ms": 2_000, "heartbeat_ms": 200, "retry_backoff_ms_max": 200, "replica_lag_ms_max": 4_000}
CLIENT = {"request_timeout_ms": PATIENT_MS, "delivery_timeout_ms": PATIENT_MS, "unanswered_ms": 500}
"""Whoever waits for a request to time out waits for longer than a test may take."""


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    one = Life(tmp_path, BROKER)
    try:
        yield one
    finally:
        one.close()


@pytest.mark.parametrize("seated", [True, False])
@pytest.mark.parametrize("idempotent", [True, False])
def test_clients_go_on_at_the_new_leader(life: Life, seated: bool, idempotent: bool) -> None:
    """`seated`: the leader is the controller as well, or not. Without sequences nothing is under way at the moment of the stop."""
    controller = life.store.controller().broker_id
    leader = controller if seated else others(controller)[0]
    topic = life.topic(leader, *others(leader))
    expected = ["m0"]

    def connect() -> replog.Client:
        return replog.connect([one.endpoint for one in life.processes.values()], config=CLIENT)

    with connect() as writing, connect() as reading, connect() as asking:
        producer = writing.producer(batch_bytes=64, idempotent=idempotent)
        consumer = reading.consumer(topic, start="earliest")
        found: list[Any] = []
        sent: list[replog.Delivery] = []

        def send(count: int) -> None:
            for _ in range(count):
                value = f"m{len(expected)}"
                expected.append(value)
                sent.append(producer.send(topic, value.ljust(40, ".")))

        def has_read_all() -> bool:
            found.extend(consumer.poll())
            return len(found) >= len(expected)

        send(20)
        producer.flush()
        eventually(has_read_all)
        assert asking.offset(topic, 0, "latest") == len(expected)
        if idempotent:
            send(10)  # some of these may be stored and not yet acknowledged
        stand_still(life.processes[leader], life.store)
        send(10)
        consumer.poll()
        assert asking.offset(topic, 0, "latest", timeout_s=60) > 20
        eventually(lambda: all(delivery.done() for delivery in sent))
        eventually(has_read_all)
        assert life.store.state(topic).leader in others(leader)
        assert asking.leader(topic, 0) in others(leader)
        life.processes[leader].resume()
        life.in_sync(topic, ALL)  # what it was sent while it stood still, it has looked at
        send(10)
        producer.flush()
        eventually(has_read_all)
        assert [delivery.result(0).offset for delivery in sent] == list(range(1, len(expected)))
        assert [record.text().rstrip(".") for record in found] == expected
        assert consumer.poll(timeout_s=0) == []
    life.all_hold(topic, "m0", *(value.ljust(40, ".") for value in expected[1:]))
