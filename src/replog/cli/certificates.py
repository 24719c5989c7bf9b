"""`replog cert`: a small authority in a folder, and certificates that say who may be what."""

from __future__ import annotations

from pathlib import Path

from replog.cli.context import Context
from replog.cli.exits import OK
from replog.security.authority import make_missing

__all__ = ["cert"]


def cert(context: Context) -> int:
    """Make what is missing; names the files that were made, and those that were there. If anything is in the way, nothing is made."""
    asked = context.arguments
    pairs = make_missing(Path(asked.folder), dict.fromkeys(asked.names), days=asked.days)
    for name, pair in zip(["authority", *dict.fromkeys(asked.names)], pairs, strict=True):
        if context.output.is_json:
            context.output.json({"name": name, "certificate": str(pair.certificate), "key": str(pair.key), "made": pair.is_new})
        else:
            were_there = "" if pair.is_new else ", were there"
            context.output.line(f"{name}: {pair.certificate}, and its key {pair.key.name}{were_there}")
    return OK
