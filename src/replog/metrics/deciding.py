"""How long the events of a controller take, from when they are asked for until what was decided is stored."""

from __future__ import annotations

import re
from time import perf_counter
from typing import Final

from replog.controller.events import Event
from replog.controller.queues import Queued
from replog.metrics.histogram import Histogram

__all__ = ["EventTimes", "kind_of"]

_WORDS: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


def kind_of(event: Event) -> str:
    """The kind of an event, as the label `event` has it.

    >>> from replog.controller.events import BrokersSeen
    >>> kind_of(BrokersSeen(()))
    'brokers_seen'
    """
    return _WORDS.sub("_", type(event).__name__).lower()


class EventTimes:
    """Observes the events of a controller, term after term: kind -> seconds."""

    def __init__(self, times: dict[str, Histogram]) -> None:
        self._times = times

    def asked(self, queued: Queued) -> None:
        """It waits from now on."""
        queued.since = perf_counter()

    def done(self, queued: Queued) -> None:
        """It was decided and stored, or given up."""
        self._times.setdefault(kind_of(queued.event), Histogram()).observe(perf_counter() - queued.since)
