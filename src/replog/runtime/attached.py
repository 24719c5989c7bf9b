"""A `Broker` on an asyncio loop: whatever becomes readable, and every timer, is a turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

__all__ = ["Attached"]


class Attached:
    """Calls `poll` when `fd` becomes readable, and after as many seconds as `due_s` says; None: no more."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fd: int, poll: Callable[[], None], due_s: Callable[[], float | None]) -> None:
        """Nothing happens before `begin`."""
        self._loop = loop
        self._fd = fd
        self._poll = poll
        self._due_s = due_s
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Take the first turn, and go on."""
        self._loop.add_reader(self._fd, self._turn)
        self._turn()

    def _turn(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        try:
            self._poll()
        finally:
            due_s = self._due_s()
            self._timer = None if due_s is None else self._loop.call_later(due_s, self._turn)

    def end(self) -> None:
        """Take no more turns."""
        self._loop.remove_reader(self._fd)
        if self._timer is not None:
            self._timer.cancel()
