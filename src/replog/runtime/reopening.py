"""Opening brokers again: whether their last life is gone, and which of those that an exception has ended are tried again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container

from replog.errors import UsageError
from replog.runtime.embedded_broker import EmbeddedBroker
from replog.runtime.pump import Pump

__all__ = ["Reopening"]


class Reopening:
    """`start` starts a broker, or raises."""

    def __init__(self, start: Callable[[int], None], pump: Pump) -> None:
        self._start = start
        self._pump = pump
        self.barred: set[int] = set()
        """Brokers that could not be opened only because somebody has their folder: perhaps what an exception still has in hand."""
        self._last: dict[int, EmbeddedBroker] = {}
        """Of each broker that runs, or whose last life is not gone."""

    def begins(self, life: EmbeddedBroker) -> None:
        """It is about to take part."""
        self._last[life.broker_id] = life

    def wait_until_gone(self, life: EmbeddedBroker) -> None:
        """It was stopped: let go of the lock until it is gone, for a moment."""
        life.wait_until_gone()
        if self._last.get(life.broker_id) is life and life.goes():  # another thread may have begun the next one meanwhile
            del self._last[life.broker_id]  # and of all that it knew

    @property
    def lingering(self) -> set[int]:
        """Brokers whose last life is not gone. Of a stopped one: its disk has not ended a flush, and its folder is not free."""
        return {broker_id for broker_id, life in self._last.items() if not life.goes()}

    def check_gone(self, broker_id: int) -> None:
        """UsageError if its last life is not gone."""
        if broker_id in self.lingering:
            raise UsageError(f"broker {broker_id} is stopped, but its folder is in use until its disk has ended a flush that is under way")
        self._last.pop(broker_id, None)

    def attempt(self, broker_id: int) -> None:
        """Open it. If that fails it stays stopped, and the others go on without it."""
        try:
            self._start(broker_id)
        except UsageError as failure:  # nothing is wrong with what it has
            if broker_id not in self.barred:
                self.barred.add(broker_id)
                self._pump.log(logging.ERROR, "broker %d could not be opened again, which every call tries anew: %s", broker_id, failure)
        except Exception as failure:
            self.barred.discard(broker_id)
            self._pump.log(logging.ERROR, "broker %d could not be opened again: %s", broker_id, failure)

    def due(self, stopped: Container[int]) -> list[int]:
        """Whom to try again: of the stopped ones. The others are so no more."""
        self.barred = {broker_id for broker_id in self.barred if broker_id in stopped}
        return sorted(self.barred)
