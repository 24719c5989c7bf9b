"""Histories of a metadata store: each path a register with versions, that sessions compare and set, and watch.

Record leaf paths (a path that gets children conflicts for reasons that are not looked at here), and of a transaction each operation
on its own path: if it was refused, only the one that its Conflict names. A store that mixes up whole transactions can pass.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable
from itertools import count
from typing import Literal, NamedTuple

from replog.errors import UsageError
from replog.ports import Versioned
from replog.testing.history.events import NEVER
from replog.testing.history.linearizability import STEPS_MAX, explain
from replog.testing.history.report import Report
from replog.testing.history.sessions import Fired, judge_ephemeral, judge_watches

__all__ = ["Access", "RegisterHistory", "check_registers"]

_Kind = Literal["create", "put", "delete", "read", "end"]


class Access:
    """One call on one path. End it with one of `ok`, `conflict`, `info` and `fail`, or never."""

    __slots__ = ("_rank", "completed", "ephemeral", "found", "invoked", "kind", "outcome", "path", "result", "session", "value", "version")

    def __init__(
        self,
        rank: Callable[[], int],
        kind: _Kind,
        session: str,
        path: str,
        value: bytes = b"",
        version: int | None = None,
        ephemeral: bool = False,
    ) -> None:
        self._rank = rank
        self.kind = kind
        self.session = session
        self.path = path
        self.value = value
        self.version = version
        self.ephemeral = ephemeral
        self.invoked = rank()
        self.completed = NEVER
        self.outcome: Literal["unknown", "ok", "conflict", "fail"] = "unknown"
        self.result = 0
        self.found: Versioned | None = None

    def ok(self, result: int = 0, found: Versioned | None = None) -> None:
        """It was done. `result` as a commit gives it: creation number of a create, version of a put. `found`: what a read found."""
        self.result = result
        self.found = found
        self._end("ok")

    def conflict(self) -> None:
        """It was refused: what it asks of the path did not hold."""
        self._end("conflict")

    def fail(self) -> None:
        """It certainly did nothing, for a reason that says nothing about the path."""
        self._end("fail")

    def info(self) -> None:
        """Nobody knows whether it was done, now or later."""

    def _end(self, outcome: Literal["ok", "conflict", "fail"]) -> None:
        if self.outcome != "unknown":
            raise UsageError(f"{self} has ended before")
        self.outcome = outcome
        self.completed = self._rank()

    def __str__(self) -> str:
        asked = {
            "create": f"create {self.path} = {self.value!r}",
            "put": f"put {self.path} = {self.value!r} at version {self.version}",
            "delete": f"delete {self.path} at version {self.version}",
            "read": f"read {self.path}",
            "end": f"end of the session, for {self.path}",
        }[self.kind]
        told: object = self.outcome
        if self.outcome == "ok":
            told = {"create": f"creation {self.result}", "put": f"version {self.result}", "read": self.found}.get(self.kind, "done")
        return f"{self.session}: {asked} [{self.invoked}-{'' if self.completed == NEVER else self.completed}] -> {told}"


class RegisterHistory:
    """Calls of all sessions on a metadata store. Events count in the order of the calls of this object."""

    def __init__(self) -> None:
        self.accesses: list[Access] = []
        self.endings: dict[str, Access] = {}
        """Session -> its end; completed once its ephemeral nodes have to be gone."""
        self.fired: list[Fired] = []
        self._armed: dict[tuple[str, str], int] = {}
        self._rank: Callable[[], int] = count(1).__next__

    def _access(self, kind: _Kind, session: str, path: str, value: bytes, version: int | None, ephemeral: bool) -> Access:
        access = Access(self._rank, kind, session, path, value, version, ephemeral)
        self.accesses.append(access)
        return access

    def invoke_create(self, session: str, path: str, value: bytes, *, ephemeral: bool = False) -> Access:
        """A session starts to create a node."""
        return self._access("create", session, path, value, None, ephemeral)

    def invoke_put(self, session: str, path: str, value: bytes, version: int | None) -> Access:
        """A session starts to replace a value (of that version; None: of any)."""
        return self._access("put", session, path, value, version, False)

    def invoke_delete(self, session: str, path: str, version: int | None) -> Access:
        """A session starts to delete a node."""
        return self._access("delete", session, path, b"", version, False)

    def invoke_read(self, session: str, path: str) -> Access:
        """A session starts to read."""
        return self._access("read", session, path, b"", None, False)

    def invoke_end(self, session: str) -> Access:
        """A session may end from now on. `ok` once it is over for certain: closed, or expired by every clock."""
        ending = self.endings.get(session)
        if ending is None:
            ending = self.endings[session] = Access(self._rank, "end", session, "")
        return ending

    def armed(self, session: str, path: str) -> None:
        """A watch is armed: from now on a change fires it."""
        self._armed.setdefault((session, path), self._rank())

    def watch_fired(self, session: str, path: str) -> None:
        """A watch was delivered."""
        armed = self._armed.pop((session, path), None)
        if armed is None:
            raise UsageError(f"{session} has no watch on {path}")
        self.fired.append(Fired(session, path, armed, self._rank()))


class _Node(NamedTuple):
    value: bytes
    version: int
    created: int | None
    """None: nobody was told yet."""
    owner: str | None


class _State(NamedTuple):
    node: _Node | None = None
    created: int = 0
    """The highest creation number so far."""


def _step(state: _State, access: Access) -> _State | None:
    """The register. None: the answer does not fit."""
    node, kind = state.node, access.kind
    if kind == "read":
        return _read(state, access.found)
    if kind == "end":
        owned = node is not None and node.owner == access.session
        return _State(None, state.created) if owned else None if access.outcome == "unknown" else state
    possible = (node is None) if kind == "create" else (node is not None and access.version in (None, node.version))
    if access.outcome == "conflict":
        return None if possible else state
    if not possible:
        return None
    if kind == "delete":
        return _State(None, state.created)
    if kind == "create":
        created = access.result if access.outcome == "ok" else None
        if created is not None and created <= state.created:
            return None
        owner = access.session if access.ephemeral else None
        return _State(_Node(access.value, 0, created, owner), created or state.created)
    assert node is not None
    if access.outcome == "ok" and access.result != node.version + 1:
        return None
    return _State(node._replace(value=access.value, version=node.version + 1), state.created)


def _read(state: _State, found: Versioned | None) -> _State | None:
    node = state.node
    if node is None or found is None:
        return state if node is None and found is None else None
    if (node.value, node.version) != (found.value, found.version):
        return None
    if node.created is None and found.created > state.created:
        return _State(node._replace(created=found.created), found.created)
    return state if node.created == found.created else None


def _resolved(accesses: list[Access]) -> list[Access]:
    """A write of unknown outcome whose value was read has happened: a read says by when, and the version says where.

    Only where no other write of the path has that value; otherwise the search has to find out.
    """
    writers: dict[bytes, int] = {}
    readers: dict[tuple[bytes, bool], Access] = {}
    for access in accesses:
        if access.kind in ("create", "put"):
            writers[access.value] = writers.get(access.value, 0) + 1
        elif access.found is not None:
            readers.setdefault((access.found.value, access.found.version == 0), access)
    calls = []
    for access in accesses:
        reader = readers.get((access.value, access.kind == "create"))
        if access.kind in ("create", "put") and access.outcome == "unknown" and reader is not None and writers[access.value] == 1:
            assert reader.found is not None
            access = copy.copy(access)
            access.outcome = "ok"
            access.result = reader.found.created if access.kind == "create" else reader.found.version
            access.completed = reader.completed
        calls.append(access)
    return calls


def _alike(accesses: list[Access]) -> Callable[[Access], Hashable]:
    """Writes whose values nobody read differ by their effect on versions alone."""
    found = {access.found.value for access in accesses if access.found is not None}

    def alike(access: Access) -> Hashable:
        value = access.value if access.value in found else None
        owner = access.session if access.ephemeral or access.kind == "end" else None
        return access.kind, access.version, value, owner

    return alike


def check_registers(history: RegisterHistory, steps_max: int = STEPS_MAX) -> Report:
    """Find paths whose answers no order of calls explains ("not-linearizable"), and broken rules of sessions
    ("ephemeral-outlives-session", "watch-before-change"). A path whose search is given up is noted as "undecided".
    """
    report = Report(operations=len(history.accesses))
    paths: dict[str, list[Access]] = {}
    for access in history.accesses:
        if access.outcome != "fail" and (access.kind != "read" or access.outcome == "ok"):
            paths.setdefault(access.path, []).append(access)
    for path, accesses in paths.items():
        # A broken rule of sessions is no order of calls either; it is told by its own name.
        if judge_ephemeral(path, accesses, history.endings, report):
            continue
        if judge_watches(path, accesses, [fired for fired in history.fired if fired.path == path], paths, history.endings, report):
            continue
        owners = dict.fromkeys(access.session for access in accesses if access.ephemeral)
        endings = [history.endings[owner] for owner in owners if owner in history.endings]
        calls = [*_resolved(accesses), *endings]
        stuck = explain(calls, _State(), _step, _alike(accesses), steps_max)
        if stuck is not None and stuck.call is None:
            report.note("undecided")
        elif stuck is not None:
            text = f"no order explains {stuck.call}; {stuck.explained} of {len(calls)} calls fit together before"
            report.add("not-linearizable", path, text)
    return report
