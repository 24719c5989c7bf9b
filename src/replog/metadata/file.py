"""The metadata store in a file: several processes on one host share a SQLite database.

There is no server that could end sessions, so every process does, by the rules of `lease`: a session lasts until
somebody ends it, and a transaction is applied only if its session is still recorded when it commits. Changes of other
processes are noticed by `poll`, from a bounded table of changed paths. Local file systems only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from attrs import define, field

from replog.errors import ReplogError, StoreFull, UsageError
from replog.log.files import OS
from replog.metadata.database import Database
from replog.metadata.lease import NS_PER_MS, Lease, WriteWindow, has_expired
from replog.metadata.session import Names, Results, TreeSession, Values
from replog.metadata.tree import Transaction
from replog.metadata.watches import Watches
from replog.ports import Conflict, Op, SessionLost, UnknownOutcome

__all__ = ["FileStore"]

CHANGES_KEPT: Final = 10_000
"""Changed paths remembered for other processes; one that missed more than these looks at everything again."""
GROUP_OPS_MAX: Final = 10_000
"""Operations of independent transactions that share one write to disk."""
TIMEOUT_S_MAX: Final = 5.0
"""A write waits for those of other processes a third of a session time, at most this."""
SESSION_MS_MIN: Final = 100


@define
class _Work:
    """What one write transaction is doing."""

    now_ns: int = 0
    changed: dict[str, None] = field(factory=dict)
    ended: list[str] = field(factory=list)


class _SharedFile:
    """One open database and the sessions of this process on it."""

    def __init__(self, path: str, *, session_ms: int, private: bool, clock_ns: Callable[[], int], boot_id: str) -> None:
        self.watches = Watches()
        self.sessions: dict[str, FileStore] = {}
        self.session_ms = session_ms
        self.private = private
        self.path = path
        self._clock_ns = clock_ns
        self._boot_id = boot_id
        self._window = WriteWindow(gap_ns=session_ms * NS_PER_MS // 2)
        self._users = 0
        self._database = Database(path, timeout_s=min(TIMEOUT_S_MAX, session_ms / 3_000))
        try:
            with self._database.reading():
                self._seen = self._database.state("changes")
            self._end_sessions_at_open()
        except BaseException:
            self._database.close()
            raise

    # -------------------------------------------------------------------------------------------------------- nodes

    def read_each(self, paths: Sequence[str]) -> Values:
        with self._database.reading():
            found = [self._database.get(path) for path in paths]
        return [None if node is None else node.versioned() for node in found]

    def list(self, path: str) -> Names:
        return self._database.children(path)

    def transact(self, session: str, batches: Sequence[Sequence[Op]]) -> Results:
        results: Results = []
        for group in _groups(batches):
            try:
                results += self._transact_group(session, group)
            except ReplogError as error:
                results += [error] * len(group)
        self.watches.deliver()
        return results

    def _transact_group(self, session: str, group: Sequence[Sequence[Op]]) -> Results:
        results: Results = []
        with self._writing() as work:
            self._require(session)
            for ops in group:
                transaction = Transaction(self._database, session)
                try:
                    results.append(transaction.apply(ops))
                except Conflict as conflict:
                    results.append(conflict)
                else:
                    self._store(transaction, work)
        return results

    def _store(self, transaction: Transaction, work: _Work) -> None:
        self._database.store(transaction.writes)
        work.changed.update(dict.fromkeys(transaction.changed()))

    @contextmanager
    def _writing(self) -> Iterator[_Work]:
        """One write transaction; once it is on disk, its watches are ready and the sessions it ended know."""
        work = _Work()
        with self._database.lock:
            try:
                with self._database.writing():
                    work.now_ns = self._clock_ns()
                    yield work
                    missed, seen = self._remember(list(work.changed))
            except (StoreFull, UnknownOutcome):
                self._window.failed()
                raise
            self._window.wrote(self._clock_ns())
            self._notice(missed, seen)
            self.watches.fire(work.changed)
            for session in work.ended:
                self._forget(session)

    # ------------------------------------------------------------------------------------- changes of other processes

    def _missed(self, last: int) -> Sequence[str] | None:
        """Paths that others changed since we looked; None if they can no longer be told."""
        if last == self._seen:
            return ()
        if self._seen < last - CHANGES_KEPT:
            return None
        rows = self._database.connection.execute("SELECT path FROM changes WHERE id > ? ORDER BY id", (self._seen,))
        return [path for (path,) in rows]

    def _remember(self, paths: Sequence[str]) -> tuple[Sequence[str] | None, int]:
        """Record changed paths for other processes; returns what we missed ourselves, and the number of the newest change."""
        last = self._database.state("changes")
        missed = self._missed(last)
        if paths:
            run = self._database.connection
            newest = last + len(paths)
            numbered = list(enumerate(paths, last + 1))[-CHANGES_KEPT:]
            run.executemany("INSERT INTO changes(id, path) VALUES (?, ?)", numbered)
            run.execute("DELETE FROM changes WHERE id <= ?", (newest - CHANGES_KEPT,))
            run.execute("UPDATE state SET changes = ?", (newest,))
            last = newest
        return missed, last

    def _notice(self, missed: Sequence[str] | None, seen: int) -> None:
        self._seen = seen
        if missed is None:
            self.watches.fire_all()
        else:
            self.watches.fire(missed)

    def arm(self, session: str, path: str, changed: Callable[[str], None]) -> None:
        with self._database.lock:
            self._catch_up()  # what changed before now is not what this watch is about
            self.watches.arm(session, path, changed)
        self.watches.deliver()

    def _catch_up(self) -> None:
        with self._database.reading():
            last = self._database.state("changes")
            missed = self._missed(last)
        self._notice(missed, last)

    def poll(self) -> None:
        """Fire watches for what others changed, and tell sessions that others ended."""
        with self._database.lock:
            self._catch_up()
            with self._database.reading():
                recorded = {session for (session,) in self._database.connection.execute("SELECT id FROM sessions")}
            for session in [session for session in self.sessions if session not in recorded]:
                self._forget(session)
        self.watches.deliver()

    # ----------------------------------------------------------------------------------------------------- sessions

    def join(self) -> str:
        """Record a new session."""
        with self._writing() as work:
            run = self._database.connection.execute
            number = self._database.state("sessions") + 1
            session = f"{self._database.state('store_id')}-{number}"
            run("UPDATE state SET sessions = ?", (number,))
            length = None if self.private else self.session_ms
            run("INSERT INTO sessions VALUES (?, ?, ?, ?, ?)", (session, self._boot_id, work.now_ns, length, f"process {os.getpid()}"))
        self._users += 1
        return session

    def renew(self, session: str) -> None:
        """Move the lease forward and end those that ran out. Raises SessionLost if somebody ended this one."""
        with self._writing() as work:
            self._require(session)
            self._database.connection.execute("UPDATE sessions SET renewed_ns = ? WHERE id = ?", (work.now_ns, session))
            for lease in self._leases():
                if lease.session != session and has_expired(lease, boot_id=self._boot_id, now_ns=work.now_ns, window=self._window):
                    self._end(lease.session, work)
        self.watches.deliver()

    def leave(self, session: str) -> None:
        """End a session now. Nothing happens if it is over."""
        with self._writing() as work:
            if self._recorded(session):
                self._end(session, work)
        self.watches.deliver()

    def release(self) -> None:
        """One store object less; the last one closes the file."""
        self._users -= 1
        if self._users == 0:
            self._database.close()

    def _end_sessions_at_open(self) -> None:
        """Sessions of another boot are over; those of this boot too, where this process is known to be the only one."""
        with self._writing() as work:
            for lease in self._leases():
                if self.private or has_expired(lease, boot_id=self._boot_id, now_ns=work.now_ns, window=self._window):
                    self._end(lease.session, work)

    def _leases(self) -> Sequence[Lease]:
        rows = self._database.connection.execute("SELECT id, boot_id, renewed_ns, session_ms FROM sessions ORDER BY rowid")
        return [Lease(*row) for row in rows]

    def _recorded(self, session: str) -> bool:
        return self._database.connection.execute("SELECT 1 FROM sessions WHERE id = ?", (session,)).fetchone() is not None

    def _require(self, session: str) -> None:
        if not self._recorded(session):
            self._forget(session)
            raise SessionLost(f"{self.path}: session {session} has ended; open another one")

    def _end(self, session: str, work: _Work) -> None:
        transaction = Transaction(self._database, session)
        transaction.remove_ephemeral(self._database.owned(session))
        self._store(transaction, work)
        self._database.connection.execute("DELETE FROM sessions WHERE id = ?", (session,))
        work.ended.append(session)

    def _forget(self, session: str) -> None:
        store = self.sessions.pop(session, None)
        if store is not None:
            store._lost()


def _groups(batches: Sequence[Sequence[Op]]) -> Iterator[list[Sequence[Op]]]:
    """Batches that go to disk together."""
    group: list[Sequence[Op]] = []
    size = 0
    for ops in batches:
        if group and size + len(ops) > GROUP_OPS_MAX:
            yield group
            group, size = [], 0
        group.append(ops)
        size += max(1, len(ops))
    if group:
        yield group


class FileStore(TreeSession):
    """A session on a metadata store in the file `path`, which is made if it is missing (its folder is not).

    Several processes of one host may open the same file; every object is a session of its own, and `session()` gives
    further ones that share the open file. A session is a lease of `session_ms`: its driver calls `renew` and `poll`,
    each at least every third of that. With `private=True` this process is the only one (the caller holds a lock that
    says so): sessions recorded before end at once, and new ones never expire by time.

    Calls may come from any thread and wait for each other. In a forked child every call raises UsageError.
    Raises UsageError if the file is something else, StoreCorrupt if it is damaged; it is then left as it is. Commits raise
    StoreFull when the disk is full (nothing was applied), and UnknownOutcome for other errors of the file.

    `clock_ns` and `boot_id` must be the same for every process that opens the file.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        session_ms: int = 9_000,
        private: bool = False,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        boot_id: Callable[[], str] = OS.boot_id,
        _file: _SharedFile | None = None,
    ) -> None:
        self.path = os.path.abspath(os.fspath(path))
        self.session_ms = session_ms
        if session_ms < SESSION_MS_MIN:
            raise UsageError(f"session_ms is {session_ms}; at least {SESSION_MS_MIN} is needed")
        if _file is None:
            _file = _SharedFile(self.path, session_ms=session_ms, private=private, clock_ns=clock_ns, boot_id=boot_id())
        self._file = _file
        self._suspended = False
        super().__init__(_file, _file.join(), f"FileStore {self.path}")
        _file.sessions[self._session_id] = self
        _file.watches.deliver()

    def session(self) -> FileStore:
        """Another session on the same open file. UsageError if this one is closed; it may have been lost."""
        self._fork.check(self._label)
        if self._life in ("closing", "closed"):
            raise UsageError(f"{self._label} is closed")
        return FileStore(self.path, session_ms=self.session_ms, _file=self._file)

    def renew(self) -> None:
        """Keep the session alive, and end those of others that ran out.

        A session lasts until somebody ends it, so a late renewal succeeds if nobody has. Raises SessionLost if somebody
        did. After another error the session is suspended (its listeners hear so) until a renewal succeeds.
        """
        self._alive()
        if self._file.private:
            return
        try:
            self._file.renew(self._session_id)
        except (StoreFull, UnknownOutcome):
            if not self._suspended:
                self._suspended = True
                self._announce("suspended")
            raise
        else:
            if self._suspended:
                self._suspended = False
                self._announce("connected")
        finally:
            self._file.watches.deliver()

    def poll(self) -> None:
        """Notice what other processes changed: watches fire, a session that was ended is lost."""
        self._alive()
        self._file.poll()

    def end_session(self, session_id: str) -> None:
        """End any session at once; nothing happens if it is over.

        For whoever knows that its process is gone, because it holds the lock of the data directory where the id was recorded.
        """
        self._alive()
        self._file.leave(session_id)

    def _leave(self, *, lost: bool) -> None:
        try:
            super()._leave(lost=lost)
        except Exception:
            self._file.release()
            raise
        self._file.release()  # not after an interrupt: then `close` is repeated
