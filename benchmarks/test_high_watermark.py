"""How fast a leader applies followers' positions, against the bare loop of two comparisons in the same run.

Run with `pytest benchmarks/test_high_watermark.py --benchmark-enable -s`. `cap`: two calls of methods that do nothing, for each position,
as a share of the bare loop's rate. A leader has two to make (it notes the position, then it looks whether the mark may move): that is what
Python leaves of the bare loop before either has done anything.
"""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.measuring import report, timed
from benchmarks.targets import at_least, at_most

from replog.config import BrokerConfig, TopicConfig
from replog.log.memory import MemoryLog
from replog.messages import FetchEntry
from replog.model import Assignment, BrokerInfo, PartitionId, PartitionState
from replog.partition.leading import Leading
from replog.partition.replica import Contact
from replog.records import RecordBatch, encode_records

ROUNDS = 7


def leading(number: int, brokers: dict[int, BrokerInfo]) -> Leading:
    """A leader of three replicas with a long log."""
    identity = PartitionId(bytes(16), number, 0)
    log = MemoryLog(identity)
    state = PartitionState(1, 1, (1, 2, 3))
    config = TopicConfig(min_isr=2)
    lead = Leading(
        1,
        log,
        state=state,
        assignment=Assignment((1, 2, 3)),
        config=config,
        limits=BrokerConfig(),
        brokers=brokers,
        high_watermark=0,
        now_ms=0,
    )
    batch = RecordBatch(encode_records([b"x"] * 10, now_ms=0))
    batch.stamp(identity, 0, 1)
    log.append(batch)
    return lead


class Idle:
    """Two methods with the parameters of a leader's, which do nothing."""

    def acknowledge(self, broker: int, epoch: int, entry: FetchEntry, contact: Contact, now_ms: int) -> None:
        pass

    def advance(self, now_ms: int) -> None:
        pass


def bare(count: int) -> float:
    """Positions per second of the loop of two comparisons."""
    ends = [(10, 10, 10)] * count

    def loop() -> int:
        moved = 0
        for mine, second, third in ends:
            low = mine
            if second < low:
                low = second
            if third < low:
                low = third
            moved = low
        return moved

    return count / timed(loop)


def empty_calls(count: int) -> float:
    """Positions per second if nothing is done for each but two calls."""
    entry = FetchEntry(PartitionId(bytes(16), 0, 0), 1, 10, 1, 1 << 20)
    work, contact = [(Idle(), entry, 2)] * count, Contact()

    def loop() -> None:
        for lead, entry, broker in work:
            lead.acknowledge(broker, 1, entry, contact, 5)
            lead.advance(5)

    return count / timed(loop)


def test_high_watermark(benchmark: Any, capsys: Any) -> None:
    """With ten partitions and with 10,000."""
    brokers = {b: BrokerInfo(b, 1) for b in (1, 2, 3)}
    contact = Contact()
    rates: dict[str, list[float]] = {"10": [], "10000": [], "bare": [], "empty": []}
    count = 20_000
    leads = {"10": [leading(n, brokers) for n in range(10)], "10000": [leading(n, brokers) for n in range(10_000)]}

    def positions(name: str) -> float:
        group = leads[name]
        entries = [FetchEntry(lead.log.identity, 1, 10, 1, 1 << 20) for lead in group]
        work = [(group[i % len(group)], entries[i % len(group)], 2 + i // len(group) % 2) for i in range(count)]
        for lead in group:
            lead.high_watermark = 0

        def loop() -> None:
            for lead, entry, broker in work:
                lead.acknowledge(broker, 1, entry, contact, 5)
                lead.advance(5)

        return count / timed(loop)

    for _ in range(ROUNDS):
        for name in leads:
            rates[name].append(positions(name))
        rates["bare"].append(bare(count))
        rates["empty"].append(empty_calls(count))
    benchmark.pedantic(lambda: None, rounds=1)
    middle = {name: statistics.median(values) for name, values in rates.items()}
    report(benchmark, capsys, "follower positions applied / the bare two-compare loop", {
        "ratio": middle["10"] / middle["bare"],
        "cap": middle["empty"] / middle["bare"],
        "of_cap": middle["10"] / middle["empty"],
        "millions_per_s": middle["10"] / 1e6,
        "cost_10000_over_10": middle["10"] / middle["10000"],
    }, at_least("ratio", 0.20), at_most("cost_10000_over_10", 1.1))
