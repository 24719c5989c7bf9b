"""An embedded cluster against its limits: each figure is a ratio of two loops that take turns in one run.

Run with `pytest benchmarks/test_cluster.py --benchmark-enable -s`. A ratio of 0.7 says: 0.7 of the rate of the limit. The
median of the rounds is reported, because neighbours on the machine disturb single rounds.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
from pathlib import Path
from typing import Any

import pytest
from benchmarks.measuring import in_turns, raw_peer, report, timed, times_of
from benchmarks.targets import at_least, at_most

import replog

ROUNDS = 7
ROUND_BYTES = 16 << 20  # little enough that the disk's own speed does not come into it: the limit is the page cache


# ------------------------------------------------------------------------------------------------------------ three replicas


@pytest.mark.parametrize("how", ["pipelined", "one at a time"])
@pytest.mark.parametrize("size", [16 << 10, 1 << 20], ids=["16 KiB", "1 MiB"])
def test_three_replicas(benchmark: Any, capsys: Any, tmp_path: Path, size: int, how: str) -> None:
    """acks=all on three copies, against three bare os.write of the same bytes."""
    count = ROUND_BYTES // size
    bodies = [os.urandom(size) for _ in range(count)]
    files = [os.open(tmp_path / f"bare-{n}", os.O_RDWR | os.O_CREAT) for n in range(3)]
    with replog.Cluster(tmp_path / "data", config={"checkpoint_interval_ms": 600_000}) as cluster:
        cluster.create_topic("t", segment_bytes=64 << 20)
        producer = cluster.producer(compression=None, batch_bytes=size + 200, buffer_bytes=8 * size + (1 << 20))

        def pipelined() -> None:
            for body in bodies:
                producer.send("t", body, partition=0)
            producer.flush()

        def one_at_a_time() -> None:
            for body in bodies:
                producer.send("t", body, partition=0).result()

        def bare() -> None:
            for body in bodies:  # the files grow like the logs do: pages that were just freed would be quicker than new ones
                for file in files:
                    os.write(file, body)

        ours = pipelined if how == "pipelined" else one_at_a_time
        pairs = in_turns(ours, bare, ROUNDS)
        producer.close()
        benchmark.pedantic(lambda: None, rounds=1)
    for file in files:
        os.close(file)
    shutil.rmtree(tmp_path, ignore_errors=True)
    figures = {
        "ratio": statistics.median(limit / mine for mine, limit in pairs),
        "over_us": statistics.median((mine - limit) / count for mine, limit in pairs) * 1e6,
        "mb_per_s": ROUND_BYTES / 1e6 / statistics.median(mine for mine, _ in pairs),
    }
    targets = [at_least("ratio", 0.70 if size == 16 << 10 else 0.80)] if how == "pipelined" else []
    report(benchmark, capsys, f"RF 3, acks=all, {size >> 10} KiB, {how} / three os.write", figures, *targets)


def test_acknowledgement(benchmark: Any, capsys: Any, tmp_path: Path) -> None:
    """100 bytes appended and acknowledged by three copies, against a TCP round trip between two processes."""
    body = os.urandom(100)
    samples: dict[str, list[float]] = {"append": [], "send": [], "tcp": []}
    with replog.Cluster(tmp_path / "data") as cluster, raw_peer(len(body)) as peer:
        cluster.create_topic("t")
        producer = cluster.producer(compression=None)

        def trip() -> None:
            peer.sendall(body)
            peer.recv(1)

        calls = {
            "append": lambda: cluster.append("t", 0, [body]),
            "send": lambda: producer.send("t", body, partition=0).result(),
            "tcp": trip,
        }
        for _ in range(10):
            for name, call in calls.items():
                samples[name] += times_of(call, 300)
        producer.close()
    p50 = {name: statistics.median(values[300:]) * 1e6 for name, values in samples.items()}
    p99 = {name: statistics.quantiles(values[300:], n=100)[98] * 1e6 for name, values in samples.items()}
    benchmark.pedantic(lambda: None, rounds=1)
    report(benchmark, capsys, "100 bytes, acks=all, RF 3 / a TCP round trip", {
        "send_ratio": p50["send"] / p50["tcp"],
        "append_ratio": p50["append"] / p50["tcp"],
        **{f"{name}_us": value for name, value in p50.items()},
        **{f"{name}_p99_us": value for name, value in p99.items()},
    }, at_most("append_ratio", 1.2))


# ---------------------------------------------------------------------------------------------------------------- partitions


@pytest.mark.long
def test_many_partitions(benchmark: Any, capsys: Any, tmp_path: Path) -> None:
    """10,000 partitions on three brokers: created, idle, and what an append costs beside them, against ten."""
    figures: dict[str, float] = {}
    few = replog.Cluster(tmp_path / "few").start()
    many = replog.Cluster(tmp_path / "many").start()
    few.create_topic("t", partitions=10)
    before = resident()
    figures["create_s"] = timed(lambda: many.create_topic("t", partitions=10_000, timeout_s=120))
    figures["in_sync_s"] = timed(lambda: many.wait_until_in_sync(timeout_s=120))
    figures["kib_per_partition"] = (resident() - before) / 10_000 / 1024  # three copies each, and what client and controller know
    producers = [(cluster, cluster.producer(compression=None)) for cluster in (many, few)]

    def appends(producer: replog.Producer) -> None:
        for _ in range(500):
            producer.send("t", b"x" * 100, partition=7).result()

    pairs = in_turns(lambda: appends(producers[0][1]), lambda: appends(producers[1][1]), ROUNDS)
    figures["append_cost_10000_over_10"] = statistics.median(mine / limit for mine, limit in pairs)
    used = resource.getrusage(resource.RUSAGE_SELF)
    many._driver.wait(lambda: False, 3)  # as somebody does who waits for a record that does not come
    idle = resource.getrusage(resource.RUSAGE_SELF)
    figures["idle_cpu_percent"] = (idle.ru_utime + idle.ru_stime - used.ru_utime - used.ru_stime) / 3 * 100
    for cluster, producer in producers:
        producer.close()
        figures["close_s"] = timed(cluster.close)
    with replog.Cluster(tmp_path / "many") as cluster:
        pass
    reopened = replog.Cluster(tmp_path / "many")
    figures["reopen_s"] = timed(reopened.start)
    leader = reopened.leader("t", 0)
    figures["failover_s"] = timed(lambda: (reopened.kill_broker(leader), reopened.append("t", 0, [b"x"])))
    reopened.close()
    benchmark.pedantic(lambda: None, rounds=1)
    report(benchmark, capsys, "10,000 partitions, RF 3", figures, at_most("append_cost_10000_over_10", 1.15))


def resident() -> int:
    """Bytes of memory this process has."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
