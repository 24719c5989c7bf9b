"""The two questions that every peer is asked beside replog: one append acknowledged, and as many records as it can take.

Three broker processes and a client against three servers of the peer and its Python client, on the same processors and disk, in
turns. A ratio says how many times as fast as the peer replog is: the median of the rounds, with the lowest and the highest. Nothing
is fsynced before it is acknowledged, by either side, unless that is the peer's default.

A third side may take turns with them: `bare`, the least that three processes in Python can do for the same (`bare_replication.py`).
`bare_ratio`, how many times as fast as the peer that is, caps the ratio, and `replog_of_bare` is how near replog comes to it.
"""

from __future__ import annotations

import os
import shutil
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.bare_replication import BareClient
from benchmarks.measuring import brokers, by_turns, draw, report, times_of
from benchmarks.plots import PEER
from benchmarks.targets import at_least

import replog
from replog.client.columns import ROW_BYTES

__all__ = ["BATCH", "IN_FLIGHT", "RECORD", "bulk", "client_of_brokers", "compare_acknowledgements", "compare_bulk"]

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

    32 batches are under way, four in each of eight partitions: a client of its own allows no more, and once one is acknowledged the next
    goes, for as many again are waiting. It ends when all are acknowledged.
    """
    per_batch = BATCH // size
    each = IN_FLIGHT // PARTITIONS
    parts = [[os.urandom(size) for _ in range(each * per_batch)] for _ in range(PARTITIONS)]
    full = per_batch * (size + ROW_BYTES)
    endpoints = [endpoint for one in client.describe_cluster().brokers for endpoint in one.endpoints]
    with (
        replog.connect(endpoints, config={"max_in_flight": each}) as own,
        own.producer(compression=None, batch_bytes=full, buffer_bytes=2 * IN_FLIGHT * full) as producer,
    ):

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
    bare: Callable[[], object] | None = None,
) -> None:
    """Report how many times as fast `ours` takes the values as `theirs`, and the target of that.

    The word before the first blank of `name` is the peer, and what comes after " / " does not concern it. `before` comes before each loop,
    and does not count. The peer's rate is left for the plot of throughput.
    """
    peer = name.split()[0]
    taken = by_turns({"replog": ours, peer: theirs, **({} if bare is None else {"bare": bare})}, rounds, before=before)
    benchmark.pedantic(lambda: None, rounds=1)
    sides = {side: statistics.median(seconds) for side, seconds in taken.items()}
    rates = {f"{side}_records_per_s": len(values) / seconds for side, seconds in sides.items()}
    speeds = {f"{side}_mb_per_s": sum(map(len, values)) / MEGABYTE / seconds for side, seconds in sides.items()}
    figures = _ratios(_quotients(taken[peer], taken["replog"])) | _capped(taken, peer) | rates | speeds | _circumstances(rounds)
    what = f"{len(values)} records of {len(values[0])} bytes, RF 3, acks=all"
    draw(benchmark, "throughput", PEER + name.partition(" / ")[0], [(BATCH, speeds[f"{peer}_mb_per_s"])])
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
    bare: BareClient | None = None,
) -> None:
    """Report how many times as fast an append of 100 bytes is acknowledged as by the peer, one after the other, `acks` in a round.

    `append_each(value, count)` returns the seconds that each of the peer's took. One round more comes first, and does not count. The peer's
    median is left for the plot of latency.
    """
    body = os.urandom(RECORD)
    peer = name.split()[0]
    sides: dict[str, Callable[[], list[float]]] = {
        "replog": lambda: times_of(lambda: client.append("t", 0, [body]), acks),
        peer: lambda: append_each(body, acks),
    }
    if bare is not None:
        batch = bare.packed(body)
        sides["bare"] = lambda: times_of(lambda: bare.append([batch], 1), acks)
    kept = []
    for number in range(rounds + 1):
        order = list(sides) if number % 2 else list(reversed(sides))
        kept.append({side: sides[side]() for side in order})
    del kept[0]
    benchmark.pedantic(lambda: None, rounds=1)
    medians = {side: [statistics.median(one[side]) for one in kept] for side in sides}
    figures = _ratios(_quotients(medians[peer], medians["replog"])) | _capped(medians, peer)
    for side in sides:
        taken = [seconds for one in kept for seconds in one[side]]
        figures |= {f"{side}_us": statistics.median(taken) * 1e6, f"{side}_p99_us": statistics.quantiles(taken, n=100)[98] * 1e6}
    targets = [] if target is None else [at_least("ratio", target)]
    draw(benchmark, "latency", f"{PEER}{name}, {RECORD} bytes", [(0.0, figures[f"{peer}_us"] / 1e3)])
    report(benchmark, capsys, f"{RECORD} bytes, RF 3, acks=all / {name}", figures | _circumstances(rounds), *targets)


def _quotients(other: Sequence[float], mine: Sequence[float]) -> list[float]:
    return [their / our for their, our in zip(other, mine, strict=True)]


def _capped(taken: Mapping[str, Sequence[float]], peer: str) -> dict[str, float]:
    """What caps the ratio to a peer, by rounds, if that took turns as well."""
    if "bare" not in taken:
        return {}
    return {
        "bare_ratio": statistics.median(_quotients(taken[peer], taken["bare"])),
        "replog_of_bare": statistics.median(_quotients(taken["bare"], taken["replog"])),
    }


def _ratios(each: Sequence[float]) -> dict[str, float]:
    return {"ratio": statistics.median(each), "ratio_min": min(each), "ratio_max": max(each)}


def _circumstances(rounds: int) -> dict[str, float]:
    """What one has to know to judge the figures: on a busy machine they say little."""
    return {"rounds": rounds, "load": os.getloadavg()[0]}
