"""Logs that nobody has written to share what would be the same in each; the first append gives a log its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from replog.config import BrokerConfig, TopicConfig
from replog.log.directory import FileLogDirectory
from replog.log.memory import MemoryLogDirectory
from replog.log.tail import NO_TAIL
from replog.model import Assignment, PartitionId, PartitionState
from replog.partition.leading import Leading
from replog.ports import LogDirectory, LogStart
from replog.testing.log_contract import append

PARTITIONS = [PartitionId(bytes(16), number, 0) for number in range(3)]


@pytest.fixture(params=["files", "memory"])
def logs(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Three that are idle."""
    directory: LogDirectory = FileLogDirectory(str(tmp_path / "data")) if request.param == "files" else MemoryLogDirectory()
    yield directory.create([LogStart(identity, "t", TopicConfig()) for identity in PARTITIONS])
    directory.close(clean=False)


def led(log: Any) -> Leading:
    config, limits = TopicConfig(min_isr=1), BrokerConfig()
    state, assignment = PartitionState(1, 1, (1, 2)), Assignment((1, 2))
    return Leading(1, log, state=state, assignment=assignment, config=config, limits=limits, brokers={}, high_watermark=0, now_ms=0)


def test_idle_logs_share_what_is_the_same(logs: list[Any]) -> None:
    leaders = [led(log) for log in logs]
    one, two, _ = logs
    assert one._tail is two._tail is NO_TAIL
    assert one.epochs.entries() == two.epochs.entries() == ((1, 0),)
    assert one.epochs._epochs is two.epochs._epochs
    assert one.epochs._starts is two.epochs._starts
    assert leaders[0].policy is leaders[1].policy
    assert leaders[0].newest_group is leaders[1].newest_group


def test_idle_logs_have_one_list_of_segments(tmp_path: Path) -> None:
    directory: Any = FileLogDirectory(str(tmp_path / "data"))
    one, two, three = directory.create([LogStart(identity, "t", TopicConfig(segment_bytes=1_000)) for identity in PARTITIONS])
    assert one._segments is two._segments is three._segments
    for _ in range(30):
        append(one, 5)
    append(two, 1)
    assert [segment.path for segment in three._segments] == []
    assert len(one._segments) > 1
    assert len(two._segments) == 1
    directory.close(clean=False)


def test_an_append_is_seen_in_that_log_alone(logs: list[Any]) -> None:
    one, two, three = logs
    append(one, 2)
    append(two, 1)
    assert [log.end_offset for log in logs] == [2, 1, 0]
    assert [[piece.end_offset for piece in log.read(0, log.end_offset, 1 << 20)] for log in logs] == [[2], [1], []]
    one.forget_tail()
    append(two, 1)
    assert [[piece.end_offset for piece in log.read(0, log.end_offset, 1 << 20)] for log in logs] == [[2], [2], []]
    assert three._tail is NO_TAIL
    one.enter_epoch(5)
    assert [log.last_epoch for log in logs] == [5, two.last_epoch, -1]


def test_what_is_shared_takes_no_batch() -> None:
    with pytest.raises(AssertionError, match="a tail of its own"):
        NO_TAIL.add(None)  # type: ignore[arg-type]
