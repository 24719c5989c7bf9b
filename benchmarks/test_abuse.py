"""What the connections of strangers cost a broker and its clients (RELIABILITY R22).

Run with `pytest benchmarks/test_abuse.py --benchmark-enable -s`. Three broker processes over a store file, and a client that appends one
record after the other to the partition that broker 1 leads, acks=all. First it is alone, then broker 1 has 5,000 connections that say
nothing, 500 that send a byte a second (half before they have said who they are, half within a later frame; each that is closed comes
again), and 1,000 more per second that are made and closed, for a minute. `idle_kib`: memory per silent connection. `lived_s`: the longest
life of one that sends a byte a second. `p99`: of the appends, against those before. No partition may have got another leader, nor a
silent connection been closed. Attackers and clients share the processors with the brokers.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from benchmarks import attackers
from benchmarks.measuring import report
from benchmarks.targets import at_most
from benchmarks.writers import cpu_s, rss_bytes

import replog

pytestmark = [pytest.mark.processes, pytest.mark.long]

IDLE: Final = 5_000
LORIS: Final = 500
CONNECTS_PER_S: Final = 1_000
ABUSE_S: Final = 60.0
ALONE_S: Final = 20.0
PAUSE_S: Final = 0.005


class Attacker:
    """A process; `with` starts it, waits until it is at work, and ends it."""

    def __init__(self, place: tuple[str, str], what: str, number: int) -> None:
        self._command = [sys.executable, attackers.__file__, *place, what, str(number)]
        self.found: dict[str, Any] = {}

    def __enter__(self) -> Attacker:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        return self

    def __exit__(self, *problem: object) -> None:
        out, _ = self._process.communicate(timeout=120)
        self.found = json.loads(out)


def latencies(client: replog.Client, seconds: float) -> list[float]:
    """Of appends one after the other, sorted."""
    found, never = [], threading.Event()
    end = time.monotonic() + seconds
    while (begun := time.monotonic()) < end:
        client.append("t", 0, [b"x" * 100])
        found.append(time.monotonic() - begun)
        never.wait(PAUSE_S)
    return sorted(found)


def p99_ms(found: list[float]) -> float:
    return found[len(found) * 99 // 100] * 1_000


def test_abuse(tmp_path: Path, benchmark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard >= 10_000, f"{hard} descriptors are too few"
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # the brokers, and the attackers, have it from here
    store = f"file://{tmp_path / 'store.db'}"
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        processes = [stack.enter_context(replog.BrokerProcess(n, data=tmp_path / f"b{n}", store=store)) for n in (1, 2, 3)]
        client = stack.enter_context(replog.connect(",".join(one.endpoint for one in processes)))
        client.create_topic("t", assignment={0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]}, min_isr=2)
        place = tuple(processes[0].endpoint.removeprefix("tcp://").split(":"))
        latencies(client, 3)
        alone = latencies(client, ALONE_S)
        before = [(one.leader, one.leader_epoch) for one in client.describe("t").partitions]
        memory = rss_bytes(processes[0].pid)
        with Attacker(place, "idle", IDLE) as idle:
            idle_kib = (rss_bytes(processes[0].pid) - memory) / IDLE / 1_024
            with Attacker(place, "loris", LORIS) as loris, Attacker(place, "connects", CONNECTS_PER_S) as connects:
                spent, begun = cpu_s(processes[0].pid), time.monotonic()
                abused = latencies(client, ABUSE_S)
                share = (cpu_s(processes[0].pid) - spent) / (time.monotonic() - begun)
        after = [(one.leader, one.leader_epoch) for one in client.describe("t").partitions]
    benchmark.pedantic(lambda: None)
    figures = {
        "idle_kib": idle_kib, "lived_s": loris.found["lived_s"], "loris_closed": loris.found["closed"],
        "connects_per_s": connects.found["per_s"], "alone_p99_ms": p99_ms(alone), "abused_p99_ms": p99_ms(abused),
        "p99": p99_ms(abused) / p99_ms(alone), "broker_cpu": share, "appends": len(abused), "load": os.getloadavg()[0],
    }  # fmt: skip
    targets = [at_most("idle_kib", 32), at_most("lived_s", 35), at_most("p99", 2)]
    report(benchmark, capsys, "abuse of connections", figures, *targets)
    assert before == after
    assert idle.found["open"] == IDLE
