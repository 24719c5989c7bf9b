"""Bugs of retention: a log that starts too late hides what was committed, and compares equal with all others from there on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import evolve
from tests.simulation.mutants.entry import Mutant, Patch

from replog.config import TopicConfig
from replog.log import directory as directory_module
from replog.log import log as log_module
from replog.log import memory as memory_module
from replog.log.memory import MemoryLog
from replog.log.recovery import LogState, recover
from replog.log.retention import Kept, expired
from replog.messages import FetchedEntry
from replog.partition.following import Followed, Following

__all__ = ["MUTANTS"]


def removes_one_segment_more(patch: Patch) -> None:
    """Whoever removes segments by size also removes the one that is still needed for it."""

    def mutant(segments: Sequence[Kept], config: TopicConfig, wall_ms: int, limit: int) -> int:
        count = expired(segments, config, wall_ms, limit)
        return count + 1 if 0 < count < len(segments) - 1 and segments[count].end_offset <= limit else count

    patch.setattr(log_module, "expired", mutant)
    patch.setattr(memory_module, "expired", mutant)


def removes_what_is_too_young(patch: Patch) -> None:
    """Retention by age takes records that are half as old as they may become."""

    def mutant(segments: Sequence[Kept], config: TopicConfig, wall_ms: int, limit: int) -> int:
        age_ms = config.retention_ms
        return expired(segments, config if age_ms is None else evolve(config, retention_ms=max(1, age_ms // 2)), wall_ms, limit)

    patch.setattr(log_module, "expired", mutant)
    patch.setattr(memory_module, "expired", mutant)


def forgets_that_it_was_emptied(patch: Patch) -> None:
    """A log of which retention has left nothing comes back in the next life as one that never had anything: it begins at 0 again."""
    revived = MemoryLog.revived

    def revive(self: MemoryLog, *given: Any) -> MemoryLog:
        log = revived(self, *given)
        if log.start_offset == log.end_offset:
            log.reset_to(0)
        return log

    def recover_files(*given: Any, **named: Any) -> LogState:
        state = recover(*given, **named)
        if state.start_offset == state.end_offset:
            state.start_offset = state.end_offset = state.flushed_end = 0
            state.epochs.clear()
        return state

    patch.setattr(MemoryLog, "revived", revive)
    patch.setattr(directory_module, "recover", recover_files)


def trims_to_its_watermark(patch: Patch) -> None:
    """A follower that hears of a later start of its leader's log goes further: it trims whatever is committed."""
    take = Following.take

    def mutant(self: Following, entry: FetchedEntry, high_watermark: int) -> tuple[Followed, int]:
        before = self.log.start_offset
        outcome, watermark = take(self, entry, high_watermark)
        if self.log.start_offset > before and outcome is not Followed.TRUNCATED:
            self.log.trim_to(watermark)
        return outcome, watermark

    patch.setattr(Following, "take", mutant)


_RETENTION: dict[str, Any] = {
    "brokers": 3, "replicas": 3, "partitions": 1, "files": False, "segment_bytes": 1_024, "retention_bytes": 4_096,
    "workloads": ("append", "burst"), "retention_ms": 0,
}
_AGE: dict[str, Any] = {**_RETENTION, "retention_bytes": 0, "retention_ms": 2_000}
_EMPTIED: dict[str, Any] = {**_AGE, "retention_ms": 500, "think_ms": 800, "workloads": ("append",), "only": ("kill", "kill_all", "rolling")}

MUTANTS: tuple[Mutant, ...] = (
    Mutant("X30", "retention removes one segment too many", "own", removes_one_segment_more, ("S23",), _RETENTION),
    Mutant("X31", "a follower trims more than its leader did", "own", trims_to_its_watermark, ("S23",), _RETENTION),
    Mutant("X34", "retention by age removes a segment too young", "own", removes_what_is_too_young, ("S23",), _AGE),
    Mutant("X35", "a log that retention has emptied begins at 0 again", "own", forgets_that_it_was_emptied, ("S3",), _EMPTIED),
)
