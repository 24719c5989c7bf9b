"""Three broker processes against three processes that only copy, checksum and acknowledge: what is replog's, and what is any Python's.

Run with `pytest benchmarks/test_bare_replication.py --benchmark-enable -s`. `bare_replication.py` is the least of this shape: a leader, two
followers that fetch, one partition. Rounds take turns in one run. `bare_ack_over_tcp` is how many TCP round trips its
acknowledgement takes, and no replication that fetches takes fewer; `..._of_bare` is replog's share of its rate.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.bare_replication import BareClient, bare_replication
from benchmarks.measuring import in_turns, last_percent, raw_peer, report, times_of
from benchmarks.peers.comparison import BATCH, IN_FLIGHT, RECORD, bulk, client_of_brokers

import replog
from replog.records import encode_values

pytestmark = pytest.mark.processes

ROUNDS = 10
ACKS = 300
TURNS = 10

Both = tuple[replog.Client, BareClient]


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Both]:
    """A client of three brokers, and one of three processes that only copy."""
    with client_of_brokers(tmp_path / "brokers") as client, bare_replication(tmp_path / "bare") as bare:
        yield client, bare


def test_acknowledgement(benchmark: Any, capsys: Any, both: Both) -> None:
    """100 bytes at a time."""
    client, bare = both
    body = os.urandom(RECORD)
    batch = bare.packed(body)
    taken: dict[str, list[float]] = {"replog": [], "bare": [], "tcp": []}
    with client.producer(compression=None) as producer, raw_peer(RECORD) as peer:

        def trip() -> None:
            peer.sendall(body)
            peer.recv(1)

        loops = {
            "replog": lambda: producer.send("t", body, partition=0).result(),
            "bare": lambda: bare.append([batch], 1),
            "tcp": trip,
        }
        for loop in loops.values():
            times_of(loop, ACKS)
        for _ in range(ROUNDS):
            for name, loop in loops.items():
                taken[name] += times_of(loop, ACKS)
    medians = {name: statistics.median(times) for name, times in taken.items()}
    figures = {f"{name}_us": value * 1e6 for name, value in medians.items()}
    figures |= {f"{name}_p99_us": last_percent(times) * 1e6 for name, times in taken.items()}
    figures |= {f"{name}_ack_over_tcp": medians[name] / medians["tcp"] for name in ("replog", "bare")}
    figures["ack_of_bare"] = medians["bare"] / medians["replog"]
    benchmark.pedantic(lambda: None, rounds=1)
    report(benchmark, capsys, "an acknowledgement / that of bare replication", figures)


@pytest.mark.parametrize("size", [RECORD, BATCH], ids=["records", "opaque"])
def test_bulk(benchmark: Any, capsys: Any, both: Both, size: int) -> None:
    """32 batches of 16 KiB under way, of records of 100 bytes or of one record. The bare client's are packed beforehand; `pack_us` is
    what packing one takes."""
    client, bare = both
    with bulk(client, TURNS, size) as (values, ours):
        per_batch = BATCH // size
        rows = [values[at : at + per_batch] for at in range(0, len(values), per_batch)]
        batches = [bare.packed(b"".join(row)) for row in rows]
        pairs = in_turns(ours, lambda: bare.append(batches, IN_FLIGHT), ROUNDS)
    packing = statistics.median(times_of(lambda: encode_values(rows[0], now_ms=1, checked=True), 200))
    mine, other = (statistics.median(side) / len(batches) for side in zip(*pairs, strict=True))
    figures = {"of_bare": other / mine, "replog_us": mine * 1e6, "bare_us": other * 1e6, "pack_us": packing * 1e6}
    benchmark.pedantic(lambda: None, rounds=1)
    report(benchmark, capsys, "a batch of many under way / that of bare replication", figures)
