"""What is left of a log after an unclean stop: its longest valid prefix, and what that says about what was lost.

Below the recovery point (known to be on disk) only headers are read, or summaries of whole segments. Above it, every
byte is verified. After a killed process the page cache has survived, so only the last segment can be unfinished, and
only by ending inside its last batch. After a power cut anything above the recovery point may be torn, missing or zero;
so it may be after a failed fsync, and what the cache still shows must be written again before it is looked at.

A process that was killed may have shortened a file, or removed one, without that being on the disk. So what is kept is
synced before anything is written behind it, wherever the last life may have changed something since the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import zip_longest
from typing import Any

from attrs import define, field

from replog.log.checkpoint import write_all
from replog.log.epochs import EpochTable
from replog.log.producers import ProducerTable
from replog.log.rewriting import write_again
from replog.log.scan import headers, valid_batch_follows
from replog.log.segment import LOG_SUFFIX, SUMMARY_SUFFIX, Segment, SparseIndex, StartNote, segment_base, segment_name, start_note
from replog.log.storage import Marker, Storage, place_marker, read_marker, read_summary, remove_summary
from replog.log.verify import Stop, Verifier
from replog.model import PartitionId
from replog.ports import LossKind
from replog.records import BadBatch, BatchHeader

__all__ = ["LogState", "recover", "restore", "to_plain"]

_EVIDENCE = ".bad"
_PIECE = 1 << 20


@define
class LogState:
    """What a FileLog begins with."""

    producers: ProducerTable
    epochs: EpochTable = field(factory=EpochTable)
    segments: list[Segment] = field(factory=list)
    start_offset: int = 0
    end_offset: int = 0
    flushed_end: int = 0
    marker: Marker | None = None
    bytes_cut: int = 0
    """Bytes of an unfinished write that were removed."""
    corrupt: str = ""
    """Why records that were safely stored are gone or unreadable; empty if none are."""
    hole: bool = False
    """After a power cut: something valid lay behind the cut, so more was lost than the end of the last write."""
    names_durable: bool = False
    """The names of the folder and of the segments are known to be on the disk."""

    @classmethod
    def missing(cls, producers_max: int, start_offset: int, flushed_end: int, committed_end: int) -> LogState:
        """A log whose folder is gone although it had records that were flushed, or committed, or none left and a start."""
        state = cls(ProducerTable(producers_max))
        state.start_offset = state.end_offset = state.flushed_end = start_offset
        state.producers.forgetful = True
        if max(flushed_end, committed_end) > start_offset:
            end, what = (flushed_end, "flushed") if flushed_end >= committed_end else (committed_end, "committed")
            state.corrupt = f"the folder is missing, and with it records up to offset {end}, which were {what}"
        return state


def to_plain(state: LogState) -> list[Any]:
    """A log that was flushed and is closed, as plain values for `restore`."""
    segments = [[s.base_offset, s.end_offset, s.size, s.first_timestamp_ms, s.max_timestamp_ms] for s in state.segments]
    epochs = [list(entry) for entry in state.epochs.of_records(state.end_offset)]
    return [state.start_offset, state.end_offset, segments, epochs, state.producers.snapshot()]


def restore(storage: Storage, identity: PartitionId, saved: list[Any]) -> LogState | None:
    """The state that `to_plain` described, read without touching the batches; None if the files are not as they were left."""
    start_offset, end_offset, segments, epochs, producers = saved
    state = LogState(ProducerTable(storage.limits.producers_max), EpochTable(map(tuple, epochs)))
    state.producers.load(producers)
    state.start_offset, state.end_offset, state.flushed_end = start_offset, end_offset, end_offset
    if epochs and start_offset == end_offset:
        state.epochs.begin(epochs[0][0], start_offset)
    folder = storage.folder_of(identity)
    for base, end, size, first_ms, newest_ms in segments:
        segment = Segment(f"{folder}/{segment_name(base)}", base)
        segment.end_offset, segment.size, segment.sealed = end, size, True
        segment.first_timestamp_ms, segment.max_timestamp_ms = first_ms, newest_ms
        state.segments.append(segment)
    if state.segments:
        last = state.segments[-1]
        last.sealed = False
        if storage.fs.size(last.path) != last.size:
            return None
    state.names_durable = not state.segments or state.segments[-1].size > 0  # an empty one was never flushed
    return state


def recover(
    storage: Storage,
    identity: PartitionId,
    start: int | None,
    flushed_end: int,
    note_loss: Callable[[LossKind], None],
    *,
    power: bool,
    committed_end: int = 0,
    rewrite: bool = False,
) -> LogState:
    """Recover the log whose folder exists, given what the last checkpoint knew. Raises OSError if the disk does not let it.

    `committed_end`: its high watermark, flushed or not; 0 after a power cut, which may take what is below: a killed process leaves it in
    the cache.

    `start` None: the checkpoint is lost. Then the log starts where its files do, and whether something is missing in
    front of them cannot be told; it is never a reason to throw away what is there (P-50). `rewrite`: an fsync has failed,
    so that what the cache shows above the recovery point may not be on the disk, and no later fsync would bring it there.
    `note_loss` is called before anything is removed that may have counted: once it is cut, no later opening sees that it was there.
    """
    return _Recovery(storage, identity, start, flushed_end, note_loss, power, committed_end, rewrite).run()


class _Recovery:
    def __init__(
        self,
        storage: Storage,
        identity: PartitionId,
        start: int | None,
        flushed_end: int,
        note_loss: Callable[[LossKind], None],
        power: bool,
        committed_end: int,
        rewrite: bool,
    ) -> None:
        self.storage, self.fs, self.identity = storage, storage.fs, identity
        self.note_loss = note_loss
        self.rewrite = rewrite
        self.folder = storage.folder_of(identity)
        self.power = power
        self.state = LogState(ProducerTable(storage.limits.producers_max))
        self.verifier = Verifier(storage.fs, identity, storage.limits.index_interval_bytes, self._take_epoch_and_producer)
        marker = self.state.marker = read_marker(self.fs, self.folder)
        self.start = marker.start if marker is not None and marker.start >= 0 else start or 0
        # Killing a process loses no file: what is missing in front was trimmed, whatever became of the checkpoint.
        self.starts_with_files = not power or start is None
        self.state.hole = power and start is None
        self.note: StartNote | None = None
        self.recovery_point, self.committed_end = flushed_end, committed_end
        if marker is not None:
            self.recovery_point = min(flushed_end, marker.recovery_max)
            self.committed_end = min(committed_end, marker.recovery_max)

    def run(self) -> LogState:
        state = self.state
        bases = self._clean_up()
        if self.rewrite:
            self._write_again(bases)
        bases = self._without_trimmed(bases)
        end = self.start
        if bases:
            if self.starts_with_files:
                self.start = max(self.start, bases[0])
            end = self._read_segments(bases)
        if end < self.start:  # what was trimmed is all that is left
            self._remove(state.segments, end)
            state.epochs.clear()
            end = self.start
        if end < self.recovery_point and not state.corrupt:
            state.corrupt = f"records from offset {end} to {self.recovery_point}, which were flushed, are missing"
        elif end < self.committed_end and not state.corrupt:
            state.corrupt = f"records from offset {end} to {self.committed_end}, which were committed, are missing"
        state.start_offset, state.end_offset = self.start, end
        state.flushed_end = min(max(self.recovery_point, self.start), end)
        state.epochs.trim(self.start)
        if self.note is not None and self.note.start == self.start and self.note.epoch >= 0:
            state.epochs.begin(self.note.epoch, self.start)
        state.producers.forgetful = state.producers.forgetful or self.start > 0
        if state.segments:
            state.segments[-1].sealed = False
        if state.marker is not None or end != self.recovery_point:
            self._settle()
        return state

    def _settle(self) -> None:
        """Make what is kept durable, as it is: else a power cut could bring the old end of a file back behind what is appended next.

        Not for a log that is as the checkpoint describes it, which of thousands of logs most are: a truncation to just
        there has left a marker. What an fsync that failed has lost is not brought back by this one: see `rewrite`.
        """
        if self.state.segments:
            self._sync(self.storage.files.descriptor(self.state.segments[-1]))
        self._sync(None)

    def _sync(self, fd: int | None) -> None:
        """fsync of a file, or of the folder. The system tells of a failure once: the next open must not trust what the cache shows."""
        try:
            if fd is None:
                self.storage.syncs.folder(self.folder)
            else:
                self.storage.syncs.file(fd)
        except OSError as error:
            self.storage.flush_failed(error)
            raise

    def _clean_up(self) -> list[int]:
        """Finish what a crash interrupted; returns the base offsets of the segments."""
        names = self.fs.listdir(self.folder)
        bases = sorted(base for name in names if (base := segment_base(name)) is not None)
        starts = sorted(note for name in names if (note := start_note(name)) is not None)
        if self.state.marker is not None and self.state.marker.resetting:
            self._remove([self._segment(base) for base in bases], self.start)
            for one in starts:
                self.fs.unlink(f"{self.folder}/{one.name}")
            self._sync(None)
            bases, starts = [], []
            self.state.marker = self.state.marker._replace(resetting=False)
            place_marker(self.fs, self.folder, self.state.marker)
            self._sync(None)
        if starts:
            self.note = starts[-1]
            self.start = max(self.start, self.note.start)
            self._empty_note(self.note)  # earlier ones are empty, and go with the next trim
        for name in names:
            orphan = name.endswith(SUMMARY_SUFFIX) and segment_base(name.removesuffix(SUMMARY_SUFFIX) + LOG_SUFFIX) not in bases
            if orphan or name.endswith(".new"):
                with suppress(FileNotFoundError):
                    self.fs.unlink(f"{self.folder}/{name}")
        return self._without_leftovers(bases)

    def _without_leftovers(self, bases: list[int]) -> list[int]:
        """A segment may have been begun in vain: if its file is still there, and the log went on in the one before it, it goes now."""
        kept = bases[:1]
        for base in bases[1:]:
            if self.fs.size(f"{self.folder}/{segment_name(base)}") or not self._goes_on(kept[-1], base):
                kept.append(base)
            else:
                self._remove([self._segment(base)], base)
        return kept

    def _goes_on(self, base: int, offset: int) -> bool:
        """Whether the segment at `base` holds a batch that ends behind `offset`."""
        segment = self._segment(base)
        try:
            fd, size = self.storage.files.descriptor(segment), self.fs.size(segment.path) or 0
            return any(header.end_offset > offset for _, header in headers(self.fs, fd, 0, size, base, self.identity))
        except BadBatch:
            return False
        finally:
            self.storage.files.close(segment)

    def _empty_note(self, note: StartNote) -> None:
        """A note of where the log begins was a segment once; its bytes are not needed."""
        path = f"{self.folder}/{note.name}"
        if self.fs.size(path):
            self._sync(None)  # a power cut must not give it its old name back, and it is empty
            fd = self.fs.open(path)
            try:
                self.fs.ftruncate(fd, 0)
            finally:
                self.fs.close(fd)

    def _write_again(self, bases: list[int]) -> None:
        """Everything that may not have been flushed. If that fails, the note that it must be done is still there at the next open."""
        for base, next_base in zip_longest(bases, bases[1:]):
            if next_base is None or next_base > self.recovery_point:
                write_again(self.fs, self._segment(base).path, base, self.recovery_point)
        self.fs.fsync_dir(self.folder)

    def _without_trimmed(self, bases: list[int]) -> list[int]:
        """Segments wholly below the start go: a torn one that a power cut has brought back would cost the good ones behind it."""
        trimmed = [base for base, next_base in zip_longest(bases, bases[1:]) if next_base is not None and next_base <= self.start]
        for number, base in enumerate(trimmed):
            try:
                self._unlink(self._segment(base))
            except OSError:
                return bases[number:]  # for now it stays a part of the log; the next trim removes it
            self._sync(None)
        return bases[len(trimmed) :]

    def _segment(self, base: int) -> Segment:
        segment = Segment(f"{self.folder}/{segment_name(base)}", base)
        segment.sealed = True
        return segment

    def _read_segments(self, bases: list[int]) -> int:
        """Take over segments as long as each begins where the one before ended; cut the rest. Returns the end offset."""
        last, state = bases[-1], self.state
        while (end := self._follow(bases, last)) is None:  # it ends earlier: what is its last segment now is read as the last is, also by
            last = state.segments[-1].base_offset  # this life. Else the next one finds, and reports, what was there all the time.
            for segment in state.segments:
                self.storage.files.close(segment)
            state.segments.clear()
            state.epochs, state.producers = EpochTable(), ProducerTable(self.storage.limits.producers_max)
        return end

    def _follow(self, bases: list[int], last: int) -> int | None:
        """The end offset; None, before anything is cut, if a segment in front of `last` was read by its headers and is now the last."""
        state = self.state
        # After a killed process only the last segment can be unfinished: the others were complete before it was begun.
        verify_from = self.recovery_point if self.power else max(self.recovery_point, bases[-1])
        end = min(bases[0], self.start)
        for number, base in enumerate(bases):
            next_base = bases[number + 1] if number + 1 < len(bases) else None
            if base != end:
                self._cut(None, [self._segment(b) for b in bases[number:]], Stop(0, end, f"no segment begins at offset {end}"))
                break
            segment = self._segment(base)
            state.segments.append(segment)
            if next_base is not None and next_base <= verify_from and base < last:
                stop = self._take_headers(segment, next_base)
                if stop.reason or stop.offset != next_base:
                    return None
            else:
                stop = self._take_verified(segment)
            end = segment.end_offset = stop.offset
            if stop.reason:
                self._cut(segment, [self._segment(b) for b in bases[number + 1 :]], stop)
                break
        return end

    def _take_headers(self, segment: Segment, next_base: int) -> Stop:
        """A segment that is surely complete: from its summary, or else from its headers."""
        size = self.fs.size(segment.path) or 0
        fd = self.storage.files.descriptor(segment)
        segment.size = size
        summary = read_summary(self.fs, fd, segment, next_base, self.identity)
        if summary is not None and self._covers(summary.epochs):
            segment.index, self.state.epochs = summary.index, summary.epochs
            self.state.producers.load(summary.producers)
            return Stop(size, next_base, "")
        segment.size = 0
        try:
            for position, header in headers(self.fs, fd, 0, size, segment.base_offset, self.identity):
                self._take(segment, position, header)
        except BadBatch as error:
            return Stop(segment.size, segment.end_offset, str(error))
        return Stop(segment.size, segment.end_offset, "")

    def _covers(self, epochs: EpochTable) -> bool:
        """Whether a summary knows the epochs of all that is kept: it was written after a trim that has not come as far on the disk."""
        entries = epochs.entries()
        return not entries or entries[0].start <= max(self.start, self.state.segments[0].base_offset)

    def _take_verified(self, segment: Segment) -> Stop:
        """A segment that may be unfinished: every byte."""
        size = self.fs.size(segment.path) or 0
        latest = self.state.epochs.latest
        return self.verifier.run(segment, self.storage.files.descriptor(segment), size, latest.epoch if latest else -1)

    def _take_epoch_and_producer(self, header: BatchHeader) -> None:
        """The next batch of the log, of those that begin an epoch or have a producer."""
        self.state.epochs.assign(header.leader_epoch, header.base_offset)
        if header.producer_id >= 0:
            self.state.producers.record(header)

    def _take(self, segment: Segment, position: int, header: BatchHeader) -> None:
        """The next batch of the log, which is at `position` of this segment."""
        if segment.index is None:
            segment.index = SparseIndex()
            segment.first_timestamp_ms = header.max_timestamp_ms
        if position >= segment.index_due:
            segment.index.add(header.base_offset, position, segment.max_timestamp_ms)
            segment.index_due = position + self.storage.limits.index_interval_bytes
        if header.max_timestamp_ms > segment.max_timestamp_ms:
            segment.max_timestamp_ms = header.max_timestamp_ms
        segment.size = position + header.length
        segment.end_offset = header.base_offset + header.count
        self._take_epoch_and_producer(header)

    def _cut(self, segment: Segment | None, later: list[Segment], stop: Stop) -> None:
        """Judge why the log ends here, then remove what lies behind: newest segment first."""
        state, fs = self.state, self.fs
        sizes = [fs.size(one.path) or 0 for one in later]
        rest = 0
        counted = max(stop.offset, self.start)  # what is trimmed may be gone: of the last segment it need never have been flushed
        follows = any(sizes)
        if segment is not None:
            fd = self.storage.files.descriptor(segment)
            rest = (fs.size(segment.path) or 0) - stop.position
            follows = follows or valid_batch_follows(fs, fd, stop.position, counted, self.identity)
        reason = f"at offset {stop.offset}: {stop.reason}"
        if counted < max(self.recovery_point, self.committed_end) or (not self.power and (follows or not stop.torn)):
            state.corrupt = reason
        state.hole = state.hole or (self.power and follows)
        if state.corrupt or state.hole:
            self.note_loss("corrupt" if state.corrupt else "power")
            self._keep_evidence(segment, later, stop)
        state.bytes_cut = rest + sum(sizes)
        if stop.offset == self.recovery_point and state.marker is None:
            self._note_cut(stop.offset)
        self._remove(later, stop.offset)
        if segment is not None:
            remove_summary(fs, segment)
            fs.ftruncate(self.storage.files.descriptor(segment), stop.position)
            self._sync(segment.fd)  # what is cut must not come back behind what is appended next

    def _note_cut(self, offset: int) -> None:
        """A cut to where the checkpoint says that the log ends: were it interrupted, the next life would see nothing to make durable."""
        marker = Marker(-1, offset)
        with suppress(OSError):  # without room for it only an interruption of this very cut goes unseen
            place_marker(self.fs, self.folder, marker)
            self.state.marker = marker
        self._sync(None)

    def _keep_evidence(self, segment: Segment | None, later: list[Segment], stop: Stop) -> None:
        """Copy what does not fit aside, durably, before it is cut: it may be the last copy of something.

        Raises OSError, and then nothing is cut. But a full disk keeps nobody from starting after a power cut: what that has left behind
        a hole was never known to be on the disk, and goes also where it cannot be kept.
        """
        try:
            for part in [*([segment] if segment else []), *later]:
                self._copy_aside(part.path, stop.position if part is segment else 0)
        except OSError:
            if self.state.corrupt:
                raise
        self._sync(None)

    def _copy_aside(self, path: str, start: int) -> None:
        """Copy a segment from `start`, in pieces, as it may be larger than the memory; once whole it replaces earlier evidence."""
        fs, begun = self.fs, f"{path}{_EVIDENCE}.new"
        source, position = fs.open(path), start
        try:
            fd = fs.open(begun, create=True)
            try:
                while piece := fs.pread(source, _PIECE, position):
                    write_all(fs, fd, piece, position - start)
                    position += len(piece)
                fs.fsync(fd)
            finally:
                fs.close(fd)
            fs.rename(begun, path + _EVIDENCE)
        except OSError:
            with suppress(OSError):
                fs.unlink(begun)  # it may have taken the last room
            raise
        finally:
            fs.close(source)

    def _remove(self, segments: list[Segment], end: int) -> None:
        """Remove segments, newest first, so that a crash in between leaves no hole."""
        for segment in reversed(segments[:]):
            self._unlink(segment)
            self._sync(None)
        if segments is self.state.segments:
            segments.clear()

    def _unlink(self, segment: Segment) -> None:
        self.storage.files.close(segment)
        remove_summary(self.fs, segment)
        self.fs.unlink(segment.path)
