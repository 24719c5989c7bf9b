"""Bugs of retention: a log that starts too late hides what was committed, and compares equal with all others from there on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.simulation.mutants.entry import Mutant, Patch

from replog.config import TopicConfig
from replog.log import log as log_module
from replog.log import memory as memory_module
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
    "workloads": ("append", "burst"),
}

MUTANTS: tuple[Mutant, ...] = (
    Mutant("X30", "retention removes one segment too many", "own", removes_one_segment_more, ("S23",), _RETENTION),
    Mutant("X31", "a follower trims more than its leader did", "own", trims_to_its_watermark, ("S23",), _RETENTION),
)
