"""A client of brokers in other processes against the loopback: each figure is a ratio of two loops that take turns in one run.

Run with `pytest benchmarks/test_client.py --benchmark-enable -s`. Three broker processes share a file store; the
client, the brokers and the raw peer all have the same processors to themselves, or not. Medians are reported.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks.measuring import brokers, in_turns, last_percent, raw_peer, report, timed, times_of
from benchmarks.targets import at_most

import replog

ROUNDS = 10
BATCH = 16 << 10
IN_FLIGHT = 32


@pytest.mark.processes
def test_acknowledgement_between_processes(benchmark: Any, capsys: Any, tmp_path: Path) -> None:
    """100 bytes appended and acknowledged by three broker processes, against a TCP round trip."""
    body = os.urandom(100)
    samples: dict[str, list[float]] = {"append": [], "send": [], "tcp": []}
    with brokers(tmp_path) as endpoints, raw_peer(len(body)) as peer, replog.connect(endpoints) as client:
        client.create_topic("t")
        producer = client.producer(compression=None)

        def trip() -> None:
            peer.sendall(body)
            peer.recv(1)

        calls: dict[str, Callable[[], object]] = {
            "append": lambda: client.append("t", 0, [body]),
            "send": lambda: producer.send("t", body, partition=0).result(),
            "tcp": trip,
        }
        for call in calls.values():
            timed(call)
        for _ in range(ROUNDS):
            for name, call in calls.items():
                samples[name] += times_of(call, 200)
        producer.close()
        benchmark.pedantic(lambda: None, rounds=1)
    middle = {name: statistics.median(taken) * 1e6 for name, taken in samples.items()}
    last = {f"{name}_p99_us": last_percent(taken) * 1e6 for name, taken in samples.items()}
    figures = {"append_over_tcp": middle["append"] / middle["tcp"], "send_over_tcp": middle["send"] / middle["tcp"]}
    figures |= {"p99_over_p50": last["append_p99_us"] / 1e6 / statistics.median(samples["append"])}
    figures |= {f"{name}_us": value for name, value in middle.items()} | last
    targets = [at_most("append_over_tcp", 6.5), at_most("p99_over_p50", 2)]
    report(benchmark, capsys, "100 bytes, RF 3, acks=all, processes / a TCP round trip", figures, *targets)


@pytest.mark.processes
def test_batches_in_flight_between_processes(benchmark: Any, capsys: Any, tmp_path: Path) -> None:
    """32 batches of 16 KiB under way at a time over 8 partitions, against the same bytes to one process that only counts them."""
    bodies = [os.urandom(BATCH) for _ in range(IN_FLIGHT)]
    with brokers(tmp_path) as endpoints, raw_peer(IN_FLIGHT * BATCH) as peer, replog.connect(endpoints) as client:
        client.create_topic("t", partitions=8)
        producer = client.producer(compression=None, batch_bytes=BATCH + 200)

        def ours() -> None:
            for number, body in enumerate(bodies):
                producer.send("t", body, partition=number % 8)
            producer.flush()

        def bare() -> None:
            for body in bodies:
                peer.sendall(body)
            peer.recv(1)

        pairs = in_turns(ours, bare, ROUNDS * 10)
        producer.close()
        benchmark.pedantic(lambda: None, rounds=1)
    figures = {
        "ratio": statistics.median(limit / mine for mine, limit in pairs),
        "mb_per_s": IN_FLIGHT * BATCH / 1e6 / statistics.median(mine for mine, _ in pairs),
        "us_per_batch": statistics.median(mine for mine, _ in pairs) / IN_FLIGHT * 1e6,
    }
    report(benchmark, capsys, "16 KiB, 32 in flight, RF 3, acks=all, processes / one bare stream", figures)
