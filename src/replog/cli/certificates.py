"""`replog cert`: a small authority in a folder, and certificates that say who may be what."""

from __future__ import annotations

from pathlib import Path

from replog.cli.context import Context
from replog.cli.exits import OK
from replog.security.authority import make_authority, make_certificate

__all__ = ["cert"]


def cert(context: Context) -> int:
    """Make what is missing; names the files that were made, or are there."""
    asked = context.arguments
    folder = Path(asked.folder)
    made = [make_authority(folder, days=asked.days), *(make_certificate(folder, name, days=asked.days) for name in asked.names)]
    for name, path in zip(["authority", *asked.names], made, strict=True):
        key = path.with_suffix(".key")
        if context.output.is_json:
            context.output.json({"name": name, "certificate": str(path), "key": str(key)})
        else:
            context.output.line(f"{name}: {path}, and its key {key.name}")
    return OK
