"""Of which refused fetch sessions operators hear."""

from __future__ import annotations

from typing import Final

__all__ = ["AGAIN_MS", "Refusals"]

AGAIN_MS: Final = 60_000
"""Of one lane no two refusals are told within this time: lanes may get the last free session in turns."""


class Refusals:
    """The lanes (replica, whether it is the one for catching up) that were refused a session, each told once until it gets one.

    By lane, not by follower: what one lane gets changes nothing for the other.
    """

    def __init__(self) -> None:
        self._told_ms: dict[tuple[int, bool], int] = {}
        self._granted: set[tuple[int, bool]] = set()
        """Lanes that have got a session since a refusal of theirs was told."""

    def refused(self, lane: tuple[int, bool], now_ms: int) -> bool:
        """Whether this refusal is one to tell of."""
        told_ms = self._told_ms.get(lane)
        is_news = told_ms is None or (lane in self._granted and now_ms - told_ms >= AGAIN_MS)
        if is_news:
            self._granted.discard(lane)
            self._told_ms[lane] = now_ms
        return is_news

    def granted(self, lane: tuple[int, bool]) -> None:
        """The lane has got a session."""
        if lane in self._told_ms:
            self._granted.add(lane)
