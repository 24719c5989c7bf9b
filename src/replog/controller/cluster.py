"""The cluster as the controller knows it: what the store says, plus what follows from who is alive. `apply` alone changes it."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import define, evolve, field

from replog.controller.changes import (
    Admitted,
    AdmittedGone,
    Broker,
    BrokerAdmitted,
    BrokerGone,
    BrokerSet,
    Change,
    DeletionGone,
    DeletionSet,
    DrainingGone,
    DrainingSet,
    Due,
    HiddenSet,
    IdentitySet,
    LossNoted,
    MovesHeld,
    MoveWished,
    MoveWishGone,
    NodesFreed,
    NodeStuck,
    Parked,
    ProposalRefused,
    RejectionNoted,
    RemovedGone,
    RemovedSet,
    ReplicaBroken,
    RoomSet,
    Settled,
    SilenceSet,
    StateGone,
    StateSet,
    Stranger,
    Topic,
    TopicGone,
    TopicSet,
    Unreadable,
    WishesHidden,
    WishNoted,
)
from replog.controller.election import effective_min_isr
from replog.controller.turns import Turns, urgency
from replog.metadata import layout
from replog.metadata.judgements import LossRecord
from replog.model import BrokerInfo, PartitionId, PartitionState

__all__ = ["Cluster"]


@define
class Cluster:
    """Everything a decision may look at. Partitions are indexed by broker, so that a broker's death costs only its own."""

    identity: IdentitySet = field(factory=lambda: IdentitySet(None))
    brokers: dict[int, Broker] = field(factory=dict)
    admitted: dict[int, Admitted] = field(factory=dict)
    topics: dict[bytes, Topic] = field(factory=dict)
    names: dict[str, bytes] = field(factory=dict)
    states: dict[PartitionId, PartitionState] = field(factory=dict)
    deletions: dict[bytes, DeletionSet] = field(factory=dict)
    removed: dict[bytes, RemovedSet] = field(factory=dict)
    losses: dict[str, int] = field(factory=dict)
    loss_records: dict[str, LossRecord] = field(factory=dict)
    rejections: dict[str, int] = field(factory=dict)
    """Path -> version: as of the last look, and those written since."""
    wished: dict[str, int] = field(factory=dict)
    """Path -> version of the wishes to remove a partition that this controller has written, or met in their place."""
    stuck: dict[str, NodeStuck] = field(factory=dict)
    stuck_before: dict[str, NodeStuck] = field(factory=dict)
    """The same before they were last tried again: people were told of them."""
    unreadable: dict[str, int] = field(factory=dict)
    """Path -> version of what is in the way of something that was to be written there."""
    hidden: HiddenSet = field(factory=HiddenSet)
    hidden_wishes: WishesHidden = field(factory=WishesHidden)
    """Wishes to move partitions that could not be read."""
    below: dict[str, str] = field(factory=dict)
    """Path -> the node below which it is, and which is to be removed; each before what it is below."""
    draining: dict[int, DrainingSet] = field(factory=dict)
    silences: dict[int, SilenceSet] = field(factory=dict)
    """Of lives of brokers that owe answers."""
    wishes: dict[PartitionId, MoveWished] = field(factory=dict)
    turns: Turns = field(factory=Turns)
    """Those of them for which something can be done."""
    held: dict[PartitionId, bool] = field(factory=dict)
    """Those that could not be stored, and whether they still have no turn for it (else they may be tried again: people were told)."""
    moving: dict[PartitionId, None] = field(factory=dict)
    """Partitions that are being reassigned."""
    due: dict[PartitionId, None] = field(factory=dict)
    parked: dict[PartitionId, bool] = field(factory=dict)
    """Partitions whose state could not be stored, and whether the store has refused it (else what is there is damaged, and nothing can be
    stored over it): they wait, unless they are due again."""
    vanished: dict[PartitionId, None] = field(factory=dict)
    """Partitions whose state somebody has removed, perhaps with their topic: they have had one, so they get no first one, and wait until it
    is put back."""
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
        """The replicas of a partition that may lead it or be in sync: unfenced, their disk works, and it has room for them.

        Those that are draining are among them: see `leaving`.
        """
        found = {}
        for broker_id in self.replicas(partition):
            broker = self.brokers.get(broker_id)
            if broker is None or broker.info.fenced:
                continue
            if not self.is_broken(partition, broker_id) and not self.is_roomless(partition, broker_id):
                found[broker_id] = broker.info
        return found

    def staying_brokers(self) -> dict[int, BrokerInfo]:
        """Live brokers that are not draining: where new replicas are put."""
        return {b: info for b, info in self.live_brokers().items() if not info.draining}

    def leaving(self) -> frozenset[int]:
        """Registered brokers in controlled shutdown: they lead and are in sync only where nobody else can be."""
        return frozenset(b for b in self.draining if b in self.brokers and self.brokers[b].info.draining)

    def is_admitted(self, broker_id: int) -> bool:
        """Whether the present life of a broker was let in."""
        broker, admitted = self.brokers.get(broker_id), self.admitted.get(broker_id)
        return broker is not None and admitted is not None and admitted.broker_epoch == broker.info.broker_epoch

    def is_silent(self, broker_id: int) -> bool:
        """Whether the present life of a broker does not answer notices."""
        broker, silence = self.brokers.get(broker_id), self.silences.get(broker_id)
        return broker is not None and silence is not None and silence.is_silent and silence.broker_epoch == broker.info.broker_epoch

    def is_overdue(self, broker_id: int) -> bool:
        """Whether the present life of a broker has not answered in time."""
        broker, silence = self.brokers.get(broker_id), self.silences.get(broker_id)
        return broker is not None and silence is not None and silence.broker_epoch == broker.info.broker_epoch

    def lossy(self, partition: PartitionId) -> list[int]:
        """Replicas that lost acknowledged records of this partition, as far as it has not been dealt with."""
        return [b for b in self.replicas(partition) if self.is_broken(partition, b) or self._lost(partition, b)]

    def _lost(self, partition: PartitionId, broker_id: int) -> bool:
        broker = self.brokers.get(broker_id)
        if broker is None or not broker.info.fenced:
            return False
        may_be_empty = broker_id in self.hidden.garbled and broker_id not in self.admitted
        return may_be_empty or broker.has_lost(self.admitted.get(broker_id), is_named=partition in broker.lossy)

    def emptied(self, partition: PartitionId) -> list[int]:
        """Replicas whose present life may lack anything of this log, not just its end: see `Broker.has_begun_anew`."""
        present = [b for b in self.replicas(partition) if b in self.brokers]
        return [b for b in present if self.brokers[b].has_begun_anew(partition, self.admitted.get(b))]

    def is_to_note(self, partition: PartitionId, broker_id: int) -> bool:
        """Whether the state has yet to say that the broker has begun anew: its next life will not."""
        state = self.states.get(partition)
        waits = state is not None and broker_id in state.last_known and broker_id not in state.anew
        return waits and self._lost(partition, broker_id) and broker_id in self.emptied(partition)

    def concerns(self, partition: PartitionId, broker_id: int) -> bool:
        """Whether the broker's fate changes anything for the partition."""
        state = self.states.get(partition)
        if state is None:
            return False
        if state.leader is None and (broker_id in state.last_known or not (state.isr or state.elr)):
            return True  # whoever is there is asked how far it reaches
        was_complete = broker_id in state.last_known and broker_id not in state.anew  # its next life may have begun anew: `is_to_note`
        return was_complete or broker_id in (state.leader, *state.isr, *state.elr)

    def is_broken(self, partition: PartitionId, broker_id: int) -> bool:
        """Whether the disk under this replica failed in the broker's present life."""
        broker = self.brokers.get(broker_id)
        epoch = self._broken.get(partition, {}).get(broker_id)
        return epoch is not None and broker is not None and epoch == broker.info.broker_epoch

    def broken_of(self, partition: PartitionId) -> list[int]:
        """Replicas of a partition whose disk has failed under it."""
        return [b for b in self.replicas(partition) if self.is_broken(partition, b)]

    def broken(self) -> list[tuple[PartitionId, int]]:
        """Replicas whose disk has failed, as (partition, broker)."""
        return [(p, b) for p, brokers in self._broken.items() for b in brokers if self.is_broken(p, b) and b in self.replicas(p)]

    def is_roomless(self, partition: PartitionId, broker_id: int) -> bool:
        """Whether the broker had no room, in its present life, to make this replica, or for the cut it has to make before it leads."""
        broker = self.brokers.get(broker_id)
        epoch = self._roomless.get(partition, {}).get(broker_id)
        return epoch is not None and broker is not None and epoch == broker.info.broker_epoch

    def roomless(self, partition: PartitionId) -> list[int]:
        """Replicas that would be live if their disk had room."""
        present = (b for b in self.replicas(partition) if b in self.brokers and not self.brokers[b].info.fenced)
        return [b for b in present if self.is_roomless(partition, b) and not self.is_broken(partition, b)]

    def is_refused(self, partition: PartitionId, partition_epoch: int, proposal: int) -> bool:
        """Whether this proposal, or a later one for the same state, was refused: its leader no longer reckons with it."""
        epoch, number = self._refused.get(partition, (-1, -1))
        return epoch == partition_epoch and proposal <= number

    def is_stuck(self, path: str, version: int, created: int | None = None) -> bool:
        """Whether this node (None: whichever there is at that version) could not be removed when it was last tried."""
        known = self.stuck.get(path)
        return known is not None and known.version == version and created in (None, known.created)

    @property
    def found(self) -> int:
        """How much is known to be in the way of removals."""
        return len(self.stuck) + len(self.below)

    def topic_of(self, partition: PartitionId) -> Topic | None:
        """The topic a partition belongs to, if topic id, number and creation number are all right."""
        topic = self.topics.get(partition.topic_id)
        if topic is None or partition.partition not in topic.assignments:
            return None
        return topic if topic.assignments[partition.partition].creation == partition.creation else None

    def topic_named(self, name: str | None) -> Topic | None:
        """The topic of this name, which may be being deleted; None if there is none, or no name."""
        return self.topics.get(self.names.get(name or "", b""))

    def is_altered(self, topic: Topic) -> bool:
        """Whether brokers are to hear of another configuration, also where no state changes."""
        known = self.topics.get(topic.topic_id)
        return known is not None and known.config != topic.config

    def replicas(self, partition: PartitionId) -> tuple[int, ...]:
        """Assigned brokers in order of preference; empty for an unknown partition."""
        topic = self.topic_of(partition)
        return () if topic is None else topic.assignments[partition.partition].replicas

    def min_isr(self, partition: PartitionId) -> int:
        """The min ISR that is to count for a partition: what its topic says, never more than it has replicas."""
        return self.min_isr_of(self.topics[partition.topic_id], partition.partition)

    def min_isr_in(self, state: PartitionState, partition: PartitionId) -> int:
        """The min ISR by which a state of a partition is to be understood: its own; that of its topic if it says none."""
        return state.min_isr or self.min_isr(partition)

    @staticmethod
    def min_isr_of(topic: Topic, partition: int) -> int:
        """The same for a topic that need not be known yet."""
        assignment = topic.assignments[partition]
        return effective_min_isr(topic.config.min_isr, assignment.original or assignment.replicas)

    def is_cancelled(self, partition: PartitionId) -> bool:
        """Whether the wish for this partition is that it does not move."""
        wish = self.wishes.get(partition)
        return wish is not None and wish.target is None

    def is_wish_hidden(self, partition: PartitionId) -> bool:
        """Whether it cannot be read where this partition is wished to be."""
        topic = self.topic_of(partition)
        return topic is not None and self.hidden_wishes.hides(layout.reassigned_path(topic.topic, partition.partition))

    def on_broker(self, broker_id: int) -> list[PartitionId]:
        """Partitions assigned to a broker, sorted."""
        return sorted(self._by_broker.get(broker_id, ()))

    def uninitialised(self, topic: Topic) -> list[PartitionId]:
        """Partitions of a topic that have no state yet."""
        return [p for p in topic.identities() if p not in self.states and p not in self.vanished]

    def vanished_paths(self) -> list[str]:
        """Where to look whether states that somebody has removed are back."""
        known = ((self.topic_of(p), p.partition) for p in self.vanished)
        return [layout.partition_state_path(topic.topic, number) for topic, number in known if topic is not None]

    # ---- the only mutator

    def apply(self, change: Change) -> None:
        """Take one change that the store holds (or, for brokers and disks, that has been observed)."""
        match change:
            case BrokerSet(broker):
                self.brokers[broker.info.broker_id] = broker
                self._refence(broker.info.broker_id)
            case BrokerGone(broker_id):
                self.brokers.pop(broker_id, None)
                self.silences.pop(broker_id, None)
            case BrokerAdmitted(broker_id, admitted):
                self.admitted[broker_id] = admitted
                self._refence(broker_id)
            case AdmittedGone(broker_id):
                self.admitted.pop(broker_id, None)  # found by whoever lets a new life in: it is fenced
            case TopicSet(topic):
                self._set_topic(topic)
            case TopicGone(topic_id):
                had = [p for p in self._identities(topic_id) if p in self.states or p in self.vanished]
                self._drop_topic(topic_id)
                if topic_id not in self.deletions:
                    self.vanished.update(dict.fromkeys(had))
            case StateSet(partition, state):
                known = self.states.get(partition)
                if partition in self.parked and known != state:
                    self.due[partition] = None
                self.states[partition] = state
                is_older = known is not None and known.partition_epoch > state.partition_epoch  # removed and put back, unseen
                if self.vanished.pop(partition, "") is None or is_older:
                    self.parked[partition] = False  # it has missed what happened meanwhile
                    self.due[partition] = None
            case StateGone(partition):
                if self.states.pop(partition, None) is not None:
                    self.vanished[partition] = None
                    self._take_turn(partition)
                self.due.pop(partition, None)
            case ReplicaBroken(partition, broker_id, epoch):
                self._broken.setdefault(partition, {})[broker_id] = epoch
            case Due(partitions):
                self.due.update(dict.fromkeys(partitions))
            case Settled(partitions):
                _drop(self.due, partitions)
                for partition in partitions:
                    if self.parked.pop(partition, None) is not None:
                        self._take_turn(partition)
            case Parked(partitions, is_refused):
                _drop(self.due, partitions)
                self.parked.update(dict.fromkeys(partitions, is_refused))
                for partition in partitions:
                    self._take_turn(partition)
            case _:
                self._apply_record(change)

    def _apply_record(self, change: Change) -> None:
        match change:
            case IdentitySet():
                self.identity = change
            case DeletionSet(_, topic_id):
                self.deletions[topic_id] = change
                self._take_turns(self.topics.get(topic_id))
            case DeletionGone(topic_id):
                self.deletions.pop(topic_id, None)
                self._take_turns(self.topics.get(topic_id))
            case RemovedSet(topic_id):
                self.removed[topic_id] = change
            case RemovedGone(topic_id):
                self.removed.pop(topic_id, None)
            case LossNoted(path, -1):
                self.losses.pop(path, None)
                self.loss_records.pop(path, None)
            case LossNoted(path, version, record):
                self.losses[path] = version
                if record is not None:
                    self.loss_records[path] = record
            case RoomSet(partition, broker_id, _, True):
                self._roomless.get(partition, {}).pop(broker_id, None)
            case RoomSet(partition, broker_id, epoch):
                self._roomless.setdefault(partition, {})[broker_id] = epoch
            case DrainingSet(broker_id):
                self.draining[broker_id] = change
                self._refence(broker_id)
            case DrainingGone(broker_id):
                self.draining.pop(broker_id, None)
                self._refence(broker_id)
            case SilenceSet(broker_id, _, is_overdue):
                self.silences.pop(broker_id, None)
                if is_overdue:
                    self.silences[broker_id] = change
                self._refence(broker_id)
            case ProposalRefused(partition, partition_epoch, proposal):
                if not self.is_refused(partition, partition_epoch, proposal):
                    self._refused[partition] = (partition_epoch, proposal)
            case _:
                self._apply_wish(change)

    def _apply_wish(self, change: Change) -> None:
        match change:
            case MoveWished(partition, _, version, target):
                known = self.wishes.get(partition)
                if known is None or (known.version, known.target) != (version, target):
                    self.held.pop(partition, None)
                self.wishes[partition] = change
                self._take_turn(partition)
            case MoveWishGone(partition):
                self.wishes.pop(partition, None)
                self.held.pop(partition, None)
                self._take_turn(partition)
                if partition in self.moving:
                    self.due[partition] = None  # its move may have arrived, and only waited for what becomes of this wish
            case MovesHeld(partitions):
                self.held.update(dict.fromkeys(partitions, True))
                for partition in partitions:
                    self._take_turn(partition)
            case WishesHidden():
                self.hidden_wishes = change
            case NodeStuck(path):
                self.stuck[path] = change
                self._take_turn(change.partition)
            case Stranger(path, None):
                self.below.pop(path, None)
            case Stranger(path, str(node)):
                self.below[path] = node
            case Unreadable(path, -1):
                self.unreadable.pop(path, None)
            case Unreadable(path, version):
                self.unreadable[path] = version
            case HiddenSet():
                self.hidden = change
            case NodesFreed():
                self.unreadable.clear()
                self.below.clear()
                self.apply(Due(tuple(self.parked)))
                self.held = dict.fromkeys(self.held, False)
                for partition in self.held:
                    self._take_turn(partition)
                self.stuck_before, self.stuck = self.stuck, {}
                for stuck in self.stuck_before.values():
                    self._take_turn(stuck.partition)
            case RejectionNoted(path, -1):
                self.rejections.pop(path, None)
            case RejectionNoted(path, version):
                self.rejections[path] = version
            case WishNoted(path, -1):
                self.wished.pop(path, None)
            case WishNoted(path, version):
                self.wished[path] = version
            case _:
                raise AssertionError(f"unknown change {change!r}")

    def _identities(self, topic_id: bytes) -> Iterable[PartitionId]:
        return self.topics[topic_id].identities() if topic_id in self.topics else ()

    def _refence(self, broker_id: int) -> None:
        broker, draining = self.brokers.get(broker_id), self.draining.get(broker_id)
        if broker is not None:
            fenced = not self.is_admitted(broker_id) or self.is_silent(broker_id)
            leaves = draining is not None and draining.broker_epoch == broker.info.broker_epoch
            info = evolve(broker.info, fenced=fenced, draining=leaves, overdue=self.is_overdue(broker_id))
            self.brokers[broker_id] = evolve(broker, info=info)

    def _set_topic(self, topic: Topic) -> None:
        known = self.topics.get(topic.topic_id)
        self._drop_topic(topic.topic_id, keep_states=True)
        self._drop_topic(self.names.get(topic.topic, b""))
        self.topics[topic.topic_id] = topic
        self.names[topic.topic] = topic.topic_id
        self.partitions_total += len(topic.assignments)
        for partition in topic.identities():
            assignment = topic.assignments[partition.partition]
            for broker_id in assignment.replicas:
                self._by_broker.setdefault(broker_id, {})[partition] = None
            if assignment.original:
                self.moving[partition] = None
        for partition in set() if known is None else {*known.identities()} - {*topic.identities()}:
            self._forget(partition)
        self._take_turns(topic)

    def _drop_topic(self, topic_id: bytes, *, keep_states: bool = False) -> None:
        topic = self.topics.pop(topic_id, None)
        if topic is None:
            return
        del self.names[topic.topic]
        self.partitions_total -= len(topic.assignments)
        for partition in topic.identities():
            for broker_id in topic.assignments[partition.partition].replicas:
                del self._by_broker[broker_id][partition]
            self.moving.pop(partition, None)
            if not keep_states:
                self._forget(partition)

    def _forget(self, partition: PartitionId) -> None:
        all_ = (self.states, self.due, self.parked, self.vanished, self.wishes, self.held, self._broken, self._roomless, self._refused)
        for known in all_:
            known.pop(partition, None)
        self.turns.put(partition, "", None)

    def _take_turns(self, topic: Topic | None) -> None:
        for partition in () if topic is None else topic.identities():
            if partition in self.wishes:
                self._take_turn(partition)

    def _take_turn(self, partition: PartitionId | None) -> None:
        """Where a wish stands among those for which something can be done, after something of it has changed."""
        if partition is None:
            return
        wish, topic = self.wishes.get(partition), self.topic_of(partition)
        waits = self.held.get(partition) or self.parked.get(partition) or partition in self.vanished
        if wish is None or topic is None or partition.topic_id in self.deletions or waits:
            self.turns.put(partition, "", None)
        else:
            is_stuck = self.is_stuck(wish.path, wish.version, wish.created)
            self.turns.put(partition, topic.topic, urgency(topic.assignments[partition.partition], wish, is_stuck=is_stuck))


def _drop(due: dict[PartitionId, None], partitions: Iterable[PartitionId]) -> None:
    for partition in partitions:
        due.pop(partition, None)
