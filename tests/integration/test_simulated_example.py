"""The example of a simulated system works as printed, and notices a bug in its own code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "simulated_ledger.py"


def output(code: str, tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own."""
    script = tmp_path / "example.py"
    script.write_text(code, encoding="utf-8")
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-W", "error", str(script), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.processes
def test_it_runs_as_printed(tmp_path: Path) -> None:
    done = output(EXAMPLE.read_text(encoding="utf-8"), tmp_path, "1", "2")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == ["seed 1", "seed 2"]
    assert all("0 violations" in line for line in lines)


@pytest.mark.processes
def test_it_notices_transfers_that_are_forgotten(tmp_path: Path) -> None:
    code = EXAMPLE.read_text(encoding="utf-8")
    broken = code.replace('seen.append(transfer["id"])', 'seen.append(transfer["id"] if len(seen) % 5 else "")')
    assert broken != code
    done = output(broken, tmp_path, "1", "2")
    assert done.returncode == 1
    assert "confirmed transfers are not in the log" in done.stderr
