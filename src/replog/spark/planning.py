"""Which offsets a task reads, and how far a micro-batch goes: arithmetic on offsets, as Spark's Kafka connector does it.

Plain numbers in and out; nobody is asked. The same numbers give the same plan: a micro-batch that is replayed is sliced as before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from attrs import evolve, frozen

from replog.model import PartitionId, TopicPartition
from replog.spark.offsets import Positions

__all__ = ["OffsetRange", "by_bytes", "by_records", "split"]


@frozen
class OffsetRange:
    """What one task reads: [start, stop) of one log, all of it committed when this was planned."""

    place: TopicPartition
    identity: PartitionId
    start: int
    stop: int
    leader_epoch: int
    """Under which `stop` was known to be committed."""
    known_at: tuple[int, int] = (-1, -1)
    """Controller epoch and version of what the planner knew of the cluster: who knows less cannot say that the log is gone."""

    @property
    def size(self) -> int:
        """Offsets, of which some may hold no record."""
        return self.stop - self.start


def split(ranges: Sequence[OffsetRange], min_partitions: int | None, max_records: int | None) -> list[OffsetRange]:
    """Cut ranges so that none has more than `max_records` offsets, and so that there are about `min_partitions` of them.

    Empty ranges are left out. Large ranges are cut in proportion to their size; a small one stays whole.
    """
    kept = [one for one in ranges if one.size > 0]
    if max_records is not None:
        kept = [piece for one in kept for piece in _cut(one, -(-one.size // max_records))]
    if min_partitions is None or min_partitions <= len(kept):
        return kept
    total = sum(one.size for one in kept)
    whole = [_parts(one.size, total, min_partitions) == 1 for one in kept]
    left = total - sum(one.size for one, is_whole in zip(kept, whole, strict=True) if is_whole)
    wanted = max(min_partitions - sum(whole), 1)
    pieces: list[OffsetRange] = []
    for one, is_whole in zip(kept, whole, strict=True):
        pieces += [one] if is_whole else _cut(one, _parts(one.size, left, wanted))
    return pieces


def _parts(size: int, total: int, wanted: int) -> int:
    """How many of `wanted` pieces fall to a range; rounded half up, as the JVM rounds."""
    return max(math.floor(size / total * wanted + 0.5), 1)


def _cut(one: OffsetRange, parts: int) -> list[OffsetRange]:
    """Into so many pieces whose sizes differ by one at most; none is empty."""
    parts = min(parts, one.size)
    marks = [one.start + one.size * n // parts for n in range(parts + 1)]
    return [evolve(one, start=low, stop=high) for low, high in pairwise(marks)]


def by_records(start: Mapping[TopicPartition, int], latest: Positions, limit: int) -> Positions:
    """Where a micro-batch of about `limit` offsets ends: shared in proportion to what there is to be read.

    A partition that has anything gets one offset at least, so that none starves: with more of them than `limit` there are more.
    """
    behind = {place: latest[place] - start[place] for place in latest if latest[place] > start[place]}
    total = sum(behind.values())
    ends = dict(latest)
    if total > limit:
        for place, size in behind.items():
            share = limit * size / total
            ends[place] = min(latest[place], start[place] + (math.ceil(share) if share < 1 else math.floor(share)))
    return ends


def by_bytes(start: Mapping[TopicPartition, int], latest: Positions, limit: int, record_bytes: Mapping[TopicPartition, float]) -> Positions:
    """The same for about `limit` bytes, where `record_bytes` says how large a record is in the mean."""
    behind = {place: (latest[place] - start[place]) * record_bytes[place] for place in latest if latest[place] > start[place]}
    total = sum(behind.values())
    ends = dict(latest)
    if total > limit:
        for place, size in behind.items():
            share = int(limit * size / total / record_bytes[place])
            ends[place] = min(latest[place], start[place] + max(share, 1))
    return ends
