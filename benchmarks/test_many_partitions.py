"""Ten thousand partitions on three brokers, each in a process of its own (RELIABILITY R25).

Run with `pytest benchmarks/test_many_partitions.py --benchmark-enable -s`; it takes some minutes. Three copies of each partition, a store
file, each broker leading a third. `start_s`: until all are led after all three brokers are started again; `kib_per_copy`: memory at rest;
`idle_core`: share of a core that the busiest broker takes at rest; `failover_s`: until all are led after the leader of `leaders` of them
is killed, less the session time; `stall_p999_s`: turns of the loop at rest, 99.9th percentile. Other work on the machine is part of the
figures; its load is printed.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from benchmarks.measuring import report
from benchmarks.targets import at_most
from benchmarks.writers import cpu_s, rss_bytes

import replog
from replog.cli.pages import fetched
from replog.client.results import PartitionDescription
from replog.testing.eventually import eventually

pytestmark = [pytest.mark.processes, pytest.mark.long]

TOPICS: Final = 10
PARTITIONS: Final = 1_000
SESSION_MS: Final = 9_000
REST_S: Final = 30.0
PATIENCE_S: Final = 300.0
BROKERS: Final = (1, 2, 3)


def stalls(process: replog.BrokerProcess) -> list[tuple[float, int]]:
    """(upper edge in seconds, turns of the loop that took at most so long), all until now."""
    body, _ = fetched(process.status_url, 30.0, as_json=True)
    (one,) = json.loads(body)["replog_loop_stall_seconds"]
    return [(float(edge), count) for edge, count in one["buckets"]]


def within(before: list[tuple[float, int]], now: list[tuple[float, int]], share: float) -> float:
    """The edge that so many of the turns between two moments were not above, in seconds."""
    turns = [(edge, after - was) for (edge, after), (_, was) in zip(now, before, strict=True)]
    return next(edge for edge, count in turns if count >= share * turns[-1][1])


def described(client: replog.Client) -> list[PartitionDescription]:
    """All partitions."""
    return [one for number in range(TOPICS) for one in client.describe(f"t{number}", timeout_s=PATIENCE_S).partitions]


def led(client: replog.Client, *, by: set[int], copies: int = 1) -> bool:
    """Whether every partition has one of these for its leader, and so many replicas in sync."""
    return all(one.leader in by and len(one.isr) >= copies for one in described(client))


def leads_a_third(client: replog.Client, broker: int) -> int:
    """Elect preferred leaders; how many partitions this broker leads then, 0 while it lacks its share."""
    client.elect_leaders(timeout_s=PATIENCE_S)
    led_by_it = sum(one.leader == broker for one in described(client))
    return led_by_it if led_by_it >= TOPICS * PARTITIONS // len(BROKERS) else 0


def test_ten_thousand_partitions(tmp_path: Path, benchmark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    processes = {
        n: replog.BrokerProcess(
            n, data=tmp_path / f"b{n}", store=f"file://{tmp_path / 'store.db'}", config={"session_ms": SESSION_MS}, http="127.0.0.1:0"
        )
        for n in BROKERS
    }  # fmt: skip
    figures: dict[str, float] = {}
    with ExitStack() as stack:
        for process in processes.values():
            stack.enter_context(process)
        bare = {n: rss_bytes(process.pid) for n, process in processes.items()}
        client = stack.enter_context(replog.connect([process.endpoint for process in processes.values()]))
        for number in range(TOPICS):
            client.create_topic(f"t{number}", partitions=PARTITIONS, replication_factor=3, min_isr=2, timeout_s=PATIENCE_S)
        eventually(lambda: led(client, by=set(BROKERS)), PATIENCE_S, every_s=0.5)

        before = {n: (cpu_s(process.pid), stalls(process)) for n, process in processes.items()}
        begun = time.monotonic()
        eventually(lambda: time.monotonic() - begun >= REST_S, REST_S + 10, every_s=0.5)
        took = time.monotonic() - begun
        figures["idle_core"] = max((cpu_s(p.pid) - before[n][0]) / took for n, p in processes.items())
        figures["stall_p999_s"] = max(within(before[n][1], stalls(p), 0.999) for n, p in processes.items())
        grown = max(rss_bytes(process.pid) - bare[n] for n, process in processes.items())
        figures["kib_per_copy"] = grown / (TOPICS * PARTITIONS) / 1_024

        for process in processes.values():
            process.kill()
        begun = time.monotonic()
        for process in processes.values():
            process.start(timeout_s=PATIENCE_S)
        client = stack.enter_context(replog.connect([process.endpoint for process in processes.values()]))
        eventually(lambda: led(client, by=set(BROKERS)), PATIENCE_S, every_s=0.2)
        figures["start_s"] = time.monotonic() - begun

        eventually(lambda: led(client, by=set(BROKERS), copies=3), PATIENCE_S, every_s=0.5)
        # Broker 3 came last: the others lead everything.
        figures["leaders"] = eventually(lambda: leads_a_third(client, 3), PATIENCE_S, every_s=0.5)
        processes[3].kill()
        begun = time.monotonic()
        eventually(lambda: led(client, by={1, 2}), PATIENCE_S, every_s=0.2)
        figures["failover_s"] = time.monotonic() - begun - SESSION_MS / 1_000
    benchmark.pedantic(lambda: None)
    targets = [at_most("start_s", 60), at_most("kib_per_copy", 64), at_most("idle_core", 0.2)]
    targets += [at_most("failover_s", 10), at_most("stall_p999_s", 0.1)]
    report(benchmark, capsys, "ten thousand partitions", {**figures, "load": os.getloadavg()[0]}, *targets)
