"""What a transaction becomes at ZooKeeper: its operations, the parents that it implies, and what its results mean.

ZooKeeper decides whether operations apply; nothing here does. But it knows no implied parents: those are added as
operations of the same transaction, from what was read about the parents before. An implied parent is a node whose value
is null, which ZooKeeper keeps apart from an empty value. If the parents were no longer as read, the transaction fails
on an operation that was added, nothing is applied, and it is planned again: `Stale`.

A created node's number is the id of its transaction (zxid). ZooKeeper's answer to a creation does not say it, that to
a change of a value does: a transaction that only creates makes its first node, changes it, removes it and makes it
again, all at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

from attrs import define, frozen
from kazoo.exceptions import (
    BadVersionError,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
    ZookeeperError,
)

from replog.errors import ReplogError, UsageError
from replog.metadata.paths import ROOT, parent_of
from replog.metadata.zookeeper.words import spoken
from replog.ports import Check, Conflict, Create, Delete, Op, Put, UnknownOutcome

__all__ = ["Known", "Parent", "Planner", "Stale", "Step", "ancestors", "named_nodes", "outcome_of", "parents_of", "replaced"]

ANY: Final = -1  # ZooKeeper's "any version"


@define
class Parent:
    """What is known about a node that has, or gets, children."""

    version: int
    children: int
    implied: bool
    ephemeral: bool = False
    created: int = -1


Known = dict[str, Parent | None]
"""Path -> what is there; None: nothing. `/` is not in it."""


@frozen
class Step:
    """One operation as ZooKeeper gets it."""

    verb: Literal["create", "put", "delete", "check"]
    path: str
    value: bytes | None = None
    version: int = ANY
    ephemeral: bool = False
    op: int | None = None
    """Which of the operations asked for this belongs to; None if the plan added it."""


class Stale(Exception):
    """The parents were no longer as they were read. Nothing was applied; read them and plan again."""


def ancestors(path: str) -> Iterator[str]:
    """The paths above `path`, nearest first, without `/`."""
    while (path := parent_of(path)) != ROOT:
        yield path


def parents_of(batches: Sequence[Sequence[Op]]) -> list[str]:
    """The paths that must be known before these transactions are planned."""
    paths: dict[str, None] = {}
    for ops in batches:
        for op in ops:
            if isinstance(op, Create | Delete) or (isinstance(op, Check) and op.version == -1):
                paths.update(dict.fromkeys(ancestors(op.path)))
    return list(paths)


def named_nodes(batches: Sequence[Sequence[Op]]) -> list[str]:
    """The paths of which these transactions say which node they mean, by its creation number."""
    return [op.path for ops in batches for op in ops if isinstance(op, Delete | Check) and op.created is not None]


def replaced(ops: Sequence[Op], known: Known) -> Conflict | None:
    """Whether one of the nodes that are meant is another one by now. ZooKeeper's transactions cannot tell: they know versions alone."""
    for op in ops:
        node = known.get(op.path) if isinstance(op, Delete | Check) and op.created is not None else None
        if node is not None and isinstance(op, Delete | Check) and node.created != op.created:
            return Conflict(op.path, "it was removed and written anew")
    return None


class Planner:
    """Plans transactions one after the other; each is planned as if those before it were applied."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._supposed: set[str] = set()
        """Ephemeral nodes that are there if an earlier transaction of these was applied; else there may be another node."""
        self.losing: dict[str, None] = {}
        """Paths that lose children and stay, as far as is known: if they turn out to be empty and implied, they go too."""

    def plan(self, ops: Sequence[Op]) -> list[Step]:
        """The steps of one transaction. Raises Stale if they depend on whether another one is applied."""
        try:
            return self._steps(ops)
        finally:
            self._supposed.update(op.path for op in ops if isinstance(op, Create) and op.ephemeral)

    def _steps(self, ops: Sequence[Op]) -> list[Step]:
        steps: list[Step] = []
        emptied: dict[str, None] = {}
        needs_number = any(isinstance(op, Create) for op in ops) and not any(isinstance(op, Put) for op in ops)
        for at, op in enumerate(ops):
            if isinstance(op, Create):
                steps += self._create(at, op, numbered=needs_number)
                needs_number = False
            elif isinstance(op, Put):
                steps.append(Step("put", op.path, op.value, ANY if op.version is None else op.version, op=at))
                if (known := self._known.get(op.path)) is not None:
                    self._known[op.path] = Parent(known.version + 1, known.children, implied=False, ephemeral=known.ephemeral)
            elif isinstance(op, Delete):
                steps.append(Step("delete", op.path, version=ANY if op.version is None else op.version, op=at))
                self._gone(op.path)
                emptied[parent_of(op.path)] = None
            else:
                steps += self._check(at, op)
        for path in emptied:
            steps += self._prune(path)
        return steps

    def _create(self, at: int, op: Create, *, numbered: bool) -> Iterator[Step]:
        for path in reversed(list(ancestors(op.path))):
            if self._known.get(path) is None:
                yield Step("create", path)
                self._made(path, Parent(0, 0, implied=True))
        if numbered:
            yield Step("create", op.path, b"", ephemeral=op.ephemeral, op=at)
            yield Step("put", op.path, b"", op=at)
            yield Step("delete", op.path, op=at)
        yield Step("create", op.path, op.value, ephemeral=op.ephemeral, op=at)
        self._made(op.path, Parent(0, 0, implied=False, ephemeral=op.ephemeral))

    def _check(self, at: int, op: Check) -> Iterator[Step]:
        if op.version != -1:
            yield Step("check", op.path, version=ANY if op.version is None else op.version, op=at)
            return
        # That something does not exist is checked by making it, and removing it again.
        above = list(ancestors(op.path))
        missing = [path for path in above if self._known.get(path) is None]
        nearest = next((path for path in above if (known := self._known.get(path)) is not None and known.ephemeral), None)
        if nearest is not None:
            if nearest in self._supposed:
                raise Stale(nearest)
            yield Step("check", nearest)  # below it there is nothing
        elif missing:
            yield Step("create", missing[-1])
            yield Step("delete", missing[-1])
        else:
            yield Step("create", op.path, op=at)
            yield Step("delete", op.path, op=at)

    def _prune(self, path: str) -> Iterator[Step]:
        while path != ROOT:
            parent = self._known.get(path)
            if parent is None or not parent.implied or parent.children > 0:  # None: gone, if what was to remove it is applied
                self.losing[path] = None
                return
            yield Step("delete", path, version=parent.version)
            self._gone(path)
            path = parent_of(path)

    def _made(self, path: str, node: Parent) -> None:
        self._known[path] = node
        if (above := self._known.get(parent_of(path))) is not None:
            above.children += 1

    def _gone(self, path: str) -> None:
        self._known[path] = None
        if (above := self._known.get(parent_of(path))) is not None:
            above.children -= 1


def outcome_of(ops: Sequence[Op], steps: Sequence[Step], answers: Sequence[Any]) -> list[int] | ReplogError:
    """What ZooKeeper's answers to the steps mean for the operations. Raises Stale."""
    if len(answers) != len(steps):
        return UnknownOutcome(f"ZooKeeper gave {len(answers)} answers to {len(steps)} operations")
    for step, answer in zip(steps, answers, strict=True):
        if isinstance(answer, Exception) and not isinstance(answer, RolledBackError | RuntimeInconsistency):
            return _refusal(step, answer)
    refusals = [answer for answer in answers if isinstance(answer, Exception)]
    if refusals:
        return UnknownOutcome(f"ZooKeeper refused a transaction and did not say why: {spoken(refusals[0])}")
    zxid = max((answer.mzxid for step, answer in zip(steps, answers, strict=True) if step.verb == "put"), default=0)
    results = [0] * len(ops)
    for step, answer in zip(steps, answers, strict=True):
        if step.op is not None and isinstance(ops[step.op], Create):
            results[step.op] = zxid
        elif step.op is not None and step.verb == "put":
            results[step.op] = answer.version
    return results


def _refusal(step: Step, error: Exception) -> ReplogError:
    if isinstance(error, NoAuthError):
        return UsageError(f"{step.path}: the access list in ZooKeeper does not allow it with these credentials; nothing was applied")
    if isinstance(error, NoChildrenForEphemeralsError):
        if step.op is not None and step.value is None:  # of a check, which holds below such a node
            raise Stale(step.path) from error
        return Conflict(parent_of(step.path), "an ephemeral node has no children")
    if step.op is None or (step.verb == "create" and isinstance(error, NoNodeError)):
        raise Stale(step.path) from error
    if isinstance(error, NodeExistsError):
        return Conflict(step.path, "it exists")
    if isinstance(error, NoNodeError):
        return Conflict(step.path, "it does not exist")
    if isinstance(error, BadVersionError):
        return Conflict(step.path, f"it is not at version {step.version}")
    if isinstance(error, NotEmptyError):
        return Conflict(step.path, "it has children")
    if isinstance(error, ZookeeperError):
        return UsageError(f"{step.path}: ZooKeeper refused it ({spoken(error)}); nothing was applied")
    return UnknownOutcome(f"{step.path}: {spoken(error)}")
