"""The cluster as this broker can tell it to clients: the controller's deltas, merged in order (design, section 6, "Routing")."""

from __future__ import annotations

from attrs import evolve

from replog.broker.recent import Recent
from replog.messages import ClusterView, Metadata, PartitionView, TopicView
from replog.model import BrokerInfo

__all__ = ["Routing"]


class Routing:
    """The merged view. A gap is not papered over: it is reported, and the complete view asked for."""

    def __init__(self) -> None:
        self.controller_epoch = -1
        self.version = -1
        self.controller: int = -1
        self.cluster_id = ""
        self.hidden: frozenset[str] = frozenset()
        """Topics that are there, and that the controller could not read: they are here as they were, if they were."""
        self.brokers: dict[int, BrokerInfo] = {}
        """Shared with every partition of this broker: who is registered, in which life, fenced or draining."""
        self.topics: dict[bytes, TopicView] = {}
        self.names: dict[str, bytes] = {}
        """Name -> topic id, of `topics`."""
        self._recent_topics = Recent[bytes]()
        self._recent_brokers = Recent[int]()
        self._partitions: dict[bytes, dict[int, PartitionView]] = {}
        """Topic id -> the partitions of that topic by number."""

    def partition(self, topic_id: bytes, number: int) -> PartitionView | None:
        """The partition of this number, whichever log has it now. Clients may ask for thousands that do not exist: no topic is walked."""
        return self._partitions.get(topic_id, {}).get(number)

    def merge(self, view: ClusterView) -> bool:
        """Apply a delta or a complete view; False if a delta does not follow what is here (nothing is applied then)."""
        if (view.controller_epoch, view.version) <= (self.controller_epoch, self.version) and view.since >= 0:
            return True  # old news
        if view.since >= 0 and (view.controller_epoch != self.controller_epoch or view.since > self.version):
            return False
        if view.since < 0:
            if (view.controller_epoch, view.version) < (self.controller_epoch, self.version):
                return True
            self.brokers.clear()
            self.hidden = frozenset(view.hidden)
            for topic_id in [topic_id for topic_id, topic in self.topics.items() if topic.topic not in self.hidden]:
                self._drop(topic_id)
            self._recent_topics, self._recent_brokers = Recent(view.version), Recent(view.version)
        self.controller_epoch = view.controller_epoch
        self.version = view.version
        self.controller = view.controller
        self.cluster_id = view.cluster_id or self.cluster_id
        for broker in view.brokers:
            self.brokers[broker.broker_id] = broker
        for broker_id in view.removed_brokers:
            self.brokers.pop(broker_id, None)
        for topic in view.topics:
            self._merge_topic(topic)
        for topic_id in view.removed_topics:
            self._drop(topic_id)
        if view.since >= 0:
            self._recent_topics.note([*(topic.topic_id for topic in view.topics), *view.removed_topics], view.version)
            self._recent_brokers.note([*(broker.broker_id for broker in view.brokers), *view.removed_brokers], view.version)
        return True

    def _drop(self, topic_id: bytes) -> None:
        topic = self.topics.pop(topic_id, None)
        if topic is not None and self.names.get(topic.topic) == topic_id:
            del self.names[topic.topic]
        self._partitions.pop(topic_id, None)

    def _merge_topic(self, topic: TopicView) -> None:
        before = self.names.get(topic.topic, topic.topic_id)
        if before != topic.topic_id:  # made anew under its name, and nobody has said that the other one is gone
            self._drop(before)
            self._recent_topics.note([before], self.version)
        self.names[topic.topic] = topic.topic_id
        partitions = self._partitions.setdefault(topic.topic_id, {})
        if topic.end >= 0:
            for gone in [number for number in partitions if number >= topic.end]:
                del partitions[gone]
        partitions.update((p.partition, p) for p in topic.partitions)
        if topic.topic_id not in self.topics:
            self.topics[topic.topic_id] = topic
            return
        self.topics[topic.topic_id] = evolve(topic, partitions=tuple(partitions[n] for n in sorted(partitions)))

    def answer(self, asked: Metadata, missing: list[tuple[str, int, str]] | None = None) -> ClusterView:
        """What a client at (controller epoch, version) is missing, or the complete view; and what becomes of topics it sought."""
        topics, brokers = self._changed_since(asked) or (None, None)
        return ClusterView(
            self.controller_epoch,
            self.version,
            -1 if topics is None else asked.since,
            self.controller,
            [self.brokers[b] for b in sorted(self.brokers if brokers is None else self.brokers.keys() & brokers)],
            [self.topics[t] for t in sorted(self.topics if topics is None else self.topics.keys() & topics)],
            removed_topics=sorted(t for t in topics or () if t not in self.topics),
            removed_brokers=sorted(b for b in brokers or () if b not in self.brokers),
            cluster_id=self.cluster_id,
            request=asked.request,
            missing=missing or [],
            hidden=sorted(self.hidden) if topics is None else [],
        )

    def _changed_since(self, asked: Metadata) -> tuple[frozenset[bytes], frozenset[int]] | None:
        """Topics and brokers that changed, or went, since the version of a client; None: it is to be shown everything.

        So is who seeks a topic that has not changed since, and asks because it lacks it; and while topics are hidden who seeks any, or
        is behind: other brokers may not know what is known here.
        """
        if asked.controller_epoch != self.controller_epoch or asked.since > self.version:
            return None
        if self.hidden and (asked.sought or asked.since < self.version):
            return None
        topics, brokers = self._recent_topics.after(asked.since), self._recent_brokers.after(asked.since)
        if topics is None or brokers is None:
            return None
        lacking = (self.names[name] for name in asked.sought if name in self.names)
        return (topics, brokers) if asked.since == self.version or topics.issuperset(lacking) else None
