"""The tree at ZooKeeper, as `TreeSession` needs it: reads, watches, and transactions that are planned, sent and understood."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from kazoo.exceptions import NoNodeError
from kazoo.protocol import serialization
from kazoo.protocol.states import EventType

from replog.errors import ReplogError, UsageError
from replog.metadata.paths import ROOT
from replog.metadata.session import Names, Results, Values
from replog.metadata.zookeeper.connection import Connection, meaning
from replog.metadata.zookeeper.plan import Known, Parent, Planner, Stale, Step, named_nodes, parents_of, replaced
from replog.metadata.zookeeper.transactions import Pipeline, Requests, Result, Steps, Transaction
from replog.ports import Check, Conflict, Delete, Op, Versioned

__all__ = ["Nodes", "request_bytes"]

READS_MAX: Final = 1_000
"""Reads on their way at once."""
PLANS_MAX: Final = 20
"""How often a transaction is planned while others change its parents; then it is refused."""
OWN: Final = "/zookeeper"
"""ZooKeeper's own nodes, at the root of a server."""

Reads = list[Callable[[Any], Any]]
_EPHEMERAL: Final = 1


class Nodes:
    """The tree below `chroot`."""

    def __init__(self, connection: Connection, chroot: str, *, request_bytes_max: int) -> None:
        self.watches = connection.watches
        self._connection = connection
        self._chroot = chroot
        self._request_bytes_max = request_bytes_max

    def _at(self, path: str) -> str:
        if path == ROOT:
            return self._chroot or ROOT
        self._check(path)
        return self._chroot + path

    def _check(self, path: str) -> None:
        """UsageError for a path that ZooKeeper does not take, beyond what no store takes."""
        if not self._chroot and (path == OWN or path.startswith(OWN + "/")):
            raise UsageError(f"store path {path!r} belongs to ZooKeeper itself; give the store a chroot, as in HOSTS/CHROOT")
        if not path.isascii() and any("\ue000" <= character <= "\uf8ff" or character >= "\ufff0" for character in path):
            raise UsageError(f"store path {path!r} has a character that ZooKeeper refuses: those from U+E000 to U+F8FF and from U+FFF0 on")

    # -------------------------------------------------------------------------------------------------------- reads

    def _read(self, calls: Reads, *, denied: bool = False) -> Iterator[Any]:
        """Answers to reads that see everything that was committed, by anybody, before they were asked for."""
        for start in range(0, len(calls), READS_MAX):
            yield from self._connection.read([self._sync, *calls[start : start + READS_MAX]], denied=denied)[1:]

    def _sync(self, client: Any) -> Any:
        return client.sync_async(self._at(ROOT))

    def read_each(self, paths: Sequence[str]) -> Values:
        """The values at these paths; a null value reads as an empty one."""
        calls: Reads = [partial(_get, self._at(path)) for path in paths]
        return [_versioned(answer) for answer in self._read(calls)]

    def list(self, path: str) -> Names:
        """Names of the children, sorted, without ZooKeeper's own."""
        (names,) = self.list_each([path])
        return names

    def list_each(self, paths: Sequence[str]) -> Sequence[Names]:
        """The same of each of these, so many on their way at once as for any read."""
        places = [self._at(path) for path in paths]
        answers = self._read([partial(_get_children, at) for at in places])
        known = ([] if isinstance(_found(answer), NoNodeError) else answer for answer in answers)
        return [sorted(name for name in names if at != ROOT or name != OWN[1:]) for at, names in zip(places, known, strict=True)]

    def arm(self, session: str, path: str, changed: Callable[[str], None]) -> None:
        """A watch is two at ZooKeeper, on the node and on its children; whichever fires first counts."""
        at = self._at(path)
        self.watches.arm(session, path, changed)  # first: what the server says next must find it
        for answer in self._connection.read([
            lambda client: client.exists_async(at, watch=self._node_changed),
            lambda client: client.get_children_async(at, watch=self._children_changed),
        ]):
            _found(answer)

    def _node_changed(self, event: Any) -> None:
        if event.type != EventType.NONE:  # a lost connection: told when it is back
            self._connection.fire(event.path[len(self._chroot) :] or ROOT)

    def _children_changed(self, event: Any) -> None:
        if event.type == EventType.CHILD:  # a removal is told by the watch on the node itself
            self._connection.fire(event.path[len(self._chroot) :] or ROOT)

    def leave(self, session: str) -> None:
        """End the session and stop kazoo."""
        self._connection.close()

    # ------------------------------------------------------------------------------------------------- transactions

    def transact(self, session: str, batches: Sequence[Sequence[Op]]) -> Results:
        """Plan all, send all, then plan and send again those that others came between: these come after the rest.

        UsageError, and nothing sent, if one is malformed. One that is too large, or below a node that an access list keeps from being
        read, is refused alone: its result is a UsageError.
        """
        for ops in batches:
            for op in ops:
                self._check(op.path)
        named = named_nodes(batches)
        denied: dict[str, UsageError] = {}
        planner = Planner(known := self._known([*parents_of(batches), *named], synced=bool(named), denied=denied))
        refused: list[ReplogError | None] = [None] * len(batches)
        if named or denied:
            refused = [_denial(ops, denied) or replaced(ops, known) for ops in batches]
        transactions = [Transaction(ops, [], []) for ops in batches]
        for number, transaction in enumerate(transactions):
            try:
                if not refused[number]:
                    transaction.steps, transaction.requests = self._planned(planner, transaction.ops)
            except UsageError as too_large:  # what was planned after it as if it were applied turns out to be stale
                refused[number] = too_large
            except Stale:
                transaction.stale = True
        sending = Pipeline(self._connection, transactions)
        sending.run()
        for transaction, why in zip(sending.transactions, refused, strict=True):
            transaction.result = why or transaction.result
        for transaction in sending.stale():
            transaction.result = self._again(transaction.ops, planner)
        if planner.losing and sending.broken is None:
            self._prune(planner.losing)
        return [transaction.result for transaction in sending.transactions]

    def _planned(self, planner: Planner, ops: Sequence[Op]) -> tuple[Steps, Requests]:
        steps = planner.plan(ops)
        requests = [_request(step, self._chroot + step.path, self._connection.acl) for step in steps]
        size = request_bytes(requests)
        if size > self._request_bytes_max:
            raise UsageError(
                f"a transaction of {size} bytes, with {ops[0].path} first; ZooKeeper takes {self._request_bytes_max} (its jute.maxbuffer)"
            )
        return steps, requests

    def _again(self, ops: Sequence[Op], seen: Planner) -> Result:
        """Plan a transaction anew from what is there now, until nobody came between."""
        try:
            for _ in range(PLANS_MAX):
                planner = Planner(known := self._known([*parents_of([ops]), *named_nodes([ops])], synced=True))
                if (why := replaced(ops, known)) is not None:
                    return why
                sending = Pipeline(self._connection, [Transaction(ops, *self._planned(planner, ops))])
                sending.run()
                if not sending.stale():
                    seen.losing.update(planner.losing)
                    return sending.transactions[0].result
        except ReplogError as error:
            return error
        # The guard of a transaction has not failed: it is what was to be written that others come between.
        path = next((op.path for op in reversed(ops) if not isinstance(op, Check)), ops[0].path)
        return Conflict(path, f"the nodes above it changed {PLANS_MAX} times while this was tried")

    def _prune(self, paths: Iterable[str]) -> None:
        """Remove implied parents that others emptied at the same time. What fails here is tried when the next child goes."""
        with suppress(ReplogError):
            for path, parent in self._known(list(paths), synced=False).items():
                if parent is not None and parent.implied and parent.children == 0:
                    ops = [Delete(path, parent.version)]
                    planner = Planner(self._known(parents_of([ops]), synced=False))
                    Pipeline(self._connection, [Transaction(ops, *self._planned(planner, ops))]).run()

    def _known(self, paths: Sequence[str], *, synced: bool, denied: dict[str, UsageError] | None = None) -> Known:
        """What is there. One that may not be read goes to `denied`, with why; without that it is raised."""
        calls: Reads = [partial(_get, self._at(path)) for path in paths]
        answers = self._read(calls, denied=True) if synced else self._connection.read(calls, denied=True)
        known: Known = {}
        for path, answer in zip(paths, answers, strict=True):
            try:
                known[path] = _parent(answer)
            except UsageError as error:
                if denied is None:
                    raise
                denied[path] = UsageError(f"{path}: {error}; nothing was applied")
        return known


def _denial(ops: Sequence[Op], denied: Mapping[str, UsageError]) -> UsageError | None:
    """Why a transaction cannot be planned: what it needs to know may not be read."""
    return next((denied[path] for path in [*parents_of([ops]), *named_nodes([ops])] if path in denied), None) if denied else None


def request_bytes(requests: Sequence[Any]) -> int:
    """How long a transaction of these requests is on the wire, without its length field."""
    size = 8 + 9  # number and kind of the request; the end of its list
    for request in requests:
        size += 9 + 4 + len(request.path.encode())
        if isinstance(request, serialization.Create):
            size += 4 + len(request.data or b"") + 4 + 4
            size += sum(12 + len(acl.id.scheme.encode()) + len(acl.id.id.encode()) for acl in request.acl)
        elif isinstance(request, serialization.SetData):
            size += 4 + len(request.data) + 4
        else:
            size += 4
    return size


def _request(step: Step, path: str, acl: Any) -> Any:
    if step.verb == "create":
        # kazoo's own builder refuses a null value, which is what an implied parent has.
        return serialization.Create(path, step.value, acl, _EPHEMERAL if step.ephemeral else 0)
    if step.verb == "put":
        return serialization.SetData(path, step.value, step.version)
    if step.verb == "delete":
        return serialization.Delete(path, step.version)
    return serialization.CheckVersion(path, step.version)


def _get(path: str, client: Any) -> Any:
    return client.get_async(path)


def _get_children(path: str, client: Any) -> Any:
    return client.get_children_async(path)


def _found(answer: Any) -> Any:
    """The answer to a read; what is not there is an answer, another error is raised."""
    if isinstance(answer, Exception) and not isinstance(answer, NoNodeError):
        raise meaning(answer, "a read")
    return answer


def _versioned(answer: Any) -> Versioned | None:
    if isinstance(_found(answer), NoNodeError):
        return None
    value, stat = answer
    return Versioned(value or b"", stat.version, stat.czxid)


def _parent(answer: Any) -> Parent | None:
    if isinstance(_found(answer), NoNodeError):
        return None
    value, stat = answer
    return Parent(stat.version, stat.numChildren, implied=value is None, ephemeral=stat.ephemeralOwner != 0, created=stat.czxid)
