"""Types of arguments that the command lines of `replog.testing` share, for `add_argument(type=...)`."""

from __future__ import annotations

__all__ = ["natural", "positive"]


def positive(text: str) -> int:
    """A whole number of 1 or more. ValueError otherwise, of which argparse makes a refusal that names this function and the text."""
    return _at_least(1, text)


def natural(text: str) -> int:
    """A whole number of 0 or more. ValueError otherwise, as of `positive`."""
    return _at_least(0, text)


def _at_least(least: int, text: str) -> int:
    number = int(text)
    if number < least:
        raise ValueError(f"{number} is less than {least}")
    return number
