"""`replog.connect` against brokers behind TCP: everything a client does, in one thread and in many."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.integration.processes.served import Served
from tests.threads import in_thread

import replog
from replog.errors import Unavailable, UnknownTopicOrPartition, UsageError
from replog.testing.eventually import eventually

SEEING_TO_IT = "replog client"


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path) as served:
        yield served


def client_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == SEEING_TO_IT]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("brokers", [1, 3])
def test_everything_a_client_does(tmp_path: Path, brokers: int) -> None:
    with Served(tmp_path, brokers) as served, served.connect() as client:
        client.create_topic("t", partitions=2)
        assert client.topics() == ["t"]
        assert client.partitions_for("t") == [0, 1]
        assert client.append("t", 0, ["a", "b"]) == replog.Receipt("t", 0, 0, 1)
        assert client.append("t", 0, ["c"], acks=1).base_offset == 2
        client.append("t", 1, ["x"])
        assert [r.text() for r in client.fetch("t", 0, 1, wait_s=5)] == ["b", "c"]
        assert [r.text() for r in client.read("t")] == ["a", "b", "c", "x"]
        assert (client.offset("t", 0, "earliest"), client.offset("t", 0, "latest")) == (0, 3)
        assert client.offset("t", 0, datetime(2000, 1, 1, tzinfo=UTC)) == 0
        with client.producer() as producer:
            sent = [producer.send("t", f"{n}", key=f"k{n % 5}") for n in range(500)]
        assert len({(d.result().partition, d.result().offset) for d in sent}) == 500
        with client.consumer("t", start="earliest") as consumer:
            found: list[replog.Record] = []
            while len(found) < 504:
                found += consumer.poll(timeout_s=30)
        assert sorted(int(r.text()) for r in found if r.key is not None) == list(range(500))
        assert client.leader("t", 0) in range(1, brokers + 1)
        assert client.describe("t").partitions[0].replicas == client.describe("t").partitions[0].isr
        assert [b.broker_id for b in client.describe_cluster().brokers] == list(range(1, brokers + 1))
        client.delete_topic("t")
        with pytest.raises(UnknownTopicOrPartition):
            client.append("t", 0, ["gone"])


def test_a_record_without_acknowledgement_still_leaves(three: Served) -> None:
    with three.connect() as client:
        client.create_topic("t")
        with three.connect() as other, other.producer(acks=0) as producer:
            assert producer.send("t", "a").result().offset is None
        with three.connect() as another:
            another.append("t", 0, ["b"], acks=0)
        eventually(lambda: client.offset("t", 0, "latest") == 2)
        assert sorted(r.text() for r in client.read("t")) == ["a", "b"]


def test_the_leader_ends_in_between(three: Served) -> None:
    with three.connect() as client:
        client.create_topic("t", min_isr=2)
        client.append("t", 0, ["before"])
        with client.producer() as producer:
            first = [producer.send("t", f"{n}") for n in range(200)]
            first[0].result(timeout_s=30)
            three.stop(client.leader("t", 0), controlled=False)
            second = [producer.send("t", f"{n}") for n in range(200, 400)]
            offsets = [d.result(timeout_s=60).offset for d in first + second]
        assert client.append("t", 0, ["after"]).base_offset == 401
        assert offsets == list(range(1, 401))
        assert [r.text() for r in client.read("t")] == ["before", *map(str, range(400)), "after"]


def test_a_broker_comes_back_on_another_port(three: Served) -> None:
    with three.connect() as client:
        client.create_topic("t", assignment={0: [1]})
        client.append("t", 0, ["before"])
        old = three.running[1].endpoint
        three.stop(1)
        with socket.socket() as holder:  # nobody else gets the old port
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(("127.0.0.1", int(old.rpartition(":")[2])))
            assert three.start(1).endpoint != old
            assert client.append("t", 0, ["after"], timeout_s=60).base_offset == 1
            assert [r.text() for r in client.read("t")] == ["before", "after"]


def test_all_endpoints_given_are_gone_but_the_cluster_is_not(three: Served) -> None:
    with replog.connect(three.running[1].endpoint) as client:
        client.create_topic("t", assignment={0: [2, 3]})
        client.append("t", 0, ["before"])
        three.stop(1)
        assert client.append("t", 0, ["after"]).base_offset == 1
        with client._driver.lock:  # as after an interrupt: what it knew of the cluster is forgotten
            client._driver._crashed(KeyboardInterrupt())  # type: ignore[attr-defined]
        assert [r.text() for r in client.read("t")] == ["before", "after"]


def test_twenty_threads_share_a_client(three: Served) -> None:
    with three.connect() as client:
        client.create_topic("t", partitions=3)

        def work(number: int) -> list[int | None]:
            return [client.append("t", number % 3, [f"{number}-{n}"]).base_offset for n in range(25)]

        threads = [in_thread(lambda number=number: work(number)) for number in range(20)]  # type: ignore[misc]
        for thread, _ in threads:
            thread.join(120)
        assert all(len(outcome) == 1 and isinstance(outcome[0], list) for _, outcome in threads), threads
        assert all(outcome[0] == sorted(outcome[0]) for _, outcome in threads)
        values = [r.text() for r in client.read("t")]
        assert len(values) == len(set(values)) == 500
        assert client_threads() == []


def test_a_producer_that_is_left_alone_is_finished_by_a_thread_that_then_ends(three: Served) -> None:
    with three.connect() as client:
        client.create_topic("t")
        assert client_threads() == []
        producer = client.producer(linger_ms=50)
        for turn in range(2):
            settled = threading.Event()
            delivery = producer.send("t", f"{turn}")
            delivery.add_done_callback(lambda _, settled=settled: settled.set())  # type: ignore[misc]
            assert not delivery.done()
            assert client_threads() == [SEEING_TO_IT]
            assert settled.wait(30)
            assert delivery.result().offset == turn
            eventually(lambda: not client_threads())
        producer.close()


def test_what_a_producer_left_survives_its_leader(three: Served) -> None:
    with three.connect() as client:
        client.create_topic("t", min_isr=2)
        producer = client.producer(linger_ms=200)
        producer.send("t", "0").result()
        settled = threading.Event()
        leader = client.leader("t", 0)
        producer.send("t", "1").add_done_callback(lambda _: settled.set())
        three.stop(leader, controlled=False)
        assert settled.wait(60)
        assert [r.text() for r in client.read("t")] == ["0", "1"]
        producer.close()


def test_callbacks_run_without_the_lock_while_others_wait(three: Served) -> None:
    """The thread that brings the acknowledgement calls the callback, which may use the client itself."""
    with three.connect() as client:
        client.create_topic("t", partitions=2)
        waiting, found = in_thread(lambda: client.fetch("t", 1, 0, wait_s=None))
        eventually(lambda: client._driver._polling is not None)  # type: ignore[attr-defined]
        nested: list[Any] = []
        with client.producer() as producer:
            delivery = producer.send("t", "a", partition=0)
            delivery.add_done_callback(lambda _: nested.append(client.append("t", 1, ["from a callback"]).base_offset))
            eventually(lambda: nested)
        waiting.join(30)
        assert [r.text() for r in found[0]] == ["from a callback"]
        assert nested == [0]


def test_a_hundred_callbacks_that_each_send_and_wait(three: Served) -> None:
    """Done at once, they would stand on one another; those that do not are called when the first of them have ended."""
    with three.connect() as client:
        client.create_topic("t", partitions=100)
        stored: list[int | None] = []
        with client.producer(linger_ms=60_000) as producer:

            def send_another(delivery: replog.Delivery) -> None:
                stored.append(producer.send("t", "b", partition=delivery.result().partition).result(60).offset)

            for number in range(100):
                producer.send("t", "a", partition=number).add_done_callback(send_another)
            producer.flush(60)
            eventually(lambda: len(stored) == 100)
        assert stored == [1] * 100


def test_an_interrupt_ends_the_call_and_not_the_client(three: Served) -> None:
    def interrupt() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with three.connect() as client:
        client.create_topic("t", partitions=2)
        waiting, found = in_thread(lambda: client.fetch("t", 1, 0, wait_s=None))
        driver: Any = client._driver
        eventually(lambda: driver._polling is not None)
        in_thread(lambda: (eventually(lambda: driver._waiters), interrupt()))
        with pytest.raises(KeyboardInterrupt):
            client.fetch("t", 0, 0, wait_s=None)  # rests until the other thread brings something
        assert client.append("t", 0, ["a"]).base_offset == 0
        assert client.append("t", 1, ["b"]).base_offset == 0
        waiting.join(30)
        assert [r.text() for r in found[0]] == ["b"]

        in_thread(lambda: (eventually(lambda: driver._polling is not None), interrupt()))
        with pytest.raises(KeyboardInterrupt):
            client.fetch("t", 0, 1, wait_s=None)  # rests on the sockets itself
        assert driver._polling is None
        assert client.append("t", 0, ["c"]).base_offset == 1
        assert [r.text() for r in client.read("t")] == ["a", "c", "b"]


def test_a_closed_client(three: Served) -> None:
    client = three.connect()
    client.create_topic("t")
    producer, consumer = client.producer(linger_ms=60_000), client.consumer("t")
    lost = producer.send("t", "never sent")
    threads = [in_thread(lambda: client.fetch("t", 0, 0, wait_s=None)) for _ in range(3)]
    eventually(lambda: len(client._driver._waiters) >= 2)  # type: ignore[attr-defined]
    with pytest.warns(ResourceWarning, match="1 records of its producers: 1 were not sent"):
        client.close()
    client.close()
    for thread, outcome in threads:
        thread.join(30)
        assert isinstance(outcome[0], Unavailable | UsageError), outcome
    for call in (
        lambda: client.append("t", 0, ["x"]),
        lambda: client.fetch("t", 0, 0),
        client.topics,
        lambda: producer.send("t", "x"),
        lambda: consumer.poll(),
        client.producer,
    ):
        with pytest.raises(UsageError, match="closed"):
            call()
    assert lost.done()
    with pytest.raises(Unavailable, match="1 records were not sent"):
        producer.close()
    eventually(lambda: not client_threads())


def test_a_client_never_used_opens_nothing() -> None:
    before = threading.active_count()
    client = replog.connect("127.0.0.1:1")
    assert client._driver._transport is None  # type: ignore[attr-defined]
    client.close()
    assert threading.active_count() == before


def test_nobody_there_is_named_with_the_reason() -> None:
    ports = [free_port(), free_port()]
    with replog.connect([f"127.0.0.1:{port}" for port in ports]) as client:
        with pytest.raises(Unavailable) as caught:
            client.topics(timeout_s=0.5)
        for port in ports:
            assert f"tcp://127.0.0.1:{port} (Connection refused)" in str(caught.value)
        with pytest.raises(Unavailable, match=r"not reached: .*Connection refused"):
            client.append("t", 0, ["x"], timeout_s=0.3)


def test_another_cluster_at_the_same_place_is_refused(tmp_path: Path) -> None:
    with Served(tmp_path, 1, name="one") as one, one.connect() as client:
        client.create_topic("t")
        endpoint = one.running[1].endpoint
        one.stop(1)
        with Served(tmp_path, 0, name="two") as two:
            two.start(1, listen=endpoint).wait_until_ready()
            with pytest.raises(Unavailable, match=r"not reached: .*you belong to cluster"):
                client.topics(timeout_s=1)
            with replog.connect(endpoint) as fresh:
                assert fresh.topics() == []


def test_the_client_is_there_before_the_brokers(tmp_path: Path) -> None:
    port = free_port()
    with replog.connect(f"127.0.0.1:{port}") as client:
        thread, outcome = in_thread(lambda: client.create_topic("t", timeout_s=60))
        eventually(lambda: client._driver.core.unreached)
        with Served(tmp_path, 0) as served:
            served.start(1, listen=f"tcp://127.0.0.1:{port}")
            thread.join(60)
            assert len(outcome[0]) == 32
            assert client.append("t", 0, ["a"]).base_offset == 0
