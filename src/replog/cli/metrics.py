"""`replog metrics`: one snapshot, as Prometheus text: of one broker by its status page, or of what any broker knows of all."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from typing import Final

from replog.cli.context import Context
from replog.cli.exits import OK
from replog.errors import Unavailable, UsageError
from replog.metrics.seen import seen
from replog.metrics.text import prometheus_text

__all__ = ["metrics"]

_BYTES_MAX: Final = 64 << 20


def metrics(context: Context) -> int:
    """Print it; with --format json as plain values."""
    url: str | None = context.arguments.url
    if url is not None:
        return _of_broker(context, url)
    with context.client() as client:
        snapshot = seen(client._view(context.timeout_s), time.time_ns() // 1_000_000)
    if context.output.is_json:
        context.output.json(snapshot.to_dict())
    else:
        context.output.data(prometheus_text(snapshot).encode())
    return OK


def _of_broker(context: Context, url: str) -> int:
    """What a broker has counted, from its status page. Raises UsageError for what is no such URL, Unavailable if nobody answers."""
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"{url!r} is not the URL of a status page, such as http://127.0.0.1:8101")
    where = url.rstrip("/") + "/metrics" + ("?format=json" if context.output.is_json else "")
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(where, timeout=context.timeout_s) as answer:
            body: bytes = answer.read(_BYTES_MAX)
    except urllib.error.HTTPError as refused:
        with refused:
            raise Unavailable(f"{where} answers {refused.code}: {refused.read(1_000).decode('utf-8', 'replace').strip()}") from None
    except (OSError, ValueError) as problem:
        raise Unavailable(f"{where} does not answer: {problem}") from problem
    if context.output.is_json:
        context.output.json(json.loads(body))
    else:
        context.output.data(body)
    return OK
