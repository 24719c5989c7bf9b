"""docs/configuration.md says what the configuration classes do."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import pytest

from replog.config import BrokerConfig, ClientConfig, TopicConfig
from replog.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]
CLASSES: tuple[Any, ...] = (TopicConfig, BrokerConfig, ClientConfig)


@pytest.fixture(scope="module")
def tool() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("configuration", ROOT / "tools" / "configuration.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["configuration"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["configuration"]


def test_the_page_is_current(tool: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main(["--check"]) == 0, f"run `python tools/configuration.py`\n{capsys.readouterr().out}"


def test_a_page_that_is_not_current_is_noticed(tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "configuration.md"
    monkeypatch.setattr(tool, "PAGE", page)
    assert tool.main(["--check"]) == 1
    assert tool.main([]) == 0
    assert tool.main(["--check"]) == 0
    page.write_text(page.read_text(encoding="utf-8").replace("30,000 ms", "20,000 ms"), encoding="utf-8")
    assert tool.main(["--check"]) == 1


@pytest.mark.parametrize("cls", CLASSES)
def test_every_key_is_there_with_its_default_and_a_meaning(tool: ModuleType, cls: Any) -> None:
    keys = tool.keys_of(cls)
    assert [(key.name, key.default) for key in keys] == [(field.name, field.default) for field in attrs.fields(cls)]
    assert [key.name for key in keys if len(key.meaning) < 10] == []


@pytest.mark.parametrize("cls", CLASSES)
def test_the_limits_are_those_that_are_kept(tool: ModuleType, cls: Any) -> None:
    for key in tool.keys_of(cls):
        for value in (key.low, key.high, *key.values):
            if value is not None:
                cls(**{key.name: value})
        for beyond in (key.low is not None and key.low - 1, key.high is not None and key.high + 1, "neither"):
            if beyond is not False:
                with pytest.raises(UsageError, match=key.name):
                    cls(**{key.name: beyond})


def test_a_key_without_a_meaning_and_one_with_two_are_refused(tool: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool, "MEANINGS", {})
    with pytest.raises(ValueError, match=r"TopicConfig\.flush_interval_ms has no meaning"):
        tool.keys_of(TopicConfig)
    monkeypatch.setattr(tool, "MEANINGS", {"ClientConfig.request_timeout_ms": "again"})
    with pytest.raises(ValueError, match=r"ClientConfig\.request_timeout_ms has two meanings"):
        tool.keys_of(ClientConfig)
