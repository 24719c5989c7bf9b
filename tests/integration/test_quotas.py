"""Brokers with quotas: clients are slower, and everything arrives, once and in order."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import replog
from replog.errors import Unavailable, UsageError

SIZE = 10_000
RECORDS = 150
MANY = [random.Random(number).randbytes(SIZE) for number in range(RECORDS)]
"""Nothing makes them smaller."""
QUOTAS = replog.Quotas(produce_bytes_per_s=1_000_000, fetch_bytes_per_s=1_000_000, burst_ms=0)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[replog.Broker]:
    config = {"session_ms": 2_000, "heartbeat_ms": 200}
    with replog.Broker(1, listen="tcp://127.0.0.1:0", data=None, store=f"file://{tmp_path}/s.db", config=config, quotas=QUOTAS) as broker:
        yield broker.wait_until_ready()


def throttled_s(measured: Any, request: str) -> float:
    found: float = measured.metrics().value("replog_client_throttle_seconds_total", request=request)
    return found


def test_a_writer_and_a_reader_over_their_quotas_miss_nothing(broker: replog.Broker) -> None:
    with replog.connect(broker.endpoint, config={"fetch_bytes": 500_000, "batch_bytes": 100_000}) as client:
        client.create_topic("t", partitions=2)
        with client.producer() as producer:
            for number in range(RECORDS):
                producer.send("t", b"%d " % number + MANY[number], partition=number % 2)
        assert throttled_s(broker, "produce") > 0
        found = [int(record.value.partition(b" ")[0]) for record in client.read("t")]
    assert sorted(found) == list(range(RECORDS))
    for partition in range(2):
        assert [each for each in found if each % 2 == partition] == list(range(partition, RECORDS, 2))
    assert throttled_s(broker, "fetch_consumer") > 0
    assert broker.metrics().value("replog_bytes_out_total", topic="t") >= RECORDS * SIZE


def test_what_was_not_sent_for_a_quota_is_not_counted_as_sent() -> None:
    with replog.Cluster(brokers=1, listen="tcp://127.0.0.1:0", quotas=replog.Quotas(fetch_bytes_per_s=2_000_000)) as cluster:
        cluster.create_topic("t", partitions=4)
        for number in range(32):
            cluster.append("t", number % 4, [random.Random(number).randbytes(250_000)])
        with replog.connect(cluster.endpoints) as client, client.consumer("t", start="earliest") as consumer:
            found = 0
            while found < 32:
                found += len(list(consumer.poll(timeout_s=60)))
        assert throttled_s(cluster, "fetch_consumer") > 0
        counted = cluster.metrics()
        assert counted.value("replog_bytes_out_total", topic="t") == counted.value("replog_bytes_in_total", topic="t") > 0
        assert len(list(cluster.read("t"))) == 32
        assert cluster.metrics().value("replog_bytes_out_total", topic="t") == 2 * counted.value("replog_bytes_in_total", topic="t")


def test_what_another_broker_fetches_is_not_counted_as_sent_to_readers(tmp_path: Path) -> None:
    store = f"file://{tmp_path}/s.db"
    both = [replog.Broker(number, listen="tcp://127.0.0.1:0", data=None, store=store) for number in (1, 2)]
    with both[0] as one, both[1] as two:
        two.wait_until_ready()
        with replog.connect(one.wait_until_ready().endpoint) as client:
            client.create_topic("t", replication_factor=2, min_isr=2)
            client.append("t", 0, MANY)
            assert [broker.metrics().value("replog_bytes_out_total") for broker in (one, two)] == [0, 0]
            assert len(list(client.read("t"))) == RECORDS
        counted = [broker.metrics() for broker in (one, two)]
        sent, taken = (sum(each.value(f"replog_bytes_{way}_total", topic="t") for each in counted) for way in ("out", "in"))
        assert sent == taken > 0


def test_a_client_without_limits_of_its_own_waits_for_nothing(tmp_path: Path) -> None:
    quotas = tmp_path / "quotas.toml"
    quotas.write_text('produce_bytes_per_s = 100_000\n[clients."127.0.0.1"]\nproduce_bytes_per_s = 0\n')
    quotas.chmod(0o600)
    with replog.Cluster(brokers=1, listen="tcp://127.0.0.1:0", quotas=quotas) as cluster:
        cluster.create_topic("t")
        with replog.connect(cluster.endpoints) as client:
            client.append("t", 0, MANY)
        assert throttled_s(cluster, "produce") == 0
        assert len(list(cluster.read("t"))) == RECORDS


def test_clients_of_a_cluster_are_limited_and_its_own_calls_are_not() -> None:
    with replog.Cluster(brokers=3, listen="tcp://127.0.0.1:0", quotas=QUOTAS) as cluster:
        cluster.create_topic("t", replication_factor=3)
        cluster.append("t", 0, MANY)
        assert throttled_s(cluster, "produce") == 0
        with replog.connect(cluster.endpoints) as client:
            for _ in range(3):
                client.append("t", 0, MANY[:20])
        leader = cluster.describe("t").partitions[0].leader
        assert cluster.metrics().value("replog_client_throttle_seconds_total", broker=leader) > 0
        assert len(list(cluster.read("t"))) == RECORDS + 60


def test_without_connections_there_is_nothing_to_limit() -> None:
    with pytest.raises(UsageError, match="quotas are about connections"):
        replog.Cluster(quotas=QUOTAS)


def test_the_configuration_says_how_many_connections_there_may_be(tmp_path: Path) -> None:
    config = {"connections_max": 8}
    with replog.Cluster(listen="tcp://127.0.0.1:0", brokers=1, config=config) as cluster, contextlib.ExitStack() as clients:
        for _ in range(7):
            clients.enter_context(replog.connect(cluster.endpoints)).topics()
        with pytest.raises(Unavailable, match="7 connections of clients are open"), replog.connect(cluster.endpoints) as one_more:
            one_more.topics(timeout_s=2)


@pytest.mark.processes
def test_a_broker_in_a_process_of_its_own_reads_the_file(tmp_path: Path) -> None:
    quotas = tmp_path / "quotas.toml"
    quotas.write_text("produce_bytes_per_s = 1_000_000\nburst_ms = 0\n")
    quotas.chmod(0o600)
    with replog.BrokerProcess(1, data=None, store=f"file://{tmp_path}/s.db", quotas=quotas) as broker:
        with replog.connect(broker.endpoint) as client:
            client.create_topic("t")
            for _ in range(3):
                client.append("t", 0, MANY[:20])
            assert len(list(client.read("t"))) == 60
        assert any("client throttled" in line for line in broker.last_lines)


@pytest.mark.processes
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    quotas = tmp_path / "quotas.toml"
    quotas.write_text("produce_bytes = 1\n")
    quotas.chmod(0o600)
    said = r"quotas\.toml: it has no 'produce_bytes'; did you mean 'produce_bytes_per_s'"
    with (
        pytest.raises(replog.Unavailable, match=said),
        replog.BrokerProcess(1, data=None, store=f"file://{tmp_path}/s.db", quotas=quotas),
    ):
        pass
