"""Ctrl-C at a chosen place: at the n-th call of a function of the library on this thread."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from traceback import walk_stack
from types import FrameType
from typing import Any

import replog

LIBRARY = str(Path(replog.__file__).parent)


class Interrupt:
    """Raises KeyboardInterrupt at the `at`-th call inside the library; counts calls."""

    def __init__(self, at: int | None) -> None:
        self.at = at
        self.calls = 0
        self.where = ""

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(LIBRARY):
            return
        if code.co_flags & inspect.CO_GENERATOR or "__del__" in [caller.f_code.co_name for caller, _ in islice(walk_stack(frame), 3)]:
            return  # what the interpreter calls to clean up: an exception in there leads nowhere
        self.calls += 1
        if self.calls == self.at:
            self.where = f"{code.co_filename}:{frame.f_lineno} {code.co_name}"
            sys.setprofile(None)
            raise KeyboardInterrupt

    def during(self, work: Callable[[], object]) -> bool:
        """Run `work`; whether it was interrupted."""
        sys.setprofile(self)
        try:
            work()
        except KeyboardInterrupt:
            return True
        finally:
            sys.setprofile(None)
        return False
