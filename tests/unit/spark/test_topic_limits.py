"""Many rows that together are more than one batch of their topic may be: each batch takes what it can."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

import replog
from replog.errors import MessageTooLarge
from replog.spark import PartitionWriter
from replog.spark.cells import Cells, Placed, packed
from replog.spark.columns import check_written_schema
from replog.spark.connections import close_clients
from replog.spark.delivery import GUARANTEES, Attempt, Guarantee
from replog.spark.guarantees import delivery_of
from replog.spark.options import WriteOptions
from replog.spark.task_writing import delivery_for, write_task

LIMIT = 100_000


@pytest.fixture
def cluster() -> Iterator[replog.Cluster]:
    with replog.Cluster(brokers=1, listen="tcp://127.0.0.1:0") as cluster:
        cluster.create_topic("t", partitions=2, max_batch_bytes=LIMIT)
        yield cluster
        close_clients()


def rows(count: int, size: int) -> list[tuple[bytes, bytes]]:
    """Key and value that do not compress."""
    made = random.Random(2)
    return [(b"%d" % n, made.randbytes(size)) for n in range(count)]


def written(cluster: replog.Cluster) -> list[tuple[Any, Any]]:
    return sorted((record.key, record.value) for record in cluster.read("t"))


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
@pytest.mark.parametrize("keys", [True, False])
@pytest.mark.parametrize(("count", "size"), [(300, 1_000), (20, 60_000), (10_000, 20)])
def test_rows_of_python(cluster: replog.Cluster, guarantee: Any, keys: bool, count: int, size: int) -> None:
    given = rows(count, size)
    how: dict[str, Any] = {"key": 0} if keys else {}
    PartitionWriter("t", bootstrap=cluster.endpoints, value=1, headers=lambda row: [("h", row[0])], guarantee=guarantee, **how)(given)
    assert written(cluster) == sorted(given if keys else [(None, value) for _, value in given])


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize(("count", "size"), [(300, 1_000), (20, 60_000), (10_000, 20)])
def test_rows_of_arrow(cluster: replog.Cluster, guarantee: str, count: int, size: int) -> None:
    given = rows(count, size)
    servers = ",".join(cluster.endpoints)
    options = WriteOptions.parse({"replog.bootstrap.servers": servers, "topic": "t", "deliveryGuarantee": guarantee})
    columns = check_written_schema(StructType([StructField("key", BinaryType()), StructField("value", BinaryType())]), has_topic=True)
    batch = pa.record_batch({"key": [key for key, _ in given], "value": [value for _, value in given]})
    message = write_task(options, columns, Attempt("job", 0, 0, 0), [batch])
    delivery_for(options).commit(cluster, [message.written], 0)
    assert written(cluster) == sorted(given)


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_a_row_that_no_batch_holds(cluster: replog.Cluster, guarantee: Any) -> None:
    writer = PartitionWriter("t", bootstrap=cluster.endpoints, value=1, guarantee=guarantee)
    with pytest.raises(MessageTooLarge, match="max_batch_bytes"):
        writer(rows(3, LIMIT))


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("first", [{}, {"keys": packed([b"k"] * 100)}, {"headers": packed([b""] * 100)}])
def test_columns_that_only_some_rows_have(cluster: replog.Cluster, guarantee: Guarantee, first: dict[str, Any]) -> None:
    """Each of the others gets a nil there, which counts: rows of few bytes would be too large a batch by a third."""
    values = packed([b"x"] * 100)
    others: list[dict[str, Any]] = [{}, {"keys": packed([b"k"] * 100), "headers": packed([b""] * 100)}]
    delivery = delivery_of(guarantee, acks=-1, compression=None, batch_bytes=1 << 20)
    sink = delivery.begin(cluster, Attempt("job", 0, 0, 0))
    for columns in [first] * 250 + [others[n % 2] for n in range(250)]:
        sink.add(Placed("t", 0, Cells(100, len(values) + sum(map(len, columns.values())), values, **columns)))
    delivery.commit(cluster, [sink.finish()], 0)
    assert len(list(cluster.read("t"))) == 50_000
