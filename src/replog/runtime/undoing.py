"""What a start that is not finished has taken, and how it lets go of that."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from replog.errors import ReplogError

__all__ = ["Undoing"]


class Undoing:
    """What is to be undone, the last first, until the start of that number is finished. An interrupted `undo` is to be repeated."""

    def __init__(self) -> None:
        self._steps: dict[int, list[Callable[[], object]]] = {}

    def later(self, number: int, step: Callable[[], object]) -> None:
        """This is to be undone as well. It may be undone twice, if an interrupt comes just then."""
        self._steps.setdefault(number, []).append(step)

    def undo(self, number: int) -> None:
        """Let go of everything, as far as that can be done."""
        steps = self._steps.get(number, [])
        while steps:
            with suppress(ReplogError):
                steps[-1]()
            steps.pop()

    def undo_all(self) -> None:
        """Let go of what every unfinished start has taken."""
        for number in list(self._steps):
            self.undo(number)

    def finished(self, number: int) -> None:
        """Nothing is to be undone."""
        self._steps.pop(number, None)
