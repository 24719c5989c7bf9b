"""Code that blocks, run as a coroutine on virtual time: what users call blocks, and so do those who call it here.

Each strand has a thread of its own, but only one thread of a run ever runs: a strand goes on while the world stands still, until it waits
for a signal or ends; then the world goes on. So the same seed takes the same steps, whatever the machine does with its threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from replog.testing.simulator.tasks import Signal

__all__ = ["Strand", "await_here"]

_here = threading.local()


class _Ended(BaseException):
    """The run is over, and whatever a strand still waits for will not come."""


class Strand:
    """A function that blocks, as a coroutine: `await strand.run()`."""

    def __init__(self, name: str, function: Callable[[], object]) -> None:
        self._function = function
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._mine = threading.Lock()
        """Released when it is the turn of the strand, ..."""
        self._worlds = threading.Lock()
        """... and when it is the turn of the world."""
        self._mine.acquire()
        self._worlds.acquire()
        self._awaited: Signal | None = None
        self._done = False
        self._over = False
        self._error: BaseException | None = None

    async def run(self) -> None:
        """Let it run to its end. Raises what the function raises."""
        self._thread.start()
        try:
            self._switch()
            while not self._done:
                assert self._awaited is not None
                await self._awaited
                self._switch()
        finally:
            self._over = True
            while not self._done:  # an ending may wait for something, and is told as often that nothing comes
                self._switch()
            self._thread.join()
        if self._error is not None:
            raise self._error

    def wait(self, signal: Signal) -> None:
        """Called in its thread: let the world go on until this happens."""
        if not self._over:
            self._awaited = signal
            self._worlds.release()
            self._mine.acquire()
        if self._over:
            raise _Ended

    def _switch(self) -> None:
        self._mine.release()
        self._worlds.acquire()

    def _run(self) -> None:
        self._mine.acquire()
        _here.strand = self
        try:
            self._function()
        except _Ended:
            pass
        except BaseException as error:
            self._error = error
        finally:
            self._done = True
            self._worlds.release()


def await_here(signal: Signal) -> None:
    """Block until it happens. Only a strand can: the world itself must not stand still."""
    strand: Any = getattr(_here, "strand", None)
    if strand is None:
        raise RuntimeError("blocks outside of a strand: nothing would ever happen")
    strand.wait(signal)
