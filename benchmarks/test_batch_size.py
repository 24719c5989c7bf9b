"""Throughput against the size of a batch: three copies, acks=all, 1 KiB to 1 MiB, each against its limit in the same run.

Run with `pytest benchmarks/test_batch_size.py --benchmark-enable -s`. `one process`: against three bare os.write of the same bytes.
`processes`: three broker processes and a client, against the same bytes to one process that only counts them. Batches of one record, 32
under way at most, over eight partitions.
"""

from __future__ import annotations

import os
import statistics
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from benchmarks.measuring import brokers, draw, in_turns, raw_peer, report

import replog

pytestmark = pytest.mark.processes

ROUNDS: Final = 5
SIZES: Final = tuple(1 << power for power in range(10, 21, 2))
UNDER_WAY: Final = 32
PARTITIONS: Final = 8
BYTES: Final = {"one process": 8 << 20, "processes": 4 << 20}
"""Of one loop, at most; and no more than 500 batches."""
LIMITS: Final = {"one process": "three os.write", "processes": "one bare stream of TCP"}


def rates(client: replog.Client, limit: Any, size: int, total: int) -> tuple[float, float]:
    """(our MB/s, those of the limit), medians."""
    bodies = [os.urandom(size) for _ in range(max(UNDER_WAY, min(500, total // size)))]
    if size == SIZES[-1]:
        bodies = bodies[: total // size]
    with client.producer(compression=None, batch_bytes=size + 200, buffer_bytes=UNDER_WAY * (size + 1_000)) as producer:

        def ours() -> None:
            for number, body in enumerate(bodies):
                producer.send("t", body, partition=number % PARTITIONS)
            producer.flush()

        pairs = in_turns(ours, lambda: limit(bodies), ROUNDS)
    megabytes = size * len(bodies) / 1e6
    return megabytes / statistics.median(mine for mine, _ in pairs), megabytes / statistics.median(other for _, other in pairs)


@pytest.mark.parametrize("where", list(BYTES))
def test_batch_sizes(benchmark: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path, where: str) -> None:
    """`..._ratio`: share of the limit."""
    figures: dict[str, float] = {}
    bound = f"limit: {LIMITS[where]}"
    lines: dict[str, list[tuple[float, float]]] = {where: [], bound: []}
    with ExitStack() as stack:
        if where == "one process":
            client: replog.Client = stack.enter_context(replog.Cluster(tmp_path / "data", config={"checkpoint_interval_ms": 600_000}))
            files = [os.open(tmp_path / f"bare-{n}", os.O_RDWR | os.O_CREAT) for n in range(3)]
            for file in files:
                stack.callback(os.close, file)

            def limit(bodies: list[bytes]) -> None:
                for body in bodies:
                    for file in files:
                        os.write(file, body)

        else:
            client = stack.enter_context(replog.connect(stack.enter_context(brokers(tmp_path))))
            peer = stack.enter_context(raw_peer(1 << 20))

            def limit(bodies: list[bytes]) -> None:
                sent = 0
                for body in bodies:
                    peer.sendall(body)
                    sent += len(body)
                peer.sendall(bytes(-sent % (1 << 20)))  # it answers each full MiB
                for _ in range(-(-sent // (1 << 20))):
                    peer.recv(1)

        client.create_topic("t", partitions=PARTITIONS, min_isr=2, segment_bytes=16 << 20, retention_bytes=64 << 20)
        for size in SIZES:
            mine, other = rates(client, limit, size, BYTES[where])
            figures |= {f"{size >> 10}_kib_ratio": mine / other, f"{size >> 10}_kib_mb_per_s": mine}
            lines[where].append((size, mine))
            lines[bound].append((size, other))
    benchmark.pedantic(lambda: None, rounds=1)
    for line, points in lines.items():
        draw(benchmark, "throughput", line, points)
    report(benchmark, capsys, f"rate by batch size, {where} / its limit", figures)
