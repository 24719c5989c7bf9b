"""What the store has said so far, kept as ledgers: which partitions there are, in what state, and who was lost and let in again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from replog.config import TopicConfig, default_min_isr
from replog.metadata import judgements, layout
from replog.model import PartitionId, PartitionState
from replog.ports import Versioned
from replog.testing.simulator.ledger import Copy, Ledger

__all__ = ["Books", "Witness"]


class Witness(Protocol):
    """Who hears what the store has changed."""

    def stored(self, ledger: Ledger, before: PartitionState | None, controller_epoch: int) -> None:
        """A partition has another state."""

    def epoch(self, what: str, before: int, after: int) -> None:
        """The controller, or a broker, has another epoch."""

    def let_in(self) -> None:
        """A broker that had lost records may be a candidate again."""


class Books:
    """Ledgers and mirrors by partition, and the epochs that the store gave. `read` gives what the store has at a path now."""

    def __init__(self, read: Callable[[str], Versioned | None], witness: Witness, *, durable: bool) -> None:
        self._read = read
        self._durable = durable
        """Whether flush="ack" has been promised from the beginning: a topic that is altered to it holds what was committed without."""
        self._witness = witness
        self.ledgers: dict[PartitionId, Ledger] = {}
        """Partitions that the store knows, or that somebody has a copy of although it has never known them."""
        self.closed: dict[PartitionId, Ledger] = {}
        """Partitions that were deleted."""
        self.copies: dict[PartitionId, dict[int, Copy]] = {}
        self.broker_epochs: dict[int, int] = {}
        self.controller_epoch = -1
        self.expected: dict[PartitionId, None] = {}
        """Every partition of every topic that there is."""
        self._topics: dict[str, layout.TopicEntry] = {}
        self._places: dict[tuple[str, int], PartitionId] = {}
        """Which partition a name means now."""
        self._lost_at: dict[int, int] = {}
        """Broker -> its registration when it lost records: admission of a later one ends that."""

    def ledger(self, identity: PartitionId) -> Ledger:
        """The ledger of a partition, also of one that is gone."""
        ledger = self.ledgers.get(identity) or self.closed.get(identity)
        if ledger is None:
            ledger = self.ledgers[identity] = Ledger(identity)
            self.copies[identity] = {}
        return ledger

    def copy(self, identity: PartitionId, broker: int) -> Copy:
        """The mirror of one copy."""
        copies = self.copies.get(identity)
        if copies is None:
            self.ledger(identity)
            copies = self.copies[identity]
        copy = copies.get(broker)
        if copy is None:
            copy = copies[broker] = Copy(broker)
        return copy

    def lost(self, broker: int) -> None:
        """A broker has lost records: until its next life is let in, nothing is expected of the copies that are marked."""
        self._lost_at[broker] = self.broker_epochs.get(broker, -1)

    # ------------------------------------------------------------------------------------------------------- the store

    def see(self, paths: Iterable[str]) -> None:
        """Something was committed at these paths."""
        for path in paths:
            if path == layout.CONTROLLER_EPOCH:
                self._see_controller_epoch(path)
            elif path.startswith(judgements.ADMITTED + "/"):
                self._see_admission(path)
            elif path.startswith(layout.BROKER_IDS + "/"):
                self._see_registration(path)
            elif path.startswith(layout.TOPICS + "/"):
                self._see_topic(path)

    def _see_controller_epoch(self, path: str) -> None:
        found = self._read(path)
        if found is None and self.controller_epoch < 0:
            return  # it was checked that no controller has been there
        assert found is not None
        epoch = layout.decode_controller_epoch(path, found.value)
        self._witness.epoch("the controller", self.controller_epoch, epoch)
        self.controller_epoch = epoch

    def _see_admission(self, path: str) -> None:
        found = self._read(path)
        if found is None:
            return
        broker = int(path.rsplit("/", 1)[1])
        admission = judgements.decode_admission(path, found.value)
        if broker in self._lost_at and admission.broker_epoch > self._lost_at[broker]:
            del self._lost_at[broker]
            for identity, copies in self.copies.items():
                # Of a topic that is being deleted nothing is decided any more: whoever was lossy stays so.
                ledger = self.ledgers.get(identity)
                goes = ledger is not None and self._read(layout.delete_topic_path(ledger.topic)) is not None
                if broker in copies and not goes:
                    copies[broker].lossy = False
            self._witness.let_in()

    def _see_registration(self, path: str) -> None:
        found = self._read(path)
        if found is not None:
            broker = int(path.rsplit("/", 1)[1])
            self._witness.epoch(f"broker {broker}", self.broker_epochs.get(broker, -1), found.created)
            self.broker_epochs[broker] = found.created

    def _see_topic(self, path: str) -> None:
        place = layout.place_of(path)
        assert place.topic is not None
        found = self._read(path)
        if place.row == layout.TOPICS:
            before = self._forget_topic(place.topic)
            if found is None:
                self._close(lambda topic, _: topic == place.topic)
            else:
                topic = self._topics[place.topic] = layout.decode_topic(path, found.value)
                self.expected.update((identity, None) for identity in _identities(topic))
            for identity in before:
                ledger = self.ledgers.get(identity)
                if identity not in self.expected and ledger is not None and ledger.state is None:
                    self._closed(identity)  # removed before it had a state
        elif place.row == "partition_state":
            assert place.partition is not None
            if found is None:
                self._close(lambda topic, partition: (topic, partition) == (place.topic, place.partition))
            else:
                self._see_state(path, place.topic, place.partition, found)

    def _forget_topic(self, name: str) -> list[PartitionId]:
        topic = self._topics.pop(name, None)
        before = _identities(topic) if topic is not None else []
        for identity in before:
            self.expected.pop(identity, None)
        return before

    def _close(self, goes: Callable[[str, int], bool]) -> None:
        for named in [named for named in self._places if goes(*named)]:
            identity = self._places.pop(named)
            if identity in self.ledgers:  # else it was closed before, and a late look at its state has named it again
                self._closed(identity)

    def _closed(self, identity: PartitionId) -> None:
        ledger = self.closed[identity] = self.ledgers.pop(identity)
        ledger.closed = True
        ledger.state = None

    def _see_state(self, path: str, name: str, partition: int, found: Versioned) -> None:
        topic = self._topics.get(name)
        if topic is None:
            stored = self._read(layout.topic_path(name))
            if stored is None:
                return
            topic = self._topics[name] = layout.decode_topic(path, stored.value)
        assignment = topic.partitions[partition]
        identity = PartitionId(topic.topic_id, partition, assignment.creation)
        ledger = self.ledger(identity)
        self._places[name, partition] = identity
        before, ledger.state = ledger.state, layout.decode_partition_state(path, found)
        ledger.sent_away.update(set(ledger.replicas) - set(assignment.replicas))
        ledger.sent_away.difference_update(ledger.state.isr)
        ledger.topic, ledger.replicas = name, assignment.replicas
        ledger.loss = self._loss(identity) if ledger.state.recovering else None
        ledger.assigned_before, ledger.assignment = ledger.assignment, assignment
        config = _config(topic.config)
        ledger.is_unclean_allowed = config.unclean_leader_election
        ledger.durable = self._durable and config.flush == "ack"
        ledger.retention_bytes, ledger.retention_ms = config.retention_bytes, config.retention_ms
        replicas = len(assignment.original or assignment.replicas)
        ledger.min_isr = ledger.state.min_isr or min(config.min_isr or default_min_isr(replicas), replicas)
        ledger.min_isrs[ledger.state.partition_epoch] = ledger.min_isr
        self._witness.stored(ledger, before, self.controller_epoch)

    def _loss(self, identity: PartitionId) -> judgements.LossRecord | None:
        path = judgements.loss_path(identity.topic_id, identity.partition)
        found = self._read(path)
        return None if found is None else judgements.decode_loss(path, found.value)


def _identities(topic: layout.TopicEntry) -> list[PartitionId]:
    return [PartitionId(topic.topic_id, partition, one.creation) for partition, one in sorted(topic.partitions.items())]


def _config(stored: Mapping[str, object]) -> TopicConfig:
    return TopicConfig.from_mapping(stored)
