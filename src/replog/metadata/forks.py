"""How a store notices that it lives in a forked child, where it must be dead.

A child shares the parent's database connection and session without knowing it: using either would corrupt the one and
prolong the other. Each store remembers the generation it was born in; a fork raises the child's.
"""

from __future__ import annotations

import os

from replog.errors import UsageError

__all__ = ["ForkGuard"]

_generation = 0


def _forked() -> None:
    global _generation
    _generation += 1


os.register_at_fork(after_in_child=_forked)


class ForkGuard:
    """Remembers the process it was made in."""

    __slots__ = ("_born",)

    def __init__(self) -> None:
        self._born = _generation

    @property
    def forked(self) -> bool:
        """True in a child that was forked after this guard was made."""
        return self._born != _generation

    def check(self, what: str) -> None:
        """UsageError in a forked child."""
        if self._born != _generation:
            raise UsageError(f"{what} was opened before a fork and is dead in the child; open another one here")
