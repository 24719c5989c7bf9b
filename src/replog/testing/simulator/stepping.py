"""A call that blocks, run bit by bit: on a thread of its own, which goes on only while somebody waits for it to pause or end.

So never more than one thread runs, and the order of everything is that of the calls of `step`: what looks like a worker beside an event
loop is the same in every run.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from replog.testing.disk import CrashedError

__all__ = ["Stepped", "pause"]

_own = threading.local()
_IDLE: Final = "idle"
_idle: list[_Thread] = []
"""Threads whose call has ended. To make one takes longer than most calls do."""
os.register_at_fork(after_in_child=_idle.clear)


class _Thread:
    """Runs one call after the other, each when it is told to go."""

    def __init__(self) -> None:
        self.stepped: Stepped | None = None
        self.go = threading.Lock()
        """Released when it is its turn, ..."""
        self.back = threading.Lock()
        """... and when it is that of whoever steps it."""
        self.is_astray = False
        """Nobody knows any more whose turn it is."""
        self.go.acquire()
        self.back.acquire()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def begin(self, stepped: Stepped) -> None:
        self._thread.name = stepped.name
        self.stepped = stepped

    def end(self) -> None:
        """Have its call, which was abandoned, come to its end wherever it is, and itself as well."""
        self.is_astray = True
        with suppress(RuntimeError):  # it was told already, and has not heard of it yet
            self.go.release()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self.go.acquire()
            stepped, self.stepped = self.stepped, None
            if stepped is None:
                return
            _own.stepped = stepped
            stepped._run()
            _own.stepped = stepped = None  # nothing of it is kept
            if self.is_astray:
                return
            self._thread.name = _IDLE
            self.back.release()


class Stepped:
    """`call`, up to the next `pause()` within it with each `step`."""

    def __init__(self, call: Callable[[], object], name: str = "stepped") -> None:
        self._call = call
        self.name = name
        self._thread: _Thread | None = None
        """While it is begun and has not ended."""
        self._is_awaited = False
        """A step is under way. It stays so when whoever steps is interrupted there: by a signal handler that raises."""
        self._abandoned = False
        self._raised: BaseException | None = None
        self.awaited: Any = None
        """What it has paused for, as `pause` was told."""
        self.ended = False

    def step(self) -> bool:
        """Let it go on to its next pause or its end; whether it has ended. Raises what it has raised."""
        assert not self.ended
        assert not self._is_awaited
        if self._thread is None:
            thread = _idle.pop() if _idle else _Thread()
            thread.begin(self)
            self._thread = thread
        self._go_on(self._thread)
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised
        return self.ended

    def abandon(self) -> None:
        """It ends where it pauses, with CrashedError, as a thread does whose process dies. Idempotent."""
        self._abandoned = True
        thread = self._thread
        if thread is not None and self._is_awaited:
            thread.end()
            self._thread = None
        elif thread is not None and not self.ended:
            self._go_on(thread)

    def _go_on(self, thread: _Thread) -> None:
        self._is_awaited = True
        thread.go.release()
        thread.back.acquire()
        self._is_awaited = False
        if self.ended:
            self._thread = None
            _idle.append(thread)

    def _run(self) -> None:
        try:
            if not self._abandoned:
                self._call()
        except BaseException as error:
            if not (self._abandoned and isinstance(error, CrashedError)):
                self._raised = error
        finally:
            self.ended = True

    def _pause(self, awaited: object) -> None:
        thread = self._thread
        if not self._abandoned:
            self.awaited = awaited
            assert thread is not None
            thread.back.release()
            thread.go.acquire()
        if self._abandoned:
            raise CrashedError("its process has ended")


def pause(awaited: object = None) -> bool:
    """Within a stepped call: wait for its next step. Elsewhere: nothing. Returns whether it was within one."""
    stepped: Stepped | None = getattr(_own, "stepped", None)
    if stepped is not None:
        stepped._pause(awaited)
    return stepped is not None
