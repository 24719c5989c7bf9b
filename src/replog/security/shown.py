"""URLs as messages and logs may show them: what could be a password in one is left out, also where it has no business to be."""

from __future__ import annotations

import os
import re
from typing import Final

__all__ = ["is_place", "shown", "shown_with_port"]

_USER: Final = re.compile(r"^(\s*[a-z][a-z0-9+.-]*://)?.*@", re.DOTALL | re.IGNORECASE)
"""Only a scheme is kept: any other // may stand in a password."""
_USER_OF_A_FILE: Final = re.compile(r"(//)[^/]*@")
"""Behind the third slash stands a path, in which an @ means nothing."""
_AUTHORITY: Final = re.compile(r"(?:\s*[a-z][a-z0-9+.-]*:/{1,3})?(?P<hosts>[^/?#]*)", re.IGNORECASE)
_PORT: Final = re.compile(r"\[[0-9a-fA-F:.%]*\]|:(?P<port>[^:,]*)")
_PLAIN: Final = frozenset({"session_ms", "secure", "authority", "certificate", "key"})
"""Options whose values are no secrets: the last three name files."""
_PLAIN_OF_A_FILE: Final = frozenset({"session_ms"})
"""A store in a file, or in memory, has no other option: what looks like one may be anything."""


def shown_with_port(url: str) -> str:
    """The URL without what stands before an @, and without the values of options that may be secrets; for what names a bad port itself.

    >>> shown_with_port("zookeeper://user:pa/ss@zk1:2181/replog?password=x&session_ms=9000")
    'zookeeper://***@zk1:2181/replog?password=***&session_ms=9000'
    >>> shown_with_port("file:///store.db?key=x&session_ms=9000")
    'file:///store.db?key=***&session_ms=9000'
    """
    user = _USER_OF_A_FILE if url.lower().startswith("file:") else _USER
    head, mark, query = user.sub(r"\1***@", url).partition("?")
    plain = _PLAIN_OF_A_FILE if url.lower().lstrip().startswith(("file:", "memory:")) else _PLAIN
    return head + mark + "&".join(_option(one, plain) for one in query.split("&")) if query else head + mark


def shown(url: str) -> str:
    """The URL without what may be a secret.

    That is what stands before an @, the values of some options, and all from the first thing on that stands where a port should and is no
    number: a password of which the end with the @ was forgotten.

    >>> shown("zookeeper://user:pass/replog")
    'zookeeper://user:***'
    """
    url = shown_with_port(url)
    if url.lower().startswith("file:"):
        return url
    authority = _AUTHORITY.match(url)
    assert authority is not None
    for found in _PORT.finditer(authority["hosts"]):
        if found["port"] and not found["port"].isdecimal():
            return f"{url[: authority.start('hosts') + found.start()]}:***"
    return url


def is_place(path: str) -> bool:
    """Whether it says where a file is, or could be: it is there, or at least its folder. Anything else may be a secret in its place."""
    folder = os.path.dirname(path)
    try:
        return os.path.lexists(path) or (folder.strip("/") != "" and os.path.isdir(folder))
    except ValueError:  # no name at all
        return False


def _option(text: str, plain: frozenset[str]) -> str:
    name, equals, value = text.partition("=")
    if not equals:
        return "***"
    is_plain = name in plain or (name == "auth" and plain is _PLAIN and is_place(value))
    return f"{name}={value if is_plain else '***'}"
