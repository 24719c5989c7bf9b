"""Spark has no rows for a task for longer than a batch may be on its way. What was sent is answered meanwhile, and nobody listens."""

from __future__ import annotations

from select import EPOLLIN
from typing import Any

import pytest

import replog
from replog.spark.cells import Cells, Placed, packed
from replog.spark.connections import Connection
from replog.spark.delivery import GUARANTEES, Attempt
from replog.spark.guarantees import delivery_of

CELLS = packed([bytes(9_000)])
ROW = Placed("t", 0, Cells(1, len(CELLS), CELLS))


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_what_is_answered_while_there_are_no_rows_is_not_late(
    cluster: replog.Cluster, servers: str, monkeypatch: pytest.MonkeyPatch, guarantee: Any, more: int
) -> None:
    """The buffer is full, so that the next row waits; without one, the end of the task does."""
    cluster.create_topic("t")
    client = Connection.of(servers, {"buffer_bytes": 17_000, "delivery_timeout_ms": 120_000}).client()
    assert client.partitions_for("t") == [0]
    delivery = delivery_of(guarantee, acks=-1, compression=None, batch_bytes=9_000)
    first = delivery.begin(client, Attempt("job", 0, 0, 0))  # opens the connection
    first.add(ROW)
    delivery.commit(client, [first.finish()], 0)
    sink = delivery.begin(client, Attempt("job", 1, 0, 1))
    sink.add(ROW)
    driver: Any = client._driver
    assert [mask for _, mask in driver._transport.wait(10)] == [EPOLLIN], "the answer has arrived"
    now_ms = driver.now_ms
    monkeypatch.setattr(driver, "now_ms", lambda: now_ms() + 130_000)
    for _ in range(more):
        sink.add(ROW)
    delivery.commit(client, [sink.finish()], 1)
    assert len(list(cluster.read("t"))) == 2 + more
