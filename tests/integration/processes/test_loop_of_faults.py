"""Brokers that are killed, paused beyond their session and stopped, under load: nothing lost, nothing twice, nothing changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.integration.processes.loop_of_faults import run
from tests.integration.zookeeper_server import Ensemble, ZooKeeperServer

pytestmark = pytest.mark.processes

SECONDS = float(os.environ.get("REPLOG_FAULT_SECONDS", "20"))
"""How long faults go on: 20 in `make test`, 120 and more by hand (docs/testing.md)."""


def test_faults_over_a_file_store(tmp_path: Path) -> None:
    run(tmp_path, f"file://{tmp_path / 'metadata.db'}", seed=1, seconds=SECONDS)


@pytest.mark.zookeeper
def test_faults_of_brokers_and_of_zookeepers_leader(tmp_path: Path) -> None:
    down: list[ZooKeeperServer] = []

    def also(chance: float) -> None:
        """Bring back who is down; else, now and then, end whoever leads the ensemble."""
        if down:
            down.pop().start(wait=False)
        elif chance < 0.4 and (leader := servers.leader()) is not None:
            leader.kill()
            down.append(leader)

    with Ensemble(tmp_path / "zookeeper").running() as servers:
        run(tmp_path, f"zookeeper://{servers.addresses}/faults", seed=2, seconds=SECONDS, also=also, after=lambda: also(1.0))
