"""URLs as messages and logs may show them: what could be a password in one is left out, also where it has no business to be."""

from __future__ import annotations

import os
import re
from typing import Final

__all__ = ["is_place", "shown"]

_USER: Final = re.compile(r"^(\s*[a-z][a-z0-9+.-]*://)?.*@", re.DOTALL | re.IGNORECASE)
"""Only a scheme is kept: any other // may stand in a password."""
_USER_OF_A_FILE: Final = re.compile(r"(//)[^/]*@")
"""Behind the third slash stands a path, in which an @ means nothing."""
_PLAIN: Final = frozenset({"session_ms", "secure", "authority", "certificate", "key"})
"""Options whose values are no secrets."""


def shown(url: str) -> str:
    """The URL without what stands before an @, and without the values of options that may be secrets.

    >>> shown("zookeeper://user:pa/ss@zk1:2181/replog?password=x&session_ms=9000")
    'zookeeper://***@zk1:2181/replog?password=***&session_ms=9000'
    """
    user = _USER_OF_A_FILE if url.lower().startswith("file:") else _USER
    head, mark, query = user.sub(r"\1***@", url).partition("?")
    return head + mark + "&".join(map(_option, query.split("&"))) if query else head + mark


def is_place(path: str) -> bool:
    """Whether it says where a file is, or could be: it is there, or at least its folder. Anything else may be a secret in its place."""
    folder = os.path.dirname(path)
    try:
        return os.path.lexists(path) or (folder not in ("", "/") and os.path.isdir(folder))
    except ValueError:  # no name at all
        return False


def _option(text: str) -> str:
    name, equals, value = text.partition("=")
    if not equals:
        return "***"
    is_plain = name in _PLAIN or (name == "auth" and is_place(value))
    return f"{name}={value if is_plain else '***'}"
