"""How long the events of a controller take, from beside it: the queues of its term are taken the place of, and do what they did."""

from __future__ import annotations

import re
from time import perf_counter
from typing import Any, Final

import attrs

from replog.controller.events import Event, is_urgent
from replog.controller.executor import ControllerExecutor
from replog.controller.queues import Queued, Queues
from replog.metrics.histogram import Histogram
from replog.metrics.meter import Meter
from replog.metrics.watching import StoreWatch
from replog.model import Address

__all__ = ["ControllerWatch", "TimedQueues", "kind_of"]

_WORDS: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_SPARE: Final = 64
"""So many times of events that wait no more may be kept before they are looked for."""


def kind_of(event: Event) -> str:
    """The kind of an event, as the label `event` has it.

    >>> from replog.controller.events import BrokersSeen
    >>> kind_of(BrokersSeen(()))
    'brokers_seen'
    """
    return _WORDS.sub("_", type(event).__name__).lower()


class TimedQueues(Queues):
    """Goes on with the events of `queues`; what waits there already counts from now."""

    def __init__(self, queues: Queues, times: dict[str, Histogram]) -> None:
        super().__init__()
        for each in attrs.fields(Queues):
            setattr(self, each.name, getattr(queues, each.name))
        now = perf_counter()
        self._times = times
        self._since = dict.fromkeys((*self.urgent, *self.background), now)
        """Since when each waits."""

    def ask(self, event: Event) -> None:
        """An event that is not merged with one that waits is the last of its class now."""
        super().ask(event)
        waiting = self.urgent if is_urgent(event) else self.background
        if waiting:
            self._since.setdefault(waiting[-1], perf_counter())
        if len(self._since) > 2 * (len(self.urgent) + len(self.background)) + _SPARE:  # looks that a later one has replaced
            self._since = {queued: self._since[queued] for queued in (*self.urgent, *self.background)}

    def done(self, queued: Queued, *, stored: bool = True) -> None:
        """It was decided and stored, or given up."""
        began = self._since.pop(queued, None)
        if began is not None:
            self._times.setdefault(kind_of(queued.event), Histogram()).observe(perf_counter() - began)
        super().done(queued, stored=stored)


class ControllerWatch(StoreWatch):
    """A `StoreWatch` beside a controller that times the events of each term, from the first turn of the term on."""

    def __init__(self, controller: ControllerExecutor, meter: Meter) -> None:
        super().__init__(controller, meter)
        self._controller = controller
        self._times = meter.decisions
        self._term: object = None

    def receive(self, sender: Address, message: Any, now_ms: int) -> None:
        """As before; a message can begin a term."""
        super().receive(sender, message, now_ms)
        term = self._controller._term
        if term is not self._term:
            self._term = term
            if term is not None:
                term._queues = TimedQueues(term._queues, self._times)
