"""The log against its physical limits: each figure is a ratio of two loops that take turns in one run.

Run with `pytest benchmarks/test_log.py --benchmark-enable -s`. A ratio of 0.8 says: 0.8 of the rate of the limit. The
median of the rounds is reported, because neighbours on the machine disturb single rounds.
"""

from __future__ import annotations

import os
import socket
import statistics
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks.measuring import in_turns, timed
from crc32c import crc32c

from replog.config import BrokerConfig, TopicConfig
from replog.log.directory import FileLogDirectory
from replog.log.files import OS
from replog.log.open_files import FileSlice
from replog.log.recovery import recover
from replog.log.storage import Storage
from replog.model import PartitionId
from replog.ports import Log, LogStart
from replog.records import FRONT_BYTES, RecordBatch, encode_records

ROUNDS = 15
ROUND_BYTES = 16 << 20  # little enough that the disk's own speed does not come into it: the limit is the page cache
IDENTITY = PartitionId(bytes(16), 0, 0)


def compare(
    benchmark: Any,
    capsys: Any,
    name: str,
    ours: Callable[[], object],
    limit: Callable[[], object],
    target: float,
    unit: int,
    before: Callable[[], object] = lambda: None,
) -> None:
    """Measure both in turns, each time after `before`; `unit` is how many operations one loop has."""
    pairs = in_turns(ours, limit, ROUNDS, before=before)
    ratio = statistics.median(bare / mine for mine, bare in pairs)
    over = statistics.median(mine - bare for mine, bare in pairs) / unit * 1e6
    benchmark.extra_info.update(ratio=round(ratio, 3), target=target, over_us=round(over, 2))
    with capsys.disabled():
        mine = statistics.median(mine for mine, _ in pairs) / unit * 1e6
        goal = f" (target {target})" if target else ""
        print(f"\n{name}: {ratio:.2f} of the limit{goal}, {mine:.2f} us each, {over:.2f} us over it")
    before()
    benchmark.pedantic(ours, rounds=1)


def body_of(size: int) -> bytes:
    """A batch body of about so many bytes that does not compress."""
    return encode_records([os.urandom(max(1, size - 120))], now_ms=0)


@pytest.mark.parametrize(("size", "target"), [(1 << 20, 0.72), (16 << 10, 0.55), (100, 0.0)], ids=["1MiB", "16KiB", "100B"])
@pytest.mark.parametrize("checked", [True, False], ids=["crc", "plain"])
def test_append(benchmark: Any, capsys: Any, tmp_path: Path, size: int, target: float, checked: bool) -> None:
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

    compare(benchmark, capsys, f"append {size} B{' with crc' if checked else ''}", ours, bare, target if checked else 0.0, count, empty)
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

    compare(benchmark, capsys, f"append alone {size} B", ours, bare, 0.0, count, empty)
    directory.close(clean=False)
    os.close(fd)


def stamped(log: Log, body: bytes, count: int, rounds: int) -> list[list[RecordBatch]]:
    """Batches for several rounds of appends."""
    offset, made = log.end_offset, []
    for _ in range(rounds):
        batches = []
        for _ in range(count):
            batch = RecordBatch(body)
            batch.stamp(IDENTITY, offset, 3)
            offset += 1
            batches.append(batch)
        made.append(batches)
    return made


@pytest.mark.parametrize("against", ["crc", "read and crc"])
@pytest.mark.parametrize(("size", "target"), [(1 << 20, 0.45), (16 << 10, 0.42), (1 << 10, 0.0)], ids=["1MiB", "16KiB", "1KiB"])
def test_recovery(benchmark: Any, capsys: Any, tmp_path: Path, size: int, target: float, against: str) -> None:
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
        compare(benchmark, capsys, f"recovery scan {size} B against crc", ours, bare, target, count)
    else:
        compare(benchmark, capsys, f"recovery scan {size} B against reading and crc", ours, read_and_check, 0.0, count)
    os.close(fd)


def test_fetch(benchmark: Any, capsys: Any, tmp_path: Path) -> None:
    """Reading 1 MiB slices and sending them from the file, against a bare `os.sendfile` loop over the same file."""
    directory = FileLogDirectory(str(tmp_path / "d"))
    (log,) = directory.create([LogStart(IDENTITY, "t", TopicConfig(segment_bytes=1 << 30))])
    for batch in stamped(log, body_of(16 << 10), 4_096, 1)[0]:
        log.append(batch)
    log.forget_tail()
    here, there = socket.socketpair()
    buffer = bytearray(1 << 20)

    def drain() -> None:
        while there.recv_into(buffer):
            pass

    drainer = threading.Thread(target=drain)
    drainer.start()
    out, piece = here.fileno(), 1 << 20

    def send(fd: int, position: int, length: int) -> None:
        while length:
            sent = os.sendfile(out, fd, position, length)
            position += sent
            length -= sent

    def ours() -> None:
        offset = 0
        while offset < log.end_offset:
            for part in log.read(offset, log.end_offset, piece):
                assert isinstance(part, FileSlice)
                send(part.fileno(), part.position, part.length)
                offset = part.end_offset
                part.release()

    (path,) = (tmp_path / "d" / "logs").rglob("*.log")
    fd = os.open(path, os.O_RDONLY)

    def bare() -> None:
        for position in range(0, log.size_bytes, piece):
            send(fd, position, min(piece, log.size_bytes - position))

    compare(benchmark, capsys, "fetch 1 MiB", ours, bare, 0.90, log.size_bytes >> 20)
    here.close()
    drainer.join()
    there.close()
    os.close(fd)
    directory.close(clean=False)


def test_ten_thousand_logs(benchmark: Any, capsys: Any, tmp_path: Path) -> None:
    """Making 10,000 logs, against the one write and fsync that this needs; and opening them again."""
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
    benchmark.extra_info.update(create_s=round(seconds, 3), open_s=round(opening, 3))
    with capsys.disabled():
        print(f"\n10,000 logs: made in {seconds:.3f} s, opened in {opening:.3f} s")
    benchmark.pedantic(reopen, rounds=1)
