"""Partitions that are taken away from a topic that stays: by request or by a wish in the store (V3 H).

The highest numbers go first, and never the last partition: what is left is numbered without a hole. Each slice is one transaction:
the states, the topic's node without these partitions, and their wishes. A request that takes several writes its wishes first; so
whoever is controller finishes it. A number that is added again is another log, because its creation number is another one (S36).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from attrs import evolve

from replog.controller import nodes, topics
from replog.controller.changes import Change, StateGone, Topic, TopicSet, WishNoted
from replog.controller.clearing import clearing
from replog.controller.decision import BYTES_MAX, OPS_MAX, Decision, Piece, answered, pack, weight
from replog.controller.events import AdminAsked, Wish
from replog.controller.losses import ends_of_losses
from replog.controller.refusal import Refusal, named, standing, stored_and_gone
from replog.controller.wishes import ended, granted, of_another, rejected
from replog.controller.writing import written
from replog.errors import Code, StoreCorrupt
from replog.messages import StopEntry
from replog.metadata import layout
from replog.metadata.wishes import Meant, decode_partition_remove, encode_partition_remove
from replog.model import PartitionId, why_not_highest
from replog.ports import Delete, Op
from replog.ports import Event as Told

if TYPE_CHECKING:
    from replog.controller.cluster import Cluster
    from replog.controller.controller import Controller

__all__ = ["removals_wished", "remove_partitions", "removes"]


def remove_partitions(controller: Controller, event: AdminAsked) -> Decision:
    """`partitions` are the numbers to remove; `topic_id` and `creations` say which ones are meant, so that asking twice removes once.

    Who does not say it means those that there are when the request is first decided.
    """
    request = event.request
    gone = stored_and_gone(controller.cluster, event, {"partitions": 0})
    if gone is not None:
        return gone
    topic = standing(controller.cluster, named(request.arguments))
    meant = _meant(topic, request.arguments)
    left = sorted((p for p in meant if _is_there(topic, p)), reverse=True)
    if not left:
        return answered(event, {"partitions": len(topic.assignments)})
    _check_highest(topic, [p.partition for p in left])
    if "creations" not in request.arguments:
        said = {**request.arguments, "topic_id": topic.topic_id.hex(), "creations": [p.creation for p in meant]}
        return Decision(after=(evolve(event, request=evolve(request, arguments=said)),))
    slice_max = _slice_max(controller, topic)
    wished = controller.cluster.wished
    unwished = [p for p in left if layout.partition_remove_path(topic.topic, p.partition) not in wished]
    if len(left) > slice_max and unwished:
        pieces = [_wish(controller.cluster, topic, partition) for partition in unwished[: controller.config.slice_partitions_max]]
    elif below := _below(controller, topic, left[:slice_max]):
        return Decision(pack(controller.guard, below), after=(event,))
    else:
        paths = [layout.partition_remove_path(topic.topic, p.partition) for p in left[:slice_max]]
        ops = [Delete(path, wished[path]) for path in paths if path in wished and not controller.cluster.is_stuck(path, wished[path])]
        pieces = [_shrunk(controller, topic, left[:slice_max], ops)[1]]
    is_last = len(left) <= slice_max
    return Decision(pack(controller.guard, pieces), after=(evolve(event, progress=topic.topic_id if is_last else None),))


def _meant(topic: Topic, arguments: Mapping[str, Any]) -> list[PartitionId]:
    """The partitions that the arguments name. Raises Refusal if they name none, or some that there never were."""
    numbers, creations = arguments.get("partitions"), arguments.get("creations")
    if not _are_numbers(numbers) or not numbers:
        raise Refusal(Code.INVALID_PARTITIONS, f"partitions is a list of the numbers to remove, each once, not {numbers!r}")
    if creations is None:
        unknown = [n for n in numbers if n not in topic.assignments]
        if unknown:
            text = f"topic {topic.topic!r} has no partition {unknown[0]}; it has {len(topic.assignments)}"
            raise Refusal(Code.UNKNOWN_TOPIC_OR_PARTITION, text)
        return [topic.identity(n) for n in numbers]
    if not _are_numbers(creations, unique=False) or len(creations) != len(numbers):
        raise Refusal(Code.INVALID_REQUEST, f"creations is {creations!r}; it has a number for each of {len(numbers)} partitions")
    if arguments.get("topic_id") != topic.topic_id.hex():
        text = f"topic {topic.topic!r} has id {topic.topic_id.hex()}; the request is about {arguments.get('topic_id')!r}"
        raise Refusal(Code.UNKNOWN_TOPIC_ID, text)
    return [PartitionId(topic.topic_id, n, creation) for n, creation in zip(numbers, creations, strict=True)]


def _are_numbers(given: Any, *, unique: bool = True) -> bool:
    if not isinstance(given, list | tuple) or not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in given):
        return False
    # Sorted, and not put into a set, where numbers that somebody has chosen could all be in each other's way.
    return not unique or all(before != number for before, number in pairwise(sorted(given)))


def _is_there(topic: Topic, partition: PartitionId) -> bool:
    known = topic.assignments.get(partition.partition)
    return known is not None and known.creation == partition.creation


def _check_highest(topic: Topic, numbers: Sequence[int]) -> None:
    """Raise Refusal unless these, in falling order, are the highest numbers of the topic, and not all of them."""
    why = why_not_highest(topic.topic, numbers, topic.assignments)
    if why:
        raise Refusal(Code.INVALID_PARTITIONS, why)


def _slice_max(controller: Controller, topic: Topic) -> int:
    """Most partitions that one transaction removes: a state, a wish to remove it, one to move it, a loss each, and the topic."""
    longest = Delete(layout.partition_state_path(topic.topic, max(topic.assignments)))
    room = (BYTES_MAX - nodes.node_bytes(topic)) // (4 * weight([longest]))
    return max(1, min(controller.config.slice_partitions_max, (OPS_MAX - 1) // 4, room))


def _wish(cluster: Cluster, topic: Topic, partition: PartitionId) -> Piece:
    """Write it, over one that is about something else."""
    path = layout.partition_remove_path(topic.topic, partition.partition)
    op, version, over = written(cluster, path, encode_partition_remove(Meant.of(partition)), None)
    return Piece((op,), (WishNoted(path, version), *over))


def _below(controller: Controller, topic: Topic, gone: Sequence[PartitionId]) -> list[Piece]:
    """What removes what somebody has written below the states of these."""
    states = (layout.partition_state_path(topic.topic, p.partition) for p in gone)
    return clearing(controller.cluster, states, controller.config.slice_partitions_max)


def _shrunk(controller: Controller, topic: Topic, gone: Sequence[PartitionId], ops: Sequence[Op]) -> tuple[Topic, Piece]:
    """The topic without these partitions; `ops` end their wishes, in the same transaction."""
    leaves = {p.partition for p in gone}
    held = {b for p in gone for b in topic.assignments[p.partition].replicas}
    shrunk = evolve(
        topic,
        assignments={n: a for n, a in topic.assignments.items() if n not in leaves},
        next_creation=max(topic.next_creation, *(p.creation + 1 for p in gone)),
        former=tuple(sorted({*topic.former, *held})),
        version=topic.version + 1,
    )
    stated = [p for p in gone if p in controller.cluster.states]
    states: list[Op] = [Delete(layout.partition_state_path(topic.topic, p.partition)) for p in stated]
    changes: list[Change] = [StateGone(p) for p in stated]
    wishes = controller.cluster.wishes
    moves = [ended(controller.cluster, wishes[p]) for p in gone if p in wishes]  # nobody is to move what comes next there
    states += [op for ops_, _ in moves for op in ops_]
    losses = list(ends_of_losses(controller.cluster, topic, leaves))
    states += [op for loss in losses for op in loss.ops]
    changes += [change for loss in losses for change in loss.changes]
    changes += [TopicSet(shrunk), *(WishNoted(op.path, -1) for op in ops)]
    told = Told("partitions_removed", {"topic": topic.topic, "partitions": ", ".join(map(str, sorted(leaves)))})
    stops = [(b, StopEntry(p, topics.TOPIC_GONE, True)) for p in gone for b in topic.assignments[p.partition].replicas]
    return shrunk, Piece((nodes.put(shrunk), *states, *ops), tuple(changes), (told,), tuple(stops))


# ------------------------------------------------------------------------------------------------------------ by a path


def removes(cluster: Cluster, wish: Wish) -> bool:
    """Whether a wish is there to remove the partition that has its number now: of a request, or as good as that."""
    place = layout.place_of(wish.path)
    topic = cluster.topic_named(place.topic)
    known = None if topic is None else topic.assignments.get(place.topic_partition.partition)
    if known is None or of_another(cluster, wish) is not None:
        return False
    with suppress(StoreCorrupt):
        return decode_partition_remove(wish.path, wish.value) in (None, known.creation)
    return False


def removals_wished(controller: Controller, name: str, found: Sequence[Wish]) -> Iterator[Piece]:
    """Wishes to remove partitions of one topic, the highest first: each granted if it is the highest that is left."""
    gone: list[PartitionId] = []
    ops: list[Op] = []
    done: list[Op] = []
    cluster = controller.cluster
    for wish in found:
        if wish.path in cluster.wished and cluster.names.get(name) in cluster.deletions:
            continue  # of a request: it goes with its topic
        number = layout.place_of(wish.path).topic_partition.partition
        try:
            topic = standing(cluster, name)
            partition = _wished(topic, number, len(gone), wish)
        except Refusal as refusal:
            yield rejected(controller, wish, refusal)
            continue
        if partition is None:
            done.append(granted(wish))
        else:
            gone.append(partition)
            ops.append(granted(wish))
    yield from (Piece((op,), (WishNoted(op.path, -1),)) for op in done)
    slice_max = _slice_max(controller, topic) if gone else 1
    for at in range(0, len(gone), slice_max):
        yield from _below(controller, topic, gone[at : at + slice_max])
        topic, piece = _shrunk(controller, topic, gone[at : at + slice_max], ops[at : at + slice_max])
        yield piece


def _wished(topic: Topic, number: int, before: int, wish: Wish) -> PartitionId | None:
    """The partition that goes, after `before` others; None if it has gone: only the wish is left to remove."""
    try:
        creation = decode_partition_remove(wish.path, wish.value)
    except StoreCorrupt as error:
        raise Refusal(Code.INVALID_REQUEST, str(error)) from error
    known = topic.assignments.get(number)
    if creation is not None and (known is None or known.creation != creation):
        if creation >= (topic.next_creation if known is None else known.creation):
            text = f"partition {number} of {topic.topic!r} never had creation number {creation}"
            raise Refusal(Code.UNKNOWN_TOPIC_OR_PARTITION, text)
        return None
    if known is None:
        text = f"topic {topic.topic!r} has no partition {number}; it has {len(topic.assignments)}"
        raise Refusal(Code.UNKNOWN_TOPIC_OR_PARTITION, text)
    _check_highest(topic, [*sorted(topic.assignments, reverse=True)[:before], number])
    return topic.identity(number)
