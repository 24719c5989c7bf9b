"""A broker that stands still, and somebody with another folder who takes its id meanwhile."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.integration.processes.cli import broker_words, ready, started

pytestmark = pytest.mark.processes

STARTS_MAX = 50
PATIENCE_S = 60


@contextmanager
def replacing(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Broker 1 with another folder, started again as a supervisor would until it is let in."""
    words = broker_words(folder)
    words[words.index("--data") + 1] = folder / "another"
    for _ in range(STARTS_MAX):
        with started(*words) as successor:
            assert successor.stdout is not None
            line = successor.stdout.readline()
            if line:
                assert line.startswith(b"ready broker 1 at ")
                yield successor
                return
            stdout, stderr = successor.communicate(timeout=PATIENCE_S)
            assert (successor.returncode, stdout) == (3, b"")
            assert b"broker id 1 is registered by a live broker with directory" in stderr
    raise AssertionError(f"refused {STARTS_MAX} times")


def test_whoever_has_lost_its_id_while_it_stood_still_ends_with_status_3(tmp_path: Path) -> None:
    """Nobody else is there to end its session: the successor itself has to stay until it may."""
    with started(*broker_words(tmp_path)) as first:
        ready(first)
        first.send_signal(signal.SIGSTOP)
        with replacing(tmp_path) as successor:
            assert first.poll() is None
            first.send_signal(signal.SIGCONT)
            _, stderr = first.communicate(timeout=PATIENCE_S)
            assert first.returncode == 3
            assert b"replog: broker 1 cannot go on: broker id 1 is registered by a live broker" in stderr.splitlines()[-1]
            assert b"Traceback" not in stderr
            assert successor.poll() is None
            successor.send_signal(signal.SIGTERM)
            assert successor.wait(PATIENCE_S) == 0


def test_a_broker_that_died_with_its_folder_is_replaced(tmp_path: Path) -> None:
    with started(*broker_words(tmp_path)) as first:
        ready(first)
        first.kill()
        first.wait()
    with replacing(tmp_path) as successor:
        assert successor.poll() is None


def test_whoever_stands_still_for_less_than_its_session_keeps_its_id(tmp_path: Path) -> None:
    """The successor is refused in the end, although it may have waited."""
    words = broker_words(tmp_path)
    words[words.index("--session-ms") + 1] = 20_000
    with started(*words) as first:
        ready(first)
        first.send_signal(signal.SIGSTOP)
        words[words.index("--data") + 1] = tmp_path / "another"
        with started(*words) as successor:
            stdout, stderr = successor.communicate(timeout=PATIENCE_S)
        first.send_signal(signal.SIGCONT)
        assert (successor.returncode, stdout) == (3, b"")
        assert b"registered by a live broker" in stderr
        first.send_signal(signal.SIGTERM)
        assert first.wait(PATIENCE_S) == 0
