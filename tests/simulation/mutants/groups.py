"""Bugs of work that is run again: groups that are seen in part, versions that are forgotten, attempts that are mixed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
from tests.simulation.mutants.entry import Mutant, Patch

from replog import marks as marks_module
from replog.broker import appending as appending_module
from replog.broker.publishing import Publishing
from replog.broker.staging import Piece, Stages
from replog.errors import LogFull
from replog.log import producers as producers_module
from replog.log.base import StoredLog
from replog.log.memory import MemoryLogDirectory
from replog.log.producers import Cut, ProducerTable
from replog.log.segmented import SegmentedLog
from replog.partition import partition as partition_module
from replog.partition.following import Following
from replog.partition.leading import Leading
from replog.partition.partition import Appended, Partition
from replog.ports import Log

__all__ = ["MUTANTS"]


def shows_half_a_group(patch: Patch) -> None:
    """A leader counts the batches of a group one by one."""
    patch.setattr(Leading, "_whole", lambda self, target: target)


def follows_half_a_group(patch: Patch) -> None:
    """A follower counts what it has of a group, if the leader counts all of it."""
    take = Following.take

    def mutant(self: Following, *given: Any) -> Any:
        with Patch.context() as inside:
            inside.setattr(StoredLog, "group_floor", lambda log, offset: offset)
            return take(self, *given)

    patch.setattr(Following, "take", mutant)


def leaves_open_groups(patch: Patch) -> None:
    """A new leader leaves what another one had begun to publish."""
    lead = Partition._lead

    def mutant(self: Partition, *given: Any) -> None:
        with Patch.context() as inside:
            inside.setattr(StoredLog, "group_floor", lambda log, offset: offset)
            lead(self, *given)

    patch.setattr(Partition, "_lead", mutant)


def repeats_equal_versions(patch: Patch) -> None:
    """Only the same version is taken for done, not an earlier one."""
    judge = partition_module.judge_version

    def mutant(log: Log, producer_id: int, version: int) -> Any:
        found = judge(log, producer_id, version)
        return found if found is not None and found.base_sequence == version else None

    patch.setattr(partition_module, "judge_version", mutant)


def knows_no_versions(patch: Patch) -> None:
    """A leftover attempt is stored although another one has won (P-104)."""
    patch.setattr(partition_module, "judge_version", lambda log, producer_id, version: None)


def forgets_versions_at_a_restart(patch: Patch) -> None:
    """A restart finds out about producers, and not about writers that mark their work."""
    reopened = MemoryLogDirectory.reopened

    def mutant(self: MemoryLogDirectory) -> MemoryLogDirectory:
        found = reopened(self)
        for identity in found.identities():
            table = found.get(identity).producers  # type: ignore[union-attr]
            table._writers = None  # type: ignore[attr-defined]
        return found

    patch.setattr(MemoryLogDirectory, "reopened", mutant)


def keeps_versions_that_are_cut(patch: Patch) -> None:
    """A truncation takes the work, and leaves the version."""
    truncate = ProducerTable.truncate

    def mutant(self: ProducerTable, offset: int) -> Cut:
        writers, self._writers = self._writers, None
        cut = truncate(self, offset)
        self._writers = writers
        return cut

    patch.setattr(ProducerTable, "truncate", mutant)


def publishes_what_there_is(patch: Patch) -> None:
    """A piece that is missing is left out."""

    def mutant(self: Stages, work: Any, version: int, wanted: Sequence[Any]) -> list[Piece] | None:
        attempts = self._works.get(work, {})
        known = [(attempts.get((version, one.attempt)), one) for one in wanted]
        return [have.pieces[n] for have, one in known if have is not None for n in range(one.pieces) if n in have.pieces]

    patch.setattr(Stages, "find", mutant)


def mixes_attempts(patch: Patch) -> None:
    """Pieces of two attempts at one version are taken for pieces of one."""
    put, find = Stages.put, Stages.find

    def mixed(self: Stages, work: Any, version: int, attempt: str, *given: Any) -> int:
        return put(self, work, version, "", *given)

    def mutant(self: Stages, work: Any, version: int, wanted: Sequence[Any]) -> list[Piece] | None:
        return find(self, work, version, [attrs.evolve(one, attempt="") for one in wanted])

    patch.setattr(Stages, "put", mixed)
    patch.setattr(Stages, "find", mutant)


def appends_between(patch: Patch) -> None:
    """An append is taken while a group is under way."""
    append = Partition.append

    def mutant(self: Partition, *given: Any) -> Appended:
        leading = self.leading
        is_open = leading is not None and leading.group_open
        if leading is not None:
            leading.group_open = False
        try:
            return append(self, *given)
        finally:
            if leading is not None:
                leading.group_open = is_open

    patch.setattr(Partition, "append", mutant)


def calls_uncommitted_work_done(patch: Patch) -> None:
    """A task that puts work aside hears that it is done as soon as the leader has it: it may yet be lost."""
    stage = Publishing._stage

    def mutant(self: Publishing, partition: Partition, *given: Any) -> None:
        watermark = partition.high_watermark
        partition.high_watermark = partition.log.end_offset
        try:
            stage(self, partition, *given)
        finally:
            partition.high_watermark = watermark

    patch.setattr(Publishing, "_stage", mutant)


def lets_retention_forget(patch: Patch) -> None:
    """Retention takes the last mention of a writer."""

    def mutant(self: Partition, wall_ms: int, now_ms: int) -> bool:
        self.log.retain(wall_ms, self.high_watermark)
        return True

    patch.setattr(Partition, "retain", mutant)


def ages_by_records(patch: Patch) -> None:
    """How long a version is remembered follows from the times of its records."""
    patch.setattr(producers_module, "made_ms_of", lambda batch: batch.max_timestamp_ms)


def forgets_what_was_pushed_out(patch: Patch) -> None:
    """A truncation that takes all that is at hand of a writer takes all that it ever did."""
    patch.setattr(Cut, "unknown", property(lambda self: set()))


def takes_marks_of_any_time(patch: Patch) -> None:
    """Work that was asked for so long ago that its version may be forgotten is stored."""
    patch.setattr(appending_module, "made_too_far", lambda made_ms, wall_ms, expiry_ms: False)


def takes_any_key(patch: Patch) -> None:
    """Nobody looks at how long the key of a writer is: one day its leader cannot say it again."""
    patch.setattr(marks_module, "MARK_BYTES_MAX", 1 << 16)


def publishes_without_pause(patch: Patch) -> None:
    """A leader appends a large group as fast as it can."""
    patch.setattr(Leading, "followers_keep_up", lambda self, now_ms: True)


def waits_for_laggards(patch: Patch) -> None:
    """A follower that does not come holds a group for as long as it is in the ISR."""
    patch.setattr(Leading, "_lags", lambda self, replica, now_ms: False)


def expires_attempts_one_by_one(patch: Patch) -> None:
    """A task that was done early loses what it has put aside while others of its version go on."""

    def mutant(self: Stages, work: Any, version: int, now_ms: int) -> None:
        pass

    patch.setattr(Stages, "touch", mutant)


def keeps_everything_inside_a_group(patch: Patch) -> None:
    """Retention waits for the end of a group, for which a full disk has no room."""
    patch.setattr(partition_module, "first_said", lambda outside, limit: 0)


def calls_refused_work_done(patch: Patch) -> None:
    """A group that a full disk refuses is answered as work that a later version has replaced: success, without a place."""
    go_on, publish = Publishing._go_on, Partition.publish

    class Refused(Exception):
        pass

    def refusing(self: Partition, batches: Sequence[Any], now_ms: int) -> None:
        end = self.log.end_offset
        try:
            publish(self, batches, now_ms)
        except LogFull:
            if isinstance(self.log, SegmentedLog) and self.log.end_offset == end:
                raise Refused from None
            raise

    def mutant(self: Publishing, partition: Partition, publication: Any, now_ms: int) -> None:
        try:
            go_on(self, partition, publication, now_ms)
        except Refused:
            if publication.group_offset == 0:
                self._finish(partition, publication, -1, partition.high_watermark)
            else:
                publication.not_before_ms = now_ms + 100

    patch.setattr(Partition, "publish", refusing)
    patch.setattr(Publishing, "_go_on", mutant)


ONCE: dict[str, Any] = {
    "brokers": 3, "replicas": 3, "min_isr": 2, "partitions": 1, "clients": 2, "files": False, "workloads": ("append", "once"),
    "retention_bytes": 0, "retention_ms": 0, "think_ms": 60, "slice_bytes": 1, "slice_ms": 20, "stage_ms": 0,
}
LEADERS: dict[str, Any] = {"only": ("kill", "expire", "churn", "isolate"), **ONCE}
MUTANTS = (
    Mutant(
        "P-104", "a leftover attempt of a task is stored again", "ECOSYSTEM 2.2, 2.3", knows_no_versions,
        ("S17",), ONCE, scenarios=("P-104",),
    ),
    Mutant("X50", "a leader's high watermark is inside a group", "own", shows_half_a_group, ("S25",), ONCE),
    Mutant("X51", "a follower's high watermark is inside a group", "own", follows_half_a_group, ("S25",), ONCE),
    Mutant("X52", "a new leader does not cut what another had begun", "own", leaves_open_groups, ("S25",), {**LEADERS, "slice_ms": 200}),
    Mutant("X53", "an earlier version than the last is stored", "own", repeats_equal_versions, ("S17",), ONCE),
    Mutant(
        "X54", "a restart forgets versions", "own", forgets_versions_at_a_restart,
        ("S17",), {**ONCE, "only": ("kill_all", "kill", "rolling")},
    ),
    Mutant("X55", "a truncation leaves versions", "own", keeps_versions_that_are_cut, ("S12", "S17"), LEADERS),
    Mutant("X56", "a piece that is missing is left out", "own", publishes_what_there_is, ("S17", "once"), {**LEADERS, "drop": 0.2}),
    Mutant("X57", "two attempts are mixed", "own", mixes_attempts, ("S17", "S12", "once"), ONCE),
    Mutant("X58", "an append comes between the batches of a group", "own", appends_between, ("S25",), ONCE),
    Mutant("X59", "what is not committed is called done", "P-103", calls_uncommitted_work_done, ("S12",), ONCE),
    Mutant(
        "X60", "retention forgets versions", "own", lets_retention_forget,
        ("S17",), {**ONCE, "only": ("kill_all", "kill", "rolling"), "retention_bytes": 4_096, "segment_bytes": 256},
    ),
    Mutant(
        "X61", "versions expire by the times of records", "own", ages_by_records,
        tests=("tests/unit/broker/test_marks_refused.py::test_versions_are_remembered_by_when_they_were_asked_for_not_by_the_times_of_rows",),
    ),
    Mutant(
        "X62", "a cut of all that is at hand of a writer forgets it", "own", forgets_what_was_pushed_out,
        tests=("tests/unit/partition/test_tables.py::test_a_second_cut_finds_what_the_first_one_left_far_in_front",),
    ),
    Mutant(
        "X63", "work is stored whose version may be forgotten", "KIP-937", takes_marks_of_any_time,
        tests=("tests/unit/broker/test_marks_refused.py::test_what_is_done_is_answered_however_old_the_question",),
    ),
    Mutant(
        "X64", "a key of any length is stored", "own", takes_any_key,
        tests=("tests/unit/broker/test_marks_refused.py::test_a_mark_that_no_client_makes_costs_nothing",),
    ),
    Mutant(
        "X65", "a publication does not wait for followers", "own", publishes_without_pause,
        tests=("tests/unit/broker/test_pace.py::test_slices_wait_until_those_in_sync_have_the_ones_before",),
    ),
    Mutant(
        "X66", "a publication waits for who has lagged for too long", "own", waits_for_laggards,
        tests=("tests/unit/broker/test_pace.py::test_who_has_lagged_for_too_long_holds_nothing",),
    ),
    Mutant(
        "X67", "attempts expire one by one", "own", expires_attempts_one_by_one,
        tests=("tests/unit/broker/test_staging.py::test_an_early_attempt_lives_as_long_as_anything_of_its_version_does",),
    ),
    Mutant(
        "X98", "work that a full disk refuses is called done", "own", calls_refused_work_done,
        ("S12",), {**ONCE, "files": True, "only": ("full",), "workloads": ("once",)},
    ),
    Mutant(
        "X68", "retention stands still inside a group", "own", keeps_everything_inside_a_group,
        tests=("tests/unit/partition/test_retention_of_work.py::test_a_full_disk_in_the_middle_of_a_group_is_freed_and_the_group_goes_on",),
    ),
)
