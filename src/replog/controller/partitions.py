"""Partitions of a topic that there is: more of them, by request or by a wish in the store.

The topic's node is the record: once it names a partition, whoever is controller gives that partition its first state, as with a new
topic. So one transaction is the whole operation, however many partitions there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import evolve

from replog.controller import nodes, topics
from replog.controller.assignment import check_replicas, spread
from replog.controller.changes import Due, StateSet, Topic, TopicSet
from replog.controller.cluster import Cluster
from replog.controller.decision import BYTES_MAX, OPS_MAX, Decision, Piece, fitting_beside, pack, weight
from replog.controller.events import AdminAsked, Wish
from replog.controller.finding import check_meant
from replog.controller.refusal import Refusal, named, standing, stored_and_gone
from replog.controller.wishes import granted, rejected
from replog.errors import Code, StoreCorrupt, UsageError
from replog.messages import AdminAnswer
from replog.metadata import layout
from replog.metadata.wishes import decode_replicas
from replog.model import Assignment
from replog.ports import Op

if TYPE_CHECKING:
    from replog.controller.controller import Controller

__all__ = ["add_partitions", "additions_wished"]


def add_partitions(controller: Controller, event: AdminAsked) -> Decision:
    """`total` is the number wanted. What is there already is kept, so that asking twice adds once.

    `count` says how many there were when it was first asked: if there are more than `total` by now, because somebody else has asked for
    more, this wish has come true, too. Who does not say it means those that there are when the request is first decided. Nor is anything
    added once more when what was added is removed: see `check_meant`.
    """
    cluster, request = controller.cluster, event.request
    gone = stored_and_gone(cluster, event, {"partitions": request.arguments.get("total")})
    if gone is not None:
        return gone
    topic = standing(cluster, named(request.arguments))
    is_stored = event.progress is not None
    if not is_stored:
        check_meant(topic, request)
    total, first = request.arguments.get("total"), request.arguments.get("count")
    count, limit = len(topic.assignments), controller.config.topic_partitions_max
    if first is not None and (not isinstance(first, int) or isinstance(first, bool)):
        raise Refusal(Code.INVALID_REQUEST, f"count is {first!r}; it is the number of partitions that there were")
    least = count if first is None else min(first, count)
    if not isinstance(total, int) or isinstance(total, bool) or not least <= total <= limit:
        raise Refusal(Code.INVALID_PARTITIONS, f"total is {total!r}; topic {topic.topic!r} has {count}, allowed are {count} to {limit}")
    if count < total and not is_stored:
        added = _placed(cluster, topic, total, request.arguments.get("assignment"))
        grown = _grown(topic, added)
        nodes.fitting(controller, grown)
        said = evolve(request, arguments={**request.arguments, "count": least})
        after = evolve(event, request=said, progress=topic.topic_id)
        return Decision(pack(controller.guard, [_stored(controller, grown, added)]), after=(after,))
    todo = [p for p in cluster.uninitialised(topic) if cluster.live(p)]
    if todo:
        pieces = topics.first_states(controller, topic, todo[: controller.config.slice_partitions_max])
        return Decision(pack(controller.guard, pieces), after=(event,))
    answer = AdminAnswer(request.request, Code.NONE, result={"partitions": count}, origin=request.origin)
    return Decision(answers=((event.sender, answer),))


def _placed(cluster: Cluster, topic: Topic, total: int, explicit: object) -> dict[int, tuple[int, ...]]:
    """Where the new partitions go: as said, or spread over the live brokers like those of a new topic."""
    count, factor = len(topic.assignments), _factor(topic)
    if explicit is None:
        return _spread(cluster, topic, factor, count, total - count)
    try:
        if not isinstance(explicit, Mapping) or {*explicit} != {*range(count, total)}:
            raise UsageError(f"the assignment must be of partitions {count} to {total - 1}, not {explicit!r}")
        return {number: _checked(cluster, topic, factor, number, explicit[number]) for number in range(count, total)}
    except UsageError as error:
        raise Refusal(Code.INVALID_REPLICA_ASSIGNMENT, str(error)) from error


def _spread(cluster: Cluster, topic: Topic, factor: int, first: int, count: int, before: int = 0) -> dict[int, tuple[int, ...]]:
    """Partitions from `first` on over the brokers that stay, after `before` others that have been placed since."""
    live = cluster.staying_brokers()
    if len(live) < factor:
        text = f"each partition of {topic.topic!r} has {factor} replicas; {len(live)} brokers are live"
        raise Refusal(Code.INVALID_REPLICATION_FACTOR, text)
    placed = spread({b: live[b].rack for b in live}, count, factor, start=cluster.partitions_total + before)
    return {first + number: replicas for number, replicas in placed.items()}


def _checked(cluster: Cluster, topic: Topic, factor: int, partition: int, replicas: object) -> tuple[int, ...]:
    checked = check_replicas(partition, replicas, cluster.brokers)
    if len(checked) != factor:
        raise UsageError(f"partition {partition} is assigned to {list(checked)}; each partition of {topic.topic!r} has {factor} replicas")
    return checked


def _factor(topic: Topic) -> int:
    """The replication factor: that of the partition with the most replicas, those on the move apart. It looks at all of them."""
    return max(len(a.original or a.replicas) for a in topic.assignments.values())


def _grown(topic: Topic, added: Mapping[int, tuple[int, ...]]) -> Topic:
    """The topic with these partitions too."""
    fresh = {number: Assignment(replicas, topic.next_creation) for number, replicas in added.items()}
    return evolve(topic, assignments={**topic.assignments, **fresh}, version=topic.version + 1)


def _stored(controller: Controller, grown: Topic, added: Iterable[int], ops: Sequence[Op] = ()) -> Piece:
    """Store the topic, with the first states of what is added as far as there is room for them; `ops` go in the same transaction."""
    identities = [grown.identity(number) for number in added]
    node = nodes.put(grown)
    states: list[Piece] = []
    if 1 + len(identities) + len(ops) <= OPS_MAX and len(identities) <= controller.config.slice_partitions_max:
        states = fitting_beside((node, *ops), topics.first_states(controller, grown, identities))
    first = tuple(op for piece in states for op in piece.ops)
    stated = [change for piece in states for change in piece.changes]
    known = {change.partition for change in stated if isinstance(change, StateSet)}
    due = Due(tuple(identity for identity in identities if identity not in known))
    return Piece((node, *first, *ops), (TopicSet(grown), *stated, due))


def additions_wished(controller: Controller, name: str, found: Sequence[Wish]) -> Iterator[Piece]:
    """Wishes for partitions of one topic: granted from the first free number on without a hole, all of them at once."""
    cluster = controller.cluster
    added: dict[int, tuple[tuple[int, ...], Wish]] = {}
    factor = 0
    for wish in found:
        number = layout.place_of(wish.path).topic_partition.partition
        try:
            topic = standing(cluster, name)
            factor = factor or _factor(topic)
            replicas = _wished(controller, topic, factor, len(added), number, wish)
        except Refusal as refusal:
            yield rejected(controller, wish, refusal)
        else:
            if replicas is None:
                yield Piece((granted(wish),), ())
            else:
                added[number] = (replicas, wish)
    numbers = sorted(added)
    # A transaction each: the topic, and the end of so many wishes.
    room = (BYTES_MAX - nodes.node_bytes(topic)) // weight([granted(added[numbers[-1]][1])]) if numbers else 0
    slice_max = max(1, min(OPS_MAX - 1, room))
    for at in range(0, len(numbers), slice_max):
        slice_ = numbers[at : at + slice_max]
        grown = _grown(topic, {number: added[number][0] for number in slice_})
        try:
            nodes.fitting(controller, grown)
        except Refusal as refusal:
            yield from (rejected(controller, added[number][1], refusal) for number in numbers[at:])
            return
        yield _stored(controller, grown, slice_, [granted(added[number][1]) for number in slice_])
        topic = grown


def _wished(controller: Controller, topic: Topic, factor: int, before: int, number: int, wish: Wish) -> tuple[int, ...] | None:
    """Where the partition goes, after `before` others; None if it is there already as wished: only the wish is left to remove."""
    free = len(topic.assignments) + before
    cluster = controller.cluster
    try:
        said = decode_replicas(wish.path, wish.value)
        known = topic.assignments.get(number)
        if known is not None and (said is None or said == known.replicas):
            return None
        if known is not None or number != free:
            raise Refusal(Code.INVALID_PARTITIONS, f"the next partition of {topic.topic!r} is {free}, not {number}")
        if free >= controller.config.topic_partitions_max:
            raise Refusal(Code.INVALID_PARTITIONS, f"a topic has at most {controller.config.topic_partitions_max} partitions")
        if said is not None:
            return _checked(cluster, topic, factor, number, said)
        return _spread(cluster, topic, factor, number, 1, before)[number]
    except StoreCorrupt as error:
        raise Refusal(Code.INVALID_REQUEST, str(error)) from error
    except UsageError as error:
        raise Refusal(Code.INVALID_REPLICA_ASSIGNMENT, str(error)) from error

