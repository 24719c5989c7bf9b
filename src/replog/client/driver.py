"""What the blocking side of a client needs from whoever runs its core: time, a lock, and moving messages."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from replog.client.core import ClientCore
from replog.model import Address

__all__ = ["Driver"]


class Driver(Protocol):
    """Runs one `ClientCore`, and perhaps other actors beside it.

    The core is touched only while `lock` is held. An exception that leaves `core.receive` or `core.tick` may have left the core
    half-changed: the driver calls `core.crash(error)` and then lets the exception continue.
    """

    @property
    def core(self) -> ClientCore:
        """The core it runs."""

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Reentrant. Whoever calls the core holds it."""

    @property
    def changing(self) -> AbstractContextManager[Any]:
        """Entered inside `lock` by whoever changes the core: an exception like KeyboardInterrupt that leaves it is as one that leaves
        `core.receive`."""

    @property
    def closed(self) -> bool:
        """Whether `close` was called, or the process was forked: nothing may be sent any more."""

    def now_ms(self) -> int:
        """Monotonic milliseconds."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""

    def run(self) -> None:
        """Take what is in the core's outbox and move messages until nothing can be done without waiting. Never blocks.

        Called with the lock held or not.
        """

    def wait(self, done: Callable[[], bool], timeout_s: float | None) -> bool:
        """Run and wait until `done()`, at most `timeout_s` (None: as long as it takes); returns `done()`.

        Called without the lock; `done` is called with it. It is released while nothing can be done, so that other threads get
        their turn, and one of them may bring what this one waits for.
        """

    def wake(self) -> None:
        """Have everybody who waits look again whether it is done. From any thread, and from a signal handler."""

    def attend(self) -> None:
        """A producer has begun a batch, and may never call again: see to it that the batch is finished. Called with the lock held."""

    def expect(self) -> None:
        """Somebody is to be told of a batch's outcome, by a callback or a future, and may never call: see to it that he is.

        Called with the lock held.
        """

    def unsent_to(self, broker: Address) -> int:
        """How many bytes that are for this broker the operating system has not taken. Called with the lock held."""

    def close(self) -> None:
        """Let go of sockets. Idempotent."""
