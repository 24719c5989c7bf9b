"""The demo: twice on one folder, interrupted in between, and on a folder that has lost something."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from replog.testing.eventually import eventually

ROOT = Path(__file__).resolve().parents[2]
FLIGHTS = 12_000

pytestmark = pytest.mark.processes


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Flights that look like the real ones."""
    carriers = ("UA", "B6", "EV", "DL", "AA", "MQ", "US", "9E", "WN")
    lines = [f"2013,{i % 12 + 1},{i % 28 + 1},{carriers[i * i % 9]},{i},N{i % 4000}" for i in range(FLIGHTS)]
    path = tmp_path / "flights.csv"
    path.write_text("year,month,day,carrier,flight,tailnum\n" + "\n".join(lines) + "\n")
    return path


def start(source: Path, data: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", str(ROOT / "examples/quickstart.py"), "--source", str(source), "--data", str(data), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))


def run(source: Path, data: Path, *options: str) -> tuple[int, str, str]:
    process = start(source, data, *options)
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


def start_and_acknowledge(source: Path, data: Path) -> tuple[subprocess.Popen[str], Path]:
    """A run that has acknowledged something, and is most likely not done; and the file that says how much."""
    process = start(source, data)
    journal = data / "acknowledged"
    eventually(lambda: journal.exists() or process.poll() is not None)
    assert journal.exists(), process.communicate()[1]
    return process, journal


def test_second_run_finds_the_first(source: Path, tmp_path: Path) -> None:
    status, out, err = run(source, tmp_path / "data")
    assert (status, err) == (0, "")
    assert "12,000 flights to flights-1" in out
    assert "every acknowledged flight is there once" in out
    assert "6 partitions byte-identical on 3 brokers" in out

    status, out, err = run(source, tmp_path / "data", "--limit", "3000")
    assert (status, err) == (0, "")
    assert "flights-1: 12,000 flights, all 12,000 acknowledged ones among them" in out
    assert "3,000 flights to flights-2" in out

    status, out, _ = run(source, tmp_path / "data", "--fresh", "--limit", "10")
    assert status == 0
    assert "earlier runs   none" in out


def test_interrupted_run_loses_nothing(source: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    process, journal = start_and_acknowledge(source, data)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=300)
    assert process.returncode in (0, 130)  # 0: it was done before the signal came

    acknowledged = int(journal.read_text().split()[-1])
    status, out, err = run(source, data, "--limit", "1000")
    assert (status, err) == (0, "")
    assert f"all {acknowledged:,} acknowledged ones among them" in out


def test_killed_run_loses_nothing(source: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    process, journal = start_and_acknowledge(source, data)
    process.kill()
    process.communicate(timeout=300)

    acknowledged = int(journal.read_text().split()[-1])
    status, out, err = run(source, data, "--limit", "1000")
    assert (status, err) == (0, "")
    assert f"all {acknowledged:,} acknowledged ones among them" in out


def test_a_loss_is_noticed(source: Path, tmp_path: Path) -> None:
    assert run(source, tmp_path / "data", "--limit", "1000")[0] == 0
    with (tmp_path / "data" / "acknowledged").open("a") as journal:
        journal.write("flights-1 1001\n")
    status, _, err = run(source, tmp_path / "data", "--limit", "1000")
    assert status == 1
    assert "were acknowledged" in err
