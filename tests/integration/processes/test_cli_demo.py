"""`replog demo`: the whole story, and that nothing is left of it, however it ends."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from tests.integration.processes.cli import command, environment, started

from replog.testing.eventually import eventually

pytestmark = pytest.mark.processes

STORY = ["started", "files", "written", "killed", "failover", "written", "read back", "restarted", "cleaned"]


def is_alive(pid: int) -> bool:
    """Whether there is such a process that has not ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_the_whole_story(tmp_path: Path) -> None:
    done = command("demo", "--records", 301, "--format", "json", TMPDIR=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, b"")
    steps = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["step"] for one in steps] == STORY
    assert steps[6]["records"] == 603
    assert steps[4]["leader"] not in (None, steps[3]["broker"])
    assert steps[4]["epoch"] > 0
    assert os.listdir(tmp_path) == []
    assert not any(map(is_alive, steps[0]["processes"]))


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_signal_leaves_nothing_behind(tmp_path: Path, number: signal.Signals, status: int) -> None:
    with started("demo", "--records", 100_000, "--format", "json", env=environment(TMPDIR=str(tmp_path))) as demo:
        assert demo.stdout is not None
        begun = json.loads(demo.stdout.readline())
        assert Path(begun["folder"]).parent == tmp_path
        eventually(lambda: demo.poll() is not None or demo.send_signal(number))  # whoever is impatient does not keep it from cleaning up
        assert demo.returncode == status
        assert demo.stderr is not None
        assert demo.stderr.read() == b""
    assert os.listdir(tmp_path) == []
    assert not any(map(is_alive, begun["processes"]))


def test_a_signal_while_brokers_start_leaves_nothing_behind(tmp_path: Path) -> None:
    with started("demo", env=environment(TMPDIR=str(tmp_path))) as demo:
        eventually(lambda: list(tmp_path.glob("replog-demo-*/broker-1")))
        demo.send_signal(signal.SIGTERM)
        assert demo.wait(60) == 143
    assert os.listdir(tmp_path) == []


def test_a_reader_that_goes_early_leaves_nothing_behind(tmp_path: Path) -> None:
    with started("demo", "--format", "json", env=environment(TMPDIR=str(tmp_path))) as demo:
        assert demo.stdout is not None
        begun = json.loads(demo.stdout.readline())
        demo.stdout.close()
        assert demo.wait(60) == 0
    assert os.listdir(tmp_path) == []
    assert not any(map(is_alive, begun["processes"]))
