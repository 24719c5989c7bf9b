"""Appends that are on disk before they are acknowledged (flush="ack"), against one write and one fdatasync per append.

Run with `pytest benchmarks/test_durable.py --benchmark-enable -s`. Three copies, one partition, 100 bytes each. `ratio`: the rate with 64
under way against the bare loop, which has one file and no copy; both take turns. `p99_over_fsync`: the 99th percentile of these
appends against the median of the bare loop. The folder has to be on a real disk; all copies share it.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from benchmarks.measuring import brokers, last_percent, report, timed, times_of
from benchmarks.targets import at_least, at_most

import replog

pytestmark = pytest.mark.processes

ROUNDS: Final = 15
UNDER_WAY: Final = 64
BODY: Final = b"x" * 100


@contextmanager
def clients(where: str, folder: Path) -> Iterator[replog.Client]:
    """A client of three brokers."""
    with ExitStack() as stack:
        if where == "one process":
            yield stack.enter_context(replog.Cluster(folder / "data"))
        else:
            yield stack.enter_context(replog.connect(stack.enter_context(brokers(folder))))


@pytest.mark.parametrize("where", ["one process", "processes"])
def test_durable_appends(benchmark: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path, where: str) -> None:
    """One at a time, and 64 under way."""
    waits: list[float] = []
    rates: dict[str, list[float]] = {"one": [], "many": [], "bare": []}
    fsyncs: list[float] = []
    file = os.open(tmp_path / "bare", os.O_RDWR | os.O_CREAT)
    with clients(where, tmp_path) as client:
        client.create_topic("t", flush="ack", min_isr=2)
        with client.producer(compression=None) as producer:

            def many() -> None:
                for _ in range(UNDER_WAY):
                    began = time.perf_counter()
                    producer.send("t", BODY, partition=0).add_done_callback(
                        lambda _, began=began: waits.append(time.perf_counter() - began)  # type: ignore[misc]
                    )
                producer.flush()

            def bare() -> None:
                os.write(file, BODY)
                os.fdatasync(file)

            for number in range(ROUNDS + 1):
                if number == 1:
                    waits.clear()  # the first round warms up
                    fsyncs.clear()
                rates["many"].append(UNDER_WAY / timed(many))
                taken = times_of(bare, 10)
                fsyncs += taken
                rates["bare"].append(len(taken) / sum(taken))
                rates["one"].append(5 / timed(lambda: [client.append("t", 0, [BODY]) for _ in range(5)]))
    os.close(file)
    benchmark.pedantic(lambda: None, rounds=1)
    assert len(waits) == ROUNDS * UNDER_WAY
    fsync_s = statistics.median(fsyncs)
    figures = {
        "ratio": statistics.median(ours / bare for ours, bare in zip(rates["many"][1:], rates["bare"][1:], strict=True)),
        "p99_over_fsync": last_percent(waits) / fsync_s,
        "p50_over_fsync": statistics.median(waits) / fsync_s,
        "one_at_a_time_ratio": statistics.median(ours / bare for ours, bare in zip(rates["one"][1:], rates["bare"][1:], strict=True)),
        "fsync_ms": fsync_s * 1e3,
        "appends_per_s": statistics.median(rates["many"][1:]),
    }
    targets = [at_least("ratio", 10), at_most("p99_over_fsync", 3)]
    report(benchmark, capsys, f'flush="ack", 64 under way, {where} / a write and an fsync per append', figures, *targets)
