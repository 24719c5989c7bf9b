"""`replog top`: look, wait, look again, and tell what was between."""

from __future__ import annotations

from typing import Any, Final

from replog.cli.asking import Pages
from replog.cli.context import Context
from replog.cli.exits import OK
from replog.cli.output import Output
from replog.cli.pages import Counts
from replog.cli.rates import Look, Seen, rates
from replog.cli.side_by_side import described
from replog.cli.units import plain
from replog.client.client import Client
from replog.config import ClientConfig
from replog.errors import Unavailable

__all__ = ["top"]

_CLUSTER_S: Final = 2 * ClientConfig().unanswered_ms / 1_000
"""A client turns to another broker when one has not answered for half of this. Who gives up sooner asks one that hangs again and again."""
_CLEAR: Final = b"\x1b[H\x1b[J"
_LINES_MIN: Final = 3
_NAMED_MAX: Final = 5
"""So many under-replicated partitions are named."""
_FOLLOWERS_S: Final = 1.0
"""How long leaders may take to say how far their followers are: without that there is less to show."""


def top(context: Context) -> int:
    """Look, wait, look again and tell, again and again; with --once the first time only. Bytes are counted by the pages that are named."""
    asked = context.arguments
    patience_s = asked.timeout if asked.timeout is not None else max(1.0, asked.interval)
    cluster_s = context.timeout_s if asked.once or asked.timeout is not None else max(_CLUSTER_S, asked.interval)
    before: tuple[Look, Counts] | None = None
    pages, unanswered = Pages(asked.urls), list[Unavailable]()
    with context.client() as client:
        while True:
            try:
                now, brokers = _look(client, cluster_s)
            except Unavailable as nobody:
                if asked.once:
                    raise
                context.output.note(f"replog: nobody answers: {nobody}")
                now, brokers = {}, {}
            counts, missing = pages.counts(patience_s)
            for problem in () if asked.once else missing:
                context.output.note(f"replog: {problem}")
            unanswered += missing if asked.once else ()
            if before is not None and brokers:
                _show(context, {"interval_s": asked.interval, **rates(before[0], now, brokers, (before[1], counts))})
                context.output.flush()
                if asked.once:
                    return _done(unanswered)
            before = now, counts
            context.output.rest(asked.interval)


def _done(unanswered: list[Unavailable]) -> int:
    """There is no later look: what is known has been shown, and a page that did not answer one of the two is the error."""
    if unanswered:
        raise unanswered[0]
    return OK


def _look(client: Client, timeout_s: float | None) -> tuple[Look, dict[int, str]]:
    look: Look = {}
    cluster = client.describe_cluster(timeout_s=timeout_s)
    deadline_ms = client._deadline(timeout_s)
    lags = _lags(client, min(deadline_ms, client._deadline(_FOLLOWERS_S)))
    for topic, told_s in ((one.topic, one.told_s) for one in described(client, cluster.topics, deadline_ms)):
        for p in topic.partitions:
            place = topic.topic_id, p.partition
            told = lags.get(place, {})
            known = {broker: told[broker] for broker in p.replicas if broker in told and broker != p.leader}
            at_s = told_s.get(p.partition, 0.0)
            look[place] = Seen(topic.topic, p.leader, p.replicas, p.isr, p.high_watermark, p.end_offset, at_s, known, p.adding)
    return look, {b.broker_id: b.state for b in cluster.brokers}


def _lags(client: Client, deadline_ms: int) -> dict[tuple[str, int], dict[int, int]]:
    """Of each partition whose leader says so: how many records each follower lacks."""
    places = [
        (place.leader, (topic.topic_id.hex(), number, place.identity.creation))
        for topic in list(client._core.view.topics.values())
        for number, place in list(topic.places.items())
    ]
    found = client._followers(places, deadline_ms)
    return {
        (topic_id, number): {
            one["broker"]: max(told["end_offset"] - one["end_offset"], 0) for one in told["followers"] if one["end_offset"] is not None
        }
        for (topic_id, number, _), told in found.items()
    }


def _show(context: Context, found: dict[str, Any]) -> None:
    output, with_bytes = context.output, bool(context.arguments.urls)
    if output.is_json:
        output.json(found)
        return
    room = None
    if output.pretty and not context.arguments.once:
        output.data(_CLEAR)
        room = max(_LINES_MIN, output.height - len(found["brokers"]) - 15)  # what the frames of two tables take
    short = found["under_replicated"]
    if short:
        named = ", ".join(f"{one['topic']}-{one['partition']} lacks {','.join(map(str, one['missing']))}" for one in short[:_NAMED_MAX])
        output.line(f"{len(short)} under-replicated: {named}{', ...' if len(short) > _NAMED_MAX else ''}")
    topics, more = found["topics"][:room], len(found["topics"][room:]) if room is not None else 0
    measured = ("records/s", *(("bytes/s",) if with_bytes else ()), "uncommitted", "lag")
    if topics:
        shown = [(row["topic"], row["partitions"], row["under_replicated"], *_measured(output, row, with_bytes)) for row in topics]
        output.table(("topic", "partitions", "under-repl.", *measured), shown)
        output.line(f"and {more} quieter topics\n" if more else "")
    keys = ("broker", "state", "leads", "replicas")
    rows = [(*(row[key] for key in keys), *_measured(output, row, with_bytes)) for row in found["brokers"]]
    output.table((*keys, *measured), rows)
    if not output.pretty and not context.arguments.once:
        output.line("")


def _measured(output: Output, row: dict[str, Any], with_bytes: bool) -> tuple[Any, ...]:
    bytes_ = (output.units.size(row["bytes_per_s"]),) if with_bytes else ()
    return _shown(row["records_per_s"]), *bytes_, row["uncommitted"], row["lag_records"]


def _shown(rate: float | None) -> str | None:
    return None if rate is None else plain(rate)
