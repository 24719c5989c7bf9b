"""Feature levels: what the members of a cluster may write, so that brokers of two versions can stand side by side (KIP-584).

A cluster has one level, in its record in the metadata store. A broker supports a range of levels: it *reads* all that these bring, and
*writes* what the level of the cluster allows. So whatever is new to a level is written nowhere before every broker can read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

__all__ = ["BRINGS", "FEATURE_LEVEL_MAX", "FEATURE_LEVEL_MIN", "FIRST", "SUPPORTED", "Levels", "unfit", "unsupported"]

FEATURE_LEVEL_MIN: Final = 1
"""The oldest level that this version still serves."""
FEATURE_LEVEL_MAX: Final = 1
"""The newest one; a cluster that is made anew starts there."""

BRINGS: Final[Mapping[int, str]] = {
    1: "everything up to the first release",
}
"""What may be written from a level on that may not be written below it."""


class Levels(NamedTuple):
    """A range of feature levels, both ends included."""

    low: int
    high: int

    def __str__(self) -> str:
        return f"level {self.low}" if self.low == self.high else f"levels {self.low} to {self.high}"


FIRST: Final = Levels(1, 1)
"""What a broker supports whose registration names no levels."""
SUPPORTED: Final = Levels(FEATURE_LEVEL_MIN, FEATURE_LEVEL_MAX)
"""By this version."""


def unfit(level: int, supports: Levels) -> str | None:
    """Why a broker that supports these levels may not serve in a cluster of that one, and what to do; None: it may."""
    if level > supports.high:
        return f"the cluster has feature level {level}; this version of replog supports {supports}: start a newer version"
    if level < supports.low:
        until = f"start a version that supports level {level}, and raise the cluster to {supports.low} with it first"
        return f"the cluster has feature level {level}; this version of replog supports {supports}: {until}"
    return None


def unsupported(level: int, brokers: Mapping[int, Levels]) -> str | None:
    """Why a cluster of these brokers may not be raised to a level: who does not support it; None: it may be."""
    short = [f"broker {broker_id} ({brokers[broker_id]})" for broker_id in sorted(brokers) if unfit(level, brokers[broker_id])]
    return f"feature level {level} is not supported by {', '.join(short)}" if short else None
