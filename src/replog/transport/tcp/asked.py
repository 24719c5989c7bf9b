"""Whom to tell that a message was not sent after all: where that is known, nobody need count it as perhaps carried out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from replog.messages import DOUBTED
from replog.model import Address

__all__ = ["Asked", "asked_by"]


class Asked(NamedTuple):
    """Who is told if a message is not sent after all, whom it was to reach, and what it was."""

    sender: Address
    to: Address
    message: Any


def asked_by(sender: Address, to: Address, message: Any) -> Sequence[Asked]:
    """Who is to hear of it if `message` is not sent; empty: nobody would be in doubt."""
    return (Asked(sender, to, message),) if type(message) in DOUBTED else ()
