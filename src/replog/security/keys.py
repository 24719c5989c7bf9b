"""The keys of a table of settings: one that nobody knows is a mistake, and is told as that."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

from replog.errors import UsageError

__all__ = ["check_keys"]


def check_keys(table: str, given: Mapping[str, Any], known: Collection[str]) -> None:
    """UsageError if a table, of this name for people, has a key that is not known; it names the nearest of those that are, or all."""
    for key in given:
        if key not in known:
            near = get_close_matches(str(key), known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known)}"
            raise UsageError(f"{table} has no {key!r:.80}; {hint}")
