"""What was cut off must not come back with a power cut and join what was written since; and what cannot be read is no end of the log."""

from __future__ import annotations

import errno

import pytest
from tests.unit.log.lives import FOLDER, IDENTITY, kill, open_directory, open_log, segments

from replog.config import TopicConfig
from replog.errors import LogCorrupt, LogDamaged, LogFull
from replog.log.log import FileLog
from replog.log.memory import MemoryLog
from replog.ports import LogStart
from replog.records import BODY_HEADER, Record, RecordBatch, encode_records, sealed
from replog.testing.disk import SECTOR, FaultyFs, MemoryFs, crash_states, keep_all
from replog.testing.disk.session import batch_of_length
from replog.testing.disk.trial import content_of
from replog.testing.log_contract import append, entries_of, flush, shown

Told = list[tuple[int, int]]


def put(log: FileLog, *epochs: int, length: int = SECTOR) -> None:
    """One batch per epoch, each of exactly one sector; the records at an offset are always the same ones."""
    for epoch in epochs:
        log.append(made(log.end_offset, epoch, length))


def made(offset: int, epoch: int, length: int = SECTOR) -> RecordBatch:
    batch = batch_of_length(length, f"record {offset}")
    batch.stamp(IDENTITY, offset, epoch)
    return batch


def told(log: FileLog) -> Told:
    """(offset, leader epoch) of each batch."""
    return [(batch.base, RecordBatch.parse(batch.data).leader_epoch) for batch in content_of(log).batches]


def after_every_power_cut(disk: MemoryFs) -> list[Told]:
    """What the log holds after each of them."""
    found = []
    for state in crash_states(disk):
        log = open_directory(state.disk()).get(IDENTITY)
        assert log is not None
        found.append(told(log))
    return found


def prefixes(*contents: Told) -> list[Told]:
    return [content[:length] for content in contents for length in range(len(content) + 1)]


@pytest.mark.parametrize("segment_bytes", [1 << 20, 2 * SECTOR], ids=["within a segment", "a whole segment"])
def test_truncated_records_do_not_join_the_new_ones(segment_bytes: int) -> None:
    """The new batch at offset 2 is lost and the one behind it is not: the old one at offset 2 would fit in between."""
    disk = MemoryFs()
    _, log = open_log(disk, TopicConfig(segment_bytes=segment_bytes))
    put(log, 1, 1, 1, 1)
    flush(log)
    before = told(log)
    log.truncate_to(2)
    put(log, 2, 2)
    found = after_every_power_cut(disk)
    assert told(log) in found
    allowed = prefixes(before, told(log))
    assert [one for one in found if one not in allowed] == []
    assert before not in found, "the truncation is durable before it returns"


def test_what_recovery_cuts_does_not_join_the_new_records() -> None:
    """A log on its own has but one epoch, so that epochs tell nothing here."""
    disk = MemoryFs()
    directory, log = open_log(disk, TopicConfig())
    put(log, 0, 0, 0)
    flush(log)
    kill(disk, directory)
    disk.content(segments(disk)[0])[SECTOR : 2 * SECTOR] = bytes(SECTOR)  # the second batch did not make it, the third did
    disk.cut_power(keep_all)
    directory = open_directory(disk)
    recovered = directory.get(IDENTITY)
    assert recovered is not None
    assert recovered.end_offset == 1
    put(recovered, 0)
    assert {len(one) for one in after_every_power_cut(disk)} == {1, 2}


def test_what_is_left_of_a_refused_group_does_not_join_the_next_records() -> None:
    """The first batch of a group fits on the disk, the second does not: none of it was stored."""
    disk = MemoryFs()
    room = [SECTOR + 100]

    def before(operation: str, path: str) -> int | None:
        if operation == "write" and path.endswith(".log") and room:
            if room[0]:
                room[:], allowed = [0], room[0]
                return allowed
            raise OSError(errno.ENOSPC, "no space left")
        return None

    layer = FaultyFs(disk)
    _, log = open_log(layer, TopicConfig())
    put(log, 1)
    flush(log)
    layer.before = before
    with pytest.raises(LogFull):
        log.append_many([made(1, 1), made(2, 1)])
    assert log.end_offset == 1
    room.clear()
    put(log, 2, 2)
    allowed = prefixes(told(log))
    assert [one for one in after_every_power_cut(disk) if one not in allowed] == []


@pytest.mark.parametrize(("operation", "offset"), [("fsync", 3), ("fsync_dir", 2)], ids=["in a file", "a whole file"])
def test_a_truncation_that_cannot_be_made_durable_ends_the_log(operation: str, offset: int) -> None:
    disk = MemoryFs()
    layer = FaultyFs(disk)
    directory, log = open_log(layer, TopicConfig(segment_bytes=2 * SECTOR))
    put(log, 1, 1, 1, 1)

    def before(asked: str, path: str) -> int | None:
        if asked == operation and path.startswith(FOLDER):
            raise OSError(errno.EIO, "injected")
        return None

    layer.before = before
    with pytest.raises(LogDamaged):
        log.truncate_to(offset)
    layer.before = None
    with pytest.raises(LogDamaged):
        put(log, 2)
    kill(disk, directory)
    found = open_directory(disk).get(IDENTITY)
    assert found is not None
    assert told(found) == [(at, 1) for at in range(offset)]


def test_a_log_made_anew_is_not_measured_by_its_earlier_life() -> None:
    """The checkpoint of a deleted log says that three records are flushed: not of the new log of the same name."""
    for records in (0, 1):
        disk = MemoryFs()
        directory, log = open_log(disk, TopicConfig())
        append(log, 3)
        flush(log)
        directory.checkpoint()
        directory.quarantine(IDENTITY, 5)
        (again,) = directory.create([LogStart(IDENTITY, "t", TopicConfig())])
        if records:
            append(again, records)
        kill(disk, directory)
        directory = open_directory(disk)
        assert directory.loss.kind == "process", directory.recovered
        found = directory.get(IDENTITY)
        assert found is not None
        assert found.end_offset == records


def test_a_torn_record_of_a_log_made_anew_is_found() -> None:
    """Below the flushed end of its earlier life nothing would be verified."""
    disk = MemoryFs()
    directory, log = open_log(disk, TopicConfig(segment_bytes=SECTOR))
    put(log, 1, 1, 1)
    flush(log)
    directory.checkpoint()
    directory.quarantine(IDENTITY, 5)
    (again,) = directory.create([LogStart(IDENTITY, "t", TopicConfig(segment_bytes=SECTOR))])
    assert isinstance(again, FileLog)
    put(again, 2, 2, 2)
    kill(disk, directory)
    first = disk.content(segments(disk)[0])
    first[200:] = bytes(len(first) - 200)
    disk.cut_power(keep_all)
    directory = open_directory(disk)
    found = directory.get(IDENTITY)
    assert found is not None
    assert (found.end_offset, directory.loss.lossy) == (0, (IDENTITY,))


def test_epochs_reach_back_as_far_as_the_log() -> None:
    """A trim inside a segment is forgotten by a crash, and the log starts where the segment does: so must its epochs."""
    disk = MemoryFs()
    directory, log = open_log(disk, TopicConfig(segment_bytes=4 * SECTOR))
    put(log, 1, 1, 2, 2, 3, 3, 3, 3)
    flush(log)
    directory.checkpoint()
    log.trim_to(3)
    put(log, 4)  # the segment of offset 4 is complete, and its summary is written
    flush(log)
    kill(disk, directory)
    found = open_directory(disk).get(IDENTITY)
    assert found is not None
    assert found.start_offset == 0
    assert entries_of(found) == [(1, 0), (2, 2), (3, 4), (4, 8)]
    assert len(shown(found)) == 9


# ---------------------------------------------------------------------------------------------------------- what cannot be read


def alone(disk: MemoryFs) -> tuple[FileLog, str]:
    """A log of its own that was closed cleanly, open again, and its one file."""
    with FileLog.open("/x", fs=disk) as log:
        for number in range(6):
            log.append_records([f"value {number}" * 10])
    (path,) = [path for path in disk.paths() if path.endswith(".log")]
    return FileLog.open("/x", fs=disk), path


@pytest.mark.parametrize("missing", [1, 40, 150])
def test_a_file_that_became_shorter_is_no_end_of_the_log(missing: int) -> None:
    disk = MemoryFs()
    log, path = alone(disk)
    assert len(list(log.records())) == 6
    log.forget_tail()
    del disk.content(path)[-missing:]
    with pytest.raises(LogCorrupt):
        list(log.records())
    for part in log.read(0, 1, 1):
        assert len(part.view()) == part.length


def test_bytes_that_cannot_be_read_are_no_end_of_the_log() -> None:
    disk = MemoryFs()

    class BadSector(FaultyFs):
        bad = False

        def pread(self, fd: int, count: int, position: int) -> bytes:
            if self.bad and count > 200 and self._paths[fd].endswith(".log"):
                raise OSError(errno.EIO, "injected")
            return super().pread(fd, count, position)

    log, _ = alone(disk)
    log.close()
    layer = BadSector(disk)
    log = FileLog.open("/x", fs=layer)
    assert len(list(log.records())) == 6
    layer.bad = True
    with pytest.raises(LogCorrupt):
        list(log.records())


def test_a_batch_with_a_wrong_count_is_no_end_of_the_log() -> None:
    """The checksum of the header does not cover the count; a batch that reaches beyond its segment is seen to be bad all the same."""
    disk = MemoryFs()
    log, path = alone(disk)
    assert log.size_bytes % 6 == 0
    disk.content(path)[log.size_bytes * 5 // 6 + 57] ^= 2
    with pytest.raises(LogCorrupt):
        log.read(5, 6, 1 << 20)
    with pytest.raises(LogCorrupt):
        list(log.records())


def test_an_intact_batch_at_the_place_of_another_is_seen() -> None:
    """A misdirected write: of this log, of the right length, and with the right checksums."""
    disk = MemoryFs()
    log, path = alone(disk)
    assert len(list(log.records())) == 6
    log.forget_tail()
    length, content = log.size_bytes // 6, disk.content(path)
    content[length : 2 * length] = content[4 * length : 5 * length]
    with pytest.raises(LogCorrupt, match="offset 4 is where that at 1 should be"):
        list(log.records())


def test_records_in_front_of_what_cannot_be_read_come_first() -> None:
    """Whether it is damaged, or what somebody has sealed is not what it claims."""
    disk = MemoryFs()
    log, path = alone(disk)
    log.forget_tail()
    disk.content(path)[log.size_bytes // 6 * 4 + 100] ^= 1
    found: list[Record] = []
    with pytest.raises(LogCorrupt, match="the batch at offset 4 does not match its payload checksum"):
        found.extend(log.records())
    assert [record.offset for record in found] == [0, 1, 2, 3]
    log = MemoryLog(IDENTITY)
    column = b"\x92\xc4\x01a\xc4\x02b"  # the second value is cut off
    strange = sealed([BODY_HEADER.pack(0, 0, 0, 2, 5, 5, -1, -1, -1)[4:], len(column).to_bytes(4, "little") + bytes(12), column])
    for body in (encode_records(["a", "b"], now_ms=5), strange, encode_records(["c"], now_ms=5)):
        batch = RecordBatch(body)
        batch.stamp(IDENTITY, log.end_offset, 0)
        log.append(batch)
    found.clear()
    with pytest.raises(LogCorrupt, match=r"offsets 2 to 3 is intact, and cannot be decoded \(values: .*\); go on at offset 4"):
        found.extend(log.records())
    assert [record.offset for record in found] == [0, 1]
    assert [record.offset for record in log.records(4)] == [4]
