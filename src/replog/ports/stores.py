"""The metadata store port: a small, strongly consistent tree with sessions."""

from __future__ import annotations

import builtins
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Literal

from attrs import frozen

from replog.errors import ReplogError

__all__ = [
    "Check",
    "Conflict",
    "Create",
    "Delete",
    "MetadataStore",
    "Op",
    "Put",
    "SessionLost",
    "SessionState",
    "UnknownOutcome",
    "Versioned",
]


@frozen
class Versioned:
    """A stored value. `version` starts at 0 and grows by one with each Put; `created` grows with every creation in the store."""

    value: bytes
    version: int
    created: int


@frozen
class Create:
    """Make `path` (its parents are made as needed); Conflict if it exists. An ephemeral node ends with its session."""

    path: str
    value: bytes
    ephemeral: bool = False


@frozen
class Put:
    """Replace the value; Conflict if the path is missing or its version is not `version` (None: any)."""

    path: str
    value: bytes
    version: int | None = None


@frozen
class Delete:
    """Remove the path; Conflict if it is missing, has another version, or has children.

    With `created` also if it is another node by now, written anew since somebody looked: it may have the same version. A store that
    cannot tell nodes apart within a transaction does so just before.
    """

    path: str
    version: int | None = None
    created: int | None = None


@frozen
class Check:
    """Conflict unless the path exists at `version` (None: exists at all; -1: does not exist), `created` as for `Delete`."""

    path: str
    version: int | None
    created: int | None = None


Op = Create | Put | Delete | Check


class Conflict(ReplogError):
    """A transaction was refused because of `path`, and nothing of it was applied."""

    def __init__(self, path: str, why: str = "") -> None:
        super().__init__(f"conflict on {path}{': ' + why if why else ''}")
        self.path = path


class UnknownOutcome(ReplogError):
    """The connection was lost: a commit may or may not have been applied. Re-read before any further commit."""


class SessionLost(ReplogError):
    """The store session has ended; its ephemeral nodes are gone. Open a new store object."""


SessionState = Literal["connected", "suspended", "lost"]


# Named here, because inside a class with a method `list` the type cannot be spelled.
_Names = list[str]
_Values = list[Versioned | None]
_Numbers = list[int]
_Results = list[list[int] | ReplogError]


class MetadataStore(ABC):
    """A small strongly consistent tree with sessions. One object is one session; calls may block."""

    commit_ops_max: int = 1_001
    """Most operations in one transaction: a thousand changes, and the check that guards them."""

    @abstractmethod
    def read(self, path: str) -> Versioned | None:
        """The value at `path`, with its numbers; None if there is no such node."""
        ...

    @abstractmethod
    def list(self, path: str) -> builtins.list[str]:
        """Names (not paths) of the children, sorted; empty if the path does not exist."""

    @abstractmethod
    def read_each(self, paths: Sequence[str]) -> builtins.list[Versioned | None]:
        """What `read` says of each path, in order. Each is a read of its own: others may write in between."""
        ...

    @abstractmethod
    def commit(self, ops: Sequence[Op]) -> builtins.list[int]:
        """Apply all or raise Conflict (nothing applied) or UnknownOutcome. Per op: Create -> creation, Put -> new version, else 0.

        UsageError, with nothing applied, if it is malformed, or larger than the store takes.
        """

    @abstractmethod
    def commit_each(self, batches: Sequence[Sequence[Op]]) -> builtins.list[builtins.list[int] | ReplogError]:
        """Independent transactions, a result each, in order; a backend may pipeline them.

        UsageError, with nothing applied, if one is malformed. What is only larger than the store takes is refused alone: a UsageError is
        its result, and the others go on.
        """

    @abstractmethod
    def watch(self, path: str, changed: Callable[[str], None]) -> None:
        """Call `changed(path)` once, some time after the node or its set of children changes. A hint: may be late or merged.

        Arm first, then read. Several callbacks on one path are all told; the same one armed twice may be told once. Watches end with the
        session.
        """

    @abstractmethod
    def on_session(self, changed: Callable[[SessionState], None]) -> None:
        """Tell `changed`, and whoever else was given here, what becomes of the session: "suspended" where that is unknown for a time, and
        "connected" when it is known again; "lost" once, when it was ended against its owner's will. Nothing after that, nor after `close`.

        From any thread.
        """
        ...

    def keep_alive(self) -> None:  # noqa: B027  most stores need nothing
        """The owner of the session is alive: it says so in every turn of its loop, at least every third of the session time.

        From the first call on the session lives by these calls: when they stop it ends by its time, so that an owner that hangs
        does not look alive because other threads of its process are. Whoever never calls keeps the session as its store says.
        Never blocks and never raises, from any thread, and does nothing once the session has ended or was closed, in a forked child, nor
        where sessions do not end by time, the default.
        """

    @property
    @abstractmethod
    def session_id(self) -> str:
        """Names this session. No other session on the same store ever has the same, also after this one has ended."""

    @abstractmethod
    def close(self) -> None:
        """End the session: its ephemeral nodes are removed at once. Idempotent."""
