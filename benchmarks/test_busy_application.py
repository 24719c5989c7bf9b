"""What a busy thread of the application does to appends: the time of one, against that without such a thread, in turns in one run.

Run with `pytest benchmarks/test_busy_application.py --benchmark-enable -s`. The busy thread is pure Python that never waits. `in the
process`: a cluster in the same process, on the caller's thread. `child processes`: three broker processes, and the caller in the process
that has the busy thread. `another client`: the same brokers, asked by a process that has none. `beside_a_busy_process` is the control:
the same work in a process of its own, which takes a core and no lock.
"""

from __future__ import annotations

import multiprocessing
import statistics
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from benchmarks.measuring import brokers, last_percent, report, times_of
from benchmarks.targets import at_most
from benchmarks.test_processes import busy, child

import replog

pytestmark = pytest.mark.processes

ROUNDS: Final = 6
APPENDS: Final = 60
"""Few: each can cost several intervals of five milliseconds."""
WHERE: Final = ("in the process", "child processes", "another client")


@contextmanager
def busy_thread() -> Iterator[None]:
    """A thread that counts until the block is left."""
    over: list[bool] = []

    def count() -> None:
        number = 0
        while not over:
            number += 1

    thread = threading.Thread(target=count)
    thread.start()
    try:
        yield
    finally:
        over.append(True)
        thread.join()


def asked(endpoints: list[str], pipe: Any) -> None:
    """In a process of its own: as many appends as it is told, and how long each took."""
    with replog.connect(endpoints) as client:
        while count := pipe.recv():
            pipe.send(times_of(lambda: client.append("t", 0, [b"x" * 100]), count))


@contextmanager
def appends(where: str, folder: Path) -> Iterator[Callable[[], list[float]]]:
    """What makes some appends and returns the seconds of each."""
    with ExitStack() as stack:
        if where == "in the process":
            client: replog.Client = stack.enter_context(replog.Cluster(folder))
            endpoints = []
        else:
            endpoints = stack.enter_context(brokers(folder))
            client = stack.enter_context(replog.connect(endpoints))
        client.create_topic("t")
        if where != "another client":
            yield lambda: times_of(lambda: client.append("t", 0, [b"x" * 100]), APPENDS)
            return
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(target=asked, args=(endpoints, there), daemon=True)
        process.start()

        def elsewhere() -> list[float]:
            here.send(APPENDS)
            found: list[float] = here.recv()
            return found

        yield elsewhere
        here.send(0)
        process.join(30)


@pytest.mark.parametrize("where", WHERE)
def test_busy_thread(benchmark: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path, where: str) -> None:
    """Medians of single appends of 100 bytes, acks=all, three copies."""
    idle: list[float] = []
    beside_thread: list[float] = []
    beside_process: list[float] = []
    with appends(where, tmp_path) as some:
        some()
        for _ in range(ROUNDS):
            idle += some()
            with busy_thread():
                beside_thread += some()
            with child(busy):
                beside_process += some()
    benchmark.pedantic(lambda: None, rounds=1)
    p50, quiet_p50 = statistics.median(beside_thread), statistics.median(idle)
    figures = {
        "busy_over_idle": p50 / quiet_p50,
        "beside_a_busy_process": statistics.median(beside_process) / quiet_p50,
        "idle_us": quiet_p50 * 1e6,
        "busy_us": p50 * 1e6,
        "busy_p99_us": last_percent(beside_thread) * 1e6,
    }
    report(benchmark, capsys, f"an append beside a busy thread, {where} / without", figures, at_most("busy_over_idle", 2))
