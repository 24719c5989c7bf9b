"""What a broker does by the clock on a full disk: first what makes room, and one copy without room does not keep the others from it."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from attrs import evolve

from replog.broker.upkeep import Upkeep
from replog.config import BrokerConfig, TopicConfig
from replog.errors import LogFull
from replog.log.directory import FileLogDirectory
from replog.log.memory import MemoryLog, MemoryLogDirectory
from replog.model import PartitionId
from replog.partition.partition import Partition
from replog.ports import LogDirectory, LogStart
from replog.testing.disk import MemoryFs, SimulatedDisk
from replog.testing.log_contract import append, flush
from replog.testing.log_samples import append_group

LIMITS = BrokerConfig(retention_check_ms=1_000, checkpoint_interval_ms=1_000, deletion_delay_ms=0)
OLD = TopicConfig(segment_bytes=500, retention_ms=1_000)
A, B, C = (PartitionId(bytes(16), number, 0) for number in range(3))


def led(directory: LogDirectory) -> dict[PartitionId, Partition]:
    """Three copies with 20 records each, all of them old and committed."""
    partitions: dict[PartitionId, Partition] = {}
    for log in directory.create([LogStart(identity, "t", OLD) for identity in (A, B, C)]):
        for _ in range(10):
            append(log, 2)
        flush(log)
        partitions[log.identity] = Partition(
            log.identity, "t", log, broker_id=1, limits=LIMITS, brokers=lambda: {}, high_watermark=log.end_offset
        )
        partitions[log.identity].config = OLD
    return partitions


def upkeep_of(directory: LogDirectory, partitions: dict[PartitionId, Partition]) -> Upkeep:
    """Its timers have begun, and are due at 1,000."""
    upkeep = Upkeep(directory, partitions, LIMITS)
    assert upkeep.run(0) == []
    upkeep.wall_ms = 10**15
    return upkeep


def test_one_copy_without_room_does_not_end_retention(monkeypatch: pytest.MonkeyPatch) -> None:
    directory = MemoryLogDirectory(limits=LIMITS)
    partitions = led(directory)
    retain = MemoryLog.retain
    refused = [B]

    def refuse(log: MemoryLog, wall_ms: int, limit: int) -> int:
        if log.identity in refused:
            raise LogFull(f"no room for {log.identity.partition}")
        return retain(log, wall_ms, limit)

    monkeypatch.setattr(MemoryLog, "retain", refuse)
    upkeep = upkeep_of(directory, partitions)
    with pytest.raises(LogFull, match="no room for 1"):
        upkeep.run(1_000)
    assert [partition.log.start_offset for partition in partitions.values()] == [20, 0, 20]
    assert [partition.identity for partition in upkeep.run(1_100)] == [A, C], "said as soon as it can be"
    assert upkeep.run(1_200) == []
    refused.clear()
    assert [partition.identity for partition in upkeep.run(2_000)] == [B], "and tried again"


def test_several_are_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    directory = MemoryLogDirectory(limits=LIMITS)
    upkeep = upkeep_of(directory, led(directory))
    asked: list[PartitionId] = []

    def refuse(log: MemoryLog, wall_ms: int, limit: int) -> int:
        asked.append(log.identity)
        raise LogFull("no room")

    monkeypatch.setattr(MemoryLog, "retain", refuse)
    with pytest.raises(LogFull):
        upkeep.run(1_000)
    assert upkeep.run(1_100) == []
    assert asked == [A, B, C]


def test_what_is_no_longer_served_has_not_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    directory = MemoryLogDirectory(limits=LIMITS)
    upkeep = upkeep_of(directory, led(directory))
    monkeypatch.setattr(directory, "purge_each", full)
    monkeypatch.setattr(directory, "quarantined", lambda: {A: 0})
    with pytest.raises(LogFull):
        upkeep.run(1_000)
    upkeep.forget(B)
    assert [partition.identity for partition in upkeep.run(1_100)] == [A, C]


def full(identities: list[PartitionId]) -> None:
    """A purge without room."""
    raise LogFull(f"no room for {identities!r}")


def purged(directory: LogDirectory, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """What each call deletes."""
    calls: list[list[int]] = []
    purge_each = directory.purge_each

    def counted(identities: list[PartitionId]) -> None:
        calls.append([one.partition for one in identities])
        if 7 in calls[-1] and len(calls) == 1:
            raise LogFull("no room")
        purge_each(identities)

    monkeypatch.setattr(directory, "purge_each", counted)
    return calls


def test_many_copies_are_deleted_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """One run deletes so many, the next one a sweep later; what there was no room for comes again."""
    directory = MemoryLogDirectory(limits=LIMITS)
    many = [PartitionId(bytes(16), number, 0) for number in range(250)]
    directory.create([LogStart(identity, "t", TopicConfig()) for identity in many])
    directory.quarantine_each(many, 0)
    upkeep = upkeep_of(directory, {})
    calls = purged(directory, monkeypatch)
    with pytest.raises(LogFull):
        upkeep.run(1_000)
    assert upkeep.deadline_ms() <= 1_100
    for now_ms in (1_100, 1_200, 1_300, 2_000, 2_100):
        upkeep.run(now_ms)
    assert [len(call) for call in calls] == [100, 100, 50, 100]
    assert calls[3] == calls[0]
    assert directory.quarantined() == {}


def test_a_full_disk_is_made_room_on_although_no_checkpoint_can_be_written() -> None:
    """Retention and deletion come first, and need no room of their own."""
    disk = SimulatedDisk(random.Random(1))
    directory = FileLogDirectory("/d", fs=disk, limits=LIMITS)
    partitions = led(directory)
    directory.quarantine(C, 0)
    del partitions[C]
    upkeep = upkeep_of(directory, partitions)
    for partition in partitions.values():
        upkeep.committed(partition)
    disk.arm("no_space")
    with pytest.raises(LogFull):
        upkeep.run(1_000)
    assert [path for path in disk.paths("/d/logs") if path.endswith(".log")] == []
    assert disk.paths("/d/quarantine") == []
    assert [partition.identity for partition in upkeep.run(1_100)] == [A, B]
    disk.disarm()
    assert upkeep.run(2_000) == []
    assert directory.quarantined() == {}


def test_a_copy_that_came_back_waits_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is put away again between two slices: its time begins again."""
    directory = MemoryLogDirectory(limits=LIMITS)
    many = [PartitionId(bytes(16), number, 0) for number in range(250)]
    directory.create([LogStart(identity, "t", TopicConfig()) for identity in many])
    directory.quarantine_each(many, 0)
    upkeep = upkeep_of(directory, {})
    upkeep.wall_ms = LIMITS.deletion_delay_ms
    upkeep.run(1_000)
    directory.create([LogStart(many[-1], "t", TopicConfig())])
    directory.quarantine_each([many[-1]], upkeep.wall_ms + 1)
    for now_ms in (1_100, 1_200, 1_300):
        upkeep.run(now_ms)
    assert list(directory.quarantined()) == [many[-1]]


def test_copies_that_were_put_away_while_the_clock_was_ahead_are_deleted_all_the_same() -> None:
    """They would be kept until that date. A clock that is set back by less than the delay only makes them stay so much longer."""
    limits = evolve(LIMITS, deletion_delay_ms=10_000)
    directory = MemoryLogDirectory(limits=limits)
    delay, year = limits.deletion_delay_ms, 365 * 24 * 3_600_000
    directory.create([LogStart(identity, "t", TopicConfig()) for identity in (A, B)])
    directory.quarantine(A, year)
    directory.quarantine(B, 1_000 + delay)
    upkeep = Upkeep(directory, {}, limits)
    step = limits.checkpoint_interval_ms
    kept = []
    for now_ms in range(step, 2 * delay + 4 * step, step):
        upkeep.told(now_ms, 1_000 + now_ms)
        upkeep.run(now_ms)
        kept.append((now_ms, list(directory.quarantined())))
    gone = {one: next(now_ms for now_ms, left in kept if one not in left) for one in (A, B)}
    assert delay <= gone[A] <= delay + 3 * step
    assert 2 * delay <= gone[B] <= 2 * delay + 3 * step


# ----------------------------------------------------------------------------------------------------------------- flushing


def with_flush(partition: Partition, **config: Any) -> None:
    append(partition.log, 1)
    partition.config = partition.log.config = TopicConfig(min_isr=1, **config)


@pytest.mark.parametrize("flush", ["os", "ack"])
def test_a_flush_that_was_due_by_interval_is_not_due_for_ever_once_it_is_flushed_otherwise(flush: str) -> None:
    """Its time passed, and the broker was due from then on."""
    directory = MemoryLogDirectory(limits=LIMITS)
    partitions = led(directory)
    upkeep = upkeep_of(directory, partitions)
    with_flush(partitions[A], flush="interval", flush_interval_ms=500)
    upkeep.appended(partitions[A])
    assert upkeep.flushes(0) == []
    assert upkeep.deadline_ms() <= 500
    with_flush(partitions[A], flush=flush)
    upkeep.appended(partitions[A])
    (token,) = upkeep.flushes(500)
    partitions[A].log.flushed(token.run())
    upkeep.flush_done(token)
    upkeep.run(900)
    assert upkeep.deadline_ms() > 900
    assert upkeep.flushes(900) == []


def test_a_shorter_interval_counts_at_once() -> None:
    directory = MemoryLogDirectory(limits=LIMITS)
    partitions = led(directory)
    upkeep = upkeep_of(directory, partitions)
    with_flush(partitions[A], flush="interval", flush_interval_ms=3_600_000)
    upkeep.appended(partitions[A])
    assert upkeep.flushes(0) == []
    with_flush(partitions[A], flush="interval", flush_interval_ms=100)
    upkeep.recovered(partitions[A])  # as after each notice
    assert upkeep.flushes(1_000) == []
    assert upkeep.deadline_ms() <= 1_100
    assert upkeep.flushes(1_099) == []
    assert len(upkeep.flushes(1_100)) == 1


def visited(monkeypatch: pytest.MonkeyPatch) -> list[PartitionId]:
    """Whose configuration is looked at from now on: nobody is judged without."""
    slot = Partition.__dict__["config"]
    visits: list[PartitionId] = []

    def look(partition: Partition) -> Any:
        visits.append(partition.identity)
        return slot.__get__(partition)

    monkeypatch.setattr(Partition, "config", property(look, slot.__set__))
    return visits


def many_led(directory: LogDirectory, **config: Any) -> list[Partition]:
    """A hundred copies, each with a record that nobody has flushed."""
    copies = []
    for log in directory.create([LogStart(PartitionId(bytes(16), number, 0), "t", TopicConfig()) for number in range(100)]):
        copies.append(Partition(log.identity, "t", log, broker_id=1, limits=LIMITS, brokers=lambda: {}))
        with_flush(copies[-1], **config)
    return copies


def test_who_is_not_due_yet_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each append cost as much as there were partitions with something to flush."""
    directory = MemoryLogDirectory(limits=LIMITS)
    upkeep = upkeep_of(directory, {})
    copies = many_led(directory, flush="interval", flush_interval_ms=1_000)
    for now_ms, copy in enumerate(copies):
        upkeep.appended(copy)
        assert upkeep.flushes(now_ms) == []
    visits = visited(monkeypatch)
    for now_ms in range(100, 200):
        upkeep.appended(copies[7])
        assert upkeep.flushes(now_ms) == []
        assert upkeep.deadline_ms() == 100
    assert set(visits) == {copies[7].identity}
    upkeep.next_ms = 10_000
    assert upkeep.deadline_ms() == 1_000
    assert [token.identity for token in upkeep.flushes(1_004)] == [copy.identity for copy in copies[:5]], "each in its time, once"
    assert upkeep.deadline_ms() == 1_005
    assert [token.identity for token in upkeep.flushes(2_000)] == [copy.identity for copy in copies[5:]]
    assert upkeep.deadline_ms() == 10_000


def test_who_waits_for_a_flush_is_not_looked_at_before_that_has_run(monkeypatch: pytest.MonkeyPatch) -> None:
    directory = MemoryLogDirectory(limits=LIMITS)
    upkeep = upkeep_of(directory, {})
    copies = many_led(directory, flush="ack")
    for copy in copies:
        upkeep.appended(copy)
    under_way = upkeep.flushes(0)
    assert [token.identity for token in under_way] == [copy.identity for copy in copies]
    for copy in copies:
        append(copy.log, 1)
        upkeep.appended(copy)
    assert upkeep.flushes(1) == []
    assert upkeep.unflushed == {}, "nobody is left to look at"
    visits = visited(monkeypatch)
    copies[7].log.flushed(under_way[7].run())
    upkeep.flush_done(under_way[7])
    assert [token.identity for token in upkeep.flushes(100)] == [copies[7].identity], "what came meanwhile is flushed next"
    assert set(visits) == {copies[7].identity}


def test_who_is_no_longer_served_is_not_due(monkeypatch: pytest.MonkeyPatch) -> None:
    directory = MemoryLogDirectory(limits=LIMITS)
    upkeep = upkeep_of(directory, {})
    by_time, waits = many_led(directory, flush="interval", flush_interval_ms=50)[:2]
    waits.config = TopicConfig(min_isr=1, flush="ack")
    upkeep.appended(by_time)
    upkeep.appended(waits)
    (token,) = upkeep.flushes(0)
    upkeep.appended(waits)
    assert upkeep.flushes(1) == []
    upkeep.forget(by_time.identity)
    upkeep.forget(waits.identity)
    upkeep.flush_done(token)
    assert upkeep.deadline_ms() == 100
    assert upkeep.flushes(1_000) == []


def test_a_flush_that_holds_since_a_while_is_recorded_when_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk with the next checkpoint: not with every run."""
    directory = MemoryLogDirectory(limits=LIMITS)
    start = LogStart(A, "t", TopicConfig())
    (log,) = directory.create([start])
    append(log)
    directory.create([start._replace(config=TopicConfig(flush="ack"))])
    upkeep = upkeep_of(directory, {})
    flush(log)
    calls: list[int] = []
    record = MemoryLogDirectory.record_flushes

    def recorded(directory: MemoryLogDirectory) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise LogFull("no room")
        record(directory)

    monkeypatch.setattr(MemoryLogDirectory, "record_flushes", recorded)
    with pytest.raises(LogFull):
        upkeep.run(100)
    for now_ms in (200, 300):
        upkeep.run(now_ms)
    assert len(calls) == 1
    upkeep.run(1_000)
    upkeep.run(1_001)  # as while retention goes on
    assert len(calls) == 2
    directory.crash(power=True)
    assert directory.reopened().loss.lossy == ()


def test_who_is_silent_is_forgotten_also_where_everything_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were for topics with retention alone. Copies that know nobody cost no look."""
    limits = BrokerConfig(retention_check_ms=1_000, producer_expiry_ms=10_000, writer_expiry_ms=10_000)
    directory = MemoryLogDirectory(limits=limits)
    asked: list[PartitionId] = []
    retained_start = MemoryLog.retained_start

    def counted(log: MemoryLog, wall_ms: int, limit: int) -> int:
        asked.append(log.identity)
        return retained_start(log, wall_ms, limit)

    monkeypatch.setattr(MemoryLog, "retained_start", counted)
    partitions = {
        log.identity: Partition(log.identity, "t", log, broker_id=1, limits=limits, brokers=lambda: {})
        for log in directory.create([LogStart(identity, "t", TopicConfig()) for identity in (A, B, C)])
    }
    append(partitions[A].log, producer=(1, 0, 0), at_ms=0)
    append_group(partitions[A].log, 1, made_ms=1_000_000)
    append(partitions[B].log)  # of nobody whom it has to know
    upkeep = Upkeep(directory, partitions, limits)
    table = partitions[A].log.producers
    known: list[tuple[int, int]] = []
    for now_ms in range(0, 25_000, 1_000):
        upkeep.told(now_ms, 1_000_000 + now_ms)
        if now_ms == 5_000:
            append(partitions[A].log, producer=(2, 0, 0), at_ms=0)
        assert upkeep.run(now_ms) == []
        if not known or known[-1][1] != len(table):
            known.append((now_ms, len(table)))
    # The first look is at 1,000; who came at 5,000 is looked for at 11,000, and was silent for long enough by then.
    assert known == [(0, 2), (5_000, 3), (11_000, 1), (21_000, 0)]
    assert table.forgetful
    assert set(asked) == {A}
    assert len(asked) == 21, "and none once nobody is left"
    assert [partition.log.size_bytes > 0 for partition in partitions.values()] == [True, True, False]


def large(count: int, segments: int = 40) -> tuple[Upkeep, dict[PartitionId, Partition]]:
    """So many copies of so many segments each, all of them old and committed."""
    directory = FileLogDirectory("/d", fs=MemoryFs(), limits=LIMITS)
    partitions: dict[PartitionId, Partition] = {}
    for log in directory.create([LogStart(PartitionId(bytes(16), number, 0), "t", OLD) for number in range(count)]):
        for _ in range(2 * segments):
            append(log, 8)
        partition = Partition(log.identity, "t", log, broker_id=1, limits=LIMITS, brokers=lambda: {}, high_watermark=log.end_offset)
        partition.config = OLD
        partitions[log.identity] = partition
    assert left(partitions) == [segments] * count
    return upkeep_of(directory, partitions), partitions


def left(partitions: dict[PartitionId, Partition]) -> list[int]:
    """Segments of each."""
    return [len(partition.log._segments) for partition in partitions.values()]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("now_ms", "first", "turns"), [(1_050, 2, 15), (8_950, 8, 12)], ids=["busy", "seldom called"])
def test_a_turn_removes_some_segments_of_some_partitions_and_the_next_turns_the_others(now_ms: int, first: int, turns: int) -> None:
    """A shorter retention may let go of any number of files; a broker that is busy with them for seconds loses what it leads."""
    upkeep, partitions = large(6)
    assert upkeep.run(950) == []
    moved, counts = [], []
    while not counts or upkeep.next_ms == now_ms:
        moved += [partition.identity for partition in upkeep.run(now_ms)]
        counts.append(left(partitions))
        now_ms += 1
    removed = [sum(before) - sum(after) for before, after in pairwise([[40] * 6, *counts])]
    assert removed[0] == first * 8
    assert max(removed[1:]) == 2 * 8
    assert counts[-1] == [0] * 6
    assert moved == list(partitions), "the start moves first, and is told once"
    assert len(counts) == turns


def removals(partition_ms: int, pause_ms: int, begin_ms: int) -> list[int]:
    """Of how many partitions each run removes something, if that takes so long for each, and the next call comes so long after it."""
    upkeep, partitions = large(30, 16)
    assert upkeep.run(950) == []
    found, now_ms, before = [], begin_ms, left(partitions)
    while sum(before):
        upkeep.run(now_ms)
        after = left(partitions)
        found.append(sum(one != other for one, other in zip(before, after, strict=True)))
        now_ms, before = now_ms + found[-1] * partition_ms + pause_ms, after
    return found


def test_on_a_slow_disk_the_time_of_a_run_is_not_taken_for_one_without_calls() -> None:
    """Each run was longer than the one before it, until one took longer than the session."""
    assert removals(1_900, 1, 1_050) == [2] * 30
    assert removals(300, 1, 60_000) == [20] + [2] * 20, "also after one that was long"


def test_who_is_called_once_a_minute_removes_as_much_each_time() -> None:
    assert removals(200, 60_000, 60_000) == [20, 20, 20]


def test_what_a_follower_has_trimmed_and_not_removed_goes_with_the_next_look() -> None:
    """Its topic may keep everything by now."""
    directory = FileLogDirectory("/d", fs=MemoryFs(), limits=LIMITS)
    (log,) = directory.create([LogStart(A, "t", TopicConfig(segment_bytes=500))])
    for _ in range(80):
        append(log, 8)
    log.trim_to(log.end_offset)
    assert log.is_trimming
    partition = Partition(A, "t", log, broker_id=1, limits=LIMITS, brokers=lambda: {}, high_watermark=log.end_offset)
    upkeep = upkeep_of(directory, {A: partition})
    for now_ms in range(1_000, 1_010):
        assert upkeep.run(now_ms) == []
    assert (log.is_trimming, log._segments) == (False, [])  # type: ignore[attr-defined]


def test_files_that_slow_readers_have_held_are_closed_by_the_clock() -> None:
    """Nobody need read or append for that: without descriptors nobody may be able to."""
    fs = MemoryFs()
    directory = FileLogDirectory("/d", fs=fs, limits=BrokerConfig(open_files_max=8))
    partitions = led(directory)
    upkeep = Upkeep(directory, partitions, LIMITS)
    for one in partitions.values():
        one.log.forget_tail()
    held = [part for one in partitions.values() for n in range(0, 20, 2) for part in one.log.read(n, n + 2, 1)]
    assert len(fs._open) > 8 + 1
    for part in held:
        part.release()
    upkeep.run(0)
    assert len(fs._open) == 8 + 1  # and the lock
