"""When a segment has grown enough, and when one may go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from replog.config import TopicConfig

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
    for segment in segments:
        too_old = config.retention_ms is not None and 0 <= segment.max_timestamp_ms < wall_ms - config.retention_ms
        too_much = (
            config.retention_bytes is not None and total - segment.size >= config.retention_bytes and segment is not segments[-1]
        )
        if segment.end_offset > limit or segment.size == 0 or not (too_old or too_much):
            break
        total -= segment.size
        count += 1
    return count
