"""`replog health`: is everything led, copied and controlled? Its exit status answers: 0 yes, 1 no, 2 nobody says."""

from __future__ import annotations

import time
from typing import Any, Final

from replog.cli.context import Context
from replog.cli.exits import BAD, OK, UNREACHABLE
from replog.client.client import Client
from replog.errors import Unavailable
from replog.metrics.troubles import WRONG
from replog.status.acting import MAY_HIDE, look
from replog.status.judging import judge, too_few, wrong_with_brokers

__all__ = ["health"]

_SHOWN: Final = 20
_EVERY_S: Final = 1.0
"""Between two looks, unless --watch says otherwise."""
_LAST_S: Final = 1.0
"""What the last look takes at most, when the time is up: none at all would always say that nobody answers."""


def health(context: Context) -> int:
    """Look once; with --watch again and again, and say what has changed; with --exit-when-healthy or --within until it is healthy."""
    asked = context.arguments
    if asked.watch is None and not asked.exit_when_healthy and asked.within is None:
        try:
            with context.client() as client:
                return _look(context, client, context.timeout_s)[0]
        except Unavailable as nobody:
            _tell_nobody(context, nobody)
            return UNREACHABLE
    every_s = _EVERY_S if asked.watch is None else asked.watch
    give_up = None if asked.within is None else time.monotonic() + asked.within
    until_healthy = asked.exit_when_healthy or give_up is not None
    last = ""
    with context.client() as client:
        while True:
            limit_s = None if give_up is None else max(_LAST_S, give_up - time.monotonic())
            try:
                status, last = _look(context, client, _least(context.timeout_s, limit_s), last)
            except Unavailable as nobody:
                status = UNREACHABLE
                if last != str(nobody):
                    _tell_nobody(context, nobody)
                last = str(nobody)
            context.output.flush()
            if status == OK and until_healthy:
                return OK
            left_s = None if give_up is None else give_up - time.monotonic()
            if left_s is not None and left_s <= 0:
                return status
            context.output.rest(every_s if left_s is None else min(every_s, left_s))


def _tell_nobody(context: Context, nobody: Unavailable) -> None:
    context.output.note(f"replog: nobody answers: {nobody}")
    if context.output.is_json:
        context.output.json({"healthy": False, "reason": f"nobody answers: {nobody}"})


def _least(*limits_s: float | None) -> float | None:
    """The shortest of the times that are limited."""
    return min((limit for limit in limits_s if limit is not None), default=None)


def _look(context: Context, client: Client, timeout_s: float | None, last: str = "") -> tuple[int, str]:
    """Ask, and show the answer if it is another one than `last`: (exit status, the answer)."""
    seen = look(client, timeout_s)
    report = judge(seen.view, context.arguments.brokers, no_controller=seen.no_controller, may_hide=seen.may_hide)
    if str(report) != last:
        if context.output.is_json:
            context.output.json(report)
        else:
            _show(context, report, context.arguments.brokers)
    return (OK if report["healthy"] else BAD), str(report)


def _show(context: Context, report: dict[str, Any], brokers_min: int) -> None:
    controller = "none" if report["controller"] is None else f"broker {report['controller']}"
    context.output.line(f"{'healthy' if report['healthy'] else 'NOT healthy'}: cluster {report['cluster_id'] or '?'}")
    if report["no_controller"]:
        context.output.line(report["no_controller"])
    context.output.line(f"controller: {controller}, epoch {report['controller_epoch']}")
    serving = sum(b["state"] == "serving" for b in report["brokers"])
    for sentence in (*too_few(serving, brokers_min), *wrong_with_brokers(report)):
        context.output.line(sentence)
    context.output.line(f"{report['topics']} topics, {report['partitions']} partitions")
    if report["may_hide_topics"]:
        context.output.line(MAY_HIDE)
    for kind, meaning in WRONG.items():
        places = [f"{p['topic']}-{p['partition']}" for p in report[kind]]
        if places:
            more = f" and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
            context.output.line(f"{len(places)} {meaning}: {', '.join(places[:_SHOWN])}{more}")
    head = ("broker", "epoch", "state", "rack", "endpoints")
    context.output.table(head, [tuple(b[name] for name in head) for b in report["brokers"]])
