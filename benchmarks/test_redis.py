"""Three broker processes against Redis: one primary, two replicas, pipelined XADD and WAIT 2. Rounds take turns in one run.

Run with `pytest benchmarks/test_redis.py --benchmark-enable -s`; without `redis-server` on PATH (Debian: the package of that name)
it is skipped. Both sides have three copies in the page cache before they answer, one client each, and the same processors.
A megabyte is 10^6 bytes of values. Medians of the rounds, and their range.

There are two ways to be Redis here. `records`: each record of 100 bytes is an entry of the stream, as each is a record of the
log; the target of 25 is about this one. `opaque`: the client packs 16 KiB into one entry, and Redis knows nothing of what is in it.
"""

from __future__ import annotations

import os
import shutil
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.measuring import brokers, in_turns, report, timed
from benchmarks.redis_servers import Redis, redis_servers

import replog
from replog.client.producer import ROW_BYTES

SERVER = shutil.which("redis-server")
ROUNDS = 40
ACKS = 200
BATCH = 16 << 10
IN_FLIGHT = 32
PARTITIONS = 8
RECORD = 100

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(SERVER is None, reason="there is no redis-server on PATH to compare with (Debian: apt-get install redis-server)"),
]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[replog.Client, Redis]]:
    """A client of three brokers with a topic `t`, and a connection to a primary with two replicas."""
    folder: Path = tmp_path_factory.mktemp("both")
    with brokers(folder) as endpoints, replog.connect(endpoints) as client, redis_servers(SERVER or "", folder) as redis:
        client.create_topic("t", partitions=PARTITIONS)
        yield client, redis


def ratios(pairs: list[tuple[float, float]]) -> dict[str, float]:
    """How many times as fast as Redis."""
    each = [theirs / mine for mine, theirs in pairs]
    return {"ratio": statistics.median(each), "ratio_min": min(each), "ratio_max": max(each)}


@pytest.mark.parametrize("entries", ["records", "opaque"])
def test_batches_in_flight(benchmark: Any, capsys: Any, both: tuple[replog.Client, Redis], entries: str) -> None:
    """32 batches of 16 KiB under way at a time, against the same bytes pipelined and waited for. Target: at least 25 for records."""
    client, redis = both
    size = RECORD if entries == "records" else BATCH
    per_batch = BATCH // size
    per_partition = IN_FLIGHT // PARTITIONS * per_batch
    parts = [[os.urandom(size) for _ in range(per_partition)] for _ in range(PARTITIONS)]
    values = [value for part in parts for value in part]
    producer = client.producer(compression=None, batch_bytes=per_batch * (size + ROW_BYTES))

    def ours() -> None:
        for number, part in enumerate(parts):
            producer.send_many("t", part, partition=number)
        producer.flush()

    pairs = in_turns(ours, lambda: redis.append(values), ROUNDS, before=redis.forget)
    producer.close()
    benchmark.pedantic(lambda: None, rounds=1)
    megabytes = size * len(values) / 1e6
    figures = {
        "replog_mb_per_s": megabytes / statistics.median(mine for mine, _ in pairs),
        "redis_mb_per_s": megabytes / statistics.median(theirs for _, theirs in pairs),
    }
    name = f"16 KiB batches, 32 in flight, RF 3, acks=all / Redis pipelined + WAIT 2, {entries}"
    report(benchmark, capsys, name, ratios(pairs) | figures)


def test_acknowledgement(benchmark: Any, capsys: Any, both: tuple[replog.Client, Redis]) -> None:
    """100 bytes appended and acknowledged, one after the other, against XADD and WAIT 2. Less is better."""
    client, redis = both
    body = os.urandom(RECORD)
    calls: dict[str, Callable[[], object]] = {"replog": lambda: client.append("t", 0, [body]), "redis": lambda: redis.append([body])}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS // 4 + 1):
        for name, call in calls.items():
            samples[name] += [timed(call) for _ in range(ACKS)]
    redis.forget()
    benchmark.pedantic(lambda: None, rounds=1)
    taken = {name: kept[ACKS:] for name, kept in samples.items()}  # without the round that warms up
    middle = {name: statistics.median(kept) * 1e6 for name, kept in taken.items()}
    last = {f"{name}_p99_us": statistics.quantiles(kept, n=100)[98] * 1e6 for name, kept in taken.items()}
    figures = {"times_redis": middle["replog"] / middle["redis"]} | {f"{name}_us": value for name, value in middle.items()}
    report(benchmark, capsys, "100 bytes, RF 3, acks=all / Redis XADD + WAIT 2", figures | last)
