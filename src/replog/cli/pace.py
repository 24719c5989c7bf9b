"""How fast what is missing gets less, from the looks that were taken so far."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from typing import Final

__all__ = ["Pace"]

_WINDOW_S: Final = 30.0
"""Looks of this long ago still count: copies come in pieces, and the last second alone would say another number each time."""

_Place = tuple[str, int]


class Pace:
    """Bytes per second that moves have come closer to their ends, over the last looks."""

    def __init__(self) -> None:
        self._left: dict[_Place, int] = {}
        self._looks: deque[tuple[float, int]] = deque()
        """When, and how much had been copied by then since the first look."""

    def look(self, now_s: float, left: Mapping[_Place, int], here: Collection[_Place]) -> None:
        """What is missing now, in bytes, of those moves whose leaders say it. `here`: all that go on.

        One that is seen for the first time has not been measured yet, and one that its leader says nothing of now counts when it does. What
        one lacked that is not seen any more is not counted: it may be done, or somebody has taken it back.
        """
        copied = self._looks[-1][1] if self._looks else 0
        copied += sum(before - left[place] for place, before in self._left.items() if place in left)
        kept = {place: before for place, before in self._left.items() if place in here}
        self._left = kept | dict(left)
        self._looks.append((now_s, copied))
        while len(self._looks) > 2 and self._looks[1][0] <= now_s - _WINDOW_S:
            self._looks.popleft()

    @property
    def rate(self) -> float | None:
        """None before a second look, and while more is appended than copied: then nobody knows when it ends."""
        if not self._looks:
            return None
        (begun_s, begun), (now_s, copied) = self._looks[0], self._looks[-1]
        return (copied - begun) / (now_s - begun_s) if now_s > begun_s and copied >= begun else None
