"""The example of a store of one's own runs as printed: a cluster over it, one broker of which is killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "custom_store.py"


@pytest.mark.processes
def test_it_runs_as_printed() -> None:
    done = subprocess.run([sys.executable, "-W", "error", str(EXAMPLE)], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.splitlines()
    assert first.startswith("101 records; broker ")
    assert second.startswith("registered: ")
    assert len(second.split(", ")) == 2
