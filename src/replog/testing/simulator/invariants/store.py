"""What controllers write: one step at a time, under their own epoch."""

from __future__ import annotations

from replog.metadata.judgements import LossRecord
from replog.model import PartitionState
from replog.testing.simulator.invariants.base import Copies, Invariant
from replog.testing.simulator.ledger import Ledger

__all__ = ["LossesAreRecorded", "MovesAreComplete", "OnlyTheSeatWrites", "StatesAreSound"]


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


class MovesAreComplete(Invariant):
    """Replicas from before a reassignment leave only once all of its target is in sync; whoever is left is never out of service for it."""

    name = "S24"
    source = "KIP-455, KAFKA-15665; V3 F"
    protocol = ("I23",)

    def stored(self, ledger: Ledger, copies: Copies, before: PartitionState | None) -> None:
        """Compare with the assignment before."""
        state, then, now = ledger.state, ledger.assigned_before, ledger.assignment
        if state is None or state is before or before is None or then is None or now is None or then == now:
            return
        original = then.original or then.replicas
        if any(r in original and r not in now.replicas for r in then.replicas) and not set(now.replicas) <= set(state.isr):
            self.fail(ledger, f"{then} becomes {now} with ISR {state.isr}")
        if now.replicas == then.original and not state.isr and not set(then.replicas) <= set(now.replicas):
            self.fail(ledger, f"{then} goes back to {now}, and nobody there was in sync: {before}, {state}")


def _arrives(ledger: Ledger, state: PartitionState) -> bool:
    """Whether who leads now joins with the end of a move."""
    return state.leader in state.isr and ledger.assigned_before != ledger.assignment


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
        self._members(ledger, state)
        if before is None:
            return
        ends = before.recovering and not state.recovering and ledger.assigned_before == ledger.assignment  # else a move ends as well
        if ends and (state.leader is None or state.leader_epoch != before.leader_epoch):
            self.fail(ledger, f"{before} was recovering; its leader alone may end that: {state}")
        if state.leader == before.leader:
            return
        if state.leader_epoch != before.leader_epoch + 1:
            self.fail(ledger, f"leader {before.leader} of epoch {before.leader_epoch}, then {state.leader} of {state.leader_epoch}")
        known = state.leader is None or state.leader in (*before.isr, *before.elr) or _arrives(ledger, state)
        if not known and not state.recovering:  # else S26 looks
            self.fail(ledger, f"leader {state.leader} was in neither ISR {before.isr} nor ELR {before.elr}")

    def _members(self, ledger: Ledger, state: PartitionState) -> None:
        if not set(state.isr) <= set(ledger.replicas) or not set(state.elr) <= set(ledger.replicas):
            self.fail(ledger, f"ISR {state.isr} and ELR {state.elr} of replicas {ledger.replicas}")
        if set(state.isr) & set(state.elr) or (state.leader is not None and state.leader not in state.isr):
            self.fail(ledger, f"leader {state.leader}, ISR {state.isr}, ELR {state.elr}")
        if state.recovering and len(state.isr) > 1:
            self.fail(ledger, f"the leader is recovering, and not alone in its ISR: {state}")
        if 0 < state.min_isr <= len(state.isr) and (state.elr or state.last_known):
            self.fail(ledger, f"ISR {state.isr} is enough for min ISR {state.min_isr}; ELR {state.elr}, last known {state.last_known}")


class LossesAreRecorded(Invariant):
    """Who was neither in the ISR nor eligible leads only by an election that may lose something: it is stored, with all who were asked.

    That happens only to partitions of which nobody complete is left. Either everybody who was, last, has said how far its log reaches,
    and the longest leads. Or somebody is elected without that, where the topic allows it or a person has asked for it, and nobody who
    was complete could lead, as far as the controller knew; unless a move is taken back, to where they are not.
    """

    name = "S26"
    source = "KIP-966 (unclean recovery), KIP-704"
    protocol = ("I24", "I25")

    def stored(self, ledger: Ledger, copies: Copies, before: PartitionState | None) -> None:
        """Compare with what the same transaction has recorded."""
        state = ledger.state
        if state is None or before is None or state is before or not state.recovering or state.leader is None:
            return
        if state.leader_epoch == before.leader_epoch:
            return
        loss = ledger.loss
        recorded = loss is not None and (loss.leader, loss.leader_epoch) == (state.leader, state.leader_epoch)
        if before.recovering and not recorded and (state.leader in (*before.isr, *before.elr) or _arrives(ledger, state)):
            return  # it recovers under another leader
        if loss is None or not recorded:
            self.fail(ledger, f"leader {state.leader} of epoch {state.leader_epoch} may lack something, and recorded is {loss}")
        if loss.kind == "unclean":
            self._unclean(ledger, loss, before)
            return
        if loss.kind != "last_known" or before.isr or before.elr:
            self.fail(ledger, f"{loss} with ISR {before.isr} and ELR {before.elr}: only the last known may be asked, and there are others")
        reaches = {one.broker: (one.last_epoch, one.end_offset) for one in loss.candidates}
        if not set(before.last_known) <= set(reaches) or reaches.get(loss.leader) != max(reaches.values()):
            self.fail(ledger, f"{loss}; {before.last_known} had to be asked, and the longest to lead")
        if ledger.longer:
            self.fail(ledger, f"{loss}; brokers {ledger.longer} hold more of what was committed")

    def _unclean(self, ledger: Ledger, loss: LossRecord, before: PartitionState) -> None:
        if not ledger.is_unclean_allowed:
            self.fail(ledger, f"{loss} with ISR {before.isr} and ELR {before.elr}: nobody allows an unclean election")
        if ledger.able and ledger.assigned_before == ledger.assignment:
            self.fail(ledger, f"{loss}, and brokers {ledger.able} of ISR {before.isr} and ELR {before.elr} could lead")
        if not {loss.leader, *loss.missing, *(one.broker for one in loss.candidates)} >= set(ledger.replicas):
            self.fail(ledger, f"{loss} does not say of all replicas {ledger.replicas} whether they were there")
