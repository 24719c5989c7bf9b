"""Bugs of brokers that are told what to do: old commands, partial ones, and the deletion of what lives."""

from __future__ import annotations

from typing import Any

import attrs
from tests.simulation.mutants.entry import Equivalent, Mutant, Patch
from tests.simulation.mutants.followers import SAFETY

from replog.broker import commands as commands_module
from replog.broker.broker import Broker
from replog.broker.commands import TOPIC_DELETED, Commands
from replog.broker.reports import Reports
from replog.controller.hearing import Hearing
from replog.controller.outboxes import BrokerOutbox
from replog.errors import Code
from replog.model import PartitionId
from replog.partition.partition import Partition

__all__ = ["EQUIVALENT", "MUTANTS"]


def applies_stale_notices(patch: Patch) -> None:
    """A notice of an earlier epoch counts: neither the copy looks at epochs, nor the broker at what was made when."""
    become, obey = Partition.become, Commands.on_leader_and_isr

    def mutant(self: Partition, notice: Any, now_ms: int) -> int:
        self.leader_epoch = min(self.leader_epoch, notice.state.leader_epoch)
        self.partition_epoch = min(self.partition_epoch, notice.state.partition_epoch)
        return become(self, notice, now_ms)

    def late(self: Commands, message: Any, *how: Any) -> Any:
        mark = (message.controller_epoch, message.broker_epoch, message.as_of)
        for entry in message.entries:
            self._named[entry.partition] = min(mark, self._named.get(entry.partition, mark))
        return obey(self, message, *how)

    patch.setattr(Partition, "become", mutant)
    patch.setattr(Commands, "on_leader_and_isr", late)


def deletes_what_is_not_listed(patch: Patch) -> None:
    """What a complete notice does not name is deleted."""
    told = Broker.on_leader_and_isr

    def mutant(self: Broker, sender: Any, message: Any, now_ms: int) -> None:
        told(self, sender, message, now_ms)
        if message.complete and not self.outbox.messages[-1][1].error:
            named = {entry.partition for entry in message.entries}
            for identity in self.directory.identities():
                if identity not in named:
                    self._idle(identity)
                    self.directory.quarantine(identity, self.upkeep.wall_ms)
                    self.directory.purge(identity)

    patch.setattr(Broker, "on_leader_and_isr", mutant)


def stops_at_any_epoch(patch: Patch) -> None:
    """A command to stop a copy counts whatever epoch it is of, and whatever has named the copy since."""
    stopped = Commands.on_stop_replica

    def late(self: Commands, message: Any, *how: Any) -> Any:
        mark = (message.controller_epoch, message.broker_epoch, message.as_of)
        for entry in message.entries:
            self._named[entry.partition] = min(mark, self._named.get(entry.partition, mark))
        return stopped(self, message, *how)

    stops_at_any_leader_epoch(patch)
    patch.setattr(Commands, "on_stop_replica", late)


def stops_at_any_leader_epoch(patch: Patch) -> None:
    """A command to stop a copy counts whatever leader epoch it is of."""
    stop = Broker._stop
    patch.setattr(Broker, "_stop", lambda self, entry: stop(self, attrs.evolve(entry, leader_epoch=TOPIC_DELETED)))


def obeys_every_controller(patch: Patch) -> None:
    """Commands of a controller that was replaced count."""
    fence = Commands.fence

    def mutant(self: Commands, controller_id: int, controller_epoch: int, broker_epoch: int) -> int:
        return fence(self, controller_id, max(controller_epoch, self.controller_epoch), broker_epoch)

    patch.setattr(Commands, "fence", mutant)


def forgets_what_it_stopped(patch: Patch) -> None:
    """A notice that is older than the command to stop a copy brings it back."""
    stopped = Commands.on_stop_replica

    def mutant(self: Commands, message: Any, *how: Any) -> Any:
        answer = stopped(self, message, *how)
        self._stopped.clear()
        return answer

    patch.setattr(Commands, "on_stop_replica", mutant)


def says_once_what_it_cannot_make(patch: Patch) -> None:
    """That a copy cannot be made in a failed directory is said in the answer to the notice, heard or not."""
    heartbeat = Reports.heartbeat

    def mutant(self: Reports) -> None:
        self._commands.unmade.clear()
        heartbeat(self)

    patch.setattr(Reports, "heartbeat", mutant)


def orders_by_the_number(patch: Patch) -> None:
    """Which command is newer its number says, although it is sent again under that with what is true then."""
    patch.setattr(commands_module, "_mark", lambda message: (message.controller_epoch, message.broker_epoch, message.notice))


def completes_what_there_was(patch: Patch) -> None:
    """The complete notice, sent again, names what was wanted when it was made, and nothing that was assigned since."""
    note = BrokerOutbox.note

    def mutant(self: BrokerOutbox, partition: PartitionId) -> None:
        complete = self.entries(self.complete_notice)
        known = {} if complete is None else dict(complete.keys)
        note(self, partition)
        if complete is not None:
            complete.keys = known

    patch.setattr(BrokerOutbox, "note", mutant)


def forgets_what_came_early(patch: Patch) -> None:
    """A broker that learns of its own registration forgets what it was told under that one before."""
    registered = Commands.registered

    def mutant(self: Commands, broker_epoch: int) -> None:
        registered(self, broker_epoch)
        self._stopped.clear()
        self._aging.clear()
        self._named.clear()

    patch.setattr(Commands, "registered", mutant)


def makes_what_was_left_out(patch: Patch) -> None:
    """What a complete notice left out is known of copies that were there; a late notice makes another."""
    obey = Commands.on_leader_and_isr

    def mutant(self: Commands, message: Any, *how: Any) -> Any:
        self._floor = commands_module._NEVER
        return obey(self, message, *how)

    patch.setattr(Commands, "on_leader_and_isr", mutant)


def counts_what_was_overtaken(patch: Patch) -> None:
    """A notice counts as applied if something newer has come for what it names, whatever has become of that."""
    obey = Commands.on_leader_and_isr

    def mutant(self: Commands, message: Any, *how: Any) -> Any:
        answer = obey(self, message, *how)
        if answer.error == Code.OPERATION_NOT_ATTEMPTED:
            answer.error = Code.NONE
            self._applied.note(message.notice, complete=message.complete)
        return answer

    patch.setattr(Commands, "on_leader_and_isr", mutant)


def believes_the_stop(patch: Patch) -> None:
    """A broker that has answered a stop holds nothing of that topic, although its complete notice may find more."""
    answered = Hearing.on_stop_replica_answer

    def mutant(self: Hearing, message: Any) -> None:
        box = self.publisher.outboxes.get(message.broker_id, message.broker_epoch)
        before = True if box is None else box.acknowledged
        if box is not None:
            box.acknowledged = True
        answered(self, message)
        if box is not None:
            box.acknowledged = before

    patch.setattr(Hearing, "on_stop_replica_answer", mutant)


LATE: dict[str, Any] = {"repeat": 0.1, "slow": 0.05, "slow_ms": 6_000}
TOPICS: dict[str, Any] = {"workloads": ("append", "topics"), "brokers": 3, "replicas": 3, "min_isr": 2, "partitions": 1, **LATE}
TO_AND_FRO: dict[str, Any] = {
    "workloads": ("append", "reassign"), "brokers": 4, "replicas": 3, "min_isr": 2, "partitions": 1, "clients": 3, "files": False, **LATE,
}
_COMMANDS = "tests/unit/broker/test_commands.py"
MUTANTS = (
    Mutant(
        "M06", "a notice of an earlier epoch is applied", "V3 C", applies_stale_notices,
        ("S6", "S14"), scenarios=("P-62",), explored=True,
    ),
    Mutant(
        "M20", "a complete notice deletes what it does not name", "V3 C.3, KIP-380", deletes_what_is_not_listed,
        (*SAFETY, "S19"), {"only": ("kill", "expire", "pause", "slow_link", "store"), **TOPICS}, scenarios=("P-68",),
    ),
    Mutant(
        "M21", "a late stop deletes a live replica", "KIP-570", stops_at_any_epoch,
        (*SAFETY, "S14", "S19"), {"only": ("slow_link", "pause", "unseat"), **TO_AND_FRO}, scenarios=("P-69",),
    ),
    Mutant(
        "P-60", "commands of a replaced controller count", "KAFKA-1188", obeys_every_controller,
        ("S6", "S14", "S19"), {"only": ("unseat", "slow_link", "churn"), **TOPICS}, scenarios=("P-60",),
        tests=(f"{_COMMANDS}::test_who_may_command",),
    ),
    Mutant(
        "X07", "a late notice makes a stopped replica again", "P-69b", forgets_what_it_stopped,
        ("S6", "S14"), {"only": ("kill", "slow_link", "pause"), **TOPICS}, scenarios=("P-69",),
        tests=(f"{_COMMANDS}::test_an_older_notice_does_not_bring_a_stopped_copy_back",),
    ),
    Mutant(
        "X20", "that a copy cannot be made is said once, heard or not", "own", says_once_what_it_cannot_make, scenarios=("X-04",),
        tests=("tests/unit/broker/test_reports.py::test_a_copy_that_could_not_be_made_is_reported_with_every_heartbeat",),
    ),
    Mutant(
        "X122", "the number of a command says which is newer", "own", orders_by_the_number, scenarios=("X-20",),
        tests=(
            f"{_COMMANDS}::test_a_late_copy_of_an_older_notice_does_not_bring_back_what_a_newer_copy_of_the_complete_one_left_out",
        ),
    ),
    Mutant(
        "X123", "the complete notice, sent again, leaves out what was assigned since", "own", completes_what_there_was,
        ("S6", "S14", "S19", "L2"), {"only": ("slow_link", "cut_one_way", "kill", "unseat"), **TOPICS}, scenarios=("X-01",),
        tests=("tests/unit/controller/test_outboxes.py::test_the_complete_notice_is_as_complete_when_it_is_sent_again",),
    ),
    Mutant(
        "X124", "a broker forgets what it was told before it knew its registration", "KAFKA-9839", forgets_what_came_early,
        tests=(f"{_COMMANDS}::test_what_came_early_for_a_new_life_is_not_taken_back_by_what_comes_late_for_it",),
    ),
    Mutant(
        "X125", "a late notice makes a copy that a newer complete one left out", "own", makes_what_was_left_out,
        tests=(f"{_COMMANDS}::test_a_late_notice_makes_no_copy_that_a_newer_complete_one_left_out",),
    ),
    Mutant(
        "X126", "a notice that was overtaken counts as applied", "own", counts_what_was_overtaken, scenarios=("P-62", "P-69", "X-20"),
        tests=tuple(
            f"{_COMMANDS}::test_what_was_overtaken_comes_again_for_the_newer_one_may_not_have_been_applied[{how}]"
            for how in ("named", "stopped", "full", "refused")
        ),
    ),
    Mutant(
        "X127", "the answer to a stop is taken for that to a complete notice", "own", believes_the_stop,
        tests=tuple(
            "tests/unit/controller/test_topics.py::"
            f"test_a_broker_that_may_hold_what_nobody_knows_of_is_asked_before_the_deletion_is_forgotten[{lost}]"
            for lost in ("notice", "answer")
        ),
    ),
)

EQUIVALENT = (
    Equivalent(
        Mutant(
            "M21b", "a stop counts whatever leader epoch it is of", "KIP-570", stops_at_any_leader_epoch,
            tests=("tests/simulation/mutants/test_steps.py::test_a_stop_of_an_older_leader_epoch_leaves_the_copy",),
        ),
        "A copy learns leader epochs from notices alone, and a broker keeps the number of the newest notice that has named each copy. A "
        "controller numbers stops and notices in one row, puts into each the epoch that it knows by then, and drops a stop that waits when "
        "the copy is to be named again. So a stop of an epoch below the copy's has a number below that of the notice which brought that "
        "epoch: it is passed over before epochs are compared. A stop of an earlier controller is fenced once a notice of a later one has "
        "come, and one to an earlier registration by its broker epoch; which notices named what is forgotten only with a new registration. "
        "Epoch and numbers together, without which a late stop is obeyed, are M21.",
    ),
)
