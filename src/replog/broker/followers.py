"""What a leader knows of its followers, for people who ask why one is not in sync. Answered here, not by the controller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from replog.errors import Code
from replog.messages import Admin, AdminAnswer
from replog.model import PartitionId
from replog.partition.partition import Partition
from replog.partition.replica import NEVER, UNKNOWN

__all__ = ["FOLLOWERS", "followers"]

FOLLOWERS: Final = "followers"
"""The verb of an Admin that the leader of a partition answers itself."""


def followers(asked: Admin, partitions: Mapping[PartitionId, Partition], now_ms: int) -> AdminAnswer:
    """`topic_id` (hexadecimal), `partition`, `creation`: how far each follower is, how long behind, and what keeps it out."""
    try:
        identity = PartitionId(bytes.fromhex(asked.arguments["topic_id"]), asked.arguments["partition"], asked.arguments["creation"])
        partition = partitions.get(identity)
    except (KeyError, TypeError, ValueError):
        return AdminAnswer(asked.request, Code.INVALID_REQUEST, f"these do not name a partition: {asked.arguments!r}")
    if partition is None or partition.leading is None:
        return AdminAnswer(asked.request, Code.NOT_LEADER_OR_FOLLOWER, "it is not led here")
    leading, end = partition.leading, partition.log.end_offset
    found: list[dict[str, Any]] = []
    for broker_id, replica in sorted(leading.replicas.items()):
        in_sync = broker_id in leading.isr.isr
        caught_up = replica.end_offset == end
        lag_ms = 0 if caught_up else None if replica.caught_up_ms == NEVER else max(now_ms - replica.caught_up_ms, 0)
        found.append({
            "broker": broker_id,
            "in_sync": in_sync,
            "end_offset": None if replica.end_offset == UNKNOWN else replica.end_offset,
            "lag_ms": lag_ms,
            "why": "" if in_sync else leading.refusal(replica, now_ms) or "it is about to join",
        })
    result = {"leader_epoch": leading.leader_epoch, "end_offset": end, "high_watermark": leading.high_watermark, "followers": found}
    return AdminAnswer(asked.request, Code.NONE, result=result)
