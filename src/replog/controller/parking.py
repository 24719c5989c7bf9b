"""Partitions whose state could not be stored, for another reason than a lost race: too large, no space, something in the way.

They wait for the next `reconcile`, or until something about them changes: whoever tried them at once again would do nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping

from replog.controller.changes import Parked, StateSet
from replog.controller.cluster import Cluster
from replog.controller.decision import Step
from replog.controller.refusal import why_given_up
from replog.errors import ReplogError
from replog.model import PartitionId
from replog.ports import Conflict, UnknownOutcome
from replog.ports import Event as Told

__all__ = ["parked", "unstored"]


def unstored(step: Step, error: ReplogError) -> dict[PartitionId, ReplogError]:
    """The partitions whose state a step would have stored, each with what the store said."""
    return {change.partition: error for change in step.changes if isinstance(change, StateSet)}


def parked(cluster: Cluster, failed: Mapping[PartitionId, ReplogError], *, is_last: bool) -> Step:
    """Of the partitions that are due, and could not be stored on their own, those that wait: unless `is_last`, the store may only have
    changed meanwhile. People are told of each once."""
    waits = [p for p, error in failed.items() if p in cluster.due and (is_last or not isinstance(error, Conflict | UnknownOutcome))]
    news = [p for p in waits if p not in cluster.parked]
    why = why_given_up(failed[news[0]], "Recheck") if news else ""
    told = Told("decision_given_up", {"event": "Recheck", "why": why, "partitions": ", ".join(map(repr, news[:10])), "count": len(news)})
    return Step(changes=(Parked(tuple(waits)),) if waits else (), told=(told,) if news else ())
