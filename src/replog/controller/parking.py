"""Partitions whose state, or whose move, could not be stored, for another reason than a lost race: too large, no space, damage in the way.

They wait for the next `reconcile`, or until something about them changes: whoever tried them at once again would do nothing else.
The state in the store is then an old one, and the one that was refused may be what says who is complete. So nothing that follows from the
old one is decided meanwhile: no move of the partition begins, ends or is cancelled, and no new life of a broker that it names is let in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from attrs import evolve

from replog.controller.changes import MovesHeld, MoveWishGone, Parked, StateSet
from replog.controller.cluster import Cluster
from replog.controller.decision import Step
from replog.controller.events import Event, IsrProposed, LastKnownAnswered, MovesDue, Recheck
from replog.controller.refusal import why_given_up
from replog.errors import ReplogError
from replog.metadata import layout
from replog.model import PartitionId
from replog.ports import Conflict, UnknownOutcome
from replog.ports import Event as Told

__all__ = ["TOGETHER_MAX", "TRIES_MAX", "waiting", "without"]

TRIES_MAX: Final = 10
"""An event that still conflicts after this many decisions is given up; the next look at the store finds what is left."""
TOGETHER_MAX: Final = 2
"""After so many each piece of a decision is a transaction of its own: what cannot be stored then holds up nothing else."""
Failed = Sequence[tuple[Step, ReplogError]]
"""Steps that the store did not take, each with what it said."""


def waiting(cluster: Cluster, event: Event, failed: Failed, unreadable: Mapping[str, str], tries: int) -> Step:
    """What stands aside after a decision that was not stored, like `tries` others before it.

    `unreadable` says what is wrong at paths that cannot be read. People are told of each partition once.
    """
    match event:
        case Recheck() if tries >= TOGETHER_MAX:
            return _parked(cluster, failed, unreadable, is_last=tries >= TRIES_MAX)
        case MovesDue() if tries:  # else what is unreadable may have been mended meanwhile
            return _held(cluster, failed, unreadable, tries)
        case LastKnownAnswered(partition) if tries >= TRIES_MAX:
            return Step(changes=(Parked((partition,), is_refused=True),))  # they are asked again: answers are soon out of date
        case _:
            return Step()


def without(event: Event, aside: Step, failed: Failed, unreadable: Mapping[str, str], tries: int) -> Event | None:
    """The event without what cannot be stored, to be decided again at once; None if it is to be tried as it is, or given up.

    Of a message of proposals those are left out: their leader is not answered, and asks again. The others are answered: a refusal that
    is never heard would leave a high watermark where it is for ever. Nobody else has tried what was left out, so it is not parked.
    """
    match event:
        case MovesDue() if aside.changes:
            return event
        case IsrProposed(_, proposal) if tries >= TOGETHER_MAX:
            is_last = tries >= TRIES_MAX
            out = {p for p, error in _states(failed).items() if is_last or _is_refusal(error) or _is_unreadable(error, unreadable)}
            left = [one for one in proposal.entries if one.partition not in out]
            return evolve(event, proposal=evolve(proposal, entries=left)) if out else None
        case _:
            return None


def _parked(cluster: Cluster, failed: Failed, unreadable: Mapping[str, str], *, is_last: bool) -> Step:
    """Of the partitions that are due, and could not be stored on their own, those that wait: unless `is_last`, the store may only have
    changed meanwhile."""
    waits = {p: error for p, error in _states(failed).items() if p in cluster.due and (is_last or _is_refusal(error))}
    told = _told("Recheck", {p: error for p, error in waits.items() if p not in cluster.parked}, unreadable)
    return Step(changes=(Parked(tuple(waits), is_refused=True),) if waits else (), told=told)


def _held(cluster: Cluster, failed: Failed, unreadable: Mapping[str, str], tries: int) -> Step:
    """Of the wishes to move partitions those that get no turn: what is damaged is in the way of them, or they were refused on their own."""
    waits: dict[PartitionId, ReplogError] = {}
    for step, error in failed:
        changed = (change.partition for change in step.changes if isinstance(change, StateSet | MoveWishGone))
        wished = [partition for partition in changed if partition in cluster.wishes]
        if isinstance(error, Conflict) and _is_unreadable(error, unreadable):
            waits.update((partition, error) for partition in wished if error.path in _nodes(cluster, partition))
        if tries >= TRIES_MAX or (tries >= TOGETHER_MAX and _is_refusal(error)):
            waits.update(dict.fromkeys(wished, error))
    told = _told("MovesDue", {p: error for p, error in waits.items() if p not in cluster.held}, unreadable)
    return Step(changes=(MovesHeld(tuple(waits)),) if waits else (), told=told)


def _states(failed: Failed) -> dict[PartitionId, ReplogError]:
    """The partitions whose states were not stored."""
    return {change.partition: error for step, error in failed for change in step.changes if isinstance(change, StateSet)}


def _is_refusal(error: ReplogError) -> bool:
    return not isinstance(error, Conflict | UnknownOutcome)


def _is_unreadable(error: ReplogError, unreadable: Mapping[str, str]) -> bool:
    return isinstance(error, Conflict) and error.path in unreadable


def _nodes(cluster: Cluster, partition: PartitionId) -> tuple[str, str]:
    name = cluster.topics[partition.topic_id].topic
    return layout.topic_path(name), layout.partition_state_path(name, partition.partition)


def _told(event: str, news: Mapping[PartitionId, ReplogError], unreadable: Mapping[str, str]) -> tuple[Told, ...]:
    if not news:
        return ()
    named, why = ", ".join(map(repr, list(news)[:10])), why_given_up(next(iter(news.values())), event, unreadable)
    return (Told("decision_given_up", {"event": event, "why": why, "partitions": named, "count": len(news)}),)
