"""Requests about reassignments: each wish is judged by itself, written to the store, and answered once it is there.

What becomes of a wish is told by the list of those that are queued or under way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from attrs import evolve

from replog.config import MOVE_WISHES_MAX
from replog.controller import moves
from replog.controller.changes import Change, Due, MoveWished, Topic
from replog.controller.cluster import Cluster
from replog.controller.decision import Decision, Piece, answered, pack
from replog.controller.events import AdminAsked, MovesDue
from replog.controller.growth import Growth
from replog.controller.reassign import check_cancellation, judged
from replog.controller.refusal import Refusal, standing
from replog.controller.writing import written
from replog.errors import Code
from replog.messages import AdminAnswer
from replog.metadata import layout
from replog.metadata.wishes import Meant, encode_replicas
from replog.model import PartitionId

if TYPE_CHECKING:
    from replog.controller.controller import Controller

__all__ = ["list_reassignments", "reassign"]


class _Progress(NamedTuple):
    """How far a request is: the wishes in the slices that are stored."""

    judged: int
    errors: list[list[Any]]
    named: set[PartitionId]
    """The partitions of those that were granted."""
    growth: Growth
    """By them."""


def reassign(controller: Controller, event: AdminAsked) -> Decision:
    """`partitions` is a list of [topic, partition, broker ids], or None in place of the ids to cancel; the answer names those refused.

    Asked twice it writes once: a wish that is there already stays as it is. It goes on slice by slice.
    """
    request, config = event.request, controller.config
    wished = request.arguments.get("partitions")
    if not isinstance(wished, list | tuple) or not 1 <= len(wished) <= MOVE_WISHES_MAX:
        count = f"{len(wished)} partitions" if isinstance(wished, list | tuple) else repr(wished)
        text = f"partitions is a list of 1 to {MOVE_WISHES_MAX} [topic, partition, broker ids or None], not {count}"
        raise Refusal(Code.INVALID_REQUEST, text)
    start, earlier, known, growth = event.progress or _Progress(0, [], set(), Growth(config.topic_bytes_max))
    end = start + config.slice_partitions_max
    errors, named, growth = [*earlier], {*known}, growth.copy()
    pieces: list[Piece] = []
    for one in wished[start:end]:
        try:
            topic, number, target = _read(controller.cluster, one)
            target = judged(controller.cluster, topic, number, target)
            partition = topic.identity(number)
            if partition in named:
                raise Refusal(Code.INVALID_REQUEST, f"{topic.topic}-{number} is named twice")
            if target is None:
                check_cancellation(controller.cluster, topic, partition)
            growth.take(topic, number, target)
        except Refusal as refusal:
            errors.append([*_shown(one), refusal.code, str(refusal)])
        else:
            named.add(partition)
            pieces += _wish(controller.cluster, topic, partition, target)
    steps = pack(controller.guard, pieces)
    if end < len(wished):
        return Decision(steps, after=(evolve(event, progress=_Progress(end, errors, named, growth)),))
    answer = AdminAnswer(request.request, Code.NONE, result={"errors": errors}, origin=request.origin)
    return Decision(steps, answers=((event.sender, answer),), after=(MovesDue(),))


def _read(cluster: Cluster, one: object) -> tuple[Topic, int, object]:
    """One wish, as it was sent."""
    if not isinstance(one, list | tuple) or len(one) != 3:
        raise Refusal(Code.INVALID_REQUEST, f"a wish is [topic, partition, broker ids or None], not {one!r}")
    name, number, target = one
    if not isinstance(name, str):
        raise Refusal(Code.INVALID_TOPIC, f"a topic name is a str, not {name!r}")
    if not isinstance(number, int) or isinstance(number, bool):
        raise Refusal(Code.INVALID_PARTITIONS, f"a partition is an int, not {number!r}")
    return standing(cluster, name), number, target


def _shown(one: object) -> tuple[Any, Any]:
    """Topic and partition of a wish, as far as it names them."""
    if isinstance(one, list | tuple) and len(one) == 3:
        name, number, _ = one
        return name if isinstance(name, str) else None, number if isinstance(number, int) else None
    return None, None


def _wish(cluster: Cluster, topic: Topic, partition: PartitionId, target: tuple[int, ...] | None) -> list[Piece]:
    """Write a wish, over an earlier one about the same partition."""
    assignment, known = topic.assignments[partition.partition], cluster.wishes.get(partition)
    if known is not None and known.target == target:
        return []
    if known is None and target == assignment.replicas and not moves.is_moving(assignment):
        return []  # it is there
    path = layout.reassigned_path(topic.topic, partition.partition)
    op, version, over = written(cluster, path, encode_replicas(target, Meant.of(partition)), None if known is None else known.version)
    change: Change = MoveWished(partition, path, version, target, None if known is None else known.created)
    # On its way there already, for another reason or by an earlier wish: it may have arrived.
    way = moves.is_returning(assignment) if target is None else moves.is_moving(assignment) and target == moves.target_of(assignment)
    due = (Due((partition,)),) if way else ()
    return [Piece((op,), (change, *over, *due))]


def list_reassignments(controller: Controller, event: AdminAsked) -> Decision:
    """Every partition that is queued or under way: where it is, where it goes, and where it was before."""
    cluster = controller.cluster
    found = [_listed(cluster, partition) for partition in {**cluster.wishes, **cluster.moving} if cluster.topic_of(partition)]
    result = {"reassignments": sorted(found, key=lambda one: (one["topic"], one["partition"]))}
    return answered(event, result)


def _listed(cluster: Cluster, partition: PartitionId) -> dict[str, Any]:
    topic = cluster.topics[partition.topic_id]
    assignment, wish, state = topic.assignments[partition.partition], cluster.wishes.get(partition), cluster.states.get(partition)
    moving = partition in cluster.moving
    is_cancelled = cluster.is_cancelled(partition)
    returning = is_cancelled and moves.is_returning(assignment)
    target = wish.target if wish is not None and (is_cancelled or not moving) else moves.target_of(assignment)
    if returning:
        target = assignment.original
    return {
        "topic": topic.topic,
        "partition": partition.partition,
        "topic_id": partition.topic_id.hex(),
        "creation": partition.creation,
        "status": "moving" if moving else "queued",
        "replicas": list(assignment.replicas),
        "adding": list(assignment.adding),
        "removing": list(assignment.removing),
        "original": list(assignment.original or assignment.replicas),
        "target": None if target is None else list(target),
        "returning": returning,
        "isr": [] if state is None else list(state.isr),
        "leader": None if state is None else state.leader,
    }
