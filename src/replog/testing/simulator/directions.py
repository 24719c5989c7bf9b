"""Directed draws: whole series of runs with only some kinds of faults, or of another length, for bars that name them (R15, R27)."""

from __future__ import annotations

from itertools import cycle
from typing import Final

from attrs import evolve

from replog.testing.simulator.kinds import check_names
from replog.testing.simulator.plan import UNCLEAN, Plan, draw

__all__ = ["DIRECTIONS", "LONG_MS", "draw_directed"]

_DEATHS: Final = ("power", "kill", "kill_all", "flush")

DIRECTIONS: Final[dict[str, str]] = {
    "power-all": 'every broker loses power at once; flush="ack", so nothing acknowledged may be missing',
    "power-some": 'min_isr - 1 brokers lose power at once, and what they had not flushed; flush="os"',
    "unclean": "elections may lose something, and do: topics allow unclean ones, or a person asks for them",
    "long": "one cluster for an hour of virtual time, with a fault a minute",
}
"""Name -> what befalls the cluster."""
LONG_MS: Final = 3_600_000
_PAUSE_MS: Final = 60_000


def draw_directed(seed: int, direction: str = "") -> Plan:
    """The plan of a seed in a series; "" is the general one. Raises UsageError for a direction that there is not."""
    if not direction:
        return draw(seed)
    check_names("direction", [direction], DIRECTIONS)
    if direction == "power-all":
        return draw(seed, only=("power_all", *_DEATHS), flush="ack")
    if direction == "power-some":
        return draw(seed, only=("power_some", *_DEATHS), flush="os", min_isr=2 + seed % 2)
    if direction == "unclean":
        return draw(seed, unclean=UNCLEAN[1 + seed % (len(UNCLEAN) - 1)])
    return _lengthened(draw(seed, retention_bytes=32_768, think_ms=800))  # what a run has to look at does not grow with it


def _lengthened(plan: Plan) -> Plan:
    """The same shape for an hour: its faults come one by one, and again from the first."""
    if not plan.faults:
        return evolve(plan, safety_ms=LONG_MS)
    faults = cycle(plan.faults)
    turns = [evolve(next(faults), at_ms=turn * _PAUSE_MS + 7 * turn) for turn in range(1, LONG_MS // _PAUSE_MS)]
    return evolve(plan, safety_ms=LONG_MS, faults=tuple(turns))
