"""Is everything led, copied and controlled? One answer for the command line and for HTTP."""

from __future__ import annotations

from typing import Any

from replog.client.results import BrokerDescription
from replog.client.view import View
from replog.metrics.troubles import WRONG, troubles

__all__ = ["judge"]


def judge(view: View, brokers_min: int = 0) -> dict[str, Any]:
    """What is well and what is not, as plain values: the JSON of the command.

    Healthy: a serving broker is the controller, at least `brokers_min` serve, every broker that should hold a copy is among them, none is
    fenced, and every partition has a leader and all its replicas in sync.
    """
    brokers = [
        BrokerDescription(b.broker_id, b.broker_epoch, b.endpoints, b.rack, b.fenced, b.draining, b.overdue)
        for _, b in sorted(view.brokers.items())
    ]
    serving = {b.broker_id for b in brokers if not b.fenced}
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in WRONG}
    count, needed = 0, set[int]()
    for name, topic in sorted(view.topics.items()):
        for number in topic.numbers():
            p = topic.partitions[number]
            count += 1
            needed.update(p.replicas)
            place = {"topic": name, "partition": number, "leader": p.leader, "replicas": list(p.replicas), "isr": list(p.isr)}
            wrong = troubles(p, topic.config.min_isr)
            for kind in found:
                if kind in wrong:
                    found[kind].append(place)
    missing = sorted(needed - serving)
    controller = view.controller if view.controller in serving else None
    fenced = sorted({b.broker_id for b in brokers} - serving - set(missing))
    return {
        "healthy": controller is not None and len(serving) >= brokers_min and not missing and not fenced and not any(found.values()),
        "cluster_id": view.cluster_id,
        "controller": controller,
        "controller_epoch": view.controller_epoch,
        "brokers": [
            {"broker": b.broker_id, "epoch": b.broker_epoch, "state": b.state, "rack": b.rack, "endpoints": list(b.endpoints)}
            for b in brokers
        ],
        "missing_brokers": missing,
        "topics": len(view.topics),
        "partitions": count,
        **found,
    }
