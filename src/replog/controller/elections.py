"""Elections that somebody asks for: of the preferred leader, of a replica by name, of any live one where nobody leads (PROTOCOL 4.9, P-92).

The preferred leader is the first of a partition's replicas. It, or the one that is named, takes over only from within the ISR, so that
nothing is lost; that something may be lost has to be asked for, and is done only where there is no leader at all.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from attrs import evolve

from replog.config import check_partition_number
from replog.controller import moves
from replog.controller.admitting import is_kept_out
from replog.controller.decision import Decision, Piece, pack
from replog.controller.election import Choice, choose
from replog.controller.events import AdminAsked, Wish
from replog.controller.refusal import Refusal, standing
from replog.controller.wishes import granted, rejected
from replog.errors import Code, StoreCorrupt, UsageError
from replog.messages import AdminAnswer
from replog.metadata import layout
from replog.metadata.wishes import decode_elect
from replog.model import PartitionId, PartitionState

if TYPE_CHECKING:
    from replog.controller.cluster import Cluster
    from replog.controller.controller import Controller

__all__ = ["PREFERRED", "Manner", "elect", "elect_leaders", "elections_wished", "preferred", "why_away"]

_Place = tuple[str, int]
_Result = tuple[str, int, int, str]
"""(topic, partition, code, text)."""


class Manner(NamedTuple):
    """How a leader is to be elected."""

    unclean: bool = False
    """Any live replica, where nobody leads."""
    to: int | None = None
    """This broker; None: the preferred leader."""


PREFERRED: Final = Manner()


class _Progress(NamedTuple):
    """How far a request is."""

    todo: tuple[_Place, ...]
    done: tuple[_Result, ...]
    wanting: frozenset[_Place]
    """Those that were not led as they should be when it was asked."""


def preferred(
    state: PartitionState,
    *,
    replicas: Sequence[int],
    min_isr: int,
    live: Container[int],
    lossy: Container[int] = (),
    leaving: Container[int] = (),
    to: int | None = None,
) -> PartitionState:
    """`state` under broker `to` (None: its preferred leader). Raises Refusal: it leads already, or it may not; never uncleanly (P-92)."""
    if to is not None and to not in replicas:
        text = f"broker {to} has no copy; those of {', '.join(map(str, replicas))} may be elected"
        raise Refusal(Code.INVALID_REPLICA_ASSIGNMENT, text)
    after = choose(state, replicas=replicas, min_isr=min_isr, live=live, lossy=lossy, leaving=leaving).state or state
    meant, name = (replicas[0], f"broker {replicas[0]}, the preferred leader,") if to is None else (to, f"broker {to}")
    if after.leader == meant:
        if after != state:
            return after
        raise Refusal(Code.ELECTION_NOT_NEEDED, f"{name} leads already")
    if meant not in after.isr or meant in leaving:
        raise Refusal(Code.PREFERRED_LEADER_NOT_AVAILABLE, f"{name} is not in the ISR")
    return evolve(after, leader=meant, leader_epoch=state.leader_epoch + 1)


def unclean(
    state: PartitionState,
    *,
    replicas: Sequence[int],
    min_isr: int,
    live: Container[int],
    lossy: Container[int] = (),
    leaving: Container[int] = (),
    emptied: Collection[int] = (),
    broken: Container[int] = (),
) -> Choice:
    """`state` under somebody, if nobody leads it: a complete replica if one is live, else any. Raises Refusal."""
    if state.leader is not None and state.leader in live:
        raise Refusal(Code.ELECTION_NOT_NEEDED, f"broker {state.leader} leads: an unclean election is only for partitions without a leader")
    choice = choose(
        state, replicas=replicas, min_isr=min_isr, live=live, lossy=lossy, leaving=leaving, unclean=True, emptied=emptied, broken=broken,
        by_hand=True,
    )  # fmt: skip
    if choice.ask:
        who = ", ".join(map(str, choice.ask))
        text = f"brokers {who} are being asked how far they reach: the one with most becomes the leader, so that less is lost"
        raise Refusal(Code.ELIGIBLE_LEADERS_NOT_AVAILABLE, text)
    if choice.state is None or choice.state.leader is None:
        raise Refusal(Code.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no replica is live")
    return choice


def elect(controller: Controller, topic: str, partition: int, manner: Manner = PREFERRED) -> Piece:
    """The election of one partition, ready to be stored. Raises Refusal, saying of the replica that was meant why it cannot lead."""
    cluster = controller.cluster
    known = standing(cluster, topic)
    if partition not in known.assignments:
        text = f"topic {topic!r} has no partition {partition}; it has {len(known.assignments)}"
        raise Refusal(Code.UNKNOWN_TOPIC_OR_PARTITION, text)
    identity = known.identity(partition)
    state = cluster.states.get(identity)
    if state is None:
        raise Refusal(Code.ELIGIBLE_LEADERS_NOT_AVAILABLE, "it has had no leader yet: none of its replicas has been live")
    replicas, min_isr, lossy, leaving = cluster.replicas(identity), cluster.min_isr(identity), cluster.lossy(identity), cluster.leaving()
    try:
        if manner.unclean:
            trusted = moves.in_order_of_trust(known.assignments[partition])  # whoever only joins has least
            emptied, broken = cluster.emptied(identity), cluster.broken_of(identity)
            choice = unclean(
                state, replicas=trusted, min_isr=min_isr, live=cluster.live(identity), lossy=lossy, leaving=leaving, emptied=emptied,
                broken=broken,
            )  # fmt: skip
            assert choice.state is not None
            return controller.store_state(identity, known, choice.state, choice.loss)
        live = cluster.live(identity)
        after = preferred(state, replicas=replicas, min_isr=min_isr, live=live, lossy=lossy, leaving=leaving, to=manner.to)
    except Refusal as refusal:
        if refusal.code != Code.PREFERRED_LEADER_NOT_AVAILABLE:
            raise
        why = why_away(cluster, identity, replicas[0] if manner.to is None else manner.to)
        behind = "it may miss records that were committed" if state.leader is None else "it has not caught up with the leader"
        raise Refusal(refusal.code, f"{refusal}: {why or behind}") from None
    return controller.store_state(identity, known, after)


def why_away(cluster: Cluster, partition: PartitionId, broker_id: int) -> str:
    """Why a replica cannot lead or be in sync, as far as the controller knows; "" if nothing but its records is in the way."""
    broker = cluster.brokers.get(broker_id)
    if broker is None:
        return "it is not registered: its process has ended, or its store session has"
    if cluster.is_silent(broker_id):
        return "it is fenced: it does not answer the controller, although its store session lives"
    if broker.info.fenced and (other := _at_the_same_endpoint(cluster, broker_id)) is not None:
        where = ", ".join(broker.info.endpoints)
        return f"it is fenced: it is said to be reached at {where}, as broker {other} is; one of them has to advertise another endpoint"
    if is_kept_out(cluster, broker_id):
        return "it is fenced: the store does not give out what says which records it may have lost (store_value_unreadable)"
    if broker.info.fenced:
        return "it is fenced: it has yet to apply the controller's first notice of its present life"
    if cluster.is_broken(partition, broker_id):
        return "its disk has failed under this copy"
    if cluster.is_roomless(partition, broker_id):
        return "its disk has no room for this copy"
    return "it is draining" if broker.info.draining else ""


def _at_the_same_endpoint(cluster: Cluster, broker_id: int) -> int | None:
    """Another broker that is registered with an endpoint of this one: who is there can be only one of them."""
    mine = set(cluster.brokers[broker_id].info.endpoints) - {""}
    return next((b for b in sorted(cluster.brokers) if b != broker_id and mine.intersection(cluster.brokers[b].info.endpoints)), None)


# ----------------------------------------------------------------------------------------------------------- by request


def elect_leaders(controller: Controller, event: AdminAsked) -> Decision:
    """`partitions`: [[topic, partition], ...], None for all of them; `unclean`, or `to`. A result for each that was named, slice by slice.

    Where all are meant, only those come into the answer that were elected, or should have been and could not be.
    """
    arguments = event.request.arguments
    named, manner = arguments.get("partitions"), _manner(arguments)
    if event.progress is None:
        return Decision(after=(evolve(event, progress=_begun(controller.cluster, named, manner)),))
    todo, done, wanting = event.progress
    size = controller.config.slice_partitions_max
    pieces: list[Piece] = []
    results: list[_Result] = []
    for topic, partition in todo[:size]:
        try:
            pieces.append(elect(controller, topic, partition, manner))
            results.append((topic, partition, Code.NONE, ""))
        except Refusal as refusal:
            if refusal.code == Code.ELECTION_NOT_NEEDED and (topic, partition) in wanting:
                results.append((topic, partition, Code.NONE, ""))  # by a commit of which nobody heard
            elif named is not None or refusal.code not in (Code.ELECTION_NOT_NEEDED, Code.UNKNOWN_TOPIC_OR_PARTITION):
                results.append((topic, partition, refusal.code, str(refusal)))
    steps, done, todo = pack(controller.guard, pieces), (*done, *results), todo[size:]
    if todo:
        return Decision(steps, after=(evolve(event, progress=_Progress(todo, done, wanting)),))
    answer = AdminAnswer(event.request.request, Code.NONE, result={"partitions": [list(one) for one in done]}, origin=event.request.origin)
    return Decision(steps, answers=((event.sender, answer),))


def _manner(arguments: Mapping[str, Any]) -> Manner:
    """What a request says of it. Raises Refusal."""
    uncleanly, to = arguments.get("unclean", False), arguments.get("to")
    if not isinstance(uncleanly, bool):
        raise Refusal(Code.INVALID_REQUEST, f"unclean is {uncleanly!r}; allowed are true and false")
    if to is not None and (not isinstance(to, int) or isinstance(to, bool)):
        raise Refusal(Code.INVALID_REQUEST, f"to is {to!r}; it is the number of a broker, or null for the preferred leader")
    if to is not None and (uncleanly or arguments.get("partitions") is None):
        what = "an unclean election takes whoever is live" if uncleanly else "the partitions that it is to lead have to be named"
        raise Refusal(Code.INVALID_REQUEST, f"to is {to}, and {what}")
    return Manner(uncleanly, to)


def _begun(cluster: Cluster, named: object, manner: Manner) -> _Progress:
    """Settled before the first election: afterwards nobody could tell what was done from what was not needed."""
    meant = _meant(cluster, named, manner)
    known = ((place, cluster.topic_named(place[0])) for place in meant)
    identities = ((place, topic.identity(place[1])) for place, topic in known if topic is not None and place[1] in topic.assignments)
    wanting = frozenset(place for place, identity in identities if _is_wanting(cluster, identity, manner))
    return _Progress(meant, (), wanting)


def _meant(cluster: Cluster, named: object, manner: Manner) -> tuple[_Place, ...]:
    """The partitions of a request, each once. For all of them: those that are not led as they should be."""
    if named is None:
        return tuple(
            (topic.topic, partition.partition)
            for name in sorted(cluster.names)
            for topic in (cluster.topics[cluster.names[name]],)
            if topic.topic_id not in cluster.deletions
            for partition in topic.identities()
            if _is_wanting(cluster, partition, manner)
        )
    if not isinstance(named, list):
        raise Refusal(Code.INVALID_REQUEST, f"partitions is a list of [topic, partition], or null for all of them, not {named!r}")
    meant: dict[tuple[str, int], None] = {}
    for one in named:
        if not isinstance(one, list | tuple) or len(one) != 2 or not isinstance(one[0], str):
            raise Refusal(Code.INVALID_REQUEST, f"partitions has {one!r}, not [topic, partition]")
        try:
            meant[one[0], check_partition_number(one[1])] = None
        except UsageError as error:
            raise Refusal(Code.INVALID_REQUEST, str(error)) from error
    return tuple(meant)


def _is_wanting(cluster: Cluster, partition: PartitionId, manner: Manner) -> bool:
    state = cluster.states.get(partition)
    if state is None:
        return False
    if manner.unclean:
        return state.leader is None
    return state.leader != (cluster.replicas(partition)[0] if manner.to is None else manner.to)


# -------------------------------------------------------------------------------------------------------- by the store


def elections_wished(controller: Controller, name: str, found: Sequence[Wish]) -> Iterator[Piece]:
    """Wishes for elections in one topic: each goes with its effect; where nothing is to be done, it just goes."""
    for wish in found:
        try:
            manner = Manner(*decode_elect(wish.path, wish.value))
            piece = elect(controller, name, layout.place_of(wish.path).topic_partition.partition, manner)
        except StoreCorrupt as error:
            yield rejected(controller, wish, Refusal(Code.INVALID_REQUEST, str(error)))
        except Refusal as refusal:
            if refusal.code == Code.ELECTION_NOT_NEEDED:
                yield Piece((granted(wish),), ())
            else:
                yield rejected(controller, wish, refusal)
        else:
            yield evolve(piece, ops=(*piece.ops, granted(wish)))
