"""Three broker processes against Redis: one primary, two replicas, pipelined XADD and WAIT 2. Rounds take turns in one run.

Run with `pytest benchmarks/test_redis.py --benchmark-enable -s`, or all peers with `make bench-peers`. Both sides have three copies in
the page cache before they answer, one client each, and the same processors. A megabyte is 10^6 bytes of values. Medians of the
rounds, and their range.

There are two ways to be Redis here. `records`: each record of 100 bytes is an entry of the stream, as each is a record of the
log. `opaque`: the client packs 16 KiB into one entry, and Redis knows nothing of what is in it.

What caps these ratios takes turns with both: the least that three processes in Python can do for the same bytes (`bare_replication.py`).
`bare_ratio` is how many times as fast as Redis that is, and `replog_of_bare` is replog's share of its rate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from benchmarks.bare_replication import BareClient, bare_replication
from benchmarks.peers.comparison import BATCH, IN_FLIGHT, RECORD, bulk, client_of_brokers, compare_acknowledgements, compare_bulk
from benchmarks.peers.redis import NEEDS, Redis, redis_servers

import replog

ROUNDS = 15
TURNS = 10
ACK_ROUNDS = 10
ACKS = 200

pytestmark = [pytest.mark.processes, pytest.mark.skipif(bool(NEEDS.missing()), reason=NEEDS.missing())]

All = tuple[replog.Client, Redis, BareClient]


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[All]:
    """A client of three brokers, a connection to a primary with two replicas, and a client of three processes that only copy."""
    folder = tmp_path_factory.mktemp("redis")
    with client_of_brokers(folder) as client, redis_servers(folder) as redis, bare_replication(folder / "bare") as bare:
        yield client, redis, bare


def compare_with_pipeline(
    benchmark: Any, capsys: Any, sides: All, what: str, values: Sequence[bytes], ours: Callable[[], None], target: float
) -> None:
    """Against one pipeline of all values, and against bare replication of the same bytes, 32 batches of 16 KiB under way."""
    _, redis, bare = sides
    joined = b"".join(values)
    batches = [bare.packed(joined[at : at + BATCH]) for at in range(0, len(joined), BATCH)]
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
        bare=lambda: bare.append(batches, IN_FLIGHT),
    )


@pytest.mark.parametrize(("entries", "size", "target"), [("records", RECORD, 60), ("opaque", BATCH, 2.5)], ids=["records", "opaque"])
def test_batches_in_flight(benchmark: Any, capsys: Any, sides: All, entries: str, size: int, target: float) -> None:
    """32 batches of 16 KiB under way all the time, against the same bytes pipelined. Targets: at least 60 for records, 2.5 for opaque."""
    with bulk(sides[0], TURNS, size) as (values, ours):
        compare_with_pipeline(benchmark, capsys, sides, entries, values, ours, target)


@pytest.mark.parametrize(("call", "target"), [("send", 10), ("send_many", 40)], ids=["send", "send_many"])
def test_calls(benchmark: Any, capsys: Any, sides: All, call: str, target: float) -> None:
    """A call for each record, or one for all, of a producer as it is by default. Targets: at least 10 for send, 40 for send_many."""
    client = sides[0]
    with bulk(client, TURNS) as (values, _), client.producer() as producer:

        def each() -> None:
            for value in values:
                producer.send("t", value)
            producer.flush()

        def together() -> None:
            producer.send_many("t", values)
            producer.flush()

        ours = each if call == "send" else together
        compare_with_pipeline(benchmark, capsys, sides, f"records / producer.{call}", values, ours, target)


def test_acknowledgement(benchmark: Any, capsys: Any, sides: All) -> None:
    """100 bytes appended and acknowledged, one after the other, against XADD and WAIT 2. Target: at least 1.25 (0.80 of its time)."""
    client, redis, bare = sides
    compare_acknowledgements(
        benchmark, capsys, client, "redis XADD + WAIT 2", redis.append_each, acks=ACKS, rounds=ACK_ROUNDS, target=1.25, bare=bare
    )
    redis.forget()
