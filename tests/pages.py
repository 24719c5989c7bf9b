"""Pages of the documentation: their blocks, and how a block is run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

__all__ = ["ROOT", "blocks", "python", "run_python"]

ROOT = Path(__file__).resolve().parent.parent


def blocks(text: str) -> list[tuple[int, str]]:
    """(line, code) of every Python block of a page that starts at the margin."""
    return [(text.count("\n", 0, m.start()) + 1, m[1]) for m in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]


def python(page: str) -> list[tuple[str, str]]:
    """(name for people, code) of every Python block of a page, named from the root."""
    return [(f"{page}:{line}", code) for line, code in blocks((ROOT / page).read_text(encoding="utf-8"))]


def run_python(code: str, folder: Path) -> None:
    """Run a block in a process of its own, as a reader would. It must neither fail nor warn."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
