"""A small cluster in this process, and a way to run a command against it as if it were typed."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import replog
from replog.cli import main

_ROOT = str(Path(__file__).resolve().parents[3])
if _ROOT not in sys.path:  # so that the tests of this folder can import this file, however pytest was started
    sys.path.insert(0, _ROOT)


class Ran(NamedTuple):
    """What a command left."""

    status: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[str]:
        return self.stdout.splitlines()

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)

    @property
    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.lines]


Run = Callable[..., Ran]


def run_with(client: replog.Client | None, *words: str, stdin: bytes = b"") -> Ran:
    """Run one command in this process."""
    stdout, stderr = io.BytesIO(), io.StringIO()
    status = main(list(words), client=client, stdin=io.BytesIO(stdin), stdout=stdout, stderr=stderr)
    return Ran(status, stdout.getvalue().decode(), stderr.getvalue())


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[replog.Cluster]:
    """Three brokers, with files under data/."""
    with replog.Cluster(tmp_path / "data", brokers=3) as cluster:
        yield cluster


@pytest.fixture
def run(cluster: replog.Cluster) -> Run:
    """Run a command against the cluster."""
    return lambda *words, stdin=b"": run_with(cluster, *words, stdin=stdin)


def stopped_broker(folder: Path, *empty: str) -> Path:
    """The data directory of a broker that was stopped: two logs, of which "orders" has several segments, and some that are `empty`."""
    with replog.Cluster(folder, brokers=1) as cluster:
        cluster.create_topic("orders", segment_bytes=400)
        for n in range(10):
            cluster.append("orders", 0, [f"order {n} {'x' * 60}", replog.Record(f"two {n}", key="k")])
        for topic in empty:
            cluster.create_topic(topic)
        cluster.create_topic("other")
        cluster.append("other", 0, ["x"])
    return folder / "broker-1"


def log_folder(data: Path) -> Path:
    """Of the log with several segments."""
    return max((data / "logs").iterdir(), key=lambda folder: len(list(folder.glob("*.log"))))
