"""Topics that are made because clients in other processes seek them: over TCP, through whichever broker is asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.processes.lives import ALL, Life
from tests.threads import in_thread

import replog
from replog.errors import PolicyViolation
from replog.testing.eventually import eventually


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    config = {
        "session_ms": 4_000,
        "auto_create_topics": True,
        "auto_create_partitions": 2,
        "auto_create_replication_factor": 3,
        "auto_create_topics_max": 3,
    }
    life = Life(tmp_path, config)
    yield life
    life.close()


def test_clients_of_each_broker_seek_one_topic(life: Life) -> None:
    eventually(lambda: [b.broker_id for b in life.client.describe_cluster().brokers if not b.fenced] == list(ALL))

    def write(broker_id: int) -> int | None:
        with replog.connect(life.processes[broker_id].endpoint) as client, client.producer() as producer:
            return producer.send("t", f"{broker_id}", partition=None, key="one").result(timeout_s=60).offset

    running = [in_thread(lambda broker_id=broker_id: write(broker_id)) for broker_id in ALL]
    for thread, _ in running:
        thread.join()
    assert sorted(outcome[0] for _, outcome in running) == [0, 1, 2]  # one topic, one log
    described = life.client.describe("t")
    assert [(p.partition, len(p.replicas)) for p in described.partitions] == [(0, 3), (1, 3)]
    assert sorted(r.text() for r in life.client.read("t")) == ["1", "2", "3"]

    assert list(life.client.read("u")) == []
    life.client.append("v", 1, ["x"])
    with pytest.raises(PolicyViolation, match=r"the limit is 3 \(auto_create_topics_max\)"):
        life.client.append("w", 0, ["x"])
    life.client.create_topic("w", replication_factor=1)  # by hand there may be more
    assert life.client.topics() == ["t", "u", "v", "w"]
