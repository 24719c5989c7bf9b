"""Clients of Spark's processes: one for each process and cluster, made on first use, kept while the process lives.

Spark starts Python workers by forking, and runs many tasks in each; a task that opened connections of its own would pay for them
again and again (ECOSYSTEM S9: workers are reused).
"""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from attrs import frozen

from replog.client.client import Client
from replog.client.core import ClientCore
from replog.client.unreached import whom_not_reached
from replog.config import ClientConfig
from replog.errors import Code, Unavailable
from replog.runtime.connected import ConnectedDriver, parse_bootstrap
from replog.security.settings import security_of
from replog.spark.refusing import all_refuse, nobody_serves, refused_with

__all__ = ["ClusterReplaced", "Connection", "close_clients"]

T = TypeVar("T")

_log = logging.getLogger("replog.spark")


class ClusterReplaced(Unavailable):
    """Where a client of this process knows one cluster there is another one now. What was under way has an unknown outcome; the client is
    closed, and the next one belongs to whatever cluster it meets."""


class _WorkerDriver(ConnectedDriver):
    """Waits for nothing that cannot come: a broker of another cluster refuses this process for as long as it lives."""

    def wait(self, done: Callable[[], bool], timeout_s: float | None, *, background: bool = False) -> bool:
        """Raises ClusterReplaced."""
        if background:
            return super().wait(done, timeout_s, background=True)
        refusals = ""

        def over() -> bool:
            nonlocal refusals
            if done():
                return True
            if all_refuse(self.core, Code.INCONSISTENT_CLUSTER_ID):
                refusals = whom_not_reached(self.core.unreached).removeprefix("; ")
            return bool(refusals)

        ended = super().wait(over, timeout_s)
        if refusals:
            raise ClusterReplaced(refusals)
        return ended


_clients: dict[tuple[int, Connection], Client] = {}


@frozen
class Connection:
    """How a cluster is reached, and how its client is set up. Picklable; equal ones share a client within a process."""

    bootstrap: tuple[str, ...]
    """Each "tcp://host:port"."""
    settings: tuple[tuple[str, int], ...] = ()
    """Keys of `ClientConfig` that were given, sorted."""
    security: str | None = None
    """A file of security settings, at the same place on every machine; no secret travels with a plan."""

    @classmethod
    def of(
        cls, bootstrap: str | Iterable[str], settings: Mapping[str, Any] | None = None, security: str | None = None
    ) -> Connection:
        """Checked: a comma-separated text or a list of "host:port", scheme optional. Raises UsageError naming what is wrong."""
        given = dict(settings or {})
        ClientConfig.from_mapping(given)
        return cls(tuple(parse_bootstrap(bootstrap)), tuple(sorted(given.items())), security)

    def client(self) -> Client:
        """The client of this process. Nothing is opened before its first call; it is not the caller's to close."""
        key = (os.getpid(), self)  # a worker that was forked has the dictionary of the process it comes from
        found = _clients.get(key)
        if found is not None and found._driver.closed:
            _clients.pop(key, None)
            found = None
        if found is None:  # of two threads that come here at once, both get the client of the first
            found = _clients.setdefault(key, self._connect())
        return found

    def _connect(self) -> Client:
        """As `replog.connect` does it."""
        protected = security_of(self.security)
        if protected is not None:
            protected.check_client()
        return Client(_WorkerDriver(self.bootstrap, config=ClientConfig.from_mapping(dict(self.settings)), security=protected))

    @contextmanager
    def explained(self) -> Iterator[Client]:
        """The client; if nobody was ever reached, or brokers refuse to know this process, the error says so in a sentence that names the
        addresses. One that is refused, or whose cluster was replaced (ClusterReplaced), is of no use any more: it is closed, and the next
        one reads the file of settings anew and knows no cluster."""
        client = self.client()
        try:
            yield client
        except Unavailable as error:
            if isinstance(error, ClusterReplaced) or _is_lost(client._core):
                raise self._replaced(client, error) from None
            where, core = ", ".join(self.bootstrap), client._core
            if refused_with(core, Code.CLUSTER_AUTHORIZATION_FAILED) and (not core.view.brokers or nobody_serves(core)):
                self._drop(client)
                given = "not given" if self.security is None else self.security
                raise type(error)(f"the brokers at {where} refuse these credentials (replog.security.file is {given}): {error}") from None
            if core.view.brokers:
                raise
            raise type(error)(f"no broker was reached at {where} (replog.bootstrap.servers): {error}") from None

    def ask(self, question: Callable[[Client], T]) -> T:
        """The answer to a question; where another cluster is met, that of the cluster that is there now. For what belongs to no cluster
        yet, as the beginning of a batch does. A running query would go on in another cluster."""
        try:
            with self.explained() as client:
                return question(client)
        except ClusterReplaced:
            with self.explained() as client:
                return question(client)

    def _replaced(self, client: Client, error: Unavailable) -> ClusterReplaced:
        where = ", ".join(self.bootstrap)
        text = f"another cluster is at {where} (replog.bootstrap.servers) now than the one that this process knew"
        self._drop(client)
        _log.warning("%s; what is asked next is asked of the one that is there now", text)
        text += ", which was made anew or has moved: run it again, and it goes to the cluster that is there now"
        return ClusterReplaced(f"{text} (a stream: with a new checkpoint); {error}")

    def _drop(self, client: Client) -> None:
        key = (os.getpid(), self)
        if _clients.get(key) is client:
            del _clients[key]
        client.close()


def close_clients() -> None:
    """Close the clients of this process. The next use makes new ones."""
    for key in [key for key in _clients if key[0] == os.getpid()]:
        _clients.pop(key).close()


def _is_lost(core: ClientCore) -> bool:
    """Whether the cluster that a client knew is not there any more, and another one is, perhaps with fewer brokers."""
    return refused_with(core, Code.INCONSISTENT_CLUSTER_ID) and nobody_serves(core)


atexit.register(close_clients)
