"""What wakes kazoo's connection thread: a number instead of the socket that kazoo would write a byte to for each request.

Nobody reads from such a socket while there is no connection. It holds 278 single bytes; whoever asks for more waits then, and so does
whoever wants to stop kazoo, for ever once the connection thread has ended.
"""

from __future__ import annotations

import errno
import os
import threading

__all__ = ["Wakeups"]


class Wakeups:
    """Both ends of the pair at once, as kazoo uses them: one byte is sent for each request, and received once that is on its way."""

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK | os.EFD_SEMAPHORE)
        self._lock = threading.Lock()
        """Around the descriptor: what comes after `close` must not reach whoever has its number by then."""

    def fileno(self) -> int:
        """For `select`: readable as long as more was sent than received; -1 once closed."""
        return self._fd

    def send(self, data: bytes) -> int:
        """Count the bytes. Never blocks; OSError once closed."""
        with self._lock:
            os.eventfd_write(self._open(), len(data))
        return len(data)

    def recv(self, size: int) -> bytes:
        """One byte; BlockingIOError if there is none, another OSError once closed."""
        with self._lock:
            os.eventfd_read(self._open())
        return b"\0"

    def _open(self) -> int:
        if self._fd < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._fd

    def close(self) -> None:
        """Idempotent."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            os.close(self._fd)
