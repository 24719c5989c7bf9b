"""Three times the load that three brokers can take, for a minute, and what is left of it afterwards (RELIABILITY R26).

Run with `pytest benchmarks/test_overload.py --benchmark-enable -s`. Three broker processes over a store file and a topic of six partitions,
acks=all, batches of a hundred records of 1,000 bytes. `capacity`: what writing processes bring that have as much under way as they can; one
is added as long as that brings more. Then three times as many offer three times the capacity for a minute, at that rate whatever becomes of
it: what finds a writer's buffer full is refused there. `offered` and `goodput`: what they offered, and what was acknowledged, against the
capacity. Then as many as brought the capacity offer half of it: `recovered_s` is how long it takes from the end of the overload until all
that was taken has its outcome, and no record of these has waited for more than a second. No broker may have lost its session or grown out
of bounds, and nothing that was taken may have been given up.

Writers share the processors with the brokers: where these are few, `offered` may stay below three, and what writers take the brokers lack.
So it is measured twice: as it comes, and with writers at nice 19, who leave the brokers nearly all that these ask for.
`brokers_had` is the processor time of the brokers for each second of the overload, of what they had at capacity; `per_cpu` is what they
acknowledged for each second of it, of the same at capacity. `spread` is what so many writers bring that offer no more than the capacity
between them, of the capacity: what it costs that they are many. `of_spread` is the goodput of that: what the overload costs besides.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import evolve, frozen
from benchmarks.measuring import report
from benchmarks.targets import at_least, at_most
from benchmarks.writers import Writers, cpu_s, rss_bytes

import replog
from replog.testing.eventually import eventually

pytestmark = [pytest.mark.processes, pytest.mark.long]

PARTITIONS: Final = 6
KEPT: Final = {"retention_bytes": 256 << 20, "segment_bytes": 64 << 20}
"""Six gigabytes with three copies, and what is written within a second, however long it takes."""
SIZE: Final = 1_000
TOGETHER: Final = 100
TIMES: Final = 3
WARMING_S: Final = 3.0
CAPACITY_S: Final = 20.0
MORE: Final = 1.05
"""A writer that is added brings more if it brings so many times what those before it have."""
WRITERS_MAX: Final = 12
OVERLOAD_S: Final = 60.0
PATIENCE_S: Final = 30.0
GROWTH_MAX: Final = 512 << 20
"""The bound of what a broker holds of frames that have partly arrived (`TcpLimits.receive_bytes_max`)."""


def writing(bootstrap: str, nice: int, processes: int, records_per_s: float = 0) -> Writers:
    """So many writers of the topic; without a rate they have as much under way as they can."""
    return Writers(
        bootstrap, "t", PARTITIONS, processes=processes, size=SIZE, records_per_s=records_per_s, together=TOGETHER, nice=nice
    )


@frozen
class Capacity:
    """The highest rate, records per second."""

    rate: float
    writers: int
    """How many brought it first."""
    cpu: float
    """Processor seconds of the brokers in each second of it."""


def capacity_of(bootstrap: str, brokers: Sequence[replog.BrokerProcess], nice: int) -> Capacity:
    best = Capacity(0.0, 0, 0.0)
    for count in range(1, WRITERS_MAX + 1):
        with writing(bootstrap, nice, count) as writers:
            rates, cpu = steady(writers, brokers)
            found = Capacity(rates["acknowledged"], count, cpu)
        if found.rate < MORE * best.rate:
            return max(best, evolve(found, writers=best.writers), key=lambda one: one.rate)
        best = found
    raise AssertionError(f"with {WRITERS_MAX} writers the rate still rises")


def rates_of(writers: Writers, brokers: Sequence[replog.BrokerProcess], seconds: float) -> tuple[dict[str, float], float]:
    """(records per second in the next so many seconds, processor seconds of the brokers in each of them)."""
    before = [cpu_s(one.pid) for one in brokers]
    rates = writers.rates(seconds)
    return rates, sum(cpu_s(one.pid) - was for one, was in zip(brokers, before, strict=True)) / seconds


def steady(writers: Writers, brokers: Sequence[replog.BrokerProcess]) -> tuple[dict[str, float], float]:
    """As `rates_of`, once all writers are there and warm."""
    eventually(writers.all_there, PATIENCE_S * 2)
    writers.per_second(WARMING_S)
    return rates_of(writers, brokers, CAPACITY_S)


@pytest.mark.parametrize("nice", [0, 19])
def test_overload(nice: int, tmp_path: Path, benchmark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    store = f"file://{tmp_path / 'store.db'}"
    with ExitStack() as stack:
        config = {"retention_check_ms": 1_000}
        processes = [
            stack.enter_context(replog.BrokerProcess(n, data=tmp_path / f"b{n}", store=store, config=config)) for n in (1, 2, 3)
        ]
        bootstrap = ",".join(one.endpoint for one in processes)
        client = stack.enter_context(replog.connect(bootstrap))
        client.create_topic("t", partitions=PARTITIONS, replication_factor=3, min_isr=2, config=KEPT)
        epochs = {one.broker_id: one.broker_epoch for one in client.describe_cluster().brokers}
        capacity = capacity_of(bootstrap, processes, nice)
        before = [rss_bytes(one.pid) for one in processes]
        with writing(bootstrap, nice, TIMES * capacity.writers, capacity.rate) as writers:
            spread = steady(writers, processes)[0]["acknowledged"] / capacity.rate
        failed = writers.failed
        with writing(bootstrap, nice, TIMES * capacity.writers, TIMES * capacity.rate) as writers:
            eventually(writers.all_there, PATIENCE_S * 2)
            overload, cpu = rates_of(writers, processes, OVERLOAD_S)
            begun = time.monotonic()
            grown = max(rss_bytes(one.pid) - was for one, was in zip(processes, before, strict=True))
        failed += writers.failed
        with writing(bootstrap, nice, capacity.writers, capacity.rate / 2) as writers:
            eventually(lambda: max(writers.waits_ms(1), default=1e9) <= 1_000 and writers.all_there(), PATIENCE_S * 2, every_s=0)
            recovered_s = time.monotonic() - begun
        failed += writers.failed
        kept = {one.broker_id: one.broker_epoch for one in client.describe_cluster().brokers} == epochs
    benchmark.pedantic(lambda: None)
    goodput, had = overload["acknowledged"] / capacity.rate, cpu / capacity.cpu
    figures = {
        "capacity_per_s": capacity.rate, "writers": capacity.writers, "offered": overload["offered"] / capacity.rate,
        "goodput": goodput, "spread": spread, "of_spread": goodput / spread, "brokers_had": had, "per_cpu": goodput / had,
        "recovered_s": recovered_s, "grown_mib": grown / (1 << 20), "failed": failed, "sessions_kept": kept, "load": os.getloadavg()[0],
    }  # fmt: skip
    targets = [at_least("goodput", 0.8), at_most("recovered_s", PATIENCE_S), at_most("grown_mib", GROWTH_MAX >> 20)]
    report(benchmark, capsys, f"three times the load, nice {nice}", figures, *targets)
    assert failed == 0
    assert kept
    shutil.rmtree(tmp_path)  # gigabytes, and pytest keeps the folders of three runs
