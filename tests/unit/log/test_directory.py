"""A data directory: who it is, who may open it, which logs it has, and what it does after a crash at any point."""

from __future__ import annotations

import errno
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.log.lives import FOLDER, IDENTITY, LIMITS, SMALL, crash_everywhere, kill, open_directory, open_log, segments

from replog.config import TopicConfig
from replog.errors import LogCorrupt, LogFull, UsageError
from replog.log import catalogue
from replog.log.checkpoint import read_file, write_plain
from replog.log.directory import FileLogDirectory
from replog.log.log import FileLog
from replog.model import PartitionId
from replog.ports import LogStart
from replog.testing.disk import CrashedError, FaultyFs, MemoryFs, keep_all, keep_none, some
from replog.testing.log_contract import TOPIC_ID, append, flush, shown

OTHER = IDENTITY._replace(partition=1)


def image(fs: MemoryFs) -> dict[str, bytes]:
    """Every file and its content."""
    return {path: bytes(fs.content(f"/{path}")) for path in fs.paths()}


def test_it_keeps_its_identity() -> None:
    fs = MemoryFs()
    directory = open_directory(fs)
    first = directory.directory_id
    directory.close(clean=True)
    assert open_directory(fs).directory_id == first
    assert len(first) == 32


def test_a_second_object_is_refused_and_writes_nothing() -> None:
    fs = MemoryFs()
    directory, log = open_log(fs)
    append(log)
    before = image(fs)
    with pytest.raises(UsageError, match="/d is in use"):
        open_directory(fs)
    assert image(fs) == before
    append(log)
    directory.close(clean=False)
    open_directory(fs)


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda fs: write_plain(fs, "/d", "meta", {"kind": "replog log directory", "format": 2, "directory_id": "x"}), "format 2"),
        (lambda fs: write_plain(fs, "/d", "meta", {"kind": "something else"}), "another kind"),
        (lambda fs: fs.content("/d/meta").__setitem__(slice(None), b"{}"), "something else"),
    ],
)
def test_what_is_not_ours_is_left_alone(prepare: Callable[[MemoryFs], object], message: str) -> None:
    fs = MemoryFs()
    kill(fs, open_log(fs)[0])
    prepare(fs)
    before = image(fs)
    with pytest.raises(UsageError, match=message):
        open_directory(fs)
    assert image(fs) == before


def test_a_folder_of_somebody_else_is_left_alone() -> None:
    fs = MemoryFs()
    fs.mkdir("/d")
    fs.open("/d/photo.jpg", create=True)
    with pytest.raises(UsageError, match=r"photo\.jpg"):
        open_directory(fs)
    assert fs.listdir("/d") == ["photo.jpg"]
    fs.open("/file", create=True)
    with pytest.raises(UsageError, match="is a file"):
        FileLogDirectory("/file", fs=fs)


def test_the_top_of_a_new_file_system_is_an_empty_folder() -> None:
    fs = MemoryFs()
    for folder in ("/d", "/d/lost+found", "/other", "/other/lost+found"):
        fs.mkdir(folder)
    kill(fs, open_log(fs)[0])
    assert {"lost+found", "meta"} <= set(fs.listdir("/d"))
    open_directory(fs)
    fs.open("/other/photo.jpg", create=True)
    with pytest.raises(UsageError, match=r"it has 'photo\.jpg'"):
        FileLogDirectory("/other", fs=fs)


def test_lost_meta_data_is_reported() -> None:
    fs = MemoryFs()
    kill(fs, open_log(fs)[0])
    fs.unlink("/d/meta")
    with pytest.raises(LogCorrupt, match="lost"):
        open_directory(fs)


@pytest.mark.parametrize("bit", range(0, 8 * 60, 7))
def test_damaged_meta_data_is_reported_and_nothing_is_deleted(bit: int) -> None:
    fs = MemoryFs()
    directory, log = open_log(fs)
    append(log)
    kill(fs, directory)
    fs.content("/d/meta")[4 + bit // 8] ^= 1 << bit % 8
    before = image(fs)
    with pytest.raises(LogCorrupt, match="/d/meta"):
        open_directory(fs)
    assert image(fs) == before


def test_a_catalogue_cut_anywhere_loses_only_its_last_entry() -> None:
    fs = MemoryFs()
    directory = open_directory(fs)
    directory.create([LogStart(IDENTITY, "t", SMALL)])
    size = len(fs.content("/d/catalogue"))
    directory.create([LogStart(OTHER, "t", SMALL)])
    kill(fs, directory)
    whole = bytes(fs.content("/d/catalogue"))
    for cut in range(size, len(whole)):
        fs.content("/d/catalogue")[:] = whole[:cut]
        directory = open_directory(fs)
        assert directory.identities() == [IDENTITY]
        directory.create([LogStart(OTHER._replace(partition=2), "t", SMALL)])
        kill(fs, directory)
        directory = open_directory(fs)
        assert directory.identities() == [IDENTITY, OTHER._replace(partition=2)]
        kill(fs, directory)


def test_a_short_entry_overwrites_all_of_a_longer_torn_one() -> None:
    fs = MemoryFs()
    directory = open_directory(fs)
    directory.create([LogStart(IDENTITY, "t", SMALL)])
    size = len(fs.content("/d/catalogue"))
    directory.create([LogStart(OTHER._replace(partition=n), "a long name of a topic" * 5, SMALL) for n in range(1, 9)])
    kill(fs, directory)
    del fs.content("/d/catalogue")[-1:]
    directory = open_directory(fs)
    directory.create([LogStart(OTHER, "t", SMALL)])
    assert len(fs.content("/d/catalogue")) < 3 * size
    kill(fs, directory)
    assert open_directory(fs).identities() == [IDENTITY, OTHER]


def test_damage_inside_the_catalogue_is_reported() -> None:
    fs = MemoryFs()
    directory = open_directory(fs)
    directory.create([LogStart(IDENTITY, "t", SMALL)])
    directory.create([LogStart(OTHER, "t", SMALL)])
    kill(fs, directory)
    for byte in range(40):
        fs.content("/d/catalogue")[byte] ^= 0x10
        before = image(fs)
        with pytest.raises(LogCorrupt, match="/d/catalogue"):
            open_directory(fs)
        assert image(fs) == before
        fs.content("/d/catalogue")[byte] ^= 0x10


@pytest.mark.parametrize("lost", [0, 3], ids=["damaged", "torn"])
def test_where_a_large_entry_is_no_good_nothing_is_copied_at_every_byte(lost: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what is behind that byte, nor what a number there, taken for a length, would have."""
    fs = MemoryFs()
    directory = open_directory(fs)
    many = [PartitionId(topic_id, n, 0) for topic_id in (TOPIC_ID, b"\0\x10\0\0" * 4) for n in range(300)]
    directory.create([LogStart(identity, "t", SMALL) for identity in many])
    directory.create([LogStart(IDENTITY._replace(creation=n), "t", SMALL) for n in range(1, 21)])  # another kind of list than one of a few
    kill(fs, directory)
    content = fs.content("/d/catalogue")
    size = len(content)
    if lost:
        small = int.from_bytes(content[:4], "little") + 8
        del content[small - lost :]
    else:
        content[100] ^= 1
    copied = 0

    class Counted(bytes):
        def __getitem__(self, key: Any) -> Any:
            nonlocal copied
            found = super().__getitem__(key)
            copied += len(found) if isinstance(found, bytes) else 0
            return found

    monkeypatch.setattr(catalogue, "read_file", lambda fs, path: Counted(read_file(fs, path) or b""))
    if lost:
        assert open_directory(fs).identities() == []
    else:
        with pytest.raises(LogCorrupt, match="the entry at byte 0 is damaged, and there are good ones behind it"):
            open_directory(fs)
    assert copied < 3 * size


def test_a_log_that_the_catalogue_lacks_is_reported() -> None:
    """The end of the catalogue is damaged after all: what it said had been relied on."""
    fs = MemoryFs()
    directory, log = open_log(fs)
    append(log)
    kill(fs, directory)
    fs.content("/d/catalogue")[-1] ^= 1
    before = image(fs)
    with pytest.raises(LogCorrupt, match="no catalogue entry"):
        open_directory(fs)
    assert image(fs) == before


def test_a_catalogue_of_many_changes_is_written_anew() -> None:
    fs = MemoryFs()
    directory = open_directory(fs)
    for number in range(600):
        directory.create([LogStart(IDENTITY, "t", TopicConfig(segment_bytes=300 + number))])
        directory.create([LogStart(OTHER, "t", SMALL)])
        directory.quarantine(OTHER, number)
    size = len(fs.content("/d/catalogue"))
    kill(fs, directory)
    directory = open_directory(fs)
    assert len(fs.content("/d/catalogue")) < size / 100
    for _ in range(2):
        assert directory.identities() == [IDENTITY]
        log = directory.get(IDENTITY)
        assert log is not None
        assert log.config.segment_bytes == 899
        assert directory.quarantined() == {OTHER: 599}
        kill(fs, directory)
        directory = open_directory(fs)


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("damage", ["gone", "cut", "flip"])
def test_without_a_checkpoint_nothing_is_truncated(damage: str, power: bool) -> None:
    """P-50: what a checkpoint says is advice; losing it never costs a record, although the log was trimmed."""
    fs = MemoryFs()
    directory, log = open_log(fs, TopicConfig(segment_bytes=500, flush="ack"))
    for _ in range(20):
        append(log, 2)
    flush(log)
    log.trim_to(30)
    directory.high_watermarks[IDENTITY] = 32
    directory.checkpoint()
    kill(fs, directory)
    if damage == "gone":
        fs.unlink("/d/checkpoint")
    elif damage == "cut":
        del fs.content("/d/checkpoint")[-3:]
    else:
        fs.content("/d/checkpoint")[20] ^= 1
    if power:
        fs.cut_power(keep_all)
    directory = open_directory(fs)
    assert directory.high_watermarks == {}
    found = directory.get(IDENTITY)
    assert found is not None
    assert 20 < found.start_offset <= 30, "where its first file begins"
    assert found.end_offset == 40
    assert len(shown(found)) == 40 - found.start_offset
    assert directory.loss.lossy == ((IDENTITY,) if power else ()), "what may be missing in front cannot be told"


def test_a_lost_first_segment_is_not_taken_for_a_trimmed_one() -> None:
    """The second segment reached the disk before the power cut, the first did not: nobody may serve this as a whole log."""
    fs = MemoryFs()
    directory, log = open_log(fs)
    for _ in range(20):
        append(log, 2)
    kill(fs, directory)
    first = segments(fs)[0]
    fs.unlink(first)
    fs.cut_power(keep_all)
    directory = open_directory(fs)
    found = directory.get(IDENTITY)
    assert found is not None
    assert (found.start_offset, found.end_offset) == (0, 0)
    assert directory.loss.lossy == (IDENTITY,)
    assert [path for path in fs.paths(FOLDER) if path.endswith(".bad")], "what does not join on is kept aside"


@pytest.mark.parametrize(("choose", "start"), [(keep_none, 28), (keep_all, 30)])
def test_a_marker_that_comes_back_changes_nothing(choose: Callable[[], bool], start: int) -> None:
    """A checkpoint makes the marker of a reset superfluous; its removal need not have reached the disk. It is from before a trim."""
    fs = MemoryFs()
    directory, log = open_log(fs)
    append(log, 2)
    log.reset_to(10)
    for _ in range(15):
        append(log, 2)
    flush(log)
    log.trim_to(31)
    assert [path for path in fs.paths(FOLDER) if path.endswith("marker")]
    directory.checkpoint()
    assert not [path for path in fs.paths(FOLDER) if path.endswith("marker")]
    kill(fs, directory)
    fs.cut_power(choose)
    directory = open_directory(fs)
    found = directory.get(IDENTITY)
    assert found is not None
    assert (found.start_offset, found.end_offset, directory.loss.kind) == (start, 40, "power"), "at the latest where its first file begins"
    assert len(shown(found)) == 40 - start


@pytest.mark.parametrize("early", [False, True])
def test_a_marker_does_not_come_back_after_a_clean_stop(early: bool) -> None:
    """Nobody would see it until the life after the next one is killed, and it is from long before."""
    fs = MemoryFs()
    directory, log = open_log(fs, TopicConfig())
    for _ in range(5):
        append(log, 2)
    flush(log)
    directory.high_watermarks[IDENTITY] = 10
    directory.checkpoint()
    log.truncate_to(6)
    if early:
        directory.checkpoint()
    for _ in range(7):
        append(log, 2, epoch=1)
    flush(log)
    directory.high_watermarks[IDENTITY] = 20
    directory.close(clean=True)
    fs.cut_power(keep_none)
    kill(fs, open_directory(fs))
    assert open_directory(fs).high_watermarks == {IDENTITY: 20}


def test_high_watermarks_are_clamped_to_the_log() -> None:
    fs = MemoryFs()
    directory, log = open_log(fs)
    for _ in range(20):
        append(log, 2)
    for saved, found in ((5, 20), (500, 40), (30, 30)):
        directory.high_watermarks[IDENTITY] = saved
        log.trim_to(20)
        directory.checkpoint()
        kill(fs, directory)
        directory = open_directory(fs)
        log = directory.get(IDENTITY)  # type: ignore[assignment]
        assert directory.high_watermarks == {IDENTITY: found}


def test_a_high_watermark_is_lowered_before_others_take_the_place_of_what_a_power_cut_took() -> None:
    disk = MemoryFs()
    directory, log = open_log(disk)
    append(log, 2)
    flush(log)
    append(log, 2)
    directory.high_watermarks[IDENTITY] = 4
    directory.checkpoint()
    disk.cut_power(keep_none)
    directory = open_directory(disk)
    assert directory.high_watermarks == {IDENTITY: 2}
    log = directory.get(IDENTITY)
    assert log is not None
    append(log, 2, epoch=1)
    append(log, 2, epoch=1)
    kill(disk, directory)
    directory = open_directory(disk)
    assert directory.get(IDENTITY).end_offset == 6  # type: ignore[union-attr]
    assert directory.high_watermarks == {IDENTITY: 2}


def test_a_high_watermark_is_not_kept_for_want_of_room_for_a_lower_one() -> None:
    def full(operation: str, path: str) -> None:
        if operation in ("create", "write") and path.startswith("/d/checkpoint"):
            raise OSError(errno.ENOSPC, "injected", path)

    disk = MemoryFs()
    directory, log = open_log(disk)
    append(log, 2)
    flush(log)
    append(log, 2)
    directory.high_watermarks[IDENTITY] = 4
    directory.checkpoint()
    disk.cut_power(keep_none)
    layer = FaultyFs(disk, full)
    directory = open_directory(layer)
    layer.before = None
    log = directory.get(IDENTITY)  # type: ignore[assignment]
    append(log, 4, epoch=1)
    kill(disk, directory)
    directory = open_directory(disk)
    assert directory.get(IDENTITY).end_offset == 6  # type: ignore[union-attr]
    assert directory.high_watermarks.get(IDENTITY, 0) <= 2


def test_a_checkpoint_is_kept_where_a_marker_says_what_it_is_worth() -> None:
    """There is no room for another; without one the log would begin where its files do."""

    def full(operation: str, path: str) -> None:
        if operation in ("create", "write") and path.startswith("/d/checkpoint"):
            raise OSError(errno.ENOSPC, "injected", path)

    disk = MemoryFs()
    directory, log = open_log(disk, TopicConfig())
    for _ in range(5):
        append(log, 2)
    flush(log)
    log.trim_to(4)
    directory.high_watermarks[IDENTITY] = 10
    directory.checkpoint()
    log.truncate_to(6)
    append(log, 2, epoch=1)
    for _ in range(2):
        kill(disk, directory)
        directory = open_directory(FaultyFs(disk, full))
        log = directory.get(IDENTITY)  # type: ignore[assignment]
        assert (log.start_offset, log.end_offset, directory.high_watermarks) == (4, 8, {IDENTITY: 6})


def after_half_a_checkpoint() -> tuple[MemoryFs, FileLogDirectory, FileLog]:
    """Ten records, flushed and below the high watermark: the checkpoint that says so has its name, and the folder could not be synced."""

    def no_descriptors(operation: str, path: str) -> None:
        if operation == "fsync_dir" and path == "/d":
            raise OSError(errno.EMFILE, "injected", path)

    disk = MemoryFs()
    layer = FaultyFs(disk)
    directory, log = open_log(layer)
    for _ in range(5):
        append(log, 2)
    flush(log)
    directory.high_watermarks[IDENTITY] = 10
    layer.before = no_descriptors
    with pytest.raises(LogFull):
        directory.checkpoint()
    layer.before = None
    return disk, directory, log


@pytest.mark.parametrize("power", [False, True])
def test_what_is_cut_after_half_a_checkpoint_is_cut_on_purpose(power: bool) -> None:
    """The next life believes the one checkpoint or the other: neither may call flushed, or committed, what is there instead."""
    disk, directory, log = after_half_a_checkpoint()
    log.truncate_to(6)
    directory.high_watermarks[IDENTITY] = 6
    for _ in range(2):
        append(log, 2, epoch=7)
    flush(log)
    kill(disk, directory)
    if power:
        disk.cut_power()
    directory = open_directory(disk)
    assert directory.recovered == {}
    assert directory.get(IDENTITY).end_offset == 10  # type: ignore[union-attr]
    assert directory.high_watermarks.get(IDENTITY, 0) <= 6


def test_a_cut_after_half_a_checkpoint_is_no_damage() -> None:
    disk, directory, log = after_half_a_checkpoint()
    log.truncate_to(6)
    kill(disk, directory)
    directory = open_directory(disk)
    assert (directory.loss.kind, directory.recovered) == ("process", {})


def test_a_log_made_anew_after_half_a_checkpoint_is_not_measured_by_its_earlier_life() -> None:
    disk, directory, _ = after_half_a_checkpoint()
    directory.quarantine(IDENTITY, 5)
    directory.create([LogStart(IDENTITY, "t", SMALL)])
    kill(disk, directory)
    directory = open_directory(disk)
    assert (directory.loss.kind, directory.recovered) == ("process", {})


def test_the_clean_marker_goes_before_the_first_append() -> None:
    fs = MemoryFs()
    directory, log = open_log(fs)
    append(log)
    directory.registered(9)
    directory.close(clean=True)
    assert fs.size("/d/clean") is not None
    directory = open_directory(fs)
    assert directory.loss.kind == "none"
    for choose in (keep_none, keep_all):
        fs.cut_power(choose)  # the removal itself is durable
        assert fs.size("/d/clean") is None
    assert open_directory(fs).loss.kind == "power"


class CountingFs(MemoryFs):
    """Counts what waits for the disk."""

    syncs = 0

    def fsync(self, fd: int) -> None:
        self.syncs += 1
        super().fsync(fd)

    def fsync_dir(self, path: str) -> None:
        self.syncs += 1
        super().fsync_dir(path)


def test_many_logs_go_with_as_many_flushes_as_one() -> None:
    fs = CountingFs()
    directory = open_directory(fs)
    many = [IDENTITY._replace(partition=number) for number in range(200)]
    for log in directory.create([LogStart(identity, "t", SMALL) for identity in many]):
        append(log)
    costs = []
    for some_of_them in (many[:1], many[1:]):
        before = fs.syncs
        directory.quarantine_each(some_of_them, 5)
        directory.purge_each(some_of_them)
        costs.append(fs.syncs - before)
    assert costs[0] == costs[1] <= 5
    assert directory.quarantined() == {}
    assert directory.identities() == []
    assert (fs.listdir("/d/quarantine"), fs.listdir("/d/logs")) == ([], [])


def six_batches(fs: MemoryFs) -> None:
    """A directory that was closed, with a log of as many batches of two."""
    directory, log = open_log(fs)
    for _ in range(6):
        append(log, 2)
    directory.close(clean=True)


def test_a_crash_in_a_quarantine() -> None:
    def check(directory: FileLogDirectory, finished: bool) -> None:
        log = directory.get(IDENTITY)
        assert (log is None) == (directory.quarantined() == {IDENTITY: 77})
        assert log is None or not finished
        assert log is None or len(shown(log)) == 12
        (anew,) = directory.create([LogStart(IDENTITY, "t", SMALL)])
        assert anew.end_offset == (0 if log is None else 12)
        directory.quarantine(IDENTITY, 78)
        directory.purge(IDENTITY)
        assert [path for path in directory.fs.listdir("/d/quarantine") if path] == []  # type: ignore[attr-defined]
        assert directory.fs.listdir("/d/logs") == []

    assert crash_everywhere(six_batches, lambda directory: directory.quarantine(IDENTITY, 77), check) >= 4


def test_a_crash_in_a_purge() -> None:
    def action(directory: FileLogDirectory) -> None:
        directory.quarantine(IDENTITY, 77)
        directory.purge(IDENTITY)

    def check(directory: FileLogDirectory, finished: bool) -> None:
        assert not (finished and directory.quarantined())
        directory.quarantine(IDENTITY, 79)
        directory.purge(IDENTITY)
        assert directory.quarantined() == {}
        assert directory.fs.listdir("/d/quarantine") == []

    crash_everywhere(six_batches, action, check)


def test_a_crash_in_a_creation() -> None:
    def check(directory: FileLogDirectory, finished: bool) -> None:
        assert directory.identities() in ([IDENTITY], [IDENTITY, OTHER])
        assert not finished or OTHER in directory.identities()

    crash_everywhere(six_batches, lambda directory: directory.create([LogStart(OTHER, "t", SMALL)]) and None, check)


def test_a_crash_in_a_clean_stop_or_in_the_next_open() -> None:
    def action(directory: FileLogDirectory) -> None:
        log = directory.get(IDENTITY)
        assert log is not None
        append(log, 2)
        directory.registered(4)
        directory.close(clean=True)
        FileLogDirectory("/d", fs=directory.fs, limits=LIMITS)

    def check(directory: FileLogDirectory, finished: bool) -> None:
        log = directory.get(IDENTITY)
        assert log is not None
        assert directory.loss.kind != "corrupt"
        assert log.end_offset in (12, 14)
        if directory.loss.kind == "none":
            assert (log.end_offset, directory.loss.kind, directory.loss.lossy) == (14, "none", ())
        assert len(shown(log)) == log.end_offset
        append(log, 2)

    assert crash_everywhere(six_batches, action, check) > 20


def test_a_crash_in_the_very_first_open() -> None:
    for crash_after in range(40):
        for choose in (None, keep_none, keep_all, *map(some, range(6))):
            fs = MemoryFs()
            faulty = FaultyFs(fs, crash_after=crash_after)
            directory = None
            try:
                directory = FileLogDirectory("/d", fs=faulty)
            except CrashedError:
                faulty.crash_after = 0
            if directory is not None:
                directory.close(clean=False)
            fs.kill()
            if choose is not None:
                fs.cut_power(choose)
            again = FileLogDirectory("/d", fs=fs)
            assert again.loss.lossy == ()
            assert directory is None or again.directory_id == directory.directory_id


def test_an_idle_log_costs_little_memory() -> None:
    directory = open_directory(MemoryFs())
    starts = [LogStart(PartitionId(TOPIC_ID, n, 0), "t", SMALL) for n in range(1_000)]
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    directory.create(starts)
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert used / len(starts) < 1_024


def test_ten_thousand_logs_are_one_write() -> None:
    fs = FaultyFs(MemoryFs())
    directory = open_directory(fs)  # type: ignore[arg-type]
    del fs.operations[:]
    directory.create([LogStart(PartitionId(TOPIC_ID, n, 0), "t", SMALL) for n in range(10_000)])
    assert [operation for operation, _ in fs.operations].count("write") == 1
    assert [operation for operation, _ in fs.operations].count("fsync") == 1
    directory.close(clean=False)
    assert len(open_directory(fs.inner).identities()) == 10_000  # type: ignore[arg-type]
