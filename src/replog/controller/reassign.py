"""Wishes to move partitions: judged, queued behind a limit of moves at a time, carried out, overridden, cancelled.

A wish stays in the store until its move is complete. From its start on the topic's node says where the partition is on the way to: it is
changed in the same transaction as the partition's state, so that whoever is controller finds both or neither. What completes a
move is the change of an ISR, decided in the event that makes that change; see `completions`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby, islice
from typing import TYPE_CHECKING, Final

from attrs import evolve, field, frozen

from replog.controller import moves, nodes, topics
from replog.controller.assignment import check_replicas
from replog.controller.changes import Change, Due, MoveWished, MoveWishGone, Topic, TopicSet
from replog.controller.cluster import Cluster
from replog.controller.decision import OPS_MAX, Decision, Piece, pack
from replog.controller.election import Choice, Loss, effective_min_isr
from replog.controller.events import MovesDue, Wish, WishesSeen
from replog.controller.growth import Growth
from replog.controller.refusal import Refusal, standing
from replog.controller.turns import urgency
from replog.controller.wishes import ended, granted, is_stuck, of_another, rejected
from replog.errors import Code, StoreCorrupt, UsageError
from replog.messages import StopEntry
from replog.metadata import layout
from replog.metadata.wishes import Meant, decode_replicas, encode_replicas
from replog.model import Assignment, PartitionId, PartitionState
from replog.ports import Check, Op, Versioned
from replog.ports import Event as Told

if TYPE_CHECKING:
    from replog.controller.controller import Controller

__all__ = [
    "check_cancellation",
    "completes",
    "completions",
    "judged",
    "moves_due",
    "moves_wished",
    "named_at",
    "partition_of",
    "remembered",
    "seen",
]

MOVES_MAX: Final = (OPS_MAX - 1) // 3
"""Partitions of one topic that change in one transaction: each with its state, its wish, and what an election may have lost."""


@frozen
class _Turn:
    """What becomes of one partition."""

    partition: PartitionId
    assignment: Assignment
    state: PartitionState | None
    """None: it has none yet."""
    ops: tuple[Op, ...] = ()
    """About its wish."""
    changes: tuple[Change, ...] = ()
    loss: Loss | None = None
    what: str = field(default="reassignment_started", kw_only=True)


# -------------------------------------------------------------------------------------------------------- judging


def partition_of(topic: Topic, number: int) -> PartitionId:
    """A partition of a topic. Raises Refusal if there is none of this number."""
    if number not in topic.assignments:
        numbers = f"0 to {max(topic.assignments)}"
        raise Refusal(Code.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.topic!r} has no partition {number}; it has {numbers}")
    return topic.identity(number)


def judged(cluster: Cluster, topic: Topic, number: int, target: object) -> tuple[int, ...] | None:
    """Where a partition is wished to be; None: the wish is to cancel. Raises Refusal if it cannot be granted as things are now."""
    partition = partition_of(topic, number)
    assignment = topic.assignments[number]
    if target is None:
        if not moves.is_moving(assignment) and partition not in cluster.wishes:
            raise Refusal(Code.NO_REASSIGNMENT_IN_PROGRESS, f"{topic.topic}-{number} is not being reassigned: there is nothing to cancel")
        return None
    # A broker that was let in once may be away now: the move waits for it. So it does for one that was registered when it began.
    known: dict[int, object] = {**cluster.admitted, **cluster.brokers}
    way = moves.target_of(assignment)
    if moves.is_moving(assignment) and isinstance(target, list | tuple) and tuple(target) == way:
        known |= dict.fromkeys(way)
    try:
        return check_replicas(number, target, known)
    except UsageError as error:
        raise Refusal(Code.INVALID_REPLICA_ASSIGNMENT, str(error)) from error


def check_cancellation(cluster: Cluster, topic: Topic, partition: PartitionId) -> None:
    """Raises Refusal if to cancel would cost committed records, and the topic does not allow that (P-87).

    For requests, before anything is stored. A cancellation that was stored is carried out, sooner or later: asked again, or not.
    """
    assignment, state = topic.assignments[partition.partition], cluster.states.get(partition)
    if state is None or cluster.is_cancelled(partition) or not moves.is_moving(assignment) or moves.is_returning(assignment):
        return
    if _way_back(cluster, topic, partition, state) is None:
        name, original = f"{topic.topic}-{partition.partition}", list(assignment.original)
        unclean = topic.config.unclean_leader_election
        why = "none of them lives" if unclean else "and its topic does not allow an unclean election"
        text = f"{name} cannot go back to {original}: none of these is in its ISR {list(state.isr)}, {why}"
        raise Refusal(Code.INVALID_REPLICA_ASSIGNMENT, text)


def _way_back(cluster: Cluster, topic: Topic, partition: PartitionId, state: PartitionState) -> Choice | None:
    """The state after a cancellation, or None if going back at once would cost what nobody has given leave to lose."""
    assignment = topic.assignments[partition.partition]
    min_isr = cluster.min_isr(partition)
    unclean = topic.config.unclean_leader_election
    emptied = cluster.emptied(partition)
    return moves.cancelled(assignment, state, min_isr=min_isr, live=_able(cluster, partition), unclean=unclean, emptied=emptied)


def remembered(cluster: Cluster, look: WishesSeen) -> tuple[Change, ...]:
    """What a look at all wishes to move partitions says. One that the store does not give out is not gone: it counts as it was, and its
    partition's move does not end before it can be read again."""
    known = [seen(cluster, wish.path, wish) for wish in look.wishes]
    wishes = [one for one in known if isinstance(one, MoveWished)]
    here = {one.partition for one in wishes}
    gone = [partition for partition, wish in cluster.wishes.items() if partition not in here and not look.hidden.hides(wish.path)]
    waited = () if look.hidden == cluster.hidden_wishes else (look.hidden, Due(tuple(cluster.moving)))
    return (*map(MoveWishGone, gone), *wishes, *waited)


def moves_wished(controller: Controller, name: str, found: Sequence[Wish]) -> Iterator[Piece]:
    """Wishes about one topic as the store has them: those that cannot be granted are put away. `moves_due` carries out the others."""
    cluster = controller.cluster
    for wish in found:
        number = layout.place_of(wish.path).topic_partition.partition
        try:
            if cluster.names.get(name) in cluster.deletions:
                yield Piece((granted(wish),), (), (Told("wish_dropped", {"wish": "reassign", "path": wish.path}),))
                continue
            topic = standing(cluster, name)
            partition = partition_of(topic, number)
            try:
                target = decode_replicas(wish.path, wish.value)
            except StoreCorrupt as error:
                raise Refusal(Code.INVALID_REQUEST, str(error)) from error
            known = cluster.wishes.get(partition)
            if known is not None and (known.version, known.target) == (wish.version, target):  # else it is another by now
                judged(cluster, topic, number, target)
                state = cluster.states.get(partition)
                if state is not None and completes(cluster, partition, state):
                    # On its way back for another reason, and cancelled since: then enough may be there already.
                    yield Piece((), (Due((partition,)),))
        except Refusal as refusal:
            yield _put_away(controller, wish, refusal)


def seen(cluster: Cluster, path: str, found: Wish | Versioned | None) -> MoveWished | MoveWishGone | None:
    """What the store has at the path of a wish (None: nothing); None if the path is of no partition that there is."""
    try:
        partition = named_at(cluster, path)
    except StoreCorrupt:
        return None
    if partition is None:
        return None
    if found is not None and of_another(cluster, Wish(path, found.value, found.version, found.created)) is None:
        with suppress(StoreCorrupt):  # it is no wish any more: the next look puts it away
            return MoveWished(partition, path, found.version, decode_replicas(path, found.value), found.created)
    return MoveWishGone(partition)


def named_at(cluster: Cluster, path: str) -> PartitionId | None:
    """The partition that the path of a wish names; None if there is none, or the path is not of a wish about one. Raises StoreCorrupt."""
    place = layout.place_of(path)
    topic = cluster.topic_named(place.topic)
    if topic is None or place.partition is None or place.partition not in topic.assignments:
        return None
    return topic.identity(place.partition)


def _put_away(controller: Controller, wish: Wish, refusal: Refusal) -> Piece:
    """Among those rejected."""
    piece, partition = rejected(controller, wish, refusal), named_at(controller.cluster, wish.path)
    if partition is None:
        return piece
    return evolve(piece, changes=(*piece.changes, MoveWishGone(partition)))


# ----------------------------------------------------------------------------------------------------- carrying out


def moves_due(controller: Controller, event: MovesDue) -> Decision:
    """One slice of the wishes for which something can be done now: cancel, override, and as many starts as may move at a time."""
    cluster, config = controller.cluster, controller.config
    room = config.reassignments_max - len(cluster.moving)
    slice_ = min(MOVES_MAX, config.slice_partitions_max)
    growth = Growth(config.topic_bytes_max)
    turns: list[_Turn] = []
    pieces: list[Piece] = []
    for partition in islice(cluster.turns, slice_):
        wish, topic = cluster.wishes[partition], cluster.topics[partition.topic_id]
        assignment = topic.assignments[partition.partition]
        rests = not moves.is_moving(assignment)
        starts = rests and wish.target not in (None, assignment.replicas)
        if starts and room <= 0:
            break  # whatever comes later is to start, too
        if rests and not starts:
            pieces.append(_nothing_to_do(controller, topic, wish))
            continue
        try:
            turn = _turn(controller, topic, wish)
            growth.take(topic, partition.partition, wish.target)
        except Refusal as refusal:
            if not is_stuck(cluster, wish):
                pieces.append(_put_away(controller, _as_written(wish), refusal))
        else:
            turns.append(turn)
            room -= starts and moves.is_moving(turn.assignment)
    pieces += _stored(controller, turns)
    return Decision(pack(controller.guard, pieces), after=(MovesDue(),) if pieces else ())


def _nothing_to_do(controller: Controller, topic: Topic, wish: MoveWished) -> Piece:
    """The partition is there, or its move was cancelled before it began: then the wish was written over an earlier one (P-87 (d))."""
    if wish.target is None and wish.version == 0:
        name = f"{topic.topic}-{wish.partition.partition}"
        refusal = Refusal(Code.NO_REASSIGNMENT_IN_PROGRESS, f"{name} is not being reassigned: there is nothing to cancel")
        return _put_away(controller, _as_written(wish), refusal)
    return Piece((granted(wish),), (MoveWishGone(wish.partition),))


def _as_written(wish: MoveWished) -> Wish:
    return Wish(wish.path, encode_replicas(wish.target, Meant.of(wish.partition)), wish.version, wish.created)


def _turn(controller: Controller, topic: Topic, wish: MoveWished) -> _Turn:
    """What to do about a wish that is due. Raises Refusal if it cannot be granted any more."""
    cluster, partition = controller.cluster, wish.partition
    assignment, state = topic.assignments[partition.partition], cluster.states.get(partition)
    target = judged(cluster, topic, partition.partition, wish.target)
    done = ended(cluster, wish)
    if target is None:
        choice = None if state is None else _way_back(cluster, topic, partition, state)
        if state is not None and (choice is None or _costs_copies(cluster, partition, state, choice)):
            onward = moves.started(assignment, assignment.original)
            return _Turn(partition, onward, state, (Check(wish.path, wish.version, wish.created),), what="reassignment_returns")
        back, loss = (None, None) if choice is None else (choice.state, choice.loss)
        return _Turn(partition, moves.restored(assignment), back, *done, loss, what="reassignment_cancelled")
    onward = moves.started(assignment, target)
    if state is None or not (onward.adding or onward.removing):
        # Nothing to wait for: nothing was ever written, or only the order is another.
        return _Turn(partition, moves.placed(assignment, target), state, *done, what="reassignment_completed")
    if moves.is_complete(onward, state, min_isr=_min_isr(topic, target), is_cancelled=False):
        return _completed(controller, topic, partition, onward, state)
    return _Turn(partition, onward, state, (Check(wish.path, wish.version, wish.created),))


def _costs_copies(cluster: Cluster, partition: PartitionId, state: PartitionState, choice: Choice) -> bool:
    """Whether the way back is to wait: not if it is unclean, for which the topic has given leave."""
    assignment = cluster.topics[partition.topic_id].assignments[partition.partition]
    return choice.loss is None and moves.costs_copies(assignment, state, min_isr=cluster.min_isr(partition))


# ------------------------------------------------------------------------------------------------------- completion


def completes(cluster: Cluster, partition: PartitionId, state: PartitionState) -> bool:
    """Whether this state completes a move: unless the partition is wished elsewhere by now, or back, or that cannot be read."""
    topic = cluster.topic_of(partition)
    if topic is None or partition not in cluster.moving or partition.topic_id in cluster.deletions or cluster.is_wish_hidden(partition):
        return False
    assignment = topic.assignments[partition.partition]
    wish = cluster.wishes.get(partition)
    if wish is not None and urgency(assignment, wish, is_stuck=False) is not None:
        return False
    min_isr = _min_isr(topic, moves.target_of(assignment))
    return moves.is_complete(assignment, state, min_isr=min_isr, is_cancelled=cluster.is_cancelled(partition))


def completions(
    controller: Controller, states: Mapping[PartitionId, PartitionState]
) -> tuple[list[Piece], dict[PartitionId, PartitionState]]:
    """Store that these partitions have arrived: a transaction for each topic, and the state that each partition has afterwards."""
    turns = []
    for partition, state in states.items():
        topic = controller.cluster.topics[partition.topic_id]
        turns.append(_completed(controller, topic, partition, topic.assignments[partition.partition], state))
    return _stored(controller, turns), {turn.partition: turn.state for turn in turns if turn.state is not None}


def _completed(controller: Controller, topic: Topic, partition: PartitionId, assignment: Assignment, state: PartitionState) -> _Turn:
    cluster = controller.cluster
    wish, is_cancelled = cluster.wishes.get(partition), cluster.is_cancelled(partition)
    if is_cancelled:  # it may have been on its way there in another order
        assignment = moves.started(assignment, assignment.original)
    arrived = moves.placed(assignment, moves.target_of(assignment))
    after = moves.completed(assignment, state, min_isr=_min_isr(topic, arrived.replicas), live=_able(cluster, partition))
    if (known := cluster.states.get(partition)) is not None and after.leader_epoch > known.leader_epoch:
        after = evolve(after, leader_epoch=known.leader_epoch + 1)  # an election on the way is stored with this: one epoch for both
    ops, changes = ((), ()) if wish is None else ended(cluster, wish)
    what = "reassignment_cancelled" if is_cancelled else "reassignment_completed"
    return _Turn(partition, arrived, after, ops, changes, what=what)


def _min_isr(topic: Topic, replicas: Sequence[int]) -> int:
    return effective_min_isr(topic.config.min_isr, replicas)


def _able(cluster: Cluster, partition: PartitionId) -> list[int]:
    """Replicas that may lead; none that is about to leave."""
    leaving = cluster.leaving()
    return [b for b in cluster.live(partition) if b not in leaving]


def _stored(controller: Controller, turns: Iterable[_Turn]) -> list[Piece]:
    """A piece for each topic: its node, then the states and wishes of those of its partitions whose turn it is."""
    by_topic = sorted(turns, key=lambda turn: turn.partition)
    return [_stored_topic(controller, topic_id, list(some)) for topic_id, some in groupby(by_topic, lambda turn: turn.partition.topic_id)]


def _stored_topic(controller: Controller, topic_id: bytes, turns: Sequence[_Turn]) -> Piece:
    topic = controller.cluster.topics[topic_id]
    gone = {turn.partition: moves.left(topic.assignments[turn.partition.partition], turn.assignment) for turn in turns}
    assignments = {**topic.assignments, **{turn.partition.partition: turn.assignment for turn in turns}}
    former = tuple(sorted({*topic.former, *(broker for brokers in gone.values() for broker in brokers)}))
    changed = evolve(topic, assignments=assignments, former=former, version=topic.version + 1)
    ops: list[Op] = [nodes.put(changed)]
    changes: list[Change] = [TopicSet(changed)]
    told: list[Told] = []
    stops: list[tuple[int, StopEntry]] = []
    leaving = controller.cluster.leaving()
    for turn in turns:
        epoch = topics.TOPIC_GONE
        if turn.state is None:
            changes.append(Due((turn.partition,)))
        else:
            piece = controller.store_state(turn.partition, changed, turn.state, turn.loss)
            ops += piece.ops
            changes += piece.changes
            told += piece.told
            epoch = turn.state.leader_epoch
            if turn.state.leader is None or not leaving.isdisjoint(turn.state.isr):
                changes.append(Due((turn.partition,)))  # somebody else may lead by now
        ops += turn.ops
        changes += turn.changes
        stops += [(broker, StopEntry(turn.partition, epoch, True)) for broker in gone[turn.partition]]
        fields = {"topic": topic.topic, "partition": turn.partition.partition, "replicas": turn.assignment.replicas}
        told.append(Told(turn.what, fields | {"adding": turn.assignment.adding, "removing": turn.assignment.removing}))
    return Piece(tuple(ops), tuple(changes), tuple(told), tuple(stops))
