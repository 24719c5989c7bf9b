"""Whether followers keep up with a leader that acknowledges alone: a writer sends as fast as it can with acks=1.

Run with `pytest benchmarks/test_keeping_up.py --benchmark-enable -s`. Three broker processes and a writing process share the processors.
Meanwhile this process appends single records with acks=all: each is acknowledged when every follower in sync has come as far as the
leader was when it came, so the longest wait bounds how far they were behind (it includes the leader's queue). `lag_s` is that longest
wait. All three replicas must be in sync at the end: a follower that was left out would be waited for by nobody.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from benchmarks.measuring import brokers, last_percent, report, timed
from benchmarks.targets import at_most
from benchmarks.writers import Writers

import replog

pytestmark = pytest.mark.processes

SECONDS: Final = 8.0
PAUSE_S: Final = 0.02
COUNTS: Final = [1, 100, pytest.param(10_000, marks=pytest.mark.long)]


@pytest.mark.parametrize("in_a_row", [200, pytest.param(1, marks=pytest.mark.long)], ids=["batches", "single records"])
@pytest.mark.parametrize("partitions", COUNTS)
def test_followers_keep_up(benchmark: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path, partitions: int, in_a_row: int) -> None:
    """100 bytes a record; 200 in a row go to one partition, so that they share batches, or each goes to the next."""
    never = threading.Event()
    waits: list[float] = []
    with ExitStack() as stack:
        endpoints = stack.enter_context(brokers(tmp_path))
        client = stack.enter_context(replog.connect(endpoints))
        client.create_topic("t", partitions=partitions, min_isr=2, retention_bytes=1 << 30, timeout_s=120)
        with Writers(",".join(endpoints), "t", partitions, processes=1, acks="1", in_a_row=in_a_row) as writers:
            writers.per_second(2)
            begun = time.monotonic()
            done = writers.acknowledged
            while time.monotonic() - begun < SECONDS:
                waits.append(timed(lambda: client.append("t", len(waits) % partitions, [b"x"])))
                never.wait(PAUSE_S)
            rate = (writers.acknowledged - done) / (time.monotonic() - begun)
            in_sync = [len(one.isr) for one in client.describe("t").partitions]
        assert writers.failed == 0
    benchmark.pedantic(lambda: None, rounds=1)
    assert in_sync == [3] * partitions
    figures = {"lag_s": max(waits), "lag_p99_s": last_percent(waits), "records_per_s": rate, "looks": len(waits)}
    name = f"followers at the highest rate of acks=1, {partitions:,} partitions, {in_a_row} in a row"
    report(benchmark, capsys, name, figures, at_most("lag_s", 1))
