"""Lets the tests of this folder import what they share, however pytest was started."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

_ROOT = str(Path(__file__).resolve().parents[2])
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)


@pytest.fixture(params=["memory", "files"])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    """Where a cluster keeps its logs: nowhere, or in a folder."""
    return None if request.param == "memory" else tmp_path / "data"
