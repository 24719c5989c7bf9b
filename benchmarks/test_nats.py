"""Three broker processes against NATS JetStream: three servers, a stream of three replicas in files. Rounds take turns in one run.

Run with `pytest benchmarks/test_nats.py --benchmark-enable -s`, or all peers with `make bench-peers`. JetStream acknowledges once a quorum
has a message, replog once all in-sync replicas have it. The client is nats-py, connected to the server that leads the stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from benchmarks.peers.comparison import bulk, client_of_brokers, compare_acknowledgements, compare_bulk
from benchmarks.peers.nats import NEEDS, WINDOW, JetStream, jetstream_servers

import replog

ROUNDS = 7
TURNS = 4
ACKS = 200

pytestmark = [pytest.mark.processes, pytest.mark.skipif(bool(NEEDS.missing()), reason=NEEDS.missing())]

Both = tuple[replog.Client, JetStream]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """A client of three brokers, and a connection to the leader of a stream."""
    folder = tmp_path_factory.mktemp("nats")
    with client_of_brokers(folder) as client, jetstream_servers(folder) as stream:
        yield client, stream


def test_bulk(benchmark: Any, capsys: Any, both: Both) -> None:
    """Records of 100 bytes, 32 batches of 16 KiB under way, against a window of messages published. Target: at least 400."""
    client, stream = both
    with bulk(client, TURNS) as (values, ours):
        compare_bulk(
            benchmark,
            capsys,
            f"nats publish_async, window {WINDOW}",
            values,
            ours,
            lambda: stream.append(values),
            rounds=ROUNDS,
            target=400,
            before=stream.forget,
        )


def test_acknowledgement(benchmark: Any, capsys: Any, both: Both) -> None:
    """100 bytes appended and acknowledged, one after the other, against a message published."""
    client, stream = both
    compare_acknowledgements(benchmark, capsys, client, "nats publish", stream.append_each, acks=ACKS, rounds=ROUNDS)
