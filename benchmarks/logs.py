"""What the benchmarks of one log share: batches, and a comparison with the physical limit in turns."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from typing import Any

from benchmarks.measuring import in_turns, report
from benchmarks.targets import Target

from replog.model import PartitionId
from replog.ports import Log
from replog.records import RecordBatch, encode_records

__all__ = ["IDENTITY", "ROUND_BYTES", "body_of", "compare", "stamped"]

ROUNDS = 15
ROUND_BYTES = 16 << 20
"""Little enough that the disk's own speed does not come into it: the limit is the page cache."""
IDENTITY = PartitionId(bytes(16), 0, 0)


def compare(
    benchmark: Any,
    capsys: Any,
    name: str,
    ours: Callable[[], object],
    limit: Callable[[], object],
    unit: int,
    *targets: Target,
    before: Callable[[], object] = lambda: None,
) -> None:
    """Measure both in turns, each time after `before`; `unit` is how many operations one loop has. `ratio`: share of the limit's rate."""
    pairs = in_turns(ours, limit, ROUNDS, before=before)
    figures = {
        "ratio": statistics.median(bare / mine for mine, bare in pairs),
        "us": statistics.median(mine for mine, _ in pairs) / unit * 1e6,
        "over_us": statistics.median(mine - bare for mine, bare in pairs) / unit * 1e6,
    }
    report(benchmark, capsys, name, figures, *targets)
    before()
    benchmark.pedantic(ours, rounds=1)


def body_of(size: int) -> bytes:
    """A batch body of about so many bytes that does not compress."""
    return encode_records([os.urandom(max(1, size - 120))], now_ms=0)


def stamped(log: Log, body: bytes, count: int, rounds: int) -> list[list[RecordBatch]]:
    """Batches for several rounds of appends."""
    offset, made = log.end_offset, []
    for _ in range(rounds):
        batches = []
        for _ in range(count):
            batch = RecordBatch(body)
            batch.stamp(IDENTITY, offset, 3)
            offset += 1
            batches.append(batch)
        made.append(batches)
    return made
