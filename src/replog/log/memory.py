"""Logs in memory: a backend of its own for clusters without files, for the simulator and for tests; same contract as files.

>>> from replog.model import PartitionId
>>> log = MemoryLog(PartitionId(bytes(16), 0, 0))
>>> log.append_records(["a", "b"], now_ms=1_000)
(0, 1)
>>> [record.value for record in log.records()]
[b'a', b'b']
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from errno import EIO
from typing import Final

from attrs import define, evolve

from replog.config import BrokerConfig, TopicConfig
from replog.errors import LogClosed, LogDamaged, LogFull, UsageError
from replog.log.base import JoinedSlice, StoredLog
from replog.log.due import check_due, not_due
from replog.log.files import OS
from replog.log.given import check_settings
from replog.log.loss import Life, gravest
from replog.log.producers import ProducerTable
from replog.log.recorded import is_flushed, recordable
from replog.log.retention import expired, is_full
from replog.log.staging import MemoryStaging
from replog.log.tail import NO_TAIL, Tail
from replog.model import PartitionId
from replog.ports import FlushToken, Log, LogDirectory, LogStart, LossKind, LossReport, MemorySlice, Slice
from replog.records import GROUP_OPEN_BIT, BatchHeader, RecordBatch, read_header

_LIMITS = BrokerConfig()
_NEVER_CUT: Final = 1 << 63

__all__ = ["MemoryLog", "MemoryLogDirectory", "MemorySegment"]


@define
class MemorySegment:
    """The batches between two rolls; only retention cares."""

    base_offset: int
    end_offset: int
    size: int = 0
    first_timestamp_ms: int = -1
    max_timestamp_ms: int = -1


class MemoryLog(StoredLog):
    """A log in memory. Its flushes run like those of a file, so that a simulated power cut can lose what was not flushed."""

    __slots__ = ("_bases", "_fail_directory", "_frames", "_limits", "_segments", "_times", "flushes_fail", "full", "shortest")

    def __init__(
        self,
        identity: PartitionId,
        config: TopicConfig | None = None,
        *,
        limits: BrokerConfig | None = None,
        start_offset: int = 0,
        fail_directory: Callable[[str], None] | None = None,
    ) -> None:
        check_settings(config, limits)
        limits = limits or _LIMITS
        super().__init__(identity, config or TopicConfig(), limits.producers_max, start_offset)
        self._limits = limits
        self._frames: list[bytes] = []  # one per batch, as stored
        self._bases: list[int] = []
        self._times: list[int] = []  # newest record of each batch
        self._segments: list[MemorySegment] = []
        self._fail_directory = fail_directory or self.fail
        self.shortest = _NEVER_CUT
        """The lowest end of this log since the last checkpoint of its directory, if records were taken away since."""
        self.full = False
        """Set it to have appends refused with LogFull, as on a disk without space."""
        self.flushes_fail = False
        """Set it to have every flush fail from now on, as on a broken disk."""

    # ------------------------------------------------------------------------------------------------------ appending

    def append(self, batch: RecordBatch) -> None:
        if self._refusal is not None:
            self._check_open()
        if self.full:
            raise LogFull(f"log {self.identity!r}: no space for {batch.length} bytes")
        base = batch.base_offset
        if base != self.end_offset or batch.leader_epoch < self.last_epoch or batch.identity != self.identity:
            raise not_due(batch, self.identity, self.end_offset, self.last_epoch)
        segments, newest = self._segments, batch.max_timestamp_ms
        if not segments or is_full(segments[-1], batch.length, newest, self.config):
            segments.append(MemorySegment(base, base))
        segment = segments[-1]
        if not segment.size:
            segment.first_timestamp_ms = newest
        segment.size += batch.length
        segment.end_offset = end = base + batch.count
        if newest > segment.max_timestamp_ms:
            segment.max_timestamp_ms = newest
        self._frames.append(b"".join((batch.front, batch.body)))
        self._bases.append(base)
        self._times.append(newest)
        if batch.leader_epoch != self.last_epoch:
            self.epochs.assign(batch.leader_epoch, base)
            self.last_epoch = batch.leader_epoch
        if batch.producer_id >= 0:
            self.producers.record(batch)
            if batch.attributes & GROUP_OPEN_BIT:
                self.group_inside = end
        self.end_offset = end
        if self._tail is NO_TAIL:
            self._tail = Tail()
        self._tail.add(batch)

    def append_many(self, batches: Sequence[RecordBatch]) -> None:
        self._check_open()
        check_due(batches, self.identity, self.end_offset, self.last_epoch)
        for batch in batches:
            self.append(batch)
            self._tail.clear()

    # -------------------------------------------------------------------------------------------------------- reading

    def _read_stored(self, offset: int, limit: int, max_bytes: int) -> list[Slice]:
        first = self._find(offset)
        stop, size = first, 0
        while stop < len(self._frames) and self._end_of(stop) <= limit:
            size += len(self._frames[stop])
            if size > max_bytes and stop > first:
                size -= len(self._frames[stop])
                break
            stop += 1
        if stop == first:
            return []
        base, end, frames = self._bases[first], self._end_of(stop - 1), self._frames[first:stop]
        return [MemorySlice(base, end, frames[0]) if len(frames) == 1 else JoinedSlice(base, end, size, list(frames))]

    def offset_for_time(self, timestamp_ms: int) -> tuple[int, int] | None:
        self._check_readable()
        for index in range(self._find(self.start_offset) if self._bases else 0, len(self._bases)):
            if self._times[index] >= timestamp_ms and self._end_of(index) > self.start_offset:
                return self._bases[index], self._times[index]
        return None

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    # ------------------------------------------------------------------------------------------------- taking records away

    def truncate_to(self, offset: int) -> None:
        self._check_open()
        if offset < self.start_offset:
            self.reset_to(offset)
            return
        cut = offset < self.end_offset
        if cut:
            keep = self._find(offset)
            self.generation += 1
            self.end_offset = self._bases[keep]
            self.shortest = min(self.shortest, self.end_offset)
            self.flushed_end = min(self.flushed_end, self.end_offset)
            self._drop_from(keep)
            scanned_from = self._bases[0] if self._bases else self.end_offset
            self.producers.restore(self.producers.truncate(self.end_offset), scanned_from, self._headers())
        self.epochs.truncate(offset, cut=cut)
        self.last_epoch = self.epochs.latest.epoch if self.epochs.latest else -1

    def trim_to(self, offset: int) -> int:
        self._check_open()
        if offset > self.start_offset:
            offset = min(offset, self.end_offset)
            self._start_at(self._bases[self._find(offset)] if offset < self.end_offset else offset)
            self._drop_segments(sum(1 for segment in self._segments if segment.end_offset <= self.start_offset))
            self._count_trimmed()
        return self.start_offset

    def reset_to(self, offset: int) -> None:
        self._check_open()
        self.generation += 1
        self._drop_from(0)
        self._segments.clear()
        self.start_offset = self.end_offset = self.flushed_end = offset
        self.shortest = min(self.shortest, offset)
        self.epochs.clear()
        self.last_epoch = -1
        self.producers.clear()
        self.producers.forgetful = offset > 0

    def retained_start(self, wall_ms: int, limit: int) -> int:
        self._check_open()
        self.producers.expire(wall_ms, self.end_offset, self._limits)
        count = expired(self._segments, self.config, wall_ms, limit)
        start = self._segments[count].base_offset if count < len(self._segments) else self.end_offset
        return max(self.start_offset, start) if count else self.start_offset

    def retain(self, wall_ms: int, limit: int) -> int:
        self.retained_start(wall_ms, limit)
        count = expired(self._segments, self.config, wall_ms, limit)
        if count:
            self._start_at(max(self.start_offset, self._segments[count].base_offset if count < len(self._segments) else self.end_offset))
            self._drop_segments(count)
            self._count_trimmed()
        return self.start_offset

    # ------------------------------------------------------------------------------------------------- flushing, closing

    def flush(self) -> FlushToken | None:
        self._check_open()
        if self.flushed_end == self.end_offset:
            return None
        return FlushToken(self.identity, self.generation, self.end_offset, self._run_flush)

    def _run_flush(self) -> OSError | None:
        return OSError(EIO, "the disk is set to fail") if self.flushes_fail else None

    def flushed(self, token: FlushToken) -> None:
        if token.failed:
            self._fail_directory(f"log {self.identity!r}: a flush failed: {token.error}")
        self._check_open()
        if token.error is not None:
            raise LogFull(f"log {self.identity!r} cannot be flushed now: {token.error}") from token.error
        if token.generation == self.generation:
            self.flushed_end = max(self.flushed_end, token.end)

    def close(self) -> None:
        self._refusal = (LogClosed, f"log {self.identity!r} is closed")

    def revived(self, end_offset: int, fail_directory: Callable[[str], None] | None = None) -> MemoryLog:
        """What a restart finds of this log when everything at and above `end_offset` is lost: another log, rebuilt from its batches."""
        log = MemoryLog(self.identity, self.config, start_offset=self.start_offset, fail_directory=fail_directory)
        log.producers = ProducerTable(self.producers.limit)
        log._limits = self._limits
        log._segments = [evolve(segment) for segment in self._segments]
        # Up to where the end says: an interrupted append or truncation may have left more in one list than in another.
        count = bisect_left(self._bases, self.end_offset)
        log._frames, log._bases, log._times = self._frames[:count], self._bases[:count], self._times[:count]
        log.end_offset = log.group_inside = self.end_offset
        for header in log._headers():
            log.epochs.assign(header.leader_epoch, header.base_offset)
            if header.producer_id >= 0:
                log.producers.record(header)
        log.producers.forgetful = log.producers.forgetful or self.start_offset > 0
        log.epochs.trim(log.start_offset)
        log.epochs.begin(self.epochs.below, log.start_offset)
        log.last_epoch = log.epochs.latest.epoch if log.epochs.latest else -1
        log.flushed_end = min(self.flushed_end, log.end_offset)
        if end_offset < log.end_offset:
            log.truncate_to(max(end_offset, log.start_offset))
        return log

    # ----------------------------------------------------------------------------------------------------------- inside

    def _find(self, offset: int) -> int:
        """Index of the batch that holds `offset`."""
        return bisect_right(self._bases, offset) - 1

    def _header_of(self, offset: int) -> BatchHeader:
        return read_header(self._frames[self._find(offset)])

    def _end_of(self, index: int) -> int:
        return self._bases[index + 1] if index + 1 < len(self._bases) else self.end_offset

    def _headers(self) -> Iterator[BatchHeader]:
        return (read_header(frame) for frame in self._frames)

    def _start_at(self, offset: int) -> None:
        self.start_offset = offset
        self.epochs.trim(offset)

    def _count_trimmed(self) -> None:
        """What lies below the first segment that is still needed is gone for good: no restart ends below."""
        first = next((segment.base_offset for segment in self._segments if segment.end_offset > self.start_offset), self.end_offset)
        self.flushed_end = max(self.flushed_end, first)

    def _drop_from(self, keep: int) -> None:
        """Drop the batches from index `keep` on, and what the segments know of them."""
        self._tail.clear()
        del self._frames[keep:], self._bases[keep:], self._times[keep:]
        while self._segments and self._segments[-1].base_offset >= self.end_offset and len(self._segments) > 1:
            self._segments.pop()
        if self._segments:
            segment = self._segments[-1]
            first = bisect_right(self._bases, segment.base_offset - 1)
            segment.end_offset = max(segment.base_offset, min(segment.end_offset, self.end_offset))
            segment.size = sum(map(len, self._frames[first:]))
            segment.max_timestamp_ms = max(self._times[first:], default=-1)

    def _drop_segments(self, count: int) -> None:
        """Drop the oldest segments with their batches."""
        if count:
            if count == len(self._segments):
                self._tail.clear()
                self._segments.append(MemorySegment(self.end_offset, self.end_offset))
            del self._segments[:count]
            gone = bisect_right(self._bases, self._segments[0].base_offset - 1)
            del self._frames[:gone], self._bases[:gone], self._times[:gone]


class MemoryLogDirectory(LogDirectory):
    """Logs in memory, with the life of a directory: it can be stopped, killed or lose power, and be opened again.

    `reopened()` is what the next open finds. A directory made anew is empty; a broker that had another one before says
    so with `loss=LossReport("replaced")`. Leave `directory_id` out then: two directories of one id are taken for one.
    """

    def __init__(
        self, *, limits: BrokerConfig | None = None, directory_id: str | None = None, loss: LossReport | None = None
    ) -> None:
        self.directory_id = OS.random_bytes(16).hex() if directory_id is None else directory_id
        self.loss = loss or LossReport()
        self.staging = MemoryStaging()
        self.high_watermarks: dict[PartitionId, int] = {}
        self._limits = limits or BrokerConfig()
        self._logs: dict[PartitionId, MemoryLog] = {}
        self._topics: dict[PartitionId, str] = {}
        self._recorded: dict[PartitionId, TopicConfig] = {}
        self._unrecorded: dict[PartitionId, int] = {}  # as in FileLogDirectory
        self._quarantined: dict[PartitionId, int] = {}
        self._saved: dict[PartitionId, int] = {}  # high watermarks as of the last checkpoint
        self._end: LossKind | None = None  # how this life ended: "none" is cleanly
        self._failed = ""
        self._begin(1)

    def _begin(self, number: int) -> None:
        self._number = number
        self.incarnation = f"{self.directory_id}.{number}"
        self._life = Life.begun("", self.incarnation, self.loss)

    def identities(self) -> list[PartitionId]:
        return sorted(self._logs)

    def topic_of(self, identity: PartitionId) -> str:
        return self._topics[identity]

    def get(self, identity: PartitionId) -> MemoryLog | None:
        return self._logs.get(identity)

    def create(self, starts: Iterable[LogStart]) -> list[Log]:
        self._check_open()
        logs: list[Log] = []
        for identity, topic, config in starts:
            log = self._logs.get(identity)
            held = self._recorded[identity] = recordable(log, self._recorded.get(identity), config)
            if log is None:
                log = self._logs[identity] = MemoryLog(identity, config, limits=self._limits, fail_directory=self.fail)
            log.config = config
            if config.flush == held.flush:
                self._unrecorded.pop(identity, None)
            else:
                self._unrecorded.setdefault(identity, log.end_offset)
            self._topics[identity] = topic
            logs.append(log)
        return logs

    def record_flushes(self) -> None:
        self._check_open()
        for identity in [one for one, end in self._unrecorded.items() if is_flushed(self._logs[one], end)]:
            self._recorded[identity] = evolve(self._recorded[identity], flush="ack")
            del self._unrecorded[identity]

    def quarantine_each(self, identities: Iterable[PartitionId], wall_ms: int) -> None:
        self._check_open()
        for identity in identities:
            log = self._logs.pop(identity, None)
            if log is not None:
                log.close()
                del self._recorded[identity]
                self._unrecorded.pop(identity, None)
                self._quarantined[identity] = wall_ms
                self.high_watermarks.pop(identity, None)
                self._saved.pop(identity, None)

    def quarantined(self) -> dict[PartitionId, int]:
        return dict(self._quarantined)

    def purge_each(self, identities: Iterable[PartitionId]) -> None:
        self._check_open()
        for identity in identities:
            if self._quarantined.pop(identity, None) is not None and identity not in self._logs:
                self._topics.pop(identity, None)

    def registered(self, broker_epoch: int) -> None:
        self._check_open()
        self._life = self._life.let_in()

    def checkpoint(self) -> None:
        self._check_open()
        self._saved = {identity: self.high_watermarks[identity] for identity in self._logs if identity in self.high_watermarks}
        for log in self._logs.values():
            log.shortest = _NEVER_CUT

    def close(self, *, clean: bool) -> None:
        if self._end is not None:
            return
        damaged = bool(self._failed) or any(log.is_damaged for log in self._logs.values())
        if clean and not damaged:
            for log in self._logs.values():
                token = log.flush()
                if token is not None:
                    log.flushed(token.run())
            self.checkpoint()
        self._stop("none" if clean and not damaged else "process")

    # ---------------------------------------------------------------------------------------------- for simulations

    def crash(self, *, power: bool) -> None:
        """Kill this life: with `power`, everything that was not flushed is lost as well."""
        if self._end is None:
            self._stop("power" if power else "process")

    def reopened(self) -> MemoryLogDirectory:
        """The next life of a directory that has ended, with its loss report."""
        if self._end is None:
            raise UsageError("the directory is still open; close or crash it first")
        power = self._end == "power"
        found = set(self._logs if self._failed else ())
        if power:
            found.update(identity for identity in self._logs if self._recorded[identity].flush != "ack")
        lossy = found.union(self._life.lossy)
        kind: LossKind = self.loss.kind if self._end == "none" and lossy else "power" if self._failed else self._end
        if self._life.lossy:
            kind = gravest((kind, self._life.kind))
        loss = LossReport(kind, tuple(sorted(lossy)), self._life.lives, "" if found else self._life.since)
        next_life = MemoryLogDirectory(limits=self._limits, directory_id=self.directory_id, loss=loss)
        next_life._begin(self._number + 1)
        for identity, log in self._logs.items():
            revived = next_life._logs[identity] = log.revived(log.flushed_end if power else log.end_offset, next_life.fail)
            revived.config = self._recorded[identity]
        next_life._recorded = dict(self._recorded)
        next_life._topics, next_life._quarantined = dict(self._topics), dict(self._quarantined)
        for identity, high_watermark in self._saved.items():
            if identity in next_life._logs:
                log = next_life._logs[identity]
                high_watermark = min(high_watermark, self._logs[identity].shortest)
                next_life.high_watermarks[identity] = min(max(high_watermark, log.start_offset), log.end_offset)
        next_life._saved = dict(next_life.high_watermarks)
        return next_life

    def fail(self, reason: str) -> None:
        """A flush failed: no log here takes another append in this life, and all may have lost records in the next."""
        self._failed = reason
        for log in self._logs.values():
            log.fail(reason)

    def _stop(self, end: LossKind) -> None:
        self._end = end
        for log in self._logs.values():
            log.close()

    def _check_open(self) -> None:
        if self._end is not None:
            raise LogClosed("the log directory is closed")
        if self._failed:
            raise LogDamaged(self._failed)
