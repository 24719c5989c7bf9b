"""Commands and broker processes for the tests of the command line."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import replog

SESSION_MS = 2_000
_PATIENCE_S = 120.0
REPLOG = (sys.executable, "-P", "-W", "error", "-m", "replog")


def environment(**more: str) -> dict[str, str]:
    """That of the tests, without what would change how a command behaves."""
    kept = {name: value for name, value in os.environ.items() if name not in ("REPLOG_BOOTSTRAP", "PYTHONUNBUFFERED")}
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1", **more}


def command(*words: object, stdin: bytes = b"", timeout_s: float = 120, **more: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end."""
    line = [*REPLOG, *map(str, words)]
    return subprocess.run(line, input=stdin, env=environment(**more), capture_output=True, timeout=timeout_s, check=False)


@contextmanager
def started(*words: object, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A command that runs meanwhile; killed in the end if it still does, and before if a test would wait for it for ever."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([*REPLOG, *map(str, words)], **{"env": environment(), **pipes, **options})
    watchdog = threading.Timer(_PATIENCE_S, process.kill)
    watchdog.start()
    try:
        yield process
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with suppress(BrokenPipeError):  # what was still to be written to it
                    pipe.close()


def broker_words(folder: Path, broker_id: int = 1, *more: object) -> list[object]:
    """`broker` with everything it needs."""
    words = ["broker", "--id", broker_id, "--listen", "tcp://127.0.0.1:0", "--data", folder / f"b{broker_id}"]
    return [*words, "--store", f"file://{folder}/store.db", "--session-ms", SESSION_MS, *more]


def ready(process: subprocess.Popen[bytes]) -> tuple[str, str]:
    """Wait for the readiness line: (endpoint, cluster id)."""
    assert process.stdout is not None
    line = process.stdout.readline().decode()
    assert line.startswith("ready broker "), (line, process.stderr and process.stderr.read().decode())
    _, _, _, at, endpoint, cluster, cluster_id = line.split()
    assert (at, cluster) == ("at", "cluster")
    return endpoint, cluster_id


@contextmanager
def broker_processes(folder: Path, count: int, *, session_ms: int = SESSION_MS) -> Iterator[list[replog.BrokerProcess]]:
    """Brokers 1 to n with one store file."""
    config = {"session_ms": session_ms, "heartbeat_ms": SESSION_MS // 4}
    store = f"file://{folder}/store.db"
    brokers = [replog.BrokerProcess(n, data=folder / f"b{n}", store=store, config=config) for n in range(1, count + 1)]
    try:
        for broker in brokers:
            broker.start()
        yield brokers
    finally:
        for broker in brokers:
            if broker.is_running:
                broker.resume()
            broker.stop()
