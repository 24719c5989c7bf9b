"""What records and messages cost: packing against bare msgpack, one field against all, frames against bare msgpack.

Run with `pytest benchmarks/test_codec.py --benchmark-enable -s`. Ratios of medians; both sides of a ratio are measured in turn within
one run. `pack_of_bare`: rate of packing a list of values of 100 bytes with its checksum, as a share of msgpack's alone; `cap_of_bare`: that
of msgpack and the checksum and nothing else, the most that packing with a checksum can be; `one_value_times_all`: how many times faster one
field of a batch is read than all records.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from random import Random
from time import perf_counter
from typing import Any

import msgpack
import pytest
from benchmarks.measuring import report
from benchmarks.targets import at_least
from crc32c import crc32c

from replog import messages as m
from replog.codec import decode, encode
from replog.model import PartitionId
from replog.records import BatchReader, Record, RecordBatch, decode_records, encode_records, encode_values

ROUNDS = 15
SECONDS_PER_SAMPLE = 0.005
SIZE = 100


def medians(actions: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Median seconds per call of each, taken in turn."""
    calls = {}
    for name, action in actions.items():
        begin = perf_counter()
        action()
        calls[name] = max(1, int(SECONDS_PER_SAMPLE / (perf_counter() - begin)))
    samples: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(ROUNDS):
        for name, action in actions.items():
            begin = perf_counter()
            for _ in range(calls[name]):
                action()
            samples[name].append((perf_counter() - begin) / calls[name])
    return {name: statistics.median(kept) for name, kept in samples.items()}


@pytest.mark.parametrize("count", [100, 2_600, 20_000], ids=["10KiB", "256KiB", "2MiB"])
def test_records(benchmark: Any, capsys: Any, count: int) -> None:
    random = Random(1)
    values = [random.randbytes(SIZE) for _ in range(count)]
    keyed = [Record(value, key=b"user-%d" % (number % 7)) for number, value in enumerate(values)]
    batch, keyed_batch = RecordBatch(encode_values(values, now_ms=1)), RecordBatch(encode_records(keyed, now_ms=1))
    batch.base_offset = keyed_batch.base_offset = 0
    actions: dict[str, Callable[[], object]] = {
        "bare": lambda: msgpack.packb(values),
        "bare_and_crc": lambda: crc32c(msgpack.packb(values)),
        "pack": lambda: encode_values(values, now_ms=1, checked=True),
        "pack_unchecked": lambda: encode_values(values, now_ms=1),
        "pack_keyed_records": lambda: encode_records(keyed, now_ms=1),
        "all": lambda: decode_records(batch, "t", 0),
        "all_keyed": lambda: decode_records(keyed_batch, "t", 0),
        "one_value": lambda: BatchReader(batch).value(count // 2),
        "one_key": lambda: BatchReader(keyed_batch).key(count // 2),
        "first_value": lambda: BatchReader(batch).value(0),
        "all_values": lambda: BatchReader(batch).values(),
    }
    found: dict[str, float] = {}
    benchmark.pedantic(lambda: found.update(medians(actions)), rounds=1)
    figures = {
        "pack_of_bare": found["bare"] / found["pack"],
        "cap_of_bare": found["bare"] / found["bare_and_crc"],
        "pack_of_cap": found["bare_and_crc"] / found["pack"],
        "one_value_times_all": found["all"] / found["one_value"],
        "one_key_times_all": found["all_keyed"] / found["one_key"],
        "first_value_times_all": found["all"] / found["first_value"],
        "all_values_times_all": found["all"] / found["all_values"],
        **{f"{name}_ns_per_record": seconds / count * 1e9 for name, seconds in found.items()},
    }
    targets = [at_least("pack_of_bare", 0.90), at_least("one_value_times_all", 10)]
    report(benchmark, capsys, f"{count:,} records of {SIZE} bytes / bare msgpack", figures, *targets)


P0 = PartitionId(b"t" * 16, 0, 0)
FETCH = m.Fetch(1, 2, 3, 4, 5, 500, 1, 1 << 20, [m.FetchEntry(P0, 1, number, 1, 1 << 20) for number in range(10)])
PRODUCE = m.Produce(-1, 30_000, [m.ProduceEntry(1, P0, encode_values([b"x" * SIZE] * 160, now_ms=1))])


@pytest.mark.parametrize("message", [m.Heartbeat(1, 2, 3, 4), PRODUCE, FETCH], ids=["Heartbeat", "Produce_16KiB", "Fetch_10"])
def test_messages(benchmark: Any, capsys: Any, message: Any) -> None:
    frame = b"".join(encode(message))
    meta = frame[16 : 16 + int.from_bytes(frame[8:12], "little")]
    rows = msgpack.unpackb(meta)
    actions: dict[str, Callable[[], object]] = {
        "bare_pack": lambda: msgpack.packb(rows),
        "bare_unpack": lambda: msgpack.unpackb(meta),
        "encode": lambda: b"".join(encode(message)),
        "decode": lambda: decode(frame),
    }
    found: dict[str, float] = {}
    benchmark.pedantic(lambda: found.update(medians(actions)), rounds=1)
    figures = {f"{name}_us": seconds * 1e6 for name, seconds in found.items()}
    report(benchmark, capsys, f"a frame of {type(message).__name__} / bare msgpack", figures)
