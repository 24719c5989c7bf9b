"""What one broker has, for people: its copies of partitions."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import frozen

from replog.partition.partition import Partition

__all__ = ["LocalPartition", "local_partitions"]


@frozen
class LocalPartition:
    """What one broker has of one partition."""

    topic: str
    partition: int
    role: str
    """"leader", "follower", "idle", or "failed"."""
    leader_epoch: int
    start_offset: int
    high_watermark: int
    end_offset: int


def local_partitions(partitions: Iterable[Partition]) -> list[LocalPartition]:
    """Each of them as it is now, in order of topic and partition. Called under the lock of the broker that has them."""
    here = (
        LocalPartition(
            p.topic,
            p.identity.partition,
            "failed" if p.failed else p.role,
            p.leader_epoch,
            p.log.start_offset,
            p.high_watermark,
            p.log.end_offset,
        )
        for p in partitions
    )
    return sorted(here, key=lambda p: (p.topic, p.partition))
