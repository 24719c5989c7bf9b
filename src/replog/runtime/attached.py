"""A `Broker` on an asyncio loop: whatever becomes readable, and every timer, is a turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from replog.errors import UsageError

if TYPE_CHECKING:
    import asyncio

__all__ = ["Attached", "check_unattached"]


class Attached:
    """Calls `poll` when `fd` becomes readable, and after as many seconds as `due_s` says; None: no more."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fd: int, poll: Callable[[], None], due_s: Callable[[], float | None]) -> None:
        """Nothing happens before `begin`."""
        self._loop = loop
        self._fd = fd
        self._poll = poll
        self._due_s = due_s
        self._timer: asyncio.TimerHandle | None = None
        self._ended = False

    @property
    def is_active(self) -> bool:
        """Whether there will be turns: neither was it ended nor its loop closed."""
        return not self._ended and not self._loop.is_closed()

    def begin(self) -> None:
        """Take the first turn, and go on; what that turn raises ends it."""
        try:
            self._loop.add_reader(self._fd, self._turn)
            self._turn()
        except BaseException:
            self.end()
            raise

    def _turn(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        try:
            self._poll()
        finally:
            due_s = None if self._ended else self._due_s()  # a signal handler may have ended it meanwhile
            self._timer = None if due_s is None else self._loop.call_later(due_s, self._turn)

    def end(self) -> None:
        """Take no more turns. Idempotent: the next one on this loop has the same descriptor."""
        if self._ended:
            return
        self._ended = True
        self._loop.remove_reader(self._fd)
        if self._timer is not None:
            self._timer.cancel()


def check_unattached(attached: Attached | None, wish: str) -> None:
    """Raise UsageError while somebody's loop takes the turns: two who did would take each other's."""
    if attached is not None and attached.is_active:
        raise UsageError(f"this Broker is attached to an event loop; detach it before you {wish}")
