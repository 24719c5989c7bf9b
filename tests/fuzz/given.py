"""What people and tools hand over: plans, histories, rules, positions, and the page of a broker that a command has asked."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from functools import cache
from io import BytesIO
from types import SimpleNamespace
from typing import Any, Final

from tests.fuzz.code import CODE
from tests.fuzz.structured import json_behind, lines_with
from tests.fuzz.target import Target

from replog.cli import pages
from replog.cli.plans import moves_in, plan_of, read_plan
from replog.client.reassigning import checked_wishes
from replog.errors import Unavailable, UsageError
from replog.model import TopicPartition
from replog.security.roles import ACTIONS
from replog.security.rules import parse_rules
from replog.spark.offsets import from_offsets, offsets_bound, parse_assignment, times_bound, to_offsets
from replog.testing.history import jsonl
from replog.testing.history.events import BadHistory
from replog.testing.history.samples import good_history

__all__ = ["GIVEN", "history", "page", "plan", "positions", "rules"]

# ------------------------------------------------------------------------------------------------------------------- plans


def plan(data: bytes) -> None:
    """A plan of `replog reassign execute`, up to what is sent."""
    try:
        places = moves_in("FILE", read_plan(SimpleNamespace(stdin=BytesIO(data)), "-"))  # type: ignore[arg-type]
        if not places:
            return
        wishes = checked_wishes(places)
    except UsageError:
        return
    again = read_plan(SimpleNamespace(stdin=BytesIO(json.dumps(plan_of(places)).encode())), "-")  # type: ignore[arg-type]
    assert checked_wishes({place: again[place] for place in places}) == wishes, "a plan is another when it is written and read"


def plans() -> list[bytes]:
    """Of a few partitions, of none, and one that says nothing of a partition."""
    places: Any = {("orders", 0): (1, 2, 3), ("orders", 1): (2,), ("clicks", 12): (3, 1)}
    nothing = {"partitions": [{"topic": "orders", "partition": 0, "replicas": None}]}
    return [json.dumps(one).encode() for one in (plan_of(places), plan_of({}), nothing)]


# --------------------------------------------------------------------------------------------------------------- histories


class _Memory:
    """A file without a disk."""

    def __init__(self) -> None:
        self._fd = os.memfd_create("replog-fuzz")
        self.path = f"/proc/self/fd/{self._fd}"

    def hold(self, data: bytes) -> str:
        """Its path, once it holds just this."""
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, data, 0)
        return self.path

    def content(self) -> bytes:
        """All of it."""
        return os.pread(self._fd, os.fstat(self._fd).st_size, 0)


@cache
def _memory() -> _Memory:
    return _Memory()


def history(data: bytes) -> None:
    """A history in JSON lines, as the checker reads it: as a whole the same again when it is written and read."""
    try:
        found = jsonl.read(_memory().hold(data))
    except BadHistory:
        return
    once = _written(found)
    assert _written(jsonl.read(_memory().hold(once))) == once, "a history is another when it is written and read"


def _written(found: Any) -> bytes:
    _memory().hold(b"")
    jsonl.write(found, _memory().path)
    return _memory().content()


@cache
def histories() -> tuple[bytes, ...]:
    """Short ones, with all kinds of events, and with settings."""
    marks = b'{"time":0,"type":"ok","process":"r","f":"assign","key":"k","value":3}\n{"time":1,"type":"ok","process":"r","f":"crash"}\n'
    marks += b'{"time":2,"type":"ok","process":"b","f":"trim","key":"k","value":2}\n'
    marks += b'{"time":3,"type":"ok","process":"b","f":"control","key":"k","value":4}\n'
    call = b'{"time":4,"type":"invoke","process":"p","f":"send","key":"k","value":["a",1],"acks":1,"op":7}\n'
    call += b'{"time":5,"type":"info","process":"p","f":"send","key":"k","op":7}\n'
    return (*(_written(good_history(seed, 4)) for seed in (1, 2, 3)), marks, call)


# ------------------------------------------------------------------------------------------------------------------- rules


def rules(data: bytes) -> None:
    """A file of rules: who may do what. What can be read is asked once."""
    try:
        found = parse_rules(data.decode("utf-8", "replace"))
    except UsageError:
        return
    for rule in found:
        rule.allows("client/billing", ACTIONS[0], "orders")
        rule.allows("client/billing", ACTIONS[0], None)


def some_rules() -> list[bytes]:
    """Each form of a rule."""
    return [
        b'[[allow]]\nprincipals = ["client/billing", "client/a*"]\nactions = ["read", "write"]\ntopics = ["orders", "clicks-?"]\n',
        b'[[allow]]\nprincipals = ["*"]\nactions = ["*"]\ntopics = ["*"]\n',
        b'[[allow]]\nprincipals = ["[a-z]*"]\nactions = ["describe"]\ntopics = ["[!x]"]\n',
        b"# nobody\n",
    ]


# --------------------------------------------------------------------------------------------------------------- positions


def positions(data: bytes) -> None:
    """Where a reading begins and ends, as options say it, and as Spark has kept it."""
    text = data.decode("utf-8", "surrogateescape")
    for read in (parse_assignment, _offsets, _times):
        with suppress(UsageError):
            read(text)
    try:
        kept = json.loads(text)
        if not isinstance(kept, dict):
            return  # Spark hands over what its own log has, an object
        found = from_offsets(kept)
    except (ValueError, RecursionError, UsageError):
        return
    assert from_offsets(to_offsets(found)) == found, "offsets are others when they are kept and read"


def _offsets(text: str) -> None:
    bound = offsets_bound("startingOffsets", text, earliest=True, latest=True)
    assert isinstance(bound.is_fixed, bool)


def _times(text: str) -> None:
    times_bound("startingTimestamp", text, or_latest=False)


def some_positions() -> list[bytes]:
    """Of both kinds, and an assignment."""
    kept = to_offsets({TopicPartition("orders", 0): 2**40, TopicPartition("orders", 12): 0, TopicPartition("clicks", 3): 7})
    texts = (kept, {"orders": {"0": -2, "1": -1}}, {"orders": [0, 1], "clicks": [3]}, {"orders": {"0": 1_700_000_000_000}})
    return [json.dumps(one).encode() for one in texts]


# ------------------------------------------------------------------------------------------------------------------- pages


def page(data: bytes) -> None:
    """What answers at the address of a status page, which may be anything."""
    taken = "1700000000000" if len(data) % 8 else data[:12].decode("latin-1")
    fetched, pages.fetched = pages.fetched, lambda *_, **__: (data, taken)  # type: ignore[assignment]
    try:
        counts = pages.counts_of("http://127.0.0.1:8101", 1.0)
        pages.byte_rates(counts, {broker: one._replace(time_s=one.time_s + 1) for broker, one in counts.items()})
    except Unavailable:
        pass
    finally:
        pages.fetched = fetched
    with suppress(Unavailable):
        pages.check_counted(data, "http://127.0.0.1:8101")


def some_pages() -> list[bytes]:
    """Such as a broker answers, in both forms."""
    series = {
        "replog_leaders": [{"labels": {"broker": "1"}, "value": 3}, {"labels": {"broker": "2"}, "value": 0}],
        "replog_bytes_in_total": [{"labels": {"broker": "1", "topic": "orders"}, "value": 1_000.5}],
    }
    return [json.dumps(series).encode()]


GIVEN: Final = {
    "plan": Target(plan, plans, CODE["plan"], structured=json_behind(0)),
    "history": Target(history, histories, CODE["history"], structured=lines_with, million=3),
    "rules": Target(rules, some_rules, CODE["rules"], million=3),
    "positions": Target(positions, some_positions, CODE["positions"], structured=json_behind(0)),
    "page": Target(page, some_pages, CODE["page"], structured=json_behind(0)),
}
