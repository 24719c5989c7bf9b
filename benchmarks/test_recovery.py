"""What it takes to verify a log after a power cut: each figure is a ratio of two loops that take turns in one run.

Run with `pytest benchmarks/test_recovery.py --benchmark-enable -s`. A ratio of 0.8 says: 0.8 of the rate of the limit.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from benchmarks.logs import IDENTITY, body_of, compare, stamped
from benchmarks.targets import Target, at_least
from crc32c import crc32c

from replog.config import BrokerConfig, TopicConfig
from replog.log.directory import FileLogDirectory
from replog.log.files import OS
from replog.log.recovery import recover
from replog.log.storage import Storage
from replog.ports import LogStart
from replog.records import FRONT_BYTES

SCANS = [(1 << 20, at_least("ratio", 0.45)), (16 << 10, at_least("ratio", 0.42)), (1 << 10, None)]
"""Bytes of a batch, and the share of crc32c alone that is to be reached."""


@pytest.mark.parametrize("against", ["crc", "read and crc"])
@pytest.mark.parametrize(("size", "target"), SCANS, ids=["1MiB", "16KiB", "1KiB"])
def test_recovery(benchmark: Any, capsys: Any, tmp_path: Path, size: int, target: Target | None, against: str) -> None:
    """Verifying every byte of a log after a power cut, against crc32c alone over a hot buffer; and against reading the file
    as well, without looking at a single header: what one thread that reads before it checks can reach."""
    directory = FileLogDirectory(str(tmp_path / "d"))
    (log,) = directory.create([LogStart(IDENTITY, "t", TopicConfig(segment_bytes=1 << 30))])
    body = body_of(size)
    count = (64 << 20) // (len(body) + FRONT_BYTES)
    for batch in stamped(log, body, count, 1)[0]:
        log.append(batch)
    directory.close(clean=False)

    def ours() -> None:
        storage = Storage(OS, str(tmp_path / "d" / "logs"), BrokerConfig(), lambda reason: None)
        state = recover(storage, IDENTITY, 0, 0, power=True)
        assert state.end_offset == count
        for segment in state.segments:
            storage.files.close(segment)

    (path,) = (tmp_path / "d" / "logs").rglob("*.log")
    fd = os.open(path, os.O_RDONLY)
    window = memoryview(bytearray(256 << 10))

    def bare() -> None:
        for _ in range(count):
            crc32c(body)

    def read_and_check() -> None:
        position, piece = 0, min(size, len(window))
        while got := os.preadv(fd, (window,), position):
            position += got
            for at in range(0, got, piece):
                crc32c(window[at : min(at + piece, got)])

    if against == "crc":
        compare(benchmark, capsys, f"recovery scan {size} B / crc32c alone", ours, bare, count, *([target] if target else []))
    else:
        compare(benchmark, capsys, f"recovery scan {size} B / reading and crc32c", ours, read_and_check, count)
    os.close(fd)
