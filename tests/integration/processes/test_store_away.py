"""A metadata store that is gone: who looks is told so, although every broker that is asked still tells of its last controller."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.integration.processes.cli import broker_processes, command

from replog.testing.eventually import eventually

pytestmark = pytest.mark.processes


def test_a_store_that_is_gone_is_not_healthy(tmp_path: Path) -> None:
    with broker_processes(tmp_path, 3) as brokers:
        bootstrap = ",".join(broker.endpoint for broker in brokers)

        def asked(*words: str) -> tuple[int, str]:
            done = command(*words, "--bootstrap", bootstrap)
            return done.returncode, done.stdout.decode()

        assert asked("topic", "create", "t", "--partitions", "2")[0] == 0
        eventually(lambda: asked("health")[0] == 0, 60)
        away = tmp_path / "away"
        away.mkdir()
        for file in tmp_path.glob("store.db*"):
            file.rename(away / file.name)
        eventually(lambda: asked("health")[0] == 1, 60)
        report = json.loads(asked("health", "--format", "json")[1])
        assert (report["healthy"], report["controller"]) == (False, None)
        assert report["reason"].startswith("no controller answers, or the metadata store is away: ")
        assert asked("explain")[0] == asked("controller")[0] == 1
        assert 'replog_active_controller{broker="1"} 0' in asked("metrics")[1].splitlines()
        for file in away.iterdir():
            file.rename(tmp_path / file.name)
        eventually(lambda: asked("health")[0] == 0, 60)
