"""How a thread that rests on a selector is made to look up by another one."""

from __future__ import annotations

import os
import select
import threading
from contextlib import suppress

__all__ = ["Wakeup"]


class Wakeup:
    """A descriptor that becomes readable. Any thread may call `ring`, also while another one closes."""

    def __init__(self, epoll: select.epoll) -> None:
        self._lock = threading.Lock()
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        """-1 once it is closed."""
        epoll.register(self.fd, select.EPOLLIN)

    def ring(self) -> None:
        """Make it readable."""
        with self._lock:  # or the descriptor may be somebody else's by now
            if self.fd >= 0:
                os.eventfd_write(self.fd, 1)

    def heard(self) -> None:
        """Make it unreadable again."""
        with suppress(BlockingIOError):
            os.eventfd_read(self.fd)

    def close(self) -> None:
        """Nobody rests there any more. Idempotent."""
        with self._lock:
            if self.fd >= 0:
                os.close(self.fd)
                self.fd = -1

    def abandon(self) -> None:
        """As `close`, in a forked child: a thread that is not here may hold the lock."""
        self._lock = threading.Lock()
        self.close()

    def __del__(self) -> None:
        """Whoever was never opened need not be closed."""
        if getattr(self, "fd", -1) >= 0:
            os.close(self.fd)
            self.fd = -1
