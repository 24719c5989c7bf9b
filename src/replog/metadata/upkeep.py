"""The thread that looks after the sessions of a store without a server, while their owners say that they are alive."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable

__all__ = ["Upkeep"]


class Upkeep:
    """Calls `tend` again and again, `every_s` after it has returned, on one daemon thread, until `stop`.

    What `tend` raises is shown as threads do (`threading.excepthook`), and the next call comes as ever: a mistake in
    somebody's callback must not end a session.
    """

    def __init__(self, tend: Callable[[], None], *, every_s: float, name: str) -> None:
        self._tend = tend
        self._every_s = every_s
        self._name = name
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, unless it has begun. Never waits for a call of `tend`. Where no thread can be had, nothing has: ask again."""
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                    with contextlib.suppress(RuntimeError):
                        thread.start()
                        self._thread = thread

    def stop(self) -> None:
        """No further call begins. Does not wait for the one that runs: it may be where this comes from."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(self._every_s):
            try:
                self._tend()
            except Exception:
                kind, error, trace = sys.exc_info()
                if kind is not None:
                    threading.excepthook(threading.ExceptHookArgs((kind, error, trace, threading.current_thread())))
