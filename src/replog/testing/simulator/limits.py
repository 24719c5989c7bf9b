"""Limits that production never reaches in a run of some seconds, drawn so small that it does: pages, queues, sessions, tables, speeds."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

import attrs
from attrs import evolve, frozen

from replog.config import BrokerConfig, TopicConfig
from replog.errors import UsageError

__all__ = ["USUAL", "Limits", "draw"]

_SHARE: Final = 0.15
"""Share of runs with some limits that are small."""
_KEEP: Final = 0.6
"""Each of those runs keeps each of them with this probability."""


@frozen
class Limits:
    """Keys of the configurations, under their names there. 0: as large as usual."""

    slice_partitions_max: int = 0
    fetch_bytes_max: int = 0
    waiting_appends_max: int = 0
    waiting_fetches_max: int = 0
    fetch_sessions_max: int = 0
    reassignments_max: int = 0
    reassignment_bytes_per_s: int = 0
    producers_max: int = 0
    producer_expiry_ms: int = 0
    segment_ms: int = 0

    def of_broker(self, usual: BrokerConfig) -> BrokerConfig:
        """The configuration of a broker with these limits."""
        return evolve(usual, **self._given(BrokerConfig))

    def of_topic(self, usual: TopicConfig) -> TopicConfig:
        """The configuration of a topic with these limits."""
        return evolve(usual, **self._given(TopicConfig))

    def check(self, brokers: int) -> None:
        """Raise UsageError for what no configuration holds, and for fewer fetch sessions than followers need: two for each other broker."""
        for name, value in attrs.asdict(self).items():
            if value < 0:
                raise UsageError(f"{name} of the limits is {value}, and must be 0 or more")
        if 0 < self.fetch_sessions_max < (least := sessions_of(brokers)):
            raise UsageError(f"fetch_sessions_max of the limits is {self.fetch_sessions_max}, {brokers} brokers need {least}")

    @property
    def forget_producers(self) -> bool:
        """Whether a log may forget a producer that goes on: what it repeats then is stored again (KIP-98)."""
        return bool(self.producers_max or self.producer_expiry_ms)

    def _given(self, kind: type[Any]) -> dict[str, Any]:
        names = {field.name for field in attrs.fields(kind)}
        return {name: value for name, value in attrs.asdict(self).items() if value and name in names}

    def __str__(self) -> str:
        given = {name: value for name, value in attrs.asdict(self).items() if value}
        return "(" + ", ".join(f"{name} {value}" for name, value in given.items()) + ")"


USUAL: Final = Limits()


def sessions_of(brokers: int) -> int:
    """Fetch sessions that a leader must have room for: each other broker has one for what is new and one for catching up."""
    return 2 * max(brokers - 1, 1)


def draw(chance: random.Random, brokers: int, writers: int, *, slow: bool) -> Limits:
    """Mostly none. `writers` of versions must be remembered, for what a writer does again is found only as long as it is.

    Logs that forget producers which go on store again what these repeat. Where confirmations are `slow`, or few appends may wait for
    theirs, everything is repeated, and that would have no end: there nobody is forgotten for their number.
    """
    values: Mapping[str, int] = {
        "slice_partitions_max": chance.choice((1, 1, 2, 3)),
        "fetch_bytes_max": chance.choice((4_096, 16_384)),
        "waiting_appends_max": chance.choice((1, 4, 50)),
        "waiting_fetches_max": chance.choice((1, 3, 10)),
        "fetch_sessions_max": sessions_of(brokers),
        "reassignments_max": chance.choice((1, 1, 2)),
        "reassignment_bytes_per_s": chance.choice((2_000, 20_000)),
        "producers_max": max(chance.choice((1, 2, 3)), writers),
        "producer_expiry_ms": chance.choice((5_000, 20_000)),
        "segment_ms": chance.choice((200, 3_000)),
    }
    drawn = chance.random() < _SHARE
    kept = {name: value for name, value in values.items() if chance.random() < _KEEP}
    if slow or "waiting_appends_max" in kept:
        kept.pop("producers_max", None)
    return Limits(**kept) if drawn else USUAL
