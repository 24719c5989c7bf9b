"""How long an acknowledgement takes under load: from 10 % of the highest rate to all of it.

Run with `pytest benchmarks/test_latency_under_load.py --benchmark-enable -s`. Three broker processes, acks=all, batches of one record of
16 KiB over eight partitions. The highest rate is what 32 batches under way bring. Then batches are sent at a share of that rate, whether or
not those before have been acknowledged, and a batch is late from the moment at which it should have been sent: whoever waits for an answer
before he sends would not notice a queue. `idle_...`: one batch at a time. The client shares the processors with the brokers.
"""

from __future__ import annotations

import os
import statistics
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from benchmarks.measuring import brokers, draw, last_percent, raw_peer, report, times_of
from benchmarks.targets import at_most

import replog

pytestmark = pytest.mark.processes

SHARES: Final = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
SECONDS: Final = 3.0
BATCH: Final = 16 << 10
UNDER_WAY: Final = 32
PARTITIONS: Final = 8
ROUNDS: Final = 40
TICK_S: Final = 0.001


def highest_rate(producer: replog.Producer, body: bytes) -> float:
    """Batches per second with 32 under way; the median of some rounds."""

    def loop() -> None:
        for number in range(UNDER_WAY):
            producer.send("t", body, partition=number % PARTITIONS)
        producer.flush()

    return UNDER_WAY / statistics.median(times_of(loop, 2 * ROUNDS)[ROUNDS:])


def latencies(client: replog.Client, producer: replog.Producer, body: bytes, per_s: float) -> list[float]:
    """Of batches that should be sent at this rate: seconds until acknowledged, from when each should have been sent."""
    found: list[float] = []
    begun, number = time.perf_counter(), 0
    while (now := time.perf_counter()) < begun + SECONDS:
        while number <= (now - begun) * per_s:
            delivery = producer.send("t", body, partition=number % PARTITIONS)
            delivery.add_done_callback(lambda _, due=begun + number / per_s: found.append(time.perf_counter() - due))  # type: ignore[misc]
            number += 1
        client._driver.wait(lambda: False, TICK_S)
    producer.flush()
    return found


def test_latency_under_load(benchmark: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Shares of the highest rate, from the lowest up."""
    body = os.urandom(BATCH)
    with ExitStack() as stack:
        client = stack.enter_context(replog.connect(stack.enter_context(brokers(tmp_path))))
        peer = stack.enter_context(raw_peer(BATCH))
        client.create_topic("t", partitions=PARTITIONS, min_isr=2, segment_bytes=16 << 20, retention_bytes=64 << 20)
        producer = stack.enter_context(client.producer(compression=None, batch_bytes=BATCH + 200))

        def trip() -> None:
            peer.sendall(body)
            peer.recv(1)

        rate = highest_rate(producer, body)
        idle = times_of(lambda: producer.send("t", body, partition=0).result(), 300)
        trips = times_of(trip, 300)
        found = {share: latencies(client, producer, body, share * rate) for share in SHARES}
    benchmark.pedantic(lambda: None, rounds=1)
    p50 = {share: statistics.median(taken) * 1e3 for share, taken in found.items()}
    p99 = {share: last_percent(taken) * 1e3 for share, taken in found.items()}
    draw(benchmark, "latency", "50th percentile", list(p50.items()))
    draw(benchmark, "latency", "99th percentile", list(p99.items()))
    trip_ms, idle_ms = statistics.median(trips) * 1e3, statistics.median(idle) * 1e3
    draw(benchmark, "latency", "limit: a bare round trip of the same bytes", [(share, trip_ms) for share in SHARES])
    figures = {"idle_over_tcp": idle_ms / trip_ms, "idle_p99_over_p50": last_percent(idle) * 1e3 / idle_ms}
    figures |= {f"p50_at_{share:.0%}_over_idle": value / idle_ms for share, value in p50.items()}
    figures |= {f"p99_at_{share:.0%}_over_idle": value / idle_ms for share, value in p99.items()}
    figures |= {"idle_ms": idle_ms, "batches_per_s": rate, "mb_per_s": rate * BATCH / 1e6}
    report(benchmark, capsys, "an acknowledgement under load / without", figures, at_most("idle_p99_over_p50", 2))
