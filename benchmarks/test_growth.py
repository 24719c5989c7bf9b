"""What a partition costs those beside it: the same work in clusters of 10 to 10,000 partitions, in turns in one run.

Run with `pytest benchmarks/test_growth.py --benchmark-enable -s`. Three replicas in one process, over files. `produce_cpu`: processor time
of a batch of 16 KiB, one after the other; `idle_cpu`: of two seconds in which nobody asks for anything, so that followers' fetches run
out and come again; `rate`: 16 KiB pipelined over ten partitions. Each as a multiple of the same with ten partitions. And a topic more, of N
topics of one partition in memory, as a multiple of the same with a hundred: made, until a first append to it is acknowledged; and deleted.
"""

from __future__ import annotations

import os
import statistics
import time
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
from benchmarks.measuring import draw, report, timed
from benchmarks.targets import Target, at_least, at_most

import replog

ROUNDS: Final = 9
COUNTS: Final = (10, 100, 1_000, 10_000)
BATCH: Final = 16 << 10
BATCHES: Final = 200
IDLE_ROUNDS: Final = 5
IDLE_S: Final = 2.0
SETTLING_S: Final = 1.0
TOPICS: Final = (100, 1_000, 10_000)
TRIES: Final = 51
BOUNDS: Final = {"produce_cpu": 1.15, "idle_cpu": 1.3, "rate": 0.85}


def measured(cluster: replog.Cluster, producer: replog.Producer, body: bytes) -> dict[str, float]:
    """One round of one cluster."""

    def one_at_a_time() -> None:
        for _ in range(BATCHES):
            producer.send("t", body, partition=7).result()

    def pipelined() -> None:
        for number in range(BATCHES):
            producer.send("t", body, partition=number % 10)
        producer.flush()

    begun = time.thread_time()
    one_at_a_time()
    spent = time.thread_time() - begun
    return {"produce_cpu": spent / BATCHES, "rate": BATCHES / timed(pipelined)}


def idle_cpu(cluster: replog.Cluster) -> float:
    """Processor time, as a share of a core, while somebody waits for a record that does not come."""
    cluster._driver.wait(lambda: False, SETTLING_S)  # what became due while others had their turn
    begun = time.thread_time()
    cluster._driver.wait(lambda: False, IDLE_S)
    return (time.thread_time() - begun) / IDLE_S


def test_growth(benchmark: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """All clusters are open at once, and take turns."""
    body = os.urandom(BATCH)
    found: dict[int, dict[str, list[float]]] = {count: {name: [] for name in BOUNDS} for count in COUNTS}
    with ExitStack() as stack:
        running = {}
        for count in COUNTS:
            cluster = stack.enter_context(replog.Cluster(tmp_path / str(count), config={"checkpoint_interval_ms": 600_000}))
            cluster.create_topic("t", partitions=count, min_isr=2, retention_bytes=64 << 20, segment_bytes=16 << 20, timeout_s=120)
            cluster.wait_until_in_sync(timeout_s=120)
            producer = stack.enter_context(cluster.producer(compression=None, batch_bytes=BATCH + 200))
            running[count] = (cluster, producer)
        for number in range(ROUNDS + 1):
            for count in COUNTS if number % 2 else COUNTS[::-1]:
                for name, value in measured(*running[count], body).items():
                    if number:  # the first round warms up
                        found[count][name].append(value)
        for number in range(IDLE_ROUNDS):
            for count in COUNTS if number % 2 else COUNTS[::-1]:
                found[count]["idle_cpu"].append(idle_cpu(running[count][0]))
    benchmark.pedantic(lambda: None, rounds=1)
    middle = {name: {count: statistics.median(found[count][name]) for count in COUNTS} for name in BOUNDS}
    targets: list[Target] = []
    figures: dict[str, float] = {}
    for name, bound in BOUNDS.items():
        some = middle[name]
        figures |= {f"{name}_{count}_over_10": some[count] / some[10] for count in COUNTS[1:]}
        targets.append((at_least if name == "rate" else at_most)(f"{name}_10000_over_10", bound))
        times: dict[float, float] = {count: some[10] / some[count] if name == "rate" else some[count] / some[10] for count in COUNTS}
        line = "time of a pipelined batch" if name == "rate" else name
        draw(benchmark, "partitions", line, list(times.items()))
        draw(benchmark, "partitions", f"limit: {line}", [(count, 1 / bound if name == "rate" else bound) for count in COUNTS])
    figures |= {"produce_cpu_us": middle["produce_cpu"][10] * 1e6, "idle_core": middle["idle_cpu"][10]}
    report(benchmark, capsys, "10,000 partitions / ten", figures, *targets)


def test_a_topic_more(benchmark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found: dict[int, dict[str, float]] = {}
    with replog.Cluster() as cluster:

        def make(name: str) -> None:
            cluster.create_topic(name)
            cluster.append(name, 0, [b"x"])

        for before, count in pairwise((0, *TOPICS)):
            for number in range(before, count):
                make(f"t{number}")
            times = [
                (timed(partial(make, f"more{number}")), timed(partial(cluster.delete_topic, f"more{number}"))) for number in range(TRIES)
            ]
            found[count] = dict(zip(("made", "deleted"), map(statistics.median, zip(*times, strict=True)), strict=True))
    benchmark.pedantic(lambda: None, rounds=1)
    first = TOPICS[0]
    figures = {f"{name}_{count}_over_{first}": found[count][name] / found[first][name] for count in TOPICS[1:] for name in found[first]}
    targets = [at_most(f"{name}_{TOPICS[-1]}_over_{first}", 1.5) for name in found[first]]
    report(benchmark, capsys, "a topic more, of N", {f"{name}_ms": value * 1e3 for name, value in found[first].items()} | figures, *targets)
