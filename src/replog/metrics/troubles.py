"""What is wrong with a partition, in the terms that operators have alarms for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from replog.config import default_min_isr

__all__ = ["MEANINGS", "WRONG", "Partition", "found", "troubles"]

WRONG: Final = {
    "leaderless": "without a leader: nothing can be read or appended",
    "under_min_isr": "with fewer replicas in sync than min_isr: acks=all is refused",
    "under_replicated": "with fewer replicas in sync than they should have",
}
"""What makes a cluster unhealthy."""
MEANINGS: Final = {**WRONG, "at_min_isr": "with just min_isr replicas in sync: acks=all is refused when one more leaves"}


class Partition(Protocol):
    """What a view and a description have in common."""

    @property
    def leader(self) -> int | None: ...
    @property
    def replicas(self) -> tuple[int, ...]: ...
    @property
    def isr(self) -> tuple[int, ...]: ...
    @property
    def adding(self) -> tuple[int, ...]: ...


def troubles(p: Partition, min_isr: int | None) -> set[str]:
    """Those of MEANINGS that hold; `min_isr` as the topic's configuration says, None or 0 where it says nothing."""
    wanted = len(p.replicas) - len(p.adding)
    return set(found(p.leader, wanted, p.isr, min_isr or default_min_isr(wanted)))


def found(leader: int | None, wanted: int, isr: Sequence[int], least: int) -> list[str]:
    """Those of MEANINGS that hold where `least` replicas must be in sync, and `wanted` should be: those that a move adds are not missed
    (KIP-352).

    A partition whose replicas are just min_isr is at it while everything is well, as in Kafka's metrics.
    """
    count = len(isr)
    kinds = ["leaderless"] if leader is None else []
    if count <= least:
        kinds.append("at_min_isr" if count == least else "under_min_isr")
    if count < wanted:
        kinds.append("under_replicated")
    return kinds
