"""Threads that rest under a lock until another thread brings them what they want."""

from __future__ import annotations

import threading
from _thread import RLock
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from replog.runtime.changing import Changing

__all__ = ["Resting", "Waiter"]


class Waiter:
    """One thread in a `wait`."""

    __slots__ = ("_lock", "condition", "done", "thread", "until_ms")

    def __init__(self, done: Callable[[], bool], lock: RLock) -> None:
        self._lock = lock
        self.condition = threading.Condition(lock)
        """Its own, of the common lock: those for whom there is nothing sleep on."""
        self.done = done
        self.thread = threading.get_ident()
        self.until_ms = 0
        """When it looks up by itself."""

    def taken(self) -> int:
        """How often its thread has taken the lock; 1 where that cannot be known."""
        count = vars(RLock).get("_recursion_count")  # not in the stubs, nor in every 3.11
        return 1 if count is None else int(count(self._lock))

    def is_done(self) -> bool:
        """Whether it has what it waits for."""
        try:
            return self.done()
        except Exception:  # it will raise in its own thread
            return True


W = TypeVar("W", bound=Waiter)


class Resting(Generic[W]):
    """Those that rest now, in the order of coming. Every method is called with the lock."""

    __slots__ = ("_changing", "present")

    def __init__(self, changing: Changing) -> None:
        self._changing = changing
        self.present: dict[W, None] = {}
        """They themselves. Every turn looks whether there are any, and not by a method: that takes three calls of Python and three of C."""

    def rest(self, waiter: W, timeout_s: float | None) -> None:
        """Let go of the lock until somebody calls this one up, or for so long."""
        taken = waiter.taken()
        self.present[waiter] = None  # no call between this and the next line: an interrupt there would leave it here for ever
        try:
            waiter.condition.wait(timeout_s)
        except BaseException as problem:
            self._changing.handled = problem  # nobody was at work
            if not waiter.condition._is_owned():  # type: ignore[attr-defined]  # it came when the lock had just been let go of
                for _ in range(taken):
                    waiter.condition.acquire()
            raise
        finally:
            self.present.pop(waiter, None)

    def call_all(self) -> None:
        """Have every one look again."""
        for waiter in self:
            waiter.condition.notify()

    def forget_all(self) -> None:
        """In a forked child, where none of these threads exists."""
        self.present.clear()

    def __iter__(self) -> Iterator[W]:
        """Over a copy: asking one whether it is done runs code of others, in which an interrupt may come."""
        return iter(list(self.present))

    def __contains__(self, waiter: W) -> bool:
        return waiter in self.present

    def __len__(self) -> int:
        return len(self.present)
