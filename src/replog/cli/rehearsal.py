"""What a plan would do, without asking for anything: judged by what brokers tell of the cluster, in the words of the controller."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from attrs import frozen

from replog.cli.context import Context
from replog.cli.exits import OK
from replog.cli.plans import tell_away
from replog.client.reassigning import Judged, Reassignment, Refused
from replog.client.view import Topic, View
from replog.controller.assignment import check_replicas
from replog.errors import Code, UsageError

__all__ = ["rehearse"]


@frozen
class _Move:
    """What would become of one partition."""

    topic: str
    partition: int
    now: tuple[int, ...]
    """Where it has copies; nothing for one that is not there."""
    then: tuple[int, ...]
    changes: bool = False
    refused: Refused | None = None

    @property
    def adding(self) -> tuple[int, ...]:
        return () if self.refused else tuple(b for b in self.then if b not in self.now)

    @property
    def removing(self) -> tuple[int, ...]:
        return () if self.refused else tuple(b for b in self.now if b not in self.then)

    def to_plain(self) -> dict[str, Any]:
        """As plain values."""
        lists = {"now": self.now, "then": self.then, "adding": self.adding, "removing": self.removing}
        why = None if self.refused is None else self.refused.text
        return {"topic": self.topic, "partition": self.partition, **{key: list(ids) for key, ids in lists.items()}, "refused": why}


def rehearse(
    context: Context, view: View, ways: Mapping[tuple[str, int], Reassignment], targets: Mapping[tuple[str, int], Sequence[int]]
) -> int:
    """Say what would move where, and what would be refused, of what is wished of a cluster with these moves under way."""
    output = context.output
    known = dict.fromkeys(_known(view, ways))
    moves = [_foreseen(view, ways.get(place), known, place, target) for place, target in sorted(targets.items())]
    refused = tuple(move.refused for move in moves if move.refused is not None)
    changes = sum(move.changes for move in moves)
    tell_away(context, view, dict(targets))
    adding, removing = (sum(len(getattr(move, which)) for move in moves) for which in ("adding", "removing"))
    if output.is_json:
        counts = {"changes": changes, "adding": adding, "removing": removing, "refused": len(refused), "executed": False}
        output.json({"partitions": [move.to_plain() for move in moves], **counts})
        context.is_told = True
    else:
        title = f"{changes} of {len(moves)} partitions would change: {adding} replica{'' if adding == 1 else 's'} added, {removing} removed"
        rows = [
            (f"{m.topic}-{m.partition}", m.now, m.then, m.adding, m.removing, "refused" if m.refused else "" if m.changes else "no change")
            for m in moves
        ]
        output.table(("partition", "now", "then", "adding", "removing", ""), rows, title)
    Judged(len(moves) - len(refused), refused).check("would be refused", "not")
    return OK


def _foreseen(view: View, way: Reassignment | None, known: Mapping[int, None], place: tuple[str, int], target: Sequence[int]) -> _Move:
    (name, number), then = place, tuple(target)
    topic = view.topics.get(name)
    if topic is None or number not in topic.partitions:
        why = _missing(topic, name, number, view)
        return _Move(name, number, (), then, refused=Refused(name, number, Code.UNKNOWN_TOPIC_OR_PARTITION, why))
    now = topic.partitions[number].replicas
    try:
        check_replicas(number, list(target), known)
    except UsageError as error:
        return _Move(name, number, now, then, refused=Refused(name, number, Code.INVALID_REPLICA_ASSIGNMENT, str(error)))
    return _Move(name, number, now, then, changes=then != (now if way is None else way.target))


def _missing(topic: Topic | None, name: str, number: int, view: View) -> str:
    """That there is no such partition, as the controller says it."""
    if topic is None:
        return f"unknown topic {name!r}; known are {', '.join(islice(sorted(view.topics), 10)) or 'none'}"
    return f"topic {name!r} has no partition {number}; it has 0 to {max(topic.partitions)}"


def _known(view: View, ways: Mapping[tuple[str, int], Reassignment]) -> Iterator[int]:
    """Brokers that may be named: those that are registered, and those that are away and hold, or are to hold, something."""
    yield from sorted(
        {
            *view.brokers,
            *(broker for topic in view.topics.values() for one in topic.partitions.values() for broker in one.replicas),
            *(broker for way in ways.values() for broker in way.target or ()),
        }
    )
