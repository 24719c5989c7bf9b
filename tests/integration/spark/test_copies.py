"""Reads from several brokers: a leader that dies under a task, and a copy nearby that serves in the leader's place."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.spark.reading import batch, rows

import replog
from replog.errors import UndecodableBatch
from replog.records import BatchReader, RecordBatch, encode_records
from replog.spark import arrow
from replog.spark.connections import close_clients
from replog.spark.fetching import RangeFetchOp

T = {"subscribe": "t", "replog.fetch.bytes": 1_024}


@pytest.fixture
def cluster() -> Iterator[replog.Cluster]:
    """Two brokers, and a third one in rack r; each has topic t, which broker 1 leads: forty batches, about two to a fetch."""
    with replog.Cluster(brokers=2, listen="tcp://127.0.0.1:0") as cluster:
        assert cluster.add_broker(rack="r") == 3
        cluster.create_topic("t", assignment={0: [1, 2, 3]}, min_isr=2)
        for n in range(40):
            cluster.append("t", 0, [random.Random(n).randbytes(500)])
        cluster.wait_until_in_sync(timeout_s=30)
        yield cluster
        close_clients()


def test_a_leader_that_dies_under_a_task(cluster: replog.Cluster, servers: str) -> None:
    reader = batch(servers, **T)
    (task,) = reader.partitions()
    found: list[int] = []
    for number, arrow_batch in enumerate(reader.read(task)):
        found += arrow_batch.column("offset").to_pylist()
        if number == 3:
            cluster.kill_broker(1)
    assert found == list(range(40))


@pytest.mark.parametrize(("rack", "is_near"), [("r", True), ("elsewhere", False)])
def test_a_copy_nearby(cluster: replog.Cluster, servers: str, monkeypatch: pytest.MonkeyPatch, rack: str, is_near: bool) -> None:
    """In-sync followers serve what they know to be committed."""
    served: list[bool] = []
    checked = RangeFetchOp._checked

    def noted(op: RangeFetchOp, entry: Any, leader_epoch: int) -> Any:
        served.append(op._near is not None)
        return checked(op, entry, leader_epoch)

    monkeypatch.setattr(RangeFetchOp, "_checked", noted)
    reader = batch(servers, rack=rack, **T)
    assert [offset for _, offset, _ in rows(reader, reader.partitions())] == list(range(40))
    assert len(served) > 10
    assert set(served) == {is_near}


def test_a_batch_that_its_writer_has_sealed_wrongly(cluster: replog.Cluster, servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its checksum is right: nothing on the way has damaged it, and asking again does not help."""

    class Strange(arrow._Columns):
        def arrow_values(self) -> Any:
            body = bytearray(encode_records([b"x"], now_ms=1))
            body[4] |= 5 << 3  # a payload format that nobody knows
            return BatchReader(RecordBatch(bytes(body)))

    monkeypatch.setattr(arrow, "_Columns", Strange)
    reader = batch(servers, **T)
    says = r"t-0: the batch of offsets 0 to \d+ is stored as it was sent, and cannot be decoded \(payload format 5; this library reads 0\)"
    with pytest.raises(UndecodableBatch, match=says):
        rows(reader, reader.partitions())
