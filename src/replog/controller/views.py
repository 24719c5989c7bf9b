"""What brokers are told of the cluster: the newest of each partition; for their clients complete views, and deltas numbered one by one."""

from __future__ import annotations

from replog.controller.admitting import is_led_early
from replog.controller.changes import (
    BrokerAdmitted,
    BrokerGone,
    BrokerSet,
    Change,
    DrainingGone,
    DrainingSet,
    SilenceSet,
    StateGone,
    StateSet,
    Topic,
    TopicGone,
    TopicSet,
)
from replog.controller.cluster import Cluster
from replog.messages import ClusterView, PartitionNotice, PartitionView, TopicView
from replog.model import BrokerInfo, PartitionId

__all__ = ["Views"]


class Views:
    """Collects what changed since the last delta. `version` orders the deltas of one controller epoch."""

    def __init__(self, cluster: Cluster, controller_id: int, controller_epoch: int, cluster_id: str) -> None:
        self._cluster = cluster
        self._controller_id = controller_id
        self._controller_epoch = controller_epoch
        self._cluster_id = cluster_id
        self.version = 0
        self._shapes: dict[bytes, object] = {}
        """Topic id -> configuration and partitions, as told last."""
        self._hidden: frozenset[str] = frozenset()
        """Topics that could not be read when the last view was told."""
        self._clear()

    def _clear(self) -> None:
        self._partitions: dict[PartitionId, None] = {}
        self._topics: dict[bytes, None] = {}
        self._brokers: dict[int, None] = {}

    def notice(self, partition: PartitionId) -> PartitionNotice | None:
        """What brokers are to know of a partition. Nothing of one that is being deleted: nobody gives it a new epoch any more.

        Nor of one whose leader has yet to be let in: the state is of an earlier life of it, and another one could not be stored. It would
        lead the same epoch again, perhaps without its records, and its followers would cut theirs.
        """
        cluster = self._cluster
        topic, state = cluster.topic_of(partition), cluster.states.get(partition)
        if topic is None or state is None or partition.topic_id in cluster.deletions:
            return None
        if state.leader in cluster.brokers and not cluster.is_admitted(state.leader):
            return None
        if partition in cluster.parked and is_led_early(cluster, state):
            return None
        return PartitionNotice(partition, topic.topic, state, topic.assignments[partition.partition], topic.config)

    def note(self, change: Change) -> None:
        """A change was applied to the cluster."""
        match change:
            case StateSet(partition) | StateGone(partition):
                self._partitions[partition] = None
            case TopicSet(topic):
                shape = topic.config, tuple((number, one.creation) for number, one in topic.assignments.items())
                if self._shapes.get(topic.topic_id) != shape:  # else some partitions moved, whose states say so
                    self._shapes[topic.topic_id] = shape
                    self._topics[topic.topic_id] = None
            case TopicGone(topic_id):
                self._shapes.pop(topic_id, None)
                self._topics[topic_id] = None
            case BrokerSet(broker):
                self._brokers[broker.info.broker_id] = None
            case (
                BrokerGone(broker_id)
                | BrokerAdmitted(broker_id)
                | DrainingSet(broker_id)
                | DrainingGone(broker_id)
                | SilenceSet(broker_id)
            ):
                self._brokers[broker_id] = None
            case _:
                pass

    def complete(self) -> ClusterView:
        """The whole cluster."""
        cluster = self._cluster
        brokers = [cluster.brokers[b].info for b in sorted(cluster.brokers)]
        topics = [self._topic(cluster.topics[t], None) for t in sorted(cluster.topics)]
        return self._view(-1, brokers=brokers, topics=topics, hidden=sorted(cluster.hidden.topics))

    def still(self) -> ClusterView:
        """Nothing new: tells a broker that missed a delta that it did."""
        return self._view(self.version, brokers=[], topics=[])

    def delta(self) -> ClusterView | None:
        """What changed since the last one; None if nothing did. Everything, if that tells which topics there are not."""
        if self._hidden != self._cluster.hidden.topics:
            self._hidden = self._cluster.hidden.topics
            self.version += 1
            self._clear()
            return self.complete()
        if not (self._partitions or self._topics or self._brokers):
            return None
        cluster, since = self._cluster, self.version
        self.version += 1
        changed: dict[bytes, list[int]] = {}
        for partition in sorted(self._partitions):
            changed.setdefault(partition.topic_id, []).append(partition.partition)
        topics: list[TopicView] = []
        gone: list[bytes] = []
        for topic_id in sorted({*changed, *self._topics}):
            topic = cluster.topics.get(topic_id)
            if topic is None:
                gone.append(topic_id)
            else:
                topics.append(self._topic(topic, None if topic_id in self._topics else changed[topic_id]))
        view = self._view(
            since,
            brokers=[cluster.brokers[b].info for b in sorted(self._brokers) if b in cluster.brokers],
            topics=topics,
        )
        view.removed_topics = gone
        view.removed_brokers = [b for b in sorted(self._brokers) if b not in cluster.brokers]
        self._clear()
        return view

    def _view(self, since: int, *, brokers: list[BrokerInfo], topics: list[TopicView], hidden: list[str] | None = None) -> ClusterView:
        return ClusterView(
            controller_epoch=self._controller_epoch,
            version=self.version,
            since=since,
            controller=self._controller_id,
            brokers=brokers,
            topics=topics,
            cluster_id=self._cluster_id,
            hidden=hidden or [],
        )

    def _topic(self, topic: Topic, partitions: list[int] | None) -> TopicView:
        numbers = sorted(topic.assignments) if partitions is None else [p for p in partitions if p in topic.assignments]
        listed = tuple(self._partition(topic, n) for n in numbers)
        return TopicView(topic.topic, topic.topic_id, topic.config, listed, max(topic.assignments) + 1)

    def _partition(self, topic: Topic, partition: int) -> PartitionView:
        assignment = topic.assignments[partition]
        state = self._cluster.states.get(topic.identity(partition))
        if state is None:
            return PartitionView(partition, assignment.creation, None, -1, (), (), assignment.replicas, -1)
        return PartitionView(
            partition=partition,
            creation=assignment.creation,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            elr=state.elr,
            replicas=assignment.replicas,
            partition_epoch=state.partition_epoch,
            recovering=state.recovering,
            adding=assignment.adding,
            removing=assignment.removing,
        )
