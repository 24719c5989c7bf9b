"""`examples/three_brokers.py` works as printed, with both stores, and notices a record that is missing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.processes.cli import environment
from tests.integration.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.processes

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "three_brokers.py"
STORY = ["started", "killed", "appended", "read back", "restarted", "in sync"]


def run(script: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """Run the example in a process of its own."""
    line = [sys.executable, "-W", "error", str(script), *map(str, words)]
    return subprocess.run(line, env=environment(), capture_output=True, text=True, timeout=240, check=False)


def story(stdout: str) -> list[str]:
    """The first words of what it tells."""
    return [line[2:13].strip() for line in stdout.splitlines() if line.startswith("  ") and line[2:3].strip()]


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    server = ZooKeeperServer(tmp_path / "zookeeper").start()
    yield server
    server.kill()


def test_it_runs_as_printed(tmp_path: Path) -> None:
    done = run(EXAMPLE, "--limit", 3_000, "--data", tmp_path / "data")
    assert (done.returncode, done.stderr) == (0, "")
    assert story(done.stdout) == STORY
    assert "3,000 records with one broker dead: every acknowledged one is there once, in order" in done.stdout
    assert sorted(path.name for path in (tmp_path / "data").glob("broker-*")) == ["broker-1", "broker-2", "broker-3"]
    again = run(EXAMPLE, "--data", tmp_path / "data")
    assert again.returncode == 2
    assert "is not empty" in again.stderr


def test_with_zookeeper(zookeeper: ZooKeeperServer) -> None:
    done = run(EXAMPLE, "--limit", 2_000, "--zookeeper", zookeeper.address)
    assert (done.returncode, done.stderr) == (0, "")
    assert story(done.stdout) == STORY


def test_it_notices_a_record_that_is_missing(tmp_path: Path) -> None:
    code = EXAMPLE.read_text(encoding="utf-8")
    broken = code.replace("            deliveries = producer", "            chunk = chunk[at == 0 :]\n            deliveries = producer", 1)
    assert broken != code
    script = tmp_path / "example.py"
    script.write_text(broken, encoding="utf-8")
    done = run(script, "--limit", 1_000)
    assert done.returncode == 1
    assert "WRONG: " in done.stderr
