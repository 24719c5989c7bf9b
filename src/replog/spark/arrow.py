"""Stored batches become Arrow batches: column by column, without an object per record beside its bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from replog import payload
from replog.config import HEADER_COST
from replog.errors import UndecodableBatch
from replog.model import TopicPartition
from replog.records import BadBatch, BatchReader, RecordBatch
from replog.spark.columns import CREATE_TIME, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ARROW_BYTES_MAX", "Unpacking"]

ARROW_BYTES_MAX: Final = 8 << 20
"""An Arrow batch has about so many bytes of keys, values and headers at most, unless a single record has more."""
_HEADS: Final = {0xC4: 2, 0xC5: 3, 0xC6: 5}
"""First byte of msgpack's byte strings -> bytes before the string: this one and its length."""
_MICROSECONDS_MAX: Final = 2**63 - 1
_MS_MAX: Final = _MICROSECONDS_MAX // 1000
"""Spark's timestamps count microseconds: a later time is shown as this one."""


class Unpacking:
    """Makes the rows of one task, with the columns of `columns.read_schema`."""

    def __init__(self, *, headers: bool) -> None:
        self._schema = arrow_schema(headers=headers)
        self._headers = headers

    def rows(self, place: TopicPartition, batches: Iterable[RecordBatch], start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """The records of [start, stop) in these batches, in order. Raises UndecodableBatch for one that is not what its writer has said,
        behind what is in front of it."""
        gathered = _Gathered()
        for batch in batches:
            try:
                reader = _Columns(batch)
                low, high = max(start - batch.base_offset, 0), min(stop, batch.end_offset) - batch.base_offset
                if gathered.count and gathered.size + reader.payload_bytes > ARROW_BYTES_MAX:
                    yield from self._made(place, gathered)
                    gathered = _Gathered()
                gathered.add(reader, low, high, headers=self._headers)
            except BadBatch as bad:
                if gathered.count:
                    yield from self._made(place, gathered)
                raise UndecodableBatch(*place, batch.base_offset, batch.end_offset, str(bad)) from None
        if gathered.count:
            yield from self._made(place, gathered)

    def _made(self, place: TopicPartition, gathered: _Gathered) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        count = gathered.count
        columns: list[Any] = [
            pa.concat_arrays(gathered.keys),
            pa.concat_arrays(gathered.values),
            pa.repeat(pa.scalar(place.topic, pa.string()), count),
            pa.repeat(pa.scalar(place.partition, pa.int32()), count),
            pa.concat_arrays(gathered.offsets),
            pa.concat_arrays(gathered.times),
            pa.repeat(pa.scalar(CREATE_TIME, pa.int32()), count),
        ]
        if self._headers:
            columns.append(_header_column(gathered.headers, self._schema.field("headers").type))
        made = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        step = max(1, count * ARROW_BYTES_MAX // max(gathered.size, 1))
        for at in range(0, count, step):
            yield made.slice(at, step)


class _Gathered:
    """Columns of records that make one Arrow batch, an array for each stored batch."""

    def __init__(self) -> None:
        self.count = 0
        self.size = 0
        """Bytes of keys, values and headers, and HEADER_COST for each header."""
        self.keys: list[Any] = []
        self.values: list[Any] = []
        self.offsets: list[Any] = []
        self.times: list[Any] = []
        self.headers: list[Any] = []

    def add(self, reader: _Columns, low: int, high: int, *, headers: bool) -> None:
        """The records [low, high) of a batch: all of their columns, or BadBatch is raised and nothing is added."""
        count = high - low
        keys, values, times = reader.arrow_keys(), reader.arrow_values(), reader.arrow_times()
        if headers:
            self.headers += reader.headers()[low:high]
        self.keys.append(keys.slice(low, count))
        self.values.append(values.slice(low, count))
        self.offsets.append(counted(reader.batch.base_offset + low, count))
        self.times.append(times.slice(low, count))
        self.count += count
        self.size += (reader.payload_bytes + HEADER_COST * reader.header_count) * count // len(reader)


class _Columns(BatchReader):
    """A batch whose columns come as arrays."""

    __slots__ = ()

    @property
    def payload_bytes(self) -> int:
        """Keys, values and headers, with what msgpack adds."""
        return len(self._values) + len(self._keys) + len(self._headers)

    def arrow_values(self) -> pa.Array:
        """All values."""
        return _binary(self._values, len(self), self.values)

    def arrow_keys(self) -> pa.Array:
        """All keys."""
        import pyarrow as pa

        return _binary(self._keys, len(self), self.keys) if self._keys else pa.nulls(len(self), pa.binary())

    def arrow_times(self) -> pa.Array:
        """All timestamps, as Spark counts them."""
        import pyarrow as pa

        batch, kind = self.batch, pa.timestamp("us", tz="UTC")
        if 0 <= batch.base_timestamp_ms == batch.max_timestamp_ms:
            return pa.repeat(pa.scalar(_microseconds(batch.base_timestamp_ms), pa.int64()), len(self)).view(kind)
        return pa.array([_microseconds(time) for time in self.timestamps_ms()], pa.int64()).view(kind)


def _binary(column: memoryview, count: int, cells: Callable[[], list[bytes | None]]) -> pa.Array:
    """A column of msgpack's byte strings as an array, by copying all at once where they are equally long; `cells` unpacks others.

    Equally long ones stand at equal distances, each behind the same few bytes that say what it is: when these are the same everywhere,
    nothing is left that unpacking would find out.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    width, head = uniform(column, count)
    if not head:
        return pa.array(cells(), pa.binary())
    begin = len(column) - count * width
    starts = pc.multiply(counted(0, count + 1).cast(pa.int32()), pa.scalar(width, pa.int32()))
    whole = pa.Array.from_buffers(pa.binary(), count, [None, starts.buffers()[1], pa.py_buffer(column[begin:])])
    return pc.binary_slice(whole, head, width)


def uniform(column: memoryview, count: int) -> tuple[int, int]:
    """(bytes from one cell to the next, how many of them are not the cell's own); (0, 0) if cells are not all equally long bytes."""
    array_header = payload.array_header(count)
    cells = column[len(array_header) :]
    width = len(cells) // count
    if column[: len(array_header)] != array_header or len(cells) != count * width or not width:
        return 0, 0
    head = _HEADS.get(cells[0], 0)
    if not head or width < head or int.from_bytes(cells[1:head], "big") != width - head:
        return 0, 0
    same = all(cells[at::width].tobytes() == cells[at : at + 1].tobytes() * count for at in range(head))
    return (width, head) if same else (0, 0)


def counted(first: int, count: int) -> pa.Array:
    """first, first + 1, ...: so many."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.add(_zero_to(1 << (count - 1).bit_length()).slice(0, count), pa.scalar(first, pa.int64()))


@cache
def _zero_to(count: int) -> pa.Array:
    import pyarrow as pa

    return pa.array(range(count), pa.int64())


def _microseconds(time_ms: int) -> int:
    return min(time_ms, _MS_MAX) * 1000


def _header_column(headers: list[Any], kind: pa.DataType) -> Any:
    """null where a record has none, as Spark's Kafka connector has it."""
    import pyarrow as pa

    return pa.array([[{"key": name, "value": value} for name, value in pairs] or None for pairs in headers], kind)
