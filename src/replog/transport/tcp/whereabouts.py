"""Where brokers were reached last, and when it is looked up whether they are reached elsewhere now.

A broker that was replaced while it stood still keeps its connections open, and what is for its successor must not go there. Yet
asking at every message of every acknowledgement costs too much, so commands are preceded by a look, and everything else by one in
turns in which somebody may have learned something.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from replog.messages import Fetch, Fetched, Flushed, Produce, Produced

__all__ = ["LOOK_MS", "ROUTINE", "Whereabouts", "nobody"]

LOOK_MS: Final = 100
"""So often somebody may have learned something even if no message has come that says so."""
ROUTINE: Final = frozenset({Produce, Produced, Fetch, Fetched, Flushed})
"""Messages from which nobody learns where a broker is."""


def nobody(broker_id: int) -> str | None:
    """No broker is known."""
    return None


class Whereabouts:
    """`endpoint_of(broker_id)` is where a broker is reached, None if it is not known."""

    def __init__(self, endpoint_of: Callable[[int], str | None]) -> None:
        self._endpoint_of = endpoint_of
        self._reached: dict[int, str] = {}
        self.due_ms = 0
        """When a turn is doubtful by itself. Before that, and without doubts, `turn` need not be called."""
        self.doubtful = True
        """Whether somebody may have learned something since the last turn began: whoever delivers what is not routine says so."""

    def turn(self, now_ms: int) -> None:
        """A turn begins."""
        self.doubtful = now_ms >= self.due_ms
        if self.doubtful:
            self.due_ms = now_ms + LOOK_MS

    def has_moved(self, broker_id: int) -> bool:
        """Whether it is reached elsewhere than at the last look; the first one remembers where that is."""
        endpoint = self._endpoint_of(broker_id)
        if endpoint is None or self._reached.setdefault(broker_id, endpoint) == endpoint:
            return False
        self._reached[broker_id] = endpoint
        return True

    def moved(self) -> list[int]:
        """All who are reached elsewhere than at the last look."""
        return [broker_id for broker_id in list(self._reached) if self.has_moved(broker_id)]
