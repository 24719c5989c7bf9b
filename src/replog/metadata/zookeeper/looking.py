"""Looking at a metadata store in ZooKeeper: nothing is made, not even the chroot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from replog.errors import UsageError
from replog.metadata.looking import Found, Look
from replog.metadata.zookeeper.store import REQUEST_BYTES_MAX, _credentials, _parse, _require_kazoo
from replog.security.settings import Tls

__all__ = ["look_at_zookeeper"]

T = TypeVar("T")
_SESSION_MS: Final = 10_000
_SESSION_MS_MIN: Final = 100
"""A server makes it longer where that is too short for it."""
_TIMEOUT_S_MAX: Final = 1e6


def look_at_zookeeper(
    hosts_and_chroot: str,
    timeout_s: float,
    collect: Callable[[Look], T],
    *,
    auth: tuple[str, str, str] | None = None,
    tls: Tls | None = None,
) -> T:
    """What `collect` finds there. Raises UsageError for a malformed address, TimedOut if no server opens a session."""
    _require_kazoo()
    from replog.metadata.zookeeper.connection import Connection
    from replog.metadata.zookeeper.nodes import Nodes

    hosts, chroot = _parse(hosts_and_chroot)
    limit_s = min(timeout_s, _TIMEOUT_S_MAX)
    session_ms = max(min(_SESSION_MS, int(limit_s * 1_000)), _SESSION_MS_MIN)  # kazoo waits for a server, and to be rid of it, for so long
    connection = Connection(hosts, session_ms=session_ms, timeout_s=limit_s, credentials=_credentials(auth), tls=tls)
    try:
        return collect(_Look(Nodes(connection, chroot, request_bytes_max=REQUEST_BYTES_MAX)))
    finally:
        connection.close()


class _Look:
    def __init__(self, nodes: object) -> None:
        from replog.metadata.zookeeper.nodes import Nodes

        assert isinstance(nodes, Nodes), nodes
        self._nodes = nodes

    def children(self, path: str) -> list[str]:
        return list(self._nodes.list(path))

    def children_each(self, paths: Sequence[str]) -> list[list[str]]:
        try:
            return [list(names) for names in self._nodes.list_each(paths)]
        except UsageError:  # the access list of one of them
            if len(paths) == 1:
                return [[]]
            half = len(paths) // 2
            return [names for some in (paths[:half], paths[half:]) for names in self.children_each(some)]

    def read(self, paths: Sequence[str]) -> list[Found | None]:
        try:
            return self._read(paths)
        except UsageError as refused:  # the access list of one of them
            if len(paths) == 1:
                return [Found(problem=str(refused))]
            return [found for path in paths for found in self.read([path])]

    def _read(self, paths: Sequence[str]) -> list[Found | None]:
        from replog.metadata.zookeeper.nodes import _found, _get

        answers = self._nodes._read([partial(_get, self._nodes._at(path)) for path in paths])
        found: list[Found | None] = []
        for answer in map(_found, answers):
            if isinstance(answer, Exception):
                found.append(None)
            else:
                value, stat = answer
                found.append(Found(value or b"", stat.version, stat.czxid, stat.ephemeralOwner != 0))
        return found
