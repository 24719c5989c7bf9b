"""Each single file operation of a workload fails, in each way a disk can fail: what is then stored, promised and tried again (P-54)."""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import Literal

import pytest
from attrs import define, field

from replog.config import BrokerConfig, TopicConfig
from replog.errors import LogCorrupt, LogDamaged, LogFull
from replog.log.directory import FileLogDirectory
from replog.log.log import FileLog
from replog.model import PartitionId
from replog.ports import LogStart
from replog.testing.disk import FaultyFs, MemoryFs, keep_none
from replog.testing.disk.ledger import Content, Stored
from replog.testing.disk.session import batch_of_length
from replog.testing.disk.trial import content_of

Failure = Literal["EIO", "ENOSPC", "EROFS", "short"]
FIRST, SECOND = (PartitionId(bytes(range(16)), partition, 0) for partition in range(2))
LIMITS = BrokerConfig(index_interval_bytes=300)
CONFIG = TopicConfig(segment_bytes=700, flush="ack")
CODES = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "EROFS": errno.EROFS}


@define
class Failing:
    """The n-th operation fails; with `lasting` so does every one after it that needs what has failed."""

    number: int
    failure: Failure
    lasting: bool = False
    seen: int = 0
    failed: tuple[str, str] | None = None
    after: list[tuple[str, str]] = field(factory=list)
    """What was tried after the failure."""

    def __call__(self, operation: str, path: str) -> int | None:
        self.seen += 1
        if self.failed is not None:
            self.after.append((operation, path))
        hit = self.seen == self.number or (self.lasting and self.failed is not None)
        if not hit:
            return None
        if self.failure == "short":
            if operation == "write":
                self.failed = self.failed or (operation, path)
                return 37
            return None
        if self.failure == "ENOSPC" and operation not in ("write", "create", "mkdir"):
            return None
        if self.failure == "EROFS" and operation in ("fsync", "fsync_dir"):
            return None
        self.failed = self.failed or (operation, path)
        raise OSError(CODES[self.failure], "injected", path)


@define
class Life:
    """A directory with two logs, and what was promised of each."""

    directory: FileLogDirectory
    written: dict[PartitionId, list[Stored]]
    flushed: dict[PartitionId, int]
    refused: dict[PartitionId, int]

    def log(self, identity: PartitionId) -> FileLog:
        """One of the logs."""
        found = self.directory.get(identity)
        assert found is not None
        return found

    def append(self, identity: PartitionId, length: int) -> None:
        """Append and flush; a refusal leaves everything as it was."""
        log = self.log(identity)
        batch = batch_of_length(length, f"{identity.partition} at {log.end_offset}")
        batch.stamp(identity, log.end_offset, 0)
        end, size = log.end_offset, log.size_bytes
        try:
            log.append(batch)
        except (LogFull, LogDamaged):
            self.refused[identity] += 1
            assert (log.end_offset, log.size_bytes) == (end, size)
            return
        self.written[identity].append(Stored(batch.base_offset, batch.end_offset, batch.to_bytes()))
        with suppress(LogDamaged):
            token = log.flush()
            if token is not None:
                log.flushed(token.run())
        assert log.flushed_end >= self.flushed[identity], "it does not go back either"
        self.flushed[identity] = log.flushed_end


def begun(layer: FaultyFs) -> Life:
    directory = FileLogDirectory("/d", fs=layer, limits=LIMITS)
    directory.create([LogStart(identity, "t", CONFIG) for identity in (FIRST, SECOND)])
    directory.registered(1)
    life = Life(directory, {FIRST: [], SECOND: []}, {FIRST: 0, SECOND: 0}, {FIRST: 0, SECOND: 0})
    for identity in (FIRST, SECOND):
        life.append(identity, 300)
    return life


def work(life: Life) -> None:
    """Appends and flushes of both logs with rolls, and a checkpoint."""
    for number in range(4):
        life.append(FIRST, 300)
        life.append(SECOND, 250)
        if number == 1:
            with suppress(LogFull, LogDamaged):
                life.directory.checkpoint()


def operations() -> int:
    """How many there are when nothing fails."""
    layer = FaultyFs(MemoryFs())
    life = begun(layer)
    before = len(layer.operations)
    work(life)
    return len(layer.operations) - before


COUNT = operations()


def failed(number: int, failure: Failure, *, lasting: bool = False) -> tuple[MemoryFs, Failing, Life, FaultyFs]:
    """The workload with one failure, or None where this operation cannot fail so."""
    disk = MemoryFs()
    layer = FaultyFs(disk)
    life = begun(layer)
    failing = Failing(number, failure, lasting)
    layer.before = failing
    work(life)
    return disk, failing, life, layer


def check_stored(life: Life) -> None:
    """What each log serves is what was taken, refused appends left no trace."""
    for identity, written in life.written.items():
        assert content_of(life.log(identity)) == Content(0, tuple(written))


def check_next_life(disk: MemoryFs, life: Life) -> None:
    """After a power cut that leaves nothing unsynced, what was promised as flushed is there; nothing else was said."""
    with suppress(LogDamaged, LogFull, LogCorrupt):
        life.directory.close(clean=False)
    disk.cut_power(keep_none)
    directory = FileLogDirectory("/d", fs=disk, limits=LIMITS)
    for identity, written in life.written.items():
        log = directory.get(identity)
        assert log is not None
        content = content_of(log)
        assert content.batches == tuple(written[: len(content.batches)])
        assert content.end >= life.flushed[identity]
    directory.close(clean=False)


def test_there_is_something_to_fail() -> None:
    assert COUNT >= 40


@pytest.mark.parametrize("failure", ["EIO", "ENOSPC", "EROFS", "short"])
def test_one_failure_at_each_operation(failure: Failure) -> None:
    met: dict[str, int] = {}
    for number in range(1, COUNT + 1):
        disk, failing, life, _ = failed(number, failure)
        if failing.failed is None:
            continue
        operation, path = failing.failed
        met[operation] = met.get(operation, 0) + 1
        check_stored(life)
        if operation in ("fsync", "fsync_dir") and "/logs" in path:
            check_final(failing, life)
        elif failure in ("ENOSPC", "short") or (operation in ("write", "create", "truncate") and path.endswith(".index")):
            assert sum(life.refused.values()) <= 1, "it heals by itself"
            assert all(life.log(identity).flushed_end == life.log(identity).end_offset for identity in life.written)
        elif path.endswith(".log"):
            hurt = FIRST if "-0-0/" in path else SECOND
            other = SECOND if hurt == FIRST else FIRST
            assert life.refused[hurt] >= 1, "final for this log"
            assert life.refused[other] == 0, "and for no other"
        check_next_life(disk, life)
    wanted = {
        "EIO": {"write", "fsync", "fsync_dir", "create", "rename", "truncate"},
        "ENOSPC": {"write", "create"},
        "EROFS": {"write", "create", "rename", "truncate"},
        "short": {"write"},
    }
    assert met.keys() >= wanted[failure]


def check_final(failing: Failing, life: Life) -> None:
    """A failed flush: nothing is acknowledged in the whole directory any more, and no flush is tried again."""
    assert [path for operation, path in failing.after if operation == "fsync" and path.endswith(".log")] == []
    assert [path for operation, path in failing.after if operation == "write" and path.endswith(".log")] == []
    for identity in (FIRST, SECOND):
        log = life.log(identity)
        assert log.is_damaged
        assert log.flushed_end == life.flushed[identity]
        with pytest.raises(LogDamaged):
            log.flush()
    with pytest.raises(LogDamaged):
        life.directory.checkpoint()
    hurt = life.log(FIRST if failing.failed is not None and "-0-0" in failing.failed[1] else SECOND)
    if failing.failed is not None and failing.failed[0] == "fsync":
        assert hurt.flushed_end < hurt.end_offset, "what it concerned is not durable"


@pytest.mark.parametrize("failure", ["EIO", "ENOSPC", "EROFS"])
def test_failures_that_last(failure: Failure) -> None:
    """From each operation on; then it is over. A full disk is served again by itself, a broken or read-only one when it is opened again."""
    for number in range(1, COUNT + 1):
        disk, failing, life, layer = failed(number, failure, lasting=True)
        if failing.failed is None:
            continue
        check_stored(life)
        before = {identity: len(written) for identity, written in life.written.items()}
        layer.before = None
        for identity in (FIRST, SECOND):
            life.append(identity, 300)
        taken = [len(written) - before[identity] for identity, written in life.written.items()]
        if failure == "ENOSPC":
            assert taken == [1, 1], f"space is back after operation {number}, {failing.failed}"
        check_stored(life)
        check_next_life(disk, life)
        again = FileLogDirectory("/d", fs=disk, limits=LIMITS)
        for identity in (FIRST, SECOND):
            log = again.get(identity)
            assert log is not None
            batch = batch_of_length(300, "after")
            batch.stamp(identity, log.end_offset, 0)
            log.append(batch)


def test_another_directory_goes_on() -> None:
    """A broker's two disks, or two brokers: one that fails says nothing of the other."""
    disk = MemoryFs()
    layer = FaultyFs(disk)
    life = begun(layer)
    other = FileLogDirectory("/other", fs=disk, limits=LIMITS)
    (log,) = other.create([LogStart(FIRST, "t", CONFIG)])
    layer.before = Failing(1, "EIO", lasting=True)
    work(life)
    assert life.refused[FIRST] > 0
    batch = batch_of_length(300, "there")
    batch.stamp(FIRST, 0, 0)
    log.append(batch)
    token = log.flush()
    assert token is not None
    log.flushed(token.run())
    assert log.flushed_end == 1
    other.close(clean=True)
    assert FileLogDirectory("/other", fs=disk, limits=LIMITS).loss.kind == "none"
