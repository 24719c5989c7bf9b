"""Bugs of elections that may lose something: who is elected, what is recorded, how it ends, and who is told."""

from __future__ import annotations

from typing import Any

from attrs import evolve
from tests.simulation.mutants.entry import Mutant, Patch

from replog.client.fetching import FetchOp
from replog.client.parting import Parting
from replog.controller import controller as controller_module
from replog.controller import elections as elections_module
from replog.controller import isr_change
from replog.controller.controller import Controller
from replog.controller.election import Choice, Loss, uncleanly
from replog.errors import Code
from replog.messages import AlterIsrEntry, FetchedEntry
from replog.model import PartitionState
from replog.partition.following import Followed, Following
from replog.partition.isr import IsrChange, PendingExpand
from replog.partition.leading import Leading

__all__ = ["MUTANTS"]


def recovers_for_ever(patch: Patch) -> None:
    """A leader that was elected uncleanly never says that it has recovered."""
    change = Leading.change
    patch.setattr(Leading, "change", lambda self, now_ms: None if self.recovering else change(self, now_ms))


def grows_while_it_recovers(patch: Patch) -> None:
    """Such a leader takes others into its ISR first, and is believed."""
    change, refusal = Leading.change, isr_change._refusal

    def mutant(self: Leading, now_ms: int) -> IsrChange | None:
        was, self.recovering = self.recovering, False
        found = change(self, now_ms)
        self.recovering = was
        return found if not was or isinstance(found, PendingExpand) else change(self, now_ms)

    def lenient(entry: AlterIsrEntry, *given: Any) -> int:
        return refusal(evolve(entry, recovering=False), *given)

    patch.setattr(Leading, "change", mutant)
    patch.setattr(isr_change, "_refusal", lenient)


def elects_over_the_complete(patch: Patch) -> None:
    """Where the topic allows it, whoever lives is elected when the leader is gone, before anybody looks for one that is complete."""
    choose = controller_module.choose

    def mutant(state: PartitionState, **given: Any) -> Choice:
        live = given["live"]
        able = [r for r in given["replicas"] if r in live and r not in (*state.isr, *state.elr)]
        if not given["unclean"] or state.leader in live or not able:
            return choose(state, **given)
        candidates = tuple((r, -1, -1) for r in given["replicas"] if r in live)
        loss = Loss("unclean", able[0], candidates, tuple(r for r in given["replicas"] if r not in live))
        return Choice(uncleanly(state, able[0], state.leader_epoch), loss=loss)

    patch.setattr(controller_module, "choose", mutant)


def tells_no_reader(patch: Patch) -> None:
    """A reader that finds its place in the log of the new leader goes on there, whatever it had read before."""

    def mutant(self: FetchOp, result: Any, leader_epoch: int) -> int:
        if result.error:
            return int(result.error)
        self.known_epoch = leader_epoch
        return Code.NONE

    patch.setattr(FetchOp, "_validated", mutant)


def tells_readers_too_late_a_place(patch: Patch) -> None:
    """A reader is told that records are gone, but not from where on: it goes on where it is."""
    validated = FetchOp._validated

    def mutant(self: FetchOp, result: Any, leader_epoch: int) -> int:
        code = validated(self, result, leader_epoch)
        if self.error is not None:
            self.error.divergent_offset = self.offset  # type: ignore[attr-defined]
        return code

    patch.setattr(FetchOp, "_validated", mutant)


def forgets_where_epochs_began(patch: Patch) -> None:
    """A reader is told where an older epoch ends at the leader, although it had read other records before that (KIP-320 as written)."""

    patch.setattr(Parting, "answered", lambda self, _epoch, end: min(self._end, end))


def asks_once(patch: Patch) -> None:
    """A reader believes that a leader with an epoch between two of its own has all of the earlier one."""
    answered = Parting.answered

    def mutant(self: Parting, epoch: int, end: int) -> int:
        found = answered(self, epoch, end)
        return self._end if found is None else found

    patch.setattr(Parting, "answered", mutant)


def believes_where_it_was_placed(patch: Patch) -> None:
    """A reader that has read nothing asks no later leader whether its log still reaches to where it begins."""
    patch.setattr(FetchOp, "_validating", property(lambda self: bool(self.epochs) and self.place.leader_epoch > self.known_epoch))


def records_no_loss(patch: Patch) -> None:
    """An election that may lose something is stored, and nothing beside it."""
    patch.setattr(Controller, "_record_loss", lambda self, *given: None)


def keeps_what_was_committed(patch: Patch) -> None:
    """A follower does not cut below its own high watermark, because what is committed stays."""
    take = Following.take

    def mutant(self: Following, entry: FetchedEntry, high_watermark: int) -> tuple[Followed, int]:
        if not entry.error and 0 <= entry.diverging_end < high_watermark and entry.diverging_epoch >= 0:
            entry = evolve(entry, diverging_epoch=-1, diverging_end=-1)
        return take(self, entry, high_watermark)

    patch.setattr(Following, "take", mutant)


def deposes_who_leads(patch: Patch) -> None:
    """A person who asks for an unclean election gets one, also where somebody leads."""
    unclean = elections_module.unclean

    def mutant(state: PartitionState, *, live: Any, **given: Any) -> Choice:
        others = {broker: known for broker, known in live.items() if broker != state.leader}
        return unclean(state, live=others or live, **given)

    patch.setattr(elections_module, "unclean", mutant)


_READERS = "tests/unit/client/test_leader_changes.py"
_LOSING: dict[str, Any] = {
    "unclean": "topic", "brokers": 3, "replicas": 3, "min_isr": 2, "partitions": 1, "files": False, "workloads": ("append", "follow"),
    "retention_bytes": 0, "retention_ms": 0, "lag_ms": 500, "session_ms": 1_500, "think_ms": 60, "flush": "os",
}  # fmt: skip
_PLACED: dict[str, Any] = {**_LOSING, "min_isr": 1, "workloads": ("append", "consume")}
_ASKING: dict[str, Any] = {**_LOSING, "unclean": "asked", "workloads": ("append", "decide")}

MUTANTS = (
    Mutant("X109", "the recovering state never ends", "KIP-704", recovers_for_ever, ("L2",), _LOSING),
    Mutant("X110", "the ISR grows while its leader recovers", "KIP-704", grows_while_it_recovers, ("S15",), _LOSING),
    Mutant("X111", "an unclean election although a complete replica lives", "KIP-106", elects_over_the_complete, ("S26",), _LOSING),
    Mutant("X112", "a reader is not told that its records are gone", "KIP-320", tells_no_reader, ("history", "readable"), _LOSING),
    Mutant("X113", "a reader is told a place beyond what it has lost", "KIP-320", tells_readers_too_late_a_place, ("S8",), _LOSING),
    Mutant(
        "X117", "a reader is told where an older epoch ends", "KIP-320", forgets_where_epochs_began,
        ("S8",), {**_LOSING, "min_isr": 1, "retention_bytes": 0, "segment_bytes": 256},
    ),
    Mutant(
        "X119", "a reader asks a leader once where their logs part", "KIP-320", asks_once,
        tests=(f"{_READERS}::test_p47_a_leader_is_asked_again_about_an_earlier_epoch_of_the_reader",),
    ),
    Mutant(
        "X121", "a reader goes on at the end of a log that was cut below it", "KIP-320", believes_where_it_was_placed,
        ("consumer",), _PLACED,
        tests=(f"{_READERS}::test_what_is_appended_below_a_position_that_was_looked_up_is_not_passed_over[8-3]",),
    ),
    Mutant("X114", "an election that may lose something is not recorded", "KIP-966", records_no_loss, ("S26", "S3"), _LOSING),
    Mutant("X115", "a follower keeps what was committed", "KIP-101", keeps_what_was_committed, ("S9", "S3", "L2"), _LOSING),
    Mutant("X116", "an unclean election of a partition that is led", "KIP-460", deposes_who_leads, ("S26",), _ASKING),
)
