"""Three times the load that three brokers can take, for a minute, and what is left of it afterwards (RELIABILITY R26).

Run with `pytest benchmarks/test_overload.py --benchmark-enable -s`. Three broker processes over a store file and a topic of six partitions,
acks=all. `capacity`: what one writing process brings when it has as much under way as it can. Then three of them for a minute, `goodput`:
what is acknowledged, against the capacity. Then one at half of the capacity: `recovered_s` is how long it takes until
no record has waited for more than a second. No broker may have lost its session or grown out of bounds, and nothing may
have been given up. Writers share the processors with the brokers.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from benchmarks.measuring import report
from benchmarks.targets import at_least, at_most
from benchmarks.writers import Writers, rss_bytes

import replog
from replog.testing.eventually import eventually

pytestmark = [pytest.mark.processes, pytest.mark.long]

PARTITIONS: Final = 6
SIZE: Final = 1_000
CAPACITY_S: Final = 20.0
OVERLOAD_S: Final = 60.0
PATIENCE_S: Final = 30.0
GROWTH_MAX: Final = 512 << 20
"""The bound of what a broker holds of frames that have partly arrived (`TcpLimits.receive_bytes_max`)."""


def test_overload(tmp_path: Path, benchmark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    store = f"file://{tmp_path / 'store.db'}"
    with ExitStack() as stack:
        processes = [stack.enter_context(replog.BrokerProcess(n, data=tmp_path / f"b{n}", store=store)) for n in (1, 2, 3)]
        bootstrap = ",".join(one.endpoint for one in processes)
        client = stack.enter_context(replog.connect(bootstrap))
        client.create_topic("t", partitions=PARTITIONS, replication_factor=3, min_isr=2, config={"retention_bytes": 1 << 30})
        epochs = {one.broker_id: one.broker_epoch for one in client.describe_cluster().brokers}
        with Writers(bootstrap, "t", PARTITIONS, processes=1, size=SIZE) as writers:
            writers.per_second(3)
            capacity = writers.per_second(CAPACITY_S)
        before = [rss_bytes(one.pid) for one in processes]
        with Writers(bootstrap, "t", PARTITIONS, processes=3, size=SIZE) as writers:
            goodput = writers.per_second(OVERLOAD_S)
            grown = max(rss_bytes(one.pid) - was for one, was in zip(processes, before, strict=True))
        failed = writers.failed
        begun = time.monotonic()
        with Writers(bootstrap, "t", PARTITIONS, processes=1, size=SIZE, records_per_s=capacity / 2) as writers:
            eventually(lambda: max(writers.waits_ms(3), default=1e9) <= 1_000, PATIENCE_S * 2, every_s=0)
            recovered_s = time.monotonic() - begun
        failed += writers.failed
        kept = {one.broker_id: one.broker_epoch for one in client.describe_cluster().brokers} == epochs
    benchmark.pedantic(lambda: None)
    figures = {
        "capacity_per_s": capacity, "goodput": goodput / capacity, "recovered_s": recovered_s, "grown_mib": grown / (1 << 20),
        "failed": failed, "sessions_kept": kept, "load": os.getloadavg()[0],
    }  # fmt: skip
    targets = [at_least("goodput", 0.8), at_most("recovered_s", PATIENCE_S), at_most("grown_mib", GROWTH_MAX >> 20)]
    report(benchmark, capsys, "three times the load", figures, *targets)
    assert failed == 0
    assert kept
