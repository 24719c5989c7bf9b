"""Three broker processes against Redis: one primary, two replicas, pipelined XADD and WAIT 2. Rounds take turns in one run.

Run with `pytest benchmarks/test_redis.py --benchmark-enable -s`, or all peers with `make bench-peers`. Both sides have three copies in
the page cache before they answer, one client each, and the same processors. A megabyte is 10^6 bytes of values. Medians of the
rounds, and their range.

There are two ways to be Redis here. `records`: each record of 100 bytes is an entry of the stream, as each is a record of the
log. `opaque`: the client packs 16 KiB into one entry, and Redis knows nothing of what is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from benchmarks.peers.comparison import BATCH, RECORD, bulk, client_of_brokers, compare_acknowledgements, compare_bulk
from benchmarks.peers.redis import NEEDS, Redis, redis_servers

import replog

ROUNDS = 40
ACK_ROUNDS = 10
ACKS = 200

pytestmark = [pytest.mark.processes, pytest.mark.skipif(bool(NEEDS.missing()), reason=NEEDS.missing())]

Both = tuple[replog.Client, Redis]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """A client of three brokers, and a connection to a primary with two replicas."""
    folder = tmp_path_factory.mktemp("redis")
    with client_of_brokers(folder) as client, redis_servers(folder) as redis:
        yield client, redis


def compare_with_pipeline(
    benchmark: Any, capsys: Any, redis: Redis, what: str, values: Sequence[bytes], ours: Callable[[], None], target: float
) -> None:
    """Against one pipeline of all values."""
    compare_bulk(
        benchmark,
        capsys,
        f"redis pipelined + WAIT 2, {what}",
        values,
        ours,
        lambda: redis.append(values),
        rounds=ROUNDS,
        target=target,
        before=redis.forget,
    )


@pytest.mark.parametrize(("entries", "size", "target"), [("records", RECORD, 60), ("opaque", BATCH, 2.5)], ids=["records", "opaque"])
def test_batches_in_flight(benchmark: Any, capsys: Any, both: Both, entries: str, size: int, target: float) -> None:
    """32 batches of 16 KiB under way at a time, against the same bytes pipelined. Targets: at least 60 for records, 2.5 for opaque."""
    client, redis = both
    with bulk(client, 1, size) as (values, ours):
        compare_with_pipeline(benchmark, capsys, redis, entries, values, ours, target)


@pytest.mark.parametrize(("call", "target"), [("send", 10), ("send_many", 40)], ids=["send", "send_many"])
def test_calls(benchmark: Any, capsys: Any, both: Both, call: str, target: float) -> None:
    """A call for each record, or one for all, of a producer as it is by default. Targets: at least 10 for send, 40 for send_many."""
    client, redis = both
    with bulk(client, 1) as (values, _), client.producer() as producer:

        def each() -> None:
            for value in values:
                producer.send("t", value)
            producer.flush()

        def together() -> None:
            producer.send_many("t", values)
            producer.flush()

        ours = each if call == "send" else together
        compare_with_pipeline(benchmark, capsys, redis, f"producer.{call}", values, ours, target)


def test_acknowledgement(benchmark: Any, capsys: Any, both: Both) -> None:
    """100 bytes appended and acknowledged, one after the other, against XADD and WAIT 2. Target: at least 1.25."""
    client, redis = both
    compare_acknowledgements(
        benchmark, capsys, client, "redis XADD + WAIT 2", redis.append_each, acks=ACKS, rounds=ACK_ROUNDS, target=1.25
    )
    redis.forget()
