"""Readers in one process with the brokers: records per second that are iterated, and what an append costs beside one who reads.

Run with `pytest benchmarks/test_readers.py --benchmark-enable -s`. Records of 100 bytes, with and without keys, in batches of one record,
of 16 KiB and of 1 MiB, in turns in one run with two loops that only have the bytes: `of_unpacking` is the share of the rate at which
msgpack alone makes the same keys and values of them, `of_decoding` of that at which our own decoder does, decompression and checks
included. `per_s_of_a_core` is by processor time, the brokers' part included. The reader of the second benchmark is a thread that consumes
answers of 1 MiB; who appends shares the interpreter and the lock of the cluster with it.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final

import msgpack
import pytest
from benchmarks.measuring import by_turns, last_percent, report, share, times_of
from benchmarks.targets import at_least, at_most

import replog
from replog.records import RecordBatch, decode_records, encode_records

BATCHES: Final = {"one": (10_000, 1), "16k": (160, 150), "1m": (5, 10_000)}
"""Of each size: how many, and how many records in each."""
LARGE: Final = ("16k", "1m")
PER_S: Final = 2e6
"""Records per second that one core should bring, where they are many in a batch."""
ROUNDS: Final = 7
APPENDS: Final = 300
BIG: Final = 150 * 700


def rows(count: int, *, keyed: bool) -> list[replog.Record]:
    return [replog.Record(os.urandom(100), key=b"%d" % n if keyed else None) for n in range(count)]


def packed(records: list[replog.Record]) -> list[bytes]:
    """Their values, and their keys if they have any, as msgpack writes them: each a list of its own, which is the quickest to read."""
    columns = [[record.value for record in records], [record.key for record in records if record.key is not None]]
    return [msgpack.packb(column) for column in columns if column]


@pytest.mark.parametrize("keyed", [False, True], ids=["values", "keys and values"])
def test_iterating(benchmark: Any, capsys: Any, keyed: bool) -> None:
    """A consumer from the start of a topic to its end."""
    figures: dict[str, float] = {}
    with replog.Cluster() as cluster:
        for name, (batches, per) in BATCHES.items():
            cluster.create_topic(name)
            stored, bare, spent = [], [], []
            for _ in range(batches):
                records = rows(per, keyed=keyed)
                cluster.append(name, 0, records)
                stored.append(RecordBatch(encode_records(records, now_ms=1, compression="lz4")))
                bare += packed(records)

            def ours(name: str = name, count: int = batches * per, spent: list[float] = spent) -> None:
                begun = time.process_time()
                with cluster.consumer(name, start="earliest") as consumer:
                    deque(islice(consumer, count), maxlen=0)
                spent.append(time.process_time() - begun)

            def decoding(stored: list[RecordBatch] = stored) -> None:
                for batch in stored:
                    decode_records(batch)

            def unpacking(bare: list[bytes] = bare) -> None:
                for column in bare:
                    msgpack.unpackb(column)

            taken = by_turns({"ours": ours, "decoding": decoding, "unpacking": unpacking}, ROUNDS)
            figures[f"{name}_per_s"] = batches * per / statistics.median(taken["ours"])
            figures[f"{name}_per_s_of_a_core"] = batches * per / statistics.median(spent[1:])
            figures |= {f"{name}_of_{limit}": share(taken[limit], taken["ours"]) for limit in ("unpacking", "decoding")}
    benchmark.pedantic(lambda: None, rounds=1)
    targets = [at_least(f"{name}_of_unpacking", 0.5) for name in LARGE] + [at_least(f"{name}_per_s_of_a_core", PER_S) for name in LARGE]
    what = "keys and values" if keyed else "values"
    report(benchmark, capsys, f"records iterated, {what} / unpacked", figures, *targets, at_least("16k_of_decoding", 0.5))


@contextmanager
def reading(cluster: replog.Cluster) -> Iterator[None]:
    """A thread that reads all of the topic "big", again and again, until the block is left."""
    over, begun = threading.Event(), threading.Event()

    def read() -> None:
        while not over.is_set():
            with cluster.consumer("big", start="earliest") as consumer:
                for record in islice(consumer, BIG):
                    if over.is_set():
                        break
                    if record.offset == BIG // 5:
                        begun.set()

    thread = threading.Thread(target=read)
    thread.start()
    begun.wait()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_an_append_beside_a_reader(benchmark: Any, capsys: Any) -> None:
    """100 bytes appended by another thread than the one that reads, against the same without a reader."""
    quiet: list[float] = []
    beside: list[float] = []
    with replog.Cluster() as cluster:
        cluster.create_topic("t")
        cluster.create_topic("big")
        for _ in range(BIG // 150):
            cluster.append("big", 0, rows(150, keyed=False))

        def append() -> None:
            cluster.append("t", 0, [b"x" * 100])

        times_of(append, APPENDS)
        for _ in range(ROUNDS):
            quiet += times_of(append, APPENDS)
            with reading(cluster):
                beside += times_of(append, APPENDS)
    benchmark.pedantic(lambda: None, rounds=1)
    figures = {
        "p50_factor": statistics.median(beside) / statistics.median(quiet),
        "p99_factor": last_percent(beside) / last_percent(quiet),
        "p99_ms": last_percent(beside) * 1e3,
        "longest_ms": max(beside) * 1e3,
    }
    report(benchmark, capsys, "an append beside a reader / without", figures, at_most("p50_factor", 2), at_most("longest_ms", 30))
