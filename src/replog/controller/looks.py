"""Levels of the store that a controller looks at: by which path a watch says so, and which of them can wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from replog.controller.rows import ROWS
from replog.metadata import judgements, layout

__all__ = ["LATER", "LOOKS", "ONCE", "WISHED", "looks_at"]

WISHED: Final = (layout.REJECTED, layout.DELETE_TOPICS, *ROWS)
"""Wishes, and those that were rejected: whoever rejects one is to know of those that are kept."""
LOOKS: Final = {
    "seat": layout.CONTROLLER,
    "brokers": layout.BROKER_IDS,
    "topics": layout.TOPICS,
    **{row: row for row in WISHED},
}
"""What can be looked at, and the path whose watch says so."""
ONCE: Final = {"removed": layout.REMOVED, "draining": layout.DRAINING, "losses": judgements.LOSSES}
"""What controllers alone write: read when a term begins, and again only if the store did not give out all of it then."""
LATER: Final = ("topics", *ONCE, *WISHED)
"""Looks that wait until nothing urgent is left."""


def looks_at(path: str) -> Iterator[str]:
    """What to look at when the watch on a path has fired."""
    return (what for what, watched in LOOKS.items() if path == watched or (what in ROWS and path.startswith(f"{watched}/")))
