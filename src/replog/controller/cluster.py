"""The cluster as the controller knows it: what the store says, plus what follows from who is alive. `apply` alone changes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from attrs import define, evolve, field, frozen

from replog.config import TopicConfig
from replog.controller.election import effective_min_isr
from replog.model import Assignment, BrokerInfo, PartitionId, PartitionState
from replog.ports import LossReport

__all__ = [
    "Admitted",
    "Broker",
    "BrokerAdmitted",
    "BrokerGone",
    "BrokerSet",
    "Change",
    "Cluster",
    "DeletionGone",
    "DeletionSet",
    "Due",
    "LossNoted",
    "ProposalRefused",
    "RemovedGone",
    "RemovedSet",
    "ReplicaBroken",
    "RoomSet",
    "Settled",
    "StateGone",
    "StateSet",
    "Topic",
    "TopicGone",
    "TopicSet",
]


@frozen
class Admitted:
    """The last incarnation of a broker that was let in: its losses have been dealt with (stored by the controller)."""

    broker_epoch: int
    incarnation: str
    directory_id: str
    version: int


@frozen
class Broker:
    """A registered broker. `info.fenced` until its epoch is the admitted one."""

    info: BrokerInfo
    loss: LossReport = field(factory=LossReport)
    incarnation: str = ""


@frozen
class Topic:
    """A topic as stored; `version` is that of its node."""

    topic: str
    topic_id: bytes
    config: TopicConfig
    """min_isr is resolved."""
    assignments: Mapping[int, Assignment]
    next_creation: int = 0
    version: int = 0

    def identity(self, partition: int) -> PartitionId:
        """The identity of one of its partitions."""
        return PartitionId(self.topic_id, partition, self.assignments[partition].creation)

    def identities(self) -> Iterator[PartitionId]:
        """All of its partitions, in order."""
        return (self.identity(partition) for partition in sorted(self.assignments))


@frozen
class BrokerSet:
    """A broker registered, or registered anew."""

    broker: Broker


@frozen
class BrokerGone:
    """A broker's registration is gone."""

    broker_id: int


@frozen
class BrokerAdmitted:
    """A broker's incarnation was let in."""

    broker_id: int
    admitted: Admitted


@frozen
class TopicSet:
    """A topic exists."""

    topic: Topic


@frozen
class TopicGone:
    """A topic's node is gone from the store."""

    topic_id: bytes


@frozen
class StateSet:
    """A partition's state, as stored."""

    partition: PartitionId
    state: PartitionState


@frozen
class StateGone:
    """A partition's state node is gone."""

    partition: PartitionId


@frozen
class DeletionSet:
    """A topic is to be deleted: the wish is stored (at this version)."""

    topic: str
    topic_id: bytes
    version: int


@frozen
class DeletionGone:
    """A deletion wish is gone."""

    topic_id: bytes


@frozen
class RemovedSet:
    """Brokers that still hold copies of a deleted topic."""

    topic_id: bytes
    brokers: tuple[int, ...]
    version: int


@frozen
class RemovedGone:
    """No broker holds copies of that deleted topic any more."""

    topic_id: bytes


@frozen
class LossNoted:
    """A decision that may lose records was recorded (at this version)."""

    path: str
    version: int


@frozen
class ReplicaBroken:
    """The disk under one replica failed; it counts as dead for that partition until its broker comes back with another epoch."""

    partition: PartitionId
    broker_id: int
    broker_epoch: int


@frozen
class RoomSet:
    """Whether a broker has room for its copy. Without it counts as dead for that partition, but nothing that it held is lost."""

    partition: PartitionId
    broker_id: int
    broker_epoch: int
    has_room: bool


@frozen
class ProposalRefused:
    """A leader is told that its proposal was not stored: it never will be, whatever becomes of the reason."""

    partition: PartitionId
    partition_epoch: int
    proposal: int


@frozen
class Due:
    """These partitions have to be decided again."""

    partitions: tuple[PartitionId, ...]


@frozen
class Settled:
    """These partitions have been decided."""

    partitions: tuple[PartitionId, ...]


Change = (
    BrokerSet
    | BrokerGone
    | BrokerAdmitted
    | TopicSet
    | TopicGone
    | StateSet
    | StateGone
    | DeletionSet
    | DeletionGone
    | RemovedSet
    | RemovedGone
    | LossNoted
    | ReplicaBroken
    | RoomSet
    | ProposalRefused
    | Due
    | Settled
)


@define
class Cluster:
    """Everything a decision may look at. Partitions are indexed by broker, so that a broker's death costs only its own."""

    brokers: dict[int, Broker] = field(factory=dict)
    admitted: dict[int, Admitted] = field(factory=dict)
    topics: dict[bytes, Topic] = field(factory=dict)
    names: dict[str, bytes] = field(factory=dict)
    states: dict[PartitionId, PartitionState] = field(factory=dict)
    deletions: dict[bytes, DeletionSet] = field(factory=dict)
    removed: dict[bytes, RemovedSet] = field(factory=dict)
    losses: dict[str, int] = field(factory=dict)
    due: dict[PartitionId, None] = field(factory=dict)
    partitions_total: int = 0
    _by_broker: dict[int, dict[PartitionId, None]] = field(factory=dict)
    _broken: dict[PartitionId, dict[int, int]] = field(factory=dict)
    _roomless: dict[PartitionId, dict[int, int]] = field(factory=dict)
    _refused: dict[PartitionId, tuple[int, int]] = field(factory=dict)
    """Partition -> (partition epoch, number) of the newest proposal that was refused."""

    # ---- questions

    def live_brokers(self) -> dict[int, BrokerInfo]:
        """Registered and unfenced brokers, by id."""
        return {b: self.brokers[b].info for b in sorted(self.brokers) if not self.brokers[b].info.fenced}

    def live(self, partition: PartitionId) -> dict[int, BrokerInfo]:
        """The replicas of a partition that may lead it or be in sync: unfenced, their disk works, and it has room for them."""
        found = {}
        for broker_id in self.replicas(partition):
            broker = self.brokers.get(broker_id)
            if broker is None or broker.info.fenced or broker.info.draining:
                continue
            if not self.is_broken(partition, broker_id) and not self.is_roomless(partition, broker_id):
                found[broker_id] = broker.info
        return found

    def lossy(self, partition: PartitionId) -> list[int]:
        """Replicas that lost acknowledged records of this partition, as far as it has not been dealt with."""
        return [b for b in self.replicas(partition) if self.is_broken(partition, b) or self._lost(partition, b)]

    def _lost(self, partition: PartitionId, broker_id: int) -> bool:
        broker = self.brokers.get(broker_id)
        if broker is None or not broker.info.fenced:
            return False
        admitted = self.admitted.get(broker_id)
        if admitted is not None and admitted.incarnation == broker.incarnation:
            return False  # the same process lost its session, not its data
        if admitted is not None and admitted.directory_id != broker.info.directory_id:
            return True
        loss = broker.loss
        if loss.kind == "none":
            # A clean stop counts only if it is the stop of the life that was let in (KIP-966).
            return admitted is not None and loss.broker_epoch not in (-1, admitted.broker_epoch)
        return loss.kind == "replaced" or partition in loss.lossy

    def is_broken(self, partition: PartitionId, broker_id: int) -> bool:
        """Whether the disk under this replica failed in the broker's present life."""
        broker = self.brokers.get(broker_id)
        epoch = self._broken.get(partition, {}).get(broker_id)
        return epoch is not None and broker is not None and epoch == broker.info.broker_epoch

    def is_roomless(self, partition: PartitionId, broker_id: int) -> bool:
        """Whether the broker had no room, in its present life, to make this replica."""
        broker = self.brokers.get(broker_id)
        epoch = self._roomless.get(partition, {}).get(broker_id)
        return epoch is not None and broker is not None and epoch == broker.info.broker_epoch

    def is_refused(self, partition: PartitionId, partition_epoch: int, proposal: int) -> bool:
        """Whether this proposal, or a later one for the same state, was refused: its leader no longer reckons with it."""
        epoch, number = self._refused.get(partition, (-1, -1))
        return epoch == partition_epoch and proposal <= number

    def topic_of(self, partition: PartitionId) -> Topic | None:
        """The topic a partition belongs to, if topic id, number and creation number are all right."""
        topic = self.topics.get(partition.topic_id)
        if topic is None or partition.partition not in topic.assignments:
            return None
        return topic if topic.assignments[partition.partition].creation == partition.creation else None

    def replicas(self, partition: PartitionId) -> tuple[int, ...]:
        """Assigned brokers in order of preference; empty for an unknown partition."""
        topic = self.topic_of(partition)
        return () if topic is None else topic.assignments[partition.partition].replicas

    def min_isr(self, partition: PartitionId) -> int:
        """The min ISR that counts for a partition."""
        topic = self.topics[partition.topic_id]
        return effective_min_isr(topic.config.min_isr, topic.assignments[partition.partition].replicas)

    def on_broker(self, broker_id: int) -> list[PartitionId]:
        """Partitions assigned to a broker, sorted."""
        return sorted(self._by_broker.get(broker_id, ()))

    def uninitialised(self, topic: Topic) -> list[PartitionId]:
        """Partitions of a topic that have no state yet."""
        return [p for p in topic.identities() if p not in self.states]

    # ---- the only mutator

    def apply(self, change: Change) -> None:
        """Take one change that the store holds (or, for brokers and disks, that has been observed)."""
        match change:
            case BrokerSet(broker):
                self.brokers[broker.info.broker_id] = broker
                self._refence(broker.info.broker_id)
            case BrokerGone(broker_id):
                self.brokers.pop(broker_id, None)
            case BrokerAdmitted(broker_id, admitted):
                self.admitted[broker_id] = admitted
                self._refence(broker_id)
            case TopicSet(topic):
                self._set_topic(topic)
            case TopicGone(topic_id):
                self._drop_topic(topic_id)
            case StateSet(partition, state):
                self.states[partition] = state
            case StateGone(partition):
                self.states.pop(partition, None)
                self.due.pop(partition, None)
            case ReplicaBroken(partition, broker_id, epoch):
                self._broken.setdefault(partition, {})[broker_id] = epoch
            case Due(partitions):
                self.due.update(dict.fromkeys(partitions))
            case Settled(partitions):
                _drop(self.due, partitions)
            case _:
                self._apply_record(change)

    def _apply_record(self, change: Change) -> None:
        match change:
            case DeletionSet(_, topic_id):
                self.deletions[topic_id] = change
            case DeletionGone(topic_id):
                self.deletions.pop(topic_id, None)
            case RemovedSet(topic_id):
                self.removed[topic_id] = change
            case RemovedGone(topic_id):
                self.removed.pop(topic_id, None)
            case LossNoted(path, version):
                self.losses[path] = version
            case RoomSet(partition, broker_id, _, True):
                self._roomless.get(partition, {}).pop(broker_id, None)
            case RoomSet(partition, broker_id, epoch):
                self._roomless.setdefault(partition, {})[broker_id] = epoch
            case ProposalRefused(partition, partition_epoch, proposal):
                if not self.is_refused(partition, partition_epoch, proposal):
                    self._refused[partition] = (partition_epoch, proposal)
            case _:
                raise AssertionError(f"unknown change {change!r}")

    def _refence(self, broker_id: int) -> None:
        broker, admitted = self.brokers.get(broker_id), self.admitted.get(broker_id)
        if broker is not None:
            fenced = admitted is None or admitted.broker_epoch != broker.info.broker_epoch
            self.brokers[broker_id] = evolve(broker, info=evolve(broker.info, fenced=fenced))

    def _set_topic(self, topic: Topic) -> None:
        self._drop_topic(topic.topic_id, keep_states=True)
        self._drop_topic(self.names.get(topic.topic, b""))
        self.topics[topic.topic_id] = topic
        self.names[topic.topic] = topic.topic_id
        self.partitions_total += len(topic.assignments)
        for partition in topic.identities():
            for broker_id in topic.assignments[partition.partition].replicas:
                self._by_broker.setdefault(broker_id, {})[partition] = None

    def _drop_topic(self, topic_id: bytes, *, keep_states: bool = False) -> None:
        topic = self.topics.pop(topic_id, None)
        if topic is None:
            return
        del self.names[topic.topic]
        self.partitions_total -= len(topic.assignments)
        for partition in topic.identities():
            for broker_id in topic.assignments[partition.partition].replicas:
                del self._by_broker[broker_id][partition]
            self._broken.pop(partition, None)
            if not keep_states:
                self.states.pop(partition, None)
                self.due.pop(partition, None)
                self._roomless.pop(partition, None)
                self._refused.pop(partition, None)


def _drop(due: dict[PartitionId, None], partitions: Iterable[PartitionId]) -> None:
    for partition in partitions:
        due.pop(partition, None)
