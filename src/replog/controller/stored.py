"""What a value at a path of the store says about the cluster, and what becomes of one that is in the way of what is to be written."""

from __future__ import annotations

from contextlib import suppress

from attrs import evolve

from replog.config import TopicConfig
from replog.controller import reassign, removal
from replog.controller.changes import (
    Admitted,
    AdmittedGone,
    Broker,
    BrokerAdmitted,
    Change,
    DeletionGone,
    DeletionSet,
    DrainingGone,
    DrainingSet,
    IdentitySet,
    LossNoted,
    MoveWishGone,
    Parked,
    RejectionNoted,
    RemovedGone,
    RemovedSet,
    Settled,
    StateGone,
    StateSet,
    Topic,
    TopicGone,
    TopicSet,
    Unreadable,
    WishNoted,
)
from replog.controller.cluster import Cluster
from replog.controller.drafts import resolved
from replog.controller.events import Wish
from replog.errors import StoreCorrupt
from replog.metadata import judgements, layout
from replog.metadata.judgements import LossRecord
from replog.metadata.wishes import decode_replicas
from replog.model import BrokerInfo, PartitionState
from replog.ports import Versioned

__all__ = [
    "admitted_of",
    "broker_of",
    "draining_of",
    "identity_of",
    "in_the_way",
    "now_at",
    "removed_of",
    "state_of",
    "topic_of",
    "waiting",
]


def _loss(path: str, value: bytes) -> LossRecord | None:
    """What is recorded there; None if it cannot be read: then the next record takes its place."""
    with suppress(StoreCorrupt):
        return judgements.decode_loss(path, value)
    return None


def state_of(topic: Topic, partition: int, path: str, value: Versioned) -> PartitionState:
    """A partition's state; one that does not say which min ISR it reckons with was made under that of its topic."""
    state = layout.decode_partition_state(path, value)
    if state.min_isr or partition not in topic.assignments:
        return state
    return evolve(state, min_isr=Cluster.min_isr_of(topic, partition))


def in_the_way(cluster: Cluster, path: str, value: Versioned) -> list[Change]:
    """What cannot be read at a path that was to be written, or is about something else: it counts as absent, and is written over, at the
    version that it has.

    Not so what is known here: a deletion that is under way, and who holds copies of what is deleted; those values are stored again, or
    removed, over it. And a partition whose state cannot be read waits like one whose state cannot be stored: it holds up nobody else.
    """
    over = Unreadable(path, value.version)
    if path == layout.CLUSTER:
        return [IdentitySet(None)]
    if path.startswith(f"{judgements.ADMITTED}/"):
        return [AdmittedGone(judgements.admitted_broker(path)), over]
    try:
        place = layout.place_of(path)
    except StoreCorrupt:
        return []  # of a wish that is put away
    match place.row:
        case "partition_state":
            return waiting(cluster, path)
        case layout.DRAINING:
            assert place.broker_id is not None
            return [DrainingGone(place.broker_id), over]
        case layout.REMOVED:
            known = cluster.removed.get(place.topic_id or b"")
            return [over] if known is None else [evolve(known, version=value.version)]
        case layout.DELETE_TOPICS:
            wishes = [wish for wish in cluster.deletions.values() if wish.topic == place.topic]
            return [evolve(wish, version=value.version, created=value.created) for wish in wishes] or [over]
        case layout.PARTITIONS_REASSIGNED:
            partition = reassign.named_at(cluster, path)
            return [over] if partition is None else [over, MoveWishGone(partition)]
        case layout.PARTITIONS_REMOVE:
            return [over, WishNoted(path, -1)]
        case _:
            return []


def waiting(cluster: Cluster, path: str) -> list[Change]:
    """If a path is of the state of a partition: it waits until that can be read."""
    try:
        place = layout.place_of(path)
    except StoreCorrupt:
        return []
    topic, number = cluster.topic_named(place.topic), place.partition
    if place.row != "partition_state" or topic is None or number is None or number not in topic.assignments:
        return []
    waits = (topic.identity(number),)
    return [Settled(waits), Parked(waits)]


def identity_of(path: str, value: Versioned) -> IdentitySet:
    """Which cluster this is."""
    return IdentitySet(layout.decode_cluster(path, value.value), value.version)


def broker_of(path: str, value: Versioned) -> Broker:
    """A registration."""
    broker_id = layout.place_of(path).broker_id
    assert broker_id is not None
    said = layout.decode_registration(path, value.value)
    info = BrokerInfo(broker_id, value.created, said.endpoints, said.rack, said.directory_id, fenced=True)
    return Broker(info, said.loss, said.incarnation, said.features)


def admitted_of(path: str, value: Versioned) -> BrokerAdmitted:
    """Which incarnation of a broker was let in."""
    broker_id = judgements.admitted_broker(path)
    said = judgements.decode_admission(path, value.value)
    return BrokerAdmitted(broker_id, Admitted(said.broker_epoch, said.incarnation, said.directory_id, value.version, said.is_early))


def topic_of(path: str, name: str, value: Versioned) -> Topic:
    """A topic; StoreCorrupt if there is none that could be served."""
    layout.place_of(path)  # a name that no topic can have
    entry = layout.decode_topic(path, value.value)
    if not entry.partitions or not all(assignment.replicas for assignment in entry.partitions.values()):
        raise StoreCorrupt(path, "the topic has no partitions, or one without replicas")
    factor = min(len(assignment.original or assignment.replicas) for assignment in entry.partitions.values())
    if isinstance(kept := entry.config.get("min_isr"), int):
        factor = max(factor, kept)  # moves may have left partitions with fewer replicas: there less of it counts
    config = resolved(TopicConfig.kept(entry.config), factor)
    return Topic(name, entry.topic_id, config, entry.partitions, entry.next_creation, value.version, entry.former, value.created)


def draining_of(path: str, value: Versioned) -> DrainingSet:
    """Which life of a broker is to end."""
    broker_id = layout.place_of(path).broker_id
    assert broker_id is not None
    return DrainingSet(broker_id, layout.decode_draining(path, value.value), value.version)


def removed_of(path: str, value: Versioned) -> RemovedSet:
    """Who holds copies of a deleted topic."""
    topic_id = layout.place_of(path).topic_id
    assert topic_id is not None
    return RemovedSet(topic_id, layout.decode_removed(path, value.value), value.version)


def now_at(cluster: Cluster, path: str, value: Versioned | None) -> Change | None:
    """What the cluster should believe about a path that it wanted to write; Unreadable: what is there is in the way (`in_the_way`)."""
    if path == layout.CLUSTER:
        return IdentitySet(None) if value is None else identity_of(path, value)
    if path.startswith(judgements.LOSSES):
        return LossNoted(path, -1) if value is None else LossNoted(path, value.version, _loss(path, value.value))
    if path.startswith(judgements.ADMITTED):
        return AdmittedGone(judgements.admitted_broker(path)) if value is None else admitted_of(path, value)
    place = layout.place_of(path)
    topic = cluster.topic_named(place.topic)
    match place.row:
        case "partition_state":
            if value is not None:
                layout.decode_partition_state(path, value)  # raises, also where it is only in the way of a first state
            number = place.topic_partition.partition
            if topic is None or number not in topic.assignments:
                return None  # removed meanwhile
            partition = topic.identity(number)
            if value is None:
                return StateGone(partition)
            return StateSet(partition, state_of(topic, number, path, value))
        case layout.TOPICS:
            assert place.topic is not None
            if value is not None:
                return TopicSet(topic_of(path, place.topic, value))
            return None if topic is None else TopicGone(topic.topic_id)
        case layout.DELETE_TOPICS:
            assert place.topic is not None
            if value is not None:
                return DeletionSet(place.topic, layout.decode_delete_topic(path, value.value), value.version, value.created)
            wished = [d.topic_id for d in cluster.deletions.values() if d.topic == place.topic]
            return DeletionGone(wished[0]) if wished else None
        case layout.REJECTED:
            return RejectionNoted(path, -1 if value is None else value.version)
        case layout.PARTITIONS_REASSIGNED:
            known = reassign.seen(cluster, path, value)
            if value is None or not isinstance(known, MoveWishGone):
                return known
            decode_replicas(path, value.value)  # raises; else it is about another topic, or partition
            return Unreadable(path, value.version)
        case layout.PARTITIONS_REMOVE:
            if value is None:
                return WishNoted(path, -1)
            is_meant = removal.removes(cluster, Wish(path, value.value, value.version, value.created))
            return WishNoted(path, value.version) if is_meant else Unreadable(path, value.version)
        case layout.DRAINING:
            assert place.broker_id is not None
            return DrainingGone(place.broker_id) if value is None else draining_of(path, value)
        case layout.REMOVED:
            assert place.topic_id is not None
            return RemovedGone(place.topic_id) if value is None else removed_of(path, value)
        case _:
            return None
