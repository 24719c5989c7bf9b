"""Columns of Python objects as cells of batches, by partition: what `arrow_rows` does for Arrow's columns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from replog.config import HEADER_COST
from replog.errors import MessageTooLarge
from replog.payload import _pack_headers, headers_size
from replog.spark.cells import Cells, Placed, packed
from replog.spark.placing import Placement
from replog.spark.rows import Chosen

__all__ = ["placed"]

_HEAD_BYTES: Final = 5
"""What stands in front of a cell, at most."""


def placed(chosen: Chosen, placement: Placement, place: Callable[[int], str], record_bytes_max: int) -> Iterator[Placed]:
    """The records, grouped by partition, in order within each. Raises MessageTooLarge and UnknownTopicOrPartition naming the row."""
    blobs = None if chosen.headers is None or not any(chosen.headers) else list(map(_pack_headers, chosen.headers))
    groups = _groups(chosen, placement, place)
    if isinstance(groups, int):
        found = [Placed(placement.topic, groups, _cells(chosen.values, chosen.keys, blobs, _header_count(chosen, None)))]
    else:
        found = [Placed(placement.topic, number, _of_rows(chosen, blobs, rows)) for number, rows in groups.items()]
    if any(one.cells.size > record_bytes_max for one in found):
        _check_sizes(chosen, place, record_bytes_max)
    for one, rows in zip(found, [range(len(chosen.values))] if isinstance(groups, int) else groups.values(), strict=True):
        if one.cells.size <= placement.cells_bytes:
            yield one
        else:
            for some in _cuts(chosen, blobs, rows, placement.cells_bytes):
                yield Placed(one.topic, one.partition, _of_rows(chosen, blobs, some))


def _of_rows(chosen: Chosen, blobs: list[bytes | None] | None, rows: Sequence[int]) -> Cells:
    keys, some = (None if column is None else [column[row] for row in rows] for column in (chosen.keys, blobs))
    return _cells([chosen.values[row] for row in rows], keys, some, _header_count(chosen, rows))


def _header_count(chosen: Chosen, rows: Sequence[int] | None) -> int:
    """How many headers these rows have; None: all of them."""
    if chosen.headers is None:
        return 0
    return sum(map(len, chosen.headers if rows is None else [chosen.headers[row] for row in rows]))


def _cuts(chosen: Chosen, blobs: list[bytes | None] | None, rows: Sequence[int], limit: int) -> Iterator[Sequence[int]]:
    """Parts that have no more than `limit` bytes in cells, or one row."""
    columns = [column for column in (chosen.values, chosen.keys, blobs) if column is not None]
    begin = total = 0
    for at, row in enumerate(rows):
        size = HEADER_COST * _header_count(chosen, (row,)) + sum(_HEAD_BYTES + len(column[row] or b"") for column in columns)
        if at > begin and total + size > limit:
            yield rows[begin:at]
            begin, total = at, 0
        total += size
    yield rows[begin:]


def _cells(values: list[bytes | None], keys: list[bytes | None] | None, blobs: list[bytes | None] | None, header_count: int) -> Cells:
    columns = [packed(values), *(None if one is None or one.count(None) == len(one) else packed(one) for one in (keys, blobs))]
    first, second, third = columns
    assert first is not None
    size = HEADER_COST * header_count + sum(len(one) for one in columns if one is not None)
    return Cells(len(values), size, first, second, third, header_count)


def _groups(chosen: Chosen, placement: Placement, place: Callable[[int], str]) -> int | dict[int, list[int]]:
    """Rows by partition, or the one partition of all of them."""
    keys, named = chosen.keys, chosen.partitions
    if len(placement.numbers) == 1 and named is None:
        return placement.keyless
    if keys is None and named is None:
        return placement.keyless
    numbers = [placement.keyless] * len(chosen.values) if keys is None else placement.of_keys(keys)
    if named is not None:
        found = sorted({one for one in named if one is not None})
        placement.check_named(found, lambda number: place(named.index(number)))
        numbers = [mine if number is None else number for number, mine in zip(named, numbers, strict=True)]
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for row, number in enumerate(numbers):
        groups[number].append(row)
    return groups


def _check_sizes(chosen: Chosen, place: Callable[[int], str], limit: int) -> None:
    sizes = [0 if value is None else len(value) for value in chosen.values]
    if chosen.keys is not None:
        sizes = [size + (0 if key is None else len(key)) for size, key in zip(sizes, chosen.keys, strict=True)]
    if chosen.headers is not None:
        sizes = [size + headers_size(pairs) for size, pairs in zip(sizes, chosen.headers, strict=True)]
    largest = max(sizes)
    if largest > limit:
        where = place(sizes.index(largest))
        raise MessageTooLarge(f"{where}: a record of {largest} bytes is too large; max_record_bytes is {limit}")
