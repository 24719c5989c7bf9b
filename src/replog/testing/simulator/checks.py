"""Watches a run from outside: keeps the ledger and the mirrors up to date, and gives every invariant its occasions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from replog.messages import Fetched, Produce, Produced
from replog.metadata import judgements, layout
from replog.model import Address, PartitionId
from replog.partition.partition import Partition
from replog.testing.simulator.invariants import INVARIANTS, Asked, CandidatesAreComplete, Invariant
from replog.testing.simulator.ledger import Copy, Ledger, Violation

if TYPE_CHECKING:
    from replog.testing.simulator.node import Node
    from replog.testing.simulator.world import World

__all__ = ["Checks"]

EVENTS_MAX: Final = 2_000
"""Per broker and second of virtual time: a storm of messages is a fault of its own (S21). The busiest runs have 600."""


class Checks:
    """Everything that is checked while a run goes on."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.ledgers: dict[PartitionId, Ledger] = {}
        self._copies: dict[PartitionId, dict[int, Copy]] = {}
        self._asked: dict[Address, dict[int, Asked]] = {}
        self._broker_epochs: dict[int, int] = {}
        self._lost_at: dict[int, int] = {}
        """Broker -> its registration when it lost records: admission of a later one ends that."""
        self._controller_epoch = -1
        self._topics: dict[str, layout.TopicEntry] = {}
        self._second = 0
        self._events = 0
        self.busiest = 0
        self._candidates = CandidatesAreComplete()
        made = [kind() for kind in INVARIANTS]
        self._changed = _overriding(made, "changed")
        self._led = _overriding(made, "led")
        self._committed = _overriding(made, "committed")
        self._stored = _overriding(made, "stored")
        self._sent = _overriding(made, "sent")

    # -------------------------------------------------------------------------------------------------------- occasions

    def event(self) -> None:
        """One more event: not too many in one second."""
        second = self._world.now_ms // 1_000
        if second != self._second:
            self._second, self._events = second, 0
        self._events += 1
        self.busiest = max(self.busiest, self._events)
        if self._events > EVENTS_MAX * self._world.plan.shape.brokers:
            raise Violation("S21", f"{self._events} events in second {second}")

    def look(self, node: Node) -> None:
        """A broker has handled something: look at those of its copies that changed."""
        broker = node.broker
        assert broker is not None
        for identity, partition in broker.partitions.items():
            log, leading = partition.log, partition.leading
            key = (
                log.generation,  # type: ignore[attr-defined]  # of every stored log
                log.end_offset,
                partition.high_watermark,
                partition.leader_epoch,
                partition.partition_epoch,
                leading is None,
                None if leading is None else leading.isr,
            )
            copy = self.copy(identity, node.broker_id)
            if key != copy.key or copy.life != node.life or copy.log is not log:
                self._look(node, identity, partition, copy)
                copy.key = key

    def _look(self, node: Node, identity: PartitionId, partition: Partition, copy: Copy) -> None:
        ledger = self.ledger(identity)
        if copy.life != node.life:
            copy.life = node.life
            copy.leader_epoch = copy.partition_epoch = -1
        copy.follow(partition.log)
        copies = self._copies[identity]
        leads = partition.leading is not None
        begins = leads and copy.led != (copy.life, partition.leader_epoch)
        for changed in self._changed:
            changed(ledger, copy, partition)
        if begins:
            for led in self._led:
                led(ledger, copy, partition)
            copy.led = (copy.life, partition.leader_epoch)
        if leads and (begins or partition.high_watermark != copy.high_watermark):
            moved = not begins or partition.high_watermark > ledger.end
            for committed in self._committed if moved else ():
                committed(ledger, copies, copy, partition)
        copy.high_watermark = partition.high_watermark
        copy.leader_epoch = partition.leader_epoch
        copy.partition_epoch = partition.partition_epoch

    def reopened(self, node: Node, *, lossy: bool) -> None:
        """A process has ended: the mirrors follow what its disk has now."""
        lost = set(node.directory.loss.lossy)
        for identity, copies in self._copies.items():
            copy = copies.get(node.broker_id)
            if copy is not None:
                copy.follow(node.directory.get(identity))
                if lossy and (identity in lost or node.directory.loss.kind == "replaced"):
                    copy.lossy = copy.damaged = True
        if lossy:
            self._lost_at[node.broker_id] = self._broker_epochs.get(node.broker_id, -1)
        self._check_candidates()

    def _check_candidates(self) -> None:
        for identity, ledger in self.ledgers.items():
            self._candidates.stored(ledger, self._copies[identity], ledger.state)

    def applied(self, ops: list[Any]) -> None:
        """The store has committed a transaction."""
        for path in dict.fromkeys(op.path for op in ops):
            if path == layout.CONTROLLER_EPOCH:
                self._see_controller_epoch(path)
            elif path.startswith(judgements.ADMITTED + "/"):
                self._see_admission(path)
            elif path.startswith(layout.BROKER_IDS + "/"):
                self._see_registration(path)
            elif path.startswith(layout.TOPICS + "/"):
                self._see_topic(path)

    def _see_controller_epoch(self, path: str) -> None:
        found = self._world.root.read(path)
        assert found is not None
        epoch = layout.decode_controller_epoch(path, found.value)
        if epoch < self._controller_epoch:
            raise Violation("S6", f"the controller epoch goes from {self._controller_epoch} to {epoch}")
        self._controller_epoch = epoch

    def _see_admission(self, path: str) -> None:
        found = self._world.root.read(path)
        assert found is not None
        broker = int(path.rsplit("/", 1)[1])
        admission = judgements.decode_admission(path, found.value)
        if broker in self._lost_at and admission.broker_epoch > self._lost_at[broker]:
            del self._lost_at[broker]
            for copies in self._copies.values():
                if broker in copies:
                    copies[broker].lossy = False
            self._check_candidates()

    def _see_registration(self, path: str) -> None:
        found = self._world.root.read(path)
        if found is not None:
            broker = int(path.rsplit("/", 1)[1])
            if found.created <= self._broker_epochs.get(broker, -1):
                raise Violation("S6", f"broker {broker} goes from epoch {self._broker_epochs[broker]} to {found.created}")
            self._broker_epochs[broker] = found.created

    def _see_topic(self, path: str) -> None:
        place = layout.place_of(path)
        assert place.topic is not None
        found = self._world.root.read(path)
        assert found is not None, "no topic is deleted here"
        if place.row == layout.TOPICS:
            self._topics[place.topic] = layout.decode_topic(path, found.value)
            return
        assert place.partition is not None
        topic = self._topics.get(place.topic)
        if topic is None:
            stored = self._world.root.read(layout.topic_path(place.topic))
            if stored is None:
                return
            topic = self._topics[place.topic] = layout.decode_topic(path, stored.value)
        assignment = topic.partitions[place.partition]
        identity = PartitionId(topic.topic_id, place.partition, assignment.creation)
        ledger = self.ledger(identity)
        before, ledger.state = ledger.state, layout.decode_partition_state(path, found)
        ledger.replicas = assignment.replicas
        ledger.min_isr = min(self._world.plan.shape.min_isr, len(assignment.replicas))
        self._world.note(f"state {place.partition}: {_short(ledger.state)}")
        if ledger.state.controller_epoch != self._controller_epoch:
            raise Violation("S14", f"a controller of epoch {ledger.state.controller_epoch} writes, the seat is at {self._controller_epoch}")
        for stored_hook in self._stored:
            stored_hook(ledger, self._copies[identity], before)

    def asked(self, sender: Address, message: Produce) -> None:
        """A broker gets appends of a client."""
        asked = self._asked.setdefault(sender, {})
        for entry in message.entries:
            asked[entry.request] = Asked(self.ledger(entry.partition), message.acks, entry.body)

    def registered(self, broker_id: int, broker_epoch: int) -> None:
        """A process has learned its broker epoch; the store knew it before."""
        if broker_epoch > self._broker_epochs.get(broker_id, -1):
            raise Violation("S6", f"broker {broker_id} believes in epoch {broker_epoch}, which the store never gave")

    def sent(self, node: Node, to: Address, message: Any) -> None:
        """A broker says something to a client."""
        if not isinstance(message, Produced | Fetched) or not isinstance(to, tuple) or to[0] != "client":
            return
        broker = node.broker
        assert broker is not None
        asked = self._asked.get(to, {})
        for identity, partition in broker.partitions.items():
            for sent in self._sent:
                sent(self.ledger(identity), partition, to, message, asked)

    # ------------------------------------------------------------------------------------------------------------ state

    def ledger(self, identity: PartitionId) -> Ledger:
        """The ledger of a partition."""
        ledger = self.ledgers.get(identity)
        if ledger is None:
            ledger = self.ledgers[identity] = Ledger(identity)
            self._copies.setdefault(identity, {})
        return ledger

    def copy(self, identity: PartitionId, broker: int) -> Copy:
        """The mirror of one copy."""
        copies = self._copies.setdefault(identity, {})
        copy = copies.get(broker)
        if copy is None:
            copy = copies[broker] = Copy(broker)
        return copy

    def copies(self, identity: PartitionId) -> dict[int, Copy]:
        """All mirrors of a partition."""
        return self._copies[identity]

    def committed(self, partition: int) -> int:
        """How far a partition is committed."""
        return max((ledger.end for identity, ledger in self.ledgers.items() if identity.partition == partition), default=0)

    def may_lose(self, broker: int) -> bool:
        """Whether losing this broker's records now leaves less than min_isr - 1 losses anywhere, as acks=all promises to survive.

        A broker counts as lost from its fault until it is in the ISR again, and so holds everything.
        """
        allowed = self._world.plan.shape.min_isr - 1
        for identity, ledger in self.ledgers.items():
            if broker not in ledger.replicas or ledger.state is None:
                continue
            lost = {b for b in ledger.replicas if self._is_incomplete(identity, ledger, b)}
            if len(lost | {broker}) > allowed:
                return False
        return True

    def _is_incomplete(self, identity: PartitionId, ledger: Ledger, broker: int) -> bool:
        copy = self._copies[identity].get(broker)
        if copy is None or not copy.damaged:
            return False
        assert ledger.state is not None
        if not copy.lossy and broker in ledger.state.isr and copy.mismatch(ledger, ledger.end) is None:
            copy.damaged = False
        return copy.damaged


def _overriding(made: list[Invariant], occasion: str) -> list[Callable[..., None]]:
    """The methods of the invariants that look on this occasion."""
    return [getattr(one, occasion) for one in made if getattr(type(one), occasion) is not getattr(Invariant, occasion)]


def _short(state: Any) -> str:
    return f"leader {state.leader} epoch {state.leader_epoch} isr {list(state.isr)} elr {list(state.elr)} v{state.partition_epoch}"
