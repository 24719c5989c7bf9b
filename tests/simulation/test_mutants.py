"""Guards of the protocol, each taken away by a patch: the simulator must notice every one of them within some seeds.

Numbers M.. are those of the catalogue of seeded bugs; the ones without a number are bugs that the simulator has found in
this code. What is easy to find is found in plans as they come, the rest in directed ones, with those faults alone that it
takes. Each case names the invariants that may speak first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from replog.broker.broker import Broker
from replog.broker.commands import Commands
from replog.broker.durability import FlushReports
from replog.broker.upkeep import Upkeep
from replog.broker.waiting import answer
from replog.controller import controller as controller_module
from replog.controller.cluster import Cluster
from replog.errors import Code
from replog.partition import leading as leading_module
from replog.partition import partition as partition_module
from replog.partition.following import Following
from replog.partition.isr import Committed, PendingExpand, PendingShrink
from replog.partition.leading import Leading
from replog.partition.partition import Partition
from replog.partition.replica import Replica
from replog.ports import Log
from replog.testing.simulator.plan import draw
from replog.testing.simulator.run import run

pytestmark = pytest.mark.simulation

Patch = pytest.MonkeyPatch


def truncates_to_high_watermark(patch: Patch) -> None:
    """M01: a follower drops what lies above its high watermark at each change of leader (KIP-101)."""
    become = Partition.become

    def mutant(self: Partition, notice: Any, now_ms: int) -> int:
        epoch = self.leader_epoch
        error = become(self, notice, now_ms)
        if not error and self.following is not None and self.leader_epoch > epoch:
            self.log.truncate_to(max(self.high_watermark, self.log.start_offset))
        return error

    patch.setattr(Partition, "become", mutant)


def acknowledges_at_append(patch: Patch) -> None:
    """M02: acks=all is answered as soon as the leader has the batch."""
    patch.setattr(Broker, "_acknowledge", lambda self, partition, append: answer(partition, append.request, 0, append.base_offset))


def assumes_its_shrink(patch: Patch) -> None:
    """M03: the high watermark counts the smaller ISR before the store has it (KIP-497)."""
    patch.setattr(PendingShrink, "maximal_isr", property(lambda self: self.proposed))


def forgets_its_expansion(patch: Patch) -> None:
    """M04: the high watermark counts the old ISR while a larger one may be stored."""
    patch.setattr(PendingExpand, "maximal_isr", property(lambda self: self.isr))


def fences_no_fetch(patch: Patch) -> None:
    """M05: a leader takes fetches of another epoch for acknowledgements (KIP-320)."""
    acknowledge = Partition.acknowledge

    def mutant(self: Partition, replica_id: int, broker_epoch: int, entry: Any, contact: Any, now_ms: int) -> Any:
        return acknowledge(self, replica_id, broker_epoch, attrs.evolve(entry, leader_epoch=self.leader_epoch), contact, now_ms)

    patch.setattr(Partition, "acknowledge", mutant)
    patch.setattr(Partition, "check_epoch", lambda self, leader_epoch: Code.NONE)


def applies_stale_notices(patch: Patch) -> None:
    """M06: a notice of an earlier epoch counts."""
    become = Partition.become

    def mutant(self: Partition, notice: Any, now_ms: int) -> int:
        self.leader_epoch = min(self.leader_epoch, notice.state.leader_epoch)
        self.partition_epoch = min(self.partition_epoch, notice.state.partition_epoch)
        return become(self, notice, now_ms)

    patch.setattr(Partition, "become", mutant)


def keeps_positions(patch: Patch) -> None:
    """M08: what followers acknowledged in an earlier leadership of the same process still counts."""
    lead = Partition._lead
    remembered: dict[Log, dict[int, int]] = {}
    acknowledge = Leading.acknowledge

    def noting(self: Leading, replica_id: int, *args: Any) -> Any:
        found = acknowledge(self, replica_id, *args)
        remembered[self.log] = {r.broker_id: r.position for r in self.replicas.values()}
        return found

    def mutant(self: Partition, state: Any, notice: Any, now_ms: int) -> None:
        lead(self, state, notice, now_ms)
        assert self.leading is not None
        for broker_id, position in remembered.get(self.log, {}).items():
            if broker_id in self.leading.replicas:
                self.leading.replicas[broker_id].position = min(position, self.log.end_offset)
        self._advance(now_ms)

    patch.setattr(Leading, "acknowledge", noting)
    patch.setattr(Partition, "_lead", mutant)


def joins_below_the_epoch(patch: Patch) -> None:
    """M09: a replica joins the ISR although it may miss what the last leader committed (KAFKA-7128)."""
    refusal = leading_module.refusal_to_join
    patch.setattr(
        leading_module,
        "refusal_to_join",
        lambda replica, brokers, *, high_watermark, epoch_start: refusal(replica, brokers, high_watermark=high_watermark, epoch_start=0),
    )


def shows_uncommitted(patch: Patch) -> None:
    """M10: clients read up to the end of the log."""

    def mutant(self: Partition, offset: int, max_bytes: int) -> Any:
        end = self.log.end_offset
        return (self.log.read(offset, end, max_bytes) if offset < end else []), end

    patch.setattr(Partition, "read_committed", mutant)


def elects_uncleanly(patch: Patch) -> None:
    """M11: whoever lives may lead, without anybody having allowed it."""
    choose = controller_module.choose
    patch.setattr(controller_module, "choose", lambda state, **given: choose(state, **{**given, "unclean": True}))


def trusts_unflushed(patch: Patch) -> None:
    """M12: under flush="ack" a fetch counts although nothing was flushed."""
    fetched = Replica.fetched

    def mutant(self: Replica, offset: int, leader_end: int, now_ms: int) -> None:
        fetched(self, offset, leader_end, now_ms)
        self.position = offset

    patch.setattr(Replica, "fetched", mutant)


def leads_again(patch: Patch) -> None:
    """M13: a restart costs no leader epoch."""

    def live(self: Cluster, partition: Any) -> Any:
        return {b: self.brokers[b].info for b in self.replicas(partition) if b in self.brokers}

    patch.setattr(Cluster, "live", live)
    patch.setattr(Partition, "_may_lead", lambda self, state: True)


def forgets_broker_epochs(patch: Patch) -> None:
    """M15: a broker that came back with an empty disk joins by what its earlier life had fetched (KIP-903)."""
    isr_change = controller_module.change_isr

    def mutant(entry: Any, *args: Any, **given: Any) -> Any:
        members = [(b, given["brokers"][b].broker_epoch if b in given["brokers"] else epoch) for b, epoch in entry.isr]
        return isr_change(attrs.evolve(entry, isr=members), *args, **given)

    patch.setattr(controller_module, "change_isr", mutant)
    patch.setattr(Leading, "forget_life", lambda self, broker_id, broker_epoch: None)


def believes_every_watermark(patch: Patch) -> None:
    """M16: a follower takes the leader's high watermark although it has not got so far."""
    take = Following.take

    def mutant(self: Following, entry: Any, high_watermark: int) -> Any:
        outcome, watermark = take(self, entry, high_watermark)
        return outcome, max(watermark, entry.high_watermark) if outcome.name in ("APPENDED", "KEPT_UP") else watermark

    patch.setattr(Following, "take", mutant)


def moves_back(patch: Patch) -> None:
    """M17: the high watermark follows the slowest member of the ISR, also backwards."""

    def mutant(self: Leading, now_ms: int) -> bool:
        target = max(0, self.policy.high_watermark(self.log.end_offset, self.counted))
        moved = target != self.high_watermark
        self.high_watermark = target
        return moved

    patch.setattr(Leading, "advance", mutant)


def ignores_min_isr(patch: Patch) -> None:
    """M18: records commit with fewer replicas than min_isr (KIP-966)."""
    update = Leading.update

    def mutant(self: Leading, *args: Any) -> None:
        update(self, *args)
        self.effective_min_isr = 0

    patch.setattr(Leading, "update", mutant)


def drops_pending(patch: Patch) -> None:
    """M23: any error answer to a proposal counts as proof that it was not stored."""
    answered = Leading.answered

    def mutant(self: Leading, proposal: Any, result: Any, now_ms: int) -> bool:
        if self.isr is proposal and result.error:
            self._settle(Committed(proposal.isr))
            return True
        return answered(self, proposal, result, now_ms)

    patch.setattr(Leading, "answered", mutant)


def believes_lossy(patch: Patch) -> None:
    """M26: a replica that lost records stays in the ISR."""
    patch.setattr(Cluster, "_lost", lambda self, partition, broker_id: False)


def appends_twice(patch: Patch) -> None:
    """M29: a repetition is appended again."""
    patch.setattr(partition_module, "judge_sequence", lambda log, batch: (Code.NONE, None))


def obeys_unregistered(patch: Patch) -> None:
    """A process that was never registered obeys commands for the registration of an earlier one."""
    fence = Commands.fence

    def mutant(self: Commands, controller_id: int, controller_epoch: int, broker_epoch: int) -> int:
        if self.broker_epoch >= 0:
            return fence(self, controller_id, controller_epoch, broker_epoch)
        self.broker_epoch = 0
        try:
            return fence(self, controller_id, controller_epoch, broker_epoch)
        finally:
            self.broker_epoch = -1

    patch.setattr(Commands, "fence", mutant)


def reports_loss_once(patch: Patch) -> None:
    """A loss report is thought to be heard once the broker is registered, although no controller has acted on it."""
    registered = Broker.on_registered

    def mutant(self: Broker, sender: Any, message: Any, now_ms: int) -> None:
        registered(self, sender, message, now_ms)
        if message.broker_epoch >= 0:
            self.directory.registered(message.broker_epoch)

    patch.setattr(Broker, "on_registered", mutant)


def leaves_tails_unflushed(patch: Patch) -> None:
    """Under flush="ack" nobody flushes the tail that a restart has found."""
    patch.setattr(Upkeep, "recovered", lambda self, partition: None)


def reports_flushes_once(patch: Patch) -> None:
    """A follower tells how far it is flushed only while that is above the high watermark."""
    send = FlushReports.send

    def mutant(self: FlushReports, leader: int | None, broker_epoch: int) -> None:
        for identity, partition in list(self._owed.items()):
            if partition.log.flushed_end <= partition.high_watermark:
                del self._owed[identity]
        send(self, leader, broker_epoch)

    patch.setattr(FlushReports, "send", mutant)



THREE: dict[str, Any] = {"replicas": 3, "min_isr": 2}
WIDE: dict[str, Any] = {"brokers": 5, "replicas": 5, "min_isr": 2, "lag_ms": 500, "delay_ms": 50, "think_ms": 20}
HASTY: dict[str, Any] = {"brokers": 3, **THREE, "slow": 0.3, "slow_ms": 2_000, "session_ms": 1_500, "lag_ms": 500}
_SAFETY = ("S1", "S2", "S3", "S9")
_CASES: tuple[tuple[Callable[[Patch], None], range, dict[str, Any], tuple[str, ...]], ...] = (
    (truncates_to_high_watermark, range(1, 40), {}, _SAFETY),
    (acknowledges_at_append, range(1, 10), {}, ("S12",)),
    (assumes_its_shrink, range(1, 40), {}, ("S4",)),
    (forgets_its_expansion, range(1, 60), {}, ("S4",)),
    (fences_no_fetch, range(340, 420), {}, _SAFETY),
    (applies_stale_notices, range(1, 60), {}, ("S6",)),
    (keeps_positions, range(19, 80), {"only": ("lag", "kill", "expire", "churn", "isolate"), **WIDE}, (*_SAFETY, "S4")),
    (joins_below_the_epoch, range(20, 80), {"only": ("lag", "kill", "expire", "churn", "isolate"), **WIDE}, _SAFETY),
    (shows_uncommitted, range(1, 10), {}, ("S13",)),
    (elects_uncleanly, range(1, 40), {}, (*_SAFETY, "S15")),
    (trusts_unflushed, range(1, 40), {"only": ("power", "flush"), "flush": "ack", "min_isr": 2, "replicas": 3}, _SAFETY),
    (leads_again, range(1, 60), {}, ("S5",)),
    (forgets_broker_epochs, range(80, 160), {"only": ("wipe", "power", "power"), **HASTY}, _SAFETY),
    (believes_every_watermark, range(1, 40), {}, ("S7", "S9")),
    (moves_back, range(1, 40), {}, ("S4", "S7", "S8")),
    (ignores_min_isr, range(1, 40), {}, ("S4",)),
    (drops_pending, range(60, 140), {"only": ("unsure", "lag", "outage", "cut"), "lag_ms": 500, "unsure": 0.1}, ("S4",)),
    (believes_lossy, range(1, 40), {}, _SAFETY),
    (appends_twice, range(1, 10), {}, ("S17",)),
    (obeys_unregistered, range(1, 60), {"only": ("kill", "wipe", "store"), **THREE, "session_ms": 3_000}, (*_SAFETY, "S5")),
    (reports_loss_once, range(25, 100), {"only": ("power", "kill", "outage"), **THREE, "session_ms": 1_500}, _SAFETY),
    (leaves_tails_unflushed, range(10, 60), {"only": ("kill", "flush"), "flush": "ack"}, ("L2", "L3", "L4")),
    (reports_flushes_once, range(1, 60), {}, ("L2", "L3", "L4")),
)


@pytest.mark.parametrize(("mutant", "seeds", "directed", "invariants"), _CASES, ids=[case[0].__name__ for case in _CASES])
def test_mutant_is_caught(
    mutant: Callable[[Patch], None],
    seeds: range,
    directed: dict[str, Any],
    invariants: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mutant(monkeypatch)
    outcomes = (run(seed, plan=draw(seed, **directed)) for seed in seeds)
    violation = next((one.violation for one in outcomes if one.violation is not None), None)
    assert violation is not None, f"{mutant.__name__} is not noticed in {len(seeds)} seeds"
    assert violation.invariant in invariants, str(violation)
