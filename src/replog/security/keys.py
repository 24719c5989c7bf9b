"""The keys of a table of settings: one that nobody knows is a mistake, and is told as that. What may be a secret is not shown."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any, Final

from replog.errors import UsageError

__all__ = ["check_keys", "shown_key"]

_WORD: Final = re.compile(r"[A-Za-z_-]{1,31}")
"""Shorter than any secret (`SECRET_BYTES_MIN`), and of fewer characters."""


def shown_key(key: object, kind: str = "a key", form: str = "{!r}") -> str:
    """The key in this form; or words of its kind, if it could be a secret.

    >>> shown_key("autority")
    "'autority'"
    >>> shown_key("9f86d081884c7d659a2feaa0c55ad015")
    'a key (not shown: it may be a secret)'
    """
    may_show = _WORD.fullmatch(key) if isinstance(key, str) else isinstance(key, int)
    return form.format(key) if may_show else f"{kind} (not shown: it may be a secret)"


def check_keys(table: str, given: Mapping[str, Any], known: Collection[str]) -> None:
    """UsageError if a table, of this name for people, has a key that is not known; it names the nearest of those that are, or all."""
    for key in given:
        if key not in known:
            text = shown_key(key, "such key")
            near = get_close_matches(str(key), known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known)}"
            raise UsageError(f"{table} has no {text}; {hint}")
