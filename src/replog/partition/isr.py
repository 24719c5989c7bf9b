"""The in-sync replicas: as committed, as proposed, who may join, and what they commit.

A proposal is a state, not a flag: whoever asks for the `maximal_isr` gets the largest set that the controller may have
stored by now, whichever of the three states the partition is in (KIP-497). That one property is what keeps the high
watermark safe while an answer is slow or lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from attrs import frozen

from replog.model import BrokerInfo
from replog.partition.replica import UNKNOWN, Replica

__all__ = ["CommitPolicy", "Committed", "InSyncCommit", "IsrChange", "IsrState", "PendingExpand", "PendingShrink", "refusal_to_join"]


@frozen
class Committed:
    """Nothing is proposed: the stored set."""

    isr: tuple[int, ...]

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """The largest set that may be stored: this one."""
        return self.isr


@frozen(eq=False)
class PendingExpand:
    """The leader has asked to add `joining`, and they count from the moment of asking (P-22)."""

    isr: tuple[int, ...]
    joining: tuple[int, ...]

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """The stored set and whoever may have joined it."""
        return self.isr + self.joining

    @property
    def proposed(self) -> tuple[int, ...]:
        """What was asked for."""
        return self.isr + self.joining

    @property
    def recovered(self) -> bool:
        """Whether the proposal ends the recovering state: it does not."""
        return False


@frozen(eq=False)
class PendingShrink:
    """The leader has asked to drop `leaving`, and they count until the answer has come (P-21).

    With `recovered` it also ends the recovering state after an unclean election (KIP-704); `leaving` may then be empty.
    """

    isr: tuple[int, ...]
    leaving: tuple[int, ...]
    recovered: bool = False

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """The stored set: whoever was asked to leave may still be in it."""
        return self.isr

    @property
    def proposed(self) -> tuple[int, ...]:
        """What was asked for."""
        return tuple(b for b in self.isr if b not in self.leaving)


IsrState = Committed | PendingExpand | PendingShrink
IsrChange = PendingExpand | PendingShrink


def refusal_to_join(
    replica: Replica,
    brokers: Mapping[int, BrokerInfo],
    *,
    high_watermark: int,
    epoch_start: int,
) -> str | None:
    """Why the replica may not join the ISR; None if it may (PROTOCOL section 1, rule 5).

    Both bounds are needed: below the high watermark it misses committed records (P-25), below the start of this
    leadership it may miss records committed by the last one (P-24, KAFKA-7128).
    """
    if replica.position == UNKNOWN:
        return "it has not fetched in this leader epoch" if replica.seen_end == UNKNOWN else "it has not fetched since its broker went"
    if replica.position < high_watermark:
        return f"it is at {replica.position}, below the high watermark {high_watermark}"
    if replica.position < epoch_start:
        return f"it is at {replica.position}, below the start of this leader epoch {epoch_start}"
    broker = brokers.get(replica.broker_id)
    if broker is None:
        return "its broker is not registered"
    if broker.fenced:
        return "its broker is fenced"
    if broker.draining:
        return "its broker is draining"
    if broker.broker_epoch != replica.broker_epoch:
        return f"its broker has restarted: epoch {broker.broker_epoch}, it fetched with {replica.broker_epoch}"
    return None


class CommitPolicy(Protocol):
    """When a record is committed. One small interface, because the ISR may not be the last word (PROTOCOL 4.14)."""

    def high_watermark(self, leader_end: int, counted: Sequence[Replica]) -> int:
        """The end of what is committed, given how far the leader and the counted replicas are."""


class InSyncCommit:
    """Committed is what every member of the maximal ISR has (V3 G, with KIP-497's set)."""

    def high_watermark(self, leader_end: int, counted: Sequence[Replica]) -> int:
        """The smallest position; an unknown one (-1) holds everything back."""
        committed = leader_end
        for replica in counted:
            if replica.position < committed:
                committed = replica.position
        return committed
