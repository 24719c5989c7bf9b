"""Bugs of the in-sync replicas: who counts while a proposal is under way, and who may join."""

from __future__ import annotations

from typing import Any

import attrs
from tests.simulation.mutants.entry import Mutant, Patch
from tests.simulation.mutants.followers import SAFETY

from replog.controller import controller as controller_module
from replog.controller import isr_change as isr_change_module
from replog.errors import Code
from replog.partition import isr as isr_module
from replog.partition import leading as leading_module
from replog.partition.isr import Committed, PendingExpand, PendingShrink
from replog.partition.leading import Leading
from replog.partition.partition import Partition
from replog.partition.replica import UNKNOWN, Replica

__all__ = ["MUTANTS"]

FOUR: dict[str, Any] = {
    "brokers": 4, "replicas": 4, "min_isr": 2, "partitions": 1, "clients": 3, "flush": "os", "files": False, "workloads": ("append",),
    "drop": 0.0, "slow": 0.0, "delay_ms": 50, "lag_ms": 500, "session_ms": 1_500, "think_ms": 20,
}
"""A follower that has just left the ISR is ahead of the high watermark that the next leader knows."""
HASTY: dict[str, Any] = {
    "brokers": 3, "replicas": 3, "min_isr": 2, "partitions": 1, "clients": 1, "flush": "os", "files": False, "workloads": ("append",),
    "drop": 0.05, "repeat": 0.1, "slow": 0.3, "slow_ms": 2_000, "delay_ms": 50, "session_ms": 1_500, "lag_ms": 500, "think_ms": 800,
}
SMALL: dict[str, Any] = {
    "brokers": 3, "replicas": 3, "partitions": 1, "clients": 1, "min_isr": 2, "flush": "os", "files": False, "workloads": ("append",),
    "lag_ms": 500, "session_ms": 1_500, "slow": 0.1, "slow_ms": 2_000, "think_ms": 20,
}
OVERTAKING: dict[str, Any] = {
    "brokers": 3, "replicas": 3, "min_isr": 2, "partitions": 1, "clients": 2, "flush": "os", "files": False, "workloads": ("append",),
    "lag_ms": 500, "drop": 0.05, "repeat": 0.1, "delay_ms": 50, "slow": 0.05, "slow_ms": 2_000, "think_ms": 20,
}
CALM: dict[str, Any] = {"brokers": 3, "replicas": 3, "min_isr": 2, "partitions": 1, "files": False, "workloads": ("append",)}
CLOSE = 10


def assumes_its_shrink(patch: Patch) -> None:
    """The high watermark counts the smaller ISR before the store has it."""
    patch.setattr(PendingShrink, "maximal_isr", property(lambda self: self.proposed))


def forgets_its_expansion(patch: Patch) -> None:
    """The high watermark counts the old ISR while a larger one may be stored."""
    patch.setattr(PendingExpand, "maximal_isr", property(lambda self: self.isr))


def accepts_any_version(patch: Patch) -> None:
    """The controller stores what any broker that leads, or once led, proposes: no comparison of epochs or versions."""
    refusal = isr_change_module._refusal

    def mutant(entry: Any, sender: int, state: Any, replicas: Any, brokers: Any) -> int:
        entry = attrs.evolve(entry, leader_epoch=state.leader_epoch, partition_epoch=state.partition_epoch)
        return refusal(entry, state.leader, state, replicas, brokers)

    patch.setattr(isr_change_module, "_refusal", mutant)


def joins_below_the_epoch(patch: Patch) -> None:
    """A replica joins the ISR although it may miss what the last leader committed, and however far behind it is in time."""

    def mutant(self: Leading, replica: Replica, now_ms: int) -> str | None:
        why = isr_module.refusal_to_join(replica, self.brokers, high_watermark=self.high_watermark, epoch_start=0)
        if why is None and not self.has_enough_replicas and self._lags(replica, now_ms):
            return "the ISR is below min_isr, and it lags"
        return why

    patch.setattr(Leading, "refusal", mutant)


def joins_below_the_high_watermark(patch: Patch) -> None:
    """A replica joins the ISR although it misses what this leader has committed."""
    refusal = leading_module.refusal_to_join

    def mutant(replica: Replica, brokers: Any, *, high_watermark: int, epoch_start: int) -> str | None:
        return refusal(replica, brokers, high_watermark=0, epoch_start=epoch_start)

    patch.setattr(leading_module, "refusal_to_join", mutant)


def joins_by_distance(patch: Patch) -> None:
    """A replica joins when it is less than so much ahead of the slowest member: behind it, it always is."""
    refusal = leading_module.refusal_to_join

    def mutant(self: Leading, replica: Replica, now_ms: int) -> str | None:
        slowest = min([self.log.end_offset, *(one.end_offset for one in self.counted)])
        if replica.end_offset == UNKNOWN or replica.end_offset - slowest >= CLOSE:
            return "it is too far away"
        reached = _by_fetches(replica)
        return refusal(reached, self.brokers, high_watermark=0, epoch_start=0)

    patch.setattr(Leading, "refusal", mutant)


def _by_fetches(replica: Replica) -> Replica:
    """A replica as far as it has come by fetching, flushed or not."""
    copy = Replica(replica.broker_id, replica.caught_up_ms)
    copy.broker_epoch = replica.broker_epoch
    copy.position = copy.end_offset = replica.end_offset
    return copy


def forgets_broker_epochs(patch: Patch) -> None:
    """A broker that came back with an empty disk joins by what its earlier life had fetched."""
    isr_change = controller_module.change_isr

    def mutant(entry: Any, *args: Any, **given: Any) -> Any:
        members = [(b, given["brokers"][b].broker_epoch if b in given["brokers"] else epoch) for b, epoch in entry.isr]
        return isr_change(attrs.evolve(entry, isr=members), *args, **given)

    patch.setattr(controller_module, "change_isr", mutant)
    patch.setattr(Leading, "forget_life", lambda self, broker_id, broker_epoch, now_ms, *, ended=False: None)


def ignores_min_isr(patch: Patch) -> None:
    """Records commit with fewer replicas than min_isr."""
    update = Leading.update

    def mutant(self: Leading, *args: Any) -> None:
        update(self, *args)
        self.effective_min_isr = 0
        self.has_enough_replicas = True

    patch.setattr(Leading, "update", mutant)


def proposes_the_fenced(patch: Patch) -> None:
    """A leader asks for a broker that it knows to be fenced, and asks again as soon as it was refused."""
    refusal = leading_module.refusal_to_join
    answered = Leading.answered

    def mutant(replica: Replica, brokers: Any, **bounds: int) -> str | None:
        unfenced = {b: attrs.evolve(info, fenced=False) for b, info in brokers.items()}
        return refusal(replica, unfenced, **bounds)

    def impatient(self: Leading, proposal: Any, result: Any, now_ms: int) -> bool:
        changed = answered(self, proposal, result, now_ms)
        self.retry_at_ms = 0
        return changed

    patch.setattr(leading_module, "refusal_to_join", mutant)
    patch.setattr(Leading, "answered", impatient)


def keeps_its_version(patch: Patch) -> None:
    """A leader that leads on learns no newer partition epoch, neither from notices nor from refusals."""
    become, answered = Partition.become, Leading.answered

    def mutant(self: Partition, notice: Any, now_ms: int) -> int:
        if self.leading is not None and notice.state.leader_epoch == self.leader_epoch:
            return Code.NONE
        return become(self, notice, now_ms)

    def deaf(self: Leading, proposal: Any, result: Any, now_ms: int) -> bool:
        return answered(self, proposal, result if not result.error else attrs.evolve(result, state=None), now_ms)

    patch.setattr(Partition, "become", mutant)
    patch.setattr(Leading, "answered", deaf)


def takes_proposed_for_enough(patch: Patch) -> None:
    """The high watermark moves as soon as the proposed ISR would be large enough."""
    settle = Leading._settle

    def mutant(self: Leading, isr: Any) -> None:
        settle(self, isr)
        self.has_enough_replicas = len(isr.maximal_isr) >= self.effective_min_isr

    patch.setattr(Leading, "_settle", mutant)


def drops_pending(patch: Patch) -> None:
    """Any error answer to a proposal counts as proof that it was not stored."""
    answered = Leading.answered

    def mutant(self: Leading, proposal: Any, result: Any, now_ms: int) -> bool:
        if self.isr is proposal and result.error:
            self._settle(Committed(proposal.isr))
            return True
        return answered(self, proposal, result, now_ms)

    patch.setattr(Leading, "answered", mutant)


MUTANTS = (
    Mutant(
        "M03", "the high watermark counts the ISR that was proposed", "KIP-497", assumes_its_shrink,
        ("S4",), scenarios=("P-21",), explored=True,
    ),
    Mutant(
        "M04", "the high watermark counts the old ISR while it grows", "KIP-497", forgets_its_expansion,
        ("S4",), scenarios=("P-22b",), explored=True,
    ),
    Mutant(
        "M07", "the ISR is written without comparing versions", "V3 discussion 3", accepts_any_version,
        (*SAFETY, "S4", "S15"), {"only": ("cut", "isolate", "slow_link", "lag", "churn"), **SMALL}, scenarios=("P-20", "P-38"),
    ),
    Mutant(
        "M09", "joining needs the high watermark alone, not the start of the epoch", "KIP-320, KAFKA-7128", joins_below_the_epoch,
        SAFETY, {"only": ("lag", "expire"), **FOUR}, scenarios=("P-24",), explored=True,
    ),
    Mutant(
        "P-25", "joining needs the start of the epoch alone, not the high watermark", "Kip320 rule 4", joins_below_the_high_watermark,
        SAFETY, scenarios=("P-25",),
    ),
    Mutant(
        "M15", "an expansion does not compare broker epochs", "KIP-903", forgets_broker_epochs,
        SAFETY, {"only": ("wipe", "power", "slow_link", "cut_one_way"), **HASTY}, scenarios=("P-28",), explored=True,
    ),
    Mutant(
        "M18", "records commit below min_isr", "KIP-966", ignores_min_isr, ("S4",), scenarios=("P-35",), explored=True,
    ),
    Mutant(
        "M19", "who is near the slowest member, or behind it, joins", "V3 G", joins_by_distance, (*SAFETY, "S4"), scenarios=("P-37",),
    ),
    Mutant(
        "P-27", "a leader asks for fenced brokers, again and again", "KIP-841", proposes_the_fenced,
        ("S21",), {"only": ("expire", "kill", "store", "pause", "slow_store"), **CALM}, scenarios=("P-27",),
    ),
    Mutant(
        "P-38", "a leader never learns a newer partition epoch", "KAFKA-1382, KAFKA-2729", keeps_its_version,
        ("L2", "L3", "L4", "S4"), scenarios=("P-38",),
    ),
    Mutant(
        "P-43", "the proposed ISR counts towards min_isr", "KAFKA-15583", takes_proposed_for_enough, ("S4",), scenarios=("P-43",),
    ),
    Mutant(
        "M23", "an error answer drops the pending ISR", "own", drops_pending,
        ("S4",), {"only": ("lag", "slow_link", "cut_one_way", "cut"), **OVERTAKING},
        scenarios=("P-23", "P-29"), explored=True,
    ),
)
