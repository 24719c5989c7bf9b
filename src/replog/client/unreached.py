"""Who was not reached when last tried: people read it behind what was waited for."""

from __future__ import annotations

from collections.abc import Mapping

from replog.model import Address

__all__ = ["whom_not_reached"]


def whom_not_reached(unreached: Mapping[Address, str]) -> str:
    """Who was not reached and why, to be put behind what was waited for; empty if everybody was."""
    names = [f"{f'broker {who}' if isinstance(who, int) else who} ({why})" for who, why in unreached.items()]
    return f"; not reached: {', '.join(names)}" if names else ""
