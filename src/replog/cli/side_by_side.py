"""What leaders are asked about many partitions, all at once: one that does not answer costs no more than it would cost alone, and hides no
other."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from attrs import frozen

from replog.client.client import Client
from replog.client.explaining import Explanation, FollowersOp, explanation
from replog.client.offsets import OffsetOp
from replog.client.operations import AT_LATEST, AdminOp
from replog.client.results import PartitionDescription, TopicDescription
from replog.config import check_partition_number, check_topic_name
from replog.errors import UnknownTopicOrPartition
from replog.messages import PartitionView

__all__ = ["Described", "described", "explained"]

_LEADER_S: Final = 2.0
"""How long leaders may take to say how far their followers are, as with `Client.explain`."""


@frozen
class Described:
    """A topic, and when its leaders have said where their partitions end."""

    topic: TopicDescription
    told_s: Mapping[int, float]
    """Partition -> on a monotonic clock. Those whose leader has not answered are left out: their offsets are None."""


class _EndOp(OffsetOp):
    """Where a partition ends."""

    def __init__(self, topic: str, partition: int, deadline_ms: int) -> None:
        super().__init__(topic, partition, AT_LATEST, deadline_ms)
        self.told_s: float | None = None

    def finish(self, result: Any) -> None:
        """Answered, now."""
        super().finish(result)
        self.told_s = time.monotonic()


def described(client: Client, names: Iterable[str], deadline_ms: int) -> list[Described]:
    """As `Client.describe`, of each of these topics, as the client has last heard of them; without those that it does not know any more."""
    topics = client._core.view.topics
    known = [topics[name] for name in names if name in topics]
    asked = {
        (topic.topic_id, number): _EndOp(topic.name, number, deadline_ms)
        for topic in known
        for number in topic.numbers()
        if (p := topic.partitions.get(number)) is not None and p.leader is not None
    }
    if asked:
        client._do_all(asked.values())
    found = []
    for topic in known:
        ends = {number: asked.get((topic.topic_id, number)) for number in topic.numbers()}
        rows = tuple(_described(p, end) for number, end in ends.items() if (p := topic.partitions.get(number)) is not None)
        told_s = {number: end.told_s for number, end in ends.items() if end is not None and end.told_s is not None}
        found.append(Described(TopicDescription(topic.name, topic.topic_id.hex(), topic.config.to_mapping(), rows), told_s))
    return found


def _described(v: PartitionView, asked: _EndOp | None) -> PartitionDescription:
    told = None if asked is None or asked.error is not None else asked.result
    start, watermark, end = (None, None, None) if told is None else (told.start_offset, told.offset, told.end_offset)
    return PartitionDescription(
        v.partition, v.leader, v.leader_epoch, v.replicas, v.isr, v.elr, start, watermark, end, adding=v.adding, removing=v.removing
    )


def explained(
    client: Client, places: Iterable[tuple[str, int]], timeout_s: float | None, *, may_be_gone: bool = False
) -> list[Explanation]:
    """As `Client.explain`, of each of these partitions. With `may_be_gone` those that there are no more are left out, else that raises
    UnknownTopicOrPartition."""
    said: dict[tuple[str, int], dict[str, Any]] = {}
    for topic, partition in places:
        wish = {"name": check_topic_name(topic), "partition": check_partition_number(partition)}
        with suppress(*(UnknownTopicOrPartition,) if may_be_gone else ()):
            said[topic, partition] = client._do(AdminOp("explain", wish, client._deadline(timeout_s)))
    if not said:
        return []
    deadline_ms = client._deadline(_LEADER_S if timeout_s is None else min(timeout_s, _LEADER_S))
    asked = {place: FollowersOp(*place, deadline_ms) for place, one in said.items() if one["leader"] is not None}
    if asked:
        client._do_all(asked.values())
    found = {place: op.result for place, op in asked.items() if op.error is None}
    return [explanation(*place, one, found.get(place)) for place, one in said.items()]
