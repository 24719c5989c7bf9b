"""A call that blocks, run bit by bit: on a thread of its own, which goes on only while somebody waits for it to pause or end.

So never more than one thread runs, and the order of everything is that of the calls of `step`: what looks like a worker beside an event
loop is the same in every run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from replog.testing.disk import CrashedError

__all__ = ["Stepped", "pause"]

_own = threading.local()


class Stepped:
    """`call`, up to the next `pause()` within it with each `step`."""

    def __init__(self, call: Callable[[], object], name: str = "stepped") -> None:
        self._call = call
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._go = threading.Lock()
        """Released when it is its turn, ..."""
        self._back = threading.Lock()
        """... and when it is that of whoever steps it."""
        self._go.acquire()
        self._back.acquire()
        self._is_begun = False
        self._abandoned = False
        self._raised: BaseException | None = None
        self.awaited: Any = None
        """What it has paused for, as `pause` was told."""
        self.ended = False

    def step(self) -> bool:
        """Let it go on to its next pause or its end; whether it has ended. Raises what it has raised."""
        if self._is_begun:
            self._go.release()
        else:
            self._is_begun = True
            self._thread.start()
        self._back.acquire()
        if self.ended:
            self._thread.join()
            raised, self._raised = self._raised, None
            if raised is not None:
                raise raised
        return self.ended

    def abandon(self) -> None:
        """It ends where it pauses, with CrashedError, as a thread does whose process dies. Idempotent."""
        self._abandoned = True
        if self._is_begun and not self.ended:
            self._go.release()
            self._back.acquire()
            self._thread.join()

    def _run(self) -> None:
        _own.stepped = self
        try:
            self._call()
        except BaseException as error:
            if not (self._abandoned and isinstance(error, CrashedError)):
                self._raised = error
        finally:
            self.ended = True
            self._back.release()

    def _pause(self, awaited: object) -> None:
        if not self._abandoned:
            self.awaited = awaited
            self._back.release()
            self._go.acquire()
        if self._abandoned:
            raise CrashedError("its process has ended")


def pause(awaited: object = None) -> bool:
    """Within a stepped call: wait for its next step. Elsewhere: nothing. Returns whether it was within one."""
    stepped: Stepped | None = getattr(_own, "stepped", None)
    if stepped is not None:
        stepped._pause(awaited)
    return stepped is not None
