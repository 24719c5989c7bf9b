"""Producers that are put back to an image of themselves, and flushes that are heard of late: what runs with them are like."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from tests.simulation.checks.situations import booted

from replog.ports import FlushDone
from replog.testing.simulator.clients import TOPIC
from replog.testing.simulator.node import Node
from replog.testing.simulator.plan import draw
from replog.testing.simulator.running import run

pytestmark = pytest.mark.simulation

SHAPE: dict[str, Any] = {
    "brokers": 3, "replicas": 3, "min_isr": 2, "partitions": 1, "clients": 2, "files": False, "codec": False, "think_ms": 60,
    "drop": 0.0, "slow": 0.0, "delay_ms": 3, "retention_bytes": 0, "retention_ms": 0,
}  # fmt: skip


def test_a_producer_that_was_put_back_has_its_sequences_of_then() -> None:
    world = booted()
    client = world.clients["client", 1]
    writer = client.writer()

    def sequence_of_one_more(writer: Any) -> tuple[int, int]:
        batch = client.begin(TOPIC, 0, client.values(2), writer)
        assert world.run_until(world.now_ms + 5_000, lambda: batch.done)
        return batch.epoch, batch.sequence

    assert sequence_of_one_more(writer) == (0, 0)
    image = client.image(writer)
    assert sequence_of_one_more(writer) == (0, 2)
    restored = client.restored(image)
    assert restored.producer_id == writer.producer_id
    assert sequence_of_one_more(restored) == (0, 2)
    assert [len(one.values) for one in client.acknowledged] == []  # `begin` alone tells nobody
    assert sequence_of_one_more(restored) == (1, 0)


def test_producers_that_nobody_uses_any_more_are_let_go() -> None:
    """Each is looked at when the cluster changes: ten thousand of an hour, kept, took more than a quarter of its time."""
    world = booted()
    client = world.clients["client", 1]
    kept = client.writer()
    for _ in range(20):
        batch = client.begin(TOPIC, 0, client.values(1), client.writer())
        assert world.run_until(world.now_ms + 5_000, lambda batch=batch: batch.done)
    del batch
    world.run_until(world.now_ms + client.core.config.delivery_timeout_ms)
    gc.collect()
    assert list(client.core._writers.values()) == [kept]


def test_nothing_may_be_under_way_in_an_image() -> None:
    world = booted()
    client = world.clients["client", 1]
    writer = client.writer()
    client.begin(TOPIC, 0, client.values(1), writer)
    with pytest.raises(AssertionError, match="under way"):
        client.image(writer)


def test_what_is_refused_to_them_and_what_is_not() -> None:
    outcome = run(2, plan=draw(2, only=("expire",), workloads=("restored",), **SHAPE))
    assert outcome.violation is None
    assert outcome.marks["a producer is put back to an image of it"] >= 500
    assert outcome.marks["a producer that was put back is refused"] >= 300
    assert outcome.marks["an append fails with InvalidRecord"] >= 300


@pytest.mark.parametrize("late_ms", [0, 200])
def test_a_flush_is_heard_of_later_than_it_is_done(late_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the two the log grows, so that there is more of it than what was flushed."""
    heard: list[int] = []
    handle = Node._handle

    def noting(self: Node, address: Any, sender: Any, message: Any) -> None:
        if type(message) is FlushDone:
            log = self.directory.get(message.token.identity)
            heard.append(0 if log is None else log.end_offset - message.token.end)
        handle(self, address, sender, message)

    monkeypatch.setattr(Node, "_handle", noting)
    outcome = run(3, plan=draw(3, only=(), workloads=("append",), flush="ack", flush_heard_ms=late_ms, **SHAPE))
    assert outcome.violation is None
    assert len(heard) >= 500
    assert sum(more >= 5 for more in heard) >= 300 if late_ms else max(heard) < 20
