"""What a producer has left behind, while its application does something else: one thread finishes it and goes.

It does nothing while the application calls: a background sender beside a busy application takes the interpreter from it
at every acknowledgement. So it looks every few milliseconds whether anybody has called since.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final, Protocol
from weakref import WeakSet

from replog.client.delivery import run_callbacks
from replog.client.driver import Driver

__all__ = ["Finishable", "Finisher", "start_finisher"]

_log = logging.getLogger("replog.client")

_PAUSE_S: Final = 0.002
"""An application that has called within this time drives its client itself."""
_REST_S: Final = 1.0
"""After a mistake, which may come again."""
_PAUSES_MAX: Final = 50
"""So many with nothing left to do, and the thread ends: a new one costs more than a pause."""
_END_S: Final = 2.0
"""So long the end is waited for: a callback may be waiting for whoever closes."""


_without: WeakSet[Finishable] = WeakSet()
"""Drivers whose thread could not be started at the last try, which was told."""


class Finishable(Driver, Protocol):
    """A driver whose batches a thread can finish."""

    calls: int
    """How often the application has called: what tells a busy one from one that has stopped."""
    finisher: Finisher | None
    """Who sees to batches when nobody calls; it takes itself off under the lock."""

    def wait(self, done: Callable[[], bool], timeout_s: float | None, *, background: bool = False) -> bool:
        """As that of any driver; `background`: on behalf of nobody."""

    def has_left(self) -> bool:
        """Whether there is something to finish. Called with the lock held."""


class Finisher(threading.Thread):
    """A daemon thread of one client. It ends when no batch is without an outcome, and every callback has been called."""

    def __init__(self, driver: Finishable) -> None:
        super().__init__(name="replog client", daemon=True)
        self._driver = driver
        self._clock = threading.Event()  # lets time pass, until it is set

    def run(self) -> None:
        """Sleep while the application calls; then take its place until every batch is settled, or it calls again."""
        driver = self._driver
        try:
            self._look_after()
        finally:
            with driver.lock:  # whatever has ended it: the next batch is owed another one
                if driver.finisher is self:
                    driver.finisher = None

    def end(self) -> None:
        """Wait until it has ended, but not for ever: of a driver that is closed, without the lock."""
        self._clock.set()
        if self is not threading.current_thread():
            self.join(_END_S)

    def _look_after(self) -> None:
        driver = self._driver
        seen, idle = -1, 0
        while not self._clock.wait(_PAUSE_S):
            if driver.calls != seen:
                seen, idle = driver.calls, 0
                continue
            with driver.lock:
                busy = driver.has_left()
                idle = 0 if busy else idle + 1
                if idle == _PAUSES_MAX:
                    driver.finisher = None  # still under the lock: a batch begun now gets another one
                    return
            if busy:
                self._finish(seen)

    def _finish(self, seen: int) -> None:
        driver, core = self._driver, self._driver.core

        def over() -> bool:
            return bool(core.finished) or driver.calls != seen or not driver.has_left()

        try:
            while driver.wait(over, None, background=True) and core.finished:
                self._call_back()
        except Exception:  # a closed client, or a mistake of ours that has failed the batches
            if not driver.closed:
                _log.exception("batches were interrupted in the background")
            self._call_back()
            self._clock.wait(_REST_S)

    def _call_back(self) -> None:
        """Nobody is there who could hear what callbacks raise: whatever it is, the others are called all the same."""
        core = self._driver.core
        while core.finished:
            try:
                run_callbacks(core)
            except BaseException:
                _log.exception("a delivery callback failed")


def start_finisher(driver: Finishable) -> None:
    """Have a thread finish what is left, unless there is one. Called with the lock held."""
    if driver.finisher is not None:
        return
    finisher = Finisher(driver)
    try:
        finisher.start()
    except RuntimeError as problem:  # the next batch tries again; if the interpreter is about to exit, the producer's own flush has to do
        if driver not in _without and threading.main_thread().is_alive():
            _without.add(driver)  # first: a handler of the log may send
            _log.warning("no thread can be started (%s): what was sent has its outcome only once another call is made", problem)
        return
    driver.finisher = finisher
    _without.discard(driver)
