"""One process per data directory and one per broker id: who comes second is refused at once, and has written nothing (RELIABILITY R16)."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from tests.integration.processes.cli import broker_words, command, ready, started

import replog
from replog.testing.eventually import eventually

pytestmark = pytest.mark.processes

LONG_MS = 3_600_000
"""A session that outlasts the test: nobody can have waited for its end."""


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def registered(store: Path) -> bytes:
    """All that the store says of brokers."""
    with sqlite3.connect(f"file:{store}?mode=ro", uri=True) as database:
        tables = [name for (name,) in database.execute("select name from sqlite_master where type = 'table'")]
        rows = [row for table in tables for row in database.execute(f"select * from {table}")]
    return repr(sorted(repr(row) for row in rows if "/brokers/" in repr(row))).encode()


def words(folder: Path, *, data: str) -> list[object]:
    found = [*broker_words(folder), "--session-ms", LONG_MS, "--config", "checkpoint_interval_ms=3600000"]
    found[found.index("--data") + 1] = folder / data
    return found


@pytest.mark.parametrize(("data", "status", "says"), [("b1", 2, b"in use"), ("another", 3, b"is registered by a live broker")])
def test_who_comes_second_is_refused_and_writes_nothing(tmp_path: Path, data: str, status: int, says: bytes) -> None:
    with started(*words(tmp_path, data="b1")) as broker:
        endpoint, _ = ready(broker)
        with replog.connect(endpoint) as client:
            client.create_topic("t")
            client.append("t", 0, ["x"])
            eventually(lambda: client.offset("t", 0, "latest") == 1)
        before, seats = contents(tmp_path / "b1"), registered(tmp_path / "store.db")
        second = command(*words(tmp_path, data=data))
        assert (second.returncode, second.stdout) == (status, b"")
        assert says in second.stderr
        assert contents(tmp_path / "b1") == before
        assert registered(tmp_path / "store.db") == seats
        assert not list((tmp_path / data).glob("logs/*")) or data == "b1"
        with replog.connect(endpoint) as client:
            client.append("t", 0, ["y"])
            assert [record.text() for record in client.read("t")] == ["x", "y"]
