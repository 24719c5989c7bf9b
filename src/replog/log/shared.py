"""A log that the threads of an application share: they take turns. The log of a broker has one owner, and pays for no lock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import update_wrapper
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from replog.config import TopicConfig
from replog.errors import LogClosed, LogCorrupt, LogDamaged, LogFull, ReplogError, UsageError
from replog.log.given import check_batch, check_room, checked, whole
from replog.log.log import FileLog
from replog.log.recovery import LogState
from replog.log.segmented import SegmentedLog
from replog.log.storage import Storage
from replog.model import PartitionId
from replog.ports import FlushToken, Slice
from replog.records import RecordBatch

__all__ = ["SharedLog"]

P = ParamSpec("P")
R = TypeVar("R")
_OWN: Final = (LogClosed, LogCorrupt, LogDamaged, LogFull)
"""What a log says of itself."""


def _in_turn(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[SharedLog, P], R]:
    """A method of a log, for one thread at a time."""

    def taking_turns(self: SharedLog, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            with self._turns:
                return method(self, *args, **kwargs)
        finally:
            if self._to_close and not self._turns._is_owned():
                self._close_late()

    update_wrapper(taking_turns, method)
    return taking_turns


def _apart(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[SharedLog, P], R]:
    """A method that changes a log: in turn, and not inside another call, where a signal handler is. A lock does not part those."""
    in_turn = _in_turn(method)

    def refused_inside(self: SharedLog, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._turns._is_owned():
            raise UsageError(f"log {self.identity!r} is in the middle of another call of this thread: a signal handler came in between")
        return in_turn(self, *args, **kwargs)

    update_wrapper(refused_inside, method)
    return refused_inside


def _whole(append: Callable[Concatenate[Any, P], None]) -> Callable[Concatenate[SharedLog, P], None]:
    """An append of which nothing stays that does not count, whatever breaks it off: Ctrl-C, or what a signal handler raises."""

    def taken_back(self: SharedLog, /, *args: P.args, **kwargs: P.kwargs) -> None:
        if self._broken_off:
            self._take_back()
        try:
            append(self, *args, **kwargs)
        except BaseException:
            self._broken_off = True
            with suppress(ReplogError):  # the next call tries again
                self._take_back()
            raise

    update_wrapper(taken_back, append)
    return taken_back


def _all_or_damaged(change: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[SharedLog, P], R]:
    """A change of several files. Broken off it leaves what a crash would: the next open mends that, unless it is told that all is well."""

    def changed(self: SharedLog, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return change(self, *args, **kwargs)
        except _OWN:
            raise  # the log refuses, and knows how far it is
        except BaseException as broken:
            self.fail(f"log {self.identity!r}: {change.__name__} was broken off by {type(broken).__name__}; open it again")
            raise

    update_wrapper(changed, change)
    return changed


class SharedLog(FileLog):
    """What `Log.open` gives: a FileLog whose calls may come from any thread.

    Within one thread a call may break off another one: that of a signal handler. It may read and flush, but change nothing; when it
    closes the log, that is done as soon as the call is over into which it came.
    """

    __slots__ = ("_broken_off", "_to_close", "_turns", "_untold")

    def __init__(self, identity: PartitionId, config: TopicConfig, storage: Storage, state: LogState | None = None) -> None:
        super().__init__(identity, config, storage, state)
        self._turns = storage.fs.turns()
        self._broken_off = self._to_close = False
        self._untold: ReplogError | None = None  # why the log could not be closed well when a call was over

    _append_inside = _whole(FileLog.append)
    _append = _apart(_append_inside)
    _append_many = _apart(_whole(FileLog.append_many))
    enter_epoch = _apart(FileLog.enter_epoch)
    _retain = _apart(_all_or_damaged(FileLog.retain))
    _truncate_to = _apart(_all_or_damaged(FileLog.truncate_to))
    _reset_to = _apart(_all_or_damaged(FileLog.reset_to))
    _trim_to = _apart(_all_or_damaged(FileLog.trim_to))
    _batches_from = _in_turn(FileLog._batches_from)
    _group_floor = _in_turn(FileLog.group_floor)
    _offset_for_time = _in_turn(FileLog.offset_for_time)
    _retained_start = _in_turn(FileLog.retained_start)
    flush = _in_turn(FileLog.flush)
    _flushed = _in_turn(FileLog.flushed)
    forget_tail = _in_turn(FileLog.forget_tail)

    @_apart
    def _append_next(self, batch: RecordBatch) -> tuple[int, int]:
        base, epoch = self.end_offset, self.last_epoch
        check_room(base, batch.count)
        batch.stamp(self.identity, base, epoch if epoch > 0 else 0)
        self._append_inside(batch)
        return base, base + batch.count - 1

    def append(self, batch: RecordBatch) -> None:
        check_batch(batch)
        self._append(batch)

    def append_many(self, batches: Sequence[RecordBatch]) -> None:
        batches = list(batches)
        for batch in batches:
            check_batch(batch)
        self._append_many(batches)

    @_in_turn
    def read(self, offset: int, limit: int, max_bytes: int) -> list[Slice]:
        for name, value in (("offset", offset), ("limit", limit), ("max_bytes", max_bytes)):
            whole(value, name)
        return FileLog.read(self, offset, limit, max_bytes)

    def group_floor(self, offset: int) -> int:
        return self._group_floor(checked(offset))

    def offset_for_time(self, timestamp_ms: int) -> tuple[int, int] | None:
        return self._offset_for_time(whole(timestamp_ms, "timestamp_ms"))

    def flushed(self, token: FlushToken) -> None:
        if not isinstance(token, FlushToken):
            raise UsageError(f"token is what flush() has returned, not {token!r:.120}")
        self._flushed(token)

    def truncate_to(self, offset: int) -> None:
        self._truncate_to(checked(offset))

    def reset_to(self, offset: int) -> None:
        self._reset_to(checked(offset))

    def trim_to(self, offset: int) -> int:
        start = self._trim_to(checked(offset))
        while self.is_trimming:
            self._trim_to(start)
        return start

    def retained_start(self, wall_ms: int, limit: int) -> int:
        return self._retained_start(checked(wall_ms, "wall_ms"), checked(limit, "limit"))

    def retain(self, wall_ms: int, limit: int) -> int:
        start = self._retain(checked(wall_ms, "wall_ms"), checked(limit, "limit"))
        while self.is_trimming:
            self._trim_to(start)
        return start

    @property
    @_in_turn
    def size_bytes(self) -> int:
        return super().size_bytes

    def _take_back(self) -> None:
        """After an append that was broken off: what of it does not count goes from the file, or the next life would find it.

        Raises LogFull or LogDamaged.
        """
        if self._is_closed():
            return  # the file may be somebody else's
        self._tail.clear()  # it may lack what counts
        segment, fs = self._active, self._storage.fs
        if segment is not None:
            try:
                size = fs.size(segment.path)
                if size is not None and size > segment.size:
                    fs.ftruncate(self._storage.files.descriptor(segment), segment.size)
                    self._sync(lambda: self._storage.syncs.file(segment.fd))
            except OSError as error:
                self._refuse("cannot take back an append that was broken off", error)
        self._broken_off = False

    def close(self) -> None:
        """As that of a FileLog; once more takes back what an interrupted append has left, if that has failed before.

        In a signal handler that came into another call: when that is over. Else it would go on with files that may be somebody else's.
        What is to be said of that closing, the next call of this raises.
        """
        if self._turns._is_owned():
            self._to_close = True
            return
        self._close_in_turn()
        untold, self._untold = self._untold, None
        if untold is not None:
            raise untold

    @_in_turn
    def _close_in_turn(self) -> None:
        self._to_close = False
        if self._broken_off:
            with suppress(ReplogError):
                self._take_back()
        try:
            super().close()
        except BaseException:  # closed it is, before the turn ends, but nothing says that all is well
            SegmentedLog.close(self)
            if self._close_directory is not None:
                self._close_directory(clean=False)
                self._close_directory = None
            raise

    def _close_late(self) -> None:
        """The call is over in which a signal handler wanted this: its result, or what it raised, is what its caller is to hear."""
        try:
            self._close_in_turn()
        except ReplogError as problem:
            self._untold = problem

    def die_in_child(self) -> None:
        """As that of a FileLog, whoever was in the middle of a call when the process forked."""
        self._turns = self._storage.fs.turns()  # the other may be held by a thread that is not here
        super().die_in_child()
