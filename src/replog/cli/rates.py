"""What two looks at a cluster say of the time between them, by topic and by the broker that leads; and what is behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from replog.cli.pages import Counts, byte_rates

__all__ = ["Look", "Seen", "rates"]


class Seen(NamedTuple):
    """One partition at one look."""

    topic: str
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    high_watermark: int | None
    """None where no leader answered."""
    end_offset: int | None
    time_s: float
    """When that was told, on a monotonic clock; of no meaning where no leader answered."""
    lags: Mapping[int, int]
    """Follower -> how many records it lacks; those of which the leader has said nothing are left out."""
    adding: tuple[int, ...] = ()
    """Those of the replicas that a move adds: they are not missed yet."""

    @property
    def followers(self) -> Sequence[int]:
        """Every replica but the leader."""
        return [broker for broker in self.replicas if broker != self.leader]

    @property
    def is_under_replicated(self) -> bool:
        """Whether fewer are in sync than should be."""
        return len(self.isr) < len(self.replicas) - len(self.adding)


Look = dict[tuple[str, int], Seen]
"""By topic id and partition: a topic that was made again is another one."""


def rates(before: Look, now: Look, brokers: Mapping[int, str], counted: tuple[Counts, Counts] = ({}, {})) -> dict[str, Any]:
    """The JSON of `replog top`: None where nothing can be said. Topics with under-replicated partitions come first, then the busiest.

    `brokers` are those that are registered, and their states; `counted` is what status pages told at both looks. Records are those that
    were committed, bytes those that were appended; what was appended and is not committed yet is `uncommitted`. `lag_records` is the most
    that a follower lacks, None if nothing is known of one; of a broker: that any of its copies does.
    """
    topics: dict[str, dict[str, Any]] = {}
    leading = {broker: {"broker": broker, "state": state, "replicas": 0, **_nothing()} for broker, state in sorted(brokers.items())}
    bytes_of, unknown = byte_rates(*counted), set[str]()
    for place, seen in _by_name(now):
        of_topic = topics.setdefault(seen.topic, {"topic": seen.topic, **_nothing()})
        rate = _rate(before.get(place), seen)
        waiting = None if seen.high_watermark is None or seen.end_offset is None else seen.end_offset - seen.high_watermark
        for row in (of_topic, leading.get(-1 if seen.leader is None else seen.leader)):
            if row is not None:
                row["partitions"] += 1
                row["under_replicated"] += seen.is_under_replicated
                row["records_per_s"] = _sum(row["records_per_s"], rate)
                row["uncommitted"] = _sum(row["uncommitted"], waiting)
        if any(broker not in seen.lags for broker in seen.followers):
            unknown.add(seen.topic)  # who is away may lack the most
        _lag(of_topic, max(seen.lags.values(), default=0))
        for broker in seen.replicas:
            if broker in leading:
                leading[broker]["replicas"] += 1
                _lag(leading[broker], 0 if broker == seen.leader else seen.lags.get(broker))
        if seen.leader in bytes_of:
            of_topic["bytes_per_s"] = of_topic["bytes_per_s"] or 0.0
    for broker, row in leading.items():
        row["leads"] = row.pop("partitions")
        if not row["leads"]:
            row["records_per_s"], row["uncommitted"] = 0.0, 0
        if not row["replicas"]:
            row["lag_records"] = 0
        if broker in bytes_of:
            row["bytes_per_s"] = sum(bytes_of[broker].values())
    for name, row in topics.items():
        row["lag_records"] = None if name in unknown else row["lag_records"]
        known = [each[name] for each in bytes_of.values() if name in each]
        row["bytes_per_s"] = sum(known) if known else row["bytes_per_s"]
    busiest = sorted(topics.values(), key=lambda row: (not row["under_replicated"], -(row["records_per_s"] or 0), row["topic"]))
    return {
        "under_replicated": [_missing(place[1], seen) for place, seen in _by_name(now) if seen.is_under_replicated],
        "topics": busiest,
        "brokers": sorted(leading.values(), key=lambda row: (-(row["records_per_s"] or 0), row["broker"])),
    }


def _by_name(look: Look) -> list[tuple[tuple[str, int], Seen]]:
    return sorted(look.items(), key=lambda item: (item[1].topic, item[0][1]))


def _nothing() -> dict[str, Any]:
    return {
        "partitions": 0, "under_replicated": 0, "records_per_s": None, "bytes_per_s": None, "uncommitted": None, "lag_records": None,
    }  # fmt: skip


def _missing(partition: int, seen: Seen) -> dict[str, Any]:
    """An under-replicated partition: which replicas are not in sync."""
    there = {*seen.isr, *seen.adding}
    return {"topic": seen.topic, "partition": partition, "missing": [broker for broker in seen.replicas if broker not in there]}


def _lag(row: dict[str, Any], lag: int | None) -> None:
    """The most of what is known."""
    if lag is not None:
        row["lag_records"] = max(lag, row["lag_records"] or 0)


def _sum(one: float | None, two: float | None) -> float | None:
    """What is known of both together."""
    return two if one is None else one if two is None else one + two


def _rate(before: Seen | None, now: Seen) -> float | None:
    """Records per second; None where one of the looks did not see how far it was, or an unclean election took records back."""
    if before is None or before.high_watermark is None or now.high_watermark is None:
        return None
    committed, passed_s = now.high_watermark - before.high_watermark, now.time_s - before.time_s
    return None if committed < 0 or passed_s <= 0 else committed / passed_s
