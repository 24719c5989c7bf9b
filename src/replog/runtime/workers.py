"""Threads for work that blocks: flushes and store calls. Never anything on the way of an acknowledgement but an fsync it waits for.

One thread per lane, started when the lane gets its first work: what is in one lane runs in order. Where no further thread can
be had, a lane shares one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

__all__ = ["Workers"]

_log = logging.getLogger("replog")


class Workers:
    """Runs functions elsewhere, each lane's in the order given. Daemon threads: a process never waits for them to exit."""

    def __init__(self, name: str) -> None:
        """`name` stands in front of the threads' names."""
        self._name = name
        self._lanes: dict[str, SimpleQueue[Callable[[], None] | None]] = {}
        self._threads: list[threading.Thread] = []
        self._closed = False
        self._lock = threading.RLock()
        """A signal handler may close inside a call of the same thread."""

    def submit(self, lane: str, work: Callable[[], None]) -> None:
        """Have `work` done; dropped after `close`. From any thread. What it raises is logged, and ends nothing.

        RuntimeError if no thread can be started, and there is none yet.
        """
        with self._lock:
            if not self._closed:
                queue = self._lanes.get(lane)
                if queue is None:
                    queue = self._begin(lane)
                queue.put(work)

    def _begin(self, lane: str) -> SimpleQueue[Callable[[], None] | None]:
        queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        thread = threading.Thread(target=_run, args=(queue,), name=f"{self._name} {lane}", daemon=True)
        try:
            thread.start()
            self._threads.append(thread)
            self._lanes[lane] = queue
        except RuntimeError:  # the process may have no more of them; what was asked for must not be lost for that
            if not self._lanes:
                raise
            shared, queue = next(reversed(self._lanes.items()))  # the first one may wait for a store that is away
            self._lanes[lane] = queue
            _log.warning("no thread for %s %s; it shares that of %s", self._name, lane, shared)
        except BaseException:  # an interrupt: it may have started
            queue.put(None)
            self._lanes.pop(lane, None)
            raise
        return queue

    def close(self, timeout_s: float = 10.0) -> None:
        """Finish what was given, and end the threads; those that have not ended after `timeout_s` are left behind.

        Idempotent, and so is the wait: whoever closes next waits for the same threads.
        """
        with self._lock:
            self._closed = True
            for queue in {id(queue): queue for queue in self._lanes.values()}.values():
                queue.put(None)
            threads = list(self._threads)
            self._lanes.clear()
        give_up = time.monotonic() + timeout_s
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, give_up - time.monotonic()))
        with self._lock:
            self._threads = [thread for thread in self._threads if thread.is_alive()]

    def __del__(self) -> None:
        for queue in getattr(self, "_lanes", {}).values():  # whoever forgot to close it keeps no thread
            queue.put(None)

    def abandon(self) -> None:
        """In a forked child: the threads are not here, and one of them may hold the lock."""
        self._lock = threading.RLock()
        self._closed = True
        self._lanes.clear()
        self._threads.clear()


def _run(queue: SimpleQueue[Callable[[], None] | None]) -> None:
    while (work := queue.get()) is not None:
        try:
            work()
        except BaseException:  # a mistake of ours; the next piece of work is not to blame
            with suppress(BaseException):  # nor for a logging handler
                _log.exception("work in the background failed")
        del work  # it may hold what nobody else does any more
