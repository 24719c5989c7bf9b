"""A log in files: one write per append, reads that are regions of files, and nothing per record.

In memory and on disk the same order holds everywhere: bytes first, then the state that makes them count. So an
exception at any point, KeyboardInterrupt included, leaves files in which the next open finds a valid prefix.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from errno import ENOSPC
from itertools import chain
from operator import attrgetter
from typing import Final, Self

from replog.config import BrokerConfig, TopicConfig
from replog.errors import LogCorrupt, LogFull
from replog.log.due import check_due, not_due
from replog.log.files import BUFFERS_MAX, OS, Fs, check_path
from replog.log.given import check_settings
from replog.log.producers import Cut, ProducerTable
from replog.log.reading import batch_from_time, batch_holding, headers_from, load_index, slice_from
from replog.log.recovery import LogState
from replog.log.retention import expired, is_full
from replog.log.segment import Segment
from replog.log.segmented import SegmentedLog
from replog.log.storage import Storage, read_summary
from replog.log.tail import NO_TAIL, Tail
from replog.model import PartitionId
from replog.ports import Location, LossReport, Slice
from replog.records import GROUP_OPEN_BIT, BadBatch, BatchHeader, RecordBatch

__all__ = ["FileLog", "Fs"]

_LOOK_BACK_BYTES: Final = 4 << 20
"""How far in front of a truncation the earlier batches of the producers it concerns are looked up."""
_BASE: Final = attrgetter("base_offset")


class FileLog(SegmentedLog):
    """One copy of one partition in the files of a `FileLogDirectory`, or alone: `FileLog.open(path)`."""

    __slots__ = ("_close_directory", "_pwritev", "loss")

    def __init__(self, identity: PartitionId, config: TopicConfig, storage: Storage, state: LogState | None = None) -> None:
        super().__init__(identity, config, storage, state)
        self._pwritev = storage.fs.pwritev
        self._close_directory: Callable[..., None] | None = None
        self.loss: LossReport | None = None
        """Of a log opened alone: what opening it found out about its last life."""

    @classmethod
    def open(
        cls, path: str | Location, *, config: TopicConfig | None = None, fs: Fs | None = None, limits: BrokerConfig | None = None
    ) -> Self:
        """A log of its own under the folder `path`, made if it is missing; closing it saves the next open a scan.

        Raises UsageError if no log can be at `path`, if somebody has it open, if a broker's directory is there, or for what is no
        configuration; LogCorrupt if what is there cannot be read; LogFull or LogDamaged if its disk is full or broken.
        """
        from replog.log.alone import open_alone  # a directory makes logs, and this log makes itself a directory

        check_settings(config, limits)
        log, close = open_alone(check_path(path), config, fs or OS, limits)
        assert isinstance(log, cls)
        log._close_directory = close
        return log

    def close(self) -> None:
        """Release files; a log opened alone is flushed and leaves everything the next open needs."""
        close_directory = self._close_directory
        if close_directory is not None:
            close_directory(clean=True)
            self._close_directory = None  # now: an interrupt must not leave it open
        super().close()

    # ------------------------------------------------------------------------------------------------------ appending

    def append(self, batch: RecordBatch) -> None:
        if self._refusal is not None:
            self._check_open()
        if batch.base_offset != self.end_offset or batch.leader_epoch < self.last_epoch or batch.identity != self.identity:
            raise not_due(batch, self.identity, self.end_offset, self.last_epoch)
        segment, length = self._active, batch.length
        if segment is None or segment.fd < 0 or segment.index is None or is_full(segment, length, batch.max_timestamp_ms, self.config):
            segment = self._make_ready(batch)
        position = segment.size
        buffers = (batch.front, batch.body)
        try:
            written = self._pwritev(segment.fd, buffers, position)
        except OSError as error:
            self._undo_write(segment, error)
        if written != length:
            self._write_rest(segment, buffers, written, length)
        self._count_in(segment, batch, position)
        if self._tail is NO_TAIL:
            self._tail = Tail()
        self._tail.add(batch)

    def append_many(self, batches: Sequence[RecordBatch]) -> None:
        if len(batches) == 1:
            FileLog.append(self, batches[0])  # one call, also where a subclass takes turns
            self._tail.clear()
            return
        self._check_open()
        check_due(batches, self.identity, self.end_offset, self.last_epoch)
        first = 0
        while first < len(batches):
            self._check_open()
            segment = self._make_ready(batches[first])
            stop = self._group_end(segment, batches, first)
            self._append_group(segment, batches[first:stop])
            first = stop

    def _group_end(self, segment: Segment, batches: Sequence[RecordBatch], first: int) -> int:
        """How many batches go into one write: as many as the segment takes and the call allows."""
        size, begun = segment.size, segment.first_timestamp_ms if segment.size else batches[first].max_timestamp_ms
        stop = first
        for batch in batches[first : first + BUFFERS_MAX // 2]:
            full = size + batch.length > self.config.segment_bytes or batch.max_timestamp_ms - begun >= self.config.segment_ms
            if full and stop > first:
                break
            size += batch.length
            stop += 1
        return stop

    def _append_group(self, segment: Segment, batches: Sequence[RecordBatch]) -> None:
        """Batches that fit into this segment, with one write."""
        length = 0
        buffers: list[bytes | memoryview] = []
        for batch in batches:
            length += batch.length
            buffers += (batch.front, batch.body)
        position = segment.size
        try:
            written = self._pwritev(segment.fd, buffers, position)
        except OSError as error:
            self._undo_write(segment, error)
        if written != length:
            self._write_rest(segment, buffers, written, length)
        self._tail.clear()
        for batch in batches:
            self._count_in(segment, batch, position)
            position += batch.length

    def _count_in(self, segment: Segment, batch: RecordBatch, position: int) -> None:
        """The batch is in the file, at `position`: make it part of the log."""
        newest = batch.max_timestamp_ms
        if position >= segment.index_due:
            assert segment.index is not None
            segment.index.add(batch.base_offset, position, segment.max_timestamp_ms)
            segment.index_due = position + self._storage.limits.index_interval_bytes
        if newest > segment.max_timestamp_ms:
            segment.max_timestamp_ms = newest
        if not position:
            segment.first_timestamp_ms = newest
        if batch.leader_epoch != self.last_epoch:
            self.epochs.assign(batch.leader_epoch, batch.base_offset)
            self.last_epoch = batch.leader_epoch
        if batch.producer_id >= 0:
            self.producers.record(batch)
            if batch.attributes & GROUP_OPEN_BIT:
                self.group_inside = batch.base_offset + batch.count
        segment.used = True
        end = batch.base_offset + batch.count
        segment.size, segment.end_offset, self.end_offset = position + batch.length, end, end  # at once: an interrupt finds all or nothing

    def _make_ready(self, batch: RecordBatch) -> Segment:
        """The segment for the next batch, with an open file: the last one, or a new one."""
        segment = self._active
        try:
            if segment is None or is_full(segment, batch.length, batch.max_timestamp_ms, self.config):
                return self._roll()
            self._storage.files.descriptor(segment)
            load_index(self._storage, self.identity, segment)
        except BadBatch as error:
            raise LogCorrupt(f"log {self.identity!r}: {error}") from error
        except OSError as error:
            self._refuse_append(error)
        return segment

    def _write_rest(self, segment: Segment, buffers: Sequence[bytes | memoryview], written: int, length: int) -> None:
        """The system took only part of a write: write the rest, which usually tells why, or take all of it back."""
        rest = memoryview(b"".join(buffers))
        try:
            while written < length:
                more = self._pwritev(segment.fd, (rest[written:],), segment.size + written)
                if not more:
                    raise OSError(ENOSPC, "nothing more was written")
                written += more
        except OSError as error:
            self._undo_write(segment, error, written)

    # -------------------------------------------------------------------------------------------------------- reading

    def _read_stored(self, offset: int, limit: int, max_bytes: int) -> list[Slice]:
        slices: list[Slice] = []
        try:
            while offset < limit:
                segment = self._segments[self._find(offset)]
                try:
                    part = slice_from(self._storage, self.identity, segment, offset, limit, max_bytes, first=not slices)
                except (LogCorrupt, LogFull):
                    if not slices:
                        raise
                    break  # what is in front is served; whoever goes on there meets the damage, or finds that it can be opened again
                if part is None:
                    break
                slices.append(part)
                offset = part.end_offset
                max_bytes -= part.length
                if offset < segment.end_offset:  # no more of it fits
                    break
        except BaseException:
            for taken in slices:
                taken.release()
            raise
        return slices

    def _met_damage(self) -> None:
        if self._active is not None:
            self._active.enter_next()

    def _header_of(self, offset: int) -> BatchHeader:
        return batch_holding(self._storage, self.identity, self._segments[self._find(offset)], offset)[1]

    def offset_for_time(self, timestamp_ms: int) -> tuple[int, int] | None:
        self._check_readable()
        for segment in self._segments:
            if segment.max_timestamp_ms >= timestamp_ms and segment.end_offset > self.start_offset:
                found = batch_from_time(self._storage, self.identity, segment, timestamp_ms, self.start_offset)
                if found is not None:
                    return found.base_offset, found.max_timestamp_ms
        return None

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    def _find(self, offset: int) -> int:
        """Index of the segment that holds `offset`. Raises LogDamaged if a reset has failed that had removed them all."""
        segments = self._segments
        if not segments:
            self._check_open()
        if offset >= segments[-1].base_offset:
            return len(segments) - 1
        return bisect_right(segments, offset, key=_BASE) - 1

    # ------------------------------------------------------------------------------------------------- taking records away

    def truncate_to(self, offset: int) -> None:
        self._check_open()
        if offset < self.start_offset:
            FileLog.reset_to(self, offset)  # likewise
            return
        if offset < self.end_offset:
            segment = self._segments[self._find(offset)]
            position, header = batch_holding(self._storage, self.identity, segment, offset)
            self._cut_files(segment, position, header.base_offset)
            self._cut_epochs(offset)  # at once: looking back may fail
            self._look_back(header.base_offset)
        else:
            self._cut_epochs(offset, cut=False)

    def _cut_epochs(self, offset: int, *, cut: bool = True) -> None:
        self.epochs.truncate(offset, cut=cut)
        self.last_epoch = self.epochs.latest.epoch if self.epochs.latest else -1

    def _look_back(self, end: int) -> None:
        """After a truncation to `end`: what the producers it cut did before, and the newest time in the last segment."""
        segment = self._segments[-1]
        cut = self.producers.truncate(end)
        try:
            index = load_index(self._storage, self.identity, segment)
            if segment.size:
                nearest = (index.offsets[-1], index.positions[-1])
                newest = max(header.max_timestamp_ms for header in headers_from(self._storage, self.identity, segment, *reversed(nearest)))
                segment.max_timestamp_ms = max(newest, index.times[-1])
            if cut:
                self._restore_producers(cut)
        except (BadBatch, OSError) as error:
            self.producers.forgetful = self.producers.forgetful or bool(cut)  # what those did before is not known any more
            raise LogCorrupt(f"log {self.identity!r}: {error}") from error

    def _restore_producers(self, cut: Cut) -> None:
        """Read the headers in front of the end of the log again, for these producers: as far back as their last batches may be.

        For writers of whom nothing is left, as far as that takes: to the last segment whose end is known, or to the beginning. Headers
        are looked at one by one, and none is kept.
        """
        found: list[tuple[Segment, int, int]] = []
        scanned_from, budget, below = self.end_offset, _LOOK_BACK_BYTES if cut.producers else 0, None
        unlimited = bool(cut.unknown)
        for segment in reversed(self._segments):
            if (budget <= 0 and not unlimited) or segment.end_offset <= self.start_offset:
                break
            if unlimited and segment.sealed and (below := self._table_at_end(segment)) is not None:
                break
            index = load_index(self._storage, self.identity, segment)
            reach = segment.size if unlimited else budget
            offset, position = index.last_within(max(0, segment.size - reach), segment.end_offset) or (segment.base_offset, 0)
            found.append((segment, position, offset))
            scanned_from = offset
            budget -= segment.size
        headers = chain.from_iterable(headers_from(self._storage, self.identity, *part) for part in reversed(found))
        self.producers.restore(cut, scanned_from, headers, below)

    def _table_at_end(self, segment: Segment) -> ProducerTable | None:
        """What was known of producers and writers where a segment ends; None if that was not left beside it."""
        fd = self._storage.files.descriptor(segment)
        summary = read_summary(self._storage.fs, fd, segment, segment.end_offset, self.identity)
        if summary is None:
            return None
        table = ProducerTable(self.producers.limit)
        table.load(summary.producers)
        return table

    def trim_to(self, offset: int) -> int:
        self._check_open()
        if offset > self.start_offset:
            offset = min(offset, self.end_offset)
            if offset < self.end_offset:
                segment = self._segments[self._find(offset)]
                offset = batch_holding(self._storage, self.identity, segment, offset)[1].base_offset
            self._start_at(max(offset, self.start_offset))
        self._remove_trimmed()
        return self.start_offset

    def _remove_trimmed(self) -> None:
        """Remove the segments that lie wholly below the start; all, if nothing is left: no later life finds what was there."""
        kept = next((one for one in self._segments if one.end_offset > self.start_offset), None)
        self._remove_below(self.end_offset if kept is None else kept.base_offset)

    def retained_start(self, wall_ms: int, limit: int) -> int:
        self._check_open()
        self.producers.expire(wall_ms, self.end_offset, self._storage.limits)
        count = expired(self._segments, self.config, wall_ms, limit)
        if not count:
            return self.start_offset
        start = self._segments[count].base_offset if count < len(self._segments) else self.end_offset
        return max(self.start_offset, start)

    def retain(self, wall_ms: int, limit: int) -> int:
        start = self.retained_start(wall_ms, limit)
        if start > self.start_offset:
            self._start_at(start)
        self._remove_trimmed()  # also what could not be removed before
        return self.start_offset
