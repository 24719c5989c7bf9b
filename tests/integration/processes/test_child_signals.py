"""A broker in a child process, as applications start it that have signals of their own, and several threads."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

import replog
from replog.errors import UsageError

pytestmark = pytest.mark.processes


def child(tmp_path: Path) -> replog.BrokerProcess:
    return replog.BrokerProcess(1, data=tmp_path / "b1", store=f"file://{tmp_path / 'store.db'}")


def test_whoever_blocks_signals_stops_it_all_the_same(tmp_path: Path) -> None:
    """An application that waits for its signals with sigwait blocks them in every thread, and its children inherit that."""
    blocked = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        broker = child(tmp_path).start()
        assert broker.stop(timeout_s=None) == 0
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert any("is stopped" in line for line in broker.last_lines)


def test_one_that_another_thread_has_ended_is_not_paused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with child(tmp_path) as broker:

        def ended(*args: Any) -> None:
            broker.kill()
            raise ChildProcessError("no child processes")

        monkeypatch.setattr(os, "waitid", ended)
        with pytest.raises(UsageError, match="does not run"):
            broker.pause()
