"""What it takes to verify logs after a power cut: each figure is a ratio of loops that take turns in one run.

Run with `pytest benchmarks/test_recovery.py --benchmark-enable -s`. A ratio of 0.8 says: 0.8 of the rate of the limit, crc32c alone in one
thread over a hot buffer. `cap`: reading the files as well before checking what was read, without a look at a single header; what
scans that read can reach, with as many threads as they have. `of_cap`: the scan as a share of that.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from benchmarks.logs import body_of
from benchmarks.measuring import by_turns, report, share
from benchmarks.targets import Target, at_least
from crc32c import crc32c

from replog.config import BrokerConfig, TopicConfig
from replog.log.directory import FileLogDirectory
from replog.log.files import OS
from replog.log.recovery import recover
from replog.log.storage import Storage
from replog.model import PartitionId
from replog.ports import LogStart
from replog.records import FRONT_BYTES, RecordBatch

ROUNDS = 15
LOG_BYTES = 64 << 20
WINDOW_BYTES = 256 << 10
IDENTITIES = [PartitionId(bytes(16), number, 0) for number in range(2)]
ONE = [(1 << 20, at_least("ratio", 0.45)), (16 << 10, at_least("ratio", 0.42)), (1 << 10, None)]
"""Bytes of a batch, and the share of crc32c alone that one thread is to reach."""
TWO = at_least("ratio", 0.7)
"""The share of the same that two partitions on two threads are to reach, with batches of 16 KiB or more."""


def filled(folder: Path, bodies: Sequence[bytes]) -> None:
    """Logs of these batches, left as a power cut leaves them."""
    directory = FileLogDirectory(str(folder))
    for log in directory.create([LogStart(identity, "t", TopicConfig(segment_bytes=1 << 30)) for identity in IDENTITIES]):
        for offset, body in enumerate(bodies):
            batch = RecordBatch(body)
            batch.stamp(log.identity, offset, 3)
            log.append(batch)
    directory.close(clean=False)


def scan(folder: Path, count: int, identity: PartitionId) -> None:
    """Verify a log, all of it."""
    storage = Storage(OS, str(folder / "logs"), BrokerConfig(), lambda reason: None)
    state = recover(storage, identity, 0, 0, lambda kind: None, power=True)
    assert state.end_offset == count
    for segment in state.segments:
        storage.files.close(segment)


def read_and_check(fd: int, window: memoryview, piece: int) -> None:
    """Every byte of a file, through crc32c in pieces of so many bytes."""
    position = 0
    while got := os.preadv(fd, (window,), position):
        position += got
        for at in range(0, got, piece):
            crc32c(window[at : min(at + piece, got)])


@pytest.mark.parametrize("threads", [1, 2], ids=["one", "two"])
@pytest.mark.parametrize(("size", "target"), ONE, ids=["1MiB", "16KiB", "1KiB"])
def test_recovery(benchmark: Any, capsys: Any, tmp_path: Path, size: int, target: Target | None, threads: int) -> None:
    """Verifying every byte of a log for each thread, where `ratio` compares bytes per second of all of them with crc32c in one thread."""
    body = body_of(size)
    count = LOG_BYTES // (len(body) + FRONT_BYTES)
    folder = tmp_path / "d"
    filled(folder, [body] * count)
    with ExitStack() as stack:
        files = [os.open(path, os.O_RDONLY) for path in sorted((folder / "logs").rglob("*.log"))[:threads]]
        for fd in files:
            stack.callback(os.close, fd)
        windows = [memoryview(bytearray(WINDOW_BYTES)) for _ in files]
        pool = stack.enter_context(ThreadPoolExecutor(threads))

        def together(calls: Sequence[Callable[[], None]]) -> None:
            if threads == 1:
                calls[0]()
            else:
                for one in [pool.submit(call) for call in calls]:
                    one.result()

        scans = [partial(scan, folder, count, identity) for identity in IDENTITIES[:threads]]
        checks = [partial(read_and_check, fd, window, min(size, WINDOW_BYTES)) for fd, window in zip(files, windows, strict=True)]
        loops = {
            "ours": lambda: together(scans),
            "cap": lambda: together(checks),
            "crc": lambda: [crc32c(body) for _ in range(count * threads)],
        }
        taken = by_turns(loops, ROUNDS)
    benchmark.pedantic(lambda: None, rounds=1)
    gigabytes = count * threads * (len(body) + FRONT_BYTES) / 1e9
    figures = {"ratio": share(taken["crc"], taken["ours"]), "cap": share(taken["crc"], taken["cap"])}
    figures |= {"of_cap": share(taken["cap"], taken["ours"])}
    figures |= {f"{name}_gb_per_s": gigabytes / statistics.median(seconds) for name, seconds in taken.items()}
    targets = [target if threads == 1 else TWO] if target else []
    report(benchmark, capsys, f"recovery scan {size} B, threads: {threads} / crc32c alone", figures, *targets)
