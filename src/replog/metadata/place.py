"""Whether the files that SQLite has open are still those at their paths.

SQLite opens the database, its log (`-wal`) and the index of the log (`-shm`) by path, and trusts that nobody touches them while they
are open. The locks that keep writers apart are on the index: once it was removed, whoever opens the store makes another one, and the two
know nothing of each other. So every use looks. What another has taken the place of is not even closed: closing copies the log into the
file, whoever has it by now, and removes whatever is called like the log.
"""

from __future__ import annotations

import os
import sqlite3
from typing import Final

from replog.errors import StoreCorrupt, UsageError

__all__ = ["Place", "StoreGone", "check_usable", "give_up", "leave_open"]

FileId = tuple[int, int]
"""Device and inode."""

_PARTS: Final = {"-wal": "its log (-wal)", "-shm": "the index of its log (-shm)"}
_REMOVED: Final = "the metadata store was removed or replaced"
_FORKED: Final = "was open when this process was forked: use it from the parent, or from a process that was started anew"
_TORN: Final = "was removed, replaced or cut, or its -wal or -shm was, while this process had it open: use it from one that is started anew"

_unusable: dict[FileId, str] = {}
"""Files that this process must not open again, and why. SQLite keeps what it knows of a file as long as anything has it open: a second
connection would go by the parent's locks after a fork, or by an index that nobody else has."""


class StoreGone(StoreCorrupt):
    """The file or a part of it was removed or replaced while it was open: what is written to it is seen by nobody who opens it now."""

    def __init__(self, path: str, what: str = _REMOVED) -> None:
        super().__init__(path, f"{what} while it was open; stop every process that has it open")


class Place:
    """The files of one open database."""

    def __init__(self, path: str, file: FileId) -> None:
        self.file = file
        """The database itself."""
        self._path = path
        self._parts: dict[str, FileId] = {}
        self._size = 0
        """It never becomes shorter: nothing here gives pages back."""

    def opened(self) -> None:
        """SQLite has opened the log and its index by now. Raises StoreGone if one of them is gone already."""
        for ending, what in _PARTS.items():
            try:
                found = os.stat(self._path + ending, follow_symlinks=False)
            except OSError:
                raise StoreGone(self._path, f"{what} was removed") from None
            self._parts[ending] = found.st_dev, found.st_ino

    def check(self) -> None:
        """Raise StoreGone unless everything is where it was."""
        found = _look(self._path)
        if found is None:
            raise StoreGone(self._path)
        if isinstance(found, OSError):
            return  # we may not look any more; the open files are as good as they were
        if (found.st_dev, found.st_ino) != self.file:
            raise StoreGone(self._path)
        if self._parts and found.st_size < self._size:  # without a log a rollback cuts it
            raise StoreGone(self._path, f"the metadata store was cut from {self._size} bytes to {found.st_size}")
        self._size = found.st_size
        for ending in self._parts:
            if self._gone(ending) is not False:
                raise StoreGone(self._path, f"{_PARTS[ending]} was removed or replaced")

    def is_at_odds(self, other: Place) -> bool:
        """Whether another connection of this process has the same file open with another log or index: SQLite has one of each per file."""
        return self.file == other.file and bool(self._parts and other._parts) and self._parts != other._parts

    def may_close(self) -> bool:
        """Whether SQLite can close it and touches nothing of anybody else's: it is where it was, or was moved away, and no other came."""
        if _look(self._path) is None:
            return all(self._gone(ending) is not True for ending in self._parts)
        try:
            self.check()
        except StoreGone:
            return False
        return True

    def _gone(self, ending: str) -> bool | None:
        """Whether another file is in the place of a part; None: nothing is."""
        found = _look(self._path + ending)
        if isinstance(found, os.stat_result):
            return (found.st_dev, found.st_ino) != self._parts[ending]
        return False if found is not None else None


def _look(path: str) -> os.stat_result | OSError | None:
    """What is there; None: nothing."""
    try:
        return os.stat(path, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as problem:
        return problem


def check_usable(path: str, file: FileId) -> None:
    """UsageError if this process must not open that file again."""
    if file in _unusable:
        raise UsageError(f"{path} {_unusable[file]}")


def give_up(file: FileId, *, forked: bool = False) -> None:
    """This process must not open that file again: SQLite would go on with what it knows of it."""
    _unusable[file] = _FORKED if forked else _TORN


def leave_open(connection: sqlite3.Connection, file: FileId, *, forked: bool = False) -> None:
    """Give a connection one reference too many, so that not even the end of the process closes it. Its file is not opened here again."""
    import ctypes  # seldom

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
    give_up(file, forked=forked)
