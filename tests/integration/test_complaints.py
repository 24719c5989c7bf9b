"""What people say of other log clients, and what happens here instead (ECOSYSTEM 3.2, a test for each row in its order).

Exactly-once from Spark, the last of them, has a folder of its own: `tests/integration/spark`.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import os
import subprocess
import sys
import threading
import tomllib
import warnings
from collections import deque
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

import replog
from replog.codec import PROTOCOL_VERSION
from replog.errors import Rejected, TimedOut, Unavailable, UnknownTopicOrPartition, UsageError
from replog.log.directory import FORMAT

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def cluster() -> Iterator[replog.Cluster]:
    """Nothing in these tests changes what another one looks at."""
    with replog.Cluster() as cluster:
        for topic in ("orders", "payments"):
            cluster.create_topic(topic)
        yield cluster


SMALL = {"buffer_bytes": 20_000, "batch_bytes": 2_000, "max_block_ms": 300}


def test_nobody_has_to_call_anything_to_make_room_in_a_full_queue() -> None:
    with replog.Cluster(listen="tcp://127.0.0.1:0") as cluster, replog.connect(cluster.endpoints, config=SMALL) as client:
        cluster.create_topic("orders")
        with client.producer() as producer:
            for number in range(5_000):
                producer.send("orders", b"%0100d" % number)  # many times what the queue holds
        assert len(list(cluster.read("orders"))) == 5_000


def test_a_queue_that_stays_full_blocks_for_so_long_and_then_says_why() -> None:
    with replog.Cluster(brokers=1, listen="tcp://127.0.0.1:0") as cluster, replog.connect(cluster.endpoints, config=SMALL) as client:
        cluster.create_topic("orders", replication_factor=1, min_isr=1)
        producer = client.producer()
        producer.send("orders", "first").result()
        cluster.kill_broker(1)
        fill = (producer.send("orders", bytes(100)) for _ in range(1_000))
        with pytest.raises(Unavailable, match=r"waited 0\.3 s for room: 19\d{3} bytes are buffered, buffer_bytes is 20000"):
            deque(fill, maxlen=0)
        with pytest.warns(ResourceWarning, match=r"nobody was told what became of 16\d records of its producers"):
            client.close()


_WITH = """
import sys, replog
with replog.connect(sys.argv[1]) as client, client.producer(linger_ms=60_000) as producer:
    for number in range(100):
        producer.send("orders", str(number))
"""
_WITHOUT = """
import sys, replog
client = replog.connect(sys.argv[1])
producer = client.producer(linger_ms=60_000)
for number in range(100):
    producer.send("orders", str(number))
del producer
client.close()
"""


@pytest.mark.parametrize(("program", "stored", "said"), [(_WITH, 100, ""), (_WITHOUT, 0, "a Producer was dropped with 100 records")])
def test_the_last_records_of_a_program_do_not_vanish_unsaid(program: str, stored: int, said: str) -> None:
    with replog.Cluster(listen="tcp://127.0.0.1:0") as cluster:
        cluster.create_topic("orders")
        command = [sys.executable, "-W", "always::ResourceWarning", "-c", program, ",".join(cluster.endpoints)]
        done = subprocess.run(command, check=True, timeout=120, capture_output=True, text=True)
        assert [record.text() for record in cluster.read("orders")] == [str(number) for number in range(stored)]
        assert said in done.stderr


_CLIENT_FIRST = """
import sys, replog
with replog.connect(sys.argv[1]) as client:
    producer = client.producer(linger_ms=60_000)
    for number in range(100):
        producer.send("orders", str(number))
"""


def test_a_client_that_is_closed_under_a_producer_says_what_that_costs_whatever_is_configured() -> None:
    with replog.Cluster(listen="tcp://127.0.0.1:0") as cluster:
        cluster.create_topic("orders")
        command = [sys.executable, "-c", _CLIENT_FIRST, ",".join(cluster.endpoints)]
        done = subprocess.run(command, check=True, timeout=120, capture_output=True, text=True)
        assert list(cluster.read("orders")) == []
    said = "a Client was closed, and nobody was told what became of 100 records of its producers: 100 were not sent"
    assert done.stderr == f"{said}; call flush() or use `with`\n"


def test_a_producer_that_is_dropped_says_how_many_records_it_had(cluster: replog.Cluster) -> None:
    producer = cluster.producer(linger_ms=60_000)
    producer.send_many("orders", ["x"] * 7, partition=0)
    with pytest.warns(ResourceWarning, match="a Producer was dropped with 7 records"):
        del producer


def test_nobody_reached_is_told_with_every_address_and_its_answer() -> None:
    client = replog.connect("tcp://127.0.0.1:1,tcp://127.0.0.1:2")  # nothing is opened yet
    with client, pytest.raises(Unavailable) as caught:
        client.topics(timeout_s=0.5)
    told = str(caught.value)
    assert "waited 0.5" in told
    assert "tcp://127.0.0.1:1 (Connection refused)" in told
    assert "tcp://127.0.0.1:2 (Connection refused)" in told


def test_what_does_not_exist_is_told_at_once_with_what_does(cluster: replog.Cluster) -> None:
    for call in (lambda: cluster.append("order", 0, ["x"]), lambda: list(cluster.read("order")), lambda: cluster.describe("order")):
        with pytest.raises(UnknownTopicOrPartition, match=r"'order'.*orders, payments"):
            call()


def test_a_time_that_passes_names_what_was_waited_for() -> None:
    with replog.Cluster(brokers=1) as cluster:
        cluster.create_topic("orders", replication_factor=1, min_isr=1)
        cluster.kill_broker(1)
        with pytest.raises(TimedOut, match=r"waited 0\.3\d* s for .*orders-0"):
            cluster.append("orders", 0, ["x"], timeout_s=0.3)


def test_reading_ends_where_the_log_does(cluster: replog.Cluster) -> None:
    assert list(cluster.read("payments")) == []
    with cluster.consumer("payments") as consumer:
        assert consumer.poll(timeout_s=0.01) == []  # and a long silence is told: tests/unit/client/test_consumer.py


def test_everything_public_has_types() -> None:
    assert files("replog").joinpath("py.typed").is_file()
    untyped = []
    for name in replog.__all__:
        made = getattr(replog, name)
        for each, member in [(name, made), *(inspect.getmembers(made, inspect.isfunction) if inspect.isclass(made) else [])]:
            if inspect.isfunction(member) and not each.startswith("_"):
                given = inspect.signature(member)
                bare = [p.name for p in given.parameters.values() if p.name != "self" and p.annotation is inspect.Parameter.empty]
                if bare or given.return_annotation is inspect.Signature.empty:
                    untyped.append(f"{name}.{each} {bare}")
    assert untyped == []


def test_no_event_loop_is_kept(cluster: replog.Cluster) -> None:
    async def make() -> tuple[replog.Producer, replog.Consumer]:
        return cluster.producer(), cluster.consumer("orders", start="latest")

    producer, consumer = asyncio.run(make())  # that loop is closed now
    with producer, consumer:
        assert consumer.poll() == []
        producer.send("orders", "after").result(timeout_s=30)
        assert [record.text() for record in consumer.poll(timeout_s=30)] == ["after"]

    async def use() -> str:
        delivery = await asyncio.to_thread(cluster.append, "orders", 0, ["beside"])
        return delivery.topic

    assert asyncio.run(use()) == "orders"


def test_what_was_never_used_has_nothing_to_close(tmp_path: Path) -> None:
    def made() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    before = made()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        client = replog.connect("tcp://127.0.0.1:1")
        producer = client.producer()
        assert made() == before
        broker = replog.Broker(1, listen="tcp://127.0.0.1:0", data=tmp_path / "b", store=f"file://{tmp_path}/s.db")
        del client, producer, broker
        gc.collect()
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(UsageError), replog.Cluster(tmp_path / "file"):
        pass
    assert made() == before
    cluster = replog.Cluster()
    cluster.close()
    cluster.close()
    assert made() == before


def test_who_may_call_from_which_thread_is_said_and_checked(cluster: replog.Cluster) -> None:
    for shared in (replog.Client, replog.Producer):
        assert "Any thread may call" in inspect.getdoc(shared)
    assert "belongs to the thread that first uses it" in " ".join(inspect.getdoc(replog.Consumer).split())
    consumer = cluster.consumer("orders")
    consumer.poll()
    caught: list[BaseException] = []

    def elsewhere() -> None:
        try:
            consumer.poll()
        except UsageError as error:
            caught.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert "belongs to the thread that first used it" in str(caught[0])


def test_an_error_is_raised_and_never_a_record(cluster: replog.Cluster) -> None:
    cluster.create_topic("gone")
    cluster.append("gone", 0, ["x"])
    with cluster.consumer("gone", start="earliest") as consumer:
        assert [record.text() for record in consumer.poll(timeout_s=30)] == ["x"]
        cluster.delete_topic("gone")
        polls = (consumer.poll(timeout_s=0.1) for _ in range(1_000))
        with pytest.raises(Rejected, match="gone"):
            deque(polls, maxlen=0)


def test_what_works_with_what_is_written_down_and_true() -> None:
    project: Any = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    page = (ROOT / "docs" / "operations.md").read_text()
    (line,) = (line for line in page.splitlines() if line.startswith(f"| {project['version'].rpartition('.')[0]} |"))
    _, _, python, spark, kazoo, wire, disk, *_ = (cell.strip() for cell in line.split("|"))
    assert f">={python.removesuffix('+')}" == project["requires-python"]
    assert [f"pyspark>={spark.removesuffix('+')},<5"] == [need for need in project["optional-dependencies"]["spark"] if "pyspark" in need]
    assert [f"kazoo>={kazoo.removesuffix('+')}"] == project["optional-dependencies"]["zookeeper"]
    assert (wire, disk) == (str(PROTOCOL_VERSION), str(FORMAT))
    assert (ROOT / "CHANGELOG.md").read_text().count("## [Unreleased]") == 1


def test_configuration_is_typed_and_a_wrong_key_is_told_with_the_right_one() -> None:
    with pytest.raises(UsageError, match=r"retention_byte.*retention_bytes"):
        replog.TopicConfig.from_mapping({"retention_byte": 1})
    assert replog.TopicConfig(retention_bytes=1_000).retention_bytes == 1_000
    assert logging.getLogger("replog").handlers == [], "a library does not set up logging"
