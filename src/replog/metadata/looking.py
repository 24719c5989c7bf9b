"""Looking at a metadata store without a session and without writing: for people, and while brokers run or after they died.

A store in a file that a broker left behind when it was killed keeps its last commits in the `-wal` neighbour. Whoever opens it for writing
and closes it again folds them into the file; here both stay byte for byte as they were. Reading in WAL mode makes the neighbours where
there are none, so a file without them, which nobody has open, is read as one that cannot change, and again if it did.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol, TypeVar
from urllib.parse import quote

from attrs import frozen

from replog.errors import StoreCorrupt, UsageError
from replog.metadata.database import _SELECT, APPLICATION_ID, FORMAT, _check_file, _crc, names_in
from replog.metadata.tree import Node
from replog.ports import UnknownOutcome

__all__ = ["Found", "Look", "look_at_file"]

T = TypeVar("T")
_FIXED: Final = "mode=ro&immutable=1"
_LIVE: Final = "mode=ro"


@frozen
class Found:
    """What is at a path."""

    value: bytes = b""
    version: int = -1
    created: int = -1
    ephemeral: bool = False
    problem: str = ""
    """Why this is not what was written, or what could not be read; then the other fields may say nothing."""


class Look(Protocol):
    """A store that is only read."""

    def children(self, path: str) -> list[str]:
        """Names of the children, sorted."""

    def children_each(self, paths: Sequence[str]) -> list[list[str]]:
        """The same of each of these, asked together; of one that may not be looked into none: `read` says why."""

    def read(self, paths: Sequence[str]) -> list[Found | None]:
        """What is at each path, None where nothing is. What cannot be read of one says so, and hides no other."""


def look_at_file(path: str, timeout_s: float, collect: Callable[[Look], T]) -> T:
    """What `collect` finds in one consistent view of a store in a file; it must not wait for anybody.

    Raises UsageError if there is no store, or one of a newer format; StoreCorrupt if the database is damaged; UnknownOutcome if another
    process keeps it for longer than `timeout_s`.
    """
    path = os.path.abspath(path)
    if not os.path.lexists(path):
        raise UsageError(f"{path}: there is no metadata store")
    _check_file(path)
    before = _stamp(path)
    if not before[0]:
        with _opened(path, _FIXED, timeout_s) as look:
            found = collect(look)
        if _stamp(path) == before:
            return found
    with _opened(path, _LIVE, timeout_s) as look:
        return collect(look)


def _stamp(path: str) -> tuple[bool, int, int]:
    """Whether somebody has it open or died with it, and what changes when the file is written to."""
    about = os.stat(path)
    return os.path.lexists(f"{path}-wal"), about.st_size, about.st_mtime_ns


class _FileLook:
    """The nodes of a database."""

    def __init__(self, path: str, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection

    def children(self, path: str) -> list[str]:
        return names_in(self._path, self._connection.execute("SELECT name FROM nodes WHERE parent = ?", (path,)))

    def children_each(self, paths: Sequence[str]) -> list[list[str]]:
        return [self.children(path) for path in paths]

    def read(self, paths: Sequence[str]) -> list[Found | None]:
        return [self._one(path) for path in paths]

    def _one(self, path: str) -> Found | None:
        try:
            row = self._connection.execute(_SELECT, (path,)).fetchone()
        except (sqlite3.Error, MemoryError) as error:
            return Found(problem=f"the database cannot be read here: {error or 'it asks for more memory than there is'}")
        if row is None:
            return None
        value, version, created, owner, implied, crc = row
        if not (isinstance(value, bytes) and isinstance(version, int) and isinstance(created, int)):
            types = ", ".join(type(one).__name__ for one in (value, version, created))
            return Found(problem=f"the database holds {types} where bytes and two numbers should be")
        intact = _crc(path, Node(value, version, created, owner, bool(implied))) == crc
        problem = "" if intact else f"the value in {self._path} does not match its checksum"
        return Found(value, version, created, owner is not None, problem)


@contextmanager
def _opened(path: str, how: str, timeout_s: float) -> Iterator[Look]:
    """One view of the file."""
    try:
        connection = sqlite3.connect(f"file:{quote(os.fsencode(path))}?{how}", uri=True, timeout=timeout_s, isolation_level=None)
        try:
            run = connection.execute
            run("PRAGMA trusted_schema = OFF")
            application, version = run("PRAGMA application_id").fetchone()[0], run("PRAGMA user_version").fetchone()[0]
            if application != APPLICATION_ID:
                raise UsageError(f"{path} is a SQLite database of something else, not a metadata store")
            if version != FORMAT:
                raise UsageError(f"{path} is a metadata store of format {version}; this version of replog reads format {FORMAT}")
            run("BEGIN")
            yield _FileLook(path, connection)
        finally:
            connection.close()
    except UnicodeDecodeError as error:  # of a text that SQLite quotes
        raise StoreCorrupt(path, f"the database is damaged: {error}") from error
    except MemoryError as error:  # a row's length that is damaged asks for more than there is
        raise StoreCorrupt(path, "the database is damaged, or there is not enough memory to read it") from error
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code == sqlite3.SQLITE_NOTADB:
            raise UsageError(f"{path} is not a SQLite database, hence not a metadata store (or its first page is damaged)") from error
        if code == sqlite3.SQLITE_BUSY:
            raise UnknownOutcome(f"{path}: another process held the database for more than {timeout_s:g} s") from error
        if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
            raise UsageError(f"{path} cannot be read by this user: {error}; look as the user whose brokers write it") from error
        raise StoreCorrupt(path, f"the database is damaged: {error}") from error
