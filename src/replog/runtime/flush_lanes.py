"""Which thread takes a flush: one for each broker, and before a clean stop several.

What is appended while a flush is under way shares the next one, so that few flushes at once carry more: with three brokers on one disk
several threads each made 0.6 to 0.9 of the durable sends of one. Before a clean stop every log is flushed once, and nothing is to be
shared: a file system writes what eight ask for together in a tenth of the time that it takes for one after the other (ext4: its journal).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import Final

from replog.errors import UsageError
from replog.runtime.workers import Workers

__all__ = ["FlushLanes"]

_LANES: Final = 8


class FlushLanes:
    """The lanes of the flushes of one broker. No log has two flushes under way, so it does not matter who runs which."""

    def __init__(self, workers: Workers, name: str) -> None:
        self._workers = workers
        self._name = name
        self._many = cycle([name, *(f"{name} {number}" for number in range(2, _LANES + 1))])
        self._waiting: deque[Callable[[], None]] = deque()
        self._spreading: set[object] = set()
        """Of each that goes on: several threads may stop brokers."""

    @contextmanager
    def spread(self) -> Iterator[None]:
        """Several meanwhile: every log is to be flushed. UsageError where nobody may wait for that: the threads have been ended, or this is
        one of them, as where a logging handler stops a broker."""
        if self._workers.closed or self._workers.has_current:
            raise UsageError("flushes cannot be waited for once their threads are ended, nor on one of them")
        this = object()
        self._spreading.add(this)
        try:
            yield
        finally:
            self._spreading.discard(this)

    def submit(self, work: Callable[[], None]) -> None:
        """Have the next flush run. RuntimeError if no thread can be had."""
        if not self._spreading:
            return self._workers.submit(self._name, work)
        self._waiting.append(work)
        try:
            self._workers.submit(next(self._many), self._work)
        except RuntimeError:
            if work in self._waiting:
                self._waiting.remove(work)
                raise

    def _work(self) -> None:
        """On a lane: whatever waits, until nothing does. So one that takes its time, or hangs, holds up nobody but its own lane."""
        while True:
            try:
                work = self._waiting.popleft()
            except IndexError:
                return
            work()
