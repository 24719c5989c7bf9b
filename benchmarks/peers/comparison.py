"""The two questions that every peer is asked beside replog: one append acknowledged, and as many records as it can take.

Three broker processes and a client against three servers of the peer and its Python client, on the same processors and disk, in
turns. A ratio says how many times as fast as the peer replog is: the median of the rounds, with the lowest and the highest. Nothing
is fsynced before it is acknowledged, by either side, unless that is the peer's default.
"""

from __future__ import annotations

import os
import shutil
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.measuring import brokers, in_turns, report, times_of
from benchmarks.targets import at_least

import replog
from replog.client.columns import ROW_BYTES

__all__ = ["BATCH", "RECORD", "bulk", "client_of_brokers", "compare_acknowledgements", "compare_bulk"]

RECORD = 100
BATCH = 16 << 10
IN_FLIGHT = 32
PARTITIONS = 8
MEGABYTE = 1e6


@contextmanager
def client_of_brokers(folder: Path) -> Iterator[replog.Client]:
    """A client of three broker processes with a topic `t`. What is in the folder is removed at the end: it may be hundreds of megabytes."""
    try:
        with brokers(folder) as endpoints, replog.connect(endpoints) as client:
            client.create_topic("t", partitions=PARTITIONS)
            yield client
    finally:
        shutil.rmtree(folder)


@contextmanager
def bulk(client: replog.Client, turns: int, size: int = RECORD) -> Iterator[tuple[list[bytes], Callable[[], None]]]:
    """Values for `turns` times 32 batches of 16 KiB, and what appends them.

    32 batches are under way at a time, four in each of eight partitions; the next 32 go once all are acknowledged.
    """
    per_batch = BATCH // size
    per_partition = IN_FLIGHT // PARTITIONS * per_batch
    parts = [[os.urandom(size) for _ in range(per_partition)] for _ in range(PARTITIONS)]
    with client.producer(compression=None, batch_bytes=per_batch * (size + ROW_BYTES)) as producer:

        def append() -> None:
            for _ in range(turns):
                for number, part in enumerate(parts):
                    producer.send_many("t", part, partition=number)
                producer.flush()

        yield [value for part in parts for value in part] * turns, append


def compare_bulk(
    benchmark: Any,
    capsys: Any,
    name: str,
    values: Sequence[bytes],
    ours: Callable[[], object],
    theirs: Callable[[], object],
    *,
    rounds: int,
    target: float,
    before: Callable[[], object] = lambda: None,
) -> None:
    """Report how many times as fast `ours` takes the values as `theirs`, and the target of that.

    The word before the first blank of `name` is the peer. `before` comes before each loop, and does not count.
    """
    pairs = in_turns(ours, theirs, rounds, before=before)
    benchmark.pedantic(lambda: None, rounds=1)
    sides = {"replog": statistics.median(mine for mine, _ in pairs), name.split()[0]: statistics.median(their for _, their in pairs)}
    rates = {f"{side}_records_per_s": len(values) / taken for side, taken in sides.items()}
    speeds = {f"{side}_mb_per_s": sum(map(len, values)) / MEGABYTE / taken for side, taken in sides.items()}
    figures = _ratios([their / mine for mine, their in pairs]) | rates | speeds | _circumstances(rounds)
    what = f"{len(values)} records of {len(values[0])} bytes, RF 3, acks=all"
    report(benchmark, capsys, f"{what} / {name}", figures, at_least("ratio", target))


def compare_acknowledgements(
    benchmark: Any,
    capsys: Any,
    client: replog.Client,
    name: str,
    append_each: Callable[[bytes, int], list[float]],
    *,
    acks: int,
    rounds: int,
    target: float | None = None,
) -> None:
    """Report how many times as fast an append of 100 bytes is acknowledged as by the peer, one after the other, `acks` in a round.

    `append_each(value, count)` returns the seconds that each of the peer's took. One round more comes first, and does not count.
    """
    body = os.urandom(RECORD)
    peer = name.split()[0]
    sides: dict[str, Callable[[], list[float]]] = {
        "replog": lambda: times_of(lambda: client.append("t", 0, [body]), acks),
        peer: lambda: append_each(body, acks),
    }
    kept = []
    for number in range(rounds + 1):
        order = list(sides) if number % 2 else list(reversed(sides))
        kept.append({side: sides[side]() for side in order})
    del kept[0]
    benchmark.pedantic(lambda: None, rounds=1)
    figures = _ratios([statistics.median(one[peer]) / statistics.median(one["replog"]) for one in kept])
    for side in sides:
        taken = [seconds for one in kept for seconds in one[side]]
        figures |= {f"{side}_us": statistics.median(taken) * 1e6, f"{side}_p99_us": statistics.quantiles(taken, n=100)[98] * 1e6}
    targets = [] if target is None else [at_least("ratio", target)]
    report(benchmark, capsys, f"{RECORD} bytes, RF 3, acks=all / {name}", figures | _circumstances(rounds), *targets)


def _ratios(each: Sequence[float]) -> dict[str, float]:
    return {"ratio": statistics.median(each), "ratio_min": min(each), "ratio_max": max(each)}


def _circumstances(rounds: int) -> dict[str, float]:
    """What one has to know to judge the figures: on a busy machine they say little."""
    return {"rounds": rounds, "load": os.getloadavg()[0]}
