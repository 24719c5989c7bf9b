"""Preferred leaders by themselves: from time to time, where too many leaderships are not where they should be (PROTOCOL 4.9).

A restart moves leaderships away and nothing moves them back: without this one broker ends up leading everything.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from attrs import evolve

from replog.controller.cluster import Cluster
from replog.controller.decision import Decision, Piece, pack
from replog.controller.elections import elect
from replog.controller.events import BalanceDue
from replog.controller.refusal import Refusal
from replog.model import PartitionId
from replog.ports import Event as Told

if TYPE_CHECKING:
    from replog.controller.controller import Controller

__all__ = ["Rhythm", "balance_due", "misplaced"]


class Rhythm:
    """When to look next: one interval after the beginning of a term, then again and again. 0: never."""

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        self._due_ms: int | None = None

    def is_due(self, now_ms: int) -> bool:
        """Whether it is time; says so once each time."""
        due = self.deadline_ms(now_ms)
        if due is None or due > now_ms:
            return False
        self._due_ms = now_ms + self._interval_ms
        return True

    def deadline_ms(self, now_ms: int) -> int | None:
        """When to look next; the first interval begins now."""
        if self._due_ms is None and self._interval_ms:
            self._due_ms = now_ms + self._interval_ms
        return self._due_ms


def misplaced(cluster: Cluster, limit: float) -> tuple[PartitionId, ...]:
    """Partitions led by somebody else than their preferred leader, where that is the case of more than `limit` of what it is to lead."""
    due: Counter[int] = Counter()
    away: dict[int, list[PartitionId]] = {}
    for topic_id in sorted(cluster.topics):
        if topic_id in cluster.deletions:
            continue
        for partition in cluster.topics[topic_id].identities():
            state = cluster.states.get(partition)
            first = cluster.replicas(partition)[0]
            due[first] += 1
            if state is not None and state.leader != first:
                away.setdefault(first, []).append(partition)
    return tuple(p for broker_id in sorted(away) if len(away[broker_id]) > limit * due[broker_id] for p in away[broker_id])


def balance_due(controller: Controller, event: BalanceDue) -> Decision:
    """One slice of the elections; each is judged by itself, and what is not possible now is left for the next time."""
    cluster = controller.cluster
    todo = misplaced(cluster, controller.config.leader_imbalance_max) if event.rest is None else event.rest
    size = controller.config.slice_partitions_max
    pieces: list[Piece] = []
    for partition in todo[:size]:
        topic = cluster.topic_of(partition)
        if topic is None:
            continue
        try:
            pieces.append(elect(controller, topic.topic, partition.partition))
        except Refusal:
            continue
    if pieces:
        told = Told("leaders_balanced", {"partitions": len(pieces)})
        pieces[-1] = evolve(pieces[-1], told=(*pieces[-1].told, told))
    return Decision(pack(controller.guard, pieces), after=(BalanceDue(todo[size:]),) if todo[size:] else ())
