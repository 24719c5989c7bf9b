"""What brokers say to the controller of a term: how far they are with its notices, what has failed, what they wish.

Nothing is decided here: what is heard becomes events, and looks at the store.
"""

from __future__ import annotations

from abc import abstractmethod

from replog.config import BrokerConfig
from replog.controller.campaign import Deposed
from replog.controller.cluster import Cluster
from replog.controller.events import (
    AdminAsked,
    BrokerAcknowledged,
    CopiesGone,
    Event,
    IsrProposed,
    ReplicasLost,
    ReplicasServed,
    RoomChanged,
)
from replog.controller.outboxes import BrokerOutbox
from replog.controller.publishing import Publisher
from replog.controller.queues import Queues
from replog.controller.silence import silences
from replog.errors import Code
from replog.messages import Admin, AlterIsrAnswer, Heartbeat, LeaderAndIsrAnswer, ReplicaStatesAnswer, StopReplicaAnswer
from replog.model import Address
from replog.ports import Outbox

__all__ = ["Hearing"]


class Hearing:
    """The part of a `Term` that listens to brokers."""

    cluster: Cluster
    publisher: Publisher
    loaded: bool
    _config: BrokerConfig
    _controller_epoch: int
    _looks: dict[str, None]
    _now_ms: int
    _outbox: Outbox
    _queues: Queues

    @abstractmethod
    def ask(self, event: Event) -> None:
        """Have an event decided when its turn comes."""

    def on_wish(self, sender: Address, wish: Admin, token: bytes) -> None:
        """Somebody asks for something. What is ahead of it is counted here: whatever is urgent is done before a wish has its turn."""
        events, partitions = len(self._queues), len(self.cluster.due)
        self.ask(AdminAsked(sender, wish, token, events_ahead=events, partitions_ahead=partitions))

    def on_heartbeat(self, message: Heartbeat) -> None:
        """How far a broker is with the notices of this term."""
        if message.controller_epoch == self._controller_epoch:
            self.publisher.send(self.publisher.outboxes.heartbeat(message.broker_id, message.broker_epoch, message.notice, self._now_ms))
            self._room_changed(message.broker_id, message.broker_epoch)

    def on_leader_and_isr_answer(self, message: LeaderAndIsrAnswer) -> None:
        """A notice was applied, or refused."""
        box = self.publisher.outboxes.get(message.broker_id, message.broker_epoch)
        if self._refused(message.error, message.controller_epoch) or box is None:
            return
        self._served(box, message)
        roomless = tuple(p for p, error in message.errors if error == Code.LOG_DIRECTORY_FULL)
        if box.answered(message.notice, roomless, self._now_ms):
            self.ask(BrokerAcknowledged(message.broker_id, message.broker_epoch, tuple(message.strays), box.take_removals()))
        if failed := tuple(p for p, error in message.errors if error == Code.STORAGE_ERROR):
            self.on_replicas_failed(ReplicasLost(message.broker_id, message.broker_epoch, "could not be opened", failed))
        self._room_changed(message.broker_id, message.broker_epoch)
        self._listen(box)

    def _served(self, box: BrokerOutbox, message: LeaderAndIsrAnswer) -> None:
        """A report of a failed copy may be older than the copy that is there now: it is over once that one has taken a notice, made after
        the report was heard. An answer to an earlier one may be older than the failure.
        """
        refused = {partition for partition, _ in message.errors}
        named = (p for p in box.named(message.notice) if p not in refused)
        if served := tuple(p for p in named if self.cluster.is_broken(p, message.broker_id)):
            self.ask(ReplicasServed(message.broker_id, message.broker_epoch, served))

    def on_replicas_failed(self, lost: ReplicasLost) -> None:
        """Copies have failed; it is said again for as long as it is true."""
        box = self.publisher.outboxes.get(lost.broker_id, lost.broker_epoch)
        if box is not None:
            named = lost.partitions or self.cluster.on_broker(lost.broker_id)
            box.failed(p for p in named if lost.broker_id in self.cluster.replicas(p))
        self.ask(lost)

    def _room_changed(self, broker_id: int, broker_epoch: int) -> None:
        """A full disk is not a lost one: the copies are asked for again, and nobody counts on them until they are made."""
        box = self.publisher.outboxes.get(broker_id, broker_epoch)
        if news := {} if box is None else box.room_news():
            self.ask(RoomChanged(broker_id, broker_epoch, tuple(news.items())))

    def on_stop_replica_answer(self, message: StopReplicaAnswer) -> None:
        """Copies were taken out of service; what failed is sent again after the timeout."""
        box = self.publisher.outboxes.get(message.broker_id, message.broker_epoch)
        if self._refused(message.error, message.controller_epoch) or box is None:
            return
        self._listen(box)
        if message.errors:
            return
        topic_ids = {entry.partition.topic_id for entry in box.stopped(message.notice) if entry.delete}
        box.answered(message.notice, now_ms=self._now_ms)
        for topic_id in sorted(topic_ids - box.stopping() if topic_ids else topic_ids):
            if topic_id in self.cluster.removed and not box.acknowledged:
                box.removals = tuple(sorted({*box.removals, topic_id}))  # its complete notice may find copies that nobody knows of
            elif topic_id in self.cluster.removed:
                self.ask(CopiesGone(message.broker_id, topic_id))

    def _refused(self, error: int, controller_epoch: int) -> bool:
        """Whether a broker refused a command. Raises Deposed if it has obeyed a later controller."""
        if error == Code.STALE_CONTROLLER_EPOCH or controller_epoch > self._controller_epoch:
            if controller_epoch > self._controller_epoch:
                raise Deposed
            return True
        if error == Code.STALE_BROKER_EPOCH:
            self._looks["brokers"] = None
        return error != Code.NONE or controller_epoch != self._controller_epoch

    def on_replica_states_answer(self, message: ReplicaStatesAnswer) -> None:
        """How far copies reach."""
        if (box := self.publisher.outboxes.get(message.broker_id, message.broker_epoch)) is not None:
            answered = self.publisher.last_known.answered(message)
            self._listen(box)  # first: what is elected with its answer counts it as live
            for event in answered:
                self.ask(event)

    def on_proposal(self, event: IsrProposed) -> None:
        """A leader's wish; one from a life that is not known yet makes the controller look first.

        One that is meant for another controller is not decided: what that one may have refused is not known here.
        """
        meant_for = event.proposal.controller_epoch
        if meant_for != self._controller_epoch:
            if meant_for > self._controller_epoch:
                self._looks["seat"] = None
            self._outbox.messages.append((event.sender, AlterIsrAnswer(event.proposal.request, Code.NOT_CONTROLLER, [])))
            return
        known = self.cluster.brokers.get(event.proposal.broker_id)
        if known is None or known.info.broker_epoch < event.proposal.broker_epoch:
            self._looks["brokers"] = None
        self.ask(event)

    def on_metadata_asked(self, sender: Address) -> None:
        """A broker found a gap in the deltas."""
        if self.loaded and isinstance(sender, int) and sender in self.cluster.brokers:
            self.publisher.send_everything(sender)

    def _listen(self, answering: BrokerOutbox | None = None) -> None:
        """Whether brokers answer; one of them has, just now."""
        if answering is not None:
            answering.heard(self._now_ms)
        if self.loaded:
            owing = self.publisher.outboxes.owing(self._now_ms, self._config.session_ms, self.publisher.last_known.owed())
            for event in silences(self.cluster, owing):
                self.ask(event)
