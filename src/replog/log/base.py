"""What every stored log shares, wherever its bytes are: the state that each append moves, and the calls for using one alone."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Final, Literal, Self

from replog.config import TopicConfig
from replog.errors import LogClosed, LogCorrupt, LogDamaged, ReplogError, UsageError
from replog.log.epochs import EpochTable
from replog.log.files import OS
from replog.log.given import check_epoch, check_room
from replog.log.marked import stored_mark
from replog.log.producers import ProducerTable
from replog.log.tail import NO_TAIL, Tail
from replog.model import PartitionId
from replog.payload import check_rows
from replog.ports import Log, Slice
from replog.records import GROUP_OPEN_BIT, UNBOUNDED, BadBatch, BatchHeader, BatchReader, Record, RecordBatch, encode_records

__all__ = ["JoinedSlice", "StoredLog"]

_READ_BYTES: Final = 1 << 20


class JoinedSlice:
    """A Slice of batches that are still in memory; they are put together when somebody looks, once for all who look."""

    __slots__ = ("_data", "base_offset", "end_offset", "length", "parts")

    stale: Final = False
    """Memory is never cut away under a slice."""
    batches: Final = None

    def __init__(self, base_offset: int, end_offset: int, length: int, parts: list[bytes | memoryview]) -> None:
        self.base_offset = base_offset
        self.end_offset = end_offset
        self.length = length
        self.parts = parts
        """The pieces in order, for a transport that gathers (`socket.sendmsg`)."""
        self._data: memoryview | None = None

    def view(self) -> memoryview:
        """The bytes."""
        if self._data is None:
            self._data = memoryview(self.parts[0] if len(self.parts) == 1 else b"".join(self.parts))
        return self._data

    def release(self) -> None:
        """Nothing is pinned."""


class StoredLog(Log):
    """The state of a log, and what follows from the port alone."""

    __slots__ = (
        "_refusal",
        "_tail",
        "config",
        "end_offset",
        "epochs",
        "flushed_end",
        "generation",
        "group_inside",
        "identity",
        "last_epoch",
        "producers",
        "start_offset",
    )

    epochs: EpochTable
    producers: ProducerTable

    def __init__(self, identity: PartitionId, config: TopicConfig, producers_max: int, start_offset: int = 0) -> None:
        self.identity = identity
        self.config = config
        self.start_offset = self.end_offset = self.flushed_end = start_offset
        self.epochs = EpochTable()
        self.producers = ProducerTable(producers_max)
        self._tail: Tail = NO_TAIL
        self.group_inside = -1
        """No place inside a group is above this one."""
        self.generation = 0
        """Raised whenever records are taken away: a flush begun before that proves nothing."""
        self.last_epoch = -1
        self._refusal: tuple[type[ReplogError], str] | None = None

    def enter_epoch(self, epoch: int) -> None:
        self._check_open()
        check_epoch(epoch, self.last_epoch)
        self.epochs.assign(epoch, self.end_offset)
        self.last_epoch = epoch

    def read(self, offset: int, limit: int, max_bytes: int) -> list[Slice]:
        if self._refusal is not None:
            self._check_readable()
        if limit > self.end_offset:
            limit = self.end_offset
        if offset >= limit:
            return []
        tail = self._tail.slice_at(offset, limit, max_bytes)
        if tail is not None:
            return [tail]
        if offset < self.start_offset:
            raise UsageError(f"offset is {offset}; the log starts at {self.start_offset}")
        return self._read_stored(offset, limit, max_bytes)

    @abstractmethod
    def _read_stored(self, offset: int, limit: int, max_bytes: int) -> list[Slice]:
        """What `read` returns where the tail has no answer; `offset` is stored, `limit` not beyond the end."""

    def group_floor(self, offset: int) -> int:
        if offset > self.group_inside or offset <= self.start_offset:
            return offset
        header = self._header_of(offset - 1)
        if header.end_offset == offset and not header.attributes & GROUP_OPEN_BIT:
            if offset == self.group_inside:
                self.group_inside -= 1  # it was only feared to be inside one
            return offset
        mark = stored_mark(self, header.base_offset)  # in full: what follows from it may be a truncation
        return max(header.base_offset - (0 if mark is None else mark.group_offset), self.start_offset)

    @abstractmethod
    def _header_of(self, offset: int) -> BatchHeader:
        """Of the batch that holds `offset`, which is stored. Raises LogCorrupt, or LogFull."""

    def forget_tail(self) -> None:
        self._tail.clear()

    def append_records(
        self, records: Iterable[Record | bytes | str | None], *, now_ms: int | None = None, compression: Literal["lz4"] | None = None
    ) -> tuple[int, int]:
        """Append values or `Record`s as one batch, all or nothing; returns (base offset, last offset).

        For a log used alone: the batch belongs to the newest leader epoch, 0 in a new log. Records without a timestamp
        get `now_ms`, by default the wall clock. Raises UsageError if the batch is larger than the topic allows, and
        for what is no list: one text, a mapping, a set; and if no offsets are left for them.
        """
        if self._refusal is not None:
            self._check_open()
        check_rows("records", records, "values or Records")
        batch = RecordBatch(encode_records(records, now_ms=OS.wall_ms() if now_ms is None else now_ms, compression=compression))
        if batch.length > self.config.max_batch_bytes:
            raise UsageError(f"the records make a batch of {batch.length} bytes; max_batch_bytes is {self.config.max_batch_bytes}")
        return self._append_next(batch)

    def _append_next(self, batch: RecordBatch) -> tuple[int, int]:
        """Store a batch at the end of the log; returns (base offset, last offset)."""
        check_room(self.end_offset, batch.count)
        batch.stamp(self.identity, self.end_offset, max(self.last_epoch, 0))
        self.append(batch)
        return batch.base_offset, batch.end_offset - 1

    def records(self, start: int | None = None, stop: int | None = None) -> Iterator[Record]:
        """The records from `start` (default: the first kept) to `stop` (exclusive; default: the end as of each read).

        What was removed (`trim_to`, `retain`) is left out, also while this goes on: it continues with the first record that is kept. Raises
        LogCorrupt at the first batch that does not match its checksum, or cannot be decoded, behind the records in front of it; UsageError
        for what is no offset. Control batches are not shown.
        """
        for name, offset in (("start", start), ("stop", stop)):
            if offset is not None and (not isinstance(offset, int) or isinstance(offset, bool)):
                raise UsageError(f"{name} is an offset (int), or None, not {offset!r:.120}")
        return self._records(start, stop)

    def _records(self, start: int | None, stop: int | None) -> Iterator[Record]:
        offset = self.start_offset if start is None else start
        while True:
            limit, batches, damage = self._batches_from(offset, stop)
            for batch in batches:
                offset = batch.end_offset
                if not batch.is_control:
                    yield from (r for r in self._unpacked(batch) if (start or 0) <= r.offset < limit)
            if damage is not None:
                raise damage
            if not batches:
                return

    def _batches_from(self, offset: int, stop: int | None) -> tuple[int, list[RecordBatch], LogCorrupt | None]:
        """For `records`: the end of what is wanted now, the next batches in front of it, which are in memory and pin nothing, and what is
        wrong behind them."""
        offset = max(offset, self.start_offset)  # what was there may have been removed meanwhile
        limit = self.end_offset if stop is None else min(stop, self.end_offset)
        batches: list[RecordBatch] = []
        damage = None
        slices = self.read(offset, limit, _READ_BYTES) if offset < limit else []
        if not slices and offset < limit:
            slices = self.read(offset, self.end_offset, 1)  # `stop` is within this batch
        try:
            for part in slices:
                batches.extend(self._batches(part))
        except LogCorrupt as error:
            damage = error
            self._met_damage()
        finally:
            for part in slices:
                part.release()
        return limit, batches, damage

    def _met_damage(self) -> None:
        """A batch that `read` took for a good one is damaged, so that the way to what comes next may not lead past it."""

    def _unpacked(self, batch: RecordBatch) -> list[Record]:
        """The records of an intact batch, however many. Raises LogCorrupt."""
        try:
            return BatchReader(batch, **UNBOUNDED).records()
        except BadBatch as bad:
            what = f"the batch of offsets {batch.base_offset} to {batch.end_offset - 1} is intact, and cannot be decoded ({bad})"
            raise LogCorrupt(f"log {self.identity!r}: {what}; go on at offset {batch.end_offset} to leave it out") from None

    def _batches(self, part: Slice) -> Iterator[RecordBatch]:
        """Stored batches, each verified in full and to be the next: one that is intact may still lie at another's place."""
        data, at, expected = part.view(), 0, part.base_offset
        while at < len(data):
            try:
                batch = RecordBatch.parse(data, at, identity=self.identity)
            except BadBatch as error:
                raise LogCorrupt(f"log {self.identity!r}: {error}") from error
            if batch.base_offset != expected:
                raise LogCorrupt(f"log {self.identity!r}: the batch at offset {batch.base_offset} is where that at {expected} should be")
            yield batch
            at += batch.length
            expected = batch.end_offset

    @property
    def is_damaged(self) -> bool:
        """Whether an I/O error has ended appends until the log is opened again."""
        return self._refusal is not None and self._refusal[0] is LogDamaged

    def fail(self, reason: str) -> None:
        """Take no more appends, as after an I/O error."""
        if self._refusal is None:
            self._refusal = (LogDamaged, reason)

    def _check_open(self) -> None:
        """Raise what stopped this log, if something did."""
        if self._refusal is not None:
            kind, text = self._refusal
            raise kind(text)

    def _check_readable(self) -> None:
        """A log that takes no more appends is still read, unless it is closed."""
        if self._refusal is not None and issubclass(self._refusal[0], LogClosed):
            raise LogClosed(self._refusal[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.identity!r}, [{self.start_offset}, {self.end_offset}))"
