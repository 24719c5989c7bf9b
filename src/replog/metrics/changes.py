"""What a view of the cluster changes: who leads now, and who is in sync."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import define, field

from replog.messages import ClusterView, PartitionView, TopicView

__all__ = ["Changes", "changes_of"]


@define
class Changes:
    """The differences, as plain values."""

    elections: list[dict[str, Any]] = field(factory=list)
    """Partitions that a new leader epoch has begun for: `topic`, `partition`, `leader`, `before`, `leader_epoch`."""
    isrs: list[dict[str, Any]] = field(factory=list)
    """Partitions with another ISR: `topic`, `partition`, `isr`, `left`, `joined`, `partition_epoch`."""
    shrinks: int = 0
    """Partitions whose ISR somebody has left."""
    expands: int = 0
    """Partitions whose ISR somebody has joined."""


def changes_of(known: Mapping[bytes, TopicView], view: ClusterView) -> Changes:
    """What `view`, a delta or complete, says otherwise than `known`. What is new, or made again, has not changed."""
    found = Changes()
    for topic in view.topics:
        before = known.get(topic.topic_id)
        if before is None:
            continue
        by_number: dict[int, PartitionView] | None = None
        for now in topic.partitions:
            old = before.partitions[now.partition] if now.partition < len(before.partitions) else None
            if old is None or old.partition != now.partition:  # a view may leave partitions out
                by_number = {one.partition: one for one in before.partitions} if by_number is None else by_number
                old = by_number.get(now.partition)
            if old is not None and old is not now and old.creation == now.creation:
                _compare(found, topic.topic, old, now)
    return found


def _compare(found: Changes, topic: str, old: PartitionView, now: PartitionView) -> None:
    place = {"topic": topic, "partition": now.partition}
    if now.leader is not None and now.leader_epoch > old.leader_epoch:
        found.elections.append({**place, "leader": now.leader, "before": old.leader, "leader_epoch": now.leader_epoch})
    if now.isr != old.isr:
        left, joined = [b for b in old.isr if b not in now.isr], [b for b in now.isr if b not in old.isr]
        found.isrs.append({**place, "isr": list(now.isr), "left": left, "joined": joined, "partition_epoch": now.partition_epoch})
        found.shrinks += bool(left)
        found.expands += bool(joined)
