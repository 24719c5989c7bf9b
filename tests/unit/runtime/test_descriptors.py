"""A log directory leaves descriptors to others."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

import replog
from replog.config import BrokerConfig
from replog.runtime.descriptors import within_descriptors


@pytest.mark.parametrize(
    ("allowed", "wanted", "connections", "most"),
    [
        (4_096, 512, 10_000, 512),
        (4_095, 512, 10_000, 512),
        (1_024, 512, 10_000, 128),
        (256, 512, 10_000, 32),
        (256, 32, 10_000, 32),
        (20, 512, 10_000, 8),
        (1_024, 512, 100, 462),
        (resource.RLIM_INFINITY, 100_000, 10_000, 100_000),
    ],
)
def test_half_of_what_connections_leave(
    allowed: int, wanted: int, connections: int, most: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (allowed, allowed))
    found = within_descriptors(BrokerConfig(open_files_max=wanted, connections_max=connections), 7)
    assert found == BrokerConfig(open_files_max=most, connections_max=connections)
    assert [(one.levelname, one.args) for one in caplog.records] == ([("WARNING", (7, most, wanted, allowed))] if most < wanted else [])


def test_a_broker_does_so_and_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1_024, 1_024))
    with replog.Broker(1, data=tmp_path / "b1", store=f"file://{tmp_path}/meta.db", listen="tcp://127.0.0.1:0") as broker:
        assert broker._life is not None
        assert broker._life.directory._storage.limits.open_files_max == 128  # type: ignore[attr-defined]
    (said,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING" and "open_files_max" in record.message]
    assert said.startswith("broker 1 keeps at most 128 segment files open, not open_files_max (512)")
