"""The metadata store in memory: the reference for every other backend, and the simulator's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from replog.metadata.paths import name_of, parent_of
from replog.metadata.session import Names, Results, TreeSession, Values
from replog.metadata.tree import Node, Transaction
from replog.metadata.watches import Watches
from replog.ports import Conflict, Op, SessionLost

__all__ = ["MemoryStore"]


class _Tree:
    """The nodes, and the sessions that own some of them."""

    def __init__(self) -> None:
        self.watches = Watches()
        self.sessions: dict[str, MemoryStore] = {}
        self._lock = threading.Lock()
        self._nodes: dict[str, Node] = {}
        self._children: dict[str, dict[str, None]] = {}
        self._owned: dict[str, dict[str, None]] = {}
        self._created = 0
        self._opened = 0
        self._undone: tuple[dict[str, Node | None], Iterable[str]] | None = None
        """What an interrupted transaction still has to write, and the paths it changes."""

    def join(self, store: MemoryStore) -> str:
        with self._lock:
            self._opened += 1
            session = f"memory-{self._opened}"
            self.sessions[session] = store
            return session

    def get(self, path: str) -> Node | None:
        return self._nodes.get(path)

    def some_children(self, path: str, count: int) -> Iterable[str]:
        return islice(self._children.get(path, ()), count)

    def next_created(self) -> int:
        self._created += 1
        return self._created

    def read_each(self, paths: Sequence[str]) -> Values:
        with self._lock:
            self._finish()
            found = [self._nodes.get(path) for path in paths]
        return [None if node is None else node.versioned() for node in found]

    def list(self, path: str) -> Names:
        with self._lock:
            self._finish()
            return sorted(self._children.get(path, ()))

    def transact(self, session: str, batches: Sequence[Sequence[Op]]) -> Results:
        results: Results = []
        with self._lock:
            self._finish()
            for ops in batches:
                if session not in self.sessions:
                    results.append(SessionLost(f"session {session} has ended"))
                    continue
                transaction = Transaction(self, session)
                try:
                    results.append(transaction.apply(ops))
                except Conflict as conflict:
                    results.append(conflict)
                else:
                    self._store(transaction)
        self.watches.deliver()
        return results

    def arm(self, session: str, path: str, changed: Callable[[str], None]) -> None:
        self.watches.arm(session, path, changed)

    def leave(self, session: str) -> None:
        with self._lock:
            self._finish()
            if session in self.sessions:
                transaction = Transaction(self, session)
                transaction.remove_ephemeral(sorted(self._owned.get(session, ())))
                self._store(transaction)
                self.sessions.pop(session)
        self.watches.deliver()

    def _store(self, transaction: Transaction) -> None:
        self._undone = (transaction.writes, transaction.changed())
        self._finish()

    def _finish(self) -> None:
        """Apply a transaction; repeatable, because an interrupt in the middle leaves it to whoever looks next."""
        if self._undone is None:
            return
        writes, changed = self._undone
        for path, node in writes.items():
            before = self._nodes.pop(path, None)
            if before is not None and before.owner is not None:
                self._owned.get(before.owner, {}).pop(path, None)
                if not self._owned.get(before.owner, True):
                    del self._owned[before.owner]
            parent = parent_of(path)
            if node is None:
                siblings = self._children.get(parent, {})
                siblings.pop(name_of(path), None)
                if not siblings:
                    self._children.pop(parent, None)
                continue
            self._nodes[path] = node
            self._children.setdefault(parent, {})[name_of(path)] = None
            if node.owner is not None:
                self._owned.setdefault(node.owner, {})[path] = None
        self.watches.fire(changed)
        self._undone = None


class MemoryStore(TreeSession):
    """A session on a tree in memory. `MemoryStore()` makes a new tree; `session()` joins it with another session.

    Sessions end by `close` or `expire`, never by time. Usable from any thread. Watches are delivered before the commit
    that fires them returns, unless another delivery is running: then by that one.
    """

    def __init__(self, *, _tree: _Tree | None = None) -> None:
        self._tree = _Tree() if _tree is None else _tree
        super().__init__(self._tree, self._tree.join(self), "MemoryStore")

    def session(self) -> MemoryStore:
        """Another session on the same tree."""
        self._fork.check(self._label)
        return MemoryStore(_tree=self._tree)

    def expire(self) -> None:
        """End the session as if its time had run out: its ephemeral nodes go, its listeners hear "lost". Idempotent."""
        self._fork.check(self._label)
        self._lost()
        self._tree.leave(self._session_id)
