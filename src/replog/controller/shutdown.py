"""Controlled shutdown and draining: what a broker leads is moved, and the store says so, before it is told that it may leave.

The record is `/brokers/draining/[id]`; it is about one life of the broker, and says nothing about the next (PROTOCOL 4.9, P-93). From
it alone follows, for whoever is controller, that the broker leads and is in sync only where nobody else can be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.controller.changes import DrainingGone, DrainingSet, Due
from replog.controller.cluster import Cluster
from replog.controller.decision import Decision, Piece, Step, answered, pack
from replog.controller.events import AdminAsked, BrokersSeen, DrainingEnded, Event, ShutdownAsked
from replog.controller.refusal import Refusal
from replog.controller.writing import written
from replog.errors import Code
from replog.messages import ControlledShutdownAnswer
from replog.metadata import layout
from replog.model import PartitionId
from replog.ports import Delete
from replog.ports import Event as Told

if TYPE_CHECKING:
    from replog.controller.controller import Controller

__all__ = ["drain", "draining_ended", "ended", "shutdown_asked"]

_REMAINING_TOLD = 100
"""So many of the partitions that remain are named to a broker that wants to leave."""


def shutdown_asked(controller: Controller, event: ShutdownAsked) -> Decision:
    """Answered when everything that can be moved has been; which notice is the last to wait for is settled by the term."""
    cluster, asked = controller.cluster, event.message
    broker = cluster.brokers.get(asked.broker_id)
    answer = ControlledShutdownAnswer(asked.broker_id, asked.broker_epoch, controller.controller_epoch, Code.STALE_BROKER_EPOCH)
    if broker is None or broker.info.broker_epoch != asked.broker_epoch:
        return Decision(answers=((event.sender, answer),))
    underway = _drained(controller, asked.broker_id, event)
    if underway is not None:
        return underway
    left = _remaining(cluster, asked.broker_id)
    answer.error, answer.remaining, answer.remaining_total = Code.NONE, left[:_REMAINING_TOLD], len(left)
    return Decision(answers=((event.sender, answer),))


def drain(controller: Controller, event: AdminAsked) -> Decision:
    """`broker`: move everything away from it that can be; it goes on running, and is taken up again when it is restarted.

    With `broker_epoch` only in that life: a request that comes late is not about the next one.
    """
    cluster, request = controller.cluster, event.request
    broker_id = request.arguments.get("broker")
    if not isinstance(broker_id, int) or isinstance(broker_id, bool):
        raise Refusal(Code.INVALID_REQUEST, f"broker is {broker_id!r}; it is the number of a broker")
    broker = cluster.brokers.get(broker_id)
    if broker is None:
        known = ", ".join(map(str, sorted(cluster.brokers))) or "none"
        raise Refusal(Code.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered; registered are {known}")
    life = request.arguments.get("broker_epoch")
    if life is not None and life != broker.info.broker_epoch:
        text = f"broker {broker_id} has been restarted since: its life is {broker.info.broker_epoch}, not {life!r}"
        raise Refusal(Code.STALE_BROKER_EPOCH, text)
    underway = _drained(controller, broker_id, event)
    if underway is not None:
        return underway
    left = [[cluster.topics[p.topic_id].topic, p.partition] for p in _remaining(cluster, broker_id)]
    result = {"broker": broker_id, "broker_epoch": broker.info.broker_epoch, "remaining": left}
    return answered(event, result)


def _drained(controller: Controller, broker_id: int, event: Event) -> Decision | None:
    """What is still to be done, after which the same event goes on; None: nothing, in what the store holds."""
    cluster = controller.cluster
    if broker_id not in cluster.leaving():
        return Decision(pack(controller.guard, [_record(cluster, broker_id)]), after=(event,))
    tried = {**cluster.due, **cluster.parked}  # what could not be stored remains
    away = (p for p in _remaining(cluster, broker_id) if p not in tried and _can_move(cluster, p))
    todo = tuple(p for p in away if controller.choose(p).state is not None)
    if todo:
        return Decision((Step(changes=(Due(todo),)),), after=(event,))
    return Decision(after=(event,)) if cluster.due else None  # decided in slices, in turn with this event


def _record(cluster: Cluster, broker_id: int) -> Piece:
    path, broker_epoch = layout.draining_path(broker_id), cluster.brokers[broker_id].info.broker_epoch
    known = cluster.draining.get(broker_id)
    value = layout.encode_draining(broker_epoch)
    op, version, over = written(cluster, path, value, None if known is None else known.version)
    told = Told("broker_draining", {"broker": broker_id, "broker_epoch": broker_epoch})
    return Piece((op,), (DrainingSet(broker_id, broker_epoch, version), *over), (told,))


def _remaining(cluster: Cluster, broker_id: int) -> list[PartitionId]:
    """Partitions that the broker leads, or is in sync with."""
    found = []
    for partition in cluster.on_broker(broker_id):
        state = cluster.states.get(partition)
        if state is not None and partition.topic_id not in cluster.deletions and broker_id in (state.leader, *state.isr):
            found.append(partition)
    return found


def _can_move(cluster: Cluster, partition: PartitionId) -> bool:
    """Whether somebody else is in sync who stays."""
    live, leaving = cluster.live(partition), cluster.leaving()
    return any(member in live and member not in leaving for member in cluster.states[partition].isr)


def ended(cluster: Cluster, seen: BrokersSeen) -> list[int]:
    """Brokers whose record is about a life that is over."""
    lives = {broker.info.broker_id: broker.info.broker_epoch for broker in seen.brokers}
    return [b for b, record in sorted(cluster.draining.items()) if lives.get(b) != record.broker_epoch]


def draining_ended(controller: Controller, event: DrainingEnded) -> Decision:
    """Remove the record of a life that is over."""
    cluster = controller.cluster
    record, broker = cluster.draining.get(event.broker_id), cluster.brokers.get(event.broker_id)
    if record is None or (broker is not None and broker.info.broker_epoch == record.broker_epoch):
        return Decision()
    piece = Piece((Delete(layout.draining_path(event.broker_id), record.version),), (DrainingGone(event.broker_id),))
    return Decision(pack(controller.guard, [piece]))
