"""A cluster in one process that others can reach, and one whose brokers find each other in a store that may block."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import replog
from replog.errors import TimedOut, UsageError

OTHER_PROCESS = """
import sys, replog
with replog.connect(sys.argv[1]) as client:
    assert [record.text() for record in client.read("t")] == ["from inside"]
    client.append("t", 0, ["from outside"])
    with client.producer() as producer:
        producer.send_many("t", [str(n) for n in range(1000)], partition=0)
"""


def test_another_process_reads_and_writes(tmp_path: Path) -> None:
    threads = threading.active_count()
    with replog.Cluster(tmp_path, listen="tcp://127.0.0.1:0") as cluster:
        assert len(set(cluster.endpoints)) == 3
        cluster.create_topic("t")
        cluster.append("t", 0, ["from inside"])
        subprocess.run([sys.executable, "-c", OTHER_PROCESS, ",".join(cluster.endpoints)], check=True, timeout=120)
        assert [record.text() for record in cluster.read("t")] == ["from inside", "from outside", *map(str, range(1000))]
    assert threading.active_count() == threads


def test_a_broker_comes_back_where_clients_know_it() -> None:
    with replog.Cluster(listen="tcp://127.0.0.1:0") as cluster:
        cluster.create_topic("t")
        endpoints = cluster.endpoints
        with replog.connect(",".join(endpoints)) as client:
            for n in range(6):
                lost = client.leader("t", 0)
                cluster.kill_broker(lost)
                assert len(cluster.endpoints) == 2
                client.append("t", 0, [str(n)])
                cluster.start_broker(lost)
                cluster.wait_until_in_sync()
            assert cluster.endpoints == endpoints
            assert [record.text() for record in client.read("t")] == [str(n) for n in range(6)]


def test_what_is_appended_after_a_first_poll_is_read_inside_and_outside() -> None:
    with replog.Cluster(listen="tcp://127.0.0.1:0") as cluster, replog.connect(cluster.endpoints) as client:
        cluster.create_topic("t", partitions=2)
        for n, reader in enumerate([cluster, client] * 10):
            with reader.consumer("t") as consumer:
                assert consumer.poll() == []
                reader.append("t", n % 2, [f"{n} after a poll"])
                assert [record.text() for record in consumer.poll(timeout_s=60)] == [f"{n} after a poll"]
                consumer.seek_to_beginning()
                consumer.seek_to_end()
                reader.append("t", n % 2, [f"{n} after a seek"])
                assert [record.text() for record in consumer.poll(timeout_s=60)] == [f"{n} after a seek"]


def test_timers_run_while_nobody_calls() -> None:
    """A client of another process waits for what only the cluster's own thread can do."""
    with replog.Cluster(listen="tcp://127.0.0.1:0") as cluster:
        cluster.create_topic("t", flush="interval", flush_interval_ms=50)
        with replog.connect(cluster.endpoints[0]) as client:
            assert client.fetch("t", 0, 0, wait_s=0.3) == []
            assert client.append("t", 0, ["a"]).last_offset == 0


def test_brokers_that_meet_in_a_file(tmp_path: Path) -> None:
    store = f"file://{tmp_path / 'metadata.db'}"
    with replog.Cluster(tmp_path / "data", store=store) as cluster:
        cluster.create_topic("t")
        cluster.append("t", 0, ["a"])
        lost = cluster.leader("t", 0)
        cluster.kill_broker(lost)
        cluster.append("t", 0, ["b"])
        cluster.start_broker(lost)
        cluster.wait_until_in_sync()
    with replog.Cluster(tmp_path / "data", store=store) as cluster:
        assert [record.text() for record in cluster.read("t")] == ["a", "b"]


@pytest.mark.parametrize("arguments", [{"listen": "tcp://127.0.0.1:0"}, {"store": "file"}])
def test_a_forked_child_harms_nobody(tmp_path: Path, arguments: dict[str, str]) -> None:
    if "store" in arguments:
        arguments = {"store": f"file://{tmp_path / 'metadata.db'}"}
    with replog.Cluster(tmp_path / "data", **arguments) as cluster:
        cluster.create_topic("t")
        cluster.append("t", 0, ["a"])
        child = os.fork()
        if child == 0:
            try:
                cluster.append("t", 0, ["from the child"])
            except UsageError:
                os._exit(17)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
        cluster.append("t", 0, ["b"])
        assert [record.text() for record in cluster.read("t")] == ["a", "b"]


def test_an_unknown_store_says_so() -> None:
    with pytest.raises(replog.ReplogError, match="nonsense://"):
        replog.Cluster(store="nonsense://x").start()


def test_a_closed_cluster_answers_nobody() -> None:
    cluster = replog.Cluster(listen="tcp://127.0.0.1:0").start()
    endpoints = ",".join(cluster.endpoints)
    cluster.close()
    with replog.connect(endpoints) as client, pytest.raises((TimedOut, replog.Unavailable)):
        client.append("t", 0, ["x"], timeout_s=1)
