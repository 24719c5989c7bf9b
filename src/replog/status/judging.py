"""Is everything led, copied and controlled? One answer for the command line and for HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from replog.client.results import BrokerDescription
from replog.client.view import View
from replog.metrics.troubles import WRONG, troubles

__all__ = ["judge", "shortened", "too_few", "wrong_with_brokers"]


def judge(view: View, brokers_min: int = 0, *, no_controller: str = "", may_hide: bool = False) -> dict[str, Any]:
    """What is well and what is not, as plain values: the JSON of the command. `reason` says in one line why it is not.

    Of each kind of trouble it has the partitions that are in it, and how many they are (`leaderless` and `leaderless_total`).
    Healthy: a serving broker is the controller (and answers: `no_controller` says why it does not), at least `brokers_min` serve,
    every broker that should hold a copy is there, none is fenced, no two are at one endpoint, and every partition has a leader and
    all its replicas in sync. `may_hide`: of those that rules show to whoever asks.
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
    registered = {b.broker_id for b in brokers}
    missing = sorted(needed - registered)
    controller = view.controller if view.controller in serving and not no_controller else None
    fenced = sorted(registered - serving)
    reasons = [no_controller or "no broker is the controller"] if controller is None else []
    reasons += too_few(len(serving), brokers_min)
    of_brokers = {"missing_brokers": missing, "fenced_brokers": fenced, "shared_endpoints": _shared_endpoints(brokers)}
    reasons += wrong_with_brokers(of_brokers)
    reasons += [f"{len(places)} partitions {WRONG[kind]}" for kind, places in found.items() if places]
    return {
        "healthy": not reasons,
        "reason": "; ".join(reasons),
        "cluster_id": view.cluster_id,
        "controller": controller,
        "no_controller": no_controller,
        "controller_epoch": view.controller_epoch,
        "brokers": [
            {"broker": b.broker_id, "epoch": b.broker_epoch, "state": b.state, "rack": b.rack, "endpoints": list(b.endpoints)}
            for b in brokers
        ],
        **of_brokers,
        "topics": len(view.topics),
        "partitions": count,
        "may_hide_topics": may_hide,
        **found,
        **{f"{kind}_total": len(places) for kind, places in found.items()},
    }


def shortened(report: Mapping[str, Any], most: int) -> dict[str, Any]:
    """The same, with so many partitions of each kind at most: the totals still count all of them."""
    return {**report, **{kind: report[kind][:most] for kind in WRONG}}


def too_few(serving: int, brokers_min: int) -> list[str]:
    """A sentence if fewer brokers serve than are asked for."""
    return [f"{serving} brokers serve, and {brokers_min} should"] if serving < brokers_min else []


def wrong_with_brokers(report: Mapping[str, Any]) -> list[str]:
    """What a report says of brokers that are not as they should be, a sentence each."""
    missing, fenced = (", ".join(map(str, report[kind])) for kind in ("missing_brokers", "fenced_brokers"))
    said = [f"brokers that hold copies and are not there: {missing}"] if missing else []
    said += [f"brokers that are fenced: {fenced}"] if fenced else []
    shared = [(", ".join(map(str, one["brokers"])), one["endpoint"]) for one in report["shared_endpoints"]]
    return said + [f"brokers at one endpoint: {ids} ({endpoint})" for ids, endpoint in shared]


def _shared_endpoints(brokers: list[BrokerDescription]) -> list[dict[str, Any]]:
    """Where several brokers say that they are reached: only one of them is."""
    at: dict[str, list[int]] = {}
    for broker in brokers:
        for endpoint in dict.fromkeys(broker.endpoints):
            at.setdefault(endpoint, []).append(broker.broker_id)
    return [{"endpoint": endpoint, "brokers": ids} for endpoint, ids in sorted(at.items()) if len(ids) > 1]
