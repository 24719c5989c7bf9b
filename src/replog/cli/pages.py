"""What brokers have counted, from their status pages."""

from __future__ import annotations

import http.client
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from replog.cli.output import json_value
from replog.errors import Unavailable, UsageError
from replog.security.shown import shown
from replog.status.http import TAKEN_AT

__all__ = ["Counted", "Counts", "all_of", "byte_rates", "check_counted", "counts_of", "fetched", "parsed"]

_BYTES_MAX: Final = 64 << 20
_APPENDED: Final = "replog_bytes_in_total"
_ALWAYS: Final = "replog_leaders"
"""A metric that every broker of a page has a series of."""
_TYPED: Final = b"# TYPE replog_"


class Counted(NamedTuple):
    """Bytes that one broker has appended as a leader, by topic, until a moment."""

    time_s: float
    """By the clock of that broker."""
    bytes_in: Mapping[str, float]


Counts = Mapping[int, Counted]
"""By broker."""


def fetched(url: str, timeout_s: float | None, *, as_json: bool, partitions: bool = False) -> tuple[bytes, str]:
    """The metrics of a page; of JSON also when they were taken (ms), which can be a second ago. "" if it does not say.

    `partitions`: with series of each. `timeout_s` limits each wait for more of it. Raises UsageError for what is no such URL,
    Unavailable if nobody answers.
    """
    if not url.lower().startswith(("http://", "https://")):
        raise UsageError(f"{shown(url)!r} is not the URL of a status page, such as http://127.0.0.1:8101")
    if "@" in url:
        raise UsageError(f"{shown(url)!r} has a user or a password, and a status page asks for none: leave out what stands before the @")
    query = "&".join((*(("format=json",) if as_json else ()), *(("partitions=1",) if partitions else ())))
    where = url.rstrip("/") + "/metrics" + (f"?{query}" if query else "")
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(where, timeout=timeout_s) as answer:
            body: bytes = answer.read(_BYTES_MAX)
            return body, answer.headers.get(TAKEN_AT, "")
    except urllib.error.HTTPError as refused:
        raise Unavailable(f"{where} answers {refused.code}: {_said(refused)}") from None
    except (http.client.InvalidURL, ValueError, OverflowError) as problem:
        if (said := shown(url)).endswith(":***"):
            raise UsageError(f"{said!r} is not the URL of a status page: the port is no number, and not shown") from None
        if said != url:
            raise UsageError(f"{said!r} is not the URL of a status page") from None  # the problem shows the whole of it
        raise UsageError(f"{url!r} is not the URL of a status page: {problem}") from None
    except OSError as problem:
        raise Unavailable(f"{where} does not answer: {problem}") from problem
    except http.client.HTTPException as problem:
        raise Unavailable(f"{where} does not answer in HTTP, or not to the end: {str(problem).strip()!r:.80}") from problem


def all_of(url: str, timeout_s: float | None, *, as_json: bool, partitions: bool) -> bytes:
    """The metrics of a page, or Unavailable once `timeout_s` is over: whoever sends it byte by byte is left behind. Raises as `fetched`."""
    found: list[bytes | Exception] = []

    def ask() -> None:
        try:
            found.append(fetched(url, timeout_s, as_json=as_json, partitions=partitions)[0])
        except Exception as problem:
            found.append(problem)

    question = threading.Thread(target=ask, name="replog page", daemon=True)
    question.start()
    question.join(timeout_s)
    if not found:
        raise Unavailable(f"{url} does not answer: not all of it came within {timeout_s:g} s")
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


def _said(refused: urllib.error.HTTPError) -> str:
    with refused, suppress(OSError, http.client.HTTPException):
        return " ".join(refused.read(1_000).decode("utf-8", "replace").split())
    return ""


def check_counted(body: bytes, url: str) -> None:
    """Raises Unavailable for a page that is no text of metrics with those of a broker among them."""
    if _TYPED not in body:
        first = " ".join(body[:200].decode("utf-8", "replace").split())
        raise Unavailable(f"{url} is not the status page of a broker: no metric of replog is in what it answers, {first[:60]!r}")


def parsed(body: bytes, url: str) -> dict[str, Any]:
    """The JSON that a page has answered with. Raises Unavailable for what is none."""
    with suppress(ValueError, RecursionError):
        found = json_value(body)
        if isinstance(found, dict):
            return found
    raise Unavailable(f"{url} is not the status page of a broker")


def counts_of(url: str, timeout_s: float | None) -> Counts:
    """What the brokers of this page have counted until now. Raises as `fetched`; Unavailable also for what is no such page."""
    body, taken = fetched(url, timeout_s, as_json=True)
    try:
        now_s = int(taken) / 1_000
        series = parsed(body, url)
        topics: dict[int, dict[str, float]] = {int(one["labels"]["broker"]): {} for one in series.get(_ALWAYS, [])}
        for one in series.get(_APPENDED, []):
            topics[int(one["labels"]["broker"])][one["labels"]["topic"]] = float(one["value"])
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        raise Unavailable(f"{url} is not the status page of a broker") from None
    return {broker: Counted(now_s, counts) for broker, counts in topics.items()}


def byte_rates(before: Counts, now: Counts) -> dict[int, dict[str, float]]:
    """Bytes per second of each topic that a broker has appended to, by broker; without those of which one look saw nothing.

    A broker that counts less than before was started anew: nothing is said of it.
    """
    found: dict[int, dict[str, float]] = {}
    for broker, counted in now.items():
        was = before.get(broker)
        if was is None or counted.time_s <= was.time_s:
            continue
        more = {topic: count - was.bytes_in.get(topic, 0) for topic, count in counted.bytes_in.items()}
        if all(one >= 0 for one in more.values()) and was.bytes_in.keys() <= more.keys():
            found[broker] = {topic: one / (counted.time_s - was.time_s) for topic, one in more.items()}
    return found
