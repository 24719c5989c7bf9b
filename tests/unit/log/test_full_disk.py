"""A disk without one free byte: what takes records away either needs none, or is refused before anything has changed (P-54)."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest
from tests.unit.log.lives import FOLDER, IDENTITY, abandon, kill, open_directory, open_log, segments

from replog.config import TopicConfig
from replog.errors import LogDamaged, LogFull
from replog.log.directory import FileLogDirectory
from replog.log.log import FileLog
from replog.model import PartitionId
from replog.ports import LogStart
from replog.testing.disk import CrashedError, FaultyFs, MemoryFs, SimulatedDisk, crash_states, keep_all, keep_none
from replog.testing.disk.trial import Trial
from replog.testing.disk.workloads import Workload
from replog.testing.log_contract import append, entries_of, flush, shown

Act = Callable[[FileLog], object]


def full_after(count: int, config: TopicConfig, *, epochs: int = 1) -> tuple[SimulatedDisk, FileLogDirectory, FileLog]:
    """So many batches of two records, flushed and known to the checkpoint; then the disk is full."""
    disk = SimulatedDisk(random.Random(1))
    directory, log = open_log(disk, config)
    for number in range(count):
        append(log, 2, epoch=number * epochs // count)
    flush(log)
    directory.checkpoint()
    disk.arm("no_space")
    return disk, directory, log


def next_life(disk: MemoryFs) -> FileLog:
    found = open_directory(disk).get(IDENTITY)
    assert found is not None
    return found


def facts(log: FileLog) -> tuple[object, ...]:
    return (log.start_offset, log.end_offset, log.flushed_end, log.generation, log.last_epoch, entries_of(log), log.size_bytes, shown(log))


# ------------------------------------------------------------------------------------------------ truncating and resetting


@pytest.mark.parametrize("segment_bytes", [500, 1 << 20])
@pytest.mark.parametrize(
    ("act", "end"),
    [
        (lambda log: log.truncate_to(7), 6),
        (lambda log: log.reset_to(100), 100),
        (lambda log: log.reset_to(5), 5),
        (lambda log: log.reset_to(0), 0),
    ],
    ids=["truncate", "reset ahead", "reset into", "reset to the beginning"],
)
def test_a_full_disk_refuses_to_cut_and_nothing_has_changed(segment_bytes: int, act: Act, end: int) -> None:
    disk, directory, log = full_after(9, TopicConfig(segment_bytes=segment_bytes), epochs=3)
    token_of_before, before = log.generation, facts(log)
    files = disk.snapshot(FOLDER)
    for _ in range(2):
        with pytest.raises(LogFull):
            act(log)
        assert facts(log) == before
        assert {path: data for path, data in disk.snapshot(FOLDER).items() if not path.endswith(".new")} == files
    disk.disarm()
    append(log, 1, epoch=3)
    assert len(shown(log)) == 19, "it works on"
    act(log)
    assert (log.end_offset, log.generation) == (end, token_of_before + 1)
    append(log, 2, epoch=4)
    values = shown(log)
    flush(log)
    kill(disk, directory)
    disk.cut_power(keep_none)
    assert shown(next_life(disk)) == values


def test_a_flush_under_way_counts_after_a_refused_truncation() -> None:
    """Nobody would ask for it again."""
    disk, _, log = full_after(9, TopicConfig())
    disk.disarm()
    append(log, 2)
    token = log.flush()
    assert token is not None
    disk.arm("no_space")
    with pytest.raises(LogFull):
        log.truncate_to(3)
    log.flushed(token.run())
    assert log.flushed_end == 20


@pytest.mark.parametrize("offset", [0, 5, 100])
@pytest.mark.parametrize("space", range(0, 200, 7))
def test_a_reset_that_has_begun_needs_no_more_room(offset: int, space: int) -> None:
    """All of it is written before the first record goes: the disk may be full again at any moment after that."""
    disk, directory, log = full_after(9, TopicConfig(segment_bytes=500))
    disk.arm("no_space", space=space)
    before = shown(log)
    try:
        log.reset_to(offset)
    except LogFull:
        assert shown(log) == before
    else:
        assert (log.start_offset, log.end_offset) == (offset, offset)
    disk.disarm()
    append(log, 2)
    values = shown(log)
    kill(disk, directory)
    assert shown(next_life(disk)) == values


@pytest.mark.parametrize("operation", ["unlink", "truncate"])
def test_a_file_system_that_needs_room_to_remove(operation: str) -> None:
    """Those that copy what they change do. The first removal that is refused has changed nothing."""
    disk = MemoryFs()
    fs = FaultyFs(disk)
    _, log = open_log(fs, TopicConfig(segment_bytes=500 if operation == "unlink" else 1 << 20))
    for _ in range(9):
        append(log, 2)
    before = facts(log)

    def refuse(asked: str, path: str) -> int | None:
        if asked == operation and path.endswith(".log"):
            raise OSError(errno.ENOSPC, "injected", path)
        return None

    fs.before = refuse
    with pytest.raises(LogFull, match="cannot be truncated now"):
        log.truncate_to(3)
    assert facts(log) == before
    fs.before = None
    log.truncate_to(3)
    assert log.end_offset == 2


@pytest.mark.parametrize("is_flushing", [False, True])
def test_a_refused_truncation_that_has_removed_an_empty_segment_loses_no_later_append(is_flushing: bool) -> None:
    """Its file has no name any more, and may still be open: what is appended goes to the one before it."""
    disk = MemoryFs()
    refused: list[str] = []

    def refuse(asked: str, path: str) -> int | None:
        if asked in refused and path.endswith(".log"):
            raise OSError(errno.ENOSPC, "injected", path)
        return None

    directory, log = open_log(FaultyFs(disk, refuse), TopicConfig(segment_bytes=500, flush="ack"))
    for _ in range(3):
        append(log, 2)
    refused.append("write")
    with pytest.raises(LogFull):
        append(log, 20)
    assert len(segments(disk)) == 2, "the second is empty"
    token = log.flush() if is_flushing else None
    refused[:] = ["truncate"]
    with pytest.raises(LogFull, match="cannot be truncated now"):
        log.truncate_to(1)
    refused.clear()
    for _ in range(2):
        append(log, 1, epoch=2)
    if token is not None:
        log.flushed(token.run())
    flush(log)
    assert (log.flushed_end, len(shown(log))) == (8, 8)
    kill(disk, directory)
    disk.cut_power(keep_none)
    assert len(shown(next_life(disk))) == 8


@pytest.mark.parametrize("operation", ["fsync_dir", "rename"])
def test_a_log_whose_reset_has_failed_is_damaged_and_says_so(operation: str) -> None:
    """Its files are gone: whoever reads is told why."""
    disk = MemoryFs()
    layer = FaultyFs(disk)
    _, log = open_log(layer)
    for _ in range(9):
        append(log, 2)
    log.forget_tail()

    def refuse(asked: str, path: str) -> int | None:
        if asked == operation and path.startswith(FOLDER) and not segments(disk):
            raise OSError(errno.EIO, "injected", path)
        return None

    layer.before = refuse
    with pytest.raises(LogDamaged):
        log.reset_to(40)
    for offset in (0, log.end_offset - 1):
        with pytest.raises(LogDamaged):
            log.read(offset, 18, 1_000)


# ---------------------------------------------------------------------------------------------------------------- trimming


@pytest.mark.parametrize("how", ["size", "age", "trim"])
def test_a_full_disk_can_be_made_room_on(how: str) -> None:
    """Not one byte is needed to remove old segments; with age even the last one goes."""
    config = TopicConfig(segment_bytes=500, retention_bytes=600 if how == "size" else None, retention_ms=1_000 if how == "age" else None)
    disk, directory, log = full_after(12, config)
    before = shown(log)
    used = sum(map(len, disk.snapshot(FOLDER).values()))
    if how == "trim":
        log.trim_to(21)
    else:
        log.retain(10**15, log.end_offset)
    assert log.start_offset >= 12
    assert log.size_bytes < used // 2
    assert sum(map(len, disk.snapshot(FOLDER).values())) < used // 2
    assert shown(log) == before[log.start_offset :]
    if how == "age":
        assert (log.start_offset, segments(disk)) == (24, [])
    start = log.start_offset
    disk.disarm()
    append(log, 2)
    flush(log)
    values = shown(log)
    for power in (False, True):
        kill(disk, directory)
        if power:
            disk.cut_power(keep_none)
        directory = open_directory(disk)
        again = directory.get(IDENTITY)
        assert again is not None
        assert segments(disk)[0].endswith(f"{again.start_offset:020d}.log"), "no checkpoint knows more"
        assert again.start_offset == (18 if how == "trim" else start)
        assert shown(again)[-len(values) :] == values
        assert directory.loss.kind == ("power" if power else "process")
        assert not directory.recovered


@pytest.mark.parametrize("act", [lambda log: log.trim_to(21), lambda log: log.retain(10**15, 24)], ids=["trim", "age"])
def test_whatever_a_crash_leaves_of_a_trim_on_a_full_disk_is_a_whole_log(act: Act) -> None:
    """At each operation, in every way a power cut allows; after a kill as well."""
    config, reached = TopicConfig(segment_bytes=500, retention_ms=1_000), 0
    while True:
        disk = MemoryFs()
        directory, log = open_log(disk, config)
        for _ in range(12):
            append(log, 2)
        flush(log)
        directory.checkpoint()
        values = shown(log)
        kill(disk, directory)
        layer = FaultyFs(disk)
        directory = open_directory(layer)
        found = directory.get(IDENTITY)
        assert found is not None
        layer.crash_after = len(layer.operations) + reached
        try:
            act(found)
        except CrashedError:
            abandon(directory)
        else:
            break
        images = [state.disk() for state in crash_states(disk)]
        disk.kill()
        for image in [disk, *images]:
            opened = open_directory(image)
            again = opened.get(IDENTITY)
            assert again is not None
            assert again.end_offset == 24
            assert shown(again) == values[again.start_offset :]
            assert not again.epochs.entries() or again.epochs.entries()[0].start >= again.start_offset
            assert not any(one.corrupt for one in opened.recovered.values())
            append(again)
        reached += 1
    assert reached > 6


@pytest.mark.parametrize("again", ["trim", "retain"])
def test_a_trim_that_the_system_refused_is_tried_again(again: str) -> None:
    """A follower asks once for each start of its leader; what it could not remove then goes with the next look at retention."""
    disk = MemoryFs()
    fs = FaultyFs(disk)
    directory, log = open_log(fs)
    for _ in range(12):
        append(log, 2)
    before = len(segments(disk))

    def refuse(operation: str, path: str) -> int | None:
        if operation == "rename":
            raise OSError(errno.ENOSPC, "injected", path)
        return None

    fs.before = refuse
    assert log.trim_to(21) == 20
    assert len(segments(disk)) == before
    assert not log.is_damaged
    fs.before = None
    if again == "trim":
        assert log.trim_to(20) == 20
    else:
        assert log.retain(0, 24) == 20
    assert len(segments(disk)) < before
    assert len(shown(log)) == 4
    kill(disk, directory)
    assert len(shown(next_life(disk))) == 6, "from where its first file begins"


def test_a_reader_of_the_oldest_segment_gets_its_bytes() -> None:
    """It is renamed, and emptied only if nobody needs it."""
    disk, directory, log = full_after(12, TopicConfig(segment_bytes=500))
    log.forget_tail()
    (part,) = log.read(0, 2, 1)
    log.trim_to(21)
    assert len(part.view()) == part.length
    assert bytes(part.view()).strip(b"\0")
    part.release()
    notes = [path for path in disk.paths(FOLDER) if path.endswith(".start")]
    assert len(notes) == 1
    kill(disk, directory)
    disk.disarm()
    next_life(disk)
    assert not disk.content(f"/{notes[0]}"), "who comes next frees its space"


def test_notes_of_earlier_starts_go() -> None:
    disk = MemoryFs()
    directory, log = open_log(disk)
    for start in (6, 14, 21):
        while log.end_offset < start + 3:
            append(log, 2)
        log.trim_to(start)
        directory.close(clean=True)
        directory, log = open_log(disk)
    assert len([path for path in disk.paths(FOLDER) if path.endswith(".start")]) == 1


@pytest.mark.parametrize("emptied", [False, True])
@pytest.mark.parametrize("power", [False, True])
def test_a_reset_below_what_was_trimmed_counts(power: bool, emptied: bool) -> None:
    """The note of the trim must not outlive it."""
    disk = MemoryFs()
    directory, log = open_log(disk, TopicConfig(segment_bytes=500, retention_ms=1_000))
    for _ in range(12):
        append(log, 2)
    log.retain(10**15, 24) if emptied else log.trim_to(21)
    log.reset_to(4)
    append(log, 2)
    flush(log)
    kill(disk, directory)
    if power:
        disk.cut_power(keep_all)
    again = next_life(disk)
    assert (again.start_offset, again.end_offset) == (4, 6)


def test_a_trim_that_fails_ends_the_log() -> None:
    disk = SimulatedDisk(random.Random(1))
    _, log = open_log(disk)
    for _ in range(12):
        append(log, 2)
    disk.arm("write_error", paths=FOLDER)
    with pytest.raises(LogDamaged):
        log.trim_to(21)


def test_the_only_segment_goes_by_age_and_the_next_append_begins_another() -> None:
    disk, directory, log = full_after(3, TopicConfig(retention_ms=1_000))
    assert log.retain(10**15, 6) == 6
    assert (segments(disk), log.size_bytes, shown(log)) == ([], 0, [])
    with pytest.raises(LogFull):
        append(log)
    disk.disarm()
    assert log.retain(10**15, 6) == 6
    append(log, 2)
    assert len(shown(log)) == 2
    kill(disk, directory)
    again = next_life(disk)
    assert (again.start_offset, again.end_offset) == (6, 8)


@pytest.mark.parametrize("offset", [0, 4])
def test_a_crash_in_a_reset_below_what_was_trimmed(offset: int) -> None:
    """Recovery finishes what was begun, and the note of the trim goes with the rest."""
    outcomes, crash_after = set(), 0
    while True:
        disk = MemoryFs()
        layer = FaultyFs(disk)
        directory, log = open_log(layer)
        for _ in range(12):
            append(log, 2)
        flush(log)
        log.trim_to(21)
        directory.checkpoint()
        layer.crash_after = len(layer.operations) + crash_after
        try:
            log.reset_to(offset)
        except CrashedError:
            abandon(directory)
            disk.kill()
        else:
            break
        again = next_life(disk)
        outcomes.add((again.start_offset, again.end_offset))
        crash_after += 1
    assert outcomes == {(20, 24), (offset, offset)}


@pytest.mark.parametrize(
    "steps",
    [("retain", "close", "open", "append 300"), ("trim 3", "reset 1", "append 300", "flush"), ("retain", "reset 0", "append 300")],
    ids=["age, close", "trim, reset", "age, reset"],
)
def test_what_follows_a_trim_can_crash_as_well(steps: tuple[str, ...]) -> None:
    """Every state of a power cut opens, and opens a second time as the same one."""
    prepared = ("append 300 300", "append 300 300", "flush", "checkpoint")
    outcome = Trial(Workload("after a trim", prepared, steps, 700), "ack", limit=300).run()
    assert len(outcome.states) > 20


class NoRoomToRename(MemoryFs):
    """After so many renames into quarantine there is no room for another directory entry."""

    room = 2

    def rename(self, source: str, target: str) -> None:
        if "quarantine" in target:
            if not self.room:
                raise OSError(errno.ENOSPC, "No space left on device")
            self.room -= 1
        super().rename(source, target)


def put_away_by_halves() -> tuple[NoRoomToRename, FileLogDirectory, list[PartitionId]]:
    """Six copies, of which a full disk let two be renamed."""
    fs = NoRoomToRename()
    directory = open_directory(fs)
    many = [IDENTITY._replace(partition=number) for number in range(6)]
    for log in directory.create([LogStart(identity, "t", TopicConfig()) for identity in many]):
        append(log, 1)
    with pytest.raises(LogFull):
        directory.quarantine_each(many, 1_000)
    return fs, directory, many


def test_copies_that_could_not_be_put_away_whole_are_deleted_all_the_same() -> None:
    fs, directory, many = put_away_by_halves()
    fs.room = 100
    directory.quarantine_each(many, 1_000)
    assert sorted(directory.quarantined()) == many
    directory.purge_each(many)
    assert directory.quarantined() == {}
    assert not [path for path in fs.paths() if path.endswith(".log")]
    directory.close(clean=True)
    assert open_directory(fs).identities() == []


def test_a_purge_takes_no_space() -> None:
    """Else a full disk would keep for ever what would make room on it."""
    fs, directory, many = put_away_by_halves()
    directory.purge_each(many)
    assert directory.quarantined() == {}
    assert not [path for path in fs.paths() if path.endswith(".log")]
    directory.close(clean=False)
    assert open_directory(fs).identities() == []


@pytest.mark.parametrize("power", [False, True])
def test_a_copy_that_comes_back_begins_anew_although_it_could_not_be_put_away_whole(power: bool) -> None:
    fs = NoRoomToRename()
    fs.room = 0
    directory, log = open_log(fs, TopicConfig(segment_bytes=500))
    for _ in range(12):
        append(log, 2)
    flush(log)
    directory.checkpoint()
    with pytest.raises(LogFull):
        directory.quarantine_each([IDENTITY], 1_000)
    with pytest.raises(LogFull):
        directory.create([LogStart(IDENTITY, "t", TopicConfig())])
    fs.room = 1
    (anew,) = directory.create([LogStart(IDENTITY, "t", TopicConfig())])
    append(anew, 2, epoch=5)
    flush(anew)
    kill(fs, directory)
    if power:
        fs.cut_power(keep_all)
    directory = open_directory(fs)
    again = directory.get(IDENTITY)
    assert again is not None
    assert (again.start_offset, again.end_offset, again.epochs.entries()) == (0, 2, ((5, 0),))
    assert (directory.recovered, directory.loss.lossy) == ({}, (IDENTITY,) if power else ())  # flush="os" says nothing of a power cut
    assert IDENTITY in directory.quarantined()
    directory.purge_each([IDENTITY])
    assert (again.start_offset, again.end_offset) == (0, 2)
    assert len([path for path in fs.paths() if path.endswith(".log")]) == 1


def test_a_catalogue_that_cannot_be_written_anew_is_written_anew_later() -> None:
    """The purge is done; that its traces stay in a file is no trouble of whoever asked."""
    disk = SimulatedDisk(random.Random(1))
    directory = open_directory(disk)
    many = [IDENTITY._replace(partition=number) for number in range(600)]
    directory.create([LogStart(identity, "t", TopicConfig()) for identity in many])
    directory.quarantine_each(many, 1_000)
    disk.arm("no_space", paths="catalogue.new")
    for at in range(0, 600, 50):
        directory.purge_each(many[at : at + 50])
    assert directory.quarantined() == {}
    assert not [path for path in disk.paths(FOLDER) if path.endswith("catalogue.new")]


class NoDescriptorOnce(MemoryFs):
    """One sync of the directory's folder fails, as when the process has no descriptor left."""

    failing = False
    synced = 0

    def fsync_dir(self, path: str) -> None:
        if path == "/d":
            if self.failing:
                self.failing = False
                raise OSError(errno.EMFILE, "Too many open files")
            self.synced += 1
        super().fsync_dir(path)


def test_a_catalogue_whose_name_may_not_be_on_the_disk_is_synced_with_its_next_entry() -> None:
    fs = NoDescriptorOnce()
    directory = open_directory(fs)
    many = [IDENTITY._replace(partition=number) for number in range(600)]
    directory.create([LogStart(identity, "t", TopicConfig()) for identity in many])
    directory.quarantine_each(many, 1_000)
    fs.failing = True
    with pytest.raises(LogFull):
        directory.purge_each(many[:50])
    fs.synced = 0
    directory.create([LogStart(IDENTITY, "t", TopicConfig())])
    assert fs.synced == 1
