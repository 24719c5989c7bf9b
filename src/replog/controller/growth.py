"""Whether the nodes of topics can hold the moves that begin: on the way a record also says where it was, and who comes and goes."""

from __future__ import annotations

from collections.abc import Sequence

from replog.controller import moves, nodes
from replog.controller.changes import Topic
from replog.controller.refusal import Refusal
from replog.errors import Code
from replog.metadata import layout
from replog.model import Assignment

__all__ = ["Growth"]


class Growth:
    """Of all topics, by one request or decision. Each node is measured once, then what it gains is counted: a node may be large, and moves
    many."""

    def __init__(self, bytes_max: int) -> None:
        """`bytes_max`: the limit, `topic_bytes_max`."""
        self._bytes_max = bytes_max
        self._bytes: dict[bytes, int] = {}
        """Of topics by their id: with the moves that begin."""

    def copy(self) -> Growth:
        """To go on from: a decision that is not stored is taken again, from what was there before."""
        other = Growth(self._bytes_max)
        other._bytes = dict(self._bytes)
        return other

    def take(self, topic: Topic, number: int, target: Sequence[int] | None) -> None:
        """A partition begins to move to `target` (None: back, which takes no room). Raises Refusal, with the size and the limit.

        It is at its largest on the way: what is kept of brokers that held a copy is less than what is kept of them until then.
        """
        before = topic.assignments[number]
        if target is None:
            return
        way = moves.started(before, target)
        if not (way.adding or way.removing):
            way = moves.placed(before, target)  # only the order is another: it is there at once
        gained = _bytes(way) - _bytes(before)
        known = self._bytes.get(topic.topic_id)
        size = (nodes.node_bytes(topic) if known is None else known) + gained
        if size > self._bytes_max and gained > 0:
            of = f"topic {topic.topic!r} of {len(topic.assignments)} partitions"
            text = f"{of} would take {size} bytes in the metadata store while {topic.topic}-{number} moves to {list(target)}"
            raise Refusal(Code.INVALID_REPLICA_ASSIGNMENT, f"{text}; the limit is {self._bytes_max} (topic_bytes_max)")
        self._bytes[topic.topic_id] = size


def _bytes(assignment: Assignment) -> int:
    """What the record of a partition takes, and something that is the same for all."""
    return len(layout.encode_topic(layout.TopicEntry(bytes(16), {}, {0: assignment})))
