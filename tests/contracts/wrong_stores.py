"""Stores that break the contract, each in one way that a real one well might, and the test of the suite that notices.

`test_suites_can_fail.py` runs them; pytest alone does not, because of the name of this file.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import pytest
from attrs import evolve
from tests.contracts.test_custom_store import JsonStore

from replog.errors import ReplogError
from replog.metadata.file import FileStore, _SharedFile
from replog.metadata.memory import MemoryStore, _Tree
from replog.metadata.tree import Transaction
from replog.metadata.watches import Watches
from replog.ports import Check, Create, Delete, MetadataStore, Op, SessionState, Versioned
from replog.testing.store_contract import MetadataStoreContract, OpenSession

SHORT_MS = 300
"""Of sessions whose end is waited for; whoever is to be caught is waited for five times as long."""


class InMemory(MemoryStore):
    """`session` gives another one of the same kind."""

    def session(self) -> MemoryStore:
        return type(self)(_tree=self._tree)


_two = threading.Barrier(2)


def on_the_way() -> None:
    """Between a look and a write there is a network: another one gets there meanwhile, if there is another one."""
    try:
        _two.wait(0.05)
    except threading.BrokenBarrierError:
        _two.reset()


class ChecksThenWrites(InMemory):
    """Decides on what it reads, and writes without another look."""

    def commit(self, ops: Sequence[Op]) -> list[int]:
        transaction = Transaction(self._tree, self._session_id)
        numbers = transaction.apply(ops)
        on_the_way()
        with self._tree._lock:
            self._tree._store(transaction)
        self._tree.watches.deliver()
        return numbers


class ChecksEarly(InMemory):
    """Writes compare versions when they are applied; what is only checked was compared before."""

    def commit(self, ops: Sequence[Op]) -> list[int]:
        checks = [op for op in ops if isinstance(op, Check)]
        super().commit(checks)
        on_the_way()
        return [0] * len(checks) + super().commit([op for op in ops if not isinstance(op, Check)])


class _ReusingTree(_Tree):
    def join(self, store: MemoryStore) -> str:
        with self._lock:
            session = next(name for number in count(1) if (name := f"memory-{number}") not in self.sessions)
            self.sessions[session] = store
            return session


class ReusesIds(InMemory):
    """A session has the smallest number that no other session has now: who has ended writes on once the number is taken."""

    def __init__(self, *, _tree: _Tree | None = None) -> None:
        super().__init__(_tree=_tree or _ReusingTree())


class SilentEach(InMemory):
    """Several transactions at once fire no watch."""

    def commit_each(self, batches: Sequence[Sequence[Op]]) -> list[list[int] | ReplogError]:
        watches = self._tree.watches
        if len(batches) > 1:
            self._tree.watches = Watches()
        try:
            return super().commit_each(batches)
        finally:
            self._tree.watches = watches


class OneWatchPerPath(InMemory):
    """A second callback on a path takes the place of the first."""

    def __init__(self, *, _tree: _Tree | None = None) -> None:
        super().__init__(_tree=_tree)
        self._callbacks: dict[str, Callable[[str], None]] = {}

    def watch(self, path: str, changed: Callable[[str], None]) -> None:
        self._callbacks[path] = changed
        super().watch(path, self._changed)

    def _changed(self, path: str) -> None:
        self._callbacks.pop(path)(path)


class KeepAliveRaises(InMemory):
    """Tells its owner that the session has ended where he does not expect it."""

    def keep_alive(self) -> None:
        self._alive()


class KeepAliveWaits(InMemory):
    """Its owner cannot say that it lives while a callback is told."""

    def __init__(self, *, _tree: _Tree | None = None) -> None:
        super().__init__(_tree=_tree)
        self._telling = threading.RLock()

    def watch(self, path: str, changed: Callable[[str], None]) -> None:
        def tell(path: str) -> None:
            with self._telling:
                changed(path)

        super().watch(path, tell)

    def keep_alive(self) -> None:
        with self._telling:
            super().keep_alive()


class AnotherIdEachTime(InMemory):
    """Nobody finds the session again."""

    @property
    def session_id(self) -> str:
        return f"{super().session_id}-{next(_looks)}"


_looks = count()


class OneListener(InMemory):
    """Only who asked last hears what becomes of the session."""

    def on_session(self, changed: Callable[[SessionState], None]) -> None:
        self._listeners.clear()
        super().on_session(changed)


class ChangeableValues(InMemory):
    """What is read is no `bytes`."""

    def read(self, path: str) -> Versioned | None:
        found = super().read(path)
        return found and Versioned(bytearray(found.value), found.version, found.created)  # type: ignore[arg-type]


_apart = threading.Event()
"""Never set: between two writes there is a network."""


class _TornTree(_Tree):
    def _store(self, transaction: Transaction) -> None:
        changed = transaction.changed()
        for path, node in transaction.writes.items():
            self._undone = ({path: node}, ())
            self._finish()
            self._lock.release()
            _apart.wait(0.001)
            self._lock.acquire()
        self.watches.fire(changed)


class Torn(InMemory):
    """What a transaction writes can be read one by one, while the rest is still to come."""

    def __init__(self, *, _tree: _Tree | None = None) -> None:
        super().__init__(_tree=_tree or _TornTree())


class Zombie(InMemory):
    """Looks at its session in one request, and writes in the next."""

    def commit(self, ops: Sequence[Op]) -> list[int]:
        super().commit([])
        _apart.wait(0.001)
        with self._tree._lock:
            transaction = Transaction(self._tree, self._session_id)
            numbers = transaction.apply(ops)
            self._tree._store(transaction)
        self._tree.watches.deliver()
        return numbers


class CreatedOnlyWithVersion(InMemory):
    """Which node is meant counts only where its version is said, too."""

    def commit(self, ops: Sequence[Op]) -> list[int]:
        return super().commit([evolve(op, created=None) if isinstance(op, Check | Delete) and op.version is None else op for op in ops])


class RemovesByPath(InMemory):
    """Its end removes whatever is where it once made an ephemeral node."""

    def __init__(self, *, _tree: _Tree | None = None) -> None:
        super().__init__(_tree=_tree)
        self._made: list[str] = []

    def commit(self, ops: Sequence[Op]) -> list[int]:
        self._made += [op.path for op in ops if isinstance(op, Create) and op.ephemeral]
        return super().commit(ops)

    def close(self) -> None:
        if self._life == "open":
            for path in self._made:
                if self.read(path) is not None:
                    super().commit([Delete(path)])
        super().close()


class TellsWhoCloses(InMemory):
    """Who ends a session hears that it is lost."""

    def close(self) -> None:
        if self._life == "open":
            for listener in self._listeners:
                listener("lost")
        super().close()


class AliveOnce(FileStore):
    """Only the first `keep_alive` counts: a session is over after its time, whatever its owner says."""

    def keep_alive(self) -> None:
        if self.alive_ns is None:
            super().keep_alive()


class _Quiet(_SharedFile):
    def _end(self, session: str, work: Any) -> None:
        super()._end(session, work)
        work.changed.clear()


class ExpiresUnnoticed(FileStore):
    """What goes with a session that has run out fires no watch."""

    def __init__(self, path: Path, *, session_ms: int = 9_000) -> None:
        super().__init__(path, session_ms=session_ms)
        self._file.__class__ = _Quiet


class CountsInMemory(FileStore):
    """Creation numbers are counted in each process."""

    COUNTS: ClassVar[dict[str, Iterator[int]]] = {}

    def __init__(self, path: Path, *, session_ms: int = 9_000) -> None:
        super().__init__(path, session_ms=session_ms)
        numbers = self.COUNTS.setdefault(str(path), count(1))
        self._file._database.next_created = lambda: next(numbers)  # type: ignore[method-assign]


class Forgets(FileStore):
    """Everything goes with the last session."""

    OPEN: ClassVar[list[str]] = []

    def __init__(self, path: Path, *, session_ms: int = 9_000) -> None:
        super().__init__(path, session_ms=session_ms)
        self.OPEN.append(self.session_id)

    def close(self) -> None:
        super().close()
        if self.session_id in self.OPEN:
            self.OPEN.remove(self.session_id)
            if not self.OPEN:
                Path(self.path).unlink()


class NeverExpires(FileStore):
    """Nobody ends a session of which nothing is heard."""

    def __init__(self, path: Path, *, session_ms: int = 9_000) -> None:
        super().__init__(path, session_ms=session_ms)
        self._file._may_end = lambda lease, now_ns: False  # type: ignore[method-assign]


class AliveByItsThread(FileStore):
    """A thread keeps the session, whether its owner hangs or not."""

    @property
    def alive_ns(self) -> int:  # type: ignore[override]
        return self._file.clock_ns()

    @alive_ns.setter
    def alive_ns(self, value: int | None) -> None: ...


class Json(JsonStore):  # type: ignore[misc]
    """The store of the example, where another process finds it."""

    def __init__(self, folder: Path, *, session_ms: int = 0) -> None:
        super().__init__(folder.with_suffix(""))  # its sessions do not end by time


class NoDeath(Json):
    """Nobody finds out that a process has died."""

    def _is_gone(self, session: str) -> bool:
        return False


CAUGHT_BY: dict[type[MetadataStore], str] = {
    ChecksThenWrites: "test_of_threads_that_race_on_a_version_one_wins",
    ChecksEarly: "test_a_check_holds_until_its_transaction_is_applied",
    ReusesIds: "test_a_session_that_was_ended_stays_ended_whoever_comes_after_it",
    SilentEach: "test_the_transactions_of_commit_each_fire_watches",
    OneWatchPerPath: "test_each_of_several_callbacks_on_a_path_is_told",
    KeepAliveWaits: "test_keep_alive_does_not_wait_for_a_callback",
    KeepAliveRaises: "test_keep_alive_never_raises",
    AnotherIdEachTime: "test_session_ids_differ",
    OneListener: "test_a_session_that_was_ended_writes_no_more",
    ChangeableValues: "test_create_then_read",
    Torn: "test_a_transaction_is_seen_whole_or_not_at_all",
    Zombie: "test_a_session_that_is_ended_while_it_writes_has_then_written",
    CreatedOnlyWithVersion: "test_a_node_that_was_written_anew_is_another_one",
    RemovesByPath: "test_what_took_the_place_of_an_ephemeral_node_stays_when_its_session_closes",
    TellsWhoCloses: "test_who_closes_is_told_nothing",
    AliveOnce: "test_a_session_lives_as_long_as_its_owner_says_so",
    ExpiresUnnoticed: "test_a_session_whose_owner_falls_silent_ends_by_its_time",
    CountsInMemory: "test_another_process_sees_the_same_store_and_counts_on",
    Forgets: "test_nodes_and_numbers_outlive_the_last_session",
    NeverExpires: "test_a_session_whose_owner_falls_silent_ends_by_its_time",
    AliveByItsThread: "test_a_session_whose_owner_falls_silent_ends_by_its_time",
    NoDeath: "test_the_session_of_a_process_that_is_killed_ends",
}
"""The wrong stores, and a test of the suite that fails for each."""
RIGHT: dict[type[MetadataStore], list[str]] = {
    kind: sorted({test for wrong, test in CAUGHT_BY.items() if issubclass(wrong, kind)}) for kind in (InMemory, FileStore, Json)
}
"""The stores that they are made of, and the same tests, which pass."""


class TestStore(MetadataStoreContract):
    @pytest.fixture(params=[*CAUGHT_BY, *RIGHT], ids=lambda kind: kind.__name__)
    def kind(self, request: pytest.FixtureRequest) -> Any:
        return request.param

    @pytest.fixture
    def open_session(self, kind: Any, tmp_path: Path) -> OpenSession:
        if kind in CAUGHT_BY:
            self.patience_s = 5 * SHORT_MS / 1_000
        return kind().session if issubclass(kind, MemoryStore) else partial(kind, tmp_path / "store.db")

    @pytest.fixture
    def open_short_session(self, kind: Any, tmp_path: Path) -> OpenSession:
        return partial(kind, tmp_path / "store.db", session_ms=SHORT_MS)

    def end(self, store: MetadataStore, other: MetadataStore) -> None:
        if isinstance(store, MemoryStore):
            store.expire()
        else:
            assert isinstance(other, FileStore | JsonStore)
            other.end_session(store.session_id)
