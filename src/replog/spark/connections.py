"""Clients of Spark's processes: one for each process and cluster, made on first use, kept while the process lives.

Spark starts Python workers by forking, and runs many tasks in each; a task that opened connections of its own would pay for them
again and again (ECOSYSTEM S9: workers are reused).
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from attrs import frozen

from replog.client.client import Client
from replog.config import ClientConfig
from replog.errors import Unavailable
from replog.runtime.connected import connect, parse_bootstrap

__all__ = ["Connection", "close_clients"]

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
            found = _clients.setdefault(key, connect(self.bootstrap, config=dict(self.settings), security=self.security))
        return found

    @contextmanager
    def explained(self) -> Iterator[Client]:
        """The client; if nobody was ever reached, the error says so in a sentence that names the addresses."""
        client = self.client()
        try:
            yield client
        except Unavailable as error:
            if client._core.view.brokers:
                raise
            where = ", ".join(self.bootstrap)
            raise type(error)(f"no broker was reached at {where} (replog.bootstrap.servers): {error}") from None


def close_clients() -> None:
    """Close the clients of this process. The next use makes new ones."""
    for key in [key for key in _clients if key[0] == os.getpid()]:
        _clients.pop(key).close()


atexit.register(close_clients)
