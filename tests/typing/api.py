"""The public API as its users write it. Never run: mypy --strict reads it, and `assert_type` says what it must find."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import assert_type

import replog


def a_cluster(folder: Path) -> None:
    with replog.Cluster() as memory:
        assert_type(memory, replog.Cluster)
    with replog.Cluster("data", brokers=3), replog.Cluster(folder, brokers=1):
        pass

    cluster = replog.Cluster(data=None, brokers=3)
    cluster.create_topic("orders", partitions=2, replication_factor=3, min_isr=2, exist_ok=True)
    cluster.create_topic("pinned", assignment={0: [1, 2], 1: [2, 3]}, config={"flush": "ack"}, retention_ms=86_400_000)
    cluster.delete_topic("pinned")

    topics: list[str] = list(cluster.topics())
    partitions: list[int] = list(cluster.partitions_for("orders"))
    print(topics, partitions)

    lost = cluster.leader("orders", 0)
    cluster.kill_broker(lost)
    cluster.start_broker(lost)
    cluster.stop_broker(1)
    added: int = cluster.add_broker(rack="b")
    cluster.remove_broker(added)
    cluster.wait_until_in_sync(timeout_s=10)
    ids: list[int] = list(cluster.brokers)
    print(ids)
    cluster.close()


def a_connection(config: replog.ClientConfig) -> None:
    with replog.connect("tcp://a:1,b:2") as client:
        assert_type(client, replog.Client)
    replog.connect(["a:1", "b:2"], config=config).close()
    replog.connect("a:1", config={"linger_ms": 5}).close()


def a_client(client: replog.Client) -> None:
    receipt = client.append("orders", 0, ["text", b"bytes", replog.Record("value", key="k", headers=[("h", b"1")], timestamp_ms=0)])
    assert_type(receipt, replog.Receipt)
    assert_type((receipt.topic, receipt.partition), tuple[str, int])
    for acks in (0, 1, -1):
        client.append("orders", 0, ["x"], acks=acks, timeout_s=5)
    client.append("orders", 0, ["x"], acks="all", timeout_s=0.5)

    records: list[replog.Record] = client.fetch("orders", 0, 0, max_bytes=1 << 16, wait_s=0.1)
    everything: Iterator[replog.Record] = iter(client.read("orders"))
    yesterday = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    for record in client.read("orders", partitions=[0, 1], start=yesterday, stop="latest"):
        assert_type(record, replog.Record)
    print(records, everything)

    at: int | None = client.offset("orders", 0, at=yesterday)
    end: int | None = client.offset("orders", 0, "latest")
    print(at, end)

    described = client.describe("orders")
    assert_type(described, replog.TopicDescription)
    assert_type(client.describe_cluster(), replog.ClusterDescription)
    for p in described.partitions:
        assert_type(p.leader, int | None)
        assert_type(p, replog.PartitionDescription)
        numbers: tuple[int | None, ...] = (p.partition, p.leader_epoch, p.start_offset, p.high_watermark, p.end_offset)
        members: list[int] = [*p.replicas, *p.isr, *p.elr]
        print(numbers, members)
    print(described, described.to_dict())


def a_record(record: replog.Record) -> None:
    text: str = record.text()
    parsed: dict[str, int] = record.json()
    place: tuple[str, int, int] = (record.topic, record.partition, record.offset)
    key: bytes | None = record.key
    names: list[str] = [name for name, _ in record.headers]
    print(text, parsed, place, key, names, record.leader_epoch, record.timestamp_ms)


def a_producer(client: replog.Client) -> None:
    with client.producer(acks="all", linger_ms=5, compression=None, idempotent=True) as producer:
        assert_type(producer, replog.Producer)
        delivery = producer.send("orders", "value", "key", headers=[("h", b"1")], timestamp_ms=1)
        assert_type(delivery, replog.Delivery)
        stored = delivery.result(timeout_s=1)
        assert_type(stored, replog.RecordMetadata)
        assert_type(delivery.done(), bool)
        failure: BaseException | None = delivery.exception()
        deliveries = producer.send_many("orders", ["a", b"b"], keys=["k", "l"])
        assert_type(deliveries, replog.Deliveries)
        receipts: list[replog.Receipt] = deliveries.result()
        producer.flush(timeout_s=10)
        print(stored.partition, failure, receipts)


def a_consumer(client: replog.Client) -> None:
    with client.consumer("orders", "payments", start="earliest") as consumer:
        assert_type(consumer, replog.Consumer)
        batch: list[replog.Record] = consumer.poll(max_records=10, timeout_s=1)
        consumer.seek("orders", 0, 5)
        consumer.seek_to_beginning()
        consumer.seek_to_end()
        position: int = consumer.position("orders", 0)
        for record in consumer:
            assert_type(record, replog.Record)
        print(batch, position)


def a_log(folder: Path) -> None:
    with replog.Log.open(str(folder)) as log:
        assert_type(log.append_records(["a", b"b", replog.Record("c")]), tuple[int, int])
        token = log.flush()
        if token is not None:
            log.flushed(token.run())
        records: Iterator[replog.Record] = log.records(0, stop=5)
        numbers: list[int] = [log.trim_to(1), log.start_offset, log.end_offset, log.flushed_end, log.size_bytes]
        for record in log.records():
            assert_type(record, replog.Record)
        print(records, numbers, log.loss)
    replog.Log.open(folder, config=replog.TopicConfig(flush="ack"), limits=replog.BrokerConfig()).close()


def errors(client: replog.Client) -> None:
    try:
        client.append("orders", 0, ["x"])
    except replog.errors.NotEnoughReplicas as error:
        assert_type(error.topic, str | None)
    except replog.Rejected as error:
        assert_type(error.code, int)
        assert_type(error.retriable, bool)
    except (replog.UsageError, replog.Unavailable, replog.TimedOut) as error:
        raise SystemExit(str(error)) from error
    except replog.ReplogError:
        raise


def backends(path: Path) -> None:
    stores: list[replog.MetadataStore] = [replog.MemoryStore(), replog.FileStore(str(path))]
    transport: replog.Transport = replog.MemoryTransport()
    for store in stores:
        store.close()
    transport.close()
