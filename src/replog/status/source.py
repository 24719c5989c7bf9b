"""What the status page shows: put together from what a client of the cluster is told, at most once a second, however many look; the
positions of replicas once a second for each `Query`, one after the other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from attrs import define, evolve, field, frozen

from replog.client.client import Client
from replog.client.view import Topic, View
from replog.errors import ReplogError, UsageError
from replog.messages import PartitionView
from replog.metrics.snapshot import Snapshot
from replog.metrics.troubles import WRONG
from replog.status.acting import look
from replog.status.judging import judge, shortened

__all__ = ["PAGE_MAX", "Query", "Source"]

PAGE_MAX: Final = 500
"""Partitions on one page."""
FRESH_S: Final = 1.0
"""What is younger than this is shown again instead of asking anew."""
_ASK_S: Final = 2.0
"""How long a question to the cluster may take."""
_EXPLAINED_MAX: Final = 5
_NAMED_MAX: Final = 20
_TOPICS_MAX: Final = 200
_MOVES_MAX: Final = 100
_QUERIES_MAX: Final = 32
"""Pages that are kept for whoever asks for them next."""


@frozen
class Query:
    """Which partitions somebody wants to see: those with `text` in their names ("orders-17"), in pages of `size`, from page 1 on."""

    text: str = ""
    page: int = 1
    size: int = 100
    unhealthy: bool = False
    """Only partitions with which something is wrong."""


@frozen
class _Row:
    """A partition, and what is wrong with it."""

    topic: Topic
    partition: PartitionView
    kinds: tuple[str, ...]

    @property
    def place(self) -> tuple[str, int, int]:
        """As messages name it."""
        return self.topic.topic_id.hex(), self.partition.partition, self.partition.creation


@frozen
class _Seen:
    """The cluster as it was known at one moment: a copy, so that nobody changes it while it is looked at."""

    key: tuple[int, int, int, str]
    view: View
    report: dict[str, Any]
    """What `judge` says, with a few of the partitions that it names."""
    rows: list[_Row]
    """Those with which something is wrong first."""
    controller: dict[str, Any] | None
    """As it describes itself; None where nobody has."""


@define
class _Desk:
    """Where questions of one kind queue. What a broker that hangs holds up at one of them holds up nobody at the others."""

    lock: threading.Lock = field(factory=threading.Lock)
    kept: dict[object, tuple[float, Any]] = field(factory=dict)


class Source:
    """Answers for one broker or cluster. Any thread may ask; of each kind of question one at a time finds out."""

    def __init__(
        self,
        metrics: Callable[..., Snapshot],
        client: Callable[[], Client],
        changes: Callable[[], list[dict[str, Any]]],
        *,
        owner: object = None,
    ) -> None:
        """`metrics` takes `partitions`. `client` is called when one is needed; it is closed with this, unless it is `owner`."""
        self._metrics = metrics
        self._make_client = client
        self._changes = changes
        self._owner = owner
        self._client: Client | None = None
        self._lock = threading.Lock()
        self._for_metrics, self._for_view, self._for_base, self._for_pages = _Desk(), _Desk(), _Desk(), _Desk()
        self._seen: _Seen | None = None
        self._closed = False

    def close(self) -> None:
        """Let go of the client. Idempotent."""
        with self._lock:
            self._closed = True
            client, self._client = self._client, None
        if client is not None and client is not self._owner:
            client.close()

    # --------------------------------------------------------------------------------------------------------- answers

    def metrics(self, *, partitions: bool = False) -> Snapshot:
        """Every metric; series of each partition only with `partitions`. Raises ReplogError once the broker has ended."""
        snapshot: Snapshot = _recent(self._for_metrics, partitions, lambda: self._metrics(partitions=partitions))
        return snapshot

    def health(self) -> dict[str, Any]:
        """What `replog health` says, with a few of the partitions that it names. `healthy` is False with a `reason` if nobody answers."""
        try:
            report = self._looked().report
        except ReplogError as problem:
            return {"healthy": False, "reason": f"nobody answers: {problem}"}
        return report

    def status(self, query: Query) -> dict[str, Any]:
        """Everything on the page. Raises ReplogError if nobody answers."""
        seen, base = _recent(self._for_base, None, self._base)
        rows: dict[str, Any] = _recent(self._for_pages, (query, seen.key), lambda: self._page(query, seen))
        return {**base, "partitions": rows}

    # ---------------------------------------------------------------------------------------------------------- asking

    def _asked(self) -> Client:
        with self._lock:
            if self._closed:
                raise UsageError("the status page is closed")
            if self._client is None:
                self._client = self._make_client()
            return self._client

    def _looked(self) -> _Seen:
        """The cluster as it was a moment ago."""
        seen: _Seen = _recent(self._for_view, None, self._look)
        return seen

    def _look(self) -> _Seen:
        """The cluster as it is; judged again only where something has changed."""
        client = self._asked()
        view, no_controller, may_hide, in_office = look(client, _ASK_S)
        controller = None if in_office is None else in_office.to_dict()
        with client._driver.lock:
            key = view.controller_epoch, view.version, view.serial, no_controller
            if self._seen is not None and self._seen.key == key:
                self._seen = evolve(self._seen, controller=controller)  # what waits there is another number at each look
                return self._seen
            copy = _copied(view)
        report = judge(copy, no_controller=no_controller, may_hide=may_hide)
        rows = sorted(_rows(copy, report), key=lambda row: (not row.kinds, row.topic.name, row.partition.partition))
        self._seen = _Seen(key, copy, shortened(report, _NAMED_MAX), rows, controller)
        return self._seen

    def _base(self) -> tuple[_Seen, dict[str, Any]]:
        """All but the partitions, and what it was taken from."""
        seen, client, problems = self._looked(), self._asked(), list[str]()
        wrong = [row for row in seen.rows if row.kinds]
        bad = {row.topic.name: 0 for row in wrong}
        for row in wrong:
            bad[row.topic.name] += 1
        topics = sorted(seen.view.topics, key=lambda name: (name not in bad, name))
        moves: list[dict[str, Any]] = []
        explained: list[dict[str, Any]] = []
        if seen.report["controller"] is not None:
            give_up = time.monotonic() + _ASK_S
            try:
                moves = [one.to_dict() for one in client.reassignments(timeout_s=_ASK_S)[:_MOVES_MAX]]
                for row in wrong[:_EXPLAINED_MAX]:
                    left_s = max(0.1, give_up - time.monotonic())
                    explained.append(client.explain(row.topic.name, row.partition.partition, timeout_s=left_s).to_dict())
            except ReplogError as problem:
                problems.append(f"the controller does not say more: {problem}")
        sizes = [(name, len(seen.view.topics[name].partitions)) for name in topics[:_TOPICS_MAX]]
        return seen, {
            "time_ms": time.time_ns() // 1_000_000,
            "health": seen.report,
            "reason": seen.report["reason"],
            "controller": seen.controller,
            "brokers": _brokers(seen),
            "topics": [{"topic": name, "partitions": size, "wrong": bad.get(name, 0)} for name, size in sizes],
            "topics_total": len(topics),
            "reassignments": moves,
            "explained": explained,
            "changes": self._changes(),
            "problems": problems,
        }

    def _page(self, query: Query, seen: _Seen) -> dict[str, Any]:
        """The partitions that are asked for, with what their leaders know of their followers."""
        text = query.text.lower()
        rows = [row for row in seen.rows if text in f"{row.topic.name}-{row.partition.partition}".lower()] if text else seen.rows
        if query.unhealthy:
            rows = [row for row in rows if row.kinds]
        pages = max(1, -(-len(rows) // query.size))
        query = evolve(query, page=min(query.page, pages))
        shown = rows[(query.page - 1) * query.size : query.page * query.size]
        client = self._asked()
        known = client._followers([(row.partition.leader, row.place) for row in shown], client._deadline(_ASK_S))
        live = {b.broker_id for b in seen.view.brokers.values() if not b.fenced}
        return {
            "total": len(rows),
            "of": len(seen.rows),
            "page": query.page,
            "pages": pages,
            "rows": [_described(row, known.get(row.place), live) for row in shown],
        }


def _recent(desk: _Desk, key: object, make: Callable[[], Any]) -> Any:
    """What was found for `key` less than FRESH_S ago, a failure too; else it is found again."""
    with desk.lock:
        found = desk.kept.get(key)
        if found is None or time.monotonic() - found[0] > FRESH_S:
            try:
                value = make()
            except ReplogError as problem:
                value = problem
            while len(desk.kept) > _QUERIES_MAX:
                del desk.kept[next(iter(desk.kept))]
            desk.kept.pop(key, None)
            found = desk.kept[key] = time.monotonic(), value
    if isinstance(found[1], ReplogError):
        raise found[1]
    return found[1]


def _copied(view: View) -> View:
    """What `judge` and the page need of a view. Called under the lock of whoever changes it."""
    copy = View()
    copy.controller_epoch, copy.version = view.controller_epoch, view.version
    copy.cluster_id, copy.controller, copy.brokers = view.cluster_id, view.controller, dict(view.brokers)
    for name, topic in view.topics.items():
        made = copy.topics[name] = Topic(name, topic.topic_id, topic.config)
        made.partitions = dict(topic.partitions)
    return copy


def _rows(view: View, report: dict[str, Any]) -> Iterator[_Row]:
    wrong: dict[tuple[str, int], list[str]] = {}
    for kind in WRONG:
        for one in report[kind]:
            wrong.setdefault((one["topic"], one["partition"]), []).append(kind)
    for name, topic in view.topics.items():
        for partition in topic.partitions.values():
            yield _Row(topic, partition, tuple(wrong.get((name, partition.partition), ())))


def _brokers(seen: _Seen) -> list[dict[str, Any]]:
    """Those that are registered, and those that should be there."""
    leads: dict[int | None, int] = {}
    holds: dict[int, int] = {}
    for row in seen.rows:
        leads[row.partition.leader] = leads.get(row.partition.leader, 0) + 1
        for replica in row.partition.replicas:
            holds[replica] = holds.get(replica, 0) + 1
    known = {b["broker"]: b for b in seen.report["brokers"]}
    absent: dict[str, Any] = {"epoch": None, "state": "away", "rack": None, "endpoints": []}
    return [
        {"broker": number, **absent, **known.get(number, {}), "leads": leads.get(number, 0), "replicas": holds.get(number, 0)}
        for number in sorted({*known, *holds})
    ]


def _described(row: _Row, told: dict[str, Any] | None, live: set[int]) -> dict[str, Any]:
    """One partition; `told` is what its leader says of it, None if it says nothing."""
    p = row.partition
    end = None if told is None else told["end_offset"]
    followers = {} if told is None else {one["broker"]: one for one in told["followers"]}
    replicas = []
    for broker in p.replicas:
        is_leader, one = broker == p.leader, followers.get(broker, {})
        at = end if is_leader else one.get("end_offset")
        replicas.append(
            {
                "broker": broker,
                "leader": is_leader,
                "in_sync": broker in p.isr,
                "live": broker in live,
                "joins": broker in p.adding,
                "leaves": broker in p.removing,
                "end_offset": at,
                "lag_records": None if end is None or at is None else max(end - at, 0),
                "lag_ms": 0 if is_leader else None if at is None else one.get("lag_ms"),
                "why": one.get("why", ""),
            }
        )
    return {
        "topic": row.topic.name,
        "partition": p.partition,
        "leader": p.leader,
        "leader_epoch": p.leader_epoch,
        "isr": list(p.isr),
        "elr": list(p.elr),
        "wrong": list(row.kinds),
        "end_offset": end,
        "high_watermark": None if told is None else told["high_watermark"],
        "replicas": replicas,
    }
