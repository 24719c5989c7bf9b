"""Threads for work that blocks: flushes and store calls. Never anything on the way of an acknowledgement but an fsync it waits for.

One thread per lane, started when the lane gets its first work: what is in one lane runs in order. Where no further thread can
be had, a lane shares one.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

__all__ = ["Workers"]

_log = logging.getLogger("replog")


class _Lane:
    """A thread and what it is given."""

    def __init__(self, name: str) -> None:
        self.queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self.ended = threading.Event()
        """Told by the thread itself: after an interrupted `join` CPython takes it for ended."""
        self.thread = threading.Thread(target=_run, args=(self.queue, self.ended), name=name, daemon=True)


class Workers:
    """Runs functions elsewhere, each lane's in the order given. Daemon threads: a process never waits for them to exit."""

    def __init__(self, name: str) -> None:
        """`name` stands in front of the threads' names."""
        self._name = name
        self._lanes: dict[str, _Lane] = {}
        self._begun: list[_Lane] = []
        """Those whose thread may not have ended."""
        self._closed = False
        self._lock = threading.RLock()
        """A signal handler may close inside a call of the same thread."""

    def submit(self, lane: str, work: Callable[[], None]) -> None:
        """Have `work` done; dropped after `close`. From any thread. What it raises is logged, and ends nothing.

        RuntimeError if no thread can be started, and there is none yet.
        """
        with self._lock:
            if not self._closed:
                found = self._lanes.get(lane) or self._begin(lane)
                found.queue.put(work)

    @property
    def closed(self) -> bool:
        """Whether what is submitted now is dropped."""
        return self._closed

    @property
    def has_current(self) -> bool:
        """Whether whoever asks is on one of these threads."""
        return any(lane.thread is threading.current_thread() for lane in list(self._begun))

    def _begin(self, name: str) -> _Lane:
        lane, handled = _Lane(f"{self._name} {name}"), sys.exception()
        try:
            lane.thread.start()
            self._begun.append(lane)
            self._lanes[name] = lane
        except BaseException as problem:
            lane.queue.put(None)  # it may have started all the same
            self._lanes.pop(name, None)
            if not isinstance(problem, RuntimeError):
                raise
            came = problem.__context__
            if came is not None and came is not handled and not isinstance(came, Exception):
                raise came from None  # an interrupt; its unwinding failed
            if not self._lanes:
                raise
            # The process may have no more of them; what was asked for must not be lost for that.
            shared, lane = next(reversed(self._lanes.items()))  # the first one may wait for a store that is away
            self._lanes[name] = lane
            _log.warning("no thread for %s %s; it shares that of %s", self._name, name, shared)
        return lane

    def close(self, timeout_s: float = 10.0) -> None:
        """Finish what was given, and end the threads; those that have not ended after `timeout_s` are left behind.

        Idempotent, and so is the wait: whoever closes next waits for the same threads.
        """
        with self._lock:
            self._closed = True
            begun = list(self._begun)
            for lane in begun:
                lane.queue.put(None)
            self._lanes.clear()
        give_up = time.monotonic() + timeout_s
        for lane in begun:
            if lane.thread is not threading.current_thread() and lane.ended.wait(max(0.0, give_up - time.monotonic())):
                lane.thread.join(max(0.0, give_up - time.monotonic()))
        with self._lock:
            self._begun = [lane for lane in self._begun if not lane.ended.is_set()]

    def __del__(self) -> None:
        for lane in getattr(self, "_lanes", {}).values():  # whoever forgot to close it keeps no thread
            lane.queue.put(None)

    def abandon(self) -> None:
        """In a forked child: the threads are not here, and one of them may hold the lock."""
        self._lock = threading.RLock()
        self._closed = True
        self._lanes.clear()
        self._begun.clear()


def _run(queue: SimpleQueue[Callable[[], None] | None], ended: threading.Event) -> None:
    try:
        while (work := queue.get()) is not None:
            try:
                work()
            except BaseException:  # a mistake of ours; the next piece of work is not to blame
                with suppress(BaseException):  # nor for a logging handler
                    _log.exception("work in the background failed")
            del work  # it may hold what nobody else does any more
    finally:
        ended.set()
