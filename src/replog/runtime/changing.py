"""Who works under a lock, and what becomes of it when an interrupt comes in between."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

__all__ = ["Changing"]


class Changing:
    """Entered inside a lock by whoever changes what the lock guards: hears of interrupts, for something may be half done.

    `interrupted` is called, still under the lock, with an exception like KeyboardInterrupt that leaves the block, unless `handled`
    names that one. This is not the lock itself: an interrupt may come as `__exit__` is entered, before any line of it, and a lock
    that is released there would stay taken for ever. That of the interpreter has no such moment.
    """

    __slots__ = ("handled", "interrupted")

    def __init__(self, interrupted: Callable[[BaseException], None] | None = None) -> None:
        self.interrupted = interrupted
        self.handled: BaseException | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        if problem is not None and not isinstance(problem, Exception) and problem is not self.handled and self.interrupted:
            self.handled = problem
            self.interrupted(problem)
