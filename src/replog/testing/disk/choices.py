"""What decides, thing by thing, how much of what was not synced a disk still has after a power cut."""

from __future__ import annotations

import random
from collections.abc import Callable

__all__ = ["Choose", "CrashedError", "keep_all", "keep_none", "some"]

Choose = Callable[[], bool]
"""Asked once for everything that may or may not have reached the disk."""


def keep_all() -> bool:
    """Everything reached the disk in time."""
    return True


def keep_none() -> bool:
    """Only what was synced reached the disk."""
    return False


def some(seed: int) -> Choose:
    """Whatever the seed says reached the disk."""
    toss = random.Random(seed)
    return lambda: toss.random() < 0.5


class CrashedError(BaseException):
    """The simulated process was killed in the middle of a file operation. Nothing catches it by accident."""
