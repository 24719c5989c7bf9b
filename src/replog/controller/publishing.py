"""What brokers are told in one term: notices of the partitions they hold, views of the cluster, questions how far their copies reach.

Only what is stored is told. What is not acknowledged or answered in time is said again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from replog.config import BrokerConfig
from replog.controller.changes import BrokerGone, BrokerSet, Settled, StateGone, StateSet, Topic, TopicSet
from replog.controller.cluster import Cluster
from replog.controller.decision import Ask, Step
from replog.controller.events import LastKnownAnswered
from replog.controller.lastknown import LastKnown
from replog.controller.outboxes import Outboxes
from replog.controller.views import Views
from replog.messages import ClusterView, ReplicaStates, UpdateMetadata
from replog.model import PartitionId
from replog.ports import Outbox

__all__ = ["Publisher"]


class Publisher:
    """Puts into `outbox` what the brokers of `cluster` are to hear of the controller `broker_id` under its epoch."""

    def __init__(
        self, broker_id: int, controller_epoch: int, cluster_id: str, *, config: BrokerConfig, cluster: Cluster, outbox: Outbox
    ) -> None:
        self._broker_id = broker_id
        self._controller_epoch = controller_epoch
        self._ack_timeout_ms = config.ack_timeout_ms
        self._cluster = cluster
        self._outbox = outbox
        self._views = Views(cluster, broker_id, controller_epoch, cluster_id)
        self.outboxes = Outboxes(
            broker_id,
            controller_epoch,
            config.ack_timeout_ms,
            self._views.notice,
            stops_max=config.slice_partitions_max,
            beat_ms=config.heartbeat_ms,
            hidden=lambda: cluster.hidden,
        )
        self.last_known = LastKnown(controller_epoch)

    @property
    def version(self) -> int:
        """Of the newest view that was told."""
        return self._views.version

    # ---- what has become known

    def altered(self, step: Step) -> list[Topic]:
        """The topics whose configuration a step changes: asked before it is applied, for `note`."""
        return [c.topic for c in step.changes if isinstance(c, TopicSet) and self._cluster.is_altered(c.topic)]

    def note(self, step: Step, altered: Sequence[Topic]) -> None:
        """A step was stored, and the cluster is as it says."""
        cluster, outboxes = self._cluster, self.outboxes
        for topic in altered:
            for partition in topic.identities():
                outboxes.note(partition, cluster.replicas(partition))
        for change in step.changes:
            self._views.note(change)
            match change:
                case StateSet(partition):
                    outboxes.note(partition, cluster.replicas(partition))
                case StateGone(partition):
                    self.last_known.drop(partition)
                case BrokerSet(broker):
                    outboxes.register(broker.info.broker_id, broker.info.broker_epoch)
                    self.last_known.forget(broker.info.broker_id)
                case BrokerGone(broker_id):
                    outboxes.forget(broker_id)
                    self.last_known.forget(broker_id)
                case Settled(partitions):
                    for partition in partitions:
                        self.last_known.drop(partition)
                case _:
                    pass
        for broker_id, entry in step.stops:
            outboxes.stop(broker_id, entry)

    # ---- telling it

    def publish(self, now_ms: int, is_to_wait: Callable[[int], bool]) -> None:
        """New states, the delta, and everything to brokers that have heard nothing yet, unless they are to wait for it."""
        self.send(self.outboxes.flush(now_ms))
        silent = self.outboxes.silent()
        if (delta := self._views.delta()) is not None:
            self._send_view(delta, [b for b in sorted(self._cluster.brokers) if b not in silent])
        # Who is to wait is told nothing: with the complete notice a broker may be let in, and what it lost is dealt with before that.
        if not self._cluster.due and (ready := [b for b in silent if not is_to_wait(b)]):
            for broker_id in ready:
                self._announce(broker_id, now_ms)
            self._send_view(self._views.complete(), ready)
        if not (self._cluster.due or self._cluster.hidden.hides_copies):
            for broker_id in self.outboxes.blind():
                if not any(p in self._cluster.parked or p in self._cluster.vanished for p in self._cluster.on_broker(broker_id)):
                    self._announce(broker_id, now_ms)  # else it would put away what it serves, and of which nothing can be said now

    def _announce(self, broker_id: int, now_ms: int) -> None:
        """The complete notice, once its partitions have been decided: all of them that have a state."""
        cluster = self._cluster
        partitions = [p for p in cluster.on_broker(broker_id) if self._views.notice(p) is not None]
        removals = tuple(t for t in sorted(cluster.removed) if broker_id in cluster.removed[t].brokers)
        self._outbox.messages.append((broker_id, self.outboxes.announce(broker_id, partitions, removals, now_ms)))

    def send(self, messages: Iterator[tuple[int, object]]) -> None:
        """Messages of the outboxes: (broker, message)."""
        self._outbox.messages.extend(messages)

    def send_everything(self, broker_id: int) -> None:
        """The complete view, to one broker."""
        self._send_view(self._views.complete(), [broker_id])

    def send_still(self) -> None:
        """To everybody who has heard of the cluster: which delta was the last."""
        silent = self.outboxes.silent()
        self._send_view(self._views.still(), [b for b in sorted(self._cluster.brokers) if b not in silent])

    def name_again(self, broken: Iterable[tuple[PartitionId, int]]) -> None:
        """(partition, broker) of failed copies: an answer that said otherwise may be lost, or an old report may have come after it."""
        for partition, broker_id in broken:
            self.outboxes.name(partition, broker_id)

    def _send_view(self, view: ClusterView, brokers: list[int]) -> None:
        for broker_id in brokers:
            head = (self._broker_id, self._controller_epoch, self._cluster.brokers[broker_id].info.broker_epoch)
            self._outbox.messages.append((broker_id, UpdateMetadata(*head, view)))

    # ---- asking

    def ask_replicas(self, asks: Iterable[Ask], now_ms: int) -> None:
        """Open questions, and send whatever has yet to be answered."""
        self.last_known.begin(asks)
        for broker_id, request, partitions in self.last_known.messages(now_ms, self._ack_timeout_ms):
            if (broker := self._cluster.brokers.get(broker_id)) is not None:
                head = (self._broker_id, self._controller_epoch, broker.info.broker_epoch)
                self._outbox.messages.append((broker_id, ReplicaStates(*head, request, partitions)))

    # ---- time

    def send_overdue(self, now_ms: int) -> None:
        """Notices that were not acknowledged in time."""
        self.send(self.outboxes.overdue(now_ms))

    def ask_again(self, now_ms: int) -> list[LastKnownAnswered]:
        """Questions that were not answered in time. Returns those that need no more answers."""
        asking = self.last_known.deadline_ms(self._ack_timeout_ms)
        if asking is None or asking > now_ms:
            return []
        settled = self.last_known.settled(now_ms, self._ack_timeout_ms)
        self.ask_replicas((), now_ms)
        return settled

    def deadline_ms(self) -> int | None:
        """When something is to be said again."""
        asking = self.last_known.deadline_ms(self._ack_timeout_ms)
        return min((d for d in (self.outboxes.deadline_ms(), asking) if d is not None), default=None)
