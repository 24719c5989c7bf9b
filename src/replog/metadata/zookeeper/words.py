"""What kazoo's errors are about, for people: their classes say it, and most have no text."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["spoken"]

_HUMP: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


def spoken(error: Exception) -> str:
    """`ConnectionLoss` is "connection loss"; what the error says follows."""
    words = _HUMP.sub(" ", type(error).__name__.removesuffix("Error")).lower()
    return f"{words}: {error}" if str(error) else words
