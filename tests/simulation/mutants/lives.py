"""Bugs of restarts: what a process that comes back may do, and what is known of what it lost."""

from __future__ import annotations

from typing import Any

from attrs import evolve
from tests.simulation.mutants.entry import Mutant, Patch
from tests.simulation.mutants.followers import SAFETY

from replog.broker.broker import Broker
from replog.broker.commands import Commands
from replog.controller.changes import Broker as BrokerEntry
from replog.controller.cluster import Cluster
from replog.log.loss import LIVES_KEPT, Life
from replog.partition.partition import Partition

__all__ = ["MUTANTS"]

THREE: dict[str, Any] = {"brokers": 3, "replicas": 3, "min_isr": 2, "partitions": 1, "files": False}
DEAF: dict[str, Any] = {
    "session_ms": 1_500, "clients": 2, "flush": "os", "workloads": ("burst",), "drop": 0.0, "slow": 0.0, "delay_ms": 3, "think_ms": 60,
}
"""A broker is registered, and ends again, while the controller stands still."""


def leads_again(patch: Patch) -> None:
    """A restart costs no leader epoch."""

    def live(self: Cluster, partition: Any) -> Any:
        return {b: self.brokers[b].info for b in self.replicas(partition) if b in self.brokers}

    patch.setattr(Cluster, "live", live)
    patch.setattr(Partition, "_may_lead", lambda self, state: True)


def believes_lossy(patch: Patch) -> None:
    """A replica that lost records stays in the ISR."""
    patch.setattr(Cluster, "_lost", lambda self, partition, broker_id: False)


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
    patch.setattr(Life, "let_in", lambda self: Life(self.boot_id, lives=self.lives))

    def mutant(self: Broker, sender: Any, message: Any, now_ms: int) -> None:
        registered(self, sender, message, now_ms)
        if message.broker_epoch >= 0:
            self.directory.registered(message.broker_epoch)

    patch.setattr(Broker, "on_registered", mutant)


def trusts_images(patch: Patch) -> None:
    """A directory that was killed is taken for that of the life that was let in, whichever lives it names."""
    has_lost = BrokerEntry.has_lost

    def mutant(self: BrokerEntry, admitted: Any, *, is_named: bool) -> bool:
        if admitted is not None and self.loss.kind != "none":
            admitted = evolve(admitted, incarnation=next(iter(self.loss.lives), admitted.incarnation))
        return has_lost(self, admitted, is_named=is_named)

    patch.setattr(BrokerEntry, "has_lost", mutant)


def forgets_who_was_let_in(patch: Patch) -> None:
    """A directory names its last lives, whichever of them was let in."""
    begun = Life.begun

    def mutant(boot_id: str, incarnation: str, loss: Any) -> Life:
        return begun(boot_id, incarnation, evolve(loss, lives=loss.lives[: LIVES_KEPT - 1]))

    patch.setattr(Life, "begun", staticmethod(mutant))


def drops_reported_losses(patch: Patch) -> None:
    """What was reported once is taken for dealt with, whether or not anybody came to let that life in."""
    has_lost = BrokerEntry.has_lost

    def mutant(self: BrokerEntry, admitted: Any, *, is_named: bool) -> bool:
        if self.loss.since and admitted is not None:
            admitted = evolve(admitted, incarnation=self.loss.since)
        return has_lost(self, admitted, is_named=is_named)

    patch.setattr(BrokerEntry, "has_lost", mutant)


MUTANTS = (
    Mutant(
        "M13", "a leader resumes in the epoch of its last life", "V3 E.3.2, KIP-380", leads_again,
        ("S5",), scenarios=("P-44",), explored=True,
    ),
    Mutant(
        "M26b", "a replica that lost records stays a candidate", "KIP-966, NATS", believes_lossy,
        SAFETY, {"only": ("power", "kill", "wipe", "expire"), **THREE}, scenarios=("P-02", "P-40"), explored=True,
    ),
    Mutant(
        "X05", "an unregistered process obeys commands for the last one", "own", obeys_unregistered,
        (*SAFETY, "S5"), {"only": ("kill", "wipe", "store"), **THREE, "session_ms": 3_000},
        tests=("tests/unit/broker/test_commands.py::test_a_process_that_was_never_registered_obeys_nobody",),
    ),
    Mutant(
        "X06", "a loss is reported once, heard or not", "own", reports_loss_once,
        SAFETY, {"only": ("power", "kill", "pause"), **THREE, **DEAF},
    ),
    Mutant(
        "X80", "an image of an earlier life passes for the last one", "KIP-966, own", trusts_images,
        SAFETY, {"only": ("restore", "kill", "rolling"), **THREE, "files": True},
        tests=("tests/unit/controller/test_brokers.py::test_a_later_life_has_lost_nothing_if_the_directory_knows_the_one_that_was_let_in",),
    ),
    Mutant(
        "X81", "who was let in is forgotten over lives that were told nothing", "own", forgets_who_was_let_in,
        tests=("tests/contracts/test_log.py::TestMemory::test_lives_before_the_one_that_was_let_in_are_named_no_more",),
    ),
    Mutant(
        "X82", "a loss that was reported is thought to be dealt with", "own", drops_reported_losses,
        SAFETY, {"only": ("power", "kill", "pause"), **THREE, **DEAF},
        tests=("tests/unit/controller/test_brokers.py::test_a_loss_counts_until_a_life_that_has_reported_it_was_let_in",),
    ),
)
