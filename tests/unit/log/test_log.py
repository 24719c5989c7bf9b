"""What is particular to logs in files: segments, descriptors, slices, and the same answers as a log in memory."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.log.lives import IDENTITY, LIMITS, SMALL, kill, open_log, segments

from replog.config import BrokerConfig, TopicConfig
from replog.errors import LogCorrupt, UsageError
from replog.log.directory import FileLogDirectory
from replog.log.log import FileLog
from replog.log.memory import MemoryLog
from replog.log.open_files import FileSlice
from replog.ports import Log, LogStart
from replog.records import Record
from replog.testing.disk import FaultyFs, MemoryFs
from replog.testing.log_contract import append, batch_of, entries_of, flush, shown

# ----------------------------------------------------------------------------------------------------------- costs


def test_one_append_is_one_write() -> None:
    fs = FaultyFs(MemoryFs())
    _, log = open_log(fs, TopicConfig())
    append(log, 3)
    del fs.operations[:]
    for _ in range(50):
        append(log, 3, producer=(1, 0, log.end_offset))
    assert [operation for operation, _ in fs.operations] == ["write"] * 50
    batches, offset = [], log.end_offset
    for _ in range(20):
        batch = batch_of(2)
        batch.stamp(IDENTITY, offset, 0)
        offset = batch.end_offset
        batches.append(batch)
    del fs.operations[:]
    log.append_many(batches)
    assert len(fs.operations) == 1


def test_logs_without_records_have_no_files() -> None:
    fs = FaultyFs(MemoryFs())
    directory = FileLogDirectory("/d", fs=fs)
    del fs.operations[:]
    directory.create([LogStart(IDENTITY._replace(partition=n), "t", SMALL) for n in range(1_000)])
    assert [operation for operation, _ in fs.operations] == ["create", "write", "fsync", "fsync_dir"]
    directory.checkpoint()
    directory.close(clean=True)
    assert fs.listdir("/d/logs") == []


def test_reading_the_tail_touches_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = FaultyFs(MemoryFs())
    _, log = open_log(fs)
    append(log, 2)
    batch = append(log, 2)
    monkeypatch.setattr(fs, "pread", lambda *_: pytest.fail("the tail is in memory"))
    parts = [log.read(2, 4, 10)[0] for _ in range(2)]
    assert bytes(parts[0].view()) == batch.to_bytes()
    assert parts[0] is parts[1], "put together once for all who follow"
    log.forget_tail()
    monkeypatch.undo()
    assert isinstance(log.read(2, 4, 10)[0], FileSlice)


def test_never_more_open_files_than_allowed() -> None:
    fs = MemoryFs()
    limits = BrokerConfig(open_files_max=8, index_interval_bytes=200)
    directory = FileLogDirectory("/d", fs=fs, limits=limits)
    logs = directory.create([LogStart(IDENTITY._replace(partition=n), "t", SMALL) for n in range(12)])
    for _ in range(10):
        for log in logs:
            append(log, 2)
    for log in logs:
        assert len(shown(log)) == 20
    assert len(fs._open) <= 8 + 1  # and the lock
    for log in logs:
        log.forget_tail()
    pinned = [log.read(0, 2, 10)[0] for log in logs]
    assert len(fs._open) == 12 + 1, "slices keep their files open"
    views = [bytes(part.view()) for part in pinned]
    assert len(set(views)) == 12
    for part in pinned:
        part.release()
    assert len(fs._open) == 12 + 1, "whoever releases a slice may be anywhere"
    append(logs[0])
    assert len(shown(logs[5])) == 20
    assert len(fs._open) == 8 + 1
    directory.close(clean=True)
    assert len(fs._open) == 0


def test_files_beyond_the_limit_are_closed_when_nobody_needs_them_any_more() -> None:
    fs = MemoryFs()
    directory = FileLogDirectory("/d", fs=fs, limits=BrokerConfig(open_files_max=8))
    (log,) = directory.create([LogStart(IDENTITY, "t", TopicConfig(segment_bytes=256))])
    for _ in range(300):
        append(log, ["x" * 200])
    log.forget_tail()
    pinned = [log.read(n, n + 1, 1)[0] for n in range(299)]
    directory.close_unused()
    assert len(fs._open) >= 299, "each is needed"
    for part in pinned[:250]:
        part.release()
    directory.close_unused()
    assert len(fs._open) == 49 + 1
    assert all(len(part.view()) == part.length for part in pinned[250:])
    for part in pinned[250:]:
        part.release()
    directory.close_unused()
    assert len(fs._open) == 8 + 1
    assert len(shown(log)) == 300


def test_a_dropped_slice_lets_go_of_its_file() -> None:
    fs = MemoryFs()
    directory, log = open_log(fs)
    append(log, 2)
    log.forget_tail()
    parts = log.read(0, 2, 10)
    directory.close(clean=True)
    assert len(fs._open) == 1
    del parts
    assert len(fs._open) == 0


def test_files_are_private_and_named_by_identity(tmp_path: Path) -> None:
    directory = FileLogDirectory(str(tmp_path / "a" / "b"))
    (log,) = directory.create([LogStart(IDENTITY, "../../etc", SMALL)])
    for _ in range(10):
        append(log, 2)
    directory.close(clean=True)
    for folder, _, files in os.walk(tmp_path / "a"):
        assert os.stat(folder).st_mode & 0o777 == 0o700
        for file in files:
            assert os.stat(os.path.join(folder, file)).st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path / "a" / "b" / "logs") == [f"{IDENTITY.topic_id.hex()}-0-0"]


def test_no_symbolic_link_is_followed(tmp_path: Path) -> None:
    directory = FileLogDirectory(str(tmp_path / "d"))
    (log,) = directory.create([LogStart(IDENTITY, "t", SMALL)])
    append(log)
    directory.close(clean=False)
    (tmp_path / "elsewhere").write_bytes(b"precious")
    (path,) = (tmp_path / "d" / "logs").rglob("*.log")
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        FileLogDirectory(str(tmp_path / "d"))
    assert (tmp_path / "elsewhere").read_bytes() == b"precious"


def test_a_slice_is_sent_from_its_file(tmp_path: Path) -> None:
    directory = FileLogDirectory(str(tmp_path))
    (log,) = directory.create([LogStart(IDENTITY, "t", TopicConfig())])
    stored = b"".join(append(log, 2).to_bytes() for _ in range(3))
    log.forget_tail()
    (part,) = log.read(0, 6, 1 << 20)
    assert isinstance(part, FileSlice)
    here, there = socket.socketpair()
    with here, there:
        assert os.sendfile(here.fileno(), part.fileno(), part.position, part.length) == len(stored)
        assert there.recv(1 << 16) == stored
    assert not part.stale
    log.truncate_to(2)
    assert part.stale
    assert len(part.view()) == 0
    part.release()
    assert part.fileno() == -1
    directory.close(clean=False)


def test_a_slice_never_shows_what_was_written_over_it() -> None:
    _, log = open_log(MemoryFs(), TopicConfig())
    first = append(log, ["first"])
    append(log, ["second"])
    log.forget_tail()
    (cut,) = log.read(1, 2, 1 << 20)
    (kept,) = log.read(0, 1, 1 << 20)
    log.truncate_to(1)
    append(log, ["SECOND"], epoch=1)  # as long as what was there
    log.forget_tail()
    (anew,) = log.read(1, 2, 1 << 20)
    assert len(cut.view()) == 0
    assert bytes(kept.view()) == first.to_bytes()
    assert b"SECOND" in bytes(anew.view())


@pytest.mark.parametrize("wrong", range(3))
def test_an_index_that_leads_astray_is_built_anew(wrong: int) -> None:
    _, log = open_log(MemoryFs(), TopicConfig())
    lengths = [append(log, 2).length for _ in range(30)]
    assert len(set(lengths)) == 1
    log.forget_tail()
    for offset in range(60):
        for limit in range(offset // 2 * 2 + 2, 61, 7):
            for max_bytes in (1, 300, 500, 1 << 20):
                log._segments[0].index = None  # a right one, from the batches
                log.read(offset, limit, max_bytes)
                index = log._segments[0].index
                assert index is not None
                assert len(index.offsets) > 10
                for entry in range(1, len(index.offsets)):
                    if wrong == 0:
                        index.positions[entry] += 1
                    elif wrong == 1:
                        index.offsets[entry] += 2
                    else:
                        index.positions[entry] = index.positions[entry - 1]
                log._segments[0].resume.clear()
                (part,) = log.read(offset, limit, max_bytes)
                assert part.base_offset == offset // 2 * 2
                assert part.end_offset == min(limit // 2 * 2, part.base_offset + 2 * max(1, max_bytes // lengths[0]))
                assert len(part.view()) == part.length
    assert len(shown(log)) == 60


def test_bytes_of_another_log_are_never_served() -> None:
    """A misdirected write: intact batches with the right offsets, and yet not of this log."""
    fs = MemoryFs()
    directory, log = open_log(fs, TopicConfig())
    (other,) = directory.create([LogStart(IDENTITY._replace(partition=1), "t", TopicConfig())])
    for _ in range(4):
        append(log, 2)
        append(other, 2)
    log.forget_tail()
    mine, theirs = (fs.content(f"/{path}") for path in fs.paths() if path.endswith(".log"))
    mine[len(mine) // 2 :] = theirs[len(mine) // 2 :]
    assert len(log.read(0, 4, 1 << 20)) == 1
    for offset in (4, 6):
        with pytest.raises(LogCorrupt):
            log.read(offset, 8, 1 << 20)
    log._segments[0].index = None  # and not when the index is built from headers either
    assert [part.end_offset for part in log.read(0, 4, 1 << 20)] == [4]
    for offset in (4, 6):
        with pytest.raises(LogCorrupt):
            log.read(offset, 8, 1 << 20)


def test_pinned_files_do_not_use_up_the_limit() -> None:
    fs = MemoryFs()
    directory = FileLogDirectory("/d", fs=fs, limits=BrokerConfig(open_files_max=8))
    logs = directory.create([LogStart(IDENTITY._replace(partition=n), "t", SMALL) for n in range(30)])
    for log in logs[:5]:
        append(log, 2)
        log.forget_tail()
    pinned = [log.read(0, 2, 10)[0] for log in logs[:5]]
    for log in logs:
        append(log, 2)
        assert len(fs._open) <= 8 + 1
    assert all(len(part.view()) == part.length for part in pinned)


# ------------------------------------------------------------------------------------------------------- rolling


def test_segments_are_rolled_by_size_and_by_age() -> None:
    fs = MemoryFs()
    _, log = open_log(fs, TopicConfig(segment_bytes=10_000, segment_ms=100))
    length = append(log, 2, at_ms=1_000).length
    append(log, 2, at_ms=1_099)
    assert len(segments(fs)) == 1
    append(log, 2, at_ms=1_100)
    assert len(segments(fs)) == 2
    log.config = TopicConfig(segment_bytes=max(256, 2 * length))
    append(log, 2, at_ms=1_100)
    append(log, 2, at_ms=1_100)
    assert [int(path[-24:-4]) for path in segments(fs)] == [0, 4, 8]


def test_a_batch_larger_than_a_segment_has_one_to_itself() -> None:
    fs = MemoryFs()
    _, log = open_log(fs, TopicConfig(segment_bytes=300))
    for _ in range(3):
        append(log, ["x" * 1_000])
    assert len(segments(fs)) == 3
    assert len(shown(log)) == 3


# ---------------------------------------------------------------------------------------------- used on its own


def test_a_log_on_its_own(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    with Log.open(path) as log:
        assert log.append_records(["a", Record("b", key="k", headers=[("h", b"1")], timestamp_ms=77)]) == (0, 1)
        assert log.append_records([b"c"], compression="lz4") == (2, 2)
        assert [(r.offset, r.value) for r in log.records()] == [(0, b"a"), (1, b"b"), (2, b"c")]
        assert [r.value for r in log.records(1, 2)] == [b"b"]
        identity = log.identity
        with pytest.raises(UsageError, match=path):
            Log.open(path)
    with pytest.raises(UsageError):
        log.append_records(["d"])
    with FileLog.open(path, config=TopicConfig(flush="ack")) as log:
        assert log.identity == identity
        assert log.loss is not None
        assert log.loss.kind == "none"
        assert log.append_records(["d"]) == (3, 3)
        record = next(iter(log.records(1)))
        assert (record.key, record.headers, record.timestamp_ms, record.leader_epoch) == (b"k", [("h", b"1")], 77, 0)
    with FileLog.open(path) as log:
        assert log.config.flush == "ack"


@pytest.mark.parametrize("segment_bytes", [50_000, 1 << 22])
@pytest.mark.parametrize("kind", ["files", "memory"])
def test_records_go_on_at_the_first_record_that_is_kept(tmp_path: Path, kind: str, segment_bytes: int) -> None:
    """A reader's place may be trimmed, or retained, away under it."""
    config = TopicConfig(segment_bytes=segment_bytes, retention_ms=1)
    log = FileLog.open(tmp_path / "log", config=config) if kind == "files" else MemoryLog(IDENTITY, config)
    for number in range(300):
        log.append_records([f"{number:08}" * 1_000], now_ms=number)
    log.forget_tail()
    reader, early, retained = log.records(), log.records(start=5), log.records(stop=260)
    assert [next(reader).offset, next(retained).offset] == [0, 0]
    assert log.trim_to(250) == 250
    rest = [record.offset for record in reader]
    assert rest == [*range(1, rest.index(250) + 1), *range(250, 300)], "what it had read ahead, and then what is kept"
    assert [record.offset for record in early] == list(range(250, 300))
    assert [record.offset for record in retained][-10:] == list(range(250, 260))
    last = log.records()
    assert log.retain(1 << 50, 300) == 300
    assert list(last) == []
    log.close()


def test_a_read_below_the_start_of_a_log_on_its_own_is_refused(tmp_path: Path) -> None:
    with FileLog.open(tmp_path / "log") as log:
        for _ in range(3):
            log.append_records(["x"])
        log.forget_tail()
        log.trim_to(2)
        with pytest.raises(UsageError, match="offset is 1; the log starts at 2"):
            log.read(1, 3, 1_000)
        assert log.read(2, 3, 1_000)[0].end_offset == 3


def test_a_log_on_its_own_is_not_a_brokers(tmp_path: Path) -> None:
    directory = FileLogDirectory(str(tmp_path))
    directory.create([LogStart(IDENTITY, "orders", SMALL)])
    directory.close(clean=True)
    with pytest.raises(UsageError, match="broker"):
        Log.open(str(tmp_path))
    FileLogDirectory(str(tmp_path)).close(clean=True)


def test_a_batch_that_is_too_large_is_refused(tmp_path: Path) -> None:
    with FileLog.open(str(tmp_path), config=TopicConfig(max_batch_bytes=300)) as log:
        with pytest.raises(UsageError, match="300"):
            log.append_records(["x" * 300])
        assert log.end_offset == 0


# ----------------------------------------------------------------------------------------- both backends agree

OPERATIONS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 3), st.integers(-1, 2), st.integers(0, 400)),
    st.tuples(st.just("append_many"), st.integers(1, 8)),
    st.tuples(st.just("epoch"), st.integers(1, 3)),
    st.tuples(st.just("truncate"), st.integers(0, 1_000)),
    st.tuples(st.just("trim"), st.integers(0, 1_000)),
    st.tuples(st.just("reset"), st.integers(0, 60)),
    st.tuples(st.just("retain"), st.integers(0, 500), st.integers(0, 1_000)),
    st.tuples(st.just("read"), st.integers(0, 1_000), st.integers(0, 1_000), st.integers(0, 2_000)),
    st.tuples(st.just("time"), st.integers(0, 450)),
    st.tuples(st.just("flush")),
    st.tuples(st.just("reopen"), st.booleans()),
)
RETAINING = TopicConfig(segment_bytes=500, segment_ms=300, retention_ms=200, retention_bytes=1_500)


class Both:
    """The same operations on a log in files and a log in memory."""

    def __init__(self) -> None:
        self.fs = MemoryFs()
        self.directory, self.log = open_log(self.fs, RETAINING)
        self.memory = MemoryLog(IDENTITY, RETAINING, limits=LIMITS)
        self.sequences = [0, 0, 0]

    def within(self, part: int) -> int:
        """An offset of the log, or its end."""
        return self.log.start_offset + part % (self.log.end_offset - self.log.start_offset + 1)

    def each(self, name: str, *arguments: Any) -> None:
        found, expected = getattr(self.log, name)(*arguments), getattr(self.memory, name)(*arguments)
        assert found == expected, (name, arguments)

    def run(self, operation: tuple[Any, ...]) -> None:
        name, *rest = operation
        getattr(self, f"do_{name}")(*rest)
        assert (self.log.start_offset, self.log.end_offset) == (self.memory.start_offset, self.memory.end_offset)
        assert self.log.flushed_end == self.memory.flushed_end
        assert entries_of(self.log) == entries_of(self.memory)
        assert self.log.size_bytes == self.memory.size_bytes
        assert shown(self.log) == shown(self.memory)
        assert self.log.producers.snapshot() == self.memory.producers.snapshot()

    def do_append(self, count: int, producer: int, at_ms: int) -> None:
        batch = batch_of(count, at_ms=at_ms, producer=(producer, 0, self.sequences[producer]) if producer >= 0 else (-1, -1, -1))
        self.sequences[producer] += count
        batch.stamp(IDENTITY, self.log.end_offset, max(self.log.last_epoch, 0))
        self.log.append(batch)
        self.memory.append(batch)

    def do_append_many(self, count: int) -> None:
        batches, offset = [], self.log.end_offset
        for number in range(count):
            batch = batch_of(number % 2 + 1, at_ms=50 * number)
            batch.stamp(IDENTITY, offset, max(self.log.last_epoch, 0) + number // 3)
            offset = batch.end_offset
            batches.append(batch)
        self.log.append_many(batches)
        self.memory.append_many(batches)

    def do_epoch(self, step: int) -> None:
        self.each("enter_epoch", max(self.log.last_epoch, self.memory.last_epoch) + step)

    def do_truncate(self, part: int) -> None:
        self.each("truncate_to", self.within(part))

    def do_trim(self, part: int) -> None:
        self.each("trim_to", self.within(part))

    def do_reset(self, offset: int) -> None:
        self.each("reset_to", offset)

    def do_retain(self, wall_ms: int, part: int) -> None:
        self.each("retain", wall_ms, self.within(part))

    def do_read(self, part: int, limit: int, max_bytes: int) -> None:
        answers = []
        for log in (self.log, self.memory):
            parts = log.read(self.within(part), self.within(limit), max_bytes)
            answers.append(b"".join(bytes(one.view()) for one in parts))
        assert answers[0] == answers[1]

    def do_time(self, at_ms: int) -> None:
        self.each("offset_for_time", at_ms)

    def do_flush(self) -> None:
        flush(self.log)
        flush(self.memory)

    def do_reopen(self, clean: bool) -> None:
        """A log that kept all its batches is the same after any stop. (Epochs and producers without a record left are not kept.)"""
        if self.log.start_offset or self.log.producers.forgetful:
            return
        if clean:
            self.do_flush()
            self.directory.close(clean=True)
        else:
            self.directory.checkpoint()
            kill(self.fs, self.directory)
        self.directory, self.log = open_log(self.fs, RETAINING)
        flushed = self.memory.flushed_end
        self.memory = self.memory.revived(self.memory.end_offset)
        assert self.memory.flushed_end == flushed


@given(st.lists(OPERATIONS, max_size=25))
def test_files_and_memory_agree(operations: list[tuple[Any, ...]]) -> None:
    both = Both()
    for operation in operations:
        both.run(operation)
