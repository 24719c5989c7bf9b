"""How many of the places for those who wait one peer may have."""

from __future__ import annotations

__all__ = ["share_of"]


def share_of(places: int) -> int:
    """Half of `places`, so that nobody takes them all and others find room; one at least: of a single place half would be none.

    A peer is whoever has an address of its own: over TCP each connection.

    >>> share_of(7), share_of(1)
    (3, 1)
    """
    return max(1, places // 2)
