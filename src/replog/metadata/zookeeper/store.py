"""`ZooKeeperStore`: one session with ZooKeeper as a metadata store."""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from replog.errors import UsageError
from replog.metadata.lease import check_session_ms
from replog.metadata.paths import check_path
from replog.metadata.session import TreeSession
from replog.ports import SessionState
from replog.security.shown import shown

if TYPE_CHECKING:
    from replog.metadata.zookeeper.connection import Connection
    from replog.security.settings import Tls

__all__ = ["ZooKeeperStore"]

_SCHEME: Final = re.compile(r"\Azookeeper://", re.IGNORECASE)
REQUEST_BYTES_MAX: Final = 1_048_575
"""What a server takes unless its jute.maxbuffer says otherwise."""
_READ: Final = 1
"""The permission that changes nothing."""


class ZooKeeperStore(TreeSession):
    """A session with ZooKeeper. `hosts_and_chroot` is `HOST:PORT,HOST:PORT/CHROOT`, with or without `zookeeper://` before it.

    It holds no credentials and no options: one with an `@` or a `?` is refused, and not repeated.

    Everything is kept below the chroot, which is made if it is missing; without one, at the root. The values are read
    with any ZooKeeper client; a node that was only implied as a parent has a null value. Needs the extra `zookeeper`
    (kazoo), and no more of ZooKeeper than version 3.5.

    `session_ms` is asked for; the server has bounds of its own (2 to 20 of its ticks). `auth=("digest", USER, PASSWORD)`
    makes every node accessible to that user alone, the chroot included if it is made here; nodes that exist keep their
    access lists. With `secure=True` it needs such credentials, and refuses a root that anybody may change. `tls`: the files for
    encrypted connections; the servers' certificates must name the hosts that are given here. `request_bytes_max` is the
    servers' jute.maxbuffer: a larger transaction is a UsageError, of `commit_each` as its own result.

    Calls may come from any thread. Reads see everything that was committed before them, by anybody. While no server can
    be reached the session is suspended (listeners hear so, and "connected" once it is over, when every watch fires);
    calls wait, and raise UnknownOutcome after `timeout_s`. A commit whose connection broke is an UnknownOutcome at once.
    A lost session is final. In a forked child every call raises UsageError, and the parent's session goes on.

    An implied parent that loses its last child because a session ended stays until another child is deleted. Implied parents are
    read before they are removed, and are then told from others by their version alone, which is all that ZooKeeper compares: whoever
    removes one within that moment and writes a node with a value there may lose it with its last child. No path of replog's is used so.

    The constructor opens the session. Raises UsageError for malformed arguments, TimedOut if no server opens one.
    """

    def __init__(
        self,
        hosts_and_chroot: str,
        *,
        session_ms: int = 9_000,
        timeout_s: float = 15.0,
        auth: tuple[str, str, str] | None = None,
        tls: Tls | None = None,
        secure: bool = False,
        request_bytes_max: int = REQUEST_BYTES_MAX,
    ) -> None:
        _require_kazoo()
        from replog.metadata.zookeeper.connection import Connection
        from replog.metadata.zookeeper.nodes import Nodes

        hosts, chroot = _parse(hosts_and_chroot)
        check_session_ms(session_ms)
        if not timeout_s > 0:
            raise UsageError(f"timeout_s is {timeout_s}; it must be above 0")
        if secure and auth is None:
            raise UsageError("secure=True needs auth: without credentials anybody could change what is stored")
        self.session_ms = session_ms
        self._options: dict[str, Any] = {
            "session_ms": session_ms,
            "timeout_s": timeout_s,
            "auth": auth,
            "tls": tls,
            "secure": secure,
            "request_bytes_max": request_bytes_max,
        }
        self._connection = Connection(hosts, session_ms=session_ms, timeout_s=timeout_s, credentials=_credentials(auth), tls=tls)
        try:
            if chroot:
                _make(self._connection, chroot)
            if secure:
                _check_closed(self._connection, chroot or "/")
            nodes = Nodes(self._connection, chroot, request_bytes_max=request_bytes_max)
            super().__init__(nodes, self._connection.session_id, f"ZooKeeperStore {hosts}{chroot}")
        except BaseException:
            self._connection.close()
            raise
        self._hosts_and_chroot = hosts + chroot
        self._connection.tell(self._session_changed)

    def session(self) -> ZooKeeperStore:
        """Another session, with the same servers, chroot and credentials. UsageError if this one is closed; it may have been lost."""
        self._fork.check(self._label)
        if self._life in ("closing", "closed"):
            raise UsageError(f"{self._label} is closed")
        return ZooKeeperStore(self._hosts_and_chroot, **self._options)

    def keep_alive(self) -> None:
        """As the port says: once called, half a session time without another call drops the connection; the next call takes it up again."""
        if not self._fork.forked:
            self._connection.keep_alive()

    def _session_changed(self, state: SessionState) -> None:
        if state == "lost":
            self._lost()
        elif self._life == "open":
            self._announce(state)

    def _leave(self, *, lost: bool) -> None:
        self._connection.close()


def _require_kazoo() -> None:
    """The class itself is there without kazoo, so that the public names can all be looked at."""
    try:
        import_module("kazoo.client")
    except ModuleNotFoundError as error:
        raise UsageError("ZooKeeperStore needs kazoo: install replog[zookeeper]") from error


def _parse(hosts_and_chroot: object) -> tuple[str, str]:
    """Hosts, and the chroot with its slash or empty."""
    if not isinstance(hosts_and_chroot, str):
        raise UsageError(f"ZooKeeper's address is a str, HOST:PORT,HOST:PORT/CHROOT, not of type {type(hosts_and_chroot).__name__}")
    if "@" in hosts_and_chroot:  # in the chroot, too: a password may have a slash, and what is before it looks like a host
        raise UsageError('ZooKeeper\'s address has no place for credentials; give auth=("digest", USER, PASSWORD)')
    said = shown(hosts_and_chroot)
    if "?" in hosts_and_chroot:
        raise UsageError(f"ZooKeeper's address {said!r} has no place for options; give them as arguments, such as session_ms=9000")
    rest = _SCHEME.sub("", hosts_and_chroot)
    if "://" in rest:
        raise UsageError(f"ZooKeeper's address {said!r} is not HOST:PORT,HOST:PORT/CHROOT, with or without zookeeper:// before it")
    hosts, slash, chroot = rest.partition("/")
    from kazoo.hosts import collect_hosts

    try:
        collect_hosts(hosts)
    except ValueError:
        # kazoo's error is no cause of this one: it shows what stands for a port.
        raise UsageError(f"ZooKeeper's hosts, where {said!r} begins, are not HOST:PORT,HOST:PORT with ports from 0 to 65535") from None
    return hosts, check_path(slash + chroot) if chroot else ""


def _credentials(auth: object) -> tuple[str, str] | None:
    """What kazoo takes. No message here shows a part of it."""
    if auth is None:
        return None
    if not (isinstance(auth, tuple) and len(auth) == 3 and all(isinstance(part, str) for part in auth)):
        raise UsageError('auth is three texts: ("digest", USER, PASSWORD)')
    scheme, user, password = auth
    if scheme != "digest":
        raise UsageError('auth: the scheme must be "digest"')
    if not user or ":" in user or not password:
        raise UsageError("auth: the user has no colon, and neither user nor password is empty")
    return scheme, f"{user}:{password}"


def _make(connection: Connection, chroot: str) -> None:
    from replog.metadata.zookeeper.connection import meaning

    (made,) = connection.read([lambda client: client.ensure_path_async(chroot, acl=connection.acl)])
    if isinstance(made, Exception):
        raise meaning(made, f"making the chroot {chroot}")


def _check_closed(connection: Connection, root: str) -> None:
    """UsageError if anybody may change the root: what is below it could then be replaced."""
    from replog.metadata.zookeeper.connection import meaning

    (found,) = connection.read([lambda client: client.get_acls_async(root)])
    if isinstance(found, Exception):
        raise meaning(found, f"the access list of {root}")
    for one in found[0]:
        if one.id.scheme == "world" and one.perms & ~_READ:
            instead = "give it an access list, or take a chroot that is not there yet"
            raise UsageError(f"secure=True: anybody may change {root} in ZooKeeper; {instead}")
