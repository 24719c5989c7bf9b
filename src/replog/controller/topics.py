"""Topics: made by a wish, found in the store, deleted in slices. Each function decides one event; the store is the memory.

A topic's node is its creation: once it is stored, whoever is controller gives every partition without a state its first
one. Deletion goes the other way: wish, states, then topic node, wish and a list of the brokers that still hold copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from attrs import evolve

from replog.controller import nodes
from replog.controller.changes import (
    BrokerAdmitted,
    Change,
    DeletionGone,
    DeletionSet,
    Due,
    Parked,
    RemovedGone,
    RemovedSet,
    StateGone,
    StateSet,
    Topic,
    TopicGone,
    TopicSet,
    WishNoted,
)
from replog.controller.clearing import clearing
from replog.controller.cluster import Cluster
from replog.controller.decision import OPS_MAX, Decision, Piece, Step, answered, fitting_beside, pack
from replog.controller.drafts import draft
from replog.controller.election import initial
from replog.controller.events import AdminAsked, CopiesGone, DeletionsSeen, FinishDeletion, TopicsSeen
from replog.controller.losses import ends_of_losses
from replog.controller.refusal import Refusal, check_readable, id_of, named, stored_and_gone
from replog.controller.wishes import end_of_deletion, ended, granted, is_stuck, rejected
from replog.controller.writing import written
from replog.errors import Code, StoreCorrupt
from replog.messages import AdminAnswer, StopEntry
from replog.metadata import layout
from replog.metadata.paths import name_of
from replog.model import PartitionId
from replog.ports import Check, Delete, Put
from replog.ports import Event as Told

if TYPE_CHECKING:
    from replog.controller.controller import Controller

__all__ = [
    "TOPIC_GONE",
    "copies_gone",
    "create_topic",
    "delete_topic",
    "deletions_seen",
    "due_after",
    "finish_deletion",
    "first_states",
    "strays",
    "topics_seen",
]

TOPIC_GONE = -2
"""Leader epoch of a StopReplica for a topic that is gone (KIP-570)."""


# ------------------------------------------------------------------------------------------------------------ wishes


def create_topic(controller: Controller, event: AdminAsked) -> Decision:
    """Make it, slice by slice, and answer when every partition has a state that can have one."""
    cluster, request = controller.cluster, event.request
    name = named(request.arguments)
    known = cluster.names.get(name)
    made = event.progress if known != event.token else known  # it was stored, perhaps by a commit of which nobody heard
    gone = stored_and_gone(cluster, evolve(event, progress=made), {"topic_id": event.token.hex()})
    if gone is not None:
        return gone  # not once more, and no states for partitions that are being removed
    check_readable(cluster, name)
    if known is not None and known != event.token:
        raise Refusal(Code.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists")
    if known is not None:
        return _go_on_creating(controller, event, cluster.topics[known])
    wanted = draft(cluster, name, event.token, request.arguments, controller.config.topic_partitions_max)
    wanted.check_size(controller)
    if request.arguments.get("validate_only"):
        return answered(event, {"topic_id": None, "config": wanted.topic.config.to_mapping()})
    topic = wanted.placed()
    ops: list[Any] = [nodes.create(topic)]
    changes: list[Change] = [TopicSet(topic)]
    if len(topic.assignments) < min(OPS_MAX, controller.config.slice_partitions_max):
        for piece in fitting_beside(ops, first_states(controller, topic, list(topic.identities()))):
            ops += piece.ops
            changes += piece.changes
    return Decision(pack(controller.guard, [Piece(tuple(ops), tuple(changes))]), after=(evolve(event, progress=topic.topic_id),))


def _go_on_creating(controller: Controller, event: AdminAsked, topic: Topic) -> Decision:
    """The topic is stored: initialise the next slice of it, or answer when nothing is left that can be."""
    todo = [p for p in controller.cluster.uninitialised(topic) if controller.cluster.live(p)]
    if todo:
        pieces = first_states(controller, topic, todo[: controller.config.slice_partitions_max])
        return Decision(pack(controller.guard, pieces), after=(event,))
    return answered(event, {"topic_id": topic.topic_id.hex()})


def first_states(controller: Controller, topic: Topic, partitions: Sequence[PartitionId]) -> list[Piece]:
    """The first state of each of these partitions that has a live replica."""
    pieces = []
    live, leaving = controller.cluster.live_brokers(), controller.cluster.leaving()
    for partition in partitions:
        state = initial(topic.assignments[partition.partition].replicas, live, leaving)
        if state is not None:
            pieces.append(controller.store_state(partition, topic, state))
    return pieces


def delete_topic(controller: Controller, event: AdminAsked) -> Decision:
    """Store the wish, then go on with it; whoever asks is answered when the topic is gone."""
    cluster, request = controller.cluster, event.request
    name = named(request.arguments)
    topic_id = id_of(cluster, name)
    if request.arguments.get("topic_id", topic_id.hex()) != topic_id.hex():  # asked again after that one was gone
        text = f"topic {name!r} has id {topic_id.hex()}; the request is about {request.arguments['topic_id']!r}"
        raise Refusal(Code.UNKNOWN_TOPIC_OR_PARTITION, text)
    if topic_id not in cluster.deletions:
        path, value = layout.delete_topic_path(name), layout.encode_delete_topic(topic_id)
        # What cannot be removed is left there by an earlier topic of this name.
        earlier = [known for known in cluster.deletions.values() if known.topic == name]
        over = earlier[0] if earlier else cluster.stuck.get(path)
        op, version, ended_ = written(cluster, path, value, None if over is None else over.version)
        gone = [DeletionGone(known.topic_id) for known in earlier]
        changes = (DeletionSet(name, topic_id, version), *ended_, *gone)
        return Decision(pack(controller.guard, [Piece((op,), changes)]), after=(event,))
    answer = AdminAnswer(request.request, Code.NONE, result={"topic_id": topic_id.hex()}, origin=request.origin)
    controller.waiters.setdefault(topic_id, []).append((event.sender, answer))
    return Decision(after=(FinishDeletion(topic_id),))


# ------------------------------------------------------------------------------------------------- found in the store


def topics_seen(controller: Controller, event: TopicsSeen) -> Decision:
    """Take topics that the store has. Their partitions are decided, also those that have a state: whoever is put back, by hand, has missed
    what happened meanwhile."""
    steps: list[Step] = []
    for topic_id in event.gone:
        topic = controller.cluster.topics.get(topic_id)
        if topic is not None:
            # Nobody asked for its deletion: brokers stop serving it and keep what they have.
            told = Told("topic_vanished", {"topic": topic.topic, "topic_id": topic_id.hex()})
            steps.append(Step(changes=(TopicGone(topic_id),), stops=_stops(topic, delete=False), told=(told,)))
    changes: list[Change] = [TopicSet(topic) for topic in event.topics]
    changes += [StateSet(partition, state) for partition, state in event.states]
    changes.append(Parked(tuple(partition for partition, _ in event.states)))
    changes += [Due(tuple(topic.identities())) for topic in event.topics]
    if event.topics:
        steps.append(Step(changes=tuple(changes)))
    return Decision(tuple(steps))


def deletions_seen(controller: Controller, event: DeletionsSeen) -> Decision:
    """Wishes left by an earlier controller or written by a tool: go on with those that name a topic, drop or put away the others."""
    cluster = controller.cluster
    observed: list[Step] = []
    pieces: list[Piece] = []
    after: list[FinishDeletion] = []
    for wish in event.wishes:
        try:
            name, topic_id = layout.place_of(wish.path).topic or "", layout.decode_delete_topic(wish.path, wish.value)
        except StoreCorrupt as error:
            under_way = [known.topic_id for known in cluster.deletions.values() if known.topic == name_of(wish.path)]
            after += (FinishDeletion(known) for known in under_way)  # what was written over its wish goes with it
            if not under_way and not is_stuck(cluster, wish):
                pieces.append(rejected(controller, wish, Refusal(Code.INVALID_REQUEST, str(error))))
            continue
        if topic_id in cluster.deletions:  # under way, or given up after too many conflicts
            after.append(FinishDeletion(topic_id))
        elif cluster.names.get(name) == topic_id:
            observed.append(Step(changes=(DeletionSet(name, topic_id, wish.version, wish.created),)))
            after.append(FinishDeletion(topic_id))
        elif not is_stuck(cluster, wish) and not any(known.topic == name for known in cluster.deletions.values()):
            # Else what was seen is gone, and in its place is a wish about another topic of this name: it has the same version.
            told = Told("wish_dropped", {"wish": "delete_topic", "topic": name, "topic_id": topic_id.hex()})
            pieces.append(Piece((granted(wish),), (), (told,)))
    return Decision((*observed, *pack(controller.guard, pieces[: controller.config.slice_partitions_max])), after=tuple(after))


# ----------------------------------------------------------------------------------------------------------- deletion


def finish_deletion(controller: Controller, event: FinishDeletion) -> Decision:
    """One slice of a deletion: states first, then in one transaction the topic, the wish and the list of remaining copies.

    No state goes while the topic's node cannot be read: it says what was deleted, and who holds copies of it.
    """
    cluster, topic_id = controller.cluster, event.topic_id
    wish, topic = cluster.deletions.get(topic_id), cluster.topics.get(topic_id)
    answers = tuple(controller.waiters.get(topic_id, ()))
    if wish is None:
        return Decision(answers=answers if topic is None else ())
    drop_wish = end_of_deletion(cluster, wish)
    if topic is None:
        return Decision(pack(controller.guard, [Piece(drop_wish, (DeletionGone(topic_id),))]), answers=answers)
    ends = tuple(islice(_ends_of_wishes(cluster, topic), controller.config.slice_partitions_max))
    if ends:
        return Decision(pack(controller.guard, ends), after=(event,))
    path, states = layout.topic_path(topic.topic), (layout.partition_state_path(topic.topic, n) for n in topic.assignments)
    below = clearing(cluster, chain([path], states), controller.config.slice_partitions_max)
    if below:
        return Decision(pack(controller.guard, below), after=(event,))
    stated = [p for p in topic.identities() if p in cluster.states]
    if stated:
        pieces = [_without_state(topic, partition) for partition in stated[: controller.config.slice_partitions_max]]
        return Decision(pack(controller.guard, pieces), after=(event,))
    brokers = tuple(sorted({*topic.former, *(b for assignment in topic.assignments.values() for b in assignment.replicas)}))
    kept, version, over = written(cluster, layout.removed_path(topic_id), layout.encode_removed(brokers), None)
    ops = (controller.guard, Delete(path, topic.version), kept, *drop_wish)
    changes = (TopicGone(topic_id), RemovedSet(topic_id, brokers, version), *over, DeletionGone(topic_id))
    told = Told("topic_deleted", {"topic": topic.topic, "topic_id": topic_id.hex()})
    return Decision((Step(ops, changes, _stops(topic, delete=True), (told,)),), answers=answers)


def _without_state(topic: Topic, gone: PartitionId) -> Piece:
    """A state goes if the topic's node is as it is known: each asks for it, because each may be tried by itself."""
    as_known = Check(layout.topic_path(topic.topic), topic.version)
    return Piece((as_known, Delete(layout.partition_state_path(topic.topic, gone.partition))), (StateGone(gone),))


def _ends_of_wishes(cluster: Cluster, topic: Topic) -> Iterator[Piece]:
    """Nobody is to move or to remove partitions of the next topic of this name because of what was wished for this one."""
    for partition in topic.identities():
        wish, path = cluster.wishes.get(partition), layout.partition_remove_path(topic.topic, partition.partition)
        if wish is not None and (over := ended(cluster, wish))[0]:
            yield Piece(*over)
        if path in cluster.wished and not cluster.is_stuck(path, cluster.wished[path]):
            yield Piece((Delete(path, cluster.wished[path]),), (WishNoted(path, -1),))
    yield from ends_of_losses(cluster, topic, topic.assignments)


def _stops(topic: Topic, *, delete: bool) -> tuple[tuple[int, StopEntry], ...]:
    """Every copy; brokers that had others once are asked about one that they do not have, and confirm that they have none."""
    stops = [
        (broker_id, StopEntry(partition, TOPIC_GONE, delete))
        for partition in topic.identities()
        for broker_id in topic.assignments[partition.partition].replicas
    ]
    asked, any_ = {broker_id for broker_id, _ in stops}, next(topic.identities())
    stops += [(broker_id, StopEntry(any_, TOPIC_GONE, delete)) for broker_id in topic.former if delete and broker_id not in asked]
    return tuple(stops)


def stops_of(cluster: Cluster, changes: Sequence[Change]) -> tuple[tuple[int, StopEntry], ...]:
    """What brokers are to be told of topics (and partitions) that turn out to be gone: a deletion was stored, and nobody heard that it was.

    Asked before the changes are applied. Copies are deleted only where the store says so; else they are kept.
    """
    shrunk = [stop for change in changes if isinstance(change, TopicSet) for stop in _stops_of_removed(cluster, change.topic)]
    gone = [change.topic_id for change in changes if isinstance(change, TopicGone)]
    removed = {change.topic_id for change in changes if isinstance(change, RemovedSet)} | set(cluster.removed)
    known = [cluster.topics[topic_id] for topic_id in gone if topic_id in cluster.topics]
    return (*shrunk, *(stop for topic in known for stop in _stops(topic, delete=topic.topic_id in removed)))


def _stops_of_removed(cluster: Cluster, topic: Topic) -> list[tuple[int, StopEntry]]:
    """The same for partitions that the topic has no more, and replicas that partitions have no more."""
    known = cluster.topics.get(topic.topic_id)
    if known is None:
        return []
    stays = {p: topic.assignments[p.partition].replicas for p in topic.identities()}
    left = ((p, b) for p in known.identities() for b in cluster.replicas(p) if b not in stays.get(p, ()))
    return [(b, StopEntry(p, TOPIC_GONE, True)) for p, b in left]


def due_after(cluster: Cluster, changes: Sequence[Change]) -> Due:
    """What was stored unheard may have had consequences, which nobody has drawn: the partitions to be decided again.

    Asked before the changes are applied. Where nothing has changed, those that wait go on waiting; and a first state that was not
    stored is still to be.
    """
    due: list[PartitionId] = []
    for change in changes:
        if isinstance(change, StateSet):
            differs = cluster.states.get(change.partition) != change.state
            due += [change.partition] if differs or change.partition not in cluster.parked else []
        elif isinstance(change, TopicSet):
            differs = cluster.topics.get(change.topic.topic_id) != change.topic
            due += [p for p in change.topic.identities() if differs or p not in cluster.parked]
        elif isinstance(change, StateGone) and change.partition in cluster.due and change.partition not in cluster.states:
            due.append(change.partition)
        elif isinstance(change, BrokerAdmitted) and cluster.admitted.get(change.broker_id) != change.admitted:
            # Who was let in before says what this life has lost.
            due += [p for p in cluster.on_broker(change.broker_id) if cluster.concerns(p, change.broker_id)]
    return Due(tuple(due))


def copies_gone(controller: Controller, event: CopiesGone) -> Decision:
    """Strike a broker off the list of those that hold copies of a deleted topic; the list goes with the last of them."""
    removed = controller.cluster.removed.get(event.topic_id)
    if removed is None or event.broker_id not in removed.brokers:
        return Decision()
    path, left = layout.removed_path(event.topic_id), tuple(b for b in removed.brokers if b != event.broker_id)
    if not left:
        piece = Piece((Delete(path, removed.version),), (RemovedGone(event.topic_id),))
    else:
        op = Put(path, layout.encode_removed(left), removed.version)
        piece = Piece((op,), (RemovedSet(event.topic_id, left, removed.version + 1),))
    return Decision(pack(controller.guard, [piece]))


def strays(
    cluster: Cluster, broker_id: int, found: Sequence[PartitionId]
) -> tuple[tuple[tuple[int, StopEntry], ...], set[bytes], tuple[Told, ...]]:
    """What becomes of logs that a broker holds and was not told about: (stops, their topics, events).

    A copy is deleted only on positive evidence: the store lists the broker among those that hold copies of a deleted topic, or
    has the topic and does not assign that partition (of that creation) to the broker. Anything else is kept and told (P-68); while not
    everything can be read it is not told, because the broker is asked again then.
    """
    stops: list[tuple[int, StopEntry]] = []
    told: list[Told] = []
    for partition in found:
        removed = cluster.removed.get(partition.topic_id)
        if broker_id in cluster.replicas(partition):
            continue  # assigned since the notice was made
        if (removed is not None and broker_id in removed.brokers) or partition.topic_id in cluster.topics:
            stops.append((broker_id, StopEntry(partition, TOPIC_GONE, True)))
        elif not cluster.hidden.hides_copies:
            told.append(Told("stray_kept", {"broker": broker_id, "partition": repr(partition)}))
    return tuple(stops), {entry.partition.topic_id for _, entry in stops}, tuple(told)
