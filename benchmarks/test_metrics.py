"""What counting costs: the same appends with and without the watches beside the actors, in turns, in one run.

Run with `pytest benchmarks/test_metrics.py --benchmark-enable -s`. A ratio of 1.02 says: with metrics it takes 1.02 times as long.
What is measured is processor time: other work on the machine stretches every other clock.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks.measuring import report
from benchmarks.targets import at_most

import replog
from replog.runtime import embedded_brokers, node
from replog.runtime.embedded_broker import EmbeddedBroker

ROUNDS = 2_000
PIPELINED = 8


class Uncounted(EmbeddedBroker):
    """A broker that nobody watches."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **{**named, "meter": None})


def compared(work: Callable[[Any], object], counted: Any, bare: Any, clock: Callable[[], float] = time.thread_time) -> dict[str, float]:
    """Quartiles of the processor time of both, as ratios: they take turns with every piece of work."""
    times: dict[Any, list[float]] = {counted: [], bare: []}
    for number in range(ROUNDS):
        for one in (counted, bare) if number % 2 else (bare, counted):
            started = clock()
            work(one)
            times[one].append(clock() - started)
    (ours, other) = (statistics.quantiles(times[one], n=4) for one in (counted, bare))
    return {
        "ratio": ours[1] / other[1],
        "first quartile": ours[0] / other[0],
        "third quartile": ours[2] / other[2],
        "us": other[1] * 1e6,
        "more_us": (ours[1] - other[1]) * 1e6,
    }


def cluster(folder: Path, monkeypatch: pytest.MonkeyPatch, *, counted: bool) -> replog.Cluster:
    with monkeypatch.context() as patch:
        patch.setattr(embedded_brokers, "EmbeddedBroker", EmbeddedBroker if counted else Uncounted)
        made = replog.Cluster(folder, config={"checkpoint_interval_ms": 600_000}).start()
    made.create_topic("t", min_isr=2)
    return made


@pytest.mark.parametrize("how", ["one at a time", "pipelined"])
def test_appends_in_one_process(benchmark: Any, capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """100 bytes acknowledged one after the other, and batches of 16 KiB in flight: three copies, acks=all."""
    with cluster(tmp_path / "a", monkeypatch, counted=True) as counted, cluster(tmp_path / "b", monkeypatch, counted=False) as bare:
        body, large = b"x" * 100, b"x" * (16 << 10)
        producers = {one: one.producer(compression=None, batch_bytes=len(large) + 200) for one in (counted, bare)}

        def one_at_a_time(one: replog.Cluster) -> None:
            one.append("t", 0, [body])

        def pipelined(one: replog.Cluster) -> None:
            for _ in range(PIPELINED):
                producers[one].send("t", large, partition=0)
            producers[one].flush()

        figures = compared(one_at_a_time if how == "one at a time" else pipelined, counted, bare)
        for producer in producers.values():
            producer.close()
        benchmark.pedantic(lambda: None, rounds=1)
        assert counted.metrics().value("replog_request_seconds", request="produce") > 0
        assert bare.metrics().value("replog_request_seconds", request="produce") == 0
    report(benchmark, capsys, f"appends with metrics / without, one process, {how}", figures, at_most("ratio", 1.03))


def test_acknowledgements_over_tcp(benchmark: Any, capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """100 bytes, acknowledged by a broker over TCP to a client; both take their turns on this thread."""
    made = []
    for counted in (True, False):
        with monkeypatch.context() as patch:
            patch.setattr(node, "EmbeddedBroker", EmbeddedBroker if counted else Uncounted)
            folder = tmp_path / str(counted)
            folder.mkdir()
            broker = replog.Broker(1, listen="tcp://127.0.0.1:0", data=folder / "b", store=f"file://{folder / 's.db'}").start()
            made.append((broker.wait_until_ready(), broker.client()))
            made[-1][1].create_topic("t", replication_factor=1)

    def append(client: Any) -> None:
        client.append("t", 0, [b"x" * 100])

    figures = compared(append, made[0][1], made[1][1], clock=time.process_time)  # of its thread and of the broker's
    for broker, client in made:
        client.close()
        broker.stop()
    benchmark.pedantic(lambda: None, rounds=1)
    report(benchmark, capsys, "acknowledgements over TCP, with metrics / without", figures, at_most("ratio", 1.03))


def test_snapshots_of_ten_thousand_partitions(benchmark: Any, capsys: Any) -> None:
    """How long a snapshot, and a page of the status as JSON, take, and how large they are."""
    import json

    from replog.metrics.text import prometheus_text
    from replog.status import source
    from replog.status.source import Query, Source

    with replog.Cluster(brokers=3) as many:
        many.create_topic("many", partitions=10_000, replication_factor=3, min_isr=2)
        figures: dict[str, float] = {}

        def took(name: str, work: Any) -> Any:
            times = []
            for _ in range(5):
                started = time.perf_counter()
                value = work()
                times.append(time.perf_counter() - started)
            figures[f"{name}_ms"] = statistics.median(times) * 1e3
            return value

        figures["metrics_kib"] = len(prometheus_text(took("metrics", many.metrics))) / 1024
        took("metrics_of_each", lambda: many.metrics(partitions=True))
        source.FRESH_S, kept = -1.0, source.FRESH_S
        try:
            asked = Source(many.metrics, lambda: many, lambda: [], owner=many)
            figures["status_kib"] = len(json.dumps(took("status", lambda: asked.status(Query())))) / 1024
            many.kill_broker(3)
            figures["status_unhealthy_kib"] = len(json.dumps(took("status_unhealthy", lambda: asked.status(Query())))) / 1024
        finally:
            source.FRESH_S = kept
        benchmark.pedantic(lambda: None, rounds=1)
    report(benchmark, capsys, "10,000 partitions, three replicas, one process", figures)
