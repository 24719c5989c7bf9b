"""A Ctrl-C at any line: what is interrupted there must be whole afterwards, or nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

__all__ = ["at_every_line", "called_at", "interrupted_at"]

Result = TypeVar("Result")


def interrupted_at(
    line: int, where: Callable[[FrameType], bool], action: Callable[[], object], events: tuple[str, ...] = ("line",)
) -> bool:
    """Run `action` with a KeyboardInterrupt at the n-th line that it executes there; whether it came to that.

    Of `events` "return" is where a result is ready, and lost.
    """

    def interrupt() -> None:
        raise KeyboardInterrupt

    try:
        called_at(line, where, interrupt, action, events)
    except KeyboardInterrupt:
        return True
    return False


def at_every_line(once: Callable[[int], bool]) -> int:
    """Do something with an interrupt at line 1, 2 and so on, as long as it says that it came to that; how many lines there are, and one."""
    line = 1
    while once(line):
        line += 1
    return line


def called_at(
    line: int,
    where: Callable[[FrameType], bool],
    handler: Callable[[], object],
    action: Callable[[], Result],
    events: tuple[str, ...] = ("line",),
) -> Result:
    """Run `action`, and `handler` before the n-th line that it executes there, as a signal handler; what `action` returns."""
    seen = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal seen
        if frame.f_code.co_name == "__del__" or not where(frame):
            return None  # an exception in what cleans up leads nowhere
        if event in events:
            seen += 1
            if seen == line:
                handler()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return action()
    finally:
        sys.settrace(before)
