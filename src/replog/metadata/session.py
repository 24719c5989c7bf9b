"""What the built-in backends share: a session checks its arguments and its own life, and hands the rest to the tree behind it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Literal, Protocol, Self

from replog.errors import ReplogError, UsageError
from replog.metadata.forks import ForkGuard
from replog.metadata.paths import check_ops, check_path, check_sequence, too_large
from replog.metadata.watches import Watches
from replog.ports import MetadataStore, Op, SessionLost, SessionState, Versioned

__all__ = ["Backend", "Results", "TreeSession"]

Names = list[str]
Values = list[Versioned | None]
Results = list[list[int] | ReplogError]
Numbers = list[int]
# names for the types, because a class with a method `list` cannot spell them


class Backend(Protocol):
    """A tree that sessions share. Every method may be called from any thread."""

    watches: Watches

    def read_each(self, paths: Sequence[str]) -> Values: ...

    def list(self, path: str) -> Names: ...

    def transact(self, session: str, batches: Sequence[Sequence[Op]]) -> Results:
        """A result for each batch; the watches they fire are delivered before this returns."""

    def arm(self, session: str, path: str, changed: Callable[[str], None]) -> None:
        """Arm a watch for what changes from now on."""

    def leave(self, session: str) -> None:
        """End a session now; its watches fire."""


class TreeSession(MetadataStore):
    """A session on a `Backend`. A context manager: leaving it ends the session."""

    def __init__(self, backend: Backend, session_id: str, label: str) -> None:
        self._backend = backend
        self._session_id = session_id
        self._label = label
        self._life: Literal["open", "lost", "closing", "closed"] = "open"
        self._listeners: list[Callable[[SessionState], None]] = []
        self._fork = ForkGuard()

    @abstractmethod
    def session(self) -> TreeSession:
        """Another session on the same tree, in this process."""

    @property
    def session_id(self) -> str:
        """Names this session; never used again on the same store."""
        return self._session_id

    def read(self, path: str) -> Versioned | None:
        """The value at `path`, None if there is none."""
        return self.read_each([path])[0]

    def read_each(self, paths: Sequence[str]) -> Values:
        """The values at `paths`, in order."""
        self._alive()
        return self._backend.read_each([check_path(path) for path in paths])

    def list(self, path: str) -> Names:
        """Names of the children, sorted; empty if the path does not exist."""
        self._alive()
        return self._backend.list(check_path(path, root=True))

    def commit(self, ops: Sequence[Op]) -> Numbers:
        """One transaction, as `MetadataStore.commit` says."""
        self._alive()
        check_ops(ops, self.commit_ops_max)
        if (why := too_large(ops)) is not None:
            raise why
        result = self._backend.transact(self._session_id, [ops])[0]
        if isinstance(result, ReplogError):
            raise result
        return result

    def commit_each(self, batches: Sequence[Sequence[Op]]) -> Results:
        """Independent transactions. UsageError, with nothing applied, if any of them is malformed; too large is a result of its own."""
        self._alive()
        check_sequence(batches, "commit_each takes a list of lists of operations")
        for ops in batches:
            check_ops(ops, self.commit_ops_max)
        refused = [too_large(ops) for ops in batches]
        fitting = [ops for ops, why in zip(batches, refused, strict=True) if why is None]
        results = iter(self._backend.transact(self._session_id, fitting) if fitting else [])
        return [next(results) if why is None else why for why in refused]

    def watch(self, path: str, changed: Callable[[str], None]) -> None:
        """Call `changed(path)` once after the node or its set of children changes (a child that is replaced counts)."""
        self._alive()
        self._backend.arm(self._session_id, check_path(path, root=True), changed)

    def on_session(self, changed: Callable[[SessionState], None]) -> None:
        """Call `changed` whenever the state of the session changes from now on; not for a `close` of one's own."""
        self._alive()
        self._listeners.append(changed)

    def fire_all(self) -> None:
        """Fire every watch on this tree: after an interrupt, which changes were not told is no longer known."""
        self._fork.check(self._label)  # the locks may be held by a thread that is not here
        self._backend.watches.fire_all()
        self._backend.watches.deliver()

    def close(self) -> None:
        """End the session. Idempotent, and to be repeated after an interrupt; in a forked child it only forgets."""
        if self._life == "closed":
            return
        lost = self._life == "lost"
        if not lost:
            self._life = "closing"
        if not self._fork.forked:
            self._backend.watches.drop(self._session_id)
            try:
                self._leave(lost=lost)
            except Exception:
                self._life = "closed"
                raise
        self._life = "closed"

    def _leave(self, *, lost: bool) -> None:
        if not lost:
            self._backend.leave(self._session_id)

    def _alive(self) -> None:
        self._fork.check(self._label)
        if self._life in ("closing", "closed"):
            raise UsageError(f"{self._label} is closed")
        if self._life == "lost":
            raise SessionLost(f"{self._label}: session {self._session_id} has ended; open another one")

    def _lost(self) -> None:
        """The session was ended by somebody else. The backend delivers what this makes ready."""
        if self._life == "open":
            self._life = "lost"
            self._backend.watches.drop(self._session_id)
            self._announce("lost")

    def _announce(self, state: SessionState) -> None:
        for changed in self._listeners:
            self._backend.watches.tell(self._session_id, changed, state)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{self._label}, session {self._session_id}, {self._life}>"
