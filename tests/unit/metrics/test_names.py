"""The table of names keeps the conventions of Prometheus, and the page has all of it."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from replog.metrics.names import BY_NAME, METRICS, Metric

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("metrics_page", ROOT / "tools" / "metrics.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_name_says_kind_and_unit(metric: Metric) -> None:
    assert re.fullmatch(r"replog(_[a-z]+)+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert metric.kind != "histogram" or metric.name.endswith("_seconds")
    assert ("seconds" in metric.name) == (metric.unit == "seconds")
    assert all(re.fullmatch("[a-z]+", label) for label in metric.labels)
    assert metric.per_partition == ("partition" in metric.labels)
    assert metric.meaning.endswith(".")


def test_names_are_there_once() -> None:
    assert len(BY_NAME) == len(METRICS)


def test_the_page_is_current(tool: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main(["--check"]) == 0, f"run `python tools/metrics.py`\n{capsys.readouterr().out}"


def test_a_page_that_is_not_current_is_noticed(tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "metrics.md"
    page.write_text(tool.PAGE.read_text(encoding="utf-8").replace("replog_leaders", "replog_leader"), encoding="utf-8")
    monkeypatch.setattr(tool, "PAGE", page)
    assert tool.main(["--check"]) == 1
    assert tool.main([]) == 0
    assert tool.main(["--check"]) == 0
    assert "metrics_page" not in sys.modules
