"""Three broker processes against PySyncObj: a list that three processes replicate by Raft. Rounds take turns in one run.

Run with `pytest benchmarks/test_pysyncobj.py --benchmark-enable -s`, or all peers with `make bench-peers`. PySyncObj is tuned: it ticks
every 5 ms. It keeps everything in memory, acknowledges once a quorum has an entry, and has its leader in the process that measures.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from benchmarks.peers.comparison import bulk, client_of_brokers, compare_acknowledgements, compare_bulk
from benchmarks.peers.pysyncobj import NEEDS, WINDOW, ReplicatedList, pysyncobj_nodes

import replog

ROUNDS = 7
TURNS = 2
ACKS = 50

pytestmark = [pytest.mark.processes, pytest.mark.skipif(bool(NEEDS.missing()), reason=NEEDS.missing())]

Both = tuple[replog.Client, ReplicatedList]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """A client of three brokers, and the leader of a list."""
    folder = tmp_path_factory.mktemp("pysyncobj")
    with client_of_brokers(folder) as client, pysyncobj_nodes(folder) as entries:
        yield client, entries


def test_bulk(benchmark: Any, capsys: Any, both: Both) -> None:
    """Records of 100 bytes, 32 batches of 16 KiB under way, against a window of entries appended. Target: at least 200."""
    client, entries = both
    with bulk(client, TURNS) as (values, ours):
        name = f"pysyncobj append, window {WINDOW}"
        compare_bulk(benchmark, capsys, name, values, ours, lambda: entries.append(values), rounds=ROUNDS, target=200)


def test_acknowledgement(benchmark: Any, capsys: Any, both: Both) -> None:
    """100 bytes appended and acknowledged, one after the other, against an entry appended."""
    client, entries = both
    compare_acknowledgements(benchmark, capsys, client, "pysyncobj append", entries.append_each, acks=ACKS, rounds=ROUNDS)
