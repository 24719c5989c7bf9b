"""What the controller reads from the store, as scripts: each yields one store operation at a time and is sent its result.

A failed operation is raised into the script. Watches are armed before the level they cover is read, so that a change
in between is seen as a second look, never missed (KAFKA-3085).

A node that the store itself refuses to give out (its checksum does not match, an access list forbids it) is there and cannot be read,
like one whose value is damaged; but it is never written over, because its version is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

from replog.controller import stored
from replog.controller.changes import (
    Change,
    HiddenSet,
    IdentitySet,
    LossNoted,
    StateSet,
    Stranger,
    Topic,
    TopicSet,
    Unreadable,
    WishesHidden,
)
from replog.controller.cluster import Cluster
from replog.controller.events import BrokersSeen, DeletionsSeen, RejectionsSeen, TopicsSeen, Wish, WishesSeen
from replog.errors import ReplogError, StoreCorrupt, UsageError
from replog.metadata import judgements, layout
from replog.metadata.paths import check_path, name_of
from replog.model import PartitionId, PartitionState
from replog.ports import Event as Told
from replog.ports import Versioned

__all__ = ["DECODED_MAX", "REFUSED", "Reader", "Script"]

Script = Generator[tuple[Any, Any], Any, Any]
"""Yields (verb, argument) of a StoreCall; is sent its value."""
REFUSED: Final = Versioned(b"", -1, -1)
"""In place of the value of a node that is there, and that the store refuses to give out."""
DECODED_MAX: Final = 200
"""Most topics, or states, that are decoded before the next are read: some 20 ms, and whoever else is on this broker has a turn."""


def _below(level: str) -> str:
    """What stands for all that is below a path."""
    return f"{level}/"


def _is_of_a_topic(name: str) -> bool:
    with suppress(StoreCorrupt):
        return layout.place_of(f"{layout.TOPICS}/{name}").topic == name
    return False


def _attempted(decode: Callable[..., Any], *arguments: Any) -> Any:
    """What `decode` makes of its arguments, or why they cannot be read."""
    try:
        return decode(*arguments)
    except (StoreCorrupt, UsageError) as error:
        return error


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
        self._doubted: set[str] = set()
        """Names of topics that are left out, because they may be half deleted."""
        self._unknown: set[str] = set()
        """Names of topics that are there, and were not known when they were seen."""

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
        return bool(known.vanished) or any(path.startswith(_below(layout.TOPICS)) for path in self.unreadable)

    def is_refused(self, level: str) -> bool:
        """Whether the store did not give out all of what is below a level when that was last read."""
        return any(path.startswith(_below(level)) for path in self._refused)

    def watch(self, path: str) -> Script:
        """Arm a watch unless it is armed."""
        if path not in self._armed:
            self._armed.add(path)  # at once: it may fire before the store has said that it is armed, and is armed no more then
            try:
                yield "watch", path
            except BaseException:
                self._armed.discard(path)
                raise

    def _watch_nested(self, path: str) -> Script:
        with suppress(UsageError):  # what may not be listed may not be watched: listing it says so
            yield from self.watch(path)

    def _children(self, parent: str, *, watched: bool = True, nested: bool = False) -> Script:
        """(name, value) of every child of a level that has a value, sorted by name."""
        if watched:
            yield from self._watch_nested(parent) if nested else self.watch(parent)
        names = yield from self.names(parent, nested=nested)
        values = yield from self.read_each([f"{parent}/{name}" for name in names])
        return [(name, value) for name, value in zip(names, values, strict=True) if value is not None]

    def names(self, parent: str, *, nested: bool = False) -> Script:
        """Names of the children of a level; one that makes no path that can be read is told, and left out.

        `nested`: the rest goes on without it; if the store refuses to list it, that is told, and nothing is known to be there.
        """
        try:
            found: list[str] = yield "list", parent
        except UsageError as error:
            if not nested:
                raise
            yield from self._note_refused(_below(parent), error)
            return []
        self._note_given(_below(parent))
        names = [name for name in found if self._is_path(f"{parent}/{name}")]
        told = [path for path in self.unreadable if path.startswith(_below(parent))]
        there = set(found) if told else ()
        for path in told:
            if path[len(parent) + 1 :].partition("/")[0] not in there:
                del self.unreadable[path]  # it is gone; what comes in its place is told again
                self._refused.discard(path)
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
        return (yield from self._in_slices(paths, lambda _at, value: value, self._slice_max))

    def _decode_each(self, paths: Sequence[str], decode: Callable[[int, Versioned], Any]) -> Script:
        """(place, what `decode` makes of that and the value) of each path where there is one; None, told, where it cannot be read.

        Each slice is decoded before the next is read: no turn is a long one. What is found out about paths is noted once all are read:
        a reading that is broken off has found out nothing.
        """
        slice_max = min(self._slice_max, DECODED_MAX)
        made = yield from self._in_slices(paths, lambda at, value: value and _attempted(decode, at, value), slice_max)
        return [(at, self._taken(paths[at], one)) for at, one in enumerate(made) if one is not None]

    def _in_slices(self, paths: Sequence[str], make: Callable[[int, Versioned | None], Any], slice_max: int) -> Script:
        """What `make` makes of each place and the value at that path, a slice at a time."""
        made: list[Any] = []
        given: list[str] = []
        for at in range(0, len(paths), slice_max):
            part = list(paths[at : at + slice_max])
            values = yield from self._read_slice(part)
            if self._refused:
                given += (path for path, value in zip(part, values, strict=True) if value is not REFUSED)
            made += map(make, range(at, at + len(part)), values)
        for path in self._refused.intersection(given):
            self._note_given(path)
        return made

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
        return None if path in self._refused else self._taken(path, _attempted(decode, *arguments))

    def _taken(self, path: str, made: Any) -> Any:
        """The same, once it is decided what was made of the value at a path: that, or why it cannot be read."""
        if path in self._refused:
            return None
        if isinstance(made, ReplogError):
            self._say_unreadable(path, made)
            return None
        self.unreadable.pop(path, None)
        return made

    def _say_unreadable(self, path: str, error: ReplogError) -> None:
        if self.unreadable.get(path) != str(error):
            self.unreadable[path] = str(error)
            self._tell(Told("store_value_unreadable", {"path": path, "error": str(error)}))

    def _readable(self, parent: str, decode: Callable[[str, Versioned], Any], *, watched: bool = False) -> Script:
        """What `decode` makes of the path and value of every child of a level; those that cannot be read are told and left out."""
        found = yield from self._children(parent, watched=watched, nested=not watched)
        made = [self._decoded(path, decode, path, value) for path, value in ((f"{parent}/{name}", value) for name, value in found)]
        return [one for one in made if one is not None]

    # ---- levels

    def identity(self) -> Script:
        """Which cluster this is, and at which feature level: controllers alone change that."""
        (value,) = yield from self.read_each([layout.CLUSTER])
        found = None if value is None else self._decoded(layout.CLUSTER, stored.identity_of, layout.CLUSTER, value)
        return (found or IdentitySet(None),)

    def brokers(self) -> Script:
        """Everybody who is registered."""
        brokers = yield from self._readable(layout.BROKER_IDS, stored.broker_of, watched=True)
        return BrokersSeen(tuple(brokers))

    def admitted(self) -> Script:
        """Which incarnations were let in: of everybody, or of those who are registered, where the level may not be listed."""
        found = yield from self._readable(judgements.ADMITTED, stored.admitted_of)
        if _below(judgements.ADMITTED) not in self._refused:
            return found
        registered = yield from self.names(layout.BROKER_IDS)
        paths = [f"{judgements.ADMITTED}/{name}" for name in registered]
        values = zip(paths, (yield from self.read_each(paths)), strict=True)
        made = [self._decoded(path, stored.admitted_of, path, value) for path, value in values if value is not None]
        return [one for one in made if one is not None]

    def hidden(self, known: Cluster) -> HiddenSet:
        """What could not be read, when it was last read, of that which says what brokers have lost."""
        self._unknown = {name for name in self._unknown if name not in known.names}
        paths = {judgements.admitted_path(broker_id): broker_id for broker_id in known.brokers}
        refused = frozenset(paths[path] for path in self._refused.intersection(paths))
        garbled = frozenset(paths[path] for path in paths.keys() & self.unreadable.keys()) - refused
        removals = self.is_refused(layout.REMOVED)
        return HiddenSet(frozenset(self._unknown), refused, _below(judgements.ADMITTED) in self._refused, garbled, removals)

    def topics(self, known: Cluster) -> Script:
        """Topics that the cluster does not know, with the states of their partitions, and those that are gone.

        Every node is read: one that was made anew under its name looks the same in a list.
        """
        yield from self.watch(layout.TOPICS)
        found = yield from self._named(known, (yield from self.names(layout.TOPICS)))
        self._doubted.clear()
        topics: list[Topic] = []
        kept: set[bytes] = set()
        for name, topic in found:
            if topic is None:
                if name in known.names:
                    kept.add(known.names[name])  # unreadable is not gone
                continue
            kept.add(topic.topic_id)
            if topic.topic_id not in known.topics and not self._is_doubted(name):
                topics.append(topic)
        states = yield from self._states(topics)
        readable = tuple(topic for topic in topics if topic.topic_id in states)
        new = ((name, topic) for name, topic in found if name not in known.names)
        self._unknown = {name for name, topic in new if topic is not None or _is_of_a_topic(name)}
        stated = tuple(state for topic in readable for state in states[topic.topic_id])
        return TopicsSeen(readable, stated, tuple(t for t in sorted(known.topics) if t not in kept))

    def _named(self, known: Cluster, names: Sequence[str]) -> Script:
        """(name, topic) of each of these that is there; None where it cannot be read. What is known at its version is not decoded again."""
        paths = [f"{layout.TOPICS}/{name}" for name in names]

        def decode(at: int, value: Versioned) -> Topic:
            topic = known.topic_named(names[at])
            if topic is None or (topic.version, topic.created) != (value.version, value.created) or paths[at] in self.unreadable:
                return stored.topic_of(paths[at], names[at], value)
            return topic

        return [(names[at], topic) for at, topic in (yield from self._decode_each(paths, decode))]

    def _states(self, topics: Sequence[Topic]) -> Script:
        """Topic id -> its (partition, state); a topic of which a state cannot be read is left out as a whole."""
        partitions = [(topic, partition) for topic in topics for partition in topic.identities()]
        paths = [layout.partition_state_path(topic.topic, p.partition) for topic, p in partitions]

        def decode(at: int, value: Versioned) -> PartitionState:
            topic, partition = partitions[at]
            return stored.state_of(topic, partition.partition, paths[at], value)

        states: dict[bytes, list[tuple[PartitionId, PartitionState]]] = {topic.topic_id: [] for topic in topics}
        unreadable: set[bytes] = set()
        for at, state in (yield from self._decode_each(paths, decode)):
            topic, partition = partitions[at]
            if state is None:
                unreadable.add(topic.topic_id)
            else:
                states[topic.topic_id].append((partition, state))
        return {topic_id: found for topic_id, found in states.items() if topic_id not in unreadable}

    def deletions(self, known: Cluster, *, nested: bool = False) -> Script:
        """Wishes to delete topics; those about topics that are there, and could not be read, wait until they can be."""
        found: list[Wish] = yield from self._wishes_below(layout.DELETE_TOPICS, nested=nested)
        away = self._away(known)
        return DeletionsSeen(tuple(wish for wish in found if name_of(wish.path) not in away))

    def _away(self, known: Cluster) -> set[str]:
        """Names of topics that are there, were left out because they could not be read, and are not known from before that."""
        unread = {path.split("/")[3] for path in self.unreadable if path.startswith(_below(layout.TOPICS))}
        return {name for name in unread | self._doubted if name not in known.names}

    def doubted(self, topics: Iterable[Topic]) -> dict[bytes, None]:
        """Of topics that have just been read for the first time the ids of those that may be half deleted."""
        return {topic.topic_id: None for topic in topics if self._is_doubted(topic.topic)}

    def _is_doubted(self, name: str) -> bool:
        """Whether a wish to delete a topic is there, and refused: whoever made the topic whole again would do so without a word."""
        if self._refused.isdisjoint((layout.delete_topic_path(name), _below(layout.DELETE_TOPICS))):
            self._doubted.discard(name)
            return False
        self._doubted.add(name)
        return True

    def draining(self) -> Script:
        """Which lives of brokers are to end."""
        return (yield from self._readable(layout.DRAINING, stored.draining_of))

    def losses(self) -> Script:
        """What elections may have lost."""
        topics = yield from self.names(judgements.LOSSES, nested=True)
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
        return (yield from self._readable(layout.REMOVED, stored.removed_of))

    def row(self, row: str, known: Cluster) -> Script:
        """Whatever is wished in a row, or kept of what was rejected."""
        if row == layout.REJECTED:
            return self.rejections()
        return self.deletions(known, nested=True) if row == layout.DELETE_TOPICS else self.wishes(row, known)

    def wishes(self, row: str, known: Cluster) -> Script:
        """What is written in a row of wishes about partitions: below each topic; those about topics that cannot be read wait."""
        yield from self._watch_nested(row)
        topics = yield from self.names(row, nested=True)
        wishes: list[Wish] = []
        for topic in sorted(set(topics) - self._away(known)):
            wishes += yield from self._wishes_below(f"{row}/{topic}", nested=True)
        refused = [path for path in self._refused if path.startswith(_below(row))]
        levels = tuple(sorted(path for path in refused if path.endswith("/")))
        hidden = WishesHidden(frozenset(refused).difference(levels), levels)
        return WishesSeen(row, tuple(sorted(wishes, key=lambda wish: wish.path)), hidden=hidden)

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
            topics = yield from self.names(layout.rejected_path(row), nested=True)
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
            if path.startswith(_below(layout.TOPICS)) and value is not None:
                self._unknown.add(path.split("/")[3])  # unless it is known, or will be
            if value is REFUSED:
                changes += stored.waiting(cluster, path)
                continue
            change = self._decoded(path, stored.now_at, cluster, path, value)
            if value is not None and (path in self.unreadable or isinstance(change, Unreadable)):
                changes += stored.in_the_way(cluster, path, value)
            elif path in cluster.unreadable:
                changes.append(Unreadable(path, -1))
            if isinstance(change, TopicSet) and change.topic.topic_id not in cluster.topics and self._is_doubted(change.topic.topic):
                continue
            if isinstance(change, TopicSet):
                states = yield from self._states([change.topic])
                if change.topic.topic_id not in (cluster.topics.keys() | states.keys()):
                    continue  # left out as a whole, as where all are read
                changes += [change, *(StateSet(partition, state) for partition, state in states.get(change.topic.topic_id, ()))]
            elif change is not None:
                changes.append(change)
        return changes
