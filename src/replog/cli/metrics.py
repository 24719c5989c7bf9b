"""`replog metrics`: one snapshot, as Prometheus text: of one broker by its status page, or of what any broker knows of all."""

from __future__ import annotations

import time

from replog.cli.context import Context
from replog.cli.exits import OK
from replog.cli.pages import all_of, check_counted, parsed
from replog.errors import UsageError
from replog.metrics.seen import seen
from replog.metrics.text import prometheus_text
from replog.status.acting import look

__all__ = ["metrics"]


def metrics(context: Context) -> int:
    """Print it; with --format json as plain values."""
    url: str | None = context.arguments.url
    if url is not None:
        return _of_broker(context, url)
    if context.arguments.partitions:
        raise UsageError("--partitions goes with the URL of a status page: what is known of all brokers has no offsets")
    with context.client() as client:
        looked = look(client, context.timeout_s)
        snapshot = seen(looked.view, time.time_ns() // 1_000_000, is_led=not looked.no_controller)
    if context.output.is_json:
        context.output.json(snapshot.to_dict())
    else:
        context.output.data(prometheus_text(snapshot).encode())
    return OK


def _of_broker(context: Context, url: str) -> int:
    """What a broker has counted, from its status page. Raises UsageError for what is no such URL, Unavailable for what is no such page."""
    body = all_of(url, context.timeout_s, as_json=context.output.is_json, partitions=context.arguments.partitions)
    if context.output.is_json:
        context.output.json(parsed(body, url))
    else:
        check_counted(body, url)
        context.output.data(body)
    return OK
