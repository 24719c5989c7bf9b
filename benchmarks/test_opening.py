"""Ten thousand partitions with a record each: stopping cleanly, and opening them again; and what a `Cluster` takes to stop.

Run with `pytest benchmarks/test_opening.py --benchmark-enable -s`; it takes minutes where an fsync is slow. `open_s`: after a clean stop no
log is scanned. `first_close_s`: the stop that has every log to flush, once, and what one fsync takes times as many logs (`fsyncs_s`) beside
it; `close_s`: a stop where nothing was written since it was opened. `bare_open_s`: only to look at each file's size. The folder
has to be on a real disk.
"""

from __future__ import annotations

import os
import statistics
from pathlib import Path
from typing import Any, Final

import pytest
from benchmarks.disk import Disk
from benchmarks.logs import body_of
from benchmarks.measuring import report, timed, times_of
from benchmarks.targets import at_most

import replog
from replog.config import TopicConfig
from replog.log.directory import FileLogDirectory
from replog.model import PartitionId
from replog.ports import LogStart
from replog.records import RecordBatch

pytestmark = pytest.mark.long

LOGS: Final = 10_000
STOPPED: Final = 1_000
ROUNDS: Final = 5
FSYNCS: Final = 100


def write_to_each(directory: FileLogDirectory) -> None:
    """Ten thousand logs, a record of 100 bytes in each."""
    body = body_of(100)
    for log in directory.create([LogStart(PartitionId(bytes(16), n, 0), "t", TopicConfig()) for n in range(LOGS)]):
        batch = RecordBatch(body)
        batch.stamp(log.identity, 0, 1)
        log.append(batch)


def test_opening(benchmark: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Opened and stopped again in each round, by turns with a look at every file."""
    directory = FileLogDirectory(str(tmp_path / "d"))
    write_to_each(directory)
    with Disk(tmp_path, files=1) as disk:
        fsync_s = statistics.median(times_of(disk.write_to_one, FSYNCS))
    first_close_s = timed(lambda: directory.close(clean=True))
    files = [str(path) for path in (tmp_path / "d" / "logs").rglob("*.log")]
    taken: dict[str, list[float]] = {"open_s": [], "close_s": [], "bare_open_s": []}
    for _ in range(ROUNDS):
        opened: list[FileLogDirectory] = []
        taken["open_s"].append(timed(lambda opened=opened: opened.append(FileLogDirectory(str(tmp_path / "d")))))  # type: ignore[misc]
        assert len(opened[0].identities()) == LOGS
        assert not opened[0].recovered
        taken["close_s"].append(timed(lambda opened=opened: opened[0].close(clean=True)))  # type: ignore[misc]
        taken["bare_open_s"].append(timed(lambda: [os.stat(path) for path in files]))
    benchmark.pedantic(lambda: None, rounds=1)
    figures = {name: statistics.median(seconds) for name, seconds in taken.items()}
    figures |= {"first_close_s": first_close_s, "fsyncs_s": fsync_s * LOGS}
    report(benchmark, capsys, f"{LOGS:,} logs of one record, opened after a clean stop", figures, at_most("open_s", 0.5))


def test_stopping_a_cluster(benchmark: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A `Cluster` of one broker with a thousand logs to flush: of as many fsyncs one after the other, in each round."""
    taken: dict[str, list[float]] = {"close_s": [], "of_fsyncs": []}
    for number in range(ROUNDS):
        cluster = replog.Cluster(tmp_path / f"data-{number}", brokers=1)
        cluster.create_topic("t", partitions=STOPPED, replication_factor=1)
        with cluster.producer() as producer:
            for partition in range(STOPPED):
                producer.send("t", bytes(100), partition=partition)
        with Disk(tmp_path, files=1) as disk:
            fsync_s = statistics.median(times_of(disk.write_to_one, FSYNCS))
        close_s = timed(cluster.close)
        taken["close_s"].append(close_s)
        taken["of_fsyncs"].append(close_s / (fsync_s * STOPPED))
    benchmark.pedantic(lambda: None, rounds=1)
    figures = {name: statistics.median(seconds) for name, seconds in taken.items()}
    report(benchmark, capsys, f"a Cluster with {STOPPED:,} logs to flush, stopped", figures, at_most("of_fsyncs", 0.5))
