"""What a step calls: for tests of what is done often, in which a call that brings nothing is paid for each time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType


def called(step: Callable[[], object]) -> list[str]:
    """The names of the functions of the library that are called meanwhile, in order."""
    names: list[str] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and "/replog/" in frame.f_code.co_filename:
            names.append(frame.f_code.co_qualname)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        step()
    finally:
        sys.setprofile(before)
    return names
