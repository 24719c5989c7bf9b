"""A Ctrl-C at any line, or wherever one may come: what is interrupted there must be whole afterwards, or nothing."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from functools import cache
from inspect import CO_GENERATOR
from types import CodeType, FrameType
from typing import Any, TypeVar

__all__ = ["at_every_line", "called_at", "interrupted_at", "signalled_at"]

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
        # What was entered by somebody else stays so, but a generator may be closed by a finalizer.
        if ((event == "call" or frame.f_code.co_flags & CO_GENERATOR) and _cleans_up(frame)) or not where(frame):
            return None
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


def _cleans_up(frame: FrameType | None) -> bool:
    """Whether it is what a finalizer does: an exception there leads nowhere."""
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None


_THROUGH_C = {"<genexpr>", "__init__", "__call__", "__eq__", "__hash__", "__len__"}
"""Python code that is called by what is called: any(), a class, an object, a dict."""


@cache
def _operations(code: CodeType) -> dict[int, str]:
    return {one.offset: one.opname for one in dis.get_instructions(code)}


def signalled_at(moment: int, where: Callable[[FrameType], bool], action: Callable[[], object]) -> bool:
    """Run `action` with a KeyboardInterrupt at the n-th moment there in which the interpreter looks for signals; whether it came to that.

    It looks as a function is entered and a generator resumed, where a loop jumps back, and once a call has returned that is not of Python
    code: nowhere between what is assigned and the return of it, nor between an exception and who catches it.
    """
    seen = 0
    called: dict[FrameType, bool] = {}
    """Of each frame that is there: whether what it did last was a call, of which no Python code came."""

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal seen
        if event == "call":
            if frame.f_back is not None and frame.f_back in called and frame.f_code.co_name not in _THROUGH_C:
                called[frame.f_back] = False
            if _cleans_up(frame) or not where(frame):
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            called[frame] = True
        elif event == "opcode":
            name = _operations(frame.f_code)[frame.f_lasti]
            looks = called[frame] or ("JUMP_BACKWARD" in name and "NO_INTERRUPT" not in name)
            called[frame] = name.startswith("CALL")
            if looks:
                seen += 1
                if seen == moment:
                    raise KeyboardInterrupt
        elif event == "exception":
            called[frame] = False
        elif event == "return":
            called.pop(frame, None)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False
