"""One-shot watches and session listeners: who is told, when, and by which thread.

Arming and firing happen while the backend holds its own lock; callbacks run later, from `deliver`, outside every lock
and never inside one another: a callback may commit, read or arm again. They must not raise.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["Watches"]

_Call = tuple[str, Callable[[Any], None], Any]


class Watches:
    """The watches of every session on one tree."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._armed: dict[str, dict[tuple[str, Callable[[str], None]], None]] = {}
        self._ready: deque[_Call] = deque()
        self._deliverer: object | None = None
        """The call of `deliver` that is at it."""

    def arm(self, session: str, path: str, changed: Callable[[str], None]) -> None:
        """Call `changed(path)` once when `path` fires. Arming the same twice counts once."""
        with self._lock:
            self._armed.setdefault(path, {})[session, changed] = None

    def fire(self, paths: Iterable[str]) -> None:
        """Disarm the watches of `paths` and make their callbacks ready."""
        with self._lock:
            for path in paths:
                for session, changed in self._armed.get(path, ()):
                    self._ready.append((session, changed, path))
                self._armed.pop(path, None)  # only now: an interrupt has it told once more, instead of never

    def fire_all(self) -> None:
        """Fire everything: what changed is no longer known."""
        self.fire(list(self._armed))

    def tell(self, session: str, changed: Callable[[Any], None], argument: Any) -> None:
        """Make any other callback ready, in line behind the watches."""
        with self._lock:
            self._ready.append((session, changed, argument))

    def drop(self, session: str) -> None:
        """Watches end with their session, also those that are ready and were not delivered."""
        with self._lock:
            for path in [path for path, calls in self._armed.items() if any(owner == session for owner, _ in calls)]:
                left = {call: None for call in self._armed[path] if call[0] != session}
                if left:
                    self._armed[path] = left
                else:
                    del self._armed[path]
            self._ready = deque(call for call in self._ready if call[0] != session)

    def deliver(self) -> None:
        """Run what is ready. A call from inside a callback, or from a second thread, leaves it to the one that is at it."""
        this = object()
        try:
            with self._lock:
                if self._deliverer is not None:
                    return
                self._deliverer = this
            while True:
                with self._lock:
                    if not self._ready:
                        self._deliverer = None  # with the lock held: what is made ready after this is delivered by whoever did so
                        return
                    call = self._ready[0]
                _session, changed, argument = call
                try:
                    changed(argument)
                except Exception:
                    self._told(call)
                    raise
                self._told(call)  # only now: an interrupt has it told once more, and a hint bears that
        except BaseException:
            if self._deliverer is this:  # an interrupt may come before it began, and after it ended
                self._deliverer = None
            raise

    def _told(self, call: _Call) -> None:
        with self._lock:
            if self._ready and self._ready[0] is call:
                self._ready.popleft()
