"""The Python blocks of the README and of the guides work as printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "docs/log.md", "docs/embedding.md", "docs/testing.md", "docs/cli.md")


def blocks(text: str) -> list[tuple[int, str]]:
    """(line, code) of every Python block of a page that starts at the margin."""
    return [(text.count("\n", 0, m.start()) + 1, m[1]) for m in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]


def cases() -> list[object]:
    found = [(page, *block) for page in PAGES for block in blocks((ROOT / page).read_text(encoding="utf-8"))]
    return [pytest.param(code, id=f"{page}:{line}") for page, line, code in found]


def test_blocks_are_found() -> None:
    assert blocks("a\n```python\nx = 1\n```\n```\nmake\n```\n```python\ny\n```\n") == [(2, "x = 1\n"), (8, "y\n")]
    assert len(blocks((ROOT / "README.md").read_text(encoding="utf-8"))) >= 5


@pytest.mark.processes
@pytest.mark.parametrize("code", cases())
def test_block_runs(code: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
