"""A flush in flight: whoever ends the actor that has asked for it still learns what became of it.

The operating system says once that an fsync has failed: what nobody hears is written on a disk as if it were there.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable

from replog.ports import FlushToken

__all__ = ["Flight"]


class Flight:
    """Run once, by whoever gets to it, on whichever thread; or given up before that."""

    __slots__ = ("_begun", "_over", "_run", "token")

    def __init__(self, token: FlushToken, run: Callable[[], FlushToken]) -> None:
        """`run` flushes, and returns the token."""
        self.token = token
        self._run = run
        self._begun = allocate_lock()
        self._over = allocate_lock()
        self._over.acquire()

    def __call__(self) -> FlushToken:
        """Blocks. A flush that was given up is not run: nobody waits for it."""
        if not self._begun.acquire(blocking=False):
            return self.token
        try:
            return self._run()
        finally:
            self._over.release()

    def settle(self, timeout_s: float) -> bool:
        """Give it up if it has not begun, else wait for its end; whether that came. Then the token says whether the disk has failed."""
        if self._begun.acquire(blocking=False) or self._over.acquire(timeout=timeout_s):
            self._over.release()
            return True
        return False
