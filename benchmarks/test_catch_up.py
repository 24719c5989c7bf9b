"""How fast a replica that was away catches up, against the same bytes sent with `sendfile` to a process that writes them to a file.

Run with `pytest benchmarks/test_catch_up.py --benchmark-enable -s`. Three broker processes; one is stopped, 192 MiB are appended, it is
started, and the clock runs from when it is registered until it is in sync. Nobody appends meanwhile; test_processes.py has what it does
to those who do. `ratio`: of the rate of the bare loop, which does not check what it writes.
"""

from __future__ import annotations

import os
import socket
import statistics
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from benchmarks.measuring import report, timed
from benchmarks.test_processes import BIG_MIB, MIB, brokers, child, fill

import replog
from replog.testing.eventually import eventually

pytestmark = pytest.mark.processes

ROUNDS: Final = 3
PATIENCE_S: Final = 60.0


def received(server: socket.socket, path: Path) -> None:
    """Write what comes to a file that begins anew with each connection; a byte says that all is there."""
    buffer = memoryview(bytearray(MIB))
    while True:
        peer, _ = server.accept()
        with path.open("wb", buffering=0) as file:
            left = BIG_MIB * MIB
            while left:
                count = peer.recv_into(buffer)
                file.write(buffer[:count])
                left -= count
        peer.sendall(b"!")
        peer.close()


def sent(file: int, address: tuple[str, int]) -> None:
    """All of a file, until the other end has written it."""
    with socket.create_connection(address) as peer:
        at = 0
        while at < BIG_MIB * MIB:
            at += os.sendfile(peer.fileno(), file, at, MIB)
        assert peer.recv(1) == b"!"


def test_catch_up(benchmark: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Rounds of both in turn."""
    (tmp_path / "bytes").write_bytes(os.urandom(MIB) * BIG_MIB)
    ours: list[float] = []
    bare: list[float] = []
    with ExitStack() as stack:
        processes = stack.enter_context(brokers(tmp_path))
        client = stack.enter_context(replog.connect([one.endpoint for one in processes[:2]]))
        client.create_topic("big", assignment={0: [1, 2, 3]}, min_isr=2, segment_bytes=64 << 20, retention_bytes=256 << 20)
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        stack.enter_context(child(lambda: received(server, tmp_path / "received")))
        file = os.open(tmp_path / "bytes", os.O_RDONLY)
        stack.callback(os.close, file)

        def is_back() -> bool:
            return 3 in client.describe("big").partitions[0].isr

        eventually(is_back)
        for _ in range(ROUNDS):
            processes[2].stop()
            fill(client, BIG_MIB)
            processes[2].start()
            ours.append(timed(lambda: eventually(is_back, PATIENCE_S, every_s=0.01)))
            bare.append(min(timed(lambda: sent(file, server.getsockname())) for _ in range(2)))
    benchmark.pedantic(lambda: None, rounds=1)
    figures = {
        "ratio": statistics.median(limit / mine for mine, limit in zip(ours, bare, strict=True)),
        "mb_per_s": BIG_MIB * MIB / 1e6 / statistics.median(ours),
        "bare_mb_per_s": BIG_MIB * MIB / 1e6 / statistics.median(bare),
    }
    report(benchmark, capsys, "a replica catches up / sendfile to a file", figures)
