"""A metadata store of one's own: a tree in one JSON file, which processes of one host share under a lock.

It is small, and keeps the whole contract: `replog.testing.store_contract` is run over it in `tests/contracts/test_custom_store.py`.

::

    FOLDER/lock            held (flock) while the tree is read and replaced
    FOLDER/tree.json       the nodes, and which sessions there are
    FOLDER/sessions/ID     held (flock) by a session as long as its process lives; whoever finds it free ends that session

docs/writing-a-store.md goes through it. Two things are left out for brevity: every commit writes the whole file anew, and a process that
stands still keeps its session, where the stores that come with replog end it by its time.

    python examples/custom_store.py            a cluster of three brokers over it, one of which is killed
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final

import replog
from replog.errors import ReplogError, StoreCorrupt, UsageError
from replog.metadata.paths import check_ops, check_path, name_of, parent_of
from replog.metadata.tree import Node, Transaction
from replog.ports import Conflict, MetadataStore, Op, SessionLost, SessionState, UnknownOutcome, Versioned

LOOKS_S: Final = 0.05
"""How often a session looks for changes and for sessions that have ended."""

COUNTS: Final = ("created", "opened", "changes", "forgotten")
CHANGED_MAX: Final = 1_000
"""The file names so many paths that changed last; a watch that is older than all of them is told, whether it has a reason or not."""

Names = list[str]
Values = list[Versioned | None]
Numbers = list[int]
Results = list[list[int] | ReplogError]
# names for the types, because a class with a method `list` cannot spell them


class Tree:
    """The content of the file. It is what a `Transaction` reads through to (`replog.metadata.tree.Nodes`)."""

    def __init__(self, text: str) -> None:
        """Raises ValueError, KeyError or TypeError if the text is not what `text()` makes."""
        known = json.loads(text) if text else {**dict.fromkeys(COUNTS, 0), "sessions": [], "changed": {}, "nodes": {}}
        self.created: int = known["created"]
        self.opened: int = known["opened"]
        self.sessions: list[str] = known["sessions"]
        self.changes: int = known["changes"]
        self.changed: dict[str, int] = known["changed"]
        """The paths that changed last, in that order, and the number of that change."""
        self.forgotten: int = known["forgotten"]
        """No change after this one is missing there."""
        self.nodes = {path: Node(base64.b64decode(value), *rest) for path, (value, *rest) in known["nodes"].items()}
        self.children: dict[str, dict[str, None]] = {}
        for path in self.nodes:
            self.children.setdefault(parent_of(path), {})[name_of(path)] = None

    def text(self) -> str:
        """All of it, as one line of JSON."""
        nodes = {path: [base64.b64encode(node.value).decode(), *node[1:]] for path, node in self.nodes.items()}
        counts = {name: getattr(self, name) for name in COUNTS}
        return json.dumps({**counts, "sessions": self.sessions, "changed": self.changed, "nodes": nodes})

    def get(self, path: str) -> Node | None:
        """The node at `path`."""
        return self.nodes.get(path)

    def some_children(self, path: str, count: int) -> Iterable[str]:
        """Names of any `count` children."""
        return islice(self.children.get(path, ()), count)

    def next_created(self) -> int:
        """The next creation number, unique in the whole store."""
        self.created += 1
        return self.created

    def has_changed(self, path: str, since: int) -> bool:
        """Whether the node or its set of children changed after that many changes; also if it is back to what it was."""
        return self.changed.get(path, self.forgotten) > since

    def store(self, transaction: Transaction) -> None:
        """Take over what a transaction has written."""
        for path in transaction.changed():
            self.changes += 1
            self.changed.pop(path, None)
            self.changed[path] = self.changes
        for path in list(self.changed)[:-CHANGED_MAX]:
            self.forgotten = self.changed.pop(path)
        for path, node in transaction.writes.items():
            if node is None:
                self.nodes.pop(path, None)  # it may have come and gone within the transaction
                self.children.get(parent_of(path), {}).pop(name_of(path), None)
            else:
                self.nodes[path] = node
                self.children.setdefault(parent_of(path), {})[name_of(path)] = None

    def end(self, session: str) -> None:
        """End a session: its ephemeral nodes go."""
        transaction = Transaction(self, session)
        transaction.remove_ephemeral(sorted(path for path, node in self.nodes.items() if node.owner == session))
        self.store(transaction)
        self.sessions.remove(session)


class JsonStore(MetadataStore):
    """A session on the tree in `folder`, which is made if it is missing. Usable from any thread; a context manager.

    Watches are told by a thread of the session, within `LOOKS_S` of a change, or by whoever calls `poll`.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Raises UsageError or StoreCorrupt naming the folder."""
        self._folder = Path(folder)
        self._pid = os.getpid()
        self._life = "open"
        self._listeners: list[Callable[[SessionState], None]] = []
        self._armed: dict[tuple[str, Callable[[str], None]], int] = {}
        """How many changes there had been when it was armed."""
        self._delivering = threading.Lock()
        self._closing = threading.Event()
        try:
            (self._folder / "sessions").mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise UsageError(f"{self._folder} cannot be used: {problem}") from problem
        with self._locked() as tree:
            tree.opened += 1
            self._session = f"json-{tree.opened}"
            self._alive = os.open(self._folder / "sessions" / self._session, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._alive, fcntl.LOCK_EX)
            tree.sessions.append(self._session)
            self._write(tree)
        threading.Thread(target=self._look, name=f"{self._session} of {self._folder}", daemon=True).start()

    def session(self) -> JsonStore:
        """Another session on the same tree: what `Cluster(store=...)` and `Broker(store=...)` ask for."""
        return JsonStore(self._folder)

    @property
    def session_id(self) -> str:
        """Never used again in this folder."""
        return self._session

    # ------------------------------------------------------------------------------------------------------- reading

    def read(self, path: str) -> Versioned | None:
        """The value at `path`, None if there is none."""
        return self.read_each([path])[0]

    def read_each(self, paths: Sequence[str]) -> Values:
        """The values at `paths`, of one moment."""
        checked = [check_path(path) for path in paths]
        with self._mine() as tree:
            found = [tree.get(path) for path in checked]
        return [None if node is None else node.versioned() for node in found]

    def list(self, path: str) -> Names:
        """Names of the children, sorted."""
        check_path(path, root=True)
        with self._mine() as tree:
            return sorted(tree.children.get(path, ()))

    # ------------------------------------------------------------------------------------------------------- writing

    def commit(self, ops: Sequence[Op]) -> Numbers:
        """One transaction: all of it, or Conflict."""
        result = self.commit_each([ops])[0]
        if isinstance(result, ReplogError):
            raise result
        return result

    def commit_each(self, batches: Sequence[Sequence[Op]]) -> Results:
        """Independent transactions, a result each; the file is written once for all of them."""
        for ops in batches:
            check_ops(ops, self.commit_ops_max)
        results: Results = []
        with self._mine() as tree:
            for ops in batches:
                transaction = Transaction(tree, self._session)
                try:
                    results.append(transaction.apply(ops))
                except Conflict as conflict:
                    results.append(conflict)  # the transaction is forgotten, and nothing of it has happened
                else:
                    tree.store(transaction)
            if any(batches):
                self._write(tree)
        return results

    # ------------------------------------------------------------------------------------------------------ watching

    def watch(self, path: str, changed: Callable[[str], None]) -> None:
        """Call `changed(path)` once after the node or its set of children has changed from what it is now."""
        check_path(path, root=True)
        with self._mine() as tree:
            self._armed.setdefault((path, changed), tree.changes)

    def on_session(self, changed: Callable[[SessionState], None]) -> None:
        """Call `changed("lost")` when somebody has ended this session."""
        with self._mine():
            self._listeners.append(changed)

    def poll(self) -> None:
        """Tell what is due. One at a time: a callback is never called inside another, and may read, commit and arm again."""
        if self._life not in ("open", "lost") or not self._delivering.acquire(blocking=False):
            return
        try:
            lost, fired = False, []
            with self._locked() as tree:
                self._bury(tree)
                lost = self._session not in tree.sessions
                for path, changed in [armed for armed, since in self._armed.items() if tree.has_changed(armed[0], since)]:
                    del self._armed[path, changed]
                    fired.append((path, changed))
            if lost and self._life in ("open", "lost"):
                self._life, fired = "told", []
                self._armed.clear()
                for listener in self._listeners:
                    listener("lost")
            for path, changed in fired:
                if self._life == "open":  # watches end with their session
                    changed(path)
        finally:
            self._delivering.release()

    def _look(self) -> None:
        while not self._closing.wait(LOOKS_S):
            with suppress(OSError, StoreCorrupt):  # whoever commits is told; here it is tried again
                self.poll()

    # ---------------------------------------------------------------------------------------------------- the session

    def end_session(self, session: str) -> None:
        """End another session against its will: its nodes go, and it can write no more. Idempotent."""
        with self._mine() as tree:
            if session in tree.sessions:
                tree.end(session)
                self._write(tree)

    def close(self) -> None:
        """End the session at once. Idempotent; in a forked child it only forgets, because the session is its parent's."""
        if self._life == "closed":
            return
        self._life = "closed"
        self._closing.set()
        if os.getpid() == self._pid:
            with self._locked() as tree:
                if self._session in tree.sessions:
                    tree.end(self._session)
                    self._write(tree)
        with suppress(OSError):
            (self._folder / "sessions" / self._session).unlink()
        os.close(self._alive)

    def __enter__(self) -> JsonStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _bury(self, tree: Tree) -> None:
        """End the sessions whose processes have ended: nobody holds their files any more."""
        gone = [session for session in tree.sessions if session != self._session and self._is_gone(session)]
        for session in gone:
            tree.end(session)
        if gone:
            self._write(tree)

    def _is_gone(self, session: str) -> bool:
        try:
            file = os.open(self._folder / "sessions" / session, os.O_RDWR)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(file)
        return True

    # ------------------------------------------------------------------------------------------------------- the file

    @contextmanager
    def _mine(self) -> Iterator[Tree]:
        """The tree, for a session that may use it. UsageError or SessionLost if this one may not."""
        if os.getpid() != self._pid:
            raise UsageError(f"{self._session} belongs to process {self._pid}; open a store in the forked child")
        if self._life == "closed":
            raise UsageError(f"{self._session} is closed")
        with self._locked() as tree:
            if self._session not in tree.sessions:
                if self._life == "open":
                    self._life = "lost"
                raise SessionLost(f"{self._session} of {self._folder} has ended; open another one")
            yield tree

    @contextmanager
    def _locked(self) -> Iterator[Tree]:
        """The tree as it is now; nobody else, of this process or of another, reads or writes meanwhile."""
        with open(self._folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            file = self._folder / "tree.json"
            try:
                tree = Tree(file.read_text(encoding="utf-8") if file.exists() else "")
            except (ValueError, KeyError, TypeError) as problem:
                raise StoreCorrupt(str(file), f"it is no tree: {problem}") from problem
            yield tree

    def _write(self, tree: Tree) -> None:
        """Replace the file in one step. A power cut leaves the old one or the new one; an error may leave either."""
        file = self._folder / "tree.json"
        try:
            with open(file.with_suffix(".new"), "w", encoding="utf-8") as new:
                new.write(tree.text())
                new.flush()
                os.fsync(new.fileno())
            os.replace(file.with_suffix(".new"), file)
            folder = os.open(self._folder, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as problem:
            raise UnknownOutcome(f"{file} could not be replaced: {problem}") from problem


def open_json(url: str, *, session_ms: int) -> MetadataStore:
    """`json://FOLDER`, for the entry point group `replog.stores`. Sessions here do not end by time."""
    return JsonStore(url.partition("://")[2])


def main() -> int:
    """Three brokers over the store; one is killed, and nothing is lost."""
    with tempfile.TemporaryDirectory() as folder:
        store = JsonStore(f"{folder}/meta")
        with store, replog.Cluster(f"{folder}/data", brokers=3, store=store) as cluster:
            cluster.create_topic("orders", replication_factor=3, min_isr=2)
            cluster.append("orders", 0, [f"order {n}" for n in range(100)])
            lost = cluster.leader("orders", 0)
            cluster.kill_broker(lost)
            cluster.append("orders", 0, ["one more"])
            found: list[Any] = list(cluster.read("orders"))
            print(f"{len(found)} records; broker {lost} was killed, broker {cluster.leader('orders', 0)} leads")
            print("registered:", ", ".join(store.list("/brokers/ids")))
    return 0 if len(found) == 101 else 1


if __name__ == "__main__":
    sys.exit(main())
