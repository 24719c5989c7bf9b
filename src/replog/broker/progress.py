"""How far the followers of partitions are that a broker leads: what a client asks each leader for, about reassignments under way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from replog.errors import Code
from replog.messages import Admin, AdminAnswer
from replog.model import PartitionId
from replog.partition.partition import Partition

__all__ = ["PROGRESS", "progress"]

PROGRESS: Final = "replica_progress"
"""The verb: answered by the broker that is asked, never passed on."""
_PARTITIONS_MAX: Final = 1_000


def progress(partitions: Mapping[PartitionId, Partition], wish: Admin) -> AdminAnswer:
    """`partitions` is a list of [topic id, partition, creation]; the answer has those that this broker leads.

    Per follower: the end of its log (-1: it has not fetched in this leadership), and about how many bytes it is behind, as the
    offsets that it lacks have their share of the log.
    """
    asked = wish.arguments.get("partitions")
    if not isinstance(asked, list | tuple) or len(asked) > _PARTITIONS_MAX:
        text = f"partitions is a list of up to {_PARTITIONS_MAX} [topic id, partition, creation]"
        return AdminAnswer(wish.request, Code.INVALID_REQUEST, text)
    found = []
    for one in asked:
        partition = partitions.get(_identity(one))
        if partition is not None and partition.leading is not None:
            found.append([*one, partition.log.end_offset, _followers(partition)])
    return AdminAnswer(wish.request, Code.NONE, result={"partitions": found})


def _identity(one: Any) -> PartitionId:
    try:
        topic_id, number, creation = one
        if type(number) is not int or type(creation) is not int:
            raise TypeError("not numbers")
        return PartitionId(bytes.fromhex(topic_id), number, creation)
    except (TypeError, ValueError):
        return PartitionId(b"", -1, -1)  # nobody has this one


def _followers(partition: Partition) -> list[list[int]]:
    """[broker, end of its log, bytes it lacks] of each."""
    assert partition.leading is not None
    log, rows = partition.log, []
    held = log.end_offset - log.start_offset
    for broker_id, replica in sorted(partition.leading.replicas.items()):
        lacks = log.end_offset - max(replica.end_offset, log.start_offset)
        rows.append([broker_id, replica.end_offset, log.size_bytes * lacks // held if held else 0])
    return rows
