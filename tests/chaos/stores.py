"""The metadata stores that brokers of a run share, and how each of them fails."""

from __future__ import annotations

import random
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Protocol

from tests.integration.zookeeper_server import Ensemble, ZooKeeperServer

from replog.testing.eventually import eventually

__all__ = ["STORES", "FileUnderTest", "StoreUnderTest", "ZooKeeperUnderTest"]

Wait = Callable[[float], object]


class StoreUnderTest(Protocol):
    """A store, and what can befall it."""

    url: str

    def fail(self, seconds: float, wait: Wait, chance: random.Random) -> None:
        """Let it not be there for so long."""

    def is_written(self) -> bool:
        """Whether somebody who stands still now would keep all others from writing."""


class FileUnderTest:
    """One SQLite file. Its failure: somebody writes, and does not come to an end."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "metadata.db"
        self.url = f"file://{self._path}"

    def _open(self, patience_s: float) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=patience_s, isolation_level=None)

    def fail(self, seconds: float, wait: Wait, chance: random.Random) -> None:
        with closing(self._open(30)) as database:
            database.execute("BEGIN IMMEDIATE")
            wait(seconds)
            database.execute("ROLLBACK")

    def is_written(self) -> bool:
        with closing(self._open(0)) as database, suppress(sqlite3.OperationalError):
            database.execute("BEGIN IMMEDIATE")
            database.execute("ROLLBACK")
            return False
        return True


class ZooKeeperUnderTest:
    """Three ZooKeeper servers. Their leader is killed, or all of them stand still."""

    def __init__(self, ensemble: Ensemble) -> None:
        self._ensemble = ensemble
        self.url = f"zookeeper://{ensemble.addresses}/chaos"

    def fail(self, seconds: float, wait: Wait, chance: random.Random) -> None:
        leader = self._ensemble.leader()
        if leader is not None and chance.random() < 0.5:
            self._kill(leader, seconds, wait)
            return
        for member in self._ensemble.members:
            member.signal(signal.SIGSTOP)
        try:
            wait(seconds)
        finally:
            for member in self._ensemble.members:
                member.signal(signal.SIGCONT)

    def _kill(self, member: ZooKeeperServer, seconds: float, wait: Wait) -> None:
        member.kill()
        try:
            wait(seconds)
        finally:
            member.start(wait=False)

    def is_written(self) -> bool:
        return False


@contextmanager
def _file(folder: Path) -> Iterator[StoreUnderTest]:
    yield FileUnderTest(folder)


@contextmanager
def _zookeeper(folder: Path) -> Iterator[StoreUnderTest]:
    with Ensemble(folder / "zookeeper").running() as ensemble:
        yield ZooKeeperUnderTest(ensemble)
        eventually(lambda: ensemble.leader() is not None, 60)


STORES = {"file": _file, "zookeeper": _zookeeper}
"""How a store of each kind is made, in a folder."""
