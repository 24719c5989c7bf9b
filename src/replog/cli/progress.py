"""How far something long is, on a terminal: one line on stderr that changes in place, and goes in the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from replog.cli.moving import bar
from replog.cli.output import Output

__all__ = ["Progress", "shown_progress"]

_SILENT_S: Final = 1.0
"""What is done by then shows nothing."""
_EVERY_S: Final = 0.2


class Progress:
    """Bytes done, of a total."""

    def __init__(self, output: Output, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._output = output
        self._total = max(total, 1)
        self._clock = clock
        self._done = 0
        self._due = clock() + _SILENT_S
        self._drawn = False

    def add(self, count: int) -> None:
        """So many bytes more."""
        self._done += count
        now = self._clock()
        if now >= self._due:
            self._due = now + _EVERY_S
            share = min(1.0, self._done / self._total)  # what is read again counts again
            self._output.passing(f"{bar(share)}  {self._output.units.part(min(self._done, self._total), self._total)}")
            self._drawn = True

    def end(self) -> None:
        """Take the line away."""
        if self._drawn:
            self._output.passing("")


@contextmanager
def shown_progress(output: Output, total: Callable[[], int]) -> Iterator[Callable[[int], None] | None]:
    """What is to be told of bytes that are done; None where no terminal would show it. `total` is asked for only where one does."""
    if not output.stderr.isatty():
        yield None
        return
    progress = Progress(output, total())
    try:
        yield progress.add
    finally:
        progress.end()
