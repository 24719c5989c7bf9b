"""What is damaged, or cannot be read or decoded, as lines and as plain values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from replog.cli.copies import Damage, Unread
from replog.cli.output import Output
from replog.cli.undecodable import Undecodable, plain_undecodable

__all__ = ["plain_damage", "plain_unread", "tell", "tell_all"]


def tell(output: Output, wrong: Damage | Unread | Undecodable) -> None:
    """One place."""
    if isinstance(wrong, Unread):
        if output.is_json:
            output.json({"unreadable": plain_unread(wrong)})
        else:
            output.line(f"UNREADABLE: {wrong}")
    elif isinstance(wrong, Undecodable):
        if output.is_json:
            output.json({"undecodable": plain_undecodable(wrong)})
        else:
            output.line(f"UNDECODABLE: {wrong}")
    elif output.is_json:
        output.json({"damage": plain_damage(wrong)})
    else:
        output.line(f"DAMAGED: {wrong}")


def tell_all(output: Output, found: Iterable[Damage | Unread | Undecodable]) -> bool:
    """Each of them; returns whether there is any."""
    told = False
    for one in found:
        tell(output, one)
        told = True
    return told


def plain_damage(damage: Damage) -> dict[str, Any]:
    """As JSON has it."""
    return {"file": damage.file, "position": damage.position, "reason": damage.reason}


def plain_unread(one: Unread) -> dict[str, Any]:
    """As JSON has it."""
    return {"file": one.file, "reason": one.reason}
