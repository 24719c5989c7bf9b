"""The metadata store as somebody outside of the cluster sees it, and what that somebody can do to the cluster through it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Self

import replog
from replog.errors import ReplogError
from replog.metadata.file import FileStore
from replog.metadata.layout import (
    CONTROLLER,
    TOPICS,
    ControllerSeat,
    broker_path,
    decode_controller,
    decode_partition_state,
    partition_state_path,
)
from replog.model import PartitionState
from replog.ports import Create, Delete
from replog.testing.eventually import eventually

__all__ = ["Onlooker", "stand_still"]


class Onlooker:
    """A session of its own on the store file that brokers share."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = FileStore(path, session_ms=600_000)

    def state(self, topic: str, partition: int = 0) -> PartitionState:
        """Who leads, and who may. AssertionError if there is no such partition."""
        found = self.state_if_any(topic, partition)
        assert found is not None, f"{topic}-{partition} is not there"
        return found

    def state_if_any(self, topic: str, partition: int) -> PartitionState | None:
        """As `state`; None if there is none."""
        path = partition_state_path(topic, partition)
        stored = self.store.read(path)
        return None if stored is None else decode_partition_state(path, stored)

    def seat(self) -> ControllerSeat | None:
        """Who is the controller; None: nobody at the moment."""
        stored = self.store.read(CONTROLLER)
        return None if stored is None else decode_controller(CONTROLLER, stored.value)

    def controller(self) -> ControllerSeat:
        """As `seat`; waits for somebody."""
        return eventually(self.seat) or ControllerSeat(-1, -1)

    def topics(self) -> list[str]:
        """All of them."""
        return self.store.list(TOPICS)

    def broker_epoch(self, broker_id: int) -> int:
        """Of its registration; -1: it has none."""
        stored = self.store.read(broker_path(broker_id))
        return -1 if stored is None else stored.created

    def end_session_of(self, broker_id: int) -> None:
        """As if the store had not heard of that broker for too long. It lives on."""
        with closing(sqlite3.connect(self.path)) as database:
            ((owner,),) = database.execute("SELECT owner FROM nodes WHERE path = ?", (broker_path(broker_id),))
        self.store.end_session(owner)

    def change(self, count: int) -> None:
        """So many paths come and go that are nobody's business."""
        paths = [f"/noise/{number}" for number in range(count)]
        for kind in (lambda path: Create(path, b""), Delete):
            made = self.store.commit_each([[kind(path)] for path in paths])
            assert not any(isinstance(one, ReplogError) for one in made)

    def is_written(self) -> bool:
        """Whether somebody is in the middle of a write at this moment."""
        with closing(sqlite3.connect(self.path, timeout=0, isolation_level=None)) as database, suppress(sqlite3.OperationalError):
            database.execute("BEGIN IMMEDIATE")
            database.execute("ROLLBACK")
            return False
        return True

    def close(self) -> None:
        """End the session."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()


def stand_still(process: replog.BrokerProcess, store: Onlooker, *, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Stop it (SIGSTOP), but not in the middle of a write at the store: that would stop everybody's clocks."""

    def is_outside_a_write() -> bool:
        process.pause()
        with suppress(AssertionError):
            eventually(lambda: not store.is_written(), 0.3)
            return True
        process.resume()
        return False

    eventually(is_outside_a_write)
    meanwhile()
