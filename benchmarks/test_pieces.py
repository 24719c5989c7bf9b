"""Three copies of batches of 1 MiB between processes, against the sum of the pieces that no replication can do without.

Run with `pytest benchmarks/test_pieces.py --benchmark-enable -s`. One partition, batches of one record, four under way, acks=all. A round
has a turn of the pieces, of acks=all and of acks=1. `of_pieces`: the rate, as a share of what all cores that this process may use would
bring if they did nothing but the pieces: 1 MiB into a socket and out of it, three times into a file and through crc32c, twice from a file
into a socket and out of it. `cpu_us`: processor time of the client and of the three brokers for each MiB acknowledged;
`..._us` of a piece: its processor time. `all_of_one`: the rate of acks=all, as a share of that of acks=1.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from benchmarks.measuring import cpu_us, report, timed
from benchmarks.pieces import MIB, Pieces
from benchmarks.targets import at_least, at_most

import replog

pytestmark = pytest.mark.processes

ROUNDS: Final = 9
BATCHES: Final = 32
PIECES: Final = 16
UNDER_WAY: Final = 4
COPIES: Final = 3


@contextmanager
def client_of(folder: Path) -> Iterator[tuple[replog.Client, list[int]]]:
    """A client with at most four batches of a partition under way, and the processes that share the work: itself and three brokers."""
    with ExitStack() as stack:
        store = f"file://{folder / 'store.db'}"
        some = [stack.enter_context(replog.BrokerProcess(n, data=folder / f"b{n}", store=store)) for n in range(1, COPIES + 1)]
        client = stack.enter_context(replog.connect([one.endpoint for one in some], config={"max_in_flight": UNDER_WAY}))
        client.create_topic("t", min_isr=2, segment_bytes=64 << 20, retention_bytes=128 << 20)
        yield client, [os.getpid(), *(one.pid for one in some)]


def sending(producer: replog.Producer, bodies: Sequence[bytes]) -> Callable[[], None]:
    """All of them, until the last is acknowledged."""

    def send() -> None:
        for body in bodies:
            producer.send("t", body, partition=0)
        producer.flush()

    return send


def test_pieces(benchmark: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Before each turn every follower has everything: what acks=1 leaves to do is not done in the turn of another."""
    cores = len(os.sched_getaffinity(0))
    bodies = [os.urandom(MIB) for _ in range(BATCHES)]
    found: dict[str, list[float]] = {name: [] for name in ("of_pieces", "all_of_one", "cpu_us", "mb_per_s", "pieces_us")}
    spent: dict[str, list[float]] = {}
    with client_of(tmp_path) as (client, processes), Pieces(tmp_path) as pieces, ExitStack() as stack:
        sizes = {"batch_bytes": MIB + 200, "buffer_bytes": 2 * UNDER_WAY * MIB}
        loops = {
            "all": sending(stack.enter_context(client.producer(compression=None, **sizes)), bodies),
            "one": sending(stack.enter_context(client.producer(acks=1, compression=None, **sizes)), bodies),
        }
        for number in range(ROUNDS + 1):
            each, seconds, cpu = pieces.measured(PIECES), {}, {}
            for acks in loops if number % 2 else reversed(list(loops)):
                client.append("t", 0, [b"x"])
                before = sum(map(cpu_us, processes))
                seconds[acks] = timed(loops[acks])
                cpu[acks] = sum(map(cpu_us, processes)) - before
            if not number:
                continue  # the first round warms up
            for name, value in attrs.asdict(each).items():
                spent.setdefault(f"{name}_us", []).append(value)
            found["pieces_us"].append(each.of_copies(COPIES))
            found["of_pieces"].append(each.of_copies(COPIES) / 1e6 / cores * BATCHES / seconds["all"])
            found["all_of_one"].append(seconds["one"] / seconds["all"])
            found["cpu_us"].append(cpu["all"] / BATCHES)
            found["mb_per_s"].append(BATCHES * MIB / 1e6 / seconds["all"])
    benchmark.pedantic(lambda: None, rounds=1)
    figures = {name: statistics.median(values) for name, values in (found | spent).items()} | {"cores": cores}
    targets = [at_least("of_pieces", 0.75), at_most("cpu_us", 900), at_least("all_of_one", 0.9)]
    report(benchmark, capsys, "RF 3, acks=all, 1 MiB, four under way / the sum of its pieces", figures, *targets)
