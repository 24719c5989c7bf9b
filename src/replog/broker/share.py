"""How much of what all clients share one of them may have."""

from __future__ import annotations

__all__ = ["share_of"]


def share_of(places: int) -> int:
    """Half of `places`, so that nobody takes them all and others find room; one at least: of a single place half would be none.

    Of the places of those who wait, whoever has an address of its own may have so many: over TCP each connection. Of the room for what is
    put aside, which outlives connections, whoever has proven who it is, on all its connections together.

    >>> share_of(7), share_of(1)
    (3, 1)
    """
    return max(1, places // 2)
