"""`replog health`: is everything led, copied and controlled? Its exit status answers: 0 yes, 1 no, 2 nobody says."""

from __future__ import annotations

import threading
from typing import Any, Final

from replog.cli.context import Context
from replog.cli.exits import BAD, OK, UNREACHABLE
from replog.client.client import Client
from replog.client.results import BrokerDescription
from replog.client.view import View
from replog.config import default_min_isr
from replog.errors import Unavailable

__all__ = ["health", "judge"]

_SHOWN: Final = 20
_EVERY_S: Final = 1.0

_TROUBLES: Final = {
    "leaderless": "without a leader: nothing can be read or appended",
    "under_min_isr": "with fewer replicas in sync than min_isr: acks=all is refused",
    "under_replicated": "with fewer replicas in sync than they have",
}


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
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in _TROUBLES}
    count, needed = 0, set[int]()
    for name, topic in sorted(view.topics.items()):
        for number in topic.numbers():
            p = topic.partitions[number]
            count += 1
            needed.update(p.replicas)
            place = {"topic": name, "partition": number, "leader": p.leader, "replicas": list(p.replicas), "isr": list(p.isr)}
            min_isr = topic.config.min_isr or default_min_isr(len(p.replicas))
            for kind, holds in (
                ("leaderless", p.leader is None),
                ("under_min_isr", len(p.isr) < min_isr),
                ("under_replicated", len(p.isr) < len(p.replicas)),
            ):
                if holds:
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


def health(context: Context) -> int:
    """Look once; with --watch again and again, and say what has changed."""
    asked = context.arguments
    if not asked.watch and not asked.exit_when_healthy:
        try:
            with context.client() as client:
                return _look(context, client)[0]
        except Unavailable as nobody:
            context.output.note(f"replog: nobody answers: {nobody}")
            return UNREACHABLE
    rest, last = threading.Event(), ""
    with context.client() as client:
        while True:
            try:
                status, last = _look(context, client, last)
            except Unavailable as nobody:
                status = UNREACHABLE
                if last != str(nobody):
                    context.output.note(f"replog: nobody answers: {nobody}")
                last = str(nobody)
            context.output.flush()
            if status == OK and asked.exit_when_healthy:
                return OK
            rest.wait(_EVERY_S)


def _look(context: Context, client: Client, last: str = "") -> tuple[int, str]:
    """Ask, and show the answer if it is another one than `last`: (exit status, the answer)."""
    report = judge(client._view(context.timeout_s), context.arguments.brokers)
    if str(report) != last:
        if context.output.is_json:
            context.output.json(report)
        else:
            _show(context, report, context.arguments.brokers)
    return (OK if report["healthy"] else BAD), str(report)


def _show(context: Context, report: dict[str, Any], brokers_min: int) -> None:
    controller = "none" if report["controller"] is None else f"broker {report['controller']}"
    context.output.line(f"{'healthy' if report['healthy'] else 'NOT healthy'}: cluster {report['cluster_id'] or '?'}")
    context.output.line(f"controller: {controller}, epoch {report['controller_epoch']}")
    serving = sum(b["state"] == "serving" for b in report["brokers"])
    if serving < brokers_min:
        context.output.line(f"{serving} brokers serve, and {brokers_min} should")
    if report["missing_brokers"]:
        context.output.line(f"brokers that hold copies and are not there: {', '.join(map(str, report['missing_brokers']))}")
    context.output.line(f"{report['topics']} topics, {report['partitions']} partitions")
    for kind, meaning in _TROUBLES.items():
        places = [f"{p['topic']}-{p['partition']}" for p in report[kind]]
        if places:
            more = f" and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
            context.output.line(f"{len(places)} {meaning}: {', '.join(places[:_SHOWN])}{more}")
    head = ("broker", "epoch", "state", "rack", "endpoints")
    context.output.table(head, [tuple(b[name] for name in head) for b in report["brokers"]])
