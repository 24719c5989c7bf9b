"""Waiting for something that other threads or processes do: the only place of the project that sleeps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["eventually"]

T = TypeVar("T")


def eventually(condition: Callable[[], T], deadline_s: float = 30.0, *, every_s: float = 0.01) -> T:
    """Call `condition` until it returns something true, and return that.

    Raises AssertionError, naming the condition and its last answer, once `deadline_s` seconds have passed. The deadline
    only bounds a failing test: it is generous, and no test passes or fails by how long something took.

    >>> answers = iter([None, None, "ready"])
    >>> eventually(lambda: next(answers), every_s=0)
    'ready'
    """
    give_up = time.monotonic() + deadline_s
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() >= give_up:
            name = getattr(condition, "__qualname__", repr(condition))
            raise AssertionError(f"{name} was not met within {deadline_s} s; it last returned {answer!r}")
        time.sleep(every_s)
