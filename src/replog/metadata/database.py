"""One connection to one SQLite file: how it is opened and checked, what its errors mean, how nodes are stored in it.

The file is in WAL mode with synchronous=FULL: a commit is on disk when it returns. Every node carries a crc32 over its
path, numbers and value, because SQLite itself checks structure only. The connection is used under `lock` alone, and
never in a forked child: there it is not even closed, and its file cannot be opened again (sqlite.org, "How To Corrupt An
SQLite Database File", 2.6).
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final
from urllib.parse import quote

from replog.errors import ReplogError, StoreCorrupt, StoreFull, UsageError
from replog.metadata.forks import ForkGuard
from replog.metadata.paths import name_of, parent_of
from replog.metadata.tree import Node
from replog.ports import UnknownOutcome

__all__ = ["Database"]

APPLICATION_ID: Final = 0x52504C47  # "RPLG"
FORMAT: Final = 1

_SCHEMA: Final = (
    "CREATE TABLE state(id INTEGER PRIMARY KEY CHECK (id = 0), store_id TEXT NOT NULL, created INTEGER NOT NULL,"
    " changes INTEGER NOT NULL, sessions INTEGER NOT NULL)",
    "CREATE TABLE nodes(path TEXT NOT NULL UNIQUE, parent TEXT NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL,"
    " created INTEGER NOT NULL, owner TEXT, implied INTEGER NOT NULL, crc INTEGER NOT NULL, value BLOB NOT NULL)",
    "CREATE INDEX nodes_by_parent ON nodes(parent, name)",
    "CREATE INDEX nodes_by_owner ON nodes(owner, path) WHERE owner IS NOT NULL",
    "CREATE TABLE sessions(id TEXT PRIMARY KEY, boot_id TEXT NOT NULL, renewed_ns INTEGER NOT NULL, session_ms INTEGER,"
    " owner TEXT NOT NULL)",
    "CREATE TABLE changes(id INTEGER PRIMARY KEY, path TEXT NOT NULL)",
)

_SELECT: Final = "SELECT value, version, created, owner, implied, crc FROM nodes WHERE path = ?"
_STORE: Final = (
    "INSERT INTO nodes(path, parent, name, version, created, owner, implied, crc, value) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT(path) DO UPDATE SET version = excluded.version, created = excluded.created, owner = excluded.owner,"
    " implied = excluded.implied, crc = excluded.crc, value = excluded.value"
)

_open: weakref.WeakSet[Database] = weakref.WeakSet()
_inherited: set[tuple[int, int]] = set()
"""Files (device, inode) that were open when this process was forked. SQLite keeps its locks per file and believes that
the child holds the parent's; a second connection to such a file would go without locks."""


def _crc(path: str, node: Node) -> int:
    return zlib.crc32(node.value, zlib.crc32(f"{path}\0{node.version}\0{node.created}\0{node.owner}".encode()))


class Database:
    """The file, its nodes and its sessions. The caller holds `lock` around everything, and writes inside `writing()`."""

    def __init__(self, path: str, *, timeout_s: float) -> None:
        self.path = path
        self.lock = threading.RLock()
        self._timeout_s = timeout_s
        self._fork = ForkGuard()
        self._cache: dict[str, Node | None] = {}
        self._created = 0
        if not os.path.lexists(path):
            with self._errors():
                _create(path)
        self._file = _check_file(path)
        with self._errors():
            self.connection = sqlite3.connect(
                f"file:{quote(path)}?mode=rw", uri=True, timeout=timeout_s, isolation_level=None, check_same_thread=False
            )
            try:
                self._check()
            except BaseException:
                self.connection.close()
                raise
        _open.add(self)

    def close(self) -> None:
        """Release the file. Idempotent."""
        if not self._fork.forked:
            with self.lock:
                self.connection.close()
                _open.discard(self)

    def _check(self) -> None:
        """Refuse a file that is not ours, or is damaged, before anything is written to it."""
        run = self.connection.execute
        application, version = run("PRAGMA application_id").fetchone()[0], run("PRAGMA user_version").fetchone()[0]
        if application != APPLICATION_ID:
            raise UsageError(f"{self.path} is a SQLite database of something else, not a metadata store")
        if version != FORMAT:
            raise UsageError(f"{self.path} is a metadata store of format {version}; this version of replog reads format {FORMAT}")
        run("PRAGMA synchronous = FULL")
        run("PRAGMA trusted_schema = OFF")
        problem = run("PRAGMA quick_check(1)").fetchone()[0]
        if problem != "ok":
            raise StoreCorrupt(self.path, f"the database is damaged: {problem}")

    # ------------------------------------------------------------------------------------------------- transactions

    @contextmanager
    def writing(self) -> Iterator[None]:
        """One transaction: on disk when the block ends, or nothing of it if the block or the commit raises."""
        with self.lock, self._errors():
            self._roll_back()  # what an interrupt left open
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                self._cache.clear()
                self._created = created = self.state("created")
                yield
                if self._created != created:
                    self.connection.execute("UPDATE state SET created = ?", (self._created,))
                self.connection.execute("COMMIT")
            except BaseException:
                self._roll_back()
                raise
            finally:
                self._cache.clear()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """One consistent view of the file."""
        with self.lock, self._errors():
            self._roll_back()
            self.connection.execute("BEGIN")
            try:
                yield
            finally:
                self._cache.clear()
                self._roll_back()

    def _roll_back(self) -> None:
        if self.connection.in_transaction:  # SQLite itself rolls back on some errors
            self.connection.execute("ROLLBACK")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._meaning(error) from error

    def _meaning(self, error: sqlite3.Error) -> ReplogError:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code == sqlite3.SQLITE_FULL:
            return StoreFull(f"{self.path}: the disk is full; nothing was applied")
        if code == sqlite3.SQLITE_NOTADB:
            return UsageError(f"{self.path} is not a SQLite database, hence not a metadata store (or its first page is damaged)")
        if code == sqlite3.SQLITE_CORRUPT:
            return StoreCorrupt(self.path, f"the database is damaged: {error}")
        if code == sqlite3.SQLITE_BUSY:
            return UnknownOutcome(f"{self.path}: another process held the database for more than {self._timeout_s:g} s")
        return UnknownOutcome(f"{self.path}: {error}")

    # -------------------------------------------------------------------------------------------------------- nodes

    def state(self, column: str) -> Any:
        """One of the store's own numbers: store_id, created, changes, sessions."""
        return self.connection.execute(f"SELECT {column} FROM state").fetchone()[0]

    def get(self, path: str) -> Node | None:
        """The node at `path`. Raises StoreCorrupt if it is not what was written."""
        if path in self._cache:
            return self._cache[path]
        row = self.connection.execute(_SELECT, (path,)).fetchone()
        if row is None:
            node = None
        else:
            node = Node(row[0], row[1], row[2], row[3], bool(row[4]))
            if not isinstance(node.value, bytes) or _crc(path, node) != row[5]:
                raise StoreCorrupt(path, f"the value in {self.path} does not match its checksum")
        if self.connection.in_transaction:
            self._cache[path] = node
        return node

    def some_children(self, path: str, count: int) -> Iterable[str]:
        """Names of any `count` children."""
        return [name for (name,) in self.connection.execute("SELECT name FROM nodes WHERE parent = ? LIMIT ?", (path, count))]

    def children(self, path: str) -> list[str]:
        """Names of all children, sorted."""
        with self.lock, self._errors():
            return sorted(name for (name,) in self.connection.execute("SELECT name FROM nodes WHERE parent = ?", (path,)))

    def owned(self, session: str) -> list[str]:
        """Paths of the ephemeral nodes of a session, sorted."""
        return [path for (path,) in self.connection.execute("SELECT path FROM nodes WHERE owner = ? ORDER BY path", (session,))]

    def next_created(self) -> int:
        """The next creation number; `writing` stores how far they went."""
        self._created += 1
        return self._created

    def store(self, writes: dict[str, Node | None]) -> None:
        """Write what a transaction decided."""
        for path, node in writes.items():
            self._cache[path] = node
            if node is None:
                self.connection.execute("DELETE FROM nodes WHERE path = ?", (path,))
            else:
                place = (path, parent_of(path), name_of(path))
                row = (*place, node.version, node.created, node.owner, node.implied, _crc(path, node), node.value)
                self.connection.execute(_STORE, row)


def _create(path: str) -> None:
    """Make an empty store under another name and link it to its own: it is there complete, and once, or not at all.

    The file is readable by its owner only; SQLite gives its companions the same mode.
    """
    fresh = f"{path}.new-{os.urandom(4).hex()}"
    try:
        os.close(os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise UsageError(f"cannot create the metadata store {path}: {error.strerror}") from error
    try:
        connection = sqlite3.connect(fresh, isolation_level=None)
        try:
            _set_up(connection)
        finally:
            connection.close()
        with suppress(FileExistsError):  # another process was faster: its store is as good
            os.link(fresh, path)
    finally:
        os.unlink(fresh)
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _set_up(connection: sqlite3.Connection) -> None:
    run = connection.execute
    run("PRAGMA synchronous = FULL")
    run("BEGIN IMMEDIATE")
    for statement in _SCHEMA:
        run(statement)
    run("INSERT INTO state VALUES (0, ?, 0, 0, 0)", (os.urandom(8).hex(),))
    run(f"PRAGMA application_id = {APPLICATION_ID}")
    run(f"PRAGMA user_version = {FORMAT}")
    run("COMMIT")
    mode = run("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise UsageError(f"the file system of the metadata store does not support SQLite's WAL mode (it chose {mode!r})")


def _check_file(path: str) -> tuple[int, int]:
    """Device and inode of a file that may be opened."""
    if os.path.islink(path):
        raise UsageError(f"{path} is a symbolic link; name the metadata store itself")
    if not os.path.isfile(path):
        raise UsageError(f"{path} is not a file, hence not a metadata store")
    found = os.stat(path)
    if found.st_size == 0:
        raise UsageError(f"{path} is empty, hence not a metadata store; remove it to begin a new one")
    if (found.st_dev, found.st_ino) in _inherited:
        raise UsageError(f"{path} was open when this process was forked: use it from the parent, or from a process that was started anew")
    return found.st_dev, found.st_ino


def _leak_after_fork() -> None:
    """In a child, give every inherited connection one reference too many, so that not even the end of the process closes it."""
    databases = list(_open)
    if databases:
        import ctypes

        for database in databases:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(database.connection))
            _inherited.add(database._file)


os.register_at_fork(after_in_child=_leak_after_fork)
