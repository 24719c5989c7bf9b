"""Appending to one log against its physical limit: each figure is a ratio of two loops that take turns in one run.

Run with `pytest benchmarks/test_log.py --benchmark-enable -s`. A ratio of 0.8 says: 0.8 of the rate of the limit. The
median of the rounds is reported, because neighbours on the machine disturb single rounds.
"""

from __future__ import annotations

import os
import statistics
from pathlib import Path
from typing import Any

import pytest
from benchmarks.logs import IDENTITY, ROUND_BYTES, body_of, compare, stamped
from benchmarks.measuring import report, timed
from benchmarks.targets import Target, at_least, at_most

from replog.config import TopicConfig
from replog.log.directory import FileLogDirectory
from replog.model import PartitionId
from replog.ports import LogStart
from replog.records import FRONT_BYTES, RecordBatch

APPENDS = [(1 << 20, at_least("ratio", 0.72)), (16 << 10, at_least("ratio", 0.55)), (100, None)]
"""Bytes, and what is to be reached with the checksum verified."""


@pytest.mark.parametrize(("size", "target"), APPENDS, ids=["1MiB", "16KiB", "100B"])
@pytest.mark.parametrize("checked", [True, False], ids=["crc", "plain"])
def test_append(benchmark: Any, capsys: Any, tmp_path: Path, size: int, target: Target | None, checked: bool) -> None:
    """Appending a producer's batches, with their checksum verified as a broker does, against `os.write` of the same bytes."""
    directory = FileLogDirectory(str(tmp_path / "d"))
    (log,) = directory.create([LogStart(IDENTITY, "t", TopicConfig(segment_bytes=1 << 30))])
    body = body_of(size)
    data = bytes(FRONT_BYTES) + body
    count = max(1, min(ROUND_BYTES // len(data), 20_000))
    fd = os.open(tmp_path / "bare", os.O_RDWR | os.O_CREAT)

    def empty() -> None:
        log.truncate_to(0)
        os.ftruncate(fd, 0)
        os.lseek(fd, 0, os.SEEK_SET)

    def ours() -> None:
        for _ in range(count):
            batch = RecordBatch(body)
            if checked:
                batch.check_body(length_max=8 << 20, records_max=1_000)
            batch.stamp(IDENTITY, log.end_offset, 3)
            log.append(batch)

    def bare() -> None:
        for _ in range(count):
            os.write(fd, data)

    targets = [target] if target is not None and checked else [at_least("ratio", 0.95)] if size == 1 << 20 else []
    compare(benchmark, capsys, f"append {size} B{' with crc' if checked else ''} / os.write", ours, bare, count, *targets, before=empty)
    directory.close(clean=False)
    os.close(fd)


@pytest.mark.parametrize("size", [100, 16 << 10], ids=["100B", "16KiB"])
def test_append_alone(benchmark: Any, capsys: Any, tmp_path: Path, size: int) -> None:
    """What `Log.append` itself costs over the write: batches stamped beforehand. The aim is 1.5 us."""
    directory = FileLogDirectory(str(tmp_path / "d"))
    (log,) = directory.create([LogStart(IDENTITY, "t", TopicConfig(segment_bytes=1 << 30))])
    body = body_of(size)
    data = bytes(FRONT_BYTES) + body
    count = min(5_000, ROUND_BYTES // len(data))
    fd = os.open(tmp_path / "bare", os.O_RDWR | os.O_CREAT)
    (batches,) = stamped(log, body, count, 1)

    def empty() -> None:
        log.truncate_to(0)
        os.ftruncate(fd, 0)
        os.lseek(fd, 0, os.SEEK_SET)

    def ours() -> None:
        for batch in batches:
            log.append(batch)

    def bare() -> None:
        for _ in range(count):
            os.write(fd, data)

    compare(benchmark, capsys, f"append alone {size} B / os.write", ours, bare, count, at_most("over_us", 1.5), before=empty)
    directory.close(clean=False)
    os.close(fd)


def test_ten_thousand_logs(benchmark: Any, capsys: Any, tmp_path: Path) -> None:
    """Making 10,000 logs, against the one write and fsync that this needs; and opening them again, which nobody has written to:
    test_opening.py has those that somebody has."""
    starts = [LogStart(PartitionId(bytes(16), n, 0), "t", TopicConfig()) for n in range(10_000)]
    folders = iter(range(1_000))

    def ours() -> None:
        directory = FileLogDirectory(str(tmp_path / f"d{next(folders)}"))
        directory.create(starts)
        directory.close(clean=False)

    seconds = statistics.median(timed(ours) for _ in range(5))

    def reopen() -> None:
        FileLogDirectory(str(tmp_path / "d0")).close(clean=False)

    opening = statistics.median(timed(reopen) for _ in range(5))
    targets = [at_most("create_s", 0.05), at_most("open_empty_s", 0.5)]
    report(benchmark, capsys, "10,000 logs made, and opened empty", {"create_s": seconds, "open_empty_s": opening}, *targets)
    benchmark.pedantic(reopen, rounds=1)
