"""The metadata store in a file: several processes on one host share a SQLite database.

There is no server that could end sessions, so every process does, by the rules of `lease`: a session lasts until
somebody ends it, and a transaction is applied only if its session is still recorded when it commits. Changes of other
processes are noticed by `poll`, from a bounded table of changed paths; where nobody wrote it asks for one number. A
process that is stopped in the middle of a write keeps the others from writing; then nobody's session ends, because
nobody could renew it. Local file systems only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from attrs import define, field

from replog.errors import ReplogError, StoreFull, UsageError
from replog.log.files import OS, check_path
from replog.metadata.database import Database, NodeCorrupt
from replog.metadata.lease import NS_PER_MS, Lease, WriteWindow, check_session_ms, has_expired, has_run_out, is_due, wants_write
from replog.metadata.place import StoreGone
from replog.metadata.session import Names, Results, TreeSession, Values
from replog.metadata.tree import Transaction
from replog.metadata.upkeep import Upkeep
from replog.metadata.watches import Watches
from replog.ports import Conflict, Op, SessionLost, UnknownOutcome

__all__ = ["FileStore"]

CHANGES_KEPT: Final = 10_000
"""Changed paths remembered for other processes; one that missed more than these looks at everything again."""
GROUP_OPS_MAX: Final = 10_000
"""Operations of independent transactions that share one write to disk."""
TIMEOUT_S_MAX: Final = 5.0
"""A write waits for those of other processes a third of a session time, at most this."""
POLL_MS: Final = 100
"""The thread looks for changes of others this often, or ten times in a session time."""


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
        self.clock_ns = clock_ns
        self.upkeep = Upkeep(self.tend, every_s=min(POLL_MS, session_ms / 10) / 1_000, name=f"replog {os.path.basename(path)}")
        self._boot_id = boot_id
        self._window = WriteWindow(gap_ns=session_ms * NS_PER_MS // 2)
        self.users: set[str] = set()  # sessions whose objects have not let go of the file
        self._version: int | None = None
        """Of the file when we looked last; None: look again whatever it is."""
        self._leases_seen: Sequence[Lease] = ()
        self._left: dict[str, None] = {}  # sessions that were closed while the file could not be written: they have yet to end
        self._database = Database(path, timeout_s=min(TIMEOUT_S_MAX, session_ms / 3_000), private=private)
        try:
            with self._database.reading():
                self._seen = self._database.state("changes")
            self._end_sessions_at_open()
        except BaseException:
            self._database.close()
            raise

    # -------------------------------------------------------------------------------------------------------- nodes

    def read_each(self, paths: Sequence[str]) -> Values:
        with self._using(), self._database.reading():
            found = [self._database.get(path) for path in paths]
        return [None if node is None else node.versioned() for node in found]

    def list(self, path: str) -> Names:
        with self._using():
            return self._database.children(path)

    @contextmanager
    def _using(self) -> Iterator[None]:
        """Hold the lock; if the file is no longer there, no session on it is."""
        with self._database.lock:
            try:
                yield
            except StoreGone:
                for session in list(self.sessions):
                    self._forget(session)
                raise

    def transact(self, session: str, batches: Sequence[Sequence[Op]]) -> Results:
        self._end_left()
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
                except (Conflict, NodeCorrupt) as refused:
                    results.append(refused)
                else:
                    self._store(transaction, work)
        return results

    def _store(self, transaction: Transaction, work: _Work) -> None:
        self._database.store(transaction.writes)
        work.changed.update(dict.fromkeys(transaction.changed()))

    @contextmanager
    def _writing(self, *, waits: bool = True) -> Iterator[_Work]:
        """One write transaction; once it is on disk, its watches are ready and the sessions it ended know."""
        work = _Work()
        with self._using():
            looked, self._version = self._version, None
            try:
                with self._database.writing(waits=waits):
                    work.now_ns = self.clock_ns()
                    yield work
                    missed, seen = self._remember(list(work.changed))
            except (StoreFull, UnknownOutcome):
                self._window.failed()
                raise
            self._window.wrote(self.clock_ns())
            self._notice(missed, seen)
            self.watches.fire(work.changed)
            for session in work.ended:
                self._forget(session)
            self._version = looked  # only now: what an error or an interrupt has left untold is looked for

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
        with self._using():
            self._look()  # what changed before now is not what this watch is about
            self.watches.arm(session, path, changed)
        self.watches.deliver()

    def _look(self) -> None:
        if (version := self._database.foreign_version()) == self._version:
            return
        with self._database.reading():
            last = self._database.state("changes")
            missed = self._missed(last)
            self._leases_seen = self._leases()
        self._notice(missed, last)
        recorded = {lease.session for lease in self._leases_seen}
        for session in [one for one in self.sessions if one not in recorded]:
            self._forget(session)
        self._version = version

    def poll(self) -> None:
        """Fire watches for what others changed, and tell sessions that others ended."""
        try:
            with self._using():
                self._look()
        finally:
            self.watches.deliver()

    # ----------------------------------------------------------------------------------------------------- sessions

    def join(self) -> str:
        """Record a new session; `enter` follows, or `release`: from now on its object needs the file."""
        with self._database.lock:
            with self._writing() as work:
                run = self._database.connection.execute
                number = self._database.state("sessions") + 1
                session = f"{self._database.state('store_id')}-{number}"
                run("UPDATE state SET sessions = ?", (number,))
                length = None if self.private else self.session_ms
                run("INSERT INTO sessions VALUES (?, ?, ?, ?, ?)", (session, self._boot_id, work.now_ns, length, f"process {os.getpid()}"))
            self.users.add(session)
            return session

    def enter(self, store: FileStore) -> None:
        """From now on this object hears what becomes of its session."""
        with self._database.lock:
            self.sessions[store.session_id] = store
            self._version = None  # somebody may have ended it already

    def tend(self) -> None:
        """One look by the thread: notice what others did; renew, and judge others, when that is due."""
        self._suspend_silent()
        with suppress(ReplogError):  # a renewal fails for the same reason, and says so
            self.poll()
        self._end_left()
        with self._database.lock:
            now_ns, span_ns, stores = self.clock_ns(), self.session_ms * NS_PER_MS, self.sessions
            kept = {x: ns for x, store in stores.items() if (ns := store.alive_ns) is not None and now_ns - ns < span_ns}
            last_ns = {session: stores[session].recorded_ns for session in kept}
            alive = {session: ns for session, ns in kept.items() if ns > last_ns[session]}
            due = any(is_due(ns, recorded_ns=last_ns[x], now_ns=now_ns, session_ms=self.session_ms) for x, ns in alive.items())
            if kept and not due:  # whoever is kept may write for the sake of others, also where nothing of its own is to be renewed
                others = [lease for lease in self._leases_seen if lease.session not in kept]
                due = any(wants_write(x, boot_id=self._boot_id, now_ns=now_ns, window=self._window) for x in others)
        if due:
            with suppress(ReplogError):  # the sessions are suspended
                self.renew(alive or kept)

    def _suspend_silent(self) -> None:
        """Owners who were silent for a session time may have lost their sessions: they should hear that first."""
        with self._database.lock:
            oldest_ns = self.clock_ns() - self.session_ms * NS_PER_MS
            for store in self.sessions.values():
                if store.alive_ns is not None and store.alive_ns < oldest_ns:
                    store.suspend()
        self.watches.deliver()

    def renew(self, alive: Mapping[str, int]) -> None:
        """Move the leases of these sessions to when their owners were alive, and end those of others that ran out.

        A session that is no longer recorded is told that it is lost.
        """
        stores = [store for session in alive if (store := self.sessions.get(session)) is not None]
        try:
            with self._writing() as work:
                for session, alive_ns in alive.items():
                    self._database.connection.execute(
                        "UPDATE sessions SET renewed_ns = max(renewed_ns, ?) WHERE id = ?", (alive_ns, session)
                    )
                leases = self._leases()
                for lease in leases:
                    if lease.session not in alive and self._may_end(lease, work.now_ns):
                        self._end(lease.session, work)
            self._leases_seen = [lease for lease in leases if lease.session not in work.ended]
        except ReplogError:
            for store in stores:
                store.suspend()
            raise
        else:
            recorded = {lease.session for lease in leases}
            for store in stores:
                if store.session_id in recorded:
                    store.renewed(alive[store.session_id])
                else:
                    self._forget(store.session_id)
        finally:
            self.watches.deliver()

    def _may_end(self, lease: Lease, now_ns: int) -> bool:
        return has_expired(lease, boot_id=self._boot_id, now_ns=now_ns, window=self._window)

    def is_judging(self) -> bool:
        """Whether the session of another process has run out, and this one may not end it yet. Never blocks."""
        now_ns, own = self.clock_ns(), self.sessions
        return any(has_run_out(x, boot_id=self._boot_id, now_ns=now_ns) for x in self._leases_seen if x.session not in own)

    def leave(self, session: str, *, waits: bool = True) -> None:
        """End a session now. Nothing happens if it is over."""
        with self._writing(waits=waits) as work:
            if self._recorded(session):
                self._end(session, work)
        self._left.pop(session, None)
        self.watches.deliver()

    def leave_later(self, session: str) -> None:
        """End a session as soon as the file can be written again, unless it is closed before: a private one would never run out."""
        with self._database.lock:
            if self.users:
                self._left[session] = None
                self.upkeep.start()

    def _end_left(self) -> None:
        """Before the next write and, where none comes, from the thread."""
        for session in list(self._left):
            with suppress(ReplogError):  # it is tried again
                self.leave(session, waits=False)

    def release(self, session: str = "") -> None:
        """This one's object needs the file no more; the last one closes it. Idempotent."""
        with self._database.lock:
            self.users.discard(session)
            if not self.users:
                self.upkeep.stop()
                self._database.close()

    def _end_sessions_at_open(self) -> None:
        """Sessions of another boot are over; those of this boot too, where this process is known to be the only one."""
        with self._writing() as work:
            leases = self._leases()
            for lease in leases:
                if self.private or self._may_end(lease, work.now_ns):
                    self._end(lease.session, work)
        self._leases_seen = [lease for lease in leases if lease.session not in work.ended]

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
    further ones that share the open file. A session is a lease of `session_ms` (100 to a day): its driver calls `renew`
    and `poll`, each at least every third of that. Or it calls `keep_alive` in every turn of its loop: from the first time
    on a thread does both, notices what others changed within 100 ms, and renews up to the last call, so that the session
    ends `session_ms` after the loop hung. With `private=True` this process is the only one (the caller holds a lock that
    says so): sessions recorded before end at once, and new ones never expire by time.

    Calls may come from any thread and wait for each other. In a forked child every call raises UsageError.
    Raises UsageError if the file is something else, StoreCorrupt if it is damaged; it is then left as it is. Commits, and
    the constructor, raise StoreFull when the disk is full (nothing was applied), and UnknownOutcome for other errors of the
    file, also if other processes kept it for too long. If the file is removed or replaced while it is open, the next call
    raises StoreCorrupt and every session on it is lost; this process makes no new one in its place (a private one may).
    After a `close` that raised StoreFull or UnknownOutcome a thread ends the session, as long as others here have the file open.

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
        self.path = os.path.abspath(check_path(path, hint="name a file"))
        self.session_ms = check_session_ms(session_ms)
        if _file is None:
            _file = _SharedFile(self.path, session_ms=session_ms, private=private, clock_ns=clock_ns, boot_id=boot_id())
        self._file = _file
        self._suspended = False
        self.alive_ns: int | None = None
        """When the owner last called `keep_alive`; None: it never did."""
        self.recorded_ns = _file.clock_ns()
        """From when the recorded lease counts, at least."""
        session = ""
        try:
            session = _file.join()
            super().__init__(_file, session, f"FileStore {self.path}")
        except BaseException:
            _file.release(session)
            raise
        _file.enter(self)
        _file.watches.deliver()

    def session(self) -> FileStore:
        """Another session on the same open file. UsageError if this one is closed; it may have been lost."""
        self._fork.check(self._label)
        if self._life in ("closing", "closed"):
            raise UsageError(f"{self._label} is closed")
        return FileStore(self.path, session_ms=self.session_ms, _file=self._file)

    def keep_alive(self) -> None:
        """The owner is alive. From the first call on a thread looks after the session, as long as the calls go on.

        Never blocks, and does nothing once the session has ended, nor in a forked child. A session whose owner was silent for its whole
        time is suspended, and then connected again or lost: whatever others have made of it.
        """
        if self._life == "open" and not self._fork.forked and not self._file.private:
            self.alive_ns = self._file.clock_ns()
            self._file.upkeep.start()

    @property
    def is_judging(self) -> bool:
        """Whether somebody else's session has run out and goes on to be recorded, until this process may end it or its owner is back.

        What such a session registered may belong to nobody any more. Never blocks; as of the last look by `poll` or `keep_alive`.
        """
        return self._file.is_judging()

    def renew(self) -> None:
        """Keep the session alive, and end those of others that ran out.

        A session lasts until somebody ends it, so a late renewal succeeds if nobody has. Raises SessionLost if somebody
        did. After another error the session is suspended (its listeners hear so) until a renewal succeeds. An owner who
        calls `keep_alive` has its session renewed up to its last call, and not up to this one. A session is ended by those
        alone who write at least every half of its time: the thread of `keep_alive` does so while one has run out.
        """
        self._alive()
        if self._file.private:
            return
        self._file.renew({self._session_id: self._file.clock_ns() if self.alive_ns is None else self.alive_ns})
        self._alive()

    def suspend(self) -> None:
        """The session may be lost: that is not known now. The caller delivers."""
        if self._life == "open" and not self._suspended:
            self._suspended = True
            self._announce("suspended")

    def renewed(self, alive_ns: int) -> None:
        """The lease counts from `alive_ns` now. The caller delivers."""
        self.recorded_ns = max(self.recorded_ns, alive_ns)
        if self._life == "open" and self._suspended and not self._is_silent():
            self._suspended = False
            self._announce("connected")

    def _is_silent(self) -> bool:
        return self.alive_ns is not None and self._file.clock_ns() - self.alive_ns > self.session_ms * NS_PER_MS

    def poll(self) -> None:
        """Notice what other processes changed: watches fire, a session that was ended is lost."""
        self._alive()
        self._file.poll()

    def end_session(self, session_id: str) -> None:
        """End any session at once, unless it is over: for whoever knows that its process is gone, by the lock of its data directory."""
        self._alive()
        self._file.leave(session_id)

    def _leave(self, *, lost: bool) -> None:
        try:
            if self._session_id in self._file.users:  # else an earlier call went that far
                with suppress(StoreGone):  # and the session with it
                    super()._leave(lost=lost)
        except Exception as problem:
            self._file.release(self._session_id)
            if isinstance(problem, StoreFull | UnknownOutcome):
                self._file.leave_later(self._session_id)
            raise
        self._file.release(self._session_id)  # not after an interrupt: then `close` is repeated
