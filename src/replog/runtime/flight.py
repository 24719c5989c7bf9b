"""A flush in flight: whoever ends the actor that has asked for it still learns what became of it.

The operating system says once that an fsync has failed: what nobody hears is written on a disk as if it were there. No locks here: an
interrupt could leave one taken. Each side first says what it is about, and then looks at what the other one has said.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, get_ident

from replog.ports import FlushToken

__all__ = ["Flight"]


class Flight:
    """Run once, by whoever gets to it, on whichever thread; or given up before that."""

    __slots__ = ("_given_up", "_heard", "_run", "_thread", "ended", "then", "token")

    def __init__(self, token: FlushToken, run: Callable[[], FlushToken]) -> None:
        """`run` flushes, and returns the token."""
        self.token = token
        self._run = run
        self._thread: int | None = None
        """On which it has begun."""
        self._given_up = False
        self._heard = Event()
        self.ended = False
        """What became of it stands in the token."""
        self.then: Callable[[], object] | None = None
        """Called at its end, on its thread; by whoever has set it as well, if it finds that it has ended."""

    def __call__(self) -> FlushToken:
        """Blocks. A flush that was given up is not run: nobody waits for it."""
        try:
            self._thread = get_ident()
            return self.token if self._given_up else self._run()
        finally:
            self.ended = True
            try:
                self._heard.set()
            finally:  # an interrupt may come in a call
                if self.then is not None:
                    self.then()

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or was given up before it began."""
        return self.ended or (self._given_up and self._thread is None)

    def settle(self, timeout_s: float = 0.0) -> bool:
        """Give it up if it has not begun, else wait for its end; whether it is over. One that a signal handler has come into is not
        waited for."""
        self._given_up = True
        return self._thread is None or self.wait(timeout_s)

    def wait(self, timeout_s: float) -> bool:
        """Wait for its end; whether it has ended. One that a signal handler has come into is not waited for."""
        if timeout_s > 0 and not self.ended and self._thread != get_ident():
            self._heard.wait(timeout_s)
        return self.ended
