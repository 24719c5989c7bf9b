"""A look at the topics reads the node of each, and the watch of their level fires also for what this controller has stored itself.

Such a look waits, so that making a topic costs no look at all others. It is not left out, because the same watch may have fired for
somebody else: it comes after a pause that is longer the more there are, and covers whatever has changed until then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from replog.controller.changes import TopicGone, TopicSet
from replog.controller.decision import Step
from replog.controller.reading import DECODED_MAX

__all__ = ["Echoes"]

_TOPICS_PER_MS: Final = 2
"""Reading a node takes some 10 us in memory, and perhaps 100 in a store elsewhere: looks take a fiftieth of the time, or a sixth."""


class Echoes:
    """When to look at the topics after a watch that has fired for a step of one's own. `pause_max_ms`: it waits no longer."""

    def __init__(self, pause_max_ms: int) -> None:
        self._pause_max_ms = pause_max_ms
        self._expected = False
        self._looked_ms = 0
        self._due_ms: int | None = None

    def store(self, steps: Iterable[Step]) -> None:
        """These are about to be stored: the watch fires if a topic comes or goes with them."""
        self._expected |= any(isinstance(change, TopicSet | TopicGone) for step in steps for change in step.changes)

    def is_one(self, topics: int, now_ms: int) -> bool:
        """The watch has fired, and there are so many topics: whether the look waits. What takes one turn need not."""
        due_ms = self._looked_ms + min(topics // _TOPICS_PER_MS, self._pause_max_ms)
        if not self._expected or topics <= DECODED_MAX or due_ms <= now_ms:
            return False
        self._due_ms = due_ms
        return True

    def deadline_ms(self) -> int | None:
        """When the look that waits has its turn; None if none does."""
        return self._due_ms

    def is_due(self, now_ms: int) -> bool:
        """Whether it is time; says so once."""
        if self._due_ms is None or self._due_ms > now_ms:
            return False
        self._due_ms = None
        return True

    def begin(self) -> None:
        """A look begins, and arms the watch: whatever was stored before is seen by it."""
        self._expected, self._due_ms = False, None

    def end(self, now_ms: int) -> None:
        """It has ended."""
        self._looked_ms = now_ms
