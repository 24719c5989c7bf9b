"""How final it is that a broker was refused, because another one is registered under its number (P-72).

Where there is no server to end sessions, whoever is refused may be the only one who can end that of a dead owner. So if a session has run
out already it stays until that is decided, and then asks once more. Otherwise a refusal stands, whatever becomes of the owner later: a
person has to say which of the two is meant.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["Patience", "Standing"]


class Standing(NamedTuple):
    """What is known of a refusal now."""

    is_refused: bool = False
    is_occupied: bool = False
    """Whether that is because another one has its number."""
    is_judging: bool = False
    """Whether a session in its store has run out, and is about to be ended unless its owner comes back."""


class Patience:
    """Of one broker."""

    def __init__(self) -> None:
        self._stage: Literal["", "waits", "asked", "final"] = ""

    def is_over(self, now: Standing) -> bool:
        """Whether waiting does not help, if it is refused."""
        return not ((not self._stage and now.is_judging and now.is_occupied) or self._stage in ("waits", "asked"))

    def look(self, now: Standing) -> bool:
        """Take note; True: it is time to ask once more."""
        before = self._stage
        if not now.is_refused:
            self._stage = ""
        elif not now.is_occupied:
            self._stage = "final"
        elif before in ("", "waits") and now.is_judging:
            self._stage = "waits"
        else:
            self._stage = "asked" if before == "waits" else "final"
        return before == "waits" and self._stage == "asked"
