"""Real files whose fsyncs of batches can be held up, counted, and made to fail."""

from __future__ import annotations

import os
from collections.abc import Callable

from replog.log.files import Fs

__all__ = ["LogFsyncs"]


class LogFsyncs(Fs):
    """Calls `met` in each fsync of a log's file, before it is done; what that raises is what the fsync raises."""

    def __init__(self, met: Callable[[], object]) -> None:
        self._met = met
        self._logs: set[int] = set()

    def open(self, path: str, *, create: bool = False) -> int:
        fd = super().open(path, create=create)
        (self._logs.add if path.endswith(".log") else self._logs.discard)(fd)
        return fd

    def fsync(self, fd: int) -> None:  # type: ignore[override]
        if fd in self._logs:
            self._met()
        os.fsync(fd)
