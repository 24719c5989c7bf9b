"""What is wrong with a partition, in the terms that operators have alarms for."""

from __future__ import annotations

from typing import Final, Protocol

from replog.config import default_min_isr

__all__ = ["MEANINGS", "WRONG", "Partition", "troubles"]

WRONG: Final = {
    "leaderless": "without a leader: nothing can be read or appended",
    "under_min_isr": "with fewer replicas in sync than min_isr: acks=all is refused",
    "under_replicated": "with fewer replicas in sync than they have",
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


def troubles(p: Partition, min_isr: int | None) -> set[str]:
    """Those of MEANINGS that hold; `min_isr` as the topic's configuration says, None or 0 where it says nothing.

    A partition whose replicas are just min_isr is at it while everything is well, as in Kafka's metrics.
    """
    least = min_isr or default_min_isr(len(p.replicas))
    holds = {
        "leaderless": p.leader is None,
        "under_min_isr": len(p.isr) < least,
        "at_min_isr": len(p.isr) == least,
        "under_replicated": len(p.isr) < len(p.replicas),
    }
    return {kind for kind, so in holds.items() if so}
