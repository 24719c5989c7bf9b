"""What a transaction means: the one place that decides whether operations apply, for every backend that holds a tree.

A `Transaction` reads through to the tree and keeps its writes to itself. If an operation conflicts, it is thrown away
and nothing happened; if all apply, the backend stores `writes`. Operations see what earlier ones of the same
transaction did, as in a ZooKeeper multi.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from replog.errors import StoreCorrupt
from replog.metadata.paths import ROOT, name_of, parent_of
from replog.ports import Check, Conflict, Create, Delete, Op, Put, Versioned

__all__ = ["Node", "Nodes", "Transaction"]


class Node(NamedTuple):
    """One node of the tree; a new one replaces it with each change."""

    value: bytes
    version: int
    created: int
    owner: str | None = None
    """Session that an ephemeral node ends with."""
    implied: bool = False
    """Made as a parent, and never written: it goes with its last child."""

    def versioned(self) -> Versioned:
        """As readers see it."""
        return Versioned(self.value, self.version, self.created)


_DAMAGED: Final = Node(b"", -1, -1)
"""What was there, and could not be read."""


class Nodes(Protocol):
    """The tree as a transaction sees it."""

    def get(self, path: str) -> Node | None:
        """The node at `path`. May raise StoreCorrupt, which is about this node alone."""

    def some_children(self, path: str, count: int) -> Iterable[str]:
        """Names of any `count` children (all, if there are fewer)."""

    def next_created(self) -> int:
        """The next creation number; a number that is not used is lost."""


class Transaction:
    """Operations of one session, all or none."""

    def __init__(self, nodes: Nodes, session: str) -> None:
        self._nodes = nodes
        self._session = session
        self._before: dict[str, Node | None] = {}
        self._children: dict[str, dict[str, bool]] = {}
        self._emptied: dict[str, None] = {}
        self.writes: dict[str, Node | None] = {}
        """Path -> its new node, None if it is removed."""

    def apply(self, ops: Sequence[Op]) -> list[int]:
        """Per operation: Create -> creation number, Put -> new version, else 0. Raises Conflict: then discard the transaction."""
        results = [self._apply(op) for op in ops]
        self._prune()
        return results

    def remove_ephemeral(self, paths: Iterable[str]) -> None:
        """Remove the nodes of a session that has ended, also those that cannot be read any more: they would keep it from ending."""
        for path in paths:
            self._write(path, None)
        self._prune()

    def changed(self) -> list[str]:
        """Paths whose watches fire: nodes that differ, and parents of those that came, went or were replaced."""
        paths: dict[str, None] = {}
        for path, after in self.writes.items():
            before = self._before[path]
            if before == after:
                continue
            paths[path] = None
            if before is None or after is None or before.created != after.created:
                paths[parent_of(path)] = None
        return list(paths)

    def _get(self, path: str) -> Node | None:
        if path in self.writes:
            return self.writes[path]
        return self._nodes.get(path)

    def _get_or_damaged(self, path: str) -> Node | None:
        try:
            return self._get(path)
        except StoreCorrupt:
            return _DAMAGED

    def _write(self, path: str, node: Node | None) -> None:
        """Only who removes a node whatever it is comes here with a damaged one."""
        if path not in self._before:
            self._before[path] = self._get_or_damaged(path)
        self.writes[path] = node
        parent = parent_of(path)
        self._children.setdefault(parent, {})[name_of(path)] = node is not None
        if node is None:
            self._emptied[parent] = None

    def _has_children(self, path: str) -> bool:
        known = self._children.get(path, {})
        if any(known.values()):
            return True
        return any(name not in known for name in self._nodes.some_children(path, len(known) + 1))

    def _apply(self, op: Op) -> int:
        if isinstance(op, Create):
            return self._create(op)
        whatever = isinstance(op, Delete) and op.version is None and op.created is None  # else nobody could ever remove a damaged one
        node = self._get_or_damaged(op.path) if whatever else self._get(op.path)
        if isinstance(op, Check):
            if op.version == -1:
                if node is not None:
                    raise Conflict(op.path, "it exists")
                return 0
            self._at_version(op.path, node, op.version, op.created)
            return 0
        found = self._at_version(op.path, node, op.version, None if isinstance(op, Put) else op.created)
        if isinstance(op, Put):
            self._write(op.path, found._replace(value=op.value, version=found.version + 1, implied=False))
            return found.version + 1
        assert isinstance(op, Delete)
        if self._has_children(op.path):
            raise Conflict(op.path, "it has children")
        self._write(op.path, None)
        return 0

    @staticmethod
    def _at_version(path: str, node: Node | None, version: int | None, created: int | None) -> Node:
        if node is None:
            raise Conflict(path, "it does not exist")
        if version is not None and node.version != version:
            raise Conflict(path, f"it is at version {node.version}, not {version}")
        if created is not None and node.created != created:
            raise Conflict(path, "it was removed and written anew")
        return node

    def _create(self, op: Create) -> int:
        if self._get(op.path) is not None:
            raise Conflict(op.path, "it exists")
        missing: list[str] = []
        parent = parent_of(op.path)
        while parent != ROOT and (node := self._get_or_damaged(parent)) is None:
            missing.append(parent)
            parent = parent_of(parent)
        if parent != ROOT and node is not None and node.owner is not None:
            raise Conflict(parent, "an ephemeral node has no children")
        for path in reversed(missing):
            self._write(path, Node(b"", 0, self._nodes.next_created(), implied=True))
        created = self._nodes.next_created()
        self._write(op.path, Node(op.value, 0, created, self._session if op.ephemeral else None))
        return created

    def _prune(self) -> None:
        """Implied parents go with their last child; once, at the end, so that a replaced child keeps its parent."""
        for path in list(self._emptied):
            while path != ROOT and self._is_implied(path) and not self._has_children(path):
                self._write(path, None)
                path = parent_of(path)

    def _is_implied(self, path: str) -> bool:
        node = self._get_or_damaged(path)  # a damaged one stays, and keeps nobody from removing what is below it
        return node is not None and node.implied
