"""What controllers write: one step at a time, under their own epoch."""

from __future__ import annotations

from replog.model import PartitionState
from replog.testing.simulator.invariants.base import Copies, Invariant
from replog.testing.simulator.ledger import Ledger

__all__ = ["OnlyTheSeatWrites", "StatesAreSound"]


class OnlyTheSeatWrites(Invariant):
    """Every stored state was written under the controller epoch that was current then."""

    name = "S14"
    source = "KAFKA-6082, P-61"
    protocol = ("I15",)

    def signed(self, ledger: Ledger, controller_epoch: int) -> None:
        """Compare with the seat."""
        state = ledger.state
        assert state is not None
        if state.controller_epoch != controller_epoch:
            self.fail(ledger, f"a controller of epoch {state.controller_epoch} writes, the seat is at {controller_epoch}")


class StatesAreSound(Invariant):
    """A stored state follows from the one before by one step: version, ISR, ELR, leader."""

    name = "S15"
    source = "KIP-497, KIP-966; KafkaReplication.tla LeaderInIsr"
    protocol = ("I8", "I14")

    def stored(self, ledger: Ledger, copies: Copies, before: PartitionState | None) -> None:
        """Compare with the state before."""
        state = ledger.state
        assert state is not None
        if state is before:
            return
        if ledger.closed:
            self.fail(ledger, f"{state} is stored after the partition was removed")
        if state.partition_epoch != (0 if before is None else before.partition_epoch + 1):
            self.fail(ledger, f"partition epoch {state.partition_epoch} after {before}")
        if not set(state.isr) <= set(ledger.replicas) or not set(state.elr) <= set(ledger.replicas):
            self.fail(ledger, f"ISR {state.isr} and ELR {state.elr} of replicas {ledger.replicas}")
        if set(state.isr) & set(state.elr) or (state.leader is not None and state.leader not in state.isr):
            self.fail(ledger, f"leader {state.leader}, ISR {state.isr}, ELR {state.elr}")
        if before is None or state.leader == before.leader:
            return
        if state.leader_epoch != before.leader_epoch + 1:
            self.fail(ledger, f"leader {before.leader} of epoch {before.leader_epoch}, then {state.leader} of {state.leader_epoch}")
        if state.leader is not None and not state.recovering and state.leader not in (*before.isr, *before.elr):
            self.fail(ledger, f"leader {state.leader} was in neither ISR {before.isr} nor ELR {before.elr}")
