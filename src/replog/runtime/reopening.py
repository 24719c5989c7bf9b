"""Opening brokers again that an exception has ended: which of them are tried again, and what is said of those that stay stopped."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container

from replog.errors import UsageError

__all__ = ["Reopening"]

_log = logging.getLogger("replog")


class Reopening:
    """`start` starts a broker, or raises."""

    def __init__(self, start: Callable[[int], None]) -> None:
        self._start = start
        self.barred: set[int] = set()
        """Brokers that could not be opened only because somebody has their folder: perhaps what an exception still has in hand."""

    def attempt(self, broker_id: int) -> None:
        """Open it. If that fails it stays stopped, and the others go on without it."""
        try:
            self._start(broker_id)
        except UsageError as failure:  # nothing is wrong with what it has
            if broker_id not in self.barred:
                self.barred.add(broker_id)
                _log.error("broker %d could not be opened again, which every call tries anew: %s", broker_id, failure)
        except Exception as failure:
            self.barred.discard(broker_id)
            _log.error("broker %d could not be opened again: %s", broker_id, failure)

    def due(self, stopped: Container[int]) -> list[int]:
        """Whom to try again: of the stopped ones. The others are so no more."""
        self.barred = {broker_id for broker_id in self.barred if broker_id in stopped}
        return sorted(self.barred)
