"""Without the extra `zookeeper` the public name is there, and says what is missing when it is used."""

from __future__ import annotations

import sys

import pytest

import replog


def test_without_kazoo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kazoo", None)
    monkeypatch.setitem(sys.modules, "kazoo.client", None)
    with pytest.raises(replog.UsageError, match=r"install replog\[zookeeper\]"):
        replog.ZooKeeperStore("127.0.0.1:2181")
