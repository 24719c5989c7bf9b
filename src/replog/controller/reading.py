"""What the controller reads from the store, as scripts: each yields one store operation at a time and is sent its result.

A failed operation is raised into the script. Watches are armed before the level they cover is read, so that a change
in between is seen as a second look, never missed (KAFKA-3085).

A node that the store itself refuses to give out (its checksum does not match, an access list forbids it) is there and cannot be read,
like one whose value is damaged; but it is never written over, because its version is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import Any, Final

from attrs import evolve

from replog.config import TopicConfig
from replog.controller import reassign
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
    Stranger,
    Topic,
    TopicGone,
    TopicSet,
    Unreadable,
    WishNoted,
)
from replog.controller.cluster import Cluster
from replog.controller.events import BrokersSeen, DeletionsSeen, RejectionsSeen, TopicsSeen, Wish, WishesSeen
from replog.controller.topics import resolved
from replog.errors import ReplogError, StoreCorrupt, UsageError
from replog.metadata import judgements, layout
from replog.metadata.judgements import LossRecord
from replog.metadata.paths import check_path, name_of
from replog.metadata.wishes import decode_replicas
from replog.model import BrokerInfo, PartitionId, PartitionState
from replog.ports import Event as Told
from replog.ports import Versioned

__all__ = ["REFUSED", "Reader", "Script"]

Script = Generator[tuple[Any, Any], Any, Any]
"""Yields (verb, argument) of a StoreCall; is sent its value."""
REFUSED: Final = Versioned(b"", -1, -1)
"""In place of the value of a node that is there, and that the store refuses to give out."""


class Reader:
    """Reads for one store session; remembers which watches are armed, and tells about values it cannot read."""

    def __init__(self, slice_max: int, tell: Callable[[Told], None]) -> None:
        self._slice_max = slice_max
        self._tell = tell
        self._armed: set[str] = set()
        self.unreadable: dict[str, str] = {}
        """Path -> what was told to be wrong with it: told once, not with each look."""
        self._refused: set[str] = set()
        """Those of them that the store did not give out when they were last read; with a slash behind it: what is below the path."""

    def fired(self, path: str) -> None:
        """A watch fires once."""
        self._armed.discard(path)

    def is_armed(self, path: str) -> bool:
        """Whether a watch should fire when the path changes."""
        return path in self._armed

    def disarmed(self) -> None:
        """The session ended, and its watches with it."""
        self._armed.clear()

    def is_blind(self, known: Cluster) -> bool:
        """Whether there is a topic, or a state of a partition, that could not be read or has been removed by hand."""
        return bool(known.vanished) or any(path.startswith(f"{layout.TOPICS}/") for path in self.unreadable)

    def watch(self, path: str) -> Script:
        """Arm a watch unless it is armed."""
        if path not in self._armed:
            yield "watch", path
            self._armed.add(path)

    def _children(self, parent: str, *, watched: bool = True, nested: bool = False) -> Script:
        """(name, value) of every child of a level that has a value, sorted by name."""
        if watched:
            try:
                yield from self.watch(parent)
            except UsageError:  # what may not be listed may not be watched
                if not nested:
                    raise
        names = yield from self.names(parent, nested=nested)
        values = yield from self.read_each([f"{parent}/{name}" for name in names])
        return [(name, value) for name, value in zip(names, values, strict=True) if value is not None]

    def names(self, parent: str, *, nested: bool = False) -> Script:
        """Names of the children of a level; one that makes no path that can be read is told, and left out.

        `nested`: one of many of its kind; if the store refuses to list it, that is told, and nothing is known to be there.
        """
        try:
            found: list[str] = yield "list", parent
        except UsageError as error:
            if not nested:
                raise
            yield from self._note_refused(f"{parent}/", error)
            return []
        self._note_given(f"{parent}/")
        names = [name for name in found if self._is_path(f"{parent}/{name}")]
        told = [path for path in self.unreadable if path.startswith(f"{parent}/")]
        there = set(found) if told else ()
        for path in told:
            if path[len(parent) + 1 :].partition("/")[0] not in there:
                del self.unreadable[path]  # it is gone; what comes in its place is told again
        return names

    def _is_path(self, path: str) -> bool:
        try:
            check_path(path)
        except UsageError as error:
            self._say_unreadable(path, error)
            return False
        return True

    def read_each(self, paths: Sequence[str]) -> Script:
        """Values at many paths, a slice at a time."""
        values: list[Versioned | None] = []
        for at in range(0, len(paths), self._slice_max):
            values += yield from self._read_slice(list(paths[at : at + self._slice_max]))
        given = (path for path, value in zip(paths, values, strict=True) if value is not REFUSED) if self._refused else ()
        for path in self._refused.intersection(given):
            self._note_given(path)
        return values

    def _read_slice(self, paths: list[str]) -> Script:
        """What the store has at these paths. If it refuses any of them, they are found by halves: the others are read without them."""
        try:
            return (yield "read_each", paths)
        except (StoreCorrupt, UsageError) as error:
            if isinstance(error, StoreCorrupt) and error.path not in paths:
                raise  # this is about the whole store
            if len(paths) == 1:
                yield from self._note_refused(paths[0], error)
                return [REFUSED]
        half = len(paths) // 2
        first = yield from self._read_slice(paths[:half])
        return [*first, *(yield from self._read_slice(paths[half:]))]

    def _note_refused(self, path: str, error: ReplogError) -> Script:
        if isinstance(error, UsageError):  # it does not say what it is about: a store that is closed refuses the seat too
            yield "read", layout.CONTROLLER
        self._refused.add(path)
        self._say_unreadable(path, error)

    def _note_given(self, path: str) -> None:
        if path in self._refused:
            self._refused.discard(path)
            self.unreadable.pop(path, None)

    def _decoded(self, path: str, decode: Callable[..., Any], *arguments: Any) -> Any:
        """What `decode` makes of its arguments; None, told as an event, where it cannot be read: one bad value stops nothing else."""
        if path in self._refused:
            return None
        try:
            made = decode(*arguments)
        except (StoreCorrupt, UsageError) as error:
            self._say_unreadable(path, error)
            return None
        self.unreadable.pop(path, None)
        return made

    def _say_unreadable(self, path: str, error: ReplogError) -> None:
        if self.unreadable.get(path) != str(error):
            self.unreadable[path] = str(error)
            self._tell(Told("store_value_unreadable", {"path": path, "error": str(error)}))

    def _readable(self, parent: str, decode: Callable[[str, Versioned], Any], *, watched: bool = False) -> Script:
        """What `decode` makes of the path and value of every child of a level; those that cannot be read are told and left out."""
        found = yield from self._children(parent, watched=watched)
        made = [self._decoded(path, decode, path, value) for path, value in ((f"{parent}/{name}", value) for name, value in found)]
        return [one for one in made if one is not None]

    # ---- levels

    def identity(self) -> Script:
        """Which cluster this is, and at which feature level: controllers alone change that."""
        (value,) = yield from self.read_each([layout.CLUSTER])
        found = None if value is None else self._decoded(layout.CLUSTER, _identity, layout.CLUSTER, value)
        return (found or IdentitySet(None),)

    def brokers(self) -> Script:
        """Everybody who is registered."""
        brokers = yield from self._readable(layout.BROKER_IDS, _broker, watched=True)
        return BrokersSeen(tuple(brokers))

    def admitted(self) -> Script:
        """Which incarnations were let in."""
        return (yield from self._readable(judgements.ADMITTED, _admitted))

    def topics(self, known: Cluster) -> Script:
        """Topics that the cluster does not know, with the states of their partitions, and those that are gone."""
        found = yield from self._children(layout.TOPICS)
        topics: list[Topic] = []
        kept: set[bytes] = set()
        for name, value in found:
            path = f"{layout.TOPICS}/{name}"
            topic = self._decoded(path, _topic, path, name, value)
            if topic is None:
                if name in known.names:
                    kept.add(known.names[name])  # unreadable is not gone
                continue
            kept.add(topic.topic_id)
            if topic.topic_id not in known.topics:
                topics.append(topic)
        states = yield from self._states(topics)
        readable = tuple(topic for topic in topics if topic.topic_id in states)
        stated = tuple(state for topic in readable for state in states[topic.topic_id])
        return TopicsSeen(readable, stated, tuple(t for t in sorted(known.topics) if t not in kept))

    def _states(self, topics: Sequence[Topic]) -> Script:
        """Topic id -> its (partition, state); a topic of which a state cannot be read is left out as a whole."""
        partitions = [(topic, partition) for topic in topics for partition in topic.identities()]
        paths = [layout.partition_state_path(topic.topic, p.partition) for topic, p in partitions]
        values = yield from self.read_each(paths)
        states: dict[bytes, list[tuple[PartitionId, PartitionState]]] = {topic.topic_id: [] for topic in topics}
        unreadable: set[bytes] = set()
        for (topic, partition), path, value in zip(partitions, paths, values, strict=True):
            if value is None:
                continue
            state = self._decoded(path, _state, topic, partition.partition, path, value)
            if state is None:
                unreadable.add(topic.topic_id)
            else:
                states[topic.topic_id].append((partition, state))
        return {topic_id: found for topic_id, found in states.items() if topic_id not in unreadable}

    def deletions(self, known: Cluster) -> Script:
        """Wishes to delete topics; those about topics that are there, and could not be read, wait until they can be."""
        found: list[Wish] = yield from self._wishes_below(layout.DELETE_TOPICS)
        away = self._away(known)
        return DeletionsSeen(tuple(wish for wish in found if name_of(wish.path) not in away))

    def _away(self, known: Cluster) -> set[str]:
        """Names of topics that are there, could not be read, and are not known from before that."""
        return {path.split("/")[3] for path in self.unreadable if path.startswith(f"{layout.TOPICS}/")} - known.names.keys()

    def draining(self) -> Script:
        """Which lives of brokers are to end."""
        return (yield from self._readable(layout.DRAINING, _draining))

    def losses(self) -> Script:
        """What elections may have lost."""
        topics = yield from self.names(judgements.LOSSES)
        changes: list[Change] = []
        for topic in topics:
            found = yield from self._children(f"{judgements.LOSSES}/{topic}", watched=False, nested=True)
            for name, value in found:
                path = f"{judgements.LOSSES}/{topic}/{name}"
                if value is not REFUSED:
                    changes.append(LossNoted(path, value.version, self._decoded(path, judgements.decode_loss, path, value.value)))
        return changes

    def removed(self) -> Script:
        """Which brokers still hold copies of deleted topics."""
        return (yield from self._readable(layout.REMOVED, _removed))

    def row(self, row: str, known: Cluster) -> Script:
        """Whatever is wished in a row, or kept of what was rejected."""
        if row == layout.REJECTED:
            return self.rejections()
        return self.deletions(known) if row == layout.DELETE_TOPICS else self.wishes(row, known)

    def wishes(self, row: str, known: Cluster) -> Script:
        """What is written in a row of wishes about partitions: below each topic; those about topics that cannot be read wait."""
        yield from self.watch(row)
        topics = yield from self.names(row)
        wishes: list[Wish] = []
        for topic in sorted(set(topics) - self._away(known)):
            wishes += yield from self._wishes_below(f"{row}/{topic}", nested=True)
        return WishesSeen(row, tuple(sorted(wishes, key=lambda wish: wish.path)))

    def _wishes_below(self, parent: str, *, nested: bool = False) -> Script:
        """Whatever is written there, and can be read."""
        found = yield from self._children(parent, nested=nested)
        readable = [(name, value) for name, value in found if value is not REFUSED]
        return [Wish(f"{parent}/{name}", value.value, value.version, value.created) for name, value in readable]

    def rejections(self) -> Script:
        """What is kept of wishes that were rejected, in every row of them; what else is there is left alone."""
        found: list[tuple[str, int | None, int]] = []
        parents = [layout.rejected_path(layout.DELETE_TOPICS)]
        for row in layout.WISHES:
            topics = yield from self.names(layout.rejected_path(row))
            parents += [f"{layout.rejected_path(row)}/{topic}" for topic in topics]
        for parent in parents:
            for name, value in (yield from self._children(parent, watched=False, nested=True)):
                path = f"{parent}/{name}"
                if value is REFUSED:
                    continue
                rejection = self._decoded(path, layout.decode_rejection, path, value.value)
                found.append((path, None if rejection is None else rejection.wall_ms, value.version))
        return RejectionsSeen(tuple(found))

    # ---- one path again

    def again(self, cluster: Cluster, paths: Sequence[str]) -> Script:
        """The changes that bring the cluster up to what the store has at these paths (after a conflict or an unknown outcome)."""
        values = yield from self.read_each(paths)
        changes: list[Change] = []
        for path, value in zip(paths, values, strict=True):
            if path in cluster.below:
                changes.append(Stranger(path, None))
                continue
            if value is REFUSED:
                changes += _waiting(cluster, path)
                continue
            change = self._decoded(path, _now, cluster, path, value)
            if value is not None and path in self.unreadable:
                changes += _in_the_way(cluster, path, value)
            elif path in cluster.unreadable:
                changes.append(Unreadable(path, -1))
            if change is not None:
                changes.append(change)
            if isinstance(change, TopicSet):
                states = yield from self._states([change.topic])
                changes += [StateSet(partition, state) for partition, state in states.get(change.topic.topic_id, ())]
        return changes


def _loss(path: str, value: bytes) -> LossRecord | None:
    """What is recorded there; None if it cannot be read: then the next record takes its place."""
    with suppress(StoreCorrupt):
        return judgements.decode_loss(path, value)
    return None


def _state(topic: Topic, partition: int, path: str, value: Versioned) -> PartitionState:
    """A partition's state; one that does not say which min ISR it reckons with was made under that of its topic."""
    state = layout.decode_partition_state(path, value)
    if state.min_isr or partition not in topic.assignments:
        return state
    return evolve(state, min_isr=Cluster.min_isr_of(topic, partition))


def _in_the_way(cluster: Cluster, path: str, value: Versioned) -> list[Change]:
    """What cannot be read at a path that was to be written: it counts as absent, and is written over, at the version that it has.

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
            return _waiting(cluster, path)
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
        case _:
            return []


def _waiting(cluster: Cluster, path: str) -> list[Change]:
    """If a path is of the state of a partition: it waits until that can be read."""
    try:
        place = layout.place_of(path)
    except StoreCorrupt:
        return []
    topic, number = cluster.topics.get(cluster.names.get(place.topic or "", b"")), place.partition
    if place.row != "partition_state" or topic is None or number is None or number not in topic.assignments:
        return []
    waits = (topic.identity(number),)
    return [Settled(waits), Parked(waits)]


def _identity(path: str, value: Versioned) -> IdentitySet:
    return IdentitySet(layout.decode_cluster(path, value.value), value.version)


def _broker(path: str, value: Versioned) -> Broker:
    broker_id = layout.place_of(path).broker_id
    assert broker_id is not None
    said = layout.decode_registration(path, value.value)
    info = BrokerInfo(broker_id, value.created, said.endpoints, said.rack, said.directory_id, fenced=True)
    return Broker(info, said.loss, said.incarnation, said.features)


def _admitted(path: str, value: Versioned) -> BrokerAdmitted:
    broker_id = judgements.admitted_broker(path)
    said = judgements.decode_admission(path, value.value)
    return BrokerAdmitted(broker_id, Admitted(said.broker_epoch, said.incarnation, said.directory_id, value.version))


def _topic(path: str, name: str, value: Versioned) -> Topic:
    layout.place_of(path)  # a name that no topic can have
    entry = layout.decode_topic(path, value.value)
    if not entry.partitions or not all(assignment.replicas for assignment in entry.partitions.values()):
        raise StoreCorrupt(path, "the topic has no partitions, or one without replicas")
    factor = min(len(assignment.original or assignment.replicas) for assignment in entry.partitions.values())
    if isinstance(kept := entry.config.get("min_isr"), int):
        factor = max(factor, kept)  # moves may have left partitions with fewer replicas: there less of it counts
    config = resolved(TopicConfig.kept(entry.config), factor)
    return Topic(name, entry.topic_id, config, entry.partitions, entry.next_creation, value.version, entry.former)


def _draining(path: str, value: Versioned) -> DrainingSet:
    broker_id = layout.place_of(path).broker_id
    assert broker_id is not None
    return DrainingSet(broker_id, layout.decode_draining(path, value.value), value.version)


def _removed(path: str, value: Versioned) -> RemovedSet:
    topic_id = layout.place_of(path).topic_id
    assert topic_id is not None
    return RemovedSet(topic_id, layout.decode_removed(path, value.value), value.version)


def _now(cluster: Cluster, path: str, value: Versioned | None) -> Change | None:
    """What the cluster should believe about a path that it wanted to write."""
    if path == layout.CLUSTER:
        return IdentitySet(None) if value is None else _identity(path, value)
    if path.startswith(judgements.LOSSES):
        return LossNoted(path, -1) if value is None else LossNoted(path, value.version, _loss(path, value.value))
    if path.startswith(judgements.ADMITTED):
        return AdmittedGone(judgements.admitted_broker(path)) if value is None else _admitted(path, value)
    place = layout.place_of(path)
    topic_id = cluster.names.get(place.topic or "")
    match place.row:
        case "partition_state":
            if value is not None:
                layout.decode_partition_state(path, value)  # raises, also where it is only in the way of a first state
            if topic_id is None:
                return None
            topic, number = cluster.topics[topic_id], place.topic_partition.partition
            if number not in topic.assignments:
                return None  # removed meanwhile
            partition = topic.identity(number)
            if value is None:
                return StateGone(partition)
            return StateSet(partition, _state(cluster.topics[topic_id], partition.partition, path, value))
        case layout.TOPICS:
            assert place.topic is not None
            if value is not None:
                return TopicSet(_topic(path, place.topic, value))
            return None if topic_id is None else TopicGone(topic_id)
        case layout.DELETE_TOPICS:
            assert place.topic is not None
            if value is not None:
                return DeletionSet(place.topic, layout.decode_delete_topic(path, value.value), value.version, value.created)
            wished = [d.topic_id for d in cluster.deletions.values() if d.topic == place.topic]
            return DeletionGone(wished[0]) if wished else None
        case layout.REJECTED:
            return RejectionNoted(path, -1 if value is None else value.version)
        case layout.PARTITIONS_REASSIGNED:
            if value is not None:
                decode_replicas(path, value.value)  # raises
            return reassign.seen(cluster, path, value)
        case layout.PARTITIONS_REMOVE:
            return WishNoted(path, -1 if value is None else value.version)
        case layout.DRAINING:
            assert place.broker_id is not None
            return DrainingGone(place.broker_id) if value is None else _draining(path, value)
        case layout.REMOVED:
            assert place.topic_id is not None
            return RemovedGone(place.topic_id) if value is None else _removed(path, value)
        case _:
            return None
