"""Flushes of an embedded cluster: on a thread for each broker, so that appends share a wait for the disk, and copies wait at once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from functools import partial
from math import inf
from typing import Any, Final

from replog.model import Address
from replog.ports import FlushToken
from replog.runtime.embedded_broker import DISK_S
from replog.runtime.flight import Flight
from replog.runtime.flush_lanes import FlushLanes
from replog.runtime.pump import Heard, Pump
from replog.runtime.workers import Workers

__all__ = ["Flushing", "outcome_of"]

_log = logging.getLogger("replog")

_QUICK_S: Final = 50e-6
"""A broker's flush that took no longer (a disk in memory) costs less than to hand the next one over and back."""

_END_S: Final = 1.0
"""So long threads have to end that have flushed, beside one whose disk hangs."""


def outcome_of(run: Callable[[], FlushToken]) -> FlushToken | BaseException:
    """What a flush returns, or what it raises, which no failure of a disk does: whoever waits for it has to hear of that, too."""
    try:
        return run()
    except BaseException as problem:
        with suppress(BaseException):  # a logging handler must not keep it from anybody
            _log.exception("a flush failed otherwise than by its disk")
        return problem


class Flushing:
    """Takes the flushes of a pump between `begin` and `end`. Threads are started when there is something to flush that takes its time.

    What a broker appends while a flush of its log is under way waits for the next one, all of it together: so the slower the disk, the
    more appends share it.
    """

    def __init__(self, pump: Pump) -> None:
        self._pump = pump
        self._workers: Workers | None = None
        self._last_s: dict[Address, float] = {}
        """How long the last flush of each broker took."""
        self._lanes: dict[Address, FlushLanes] = {}
        self._given: dict[Address, dict[Flight, float]] = {}
        """Flushes of each broker that were given to its threads, and when, as long as they may not have ended."""
        self._left: list[tuple[Address, Flight, Heard]] = []
        """Asked for while the threads end, of brokers whose disk is busy."""
        self._ended = False

    def begin(self) -> None:
        """Take them from now on; not after `end`: whoever closes may have come while the first call was about to open."""
        if not self._ended:
            self._workers = Workers("replog cluster flushes")
            self._pump.flusher = self._flush

    def _flush(self, of: Address, run: Flight, done: Heard) -> FlushToken | None:
        if self._last_s.get(of, inf) <= _QUICK_S:
            return self._timed(of, run)

        def work() -> None:
            done(outcome_of(partial(self._timed, of, run)))
            given.pop(run, None)
            self._go_on()

        given = self._given.setdefault(of, {})
        given[run] = time.monotonic()
        try:
            self._lanes_of(of).submit(work)
        except RuntimeError:  # no thread can be had
            del given[run]
            return self._timed(of, run)
        return None

    def _lanes_of(self, of: Address) -> FlushLanes:
        assert self._workers is not None
        return self._lanes.get(of) or self._lanes.setdefault(of, FlushLanes(self._workers, str(of)))

    def spread(self, brokers: Iterable[Address]) -> ExitStack:
        """Until this is left, several threads take the flushes of each of these brokers: all its logs are to be flushed. UsageError as that
        of `FlushLanes`."""
        with ExitStack() as spread:
            for of in brokers:
                spread.enter_context(self._lanes_of(of).spread())
            return spread.pop_all()

    def _timed(self, of: Address, run: Flight) -> FlushToken:
        began = time.perf_counter()
        token = run()
        self._last_s[of] = time.perf_counter() - began
        return token

    def _go_on(self) -> None:
        """On its thread: the actors hear of it now, for nobody else may be there to run them.

        What they tell is logged without the lock: a logging handler has a lock as well, and another thread may call from inside it.
        """
        told: list[tuple[Any, ...]] = []
        pump = self._pump
        try:
            with pump.lock, pump.changing:
                pump.log = lambda *entry: told.append(entry)
                try:
                    pump.run_locked()
                finally:
                    pump.log = _log.log
        finally:
            for entry in told:
                with suppress(BaseException):  # a logging handler that raises keeps the rest from nobody
                    _log.log(*entry)

    def _flush_last(self, of: Address, run: Flight, done: Heard) -> FlushToken | None:
        """While and after the threads end: here, but not on a disk that is busy with another flush, and may be for ever."""
        if self._is_busy(of):
            self._left.append((of, run, done))
            return None
        return self._timed(of, run)

    def _is_busy(self, of: Address) -> bool:
        return bool(self._under_way(of))

    def _under_way(self, of: Address) -> dict[Flight, float]:
        return {flight: since for flight, since in list(self._given.get(of, {}).items()) if not flight.is_over}

    def end(self) -> None:
        """Wait for those under way, and take no more: they run where they come up, or never if the disk hangs. Called without the lock.
        Idempotent."""
        with self._pump.lock:
            self._ended = True
            if self._workers is not None:
                self._pump.flusher = self._flush_last
        if self._workers is not None:
            self._workers.close(0.0)
            for flight, since_s in [item for of in list(self._given) for item in self._under_way(of).items()]:
                flight.wait(since_s + DISK_S - time.monotonic())  # who closes may have waited for it already
            self._workers.close(_END_S if any(map(self._is_busy, list(self._given))) else DISK_S)
            while self._left:
                of, run, done = self._left.pop(0)
                if not self._is_busy(of):
                    done(outcome_of(run))

    def abandon(self) -> None:
        """In a forked child: the threads are not here."""
        if self._workers is not None:
            self._workers.abandon()
            self._workers = None
