"""How far a producer fills a batch: as far as it is told, and no further than the topic, and the brokers, take it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve
from tests.unit.client.fake import FakeCluster, make

from replog.client import columns
from replog.client.producer import Producer
from replog.config import BrokerConfig
from replog.errors import TopicAuthorizationFailed

MIB = 1 << 20
LIMIT = 10_000
WAYS: dict[str, Callable[[Producer, list[bytes]], object]] = {
    "send": lambda producer, values: [producer.send("t", value) for value in values],
    "send_many": lambda producer, values: producer.send_many("t", values),
    "by key": lambda producer, values: producer.send_many("t", values, keys=[b"k"] * len(values)),
}


def limit_to(cluster: FakeCluster, max_batch_bytes: int) -> None:
    topic_id, config = cluster.topics["t"]
    cluster.topics["t"] = (topic_id, evolve(config, max_batch_bytes=max_batch_bytes))
    cluster.version += 1


def lengths(cluster: FakeCluster) -> list[int]:
    return [batch.length for batch in cluster.partition("t").log]


@pytest.mark.parametrize("linger_ms", [0, 60_000])
@pytest.mark.parametrize("how", WAYS)
def test_a_batch_is_no_larger_than_its_topic_takes(how: str, linger_ms: int) -> None:
    cluster, _, client = make({"t": 1})
    limit_to(cluster, LIMIT)
    values = [random.Random(n).randbytes(100) for n in range(1_000)]
    with client.producer(linger_ms=linger_ms) as producer:
        WAYS[how](producer, values)
    assert cluster.partition("t").values() == values
    assert max(lengths(cluster)) <= LIMIT
    if linger_ms or how != "send":
        assert len(lengths(cluster)) <= 1 + 1_000 // 80  # nor are there more than that needs


@pytest.mark.parametrize("spare", [0, -1])
def test_what_a_record_is_counted_for_is_enough(spare: int) -> None:
    """Cells of more than 64 KiB and times far apart take as much beside what is in them as anything can."""
    cluster, _, client = make({"t": 1})
    key, value, count = b"k" * 65_536, b"v" * 65_536, 16
    limit_to(cluster, columns._FRAME_BYTES + count * (len(key) + len(value) + columns.ROW_BYTES) + spare)
    with client.producer(linger_ms=60_000, batch_bytes=16 * MIB, compression=None) as producer:
        for n in range(count):
            producer.send("t", value, key, timestamp_ms=1 + n * 2**40)
    assert [batch.count for batch in cluster.partition("t").log] == ([count] if spare == 0 else [count - 1, 1])


@pytest.mark.parametrize("how", ["send", "send_many"])
def test_a_limit_that_changes_counts_for_batches_that_are_open(how: str) -> None:
    cluster, _, client = make({"t": 1})
    values = [random.Random(n).randbytes(100) for n in range(1_000)]
    with client.producer(linger_ms=60_000) as producer:
        WAYS[how](producer, values[:50])
        limit_to(cluster, LIMIT)
        client.topics()
        WAYS[how](producer, values[50:500])
        limit_to(cluster, 8 * MIB)
        client.topics()
        WAYS[how](producer, values[500:])
    assert cluster.partition("t").values() == values
    assert max(lengths(cluster)[:-1]) <= LIMIT
    assert lengths(cluster)[-1] > 5 * LIMIT


def test_many_records_join_an_open_batch_only_as_far_as_it_takes_them() -> None:
    cluster, _, client = make({"t": 1})
    limit_to(cluster, LIMIT)
    values = [random.Random(n).randbytes(6_000) for n in range(3)]
    with client.producer(linger_ms=60_000) as producer:
        producer.send("t", values[0])
        producer.send_many("t", values[1:])
    assert cluster.partition("t").values() == values


def test_so_it_is_in_a_queue_that_was_forgotten_meanwhile() -> None:
    cluster, _, client = make({"t": 1})
    limit_to(cluster, LIMIT)
    values = [random.Random(n).randbytes(100) for n in range(1_000)]
    with client.producer(linger_ms=60_000) as producer:
        producer.send("t", b"before").result()
        producer._writer.queues["t", 0].refuse_all(TopicAuthorizationFailed("for a moment"))
        producer.send_many("t", values)
    assert cluster.partition("t").values() == [b"before", *values]
    assert max(lengths(cluster)) <= LIMIT


@pytest.mark.parametrize("how", ["send", "send_many"])
def test_nor_has_it_more_records_than_brokers_take(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    assert BrokerConfig().batch_records_max == columns._RECORDS_MAX
    monkeypatch.setattr(columns, "_RECORDS_MAX", 1_000)
    cluster, _, client = make({"t": 1})
    limit_to(cluster, 60 * MIB)
    with client.producer(linger_ms=60_000, batch_bytes=32 * MIB) as producer:
        WAYS[how](producer, [b""] * 2_500)
    assert [batch.count for batch in cluster.partition("t").log] == [1_000, 1_000, 500]


def test_a_record_that_is_larger_by_itself_goes_alone() -> None:
    cluster, _, client = make({"t": 1})
    limit_to(cluster, 256)  # what is compressed may fit all the same
    with client.producer(linger_ms=60_000) as producer:
        sent: list[Any] = [producer.send("t", b"x" * 1_000) for _ in range(3)]
        assert all(one.done() for one in sent)  # nothing can join it, so it waits for nothing
    assert [one.result().offset for one in sent] == [0, 1, 2]
    assert len(lengths(cluster)) == 3
