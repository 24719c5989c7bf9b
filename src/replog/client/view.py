"""The cluster as a client last heard of it: merged from complete views and deltas, never going back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import attrs

from replog.config import BATCH_BYTES_MAX, TopicConfig
from replog.messages import ClusterView, PartitionView, TopicView
from replog.model import BrokerInfo, PartitionId

__all__ = ["NEWS", "NOT_NEWER", "STALE", "Place", "Topic", "View"]

NEWS = 2
"""Merged, and something changed."""
NOT_NEWER = 1
"""As new as what is known, and about the same topics: a valid answer, without news."""
STALE = 0
"""Older than what is known, from a broker that knows nothing yet, or a delta with a gap before it: no answer at all."""


class Place(NamedTuple):
    """Where a partition lives now."""

    identity: PartitionId
    leader: int | None
    leader_epoch: int


class Topic:
    """One topic: its identity, its configuration and its partitions by number."""

    __slots__ = ("config", "name", "partitions", "places", "topic_id")

    def __init__(self, name: str, topic_id: bytes, config: TopicConfig) -> None:
        self.name = name
        self.topic_id = topic_id
        self.config = config
        self.partitions: dict[int, PartitionView] = {}
        self.places: dict[int, Place] = {}
        """Where each partition lives, ready for every request that asks."""

    def is_as_asked(self, wish: Mapping[str, Any]) -> bool:
        """Whether it may have come of this `create_topic`; as well of the same of another client."""
        wished, config, factor = TopicConfig.from_mapping(wish["config"]), self.config, wish["replication_factor"]
        if wished.min_isr is None:  # settled when it was made
            config = attrs.evolve(config, min_isr=None)
        if factor is not None and any(len(one.replicas) != factor for one in self.partitions.values()):
            return False
        return config == wished and len(self.partitions) == wish["partitions"]

    def take(self, news: PartitionView) -> None:
        """A partition is as `news` says from now on."""
        number = news.partition
        self.partitions[number] = news
        self.places[number] = Place(PartitionId(self.topic_id, number, news.creation), news.leader, news.leader_epoch)

    def cut(self, end: int) -> list[int]:
        """Partitions from this number on were removed. Returns their numbers."""
        gone = [n for n in self.partitions if n >= end]
        for number in gone:
            del self.partitions[number]
            del self.places[number]
        return gone

    def numbers(self) -> list[int]:
        """The existing partition numbers, ascending."""
        return sorted(self.partitions)


class View:
    """What the client routes by. (controller epoch, version) only grows; `serial` counts changes of topics and partitions.

    They are those of the whole cluster, of which rules may hide topics: what is shown of one version may change, in complete views.
    Topics that are `hidden` are there, and the controller cannot read them: they are here as they were, if they were.
    """

    __slots__ = ("_names", "brokers", "cluster_id", "controller", "controller_epoch", "gone", "hidden", "serial", "topics", "version")

    def __init__(self) -> None:
        self.controller_epoch = -1
        self.version = -1
        self.cluster_id = ""
        self.controller = -1
        self.brokers: dict[int, BrokerInfo] = {}
        self.topics: dict[str, Topic] = {}
        self._names: dict[bytes, str] = {}
        self.hidden: frozenset[str] = frozenset()
        self.serial = 0
        self.gone: dict[tuple[str, int], None] | None = {}
        """Partitions (topic, number) that the last news took away; None: perhaps any."""

    def merge(self, news: ClusterView) -> int:
        """Take in an answer or a pushed view: NEWS, NOT_NEWER or STALE."""
        ours, theirs = (self.controller_epoch, self.version), (news.controller_epoch, news.version)
        if theirs < ours or (news.since < 0 and not news.brokers):
            return STALE
        self.gone = {}
        if theirs == ours and (news.since >= 0 or self._has_named(news)):
            return NOT_NEWER
        if news.since >= 0 and (news.controller_epoch != self.controller_epoch or news.since > self.version):
            return STALE
        known = self.topics
        if news.since < 0:
            self.hidden = frozenset(news.hidden)
            kept = {name: topic for name, topic in known.items() if name in self.hidden}
            self.brokers, self.topics, self._names = {}, kept, {topic.topic_id: name for name, topic in kept.items()}
        self.controller_epoch, self.version = theirs
        self.controller = news.controller
        self.cluster_id = news.cluster_id or self.cluster_id
        for broker in news.brokers:
            self.brokers[broker.broker_id] = broker
        for broker_id in news.removed_brokers:
            self.brokers.pop(broker_id, None)
        self._remove(news.removed_topics)
        for topic in news.topics:
            self._take(topic, known.get(topic.topic))
        if news.since < 0:
            self.gone = None
        self.serial += 1
        return NEWS

    def _has_named(self, news: ClusterView) -> bool:
        """Whether a complete view is about the same topics as are known."""
        hidden = {topic_id for topic_id, name in self._names.items() if name in news.hidden}
        return {topic.topic_id for topic in news.topics} | hidden == self._names.keys()

    def _remove(self, topic_ids: Iterable[bytes]) -> None:
        for topic_id in topic_ids:
            name = self._names.pop(topic_id, None)
            if name is not None and self.topics[name].topic_id == topic_id:
                self._lose(name, self.topics.pop(name).partitions)

    def _lose(self, topic: str, numbers: Iterable[int]) -> None:
        if self.gone is not None:
            self.gone.update(((topic, number), None) for number in numbers)

    def _take(self, news: TopicView, known: Topic | None) -> None:
        topic = self.topics.get(news.topic)
        if topic is None or topic.topic_id != news.topic_id:
            if topic is not None:
                self._names.pop(topic.topic_id, None)
                self._lose(topic.name, topic.partitions)
            topic = self.topics[news.topic] = Topic(news.topic, news.topic_id, news.config)
            self._names[news.topic_id] = news.topic
        topic.config = news.config
        if news.end >= 0:
            self._lose(topic.name, topic.cut(news.end))
        led = known.partitions if known is not None and known.topic_id == news.topic_id else {}
        for partition in news.partitions:
            topic.take(_led_no_earlier(partition, led.get(partition.partition)))

    def hint(self, identity: PartitionId, leader: int, leader_epoch: int) -> bool:
        """A broker that is not the leader named it. Believed only with a newer leader epoch than the view has."""
        name = self._names.get(identity.topic_id)
        topic = self.topics[name] if name is not None else None
        known = topic.partitions.get(identity.partition) if topic is not None else None
        if topic is None or known is None or known.creation != identity.creation or leader < 0 or leader_epoch <= known.leader_epoch:
            return False
        topic.take(attrs.evolve(known, leader=leader, leader_epoch=leader_epoch))
        return True

    def batch_limit(self, topic: str) -> int:
        """The largest batch that a topic takes, in bytes."""
        known = self.topics.get(topic)
        return known.config.max_batch_bytes if known is not None else BATCH_BYTES_MAX

    def place(self, topic: str, partition: int) -> Place | None:
        """The identity and the leader of a partition; None where the view does not have it."""
        known = self.topics.get(topic)
        return known.places.get(partition) if known is not None else None

    def has_moved(self, topic: str, partition: int, place: Place) -> bool:
        """Whether what was sent to `place` belongs elsewhere now: another broker leads, in a newer leader epoch, or the log is gone.

        The same leader in a newer epoch is not elsewhere: it still has what it was sent, and answers.
        """
        now = self.place(topic, partition)
        if now is None or now.identity != place.identity:
            return True
        return now.leader is not None and now.leader != place.leader and now.leader_epoch > place.leader_epoch

    def unknown(self, topic: str, partition: int) -> str:
        """Why there is no such place, for people: names what is known."""
        known = self.topics.get(topic)
        if known is not None:
            return f"topic {topic!r} has no partition {partition}; it has {_some(known.numbers())}"
        known_topics = f"known topics are {_some(sorted(self.topics))}" if self.topics else "there are no topics yet"
        return f"unknown topic {topic!r}; {known_topics}"


def _led_no_earlier(news: PartitionView, known: PartitionView | None) -> PartitionView:
    """A hint may be newer than a view that comes later: the leader epoch of one log never goes back (KIP-320, "Client Handling")."""
    if known is None or known.creation != news.creation or known.leader_epoch <= news.leader_epoch:
        return news
    return attrs.evolve(news, leader=known.leader, leader_epoch=known.leader_epoch)


def _some(names: Iterable[object], most: int = 20) -> str:
    listed = [str(name) for name in names]
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more
