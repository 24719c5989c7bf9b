"""What errors say of values that may be anything."""

from __future__ import annotations

__all__ = ["number_text"]


def number_text(number: int) -> str:
    """A number in an error: Python makes no text of one with thousands of digits."""
    return str(number) if abs(number) < 1 << 128 else f"(a number of {number.bit_length()} bits)"
