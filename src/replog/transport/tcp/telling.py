"""What somebody outside can bring about any number of times is told once a minute, with how often it was kept back."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["Seldom", "quiet", "unheeded"]

_EVERY_MS: Final = 60_000
_SUBJECTS_MAX: Final = 1_000


class Seldom:
    """When each subject was told of last, and how much was not told since; of a bounded number of them."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[int, int]] = {}

    def tell(self, subject: str, now_ms: int) -> int | None:
        """How often it was kept back since it was told last, if it is to be told now; None: it is kept back."""
        last, more = self._told.get(subject, (now_ms - _EVERY_MS, 0))
        if now_ms - last < _EVERY_MS:
            self._told[subject] = last, more + 1
            return None
        self._told.pop(subject, None)
        self._told[subject] = now_ms, 0
        if len(self._told) > _SUBJECTS_MAX:
            del self._told[next(iter(self._told))]
        return more


def quiet(name: str, fields: dict[str, Any]) -> None:
    """Nobody wants to know."""


def unheeded(broker_id: Any, request: str, ms: int) -> None:
    """Nobody counts."""
