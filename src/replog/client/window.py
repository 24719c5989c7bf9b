"""When a leader may be sent several batches at a time: once it has stored one of this producer's, and while it cannot have forgotten that.

A log that may have forgotten producers takes any batch of one that it does not know for the first (PROTOCOL 4.12), and then refuses what
comes before it. Were two under way, the second could be stored although the first was lost or refused. So the oldest batch goes
alone until the leader has stored it; from then on that leader refuses a gap.
"""

from __future__ import annotations

from typing import Final

from replog.client.view import Place

__all__ = ["REMEMBERED_MS", "Window"]

REMEMBERED_MS: Final = 10_000
"""So long a leader is trusted to remember a producer that is silent. It forgets them by age and by number, both its own settings
(`producer_expiry_ms`, `producers_max`), which a client does not know; ten seconds are far below what anyone sets, and one round trip
after such a pause costs little."""


class Window:
    """Who has last stored a batch of one producer's for one partition, and whether that still means something."""

    __slots__ = ("_breaks", "_place", "_stored_ms")

    def __init__(self) -> None:
        self._place: Place | None = None
        self._breaks = 0
        self._stored_ms = 0

    def stored(self, place: Place, breaks: int, now_ms: int) -> None:
        """The leader there has said that it has a batch; the connection to it had broken `breaks` times."""
        self._place, self._breaks, self._stored_ms = place, breaks, now_ms

    def close(self) -> None:
        """In doubt about anything under way: the oldest batch goes alone again."""
        self._place = None

    def is_open(self, place: Place, breaks: int, now_ms: int, *, idle: bool) -> bool:
        """Whether the leader there is the one, in the same leader epoch and behind the same connection, and not too long ago if nothing is
        under way."""
        if self._place != place or self._breaks != breaks:
            return False
        return not idle or now_ms - self._stored_ms < REMEMBERED_MS
