"""What one broker has counted, over all of its lives in this process, and what has changed last."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from attrs import define

from replog.metrics.histogram import Histogram
from replog.ports import Event

__all__ = ["CHANGES_MAX", "REQUESTS", "TOPICS_MAX", "Meter", "recent"]

REQUESTS: Final = (
    "admin", "fetch_consumer", "fetch_follower", "list_offsets", "metadata", "offsets_for_leader_epoch", "produce", "publish", "stage",
)  # fmt: skip
"""Kinds of requests, as the label `request` has them."""
TOPICS_MAX: Final = 1_000
"""Topics with series of their own; what comes to further ones is counted under the empty name."""
CHANGES_MAX: Final = 100
"""So many of the last changes, and of the last events, are kept."""
_NAMED_MAX: Final = 10
"""So many partitions of one change are named; of the others only how many they are."""


@define
class Traffic:
    """Of one topic."""

    records_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0


class Meter:
    """Counters that grow only. Everything is counted in turns of the broker; flushes on the thread that runs them."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.requests = {kind: Histogram() for kind in REQUESTS}
        self.flushes = Histogram()
        self.commits = Histogram()
        self.elections = Histogram()
        self.decisions: dict[str, Histogram] = {}
        """Of each kind of event that the controller here has dealt with."""
        self.traffic: dict[str, Traffic] = {}
        """By topic."""
        self.reassignment_bytes = 0
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.isr_refused = 0
        self.unclean_elections = 0
        self.conflicts = 0
        self.session_events = {"connected": 0, "suspended": 0, "lost": 0}
        self.throttled_ms = {"produce": 0, "fetch_consumer": 0}
        """By the kind of request whose clients were not heard."""
        self.events: dict[str, int] = {}
        self.decided_s = 0.0
        """What the last decision of the controller here took, until it was told."""
        self.changes: deque[dict[str, Any]] = deque(maxlen=CHANGES_MAX)
        """Elections and changes of ISRs in the whole cluster, as this broker was told: plain values, the newest last."""
        self.told: deque[dict[str, Any]] = deque(maxlen=CHANGES_MAX)
        """Events of the actors here: plain values, the newest last."""

    def of(self, topic: str) -> Traffic:
        """The counters of a topic."""
        found = self.traffic.get(topic)
        if found is None:
            found = self.traffic.setdefault(topic if len(self.traffic) < TOPICS_MAX else "", Traffic())
        return found

    def throttle(self, request: str, ms: int) -> None:
        """A connection of a client is not heard for so much longer."""
        self.throttled_ms[request] += ms

    def event(self, event: Event) -> None:
        """An actor has something to tell."""
        self.events[event.name] = self.events.get(event.name, 0) + 1
        if event.name == "records_may_be_lost":
            self.unclean_elections += 1
        fields = {key: value if isinstance(value, int | None) else str(value) for key, value in event.fields.items()}
        self.told.append({"time_ms": time.time_ns() // 1_000_000, "event": event.name, "fields": fields})

    def change(self, kind: str, partitions: list[dict[str, Any]]) -> None:
        """Partitions were told to have changed together: `kind` is "election" or "isr"."""
        if partitions:
            now_ms = time.time_ns() // 1_000_000
            self.changes.append({"time_ms": now_ms, "kind": kind, "count": len(partitions), "partitions": partitions[:_NAMED_MAX]})


def recent(meters: Iterable[Meter]) -> list[dict[str, Any]]:
    """The last changes and events of brokers, the newest first. What several brokers were told of one change is there once."""
    found: dict[str, dict[str, Any]] = {}
    for meter in meters:
        for one in (*meter.changes, *meter.told):
            said = {key: value for key, value in one.items() if key != "time_ms"}
            place = f"{said}" if "kind" in one else f"{meter.broker_id} {len(found)}"
            known = found.get(place)
            if known is None or one["time_ms"] < known["time_ms"]:
                found[place] = one
    return sorted(found.values(), key=lambda one: -one["time_ms"])[:CHANGES_MAX]
