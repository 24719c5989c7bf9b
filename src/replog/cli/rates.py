"""`replog top`: what was committed between two looks, by topic and by the broker that leads."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from replog.cli.context import Context
from replog.cli.exits import OK
from replog.cli.topics import described
from replog.client.client import Client
from replog.errors import Unavailable

__all__ = ["Seen", "rates", "top"]

_CLEAR: Final = b"\x1b[H\x1b[J"
_LINES_MIN: Final = 3


class Seen(NamedTuple):
    """One partition at one look."""

    topic: str
    leader: int | None
    replicas: tuple[int, ...]
    high_watermark: int | None
    """None where no leader answered."""
    end_offset: int | None
    time_s: float
    """On a monotonic clock."""


Look = dict[tuple[str, int], Seen]
"""By topic id and partition: a topic that was made again is another one."""


def rates(before: Look, now: Look, brokers: Mapping[int, str]) -> dict[str, Any]:
    """The JSON of the command: records per second, None where nothing can be said, by topic and by leading broker, busiest first.

    `brokers` are those that are registered, and their states. What was appended and is not committed yet is `uncommitted`.
    """
    topics: dict[str, dict[str, Any]] = {}
    leading = {broker: {"broker": broker, "state": state, **_nothing()} for broker, state in sorted(brokers.items())}
    for place, seen in sorted(now.items(), key=lambda item: (item[1].topic, item[0][1])):
        of_topic = topics.setdefault(seen.topic, {"topic": seen.topic, **_nothing()})
        rate = _rate(before.get(place), seen)
        waiting = None if seen.high_watermark is None or seen.end_offset is None else seen.end_offset - seen.high_watermark
        for row in (of_topic, leading.get(-1 if seen.leader is None else seen.leader)):
            if row is not None:
                row["partitions"] += 1
                row["records_per_s"] = _sum(row["records_per_s"], rate)
                row["uncommitted"] = _sum(row["uncommitted"], waiting)
        for broker in seen.replicas:
            if broker in leading:
                leading[broker]["replicas"] = leading[broker].get("replicas", 0) + 1
    for row in leading.values():
        row["leads"] = row.pop("partitions")
        row.setdefault("replicas", 0)
        if not row["leads"]:
            row["records_per_s"], row["uncommitted"] = 0.0, 0
    busiest = sorted(topics.values(), key=lambda row: (-(row["records_per_s"] or 0), row["topic"]))
    return {"topics": busiest, "brokers": sorted(leading.values(), key=lambda row: (-(row["records_per_s"] or 0), row["broker"]))}


def _nothing() -> dict[str, Any]:
    return {"partitions": 0, "records_per_s": None, "uncommitted": None}


def _sum(one: float | None, two: float | None) -> float | None:
    """What is known of both together."""
    return two if one is None else one if two is None else one + two


def _rate(before: Seen | None, now: Seen) -> float | None:
    """Records per second; None where one of the looks did not see how far it was, or an unclean election took records back."""
    if before is None or before.high_watermark is None or now.high_watermark is None:
        return None
    committed, passed_s = now.high_watermark - before.high_watermark, now.time_s - before.time_s
    return None if committed < 0 or passed_s <= 0 else committed / passed_s


def top(context: Context) -> int:
    """Look, wait, look again and tell, again and again; with --once the first time only."""
    asked, rest = context.arguments, threading.Event()
    patience_s = asked.timeout if asked.timeout is not None else max(1.0, asked.interval)
    before: Look | None = None
    with context.client() as client:
        while True:
            try:
                now, brokers = _look(client, patience_s)
            except Unavailable as nobody:
                if asked.once:
                    raise
                context.output.note(f"replog: nobody answers: {nobody}")
                now, brokers = {}, {}
            if before is not None and brokers:
                _show(context, {"interval_s": asked.interval, **rates(before, now, brokers)})
                context.output.flush()
                if asked.once:
                    return OK
            before = now
            rest.wait(asked.interval)


def _look(client: Client, timeout_s: float | None) -> tuple[Look, dict[int, str]]:
    look: Look = {}
    cluster = client.describe_cluster(timeout_s=timeout_s)
    for topic in described(client, cluster.topics, timeout_s):
        now_s = time.monotonic()
        for p in topic.partitions:
            look[topic.topic_id, p.partition] = Seen(topic.topic, p.leader, p.replicas, p.high_watermark, p.end_offset, now_s)
    return look, {b.broker_id: b.state for b in cluster.brokers}


def _show(context: Context, found: dict[str, Any]) -> None:
    output = context.output
    if output.is_json:
        output.json(found)
        return
    room = None
    if output.pretty and not context.arguments.once:
        output.data(_CLEAR)
        room = max(_LINES_MIN, output.height - len(found["brokers"]) - 14)  # what the frames of two tables take
    topics, more = found["topics"][:room], len(found["topics"][room:]) if room is not None else 0
    head = ("topic", "partitions", "records/s", "uncommitted")
    if topics:
        output.table(head, [(row["topic"], row["partitions"], _shown(row["records_per_s"]), row["uncommitted"]) for row in topics])
        output.line(f"and {more} quieter topics\n" if more else "")
    keys = ("broker", "state", "leads", "replicas")
    rows = [(*(row[key] for key in keys), _shown(row["records_per_s"]), row["uncommitted"]) for row in found["brokers"]]
    output.table((*keys, "records/s", "uncommitted"), rows)
    if not output.pretty and not context.arguments.once:
        output.line("")


def _shown(rate: float | None) -> str | None:
    return None if rate is None else f"{rate:.1f}" if rate < 100 else f"{rate:.0f}"
