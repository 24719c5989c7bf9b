"""What the benchmarks share: loops that take turns, reports, and the processes that are measured."""

from __future__ import annotations

import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.targets import Target

import replog

__all__ = ["brokers", "by_turns", "cpu_us", "draw", "in_turns", "last_percent", "raw_peer", "report", "share", "timed", "times_of"]

# Answers a byte for every so many bytes.
_PEER = """
import socket, sys
every = int(sys.argv[1])
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
peer, _ = server.accept()
peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
got, buffer = 0, bytearray(1 << 20)
while count := peer.recv_into(buffer):
    got += count
    while got >= every:
        got -= every
        peer.sendall(b"!")
"""


def timed(loop: Callable[[], object]) -> float:
    """Seconds that a loop takes."""
    started = time.perf_counter()
    loop()
    return time.perf_counter() - started


def times_of(call: Callable[[], object], count: int) -> list[float]:
    """Seconds of each of so many calls, one after the other."""
    return [timed(call) for _ in range(count)]


def in_turns(
    ours: Callable[[], object], other: Callable[[], object], rounds: int, *, before: Callable[[], object] = lambda: None
) -> list[tuple[float, float]]:
    """(seconds of ours, seconds of the other) per round, as `by_turns` has them."""
    taken = by_turns({"ours": ours, "other": other}, rounds, before=before)
    return list(zip(taken["ours"], taken["other"], strict=True))


def by_turns(
    loops: Mapping[str, Callable[[], object]], rounds: int, *, before: Callable[[], object] = lambda: None
) -> dict[str, list[float]]:
    """Seconds of each loop by round; one round more before them, which warms up, does not count.

    Neither does `before`, which comes before each loop. The order changes with each round: whoever runs first after files
    were emptied gets the pages that were just freed.
    """
    taken: dict[str, list[float]] = {name: [] for name in loops}
    for number in range(rounds + 1):
        for name in loops if number % 2 else reversed(list(loops)):
            before()
            taken[name].append(timed(loops[name]))
    return {name: seconds[1:] for name, seconds in taken.items()}


def share(limit: list[float], mine: list[float]) -> float:
    """The rate of mine as a share of the limit's: the median over rounds of seconds that do the same work."""
    return statistics.median(other / own for own, other in zip(mine, limit, strict=True))


def last_percent(taken: list[float]) -> float:
    """The 99th percentile of at least two samples."""
    return statistics.quantiles(taken, n=100)[98]


def cpu_us(pid: int) -> float:
    """Processor time of a process so far, all of its threads, as the scheduler counts it."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e3


def report(benchmark: Any, capsys: Any, name: str, figures: dict[str, float], *targets: Target) -> None:
    """Print the figures and what they should reach, and leave both in the benchmark's report.

    A target that is missed fails nothing: the machine may be to blame. Raises KeyError for a target of a figure that is not there.
    """
    rounded = {key: float(f"{value:.4g}") for key, value in figures.items()}
    aims = [f"{target.figure} {target} is {'reached' if target.reached(rounded[target.figure]) else 'MISSED'}" for target in targets]
    benchmark.extra_info.setdefault("tables", []).append(
        {"name": name, "figures": rounded, "targets": [target.to_json() for target in targets]}
    )
    with capsys.disabled():
        print(f"\n{name}: {rounded}", *aims, sep="; ")


def draw(benchmark: Any, plot: str, line: str, points: list[tuple[float, float]]) -> None:
    """Leave one line of a plot in the benchmark's report; `plots.py` has the plots."""
    benchmark.extra_info.setdefault("lines", []).append({"plot": plot, "line": line, "points": points})


@contextmanager
def brokers(folder: Path) -> Iterator[list[str]]:
    """Three broker processes that share a store file; yields their endpoints."""
    store = f"file://{folder / 'store.db'}"
    with ExitStack() as started:
        processes = [started.enter_context(replog.BrokerProcess(n, data=folder / f"b{n}", store=store)) for n in (1, 2, 3)]
        yield [one.endpoint for one in processes]


@contextmanager
def raw_peer(every: int) -> Iterator[socket.socket]:
    """A connection to a process that answers a byte for every `every` bytes."""
    command = [sys.executable, "-c", _PEER, str(every)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        with socket.create_connection(("127.0.0.1", int(process.stdout.readline()))) as peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield peer
