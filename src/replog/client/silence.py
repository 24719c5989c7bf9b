"""A reader that waits and gets nothing says so now and then, and why: else nobody can tell a quiet topic from a cluster that is away."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

__all__ = ["SILENT_MS", "Silence"]

_log = logging.getLogger("replog.client")

SILENT_MS: Final = 60_000
"""After so long the first line comes; each further one after as long again as it has been silent by then."""
_NAMED_MAX: Final = 3


class Silence:
    """Of one consumer. Only time in which it was asked for records counts."""

    def __init__(self) -> None:
        self._since_ms: int | None = None
        self._due_ms = 0
        self._asked_ms = 0

    def broken(self) -> None:
        """A record has come."""
        self._since_ms = None

    def goes_on(self, now_ms: int, positions: Callable[[], Iterable[str]]) -> float:
        """Nothing has come yet. `positions` says of each partition where it stands, if that is to be told. Returns for how many seconds
        one may wait before this is called again."""
        if self._since_ms is None or now_ms - self._asked_ms > SILENT_MS:  # nobody asked meanwhile
            self._since_ms, self._due_ms = now_ms, now_ms + SILENT_MS
        self._asked_ms = now_ms
        if now_ms >= self._due_ms:
            silent_ms = now_ms - self._since_ms
            self._due_ms = now_ms + silent_ms
            told = list(positions())
            if told:
                more = f", and {len(told) - _NAMED_MAX} more" if len(told) > _NAMED_MAX else ""
                _log.info("no record for %d s: %s%s", silent_ms // 1_000, "; ".join(told[:_NAMED_MAX]), more)
            else:  # all are paused: nothing was waited for
                self._since_ms, self._due_ms = now_ms, now_ms + SILENT_MS
        return min(self._due_ms - now_ms, SILENT_MS // 2) / 1_000
