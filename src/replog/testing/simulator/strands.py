"""Code that blocks, run as a coroutine on virtual time: what users call blocks, and so do those who call it here.

A strand is a stepped call that pauses for signals: it goes on while the world stands still, until it waits for one or ends; then the world
goes on. So the same seed takes the same steps, whatever the machine does with its threads.
"""

from __future__ import annotations

from collections.abc import Callable

from replog.testing.simulator.stepping import Stepped, pause
from replog.testing.simulator.tasks import Signal

__all__ = ["Strand", "await_here"]


class Strand:
    """A function that blocks, as a coroutine: `await strand.run()`."""

    def __init__(self, name: str, function: Callable[[], object]) -> None:
        self._stepped = Stepped(function, name)

    async def run(self) -> None:
        """Let it run to its end. Raises what the function raises. Given up, it ends where it waits."""
        try:
            while not self._stepped.step():
                await self._stepped.awaited
        finally:
            self._stepped.abandon()


def await_here(signal: Signal) -> None:
    """Block until it happens. Only a strand can: the world itself must not stand still."""
    if not pause(signal):
        raise RuntimeError("blocks outside of a strand: nothing would ever happen")
