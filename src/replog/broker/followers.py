"""What a leader knows of its followers, for whoever asks why one is not in sync, or how far a move is. No controller is asked.

And how far the other copies of the broker that is asked reach: where nobody leads, nobody else knows that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from replog.errors import Code
from replog.messages import Admin, AdminAnswer
from replog.model import PartitionId
from replog.partition.leading import Leading
from replog.partition.partition import Partition
from replog.partition.replica import NEVER, UNKNOWN, Replica

__all__ = ["FOLLOWERS", "followers"]

FOLLOWERS: Final = "followers"
"""The verb of an Admin that the broker that is asked answers itself, and never passes on."""
_PARTITIONS_MAX: Final = 1_000


def followers(asked: Admin, partitions: Mapping[PartitionId, Partition], now_ms: int) -> AdminAnswer:
    """`partitions` is a list of [topic id (hexadecimal), partition, creation]; the answer has those that this broker leads,
    and under `copies`, if there are any, the end of those that it only has. Nothing of one that has failed.

    Of each follower: how far it is (None: it has fetched nothing in this leadership), for how many ms it has not been caught up (None:
    never was), about how many bytes it lacks, as the offsets that it lacks have their share of the log, and what keeps it out of the ISR.
    """
    names = asked.arguments.get("partitions")
    if not isinstance(names, list | tuple) or len(names) > _PARTITIONS_MAX:
        text = f"partitions is a list of up to {_PARTITIONS_MAX} [topic id, partition, creation]"
        return AdminAnswer(asked.request, Code.INVALID_REQUEST, text)
    found: list[dict[str, Any]] = []
    copies: list[dict[str, Any]] = []
    for name in names:
        partition = partitions.get(_identity(name))
        if partition is None:
            continue
        place = dict(zip(("topic_id", "partition", "creation"), name, strict=True))
        if partition.leading is not None:
            found.append(place | _told(partition, partition.leading, now_ms))
        elif partition.failed is None:
            copies.append(place | {"end_offset": partition.log.end_offset})
    return AdminAnswer(asked.request, Code.NONE, result={"partitions": found} | ({"copies": copies} if copies else {}))


def _identity(name: Any) -> PartitionId:
    """The partition of this name; one that nobody has if it is no name."""
    # As whoever may ask about a topic is judged (`security.roles.topics_of`): a map has keys in this order, too, and names nothing there.
    if isinstance(name, list | tuple) and len(name) == 3:
        topic_id, number, creation = name
        if isinstance(topic_id, str) and type(number) is int and type(creation) is int:
            try:
                return PartitionId(bytes.fromhex(topic_id), number, creation)
            except ValueError:
                pass
    return PartitionId(b"", -1, -1)


def _told(partition: Partition, leading: Leading, now_ms: int) -> dict[str, Any]:
    known = [_follower(partition, leading, broker_id, replica, now_ms) for broker_id, replica in sorted(leading.replicas.items())]
    return {
        "leader_epoch": leading.leader_epoch,
        "end_offset": partition.log.end_offset,
        "high_watermark": leading.high_watermark,
        "followers": known,
    }


def _follower(partition: Partition, leading: Leading, broker_id: int, replica: Replica, now_ms: int) -> dict[str, Any]:
    log, in_sync = partition.log, broker_id in leading.isr.isr
    held, lacks = log.end_offset - log.start_offset, log.end_offset - max(replica.seen_end, log.start_offset)
    caught_up = replica.is_equal(log.end_offset, leading.high_watermark) if in_sync else replica.position == log.end_offset
    return {
        "broker": broker_id,
        "in_sync": in_sync,
        "end_offset": None if replica.seen_end == UNKNOWN else replica.seen_end,
        "lag_ms": 0 if caught_up else None if replica.caught_up_ms == NEVER else max(now_ms - replica.caught_up_ms, 0),
        "bytes_behind": log.size_bytes * lacks // held if held else 0,
        "why": "" if in_sync else leading.refusal(replica, now_ms) or "it is about to join",
    }
