"""For how long writers wait when a leader goes: killed with SIGKILL, and stopped in a controlled way (RELIABILITY R18).

Run with `pytest benchmarks/test_unavailability.py --benchmark-enable -s`. Three broker processes over a file store with a session time T of
3 s; broker 3 leads every partition. `killed`: right after the kill a record is sent to each partition; seconds until the last is
acknowledged by all in sync, less T. `stopped`: a writer appends to one
partition without a pause while its leader is stopped; its longest wait, in seconds.
Medians of five rounds, each with brokers of its own; the load of the machine is printed, since others use its processors too.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from benchmarks.measuring import report
from benchmarks.targets import at_most

import replog
from replog.testing.eventually import eventually

pytestmark = pytest.mark.processes

SESSION_MS: Final = 3_000
ROUNDS: Final = 5
LEADER: Final = 3
PATIENCE_S: Final = 120.0
CONFIG: Final = {"session_ms": SESSION_MS, "heartbeat_ms": 500}


@contextmanager
def led_by_one(folder: Path, partitions: int) -> Iterator[tuple[replog.BrokerProcess, replog.Client, replog.Producer]]:
    """The process of the leader of everything; a client of all, and its producer, which has written to each partition."""
    with ExitStack() as stack:
        processes = [
            stack.enter_context(replog.BrokerProcess(n, data=folder / f"b{n}", store=f"file://{folder / 'store.db'}", config=CONFIG))
            for n in (1, 2, LEADER)
        ]
        client = stack.enter_context(
            replog.connect([one.endpoint for one in processes], config={"delivery_timeout_ms": int(PATIENCE_S * 1_000)})
        )
        placed = {p: [LEADER, 1, 2] if p % 2 else [LEADER, 2, 1] for p in range(partitions)}
        client.create_topic("t", assignment=placed, timeout_s=PATIENCE_S)
        eventually(lambda: all(p.leader == LEADER and len(p.isr) == 3 for p in client.describe("t").partitions), PATIENCE_S, every_s=0.1)
        producer = stack.enter_context(client.producer(acks="all", linger_ms=0))
        everywhere(producer, partitions)
        yield processes[-1], client, producer


def everywhere(producer: replog.Producer, partitions: int) -> None:
    """A record in each partition, acknowledged."""
    sent = [producer.send("t", "x", partition=p) for p in range(partitions)]
    for one in sent:
        one.result(timeout_s=PATIENCE_S)


def killed(folder: Path, partitions: int) -> float:
    """Seconds after the kill until each partition has acknowledged a record, less the session time."""
    folder.mkdir()
    with led_by_one(folder, partitions) as (leader, _, producer):
        begun = time.monotonic()
        leader.kill()
        everywhere(producer, partitions)
        return time.monotonic() - begun - SESSION_MS / 1_000


def stopped(folder: Path, partitions: int) -> float:
    """The longest that one append took while the leader was stopped, in seconds."""
    folder.mkdir()
    with led_by_one(folder, partitions) as (leader, client, _):
        ending = threading.Thread(target=leader.stop)
        waits: list[float] = []
        ending.start()
        after = 0
        while after < 50:
            begun = time.monotonic()
            client.append("t", 0, ["x"])
            waits.append(time.monotonic() - begun)
            after += not ending.is_alive()
        return max(waits)


TARGETS_S: Final = [
    (killed, 1, 1.0),
    pytest.param(killed, 1_000, 5.0, marks=pytest.mark.long),
    (stopped, 1, 0.5),
    pytest.param(stopped, 1_000, 0.5, marks=pytest.mark.long),
]


@pytest.mark.parametrize(("how", "partitions", "target_s"), TARGETS_S)
def test_unavailability(
    how: Callable[[Path, int], float], partitions: int, target_s: float, tmp_path: Path, benchmark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = [how(tmp_path / str(number), partitions) for number in range(ROUNDS)]
    benchmark.pedantic(lambda: None)
    figures = {"median_s": statistics.median(seconds), "worst_s": max(seconds), "load": os.getloadavg()[0]}
    report(benchmark, capsys, f"a leader is {how.__name__}, {partitions} partitions", figures, at_most("median_s", target_s))
