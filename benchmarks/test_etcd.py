"""Three broker processes against etcd: three members, and keys put in transactions. Rounds take turns in one run.

Run with `pytest benchmarks/test_etcd.py --benchmark-enable -s`, or all peers with `make bench-peers`. A member of etcd has what it
acknowledges on disk (fsync), a broker of replog in the page cache: each as it is by default. etcd acknowledges once a quorum has a
transaction. It has no log, so that each record is a key of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from benchmarks.peers.comparison import bulk, client_of_brokers, compare_acknowledgements, compare_bulk
from benchmarks.peers.etcd import NEEDS, TXN_PUTS, Etcd, etcd_servers

import replog

ROUNDS = 7
TURNS = 2
ACKS = 100

pytestmark = [pytest.mark.processes, pytest.mark.skipif(bool(NEEDS.missing()), reason=NEEDS.missing())]

Both = tuple[replog.Client, Etcd]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """A client of three brokers, and a channel to the leader of three members."""
    folder = tmp_path_factory.mktemp("etcd")
    with client_of_brokers(folder) as client, etcd_servers(folder) as etcd:
        yield client, etcd


@pytest.mark.parametrize("window", [1, 16])
def test_bulk(benchmark: Any, capsys: Any, both: Both, window: int) -> None:
    """Records of 100 bytes, 32 batches of 16 KiB under way, against transactions. Target: at least 250 for the faster window."""
    client, etcd = both
    with bulk(client, TURNS) as (values, ours):
        name = f"etcd transactions of {TXN_PUTS} puts, {window} in flight"
        compare_bulk(benchmark, capsys, name, values, ours, lambda: etcd.append(values, window), rounds=ROUNDS, target=250)


def test_acknowledgement(benchmark: Any, capsys: Any, both: Both) -> None:
    """100 bytes appended and acknowledged, one after the other, against a put."""
    client, etcd = both
    compare_acknowledgements(benchmark, capsys, client, "etcd put", etcd.append_each, acks=ACKS, rounds=ROUNDS)
