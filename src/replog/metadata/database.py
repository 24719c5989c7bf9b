"""One connection to one SQLite file: how it is opened and checked, what its errors mean, how nodes are stored in it.

The file is in WAL mode with synchronous=FULL: a commit is on disk when it returns. Every node carries a crc32 over its
path, numbers and value, because SQLite itself checks structure only. The connection is used under `lock` alone, and
never in a forked child: there it is not even closed, and its file cannot be opened again (sqlite.org, "How To Corrupt An
SQLite Database File", 2.6).

Of several processes that write, SQLite serves the luckiest: a waiter sleeps for longer and longer. So a write asks again
from the beginning every few milliseconds, which gives each its turn. The log of WAL mode is copied into the file by
whoever makes it long, and cut; only a reader that is stopped in the middle of a read lets it grow.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
import time
import weakref
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final
from urllib.parse import quote

from replog.errors import ReplogError, StoreCorrupt, StoreFull, UsageError
from replog.metadata.forks import ForkGuard
from replog.metadata.paths import name_of, parent_of
from replog.metadata.place import Place, StoreGone, check_usable, give_up, leave_open
from replog.metadata.tree import Node
from replog.ports import UnknownOutcome
from replog.security.private import check_own

__all__ = ["Database", "NodeCorrupt", "names_in"]

APPLICATION_ID: Final = 0x52504C47  # "RPLG"
FORMAT: Final = 1
OPENING_S: Final = 5.0
"""Opening a store waits this long for other processes: nobody's session depends on it."""
TURN_MS: Final = 18
"""SQLite asks after 1, 3, 8 and 18 ms; then we begin again."""
FORK_WAIT_S: Final = 1.0
"""How long a fork waits for a call to SQLite in another thread."""
WAL_BYTES_MAX: Final = 8 << 20
"""The log is cut to this once it was copied, however long it had become."""
_COMPANIONS: Final = ("-wal", "-shm", "-journal")
"""What SQLite takes for a part of the file."""
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
PASSING: Final = FULL | {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.EINTR, errno.EAGAIN, errno.ESTALE}
"""What keeps a file from being made although it could be made here at another time: whoever configured it is not to blame."""

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
_gone: set[str] = set()
"""Stores that disappeared while this process had them open. Somebody who comes back to one must not find it empty."""
_opening = threading.RLock()
"""Held while a connection is made, and while `_open` changes."""


def _crc(path: str, node: Node) -> int:
    return zlib.crc32(node.value, zlib.crc32(f"{path}\0{node.version}\0{node.created}\0{node.owner}".encode()))


class NodeCorrupt(StoreCorrupt):
    """One node is not what was written: its checksum does not match. The others are as good as before."""


class Database:
    """The file, its nodes and its sessions. The caller holds `lock` around everything, and writes inside `writing()`."""

    def __init__(self, path: str, *, timeout_s: float, private: bool = False) -> None:
        self.path = path
        self.lock = threading.RLock()
        self._timeout_s = OPENING_S
        self._fork = ForkGuard()
        self._cache: dict[str, Node | None] = {}
        self._created = 0
        with _opening, self._errors():  # a fork finds either no connection to the file, or one that it knows of
            if not os.path.lexists(path):
                if path in _gone and not private:
                    raise StoreGone(path)
                _create(path)
            self._place = Place(path, _check_file(path))
            for companion in _COMPANIONS:  # before SQLite copies what is in them into the file
                self._check_own(path + companion)
            self.connection = _connect(path)
            self._is_open, self._is_torn = True, False
            _open.add(self)
        try:
            with self.lock, self._errors():
                self._check()
                if self.connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal":  # a copy by VACUUM INTO has no log
                    self._place.opened()
                    with _opening:  # others come and go
                        is_torn = any(self._place.is_at_odds(other._place) for other in _open)
                    if is_torn:
                        raise StoreGone(path, "a part of the metadata store was removed or replaced")
                self._check_own(path)  # now that it is known to be a store: nobody is told to change what he has named by mistake
                self._timeout_s = timeout_s
                self._set_patience(timeout_s * 1_000)
        except BaseException as problem:
            self._is_torn = isinstance(problem, StoreGone)
            self.close()
            raise

    def close(self) -> None:
        """Release the file. Idempotent."""
        if not self._fork.forked:
            with self.lock:
                if self._is_open and not self._is_torn and self._place.may_close():
                    self.connection.close()
                elif self._is_open:
                    leave_open(self.connection, self._place.file)
                self._is_open = False
                with _opening:
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
        run(f"PRAGMA journal_size_limit = {WAL_BYTES_MAX}")
        run("PRAGMA trusted_schema = OFF")
        problem = run("PRAGMA quick_check(1)").fetchone()[0]
        if problem != "ok":
            raise StoreCorrupt(self.path, f"the database is damaged: {problem}")

    def _check_own(self, path: str) -> None:
        """Refuse what somebody else could have written: whoever writes to the store can do anything."""
        check_own(path, "the metadata store", f"{self.path!r}*")

    # ------------------------------------------------------------------------------------------------- transactions

    @contextmanager
    def writing(self, *, waits: bool = True) -> Iterator[None]:
        """One transaction: on disk when the block ends, or nothing of it if the block or the commit raises.

        Not `waits`: it asks for its turn only once.
        """
        with self.lock, self._errors():
            self._roll_back()  # what an interrupt left open
            self._begin(self._timeout_s if waits else 0.0)
            try:
                self.check_place()
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
                self.check_place()
                yield
            finally:
                self._cache.clear()
                self._roll_back()

    def _begin(self, timeout_s: float) -> None:
        """Wait for our turn to write. Nothing was written if it does not come."""
        give_up = time.monotonic() + timeout_s
        self._set_patience(TURN_MS)
        try:
            while True:
                try:
                    self.connection.execute("BEGIN IMMEDIATE")
                    return
                except sqlite3.OperationalError as error:
                    if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= give_up:
                        raise
        finally:
            self._set_patience(self._timeout_s * 1_000)

    def _set_patience(self, ms: float) -> None:
        """How long SQLite itself waits for other processes."""
        self.connection.execute(f"PRAGMA busy_timeout = {int(ms)}")

    def check_place(self) -> None:
        """Raise StoreGone unless what is open is what is at its path."""
        try:
            self._place.check()
        except StoreGone:
            if not os.path.lexists(self.path):
                _gone.add(self.path)
            if not self._place.may_close():
                give_up(self._place.file)
            raise

    def foreign_version(self) -> int:
        """A number that changes when somebody else has written to the file. Costs next to nothing."""
        with self.lock, self._errors():
            self._roll_back()
            self.check_place()
            number: int = self.connection.execute("PRAGMA data_version").fetchone()[0]
            return number

    def _roll_back(self) -> None:
        if self.connection.in_transaction:  # SQLite itself rolls back on some errors
            self.connection.execute("ROLLBACK")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except UnicodeDecodeError as error:  # of a text that SQLite quotes
            raise StoreCorrupt(self.path, f"the database is damaged: {error}") from error
        except MemoryError as error:  # a row's length that is damaged asks for more than there is
            raise UnknownOutcome(f"{self.path}: the database is damaged, or there is not enough memory for it") from error
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
            return UnknownOutcome(f"{self.path}: another process held the database for more than {self._timeout_s:g} s: nothing applied")
        return UnknownOutcome(f"{self.path}: {error}")

    # -------------------------------------------------------------------------------------------------------- nodes

    def state(self, column: str) -> Any:
        """One of the store's own numbers: store_id, created, changes, sessions."""
        return self.connection.execute(f"SELECT {column} FROM state").fetchone()[0]

    def get(self, path: str) -> Node | None:
        """The node at `path`. Raises NodeCorrupt if it is not what was written."""
        if path in self._cache:
            return self._cache[path]
        row = self.connection.execute(_SELECT, (path,)).fetchone()
        if row is None:
            node = None
        else:
            node = Node(row[0], row[1], row[2], row[3], bool(row[4]))
            if not isinstance(node.value, bytes) or _crc(path, node) != row[5]:
                raise NodeCorrupt(path, f"the value in {self.path} does not match its checksum")
        if self.connection.in_transaction:
            self._cache[path] = node
        return node

    def some_children(self, path: str, count: int) -> Iterable[str]:
        """Names of any `count` children."""
        return names_in(self.path, self.connection.execute("SELECT name FROM nodes WHERE parent = ? LIMIT ?", (path, count)))

    def children(self, path: str) -> list[str]:
        """Names of all children, sorted."""
        with self.lock, self._errors():
            self.check_place()
            return names_in(self.path, self.connection.execute("SELECT name FROM nodes WHERE parent = ?", (path,)))

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


def names_in(path: str, rows: Iterable[tuple[Any]]) -> list[str]:
    """The names in these rows of the database at `path`, sorted. Raises StoreCorrupt."""
    names = [name for (name,) in rows]
    if strange := [name for name in names if not isinstance(name, str)]:
        raise StoreCorrupt(path, f"the database holds {strange[0]!r:.100} where a name should be")
    return sorted(names)


def _create(path: str) -> None:
    """Make an empty store under another name and link it to its own: it is there complete, and once, or not at all.

    The file is readable by its owner only; SQLite gives its companions the same mode. UsageError where the log of a store is that is gone:
    SQLite would take what is in it for a part of the new one.
    """
    for left in (path + "-wal", path + "-journal"):
        if os.path.lexists(left) and not os.path.lexists(path):  # in this order: another process may be faster, and has a log of its own
            what = f"the metadata store {path} is gone, and {left} is what it had written last"
            raise UsageError(f"{what}: put both back, or move that away to begin a new one")
    fresh = f"{path}.new-{os.urandom(4).hex()}"
    try:
        os.close(os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
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
    except OSError as error:
        why = f"cannot create the metadata store {path}: {error.strerror}"
        if error.errno in PASSING:
            raise (StoreFull(why) if error.errno in FULL else UnknownOutcome(why)) from error
        raise UsageError(why) from error


def _connect(path: str) -> sqlite3.Connection:
    name = quote(os.fsencode(path))  # which need not be text
    connection = sqlite3.connect(f"file:{name}?mode=rw", uri=True, timeout=OPENING_S, isolation_level=None, check_same_thread=False)
    # What is no UTF-8 does not match its checksum either, which is the answer that helps.
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    return connection


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
    file = found.st_dev, found.st_ino
    check_usable(path, file)
    return file


_forking = threading.local()
"""`held`: the locks that this thread has taken because it forks."""


def _quieten() -> None:
    """Before a fork, let every call to SQLite come to its end: the child inherits SQLite's own locks as they are.

    A call that waits for another process is not waited for longer than a second.
    """
    held = _forking.held = ExitStack()
    if _opening.acquire(timeout=FORK_WAIT_S):
        held.callback(_opening.release)
        for database in list(_open):
            if database.lock.acquire(timeout=FORK_WAIT_S):
                held.callback(database.lock.release)


def _resume() -> None:
    """After a fork, in both processes."""
    _forking.held.close()


def _leak_after_fork() -> None:
    """In a child, give every inherited connection one reference too many, so that not even the end of the process closes it."""
    global _opening
    _resume()
    _opening = threading.RLock()  # a thread that is not here may have it
    for database in list(_open):
        leave_open(database.connection, database._place.file, forked=True)


os.register_at_fork(before=_quieten, after_in_parent=_resume, after_in_child=_leak_after_fork)
