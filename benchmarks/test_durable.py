"""Appends that are on disk before they are acknowledged (flush="ack"), against one write and one fdatasync per append.

Run with `pytest benchmarks/test_durable.py --benchmark-enable -s`. Three copies, one partition, 100 bytes each; `under_way.py` has the ways
in which 64 are under way, and `batches` says how many batches a round of them was. `ratio`: their rate against the bare loop, which has one
file and no copy; both take turns. `three_fsyncs`: a write and an fdatasync of three files at once by three threads, which is what three
copies on one disk have to wait for at least. `p99_over_...` compares the 99th percentile of the appends with the median, and with the
99th percentile, of one fdatasync and of three at once. The folder has to be on a real disk; all copies share it.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from benchmarks.disk import Disk
from benchmarks.measuring import brokers, last_percent, report, times_of
from benchmarks.targets import at_least, at_most
from benchmarks.under_way import UNDER_WAY, WAYS, rate_of, waits_of

import replog
from replog.log.files import OS
from replog.log.scan import steps

pytestmark = pytest.mark.processes

ROUNDS: Final = 15
FSYNCS: Final = 10
ALONE: Final = 5
BODY: Final = b"x" * 100
COPIES: Final = 3


@contextmanager
def clients(where: str, folder: Path) -> Iterator[replog.Client]:
    """A client of three brokers."""
    with ExitStack() as stack:
        if where == "one process":
            yield stack.enter_context(replog.Cluster(folder / "data"))
        else:
            yield stack.enter_context(replog.connect(stack.enter_context(brokers(folder))))


def batches_in(folder: Path, topic_id: str) -> int:
    """Batches of one copy of the only partition of a topic."""
    path = next(folder.rglob(f"{topic_id}-0-*/*.log"))
    fd = os.open(path, os.O_RDONLY)
    try:
        return len(list(steps(OS, fd, 0, path.stat().st_size, 0)))
    finally:
        os.close(fd)


def fsyncs_of(disk: Disk, *, three_first: bool) -> tuple[list[float], list[float]]:
    """Seconds of some of one file, and of some of three at once. Whoever is first may still wait for what others have written."""
    three = [disk.seconds_of_all() for _ in range(FSYNCS)] if three_first else []
    one = times_of(disk.write_to_one, FSYNCS)
    return one, three or [disk.seconds_of_all() for _ in range(FSYNCS)]


@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("where", ["one process", "processes"])
def test_durable_appends(benchmark: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path, where: str, way: str) -> None:
    """One at a time, and 64 under way. No aim where five of the 64 are: with threads."""
    waits: list[float] = []
    rates: dict[str, list[float]] = {"one": [], "many": [], "bare": []}
    taken: dict[str, list[float]] = {"fsync": [], "three_fsyncs": []}
    with clients(where, tmp_path) as client, Disk(tmp_path, files=COPIES) as disk:
        for topic in ("many", "one"):
            client.create_topic(topic, flush="ack", min_isr=2)
        with WAYS[way](client, "many", BODY) as many:
            for number in range(ROUNDS + 1):
                spans = many()
                fsyncs, three = fsyncs_of(disk, three_first=bool(number % 2))
                alone = times_of(lambda: client.append("one", 0, [BODY]), ALONE)
                if not number:
                    continue  # the first round warms up
                waits += waits_of(spans)
                taken["fsync"] += fsyncs
                taken["three_fsyncs"] += three
                for name, rate in (("many", rate_of(spans)), ("bare", FSYNCS / sum(fsyncs)), ("one", ALONE / sum(alone))):
                    rates[name].append(rate)
        topic_id = client.describe("many").topic_id
    benchmark.pedantic(lambda: None, rounds=1)
    figures = {"ratio": statistics.median(ours / bare for ours, bare in zip(rates["many"], rates["bare"], strict=True))}
    for name, seconds in taken.items():
        figures[f"p99_over_{name}"] = last_percent(waits) / statistics.median(seconds)
        figures[f"p99_over_{name}_p99"] = last_percent(waits) / last_percent(seconds)
        figures |= {f"{name}_ms": statistics.median(seconds) * 1e3, f"{name}_p99_ms": last_percent(seconds) * 1e3}
    figures["p50_over_fsync"] = statistics.median(waits) / statistics.median(taken["fsync"])
    figures["one_at_a_time_ratio"] = statistics.median(ours / bare for ours, bare in zip(rates["one"], rates["bare"], strict=True))
    figures |= {"appends_per_s": statistics.median(rates["many"]), "batches": batches_in(tmp_path, topic_id) / (ROUNDS + 1)}
    targets = [] if way == "threads" else [at_least("ratio", 10), at_most("p99_over_fsync", 3)]
    report(benchmark, capsys, f'flush="ack", 64 under way: {way}, {where} / a write and an fsync per append', figures, *targets)
    assert len(waits) == ROUNDS * UNDER_WAY
