"""Directed draws: whole series of runs with only some kinds of faults, for bars that name them (RELIABILITY R15)."""

from __future__ import annotations

from typing import Final

from replog.testing.simulator.kinds import check_names
from replog.testing.simulator.plan import Plan, draw

__all__ = ["DIRECTIONS", "draw_directed"]

_DEATHS: Final = ("power", "kill", "kill_all", "flush")

DIRECTIONS: Final[dict[str, str]] = {
    "power-all": 'every broker loses power at once; flush="ack", so nothing acknowledged may be missing',
    "power-some": 'min_isr - 1 brokers lose power at once, and what they had not flushed; flush="os"',
}
"""Name -> what befalls the cluster."""


def draw_directed(seed: int, direction: str = "") -> Plan:
    """The plan of a seed in a series; "" is the general one. Raises UsageError for a direction that there is not."""
    if not direction:
        return draw(seed)
    check_names("direction", [direction], DIRECTIONS)
    if direction == "power-all":
        return draw(seed, only=("power_all", *_DEATHS), flush="ack")
    return draw(seed, only=("power_some", *_DEATHS), flush="os", min_isr=2 + seed % 2)
