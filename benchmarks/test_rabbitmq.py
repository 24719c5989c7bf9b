"""Three broker processes against RabbitMQ streams: three nodes, a stream of three replicas. Rounds take turns in one run.

Run with `pytest benchmarks/test_rabbitmq.py --benchmark-enable -s`, or all peers with `make bench-peers`. A stream confirms once a quorum
has a record, replog acknowledges once all in-sync replicas have it. The client is rstream.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from benchmarks.peers.comparison import bulk, client_of_brokers, compare_acknowledgements, compare_bulk
from benchmarks.peers.rabbitmq import NEEDS, Stream, rabbitmq_servers

import replog

ROUNDS = 5
TURNS = 40
ACKS = 200

pytestmark = [pytest.mark.processes, pytest.mark.skipif(bool(NEEDS.missing()), reason=NEEDS.missing())]

Both = tuple[replog.Client, Stream]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """A client of three brokers, and a producer of a stream."""
    folder = tmp_path_factory.mktemp("rabbitmq")
    with client_of_brokers(folder) as client, rabbitmq_servers(folder) as stream:
        yield client, stream


@pytest.mark.parametrize("mode", ["records", "sub-entries"])
def test_bulk(benchmark: Any, capsys: Any, both: Both, mode: str) -> None:
    """Records of 100 bytes, 32 batches of 16 KiB under way, against a stream. Target: at least 40 for the faster mode."""
    client, stream = both
    with bulk(client, TURNS) as (values, ours):
        name = f"rabbitmq stream, {mode}"
        compare_bulk(benchmark, capsys, name, values, ours, lambda: stream.append(values, mode), rounds=ROUNDS, target=40)


def test_acknowledgement(benchmark: Any, capsys: Any, both: Both) -> None:
    """100 bytes appended and acknowledged, one after the other, against a record sent and confirmed."""
    client, stream = both
    compare_acknowledgements(benchmark, capsys, client, "rabbitmq stream, send_wait", stream.append_each, acks=ACKS, rounds=ROUNDS)
