"""The segments of a log, and the order of file operations that keeps them one contiguous log whenever a crash comes.

* Segments are removed from one end only: the newest first when truncating, the oldest first when trimming; and no name
  is removed before the removal in front of it is durable. A power cut can then not leave a hole (P-14).
* A truncation is durable before anything is written behind it. Else a power cut can keep the new end and lose what
  came between, and the old records there join what is before and behind them: a log that nobody ever had.
* A truncation below what the checkpoint calls flushed leaves a marker first, so that recovery does not miss what was
  dropped on purpose (KAFKA-10101). A reset leaves one before and after, because its new start is in no file's name.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from errno import EDQUOT, EFBIG, EMFILE, ENFILE, ENOSPC
from typing import Any, Final, NoReturn

from replog.config import TopicConfig
from replog.errors import LogClosed, LogFull
from replog.log.base import StoredLog
from replog.log.flushing import FlushRun
from replog.log.recovery import LogState, to_plain
from replog.log.segment import Segment, SparseIndex, segment_name
from replog.log.storage import OFFSET_MAX, Marker, Storage, remove_marker, remove_summary, write_marker, write_summary
from replog.model import PartitionId
from replog.ports import FlushToken

__all__ = ["PASSING", "SegmentedLog"]

PASSING: Final = frozenset({ENOSPC, EDQUOT, EFBIG, EMFILE, ENFILE})
"""Conditions that pass: no space, or no descriptors, for now."""


class SegmentedLog(StoredLog):
    """What a FileLog has on disk, and how that grows and shrinks."""

    __slots__ = ("_active", "_marker", "_names", "_names_synced", "_recorded_flush", "_segments", "_storage", "_unlinked")

    def __init__(self, identity: PartitionId, config: TopicConfig, storage: Storage, state: LogState | None) -> None:
        super().__init__(identity, config, storage.limits.producers_max)
        self._storage = storage
        self._segments: list[Segment] = []
        self._names = self._names_synced = 0  # how many segments were begun, and how many of their names are durable
        self._unlinked = False  # a name was removed, and that is not durable yet
        self._recorded_flush = 0  # the flushed end that the directory's checkpoint knows
        self._marker: Marker | None = None
        if state is not None:
            self._segments, self._marker = state.segments, state.marker
            self.start_offset, self.end_offset, self.flushed_end = state.start_offset, state.end_offset, state.flushed_end
            self.epochs, self.producers = state.epochs, state.producers
            self.last_epoch = state.epochs.latest.epoch if state.epochs.latest else -1
            self._recorded_flush = state.flushed_end
            if state.flushed_end < state.end_offset:
                self._names = 1  # whether the names of the segments are durable is not known
        self._active = self._segments[-1] if self._segments else None

    # --------------------------------------------------------------------------------------------------------- growing

    def _roll(self) -> Segment:
        """Begin a new segment at the end of the log; its name becomes durable with the next flush. Raises OSError, nothing changed."""
        fs, files = self._storage.fs, self._storage.files
        folder = self._storage.folder_of(self.identity)
        if not self._segments:
            with suppress(FileExistsError):
                fs.mkdir(folder)
        segment = Segment(f"{folder}/{segment_name(self.end_offset)}", self.end_offset)
        fd = files.descriptor(segment, create=True)
        try:
            fs.ftruncate(fd, 0)  # an earlier file of that name may have come back with a power cut
        except OSError:
            files.close(segment)
            raise
        segment.index = SparseIndex()
        self._names += 1
        sealed, self._active = self._active, segment
        self._segments.append(segment)
        if sealed is not None:
            sealed.sealed = True
            write_summary(fs, sealed, self.epochs, self.producers)
        return segment

    def _undo_write(self, segment: Segment, error: OSError, written: int = 0) -> NoReturn:
        """A write failed after so many bytes: nothing of it may stay in the file, nor come back behind what is written instead."""
        try:
            self._storage.fs.ftruncate(segment.fd, segment.size)
            if written:
                self._sync(lambda: self._storage.fs.fsync(segment.fd))
        except OSError as again:
            self._damaged(f"a write failed ({error}) and could not be taken back: {again}", again)
        self._refuse_append(error)

    def _sync(self, fsync: Callable[[], None]) -> None:
        """An fsync in the middle of something else. The system tells of a failure once: it is the end of the whole directory (R14)."""
        try:
            fsync()
        except OSError as error:
            self._storage.fail_directory(f"a flush failed: {error}")
            raise

    def _refuse_append(self, error: OSError) -> NoReturn:
        """The files are as they were before the append: say whether trying again can help."""
        if error.errno in PASSING:
            raise LogFull(f"log {self.identity!r} takes no append now: {error}") from error
        self._damaged(str(error), error)

    def _damaged(self, reason: str, error: OSError) -> NoReturn:
        self.fail(f"log {self.identity!r} is damaged: {reason}")
        assert self._refusal is not None
        raise self._refusal[0](self._refusal[1]) from error

    # ------------------------------------------------------------------------------------------------------- shrinking

    def _cut_files(self, segment: Segment, position: int, base: int) -> None:
        """The log ends at `base` now, which is at `position` of `segment`. Raises LogDamaged; the state follows each file operation."""
        fs, files = self._storage.fs, self._storage.files
        if position == 0 and segment is not self._segments[0]:  # it goes whole: the one before it takes the next append
            segment = self._segments[self._segments.index(segment) - 1]
            position = segment.size
        self._tail.clear()
        self.generation += 1
        try:
            if base < self._recorded_flush:
                self._leave_marker((self._marker or Marker(-1, base))._replace(recovery_max=base))
            while self._segments[-1] is not segment:
                self._remove_segment(self._segments[-1])
            if position < segment.size:
                remove_summary(fs, segment)
                fs.ftruncate(files.descriptor(segment), position)
                self._sync(lambda: fs.fsync(segment.fd))
            if self._unlinked:
                self._sync(lambda: fs.fsync_dir(self._storage.folder_of(self.identity)))
                self._unlinked = False
        except OSError as error:
            self._damaged(str(error), error)
        segment.cut(base, position)
        self._active = segment
        self._end_at(base)

    def _remove_segment(self, segment: Segment) -> None:
        """Remove the file of the first or the last segment, once the removal before this one is durable."""
        fs = self._storage.fs
        if self._unlinked:
            self._sync(lambda: fs.fsync_dir(self._storage.folder_of(self.identity)))
        self._unlinked = True
        remove_summary(fs, segment)
        fs.unlink(segment.path)
        if segment is self._segments[0]:
            del self._segments[0]
        else:
            self._segments.pop()
            segment.cut(segment.base_offset, 0)
            self._end_at(segment.base_offset)
        self._storage.files.close(segment)

    def _end_at(self, offset: int) -> None:
        self.end_offset = offset
        self.flushed_end = min(self.flushed_end, offset)

    def _start_at(self, offset: int) -> None:
        """The log starts at `offset`: segments that lie wholly below go, except the last. Raises LogDamaged.

        On a full disk they stay, and the next call tries again.
        """
        self.start_offset = offset
        self.flushed_end = max(self.flushed_end, offset)  # what was trimmed needs no flush
        self.epochs.trim(offset)
        try:
            first = next((s for s in self._segments if s.end_offset > offset), self._segments[-1]) if self._segments else None
            if first is not None and first is not self._segments[0]:
                # Before the files go: after a power cut, a first segment that was trimmed must not look like one that was lost.
                self._leave_marker((self._marker or Marker(-1, OFFSET_MAX)).trimmed_to(first.base_offset))
            while len(self._segments) > 1 and self._segments[0].end_offset <= offset:
                self._remove_segment(self._segments[0])
        except OSError as error:
            if error.errno not in PASSING:  # else the files stay until there is room to say that they may go
                self._damaged(str(error), error)

    def reset_to(self, offset: int) -> None:
        self._check_open()
        fs, folder = self._storage.fs, self._storage.folder_of(self.identity)
        self._tail.clear()
        self.generation += 1
        try:
            if self._segments:
                self._leave_marker(Marker(offset, offset, resetting=True))
                while len(self._segments) > 1:
                    self._remove_segment(self._segments[-1])
                only = self._segments[0]
                self._remove_segment(only)
                only.cut(offset, 0)
                fs.fsync_dir(folder)
                self._unlinked = False
            elif offset:
                with suppress(FileExistsError):
                    fs.mkdir(folder)
                fs.fsync_dir(self._storage.folder)
            if self._marker is not None or offset:
                self._leave_marker(Marker(offset, offset))
        except OSError as error:
            self._damaged(str(error), error)
        self._active = None
        self.start_offset = self.end_offset = self.flushed_end = offset
        self.epochs.clear()
        self.last_epoch = -1
        self.producers.clear()
        self.producers.forgetful = offset > 0

    def _leave_marker(self, marker: Marker) -> None:
        write_marker(self._storage.fs, self._storage.folder_of(self.identity), marker)
        self._marker = marker
        self._recorded_flush = min(self._recorded_flush, marker.recovery_max)

    # --------------------------------------------------------------------------------------------------- flushing, closing

    def _is_closed(self) -> bool:
        return self._refusal is not None and self._refusal[0] is LogClosed

    def flush(self) -> FlushToken | None:
        self._check_open()
        if self.flushed_end == self.end_offset:
            return None
        folders = []
        if self._names != self._names_synced:
            folders = [self._storage.folder_of(self.identity), self._storage.folder]
        segments = [one for one in self._segments if one.end_offset > self.flushed_end]
        try:
            run = FlushRun(self._storage.files, segments, folders, self._names, self._is_closed)
        except OSError as error:
            self._damaged(str(error), error)
        return FlushToken(self.identity, self.generation, self.end_offset, run)

    def flushed(self, token: FlushToken) -> None:
        run = token.run_
        if isinstance(run, FlushRun):
            run.release()
        if token.error is not None:
            self._storage.fail_directory(f"log {self.identity!r}: a flush failed: {token.error}")
        self._check_open()
        if token.generation == self.generation:
            self.flushed_end = max(self.flushed_end, token.end)
            if isinstance(run, FlushRun) and run.folders:
                self._names_synced = run.names

    def close(self) -> None:
        if self._refusal is not None and self._refusal[0] is LogClosed:
            return
        self._refusal = (LogClosed, f"log {self.identity!r} is closed")
        self._tail.clear()
        for segment in self._segments:
            self._storage.files.close(segment)

    # ----------------------------------------------------------------------------------------- for the directory only

    def die_in_child(self) -> None:
        """Refuse every call in a forked child; the descriptors are closed by `OpenFiles`."""
        self._refusal = (LogClosed, f"log {self.identity!r} was opened before a fork and is dead in the child")
        self._tail.clear()

    @property
    def is_fresh(self) -> bool:
        """Nothing is on disk: the log never had a record."""
        return not self._segments and self._marker is None and not self.start_offset

    def recorded(self, flushed_end: int) -> None:
        """The directory's checkpoint says now that all below `flushed_end` is flushed, and where the log starts: no marker is needed."""
        self._recorded_flush = flushed_end
        if self._marker is not None:
            remove_marker(self._storage.fs, self._storage.folder_of(self.identity))
            self._marker = None

    def saved(self) -> list[Any]:
        """Everything that the next open needs to know of this log, which is flushed, so that it need not look at its files."""
        if self._active is not None and self._active.index is not None:
            write_summary(self._storage.fs, self._active, self.epochs, self.producers)
        return to_plain(
            LogState(self.producers, self.epochs, self._segments, self.start_offset, self.end_offset, self.flushed_end)
        )
