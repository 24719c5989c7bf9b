"""A user's code type-checks: mypy --strict on `api.py`, and it notices a misuse."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def mypy(file: Path) -> tuple[int, str]:
    """Exit status and output of mypy as a user of the installed package runs it."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--config-file", str(ROOT / "pyproject.toml"), str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_api_is_typed() -> None:
    status, output = mypy(ROOT / "tests" / "typing" / "api.py")
    assert (status, output.strip()) == (0, "")


def test_misuse_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "misuse.py"
    file.write_text(
        "import replog\nrecord = replog.Record(3.5)\nreplog.Klaster()\nreplog.TopicPartition('orders', '0')\n"
        "log = replog.Log.open('x')\nlog.append_records([5])\nlog.nothing()\nreplog.Log.open('x', nonsense=1)\n"
    )
    status, output = mypy(file)
    assert status == 1
    assert {int(line.split(":")[1]) for line in output.splitlines() if ": error:" in line} == {2, 3, 4, 6, 7, 8}
