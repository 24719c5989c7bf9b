"""How should the records of a batch be laid out? Measures four layouts; run `python benchmarks/formats.py`.

* rows: one bulk msgpack call over (timestamp delta, key, value) tuples; values alone when there are no keys.
* flat: the same fields in one flat msgpack array, no tuple per record.
* lists: one bulk msgpack call over columns: [values, keys, timestamps].
* buffers: lengths as packed u32, bytes joined, one pair per column: two of Arrow's buffers without a copy.

Each figure is millions of records per second, the median of interleaved rounds; "one field" reads the value of the record in the
middle of a batch, as batches per second relative to a full decode of the same batch into lists of bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from itertools import accumulate, pairwise
from random import Random
from statistics import median
from struct import Struct
from time import perf_counter
from typing import Any

import msgpack
from crc32c import crc32c

ROUNDS = 9
_HEAD = Struct("<II")

Batch = tuple[list[bytes], list[bytes] | None]


def rows_encode(batch: Batch) -> bytes:
    values, keys = batch
    return msgpack.packb(values if keys is None else [(0, k, v) for k, v in zip(keys, values, strict=True)])


def rows_decode(data: bytes) -> Any:
    return msgpack.unpackb(data, use_list=False)


def rows_one(data: bytes, index: int) -> bytes:
    unpacker = msgpack.Unpacker(use_list=False, max_buffer_size=len(data))
    unpacker.feed(data)
    unpacker.read_array_header()
    for _ in range(index):
        unpacker.skip()
    row = unpacker.unpack()
    return row if isinstance(row, bytes) else row[2]


def flat_encode(batch: Batch) -> bytes:
    values, keys = batch
    if keys is None:
        return msgpack.packb(values)
    flat: list[Any] = [0] * (3 * len(values))
    flat[1::3] = keys
    flat[2::3] = values
    return msgpack.packb(flat)


def flat_decode_keyed(data: bytes) -> Any:
    flat = msgpack.unpackb(data)
    return flat[1::3], flat[2::3]


def flat_one_keyed(data: bytes, index: int) -> bytes:
    return rows_one(data, 3 * index + 2)


def lists_encode(batch: Batch) -> bytes:
    return msgpack.packb(batch)


def lists_decode(data: bytes) -> Any:
    return msgpack.unpackb(data)


def lists_one(data: bytes, index: int) -> bytes:
    unpacker = msgpack.Unpacker(max_buffer_size=len(data))
    unpacker.feed(data)
    unpacker.read_array_header()
    unpacker.read_array_header()
    for _ in range(index):
        unpacker.skip()
    return unpacker.unpack()


def _column(items: list[bytes]) -> tuple[bytes, bytes]:
    return array("I", map(len, items)).tobytes(), b"".join(items)


def buffers_encode(batch: Batch) -> bytes:
    values, keys = batch
    lengths, joined = _column(values)
    if keys is None:
        return b"".join((_HEAD.pack(len(values), len(joined)), lengths, joined))
    key_lengths, key_joined = _column(keys)
    return b"".join((_HEAD.pack(len(values), len(joined)), lengths, joined, key_lengths, key_joined))


def _split(lengths: memoryview, data: bytes) -> list[bytes]:
    size = lengths[0]
    if size and size * len(lengths) == len(data) and max(lengths) == size:  # one length for all: struct cuts in C
        return [cell for (cell,) in Struct(f"{size}s").iter_unpack(data)]
    return [data[a:b] for a, b in pairwise(accumulate(lengths, initial=0))]


def buffers_decode(data: bytes) -> Any:
    view = memoryview(data)
    count, size = _HEAD.unpack_from(data)
    at = 8 + 4 * count
    values = _split(view[8:at].cast("I"), data[at : at + size])
    at += size
    if at == len(data):
        return values, None
    return values, _split(view[at : at + 4 * count].cast("I"), data[at + 4 * count :])


def buffers_one(data: bytes, index: int) -> bytes:
    (count,) = Struct("<I").unpack_from(data)
    lengths = memoryview(data)[8 : 8 + 4 * count].cast("I")
    start = 8 + 4 * count + sum(lengths[:index])
    return data[start : start + lengths[index]]


Layout = tuple[str, Callable[[Batch], bytes], Callable[[bytes], Any], Callable[[bytes, int], bytes]]


def _time(action: Callable[[], object]) -> float:
    begin = perf_counter()
    action()
    return perf_counter() - begin


def compare(label: str, batch: Batch) -> None:
    """Print one line per layout for this batch."""
    keyed = batch[1] is not None
    layouts: list[Layout] = [
        ("rows", rows_encode, rows_decode, rows_one),
        ("lists", lists_encode, lists_decode, lists_one),
        ("buffers", buffers_encode, buffers_decode, buffers_one),
    ]
    if keyed:
        layouts.insert(1, ("flat", flat_encode, flat_decode_keyed, flat_one_keyed))
    count = len(batch[0])
    middle = count // 2
    bare: list[float] = []
    times: dict[str, tuple[list[float], list[float], list[float], list[float]]] = {name: ([], [], [], []) for name, *_ in layouts}
    encoded = {name: encode(batch) for name, encode, _, _ in layouts}
    for name, _, _, one in layouts:
        assert one(encoded[name], middle) == batch[0][middle]
    for _ in range(ROUNDS):
        bare.append(_time(lambda: msgpack.packb(batch[0])))
        for name, encode, decode, one in layouts:
            data = encoded[name]
            for kept, action in zip(
                times[name],
                (
                    lambda encode=encode: encode(batch),
                    lambda encode=encode: crc32c(encode(batch)),
                    lambda decode=decode, data=data: decode(data),
                    lambda one=one, data=data: one(data, middle),
                ),
                strict=True,
            ):
                kept.append(_time(action))
    print(f"\n{label}, {count} records; bare msgpack of the values {count / median(bare) / 1e6:.1f} M/s")
    print("| layout | encode M/s | encode + crc, of bare msgpack | decode M/s | one field, of a full decode | bytes per record |")
    print("|---|---|---|---|---|---|")
    for name, *_ in layouts:
        encode_s, crc_s, decode_s, one_s = (median(kept) for kept in times[name])
        ratio, lazy = median(bare) / crc_s, decode_s / one_s
        speed = f"{count / encode_s / 1e6:.1f} | {ratio:.2f} | {count / decode_s / 1e6:.1f}"
        print(f"| {name} | {speed} | {lazy:.0f}x | {len(encoded[name]) / count:.1f} |")


def main() -> None:
    """Measure every layout on small and large, keyed and unkeyed, even and uneven records."""
    random = Random(1)
    for size, count in ((100, 2_600), (1024, 256)):
        keys = [b"user-%d" % random.randrange(1_000) for _ in range(count)]
        even = [random.randbytes(size) for _ in range(count)]
        uneven = [random.randbytes(random.randrange(size // 2, size * 3 // 2)) for _ in range(count)]
        compare(f"{size} B", (even, None))
        compare(f"{size} B, uneven", (uneven, None))
        compare(f"{size} B, uneven, keyed", (uneven, keys))


if __name__ == "__main__":
    main()
