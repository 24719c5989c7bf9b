"""Arrow's columns as cells of batches, by partition: whole columns at a time, no Python object per row but for hashing keys.

A column of binary cells lies in memory as one run of bytes and an array of offsets. Putting msgpack's head before each cell gives
another such column, whose run of bytes is what a batch holds; rows that share a partition are brought together by a stable sort.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any, Final
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from replog.client.partitioner import crc32_partition
from replog.config import HEADER_COST, RECORD_HEADERS_MAX
from replog.errors import MessageTooLarge, UsageError
from replog.payload import Buffer
from replog.spark.cells import NIL, RECORDS_MAX, Cells, Placed
from replog.spark.columns import WrittenColumns
from replog.spark.placing import Placement, Topics

__all__ = ["ArrowRows"]

AT_ONCE_BYTES: Final = 32 << 20
"""A larger Arrow batch is taken in parts: what is made of it is held beside it."""
_REPEATED: Final = 0.5
"""Keys repeat when at most this share of them is different."""
_NOTHING: Final = pa.scalar(b"", pa.binary())


class ArrowRows:
    """The Arrow batches of one task, in turn."""

    def __init__(
        self, topics: Topics, at: WrittenColumns, *, topic: str | None, task: int, cells_bytes: int, record_bytes_max: int
    ) -> None:
        """`topic` is written instead of what the column says; a `Placed` has at most `cells_bytes`, or one record."""
        self._topics = topics
        self._at = at
        self._topic = topic
        self._task = task
        self._cells_bytes = cells_bytes
        self._record_bytes_max = record_bytes_max
        self._keys = _Keys()
        self.rows = 0
        """Those taken so far."""

    def placed(self, batch: Any) -> Iterator[Placed]:
        """Its rows, grouped by partition, in order within each. Raises UsageError and MessageTooLarge naming the row."""
        if batch.nbytes > AT_ONCE_BYTES and batch.num_rows > 1:
            half = batch.num_rows // 2
            yield from self.placed(batch.slice(0, half))
            yield from self.placed(batch.slice(half))
            return
        if batch.num_rows == 0:
            return
        at = self._at
        value = _binary(batch.column(at.value))
        key, headers, topics, named = (None if i is None else batch.column(i) for i in (at.key, at.headers, at.topic, at.partition))
        key = None if key is None else _binary(key)
        counts = None if headers is None else self._header_counts(headers)
        headers = None if headers is None else self._header_blobs(headers)
        costs = None if counts is None else pc.multiply(counts, pa.scalar(HEADER_COST, pa.int64()))
        self._check_sizes([column for column in (value, key, headers) if column is not None], costs)
        wanted = [value, key, headers, costs, named]
        for topic, rows in self._by_topic(topics):
            some = wanted if rows is None else [None if column is None else column.take(rows) for column in wanted]
            placement = self._topics.placement(topic)
            if named is not None:
                found = pc.unique(some[4]).drop_null().to_pylist()
                placement.check_named(found, lambda number: self.place(pc.index(named, number).as_py()))
            yield from self._of_topic(placement, some[:4], some[4])
        self.rows += batch.num_rows

    def place(self, row: int) -> str:
        """A row of the batch at hand, for messages."""
        return f"row {self.rows + row} of Spark partition {self._task}"

    # ----------------------------------------------------------------------------------------------------------- checks

    def _check_sizes(self, columns: list[Any], costs: Any) -> None:
        """Of each record: `costs` is what its headers count for besides their bytes."""
        limit = self._record_bytes_max
        if sum(column.nbytes for column in columns) + (0 if costs is None else pc.sum(costs).as_py()) <= limit:
            return
        sizes = pc.fill_null(pc.binary_length(columns[0]), 0)
        if costs is not None:
            sizes = pc.add(sizes, costs)
        for column in columns[1:]:
            sizes = pc.add(sizes, pc.fill_null(pc.binary_length(column), 0))
        largest = pc.max(sizes).as_py()
        if largest > limit:
            where = self.place(pc.index(sizes, largest).as_py())
            raise MessageTooLarge(f"{where}: a record of {largest} bytes is too large; max_record_bytes is {limit}")

    def _by_topic(self, column: Any) -> Iterator[tuple[str, Any]]:
        """(topic, which rows) for each; None: all of them."""
        if self._topic is not None:
            yield self._topic, None
            return
        if column is None:
            raise UsageError("no topic: set the option `topic`, or write a column `topic`")
        if column.null_count:
            where = self.place(pc.index(pc.is_null(column), True).as_py())
            raise UsageError(f"{where}: its topic is null; set the option `topic` to write all rows to one")
        names = pc.unique(column).to_pylist()
        for name in names:
            yield name, None if len(names) == 1 else pc.indices_nonzero(pc.equal(column, name))

    # --------------------------------------------------------------------------------------------------------- grouping

    def _of_topic(self, placement: Placement, columns: list[Any], named: Any) -> Iterator[Placed]:
        """The rows of one topic (`columns` are value, key, headers, and what those count for besides), group by group."""
        value, key, *_ = columns
        numbers = self._numbers(placement, key, named, len(value))
        if isinstance(numbers, int):
            runs = [(numbers, 0, len(value))]
        else:
            order = pc.array_sort_indices(numbers)
            columns = [None if column is None else column.take(order) for column in columns]
            runs = list(_runs(numbers))
        *binaries, costs = columns
        cells = [None if column is None or column.null_count == len(column) else _run_of_cells(column) for column in binaries]
        if cells[0] is None:
            cells[0] = _run_of_cells(value)
        ends = None if cells[2] is None else _ends(costs)
        offsets = [run.offsets for run in cells if run is not None] + ([] if ends is None else [ends])
        for number, begin, end in runs:
            for first, stop in self._cuts(offsets, begin, end, placement.cells_bytes):
                # A piece of a shared buffer would keep the whole of it for as long as its batch is not full.
                values, *found = [None if run is None else run.cut(first, stop, copied=len(runs) > 1) for run in cells]
                assert values is not None
                cost = 0 if ends is None else ends[stop] - ends[first]
                size = cost + sum(len(piece) for piece in (values, *found) if piece is not None)
                yield Placed(placement.topic, number, Cells(stop - first, size, values, found[0], found[1], cost // HEADER_COST))

    def _numbers(self, placement: Placement, key: Any, named: Any, rows: int) -> Any:
        """The partition of each row, or one int for all of them."""
        by_key = key is not None and key.null_count < rows and len(placement.numbers) > 1
        if named is not None and named.null_count == rows:
            named = None
        if not by_key and named is None:
            return placement.keyless
        chosen: Any = pa.scalar(placement.keyless, pa.int32())
        if by_key and (named is None or named.null_count):
            chosen = self._keys.numbers(placement, key)
        return chosen if named is None else pc.coalesce(named, chosen)

    def _cuts(self, offsets: list[memoryview], begin: int, end: int, room: int) -> Iterator[tuple[int, int]]:
        """[first, stop) of pieces that are not too large, or have one row; `offsets`: where each row begins, by what is added up."""
        while begin < end:
            most = sum(one[begin] for one in offsets) + min(self._cells_bytes, room)
            stop = bisect_right(range(end + 1), most, begin + 1, key=lambda row: sum(one[row] for one in offsets)) - 1
            stop = min(max(stop, begin + 1), begin + RECORDS_MAX, end)
            yield begin, stop
            begin = stop

    # ---------------------------------------------------------------------------------------------------------- headers

    def _header_counts(self, lists: Any) -> Any:
        """Of each row. Raises UsageError for more than a record may have."""
        counts = pc.fill_null(pc.list_value_length(lists), 0).cast(pa.int64())
        most = pc.max(counts).as_py()
        if most > RECORD_HEADERS_MAX:
            where = self.place(pc.index(counts, most).as_py())
            raise UsageError(f"{where}: a record with {most} headers; allowed are {RECORD_HEADERS_MAX}")
        return counts

    def _header_blobs(self, lists: Any) -> Any:
        """What the cell of each row holds: name, value, name, value ... as msgpack scalars; null where there are none."""
        if lists.null_count == len(lists):
            return pa.nulls(len(lists), pa.binary())
        names, values = lists.flatten().flatten()
        for what, column in (("name", names), ("value", values)):
            if column.null_count:
                at = pc.index(pc.is_null(column), True).as_py()
                parents = pc.list_parent_indices(lists)
                number = at - pc.index(parents, parents[at]).as_py()
                wanted = "a header is a name, which is a string, and a value, which is binary"
                raise UsageError(f"{self.place(parents[at].as_py())}: the {what} of header {number} (counted from 0) is null; {wanted}")
        names, values = names.cast(pa.binary()), values.cast(pa.binary())  # a list of large ones cannot be joined
        blobs = pc.binary_join_element_wise(_heads(names, _text_head), names, _heads(values, _bytes_head), values, _NOTHING)
        counts = pc.fill_null(pc.list_value_length(lists), 0)
        ends = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(counts).cast(pa.int32())])
        joined = pc.binary_join(pa.ListArray.from_arrays(ends, blobs), _NOTHING)
        return pc.if_else(pc.equal(counts, 0), pa.scalar(None, pa.binary()), joined)


def _ends(lengths: Any) -> memoryview:
    """Where each of so many lengths begins when they are added up, and where the last one ends."""
    found = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths)])
    return memoryview(found.buffers()[1]).cast("B").cast("q")[: len(found)]


class _Run:
    """The cells of a column, end to end, and where each begins."""

    __slots__ = ("data", "offsets")

    def __init__(self, column: Any) -> None:
        _, offsets, data = column.buffers()
        first, count = column.offset, len(column)
        numbers = memoryview(offsets).cast("B")
        self.offsets = (numbers.cast("q") if pa.types.is_large_binary(column.type) else numbers.cast("i"))[first : first + count + 1]
        self.data = memoryview(data)

    def cut(self, first: int, stop: int, *, copied: bool) -> Buffer:
        piece = self.data[self.offsets[first] : self.offsets[stop]]
        return bytes(piece) if copied else piece


class _Keys:
    """Partitions of keys. Hashing is the one thing done key by key: each different key once, where keys repeat."""

    __slots__ = ("_repeat",)

    def __init__(self) -> None:
        self._repeat = True
        """Whether they did in the batches before."""

    def numbers(self, placement: Placement, key: Any) -> Any:
        if not self._repeat:
            return _hashed(placement, key)
        found = key.dictionary_encode()
        self._repeat = len(found.dictionary) <= len(key) * _REPEATED
        numbers = _hashed(placement, found.dictionary).take(found.indices)
        return pc.fill_null(numbers, pa.scalar(placement.keyless, pa.int32())) if key.null_count else numbers


def _hashed(placement: Placement, key: Any) -> Any:
    keys = (pc.fill_null(key, b"") if key.null_count else key).to_pylist()
    count = len(placement.numbers)
    if placement.choose is crc32_partition:
        hashes = pa.Array.from_buffers(pa.uint32(), len(keys), [None, pa.py_buffer(array("I", map(crc32, keys)))])
        divisor = pa.scalar(count, pa.uint32())
        index = pc.subtract(hashes, pc.multiply(pc.divide(hashes, divisor), divisor))
    else:
        index = pa.array([placement.choose(one, count) for one in keys], pa.uint32())
    numbers = pa.array(placement.numbers, pa.int32()).take(index)
    return pc.if_else(pc.is_null(key), pa.scalar(placement.keyless, pa.int32()), numbers) if key.null_count else numbers


def _runs(numbers: Any) -> Iterator[tuple[int, int, int]]:
    """(partition, begin, end) of each group, once the rows are sorted by partition."""
    counted = sorted((one["values"], one["counts"]) for one in pc.value_counts(numbers).to_pylist())
    begin = 0
    for number, count in counted:
        yield number, begin, begin + count
        begin += count


def _binary(column: Any) -> Any:
    """The same bytes as a column of binary cells; text is UTF-8 already."""
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return column
    return column.cast(pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary())


def _run_of_cells(column: Any) -> _Run:
    """msgpack's head before each cell, nil for null."""
    heads = _heads(column, _bytes_head)
    if isinstance(heads, pa.Scalar):
        cells = pc.binary_replace_slice(column, 0, 0, heads.as_py())
    else:
        cells = pc.binary_join_element_wise(heads.cast(column.type), column, _NOTHING.cast(column.type))
    return _Run(pc.fill_null(cells, pa.scalar(NIL, column.type)) if column.null_count else cells)


def _heads(column: Any, head: Callable[[int], bytes]) -> Any:
    """What stands before each cell: a column, or a scalar where all cells are of one length. Null stays null."""
    lengths = pc.binary_length(column)
    least = pc.min_max(lengths)
    low, high = least["min"].as_py(), least["max"].as_py()
    if low == high:
        return pa.scalar(head(low or 0), pa.binary())
    found = lengths.dictionary_encode()
    return pa.array([head(length) for length in found.dictionary.to_pylist()], pa.binary()).take(found.indices)


def _bytes_head(length: int) -> bytes:
    if length < 1 << 8:
        return bytes((0xC4, length))
    return b"\xc5" + length.to_bytes(2, "big") if length < 1 << 16 else b"\xc6" + length.to_bytes(4, "big")


def _text_head(length: int) -> bytes:
    if length < 32:
        return bytes((0xA0 | length,))
    if length < 1 << 8:
        return bytes((0xD9, length))
    return b"\xda" + length.to_bytes(2, "big") if length < 1 << 16 else b"\xdb" + length.to_bytes(4, "big")
