"""The segments of a log, and the order of file operations that keeps them one contiguous log whenever a crash comes.

* Segments are removed from one end only: the newest first when truncating, the oldest first when trimming; and no name
  is removed before the removal in front of it is durable. A power cut can then not leave a hole (P-14).
* A truncation is durable before anything is written behind it. Else a power cut can keep the new end and lose what
  came between, and the old records there join what is before and behind them: a log that nobody ever had.
* A truncation to or below what the checkpoint calls flushed, or below its high watermark, leaves a marker first, so that recovery does
  not miss what was dropped on purpose (KAFKA-10101), nor takes for committed what came in its place; and it makes an interrupted one
  durable before anything is appended. A reset leaves one before and after, because its new start is in no file's name. Both markers
  are written before anything goes: on a full disk nothing has happened yet.
* Trimming takes no space, because on a full disk it is what makes room. The oldest segment is not removed but renamed, to
  the offset at which the log begins now, and emptied: after a power cut the others must not look lost.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from errno import EDQUOT, EFBIG, ENOSPC
from typing import Any, Final, NoReturn

from replog.config import TopicConfig
from replog.errors import LogClosed, LogFull
from replog.log.base import StoredLog
from replog.log.flushing import FlushRun
from replog.log.recovery import LogState, to_plain
from replog.log.segment import Segment, SparseIndex, StartNote, segment_name, start_note
from replog.log.storage import Marker, Storage, place_marker, remove_marker, remove_summary, stage_marker, write_summary
from replog.model import PartitionId
from replog.ports import NO_DESCRIPTORS, FlushToken

__all__ = ["PASSING", "SegmentedLog"]

PASSING: Final = frozenset({ENOSPC, EDQUOT, EFBIG}) | NO_DESCRIPTORS
"""Conditions that pass: no space, or no descriptors, for now."""
_REMOVALS_MAX: Final = 8
"""So many segments go at once: each waits for a disk, some milliseconds, and whoever asks is a broker that serves others meanwhile."""
_NO_SEGMENTS: Final[list[Segment]] = []
"""Of every log without files: nobody adds to it, and 56 bytes of each such log are saved."""


class SegmentedLog(StoredLog):
    """What a FileLog has on disk, and how that grows and shrinks."""

    __slots__ = (
        "_active",
        "_leftovers",
        "_marker",
        "_marker_gone",
        "_names",
        "_names_synced",
        "_recorded_flush",
        "_recorded_watermark",
        "_segments",
        "_storage",
        "_unlinked",
        "is_trimming",
    )

    def __init__(self, identity: PartitionId, config: TopicConfig, storage: Storage, state: LogState | None) -> None:
        super().__init__(identity, config, storage.limits.producers_max)
        self._storage = storage
        self._segments: list[Segment] = _NO_SEGMENTS
        self._names = self._names_synced = 0  # how many segments were begun, and how many of their names are durable
        self._unlinked = False  # a name was removed, and that is not durable yet
        self._recorded_flush = 0  # the flushed end that the directory's checkpoint knows
        self._recorded_watermark = -1  # likewise
        self._leftovers: tuple[str, ...] = ()  # files that `_roll` has made in vain, and could not remove
        self._marker: Marker | None = None
        self._marker_gone = False  # one was removed, and that may not be durable yet
        self.is_trimming = False
        if state is not None:
            self._segments, self._marker = state.segments, state.marker
            self.start_offset, self.end_offset, self.flushed_end = state.start_offset, state.end_offset, state.flushed_end
            self.group_inside = state.end_offset  # nobody has looked
            self.epochs, self.producers = state.epochs, state.producers
            self.last_epoch = state.epochs.latest.epoch if state.epochs.latest else -1
            self._recorded_flush = state.flushed_end
            if not state.names_durable:
                self._names = 1  # the next flush makes them so, whatever else it finds to do
        self._active = self._segments[-1] if self._segments else None

    # --------------------------------------------------------------------------------------------------------- growing

    def _roll(self) -> Segment:
        """Begin a new segment at the end of the log; its name becomes durable with the next flush. After an exception nothing has changed,
        and as far as the disk allows no file is left: the log may go on in the segment before it."""
        fs, files = self._storage.fs, self._storage.files
        folder = self._storage.folder_of(self.identity)
        if not self._segments:
            with suppress(FileExistsError):
                fs.mkdir(folder)
        segment = Segment(f"{folder}/{segment_name(self.end_offset)}", self.end_offset)
        sealed = self._active
        try:
            fd = files.descriptor(segment, create=True)
            fs.ftruncate(fd, 0)  # an earlier file of that name may have come back with a power cut
            segment.index = SparseIndex()
            self._names += 1
            self._leftovers = tuple(path for path in self._leftovers if path != segment.path)
            self._segments = [*self._segments, segment]  # another list: there was that of many logs, perhaps
            self._active = segment
        except BaseException:
            if self._active is not segment and segment.fd >= 0:
                self._segments = [one for one in self._segments if one is not segment]
                self._leftovers = (*self._leftovers, segment.path)
                files.close(segment)
                with suppress(OSError):
                    self._remove_leftovers()
            raise
        if sealed is not None:
            sealed.sealed = True
            write_summary(fs, sealed, self.epochs, self.producers)
        return segment

    def _remove_leftovers(self) -> None:
        """Files of segments begun in vain: a log that ends in front of one looks as if it had lost something. Raises OSError."""
        while self._leftovers:
            with suppress(FileNotFoundError):
                self._storage.fs.unlink(self._leftovers[0])
            self._leftovers = self._leftovers[1:]

    def _undo_write(self, segment: Segment, error: OSError, written: int = 0) -> NoReturn:
        """A write failed after so many bytes: nothing of it may stay in the file, nor come back behind what is written instead."""
        try:
            self._storage.fs.ftruncate(segment.fd, segment.size)
            if written:
                self._sync(lambda: self._storage.syncs.file(segment.fd))
        except OSError as again:
            self._damaged(f"a write failed ({error}) and could not be taken back: {again}", again)
        self._refuse_append(error)

    def _sync(self, fsync: Callable[[], None]) -> None:
        """An fsync in the middle of something else. That of a folder has to open it: too late to refuse where half is done."""
        try:
            self._storage.files.with_room(fsync)
        except OSError as error:
            self._storage.flush_failed(error)
            raise

    def _refuse_append(self, error: OSError) -> NoReturn:
        """The files are as they were before the append: say whether trying again can help."""
        self._refuse("takes no append", error)

    def _refuse(self, what: str, error: OSError) -> NoReturn:
        """Nothing has changed: LogFull if trying again can help, else LogDamaged."""
        if error.errno in PASSING and self._refusal is None:
            raise LogFull(f"log {self.identity!r} {what} now: {error}") from error
        self._damaged(str(error), error)

    def _damaged(self, reason: str, error: OSError) -> NoReturn:
        self.fail(f"log {self.identity!r} is damaged: {reason}")
        assert self._refusal is not None
        raise self._refusal[0](self._refusal[1]) from error

    # ------------------------------------------------------------------------------------------------------- shrinking

    def _cut_files(self, segment: Segment, position: int, base: int) -> None:
        """The log ends at `base` now, which is at `position` of `segment`.

        Raises LogFull, and nothing has changed; or LogDamaged: the state follows each file operation.
        """
        fs, files = self._storage.fs, self._storage.files
        if position == 0 and segment is not self._segments[0]:  # it goes whole: the one before it takes the next append
            segment = self._segments[self._segments.index(segment) - 1]
            position = segment.size
        if base <= self._recorded_flush or base < self._recorded_watermark:
            self._leave_marker((self._marker or Marker(-1, base))._replace(recovery_max=base))
        end = self.end_offset
        try:
            self._remove_leftovers()
            while self._segments[-1] is not segment:
                self._remove_segment(self._segments[-1])
            if self._unlinked:
                self._sync(lambda: self._storage.syncs.folder(self._storage.folder_of(self.identity)))
                self._unlinked = False
            if position < segment.size:  # last: what may fail for a moment comes before it, and nothing has changed then
                remove_summary(fs, segment)
                fs.ftruncate(files.descriptor(segment), position)
                self._sync(lambda: self._storage.syncs.file(segment.fd))
        except OSError as error:
            if self.end_offset == end:
                self._refuse("cannot be truncated", error)
            self._damaged(str(error), error)
        self._tail.clear()
        self.generation += 1
        segment.cut(base, position)
        self._active = segment
        self._end_at(base)

    def _remove_segment(self, segment: Segment, new_path: str = "") -> None:
        """Remove (or rename) the file of the first or the last segment, once the removal before this one is durable."""
        fs = self._storage.fs
        if self._unlinked:
            self._sync(lambda: self._storage.syncs.folder(self._storage.folder_of(self.identity)))
        self._unlinked = True
        remove_summary(fs, segment)
        if new_path:
            fs.rename(segment.path, new_path)
        else:
            fs.unlink(segment.path)
        if segment is self._segments[0]:
            del self._segments[0]
        else:
            self._segments.pop()
            self._active = self._segments[-1]  # at once: what comes next may be refused
            self._active.sealed = False
            segment.cut(segment.base_offset, 0)
            self._end_at(segment.base_offset)
        self._storage.files.close(segment)

    def _end_at(self, offset: int) -> None:
        self.end_offset = offset
        self.flushed_end = min(self.flushed_end, offset)

    def _start_at(self, offset: int) -> None:
        """The log starts at `offset`; `_remove_below` does the rest."""
        self.start_offset = offset
        self.epochs.trim(offset)

    def _remove_below(self, offset: int) -> None:
        """Remove segments that begin below `offset`, which is where one begins, or the end of the log. Raises LogDamaged.

        If they are very many, some of them: `is_trimming` says so. Needs no space. Should the system refuse for now all the same, they
        stay. Either way the next call goes on.
        """
        segments, self.is_trimming = self._segments, False
        if not segments or segments[0].base_offset >= offset:
            return
        count = len(segments)
        try:
            self._note_start(offset)
            while segments and segments[0].base_offset < offset and count - len(segments) < _REMOVALS_MAX:
                self._remove_segment(segments[0])
            self.is_trimming = bool(segments) and segments[0].base_offset < offset
        except OSError as error:
            if error.errno not in PASSING or self._refusal is not None:
                self._damaged(str(error), error)
            self._names += 1  # the note may not be durable: the next flush makes it so
        if not segments:
            self._active = None
            self._tail.clear()

    def _note_start(self, offset: int) -> None:
        """Make the oldest segment the note that the log begins at `offset`, durably. After an OSError it may be one already.

        Then whatever a power cut leaves of the log ends there at least, so that what is below counts as flushed; no sooner. And it never
        moves back: `offset` is below an earlier one where all was to go, in turns, and an append came into the last segment meanwhile.
        """
        fs, folder = self._storage.fs, self._storage.folder_of(self.identity)
        earlier = self._start_notes()
        note = StartNote(offset, self.epochs.below if offset == self.start_offset else -1)
        note = max([note, *earlier], key=lambda one: one.start)  # of two for one place the first
        oldest, path = self._segments[0], f"{folder}/{note.name}"
        self._remove_segment(oldest, path)
        self._sync(lambda: self._storage.syncs.folder(folder))
        self._sync(lambda: self._storage.syncs.folder(self._storage.folder))  # the log may never have been flushed
        self._unlinked = False
        self.flushed_end = max(self.flushed_end, note.start)
        for old in earlier:
            if old != note:
                fs.unlink(f"{folder}/{old.name}")
        if not oldest.pins:  # else somebody reads it; the next note frees the space of this one
            fd = fs.open(path)
            try:
                fs.ftruncate(fd, 0)
                self._sync(lambda: self._storage.syncs.file(fd))
            finally:
                fs.close(fd)

    def _start_notes(self) -> list[StartNote]:
        """What `_note_start` has left."""
        names = self._storage.fs.listdir(self._storage.folder_of(self.identity))
        return [note for name in names if (note := start_note(name)) is not None]

    def reset_to(self, offset: int) -> None:
        self._check_open()
        if offset or not self.is_fresh:
            self._reset_files(offset)
        self._tail.clear()
        self.generation += 1
        self._active = None
        self.start_offset = self.end_offset = self.flushed_end = offset
        self.epochs.clear()
        self.last_epoch = -1
        self.producers.clear()
        self.producers.forgetful = offset > 0

    def _reset_files(self, offset: int) -> None:
        """Remove everything, and note that the log begins at `offset`. Raises LogFull, and nothing has changed; or LogDamaged."""
        fs, folder = self._storage.fs, self._storage.folder_of(self.identity)
        begun, done = Marker(offset, offset, resetting=True), Marker(offset, offset)
        try:
            if not self._segments:
                with suppress(FileExistsError):
                    fs.mkdir(folder)
            self._remove_leftovers()
            finish = stage_marker(fs, folder, done)
        except OSError as error:
            self._refuse("cannot be reset", error)
        self._leave_marker(begun)
        try:
            self._sync(lambda: self._storage.syncs.folder(self._storage.folder))  # the log may never have been flushed
            while len(self._segments) > 1:
                self._remove_segment(self._segments[-1])
            for only in self._segments[:]:
                self._remove_segment(only)
                only.cut(offset, 0)
            for note in self._start_notes():
                fs.unlink(f"{folder}/{note.name}")
            self._sync(lambda: self._storage.syncs.folder(folder))
            self._unlinked = False
            finish()
            self._sync(lambda: self._storage.syncs.folder(folder))
        except OSError as error:
            self._damaged(str(error), error)
        self._marker = done

    def _leave_marker(self, marker: Marker) -> None:
        """Leave a marker durably. Raises LogFull, and nothing is lost by the one that may be there already; or LogDamaged."""
        fs, folder = self._storage.fs, self._storage.folder_of(self.identity)
        try:
            place_marker(fs, folder, marker)
        except OSError as error:
            self._refuse("cannot be cut", error)
        try:
            self._sync(lambda: self._storage.syncs.folder(folder))
        except OSError as error:
            if marker.resetting:  # the next life does what it says
                self._damaged(str(error), error)
            self._marker = marker  # it may be durable or not: what was recorded without it counts as before
            self._refuse("cannot be cut", error)
        self._marker = marker
        self._recorded_flush = min(self._recorded_flush, marker.recovery_max)
        self._recorded_watermark = min(self._recorded_watermark, marker.recovery_max)

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
            run = FlushRun(self._storage, segments, folders, self._names, self._is_closed)
        except OSError as error:
            self._damaged(str(error), error)
        return FlushToken(self.identity, self.generation, self.end_offset, run, share=len(segments) / self._storage.files.limit)

    def flushed(self, token: FlushToken) -> None:
        run = token.run_
        if isinstance(run, FlushRun):
            run.release()
        if token.failed:
            self._storage.fail_directory(f"log {self.identity!r}: a flush failed: {token.error}")
        if self._storage.syncs.failure:  # whoever asked for that one may have been interrupted before he could say so
            self._storage.fail_directory(self._storage.syncs.reason)
        self._check_open()
        if token.error is not None:
            raise LogFull(f"log {self.identity!r} cannot be flushed now: {token.error}") from token.error
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

    def recording(self, flushed_end: int, high_watermark: int) -> None:
        """The directory's checkpoint is about to say so, and may do so even if that fails: what takes records away reckons with both."""
        self._recorded_flush = max(self._recorded_flush, flushed_end)
        self._recorded_watermark = max(self._recorded_watermark, high_watermark)

    def recorded(self, flushed_end: int, high_watermark: int) -> None:
        """The directory's checkpoint says now that all below `flushed_end` is flushed, where the log starts, and its high watermark (-1
        without one): no marker is needed."""
        self._recorded_flush, self._recorded_watermark = flushed_end, high_watermark
        if self._marker is not None:
            remove_marker(self._storage.fs, self._storage.folder_of(self.identity))
            self._marker, self._marker_gone = None, True

    def settle(self) -> None:
        """Before a clean stop is noted: the next life does not look for a marker, so that none may come back. Raises OSError."""
        with suppress(OSError):
            self._remove_leftovers()
        if self._marker_gone:
            self._sync(lambda: self._storage.syncs.folder(self._storage.folder_of(self.identity)))
            self._marker_gone = False

    def left_of(self, high_watermark: int) -> int:
        """What a high watermark of the checkpoint is worth now: it says nothing of what is in the place of records that were cut since."""
        if self._marker is not None:
            high_watermark = min(high_watermark, self._marker.recovery_max)
        self._recorded_watermark = high_watermark
        return min(max(high_watermark, self.start_offset), self.end_offset)

    @property
    def ends_below_watermark(self) -> bool:
        """Whether records are gone that the checkpoint calls committed, and no marker says so to the next life as well."""
        return self.end_offset < self._recorded_watermark

    def saved(self) -> list[Any]:
        """Everything that the next open needs to know of this log, which is flushed, so that it need not look at its files."""
        if self._active is not None and self._active.index is not None:
            write_summary(self._storage.fs, self._active, self.epochs, self.producers)
        return to_plain(
            LogState(self.producers, self.epochs, self._segments, self.start_offset, self.end_offset, self.flushed_end)
        )
