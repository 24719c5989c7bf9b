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


@pytest.mark.parametrize(
    ("allowed", "brokers", "listens", "most", "level"),
    [
        (3_072, 3, False, 512, None),
        (1_024, 3, False, 170, "INFO"),
        (1_024, 3, True, 42, "WARNING"),
        (1_024, 1, False, 512, None),
        (100, 9, True, 8, "WARNING"),
    ],
)
def test_brokers_of_one_process_share_them(
    allowed: int,
    brokers: int,
    listens: bool,
    most: int,
    level: str | None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (allowed, allowed))
    assert within_descriptors(BrokerConfig(), 7, brokers=brokers, listens=listens).open_files_max == most
    assert [(one.levelname, one.args) for one in caplog.records] == ([] if level is None else [(level, (7, most, 512, allowed))])


@pytest.mark.parametrize(("listen", "shares"), [(None, (170, 170, 170, 128)), ("tcp://127.0.0.1:0", (42, 42, 42, 32))])
def test_those_of_a_cluster_do(
    listen: str | None, shares: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1_024, 1_024))

    def most(cluster: replog.Cluster) -> tuple[int, ...]:
        running = cluster._embedded.running
        return tuple(running[n].directory._storage.limits.open_files_max for n in sorted(running))  # type: ignore[attr-defined]

    with replog.Cluster(tmp_path, brokers=3, listen=listen) as cluster:
        cluster.describe_cluster()
        assert most(cluster) == shares[:3]
        cluster.add_broker()
        assert most(cluster) == shares
        cluster.kill_broker(1)
        cluster.start_broker(1)
        assert most(cluster) == (shares[3], *shares[1:])
