"""Brokers that do not answer notices, or how far their copies reach, although their store sessions live (design, section 6, "Notices").

They act on what they were told last. After an ack timeout people are told; after a session timeout they count as fenced: others
lead what they led, and no ISR takes them in, until they have answered again. Nothing of it is stored: the next controller finds
out for itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.controller.changes import Due, SilenceSet
from replog.controller.cluster import Cluster
from replog.controller.decision import Decision, Step
from replog.controller.events import SilenceChanged
from replog.model import PartitionId
from replog.ports import Event as Told

if TYPE_CHECKING:
    from replog.controller.controller import Controller

__all__ = ["silence_changed", "silences"]


def silences(cluster: Cluster, owing: dict[int, bool]) -> list[SilenceChanged]:
    """What has changed, given who owes answers (and whether for long): asked often, so that it says each change once."""
    changed = []
    for broker_id, broker in sorted(cluster.brokers.items()):
        now = (broker_id in owing, owing.get(broker_id, False))
        if now != (cluster.is_overdue(broker_id), cluster.is_silent(broker_id)):
            changed.append(SilenceChanged(broker_id, broker.info.broker_epoch, *now))
    return changed


def silence_changed(controller: Controller, event: SilenceChanged) -> Decision:
    """Take leaderships from a broker that has fallen silent; elect one that answers again wherever only it was missing."""
    cluster, broker_id = controller.cluster, event.broker_id
    broker = cluster.brokers.get(broker_id)
    if broker is None or broker.info.broker_epoch != event.broker_epoch:
        return Decision()
    if (event.is_overdue, event.is_silent) == (cluster.is_overdue(broker_id), cluster.is_silent(broker_id)):
        return Decision()
    due: tuple[PartitionId, ...] = ()
    told: tuple[Told, ...] = ()
    if event.is_silent != cluster.is_silent(broker_id):
        back = not event.is_silent
        due = tuple(p for p in cluster.on_broker(broker_id) if cluster.concerns(p, broker_id) or (back and controller.leaderless(p)))
        name = "broker_silent" if event.is_silent else "broker_answers_again"
        told = (Told(name, {"broker": broker_id, "broker_epoch": event.broker_epoch, "partitions": len(due)}),)
    change = SilenceSet(broker_id, event.broker_epoch, event.is_overdue, event.is_silent)
    return Decision((Step(changes=(change, Due(due)), told=told),))
