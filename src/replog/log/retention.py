"""When a segment has grown enough, and when one may go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from replog.config import TopicConfig
from replog.marks import MADE_AHEAD_MS_MAX

__all__ = ["Kept", "expired", "is_full"]


class Kept(Protocol):
    """What is known of a segment."""

    base_offset: int
    end_offset: int
    size: int
    """Bytes."""
    first_timestamp_ms: int
    """Of its first batch."""
    max_timestamp_ms: int
    """Newest record; -1 while empty."""


def is_full(segment: Kept, batch_bytes: int, timestamp_ms: int, config: TopicConfig) -> bool:
    """Whether a batch of this size and time goes to a new segment. Age is told by the batches alone, so that all copies agree."""
    return segment.size > 0 and (
        segment.size + batch_bytes > config.segment_bytes or timestamp_ms - segment.first_timestamp_ms >= config.segment_ms
    )


def expired(segments: Sequence[Kept], config: TopicConfig, wall_ms: int, limit: int) -> int:
    """How many of the oldest segments may go: too old or over the size, and wholly below `limit` (the high watermark).

    The last segment, which takes the appends, goes only by age; the next append begins a new one.
    """
    total = sum(segment.size for segment in segments)
    count = 0
    for segment, newest_ms in zip(segments, _newest_ms(segments, wall_ms), strict=True):
        too_old = config.retention_ms is not None and 0 <= newest_ms < wall_ms - config.retention_ms
        too_much = (
            config.retention_bytes is not None and total - segment.size >= config.retention_bytes and segment is not segments[-1]
        )
        if segment.end_offset > limit or segment.size == 0 or not (too_old or too_much):
            break
        total -= segment.size
        count += 1
    return count


def _newest_ms(segments: Sequence[Kept], wall_ms: int) -> list[int]:
    """For each segment, the time that tells its age: that of its newest record.

    One that lies too far ahead of the clock is wrong, and one wrong record must not keep all that comes behind it: such a segment is as old
    as the one behind it, for its records were written before those. Nothing is behind the last one.
    """
    found: list[int] = []
    for segment in reversed(segments):
        is_wrong = bool(found) and segment.max_timestamp_ms > wall_ms + MADE_AHEAD_MS_MAX
        found.append(found[-1] if is_wrong else segment.max_timestamp_ms)
    return found[::-1]
