"""Which segments go by age, where the times of records are not what they should be."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import define

from replog.config import TopicConfig
from replog.log.log import FileLog
from replog.log.memory import MemoryLog
from replog.log.retention import expired
from replog.model import PartitionId
from replog.testing.disk import MemoryFs
from replog.testing.log_contract import append

HOUR = 3_600_000
NOW = 10**12
OLD, YOUNG, NEAR, FAR, MICROSECONDS = NOW - 2 * HOUR, NOW - HOUR // 2, NOW + HOUR, NOW + HOUR + 1, NOW * 1_000
CONFIG = TopicConfig(segment_bytes=1_024, retention_ms=HOUR)


@define
class Segment:
    """Ten records."""

    base_offset: int
    max_timestamp_ms: int
    size: int = 100
    first_timestamp_ms: int = OLD

    @property
    def end_offset(self) -> int:
        return self.base_offset + 10


@pytest.mark.parametrize(
    ("newest", "count"),
    [
        ((OLD, OLD, OLD), 3),
        ((OLD, YOUNG, OLD), 1),
        ((FAR, OLD, YOUNG), 2),
        ((MICROSECONDS, OLD, YOUNG), 2),
        ((OLD, FAR, OLD, YOUNG), 3),
        ((FAR, MICROSECONDS, FAR, OLD, YOUNG), 4),
        ((FAR, OLD, FAR, OLD, OLD), 5),
        ((FAR, YOUNG, OLD), 0),
        ((OLD, FAR, FAR, YOUNG), 1),
        ((NEAR, OLD, OLD), 0),  # a clock may be ahead by so much
        ((OLD, NEAR, OLD), 1),
        ((OLD, OLD, FAR), 2),  # nothing is behind the last one
        ((FAR, FAR), 0),
        ((FAR,), 0),
        ((FAR, -1), 0),
        ((), 0),
    ],
)
def test_a_time_far_ahead_tells_no_age(newest: tuple[int, ...], count: int) -> None:
    segments = [Segment(10 * number, at_ms, size=0 if at_ms < 0 else 100) for number, at_ms in enumerate(newest)]
    assert expired(segments, CONFIG, NOW, 10 * len(segments)) == count
    assert expired(segments, CONFIG, NOW, 10 * max(0, count - 1)) == max(0, count - 1), "as far as the high watermark"
    assert expired(segments, TopicConfig(), NOW, 10 * len(segments)) == 0


def test_a_clock_that_is_back_takes_nothing() -> None:
    """To it everything is far ahead."""
    assert expired([Segment(10 * number, NOW + number) for number in range(3)], CONFIG, 0, 30) == 0


@pytest.mark.parametrize("kind", ["files", "memory"])
def test_one_record_with_a_wrong_time_ends_no_retention(kind: str) -> None:
    """Of microseconds instead of milliseconds, and of some days later: everything behind it was kept until then, which may be for ever."""
    log: Any = (
        FileLog.open("/log", fs=MemoryFs(), config=CONFIG) if kind == "files" else MemoryLog(PartitionId(bytes(16), 0, 0), CONFIG)
    )
    for at_ms in (MICROSECONDS, *[NOW] * 20, NOW + 100 * HOUR, *[NOW] * 20):
        append(log, ["x" * 100], at_ms=at_ms)
    assert log.retain(NOW + HOUR, log.end_offset) == 0
    later = NOW + HOUR + 1
    assert log.retain(later, 10) <= 10
    assert log.retain(later, log.end_offset) == log.end_offset == 42
    assert log.size_bytes == 0
    log.close()
