"""The Python blocks of the README and of the guides work as printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.pages import ROOT, blocks, python, run_python

PAGES = ("README.md", "docs/log.md", "docs/embedding.md", "docs/testing.md", "docs/cli.md")
CASES = [  # what imports replog.spark needs a session: tests/integration/spark
    pytest.param(code, id=name) for page in PAGES for name, code in python(page) if "from replog.spark" not in code
]


def test_blocks_are_found() -> None:
    assert blocks("a\n```python\nx = 1\n```\n```\nmake\n```\n```python\ny\n```\n") == [(2, "x = 1\n"), (8, "y\n")]
    assert len(blocks((ROOT / "README.md").read_text(encoding="utf-8"))) >= 5


@pytest.mark.processes
@pytest.mark.parametrize("code", CASES)
def test_block_runs(code: str, tmp_path: Path) -> None:
    run_python(code, tmp_path)


@pytest.mark.processes
@pytest.mark.parametrize(("page", "mark"), [("README.md", "cluster.consumer("), ("docs/embedding.md", "run_in_executor(thread")])
def test_reading_is_the_same_over_tcp(page: str, mark: str, tmp_path: Path) -> None:
    """The blocks about reading, by a client whose brokers answer after a while only."""
    (code,) = [code for _, code in python(page) if mark in code]
    inside = "with replog.Cluster(brokers=3) as cluster:"
    assert code.count(inside) == 1
    outside = 'with replog.Cluster(listen="tcp://127.0.0.1:0") as brokers, replog.connect(brokers.endpoints) as cluster:'
    run_python(code.replace(inside, outside), tmp_path)
