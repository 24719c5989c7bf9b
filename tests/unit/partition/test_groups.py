"""Groups in one copy: no high watermark inside them, nothing between their batches, and a new leader that leaves none open."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.unit.log.lives import open_directory
from tests.unit.partition.copies import IDENTITY, batch, fetch, fetched, leading, log_of, notice, partition_of

from replog.errors import Code, LogCorrupt, LogFull
from replog.log.log import FileLog
from replog.log.memory import MemoryLog
from replog.marks import WriterMark, framing, mark_of, marked
from replog.messages import FetchedEntry
from replog.model import ACKS_ALL, ACKS_LEADER, ACKS_NONE
from replog.partition.following import Followed
from replog.partition.partition import Partition
from replog.ports import FlushToken, Log, LogStart, MemorySlice
from replog.records import CONTROL_BIT, RecordBatch, encode_records
from replog.testing.disk import MemoryFs, SimulatedDisk
from replog.testing.log_samples import append_group, entries_of, shown, stored_batches


def part(count: int, offset: int, *, key: str = "w", version: int = 7, last: bool = False) -> RecordBatch:
    """A batch of a group, of so many records."""
    body = encode_records([f"{key}/{version}/{offset + n}" for n in range(count)], now_ms=0)
    return RecordBatch(marked(body, WriterMark(key, version, offset), is_last=last))


def once(version: int, *, key: str = "w", text: str = "once", count: int = 1) -> RecordBatch:
    """Marked work of one batch."""
    return RecordBatch(encode_records([text] * count, now_ms=0, **framing(WriterMark(key, version))))


def plain(text: str = "x") -> RecordBatch:
    return RecordBatch(encode_records([text], now_ms=0))


def sliced(*batches: RecordBatch) -> list[Any]:
    return [MemorySlice(one.base_offset, one.end_offset, one.to_bytes()) for one in batches]


def holds(partition: Partition) -> tuple[int, int]:
    """(end, high watermark)."""
    return partition.log.end_offset, partition.high_watermark


def lead_with(log: Log, epoch: int = 5, **options: Any) -> Partition:
    return leading(log, (1, 2, 3), epoch=epoch, **options)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------------ the leader


@pytest.mark.parametrize("acks", [ACKS_ALL, ACKS_LEADER, ACKS_NONE])
@pytest.mark.parametrize("made", [lambda: plain(), lambda: once(8), lambda: once(1, key="v")], ids=["plain", "same writer", "another"])
def test_nothing_comes_between_the_batches_of_a_group(acks: int, made: Any) -> None:
    partition = leading(log_of(("a", 1)), (1,))
    partition.publish([part(2, 0)], 0)
    assert partition.append(made(), acks, 0) == (Code.QUOTA_EXCEEDED, -1, -1)
    partition.publish([part(1, 2)], 0)
    assert partition.append(made(), acks, 0) == (Code.QUOTA_EXCEEDED, -1, -1)
    assert holds(partition) == (4, 1)
    partition.publish([part(1, 3, last=True)], 0)
    assert holds(partition) == (5, 5)
    assert partition.append(made(), acks, 0) == (0, 5, 6)


@pytest.mark.parametrize("second", range(8))
@pytest.mark.parametrize("third", range(8))
def test_the_high_watermark_goes_from_one_end_of_a_group_to_the_next(second: int, third: int) -> None:
    """With followers at every place: the group is [1, 6), and what is after it ends at 7."""
    partition = lead_with(log_of(("a", 5)), epoch=6)
    fetch(partition, 2, 1, 5, epoch=6)
    fetch(partition, 3, 1, 5, epoch=6)
    partition.publish([part(2, 0), part(2, 2)], 0)
    partition.publish([part(1, 4, last=True)], 0)
    assert partition.append(plain(), ACKS_ALL, 0) == (0, 6, 7)
    for replica, end in ((2, second), (3, third)):
        fetch(partition, replica, end, 6 if end > 1 else 5 if end else -1, epoch=6)
    both = min(second, third)
    assert partition.high_watermark == (1 if both < 6 else both)


def test_a_replica_that_is_about_to_join_holds_it_below_the_group() -> None:
    partition = leading(log_of(("a", 4)), (1, 2), epoch=5)
    fetch(partition, 2, 1, 4)
    fetch(partition, 3, 1, 4)
    partition.publish([part(2, 0), part(2, 2, last=True)], 0)
    fetch(partition, 3, 3, 5)
    fetch(partition, 2, 5, 5)
    assert partition.high_watermark == 1
    fetch(partition, 3, 5, 5)
    assert partition.high_watermark == 5


def test_under_flush_ack_a_half_flushed_group_counts_for_nothing() -> None:
    partition = leading(log_of(("a", 1)), (1,), flush="ack")
    token = partition.log.flush()
    assert isinstance(token, FlushToken)
    partition.flushed(token.run(), 0)
    assert partition.high_watermark == 1
    partition.publish([part(2, 0)], 0)
    token = partition.log.flush()
    assert isinstance(token, FlushToken)
    partition.publish([part(2, 2, last=True)], 0)
    partition.flushed(token.run(), 0)
    assert (partition.log.flushed_end, partition.high_watermark) == (3, 1)
    token = partition.log.flush()
    assert isinstance(token, FlushToken)
    partition.flushed(token.run(), 0)
    assert partition.high_watermark == 5


def test_a_smaller_isr_in_the_middle_of_a_group_moves_it_to_where_the_group_begins() -> None:
    partition = leading(log_of(("a", 1), ("b", 1)), (1, 2))
    partition.publish([part(2, 0)], 0)
    fetch(partition, 2, 1, 1)
    assert holds(partition) == (4, 1)
    partition.become(notice(1, 5, (1,), partition_epoch=1), 20_000)
    assert holds(partition) == (4, 2)
    assert partition.append(plain(), ACKS_ALL, 0).error == Code.QUOTA_EXCEEDED, "the group is open still"


def test_a_follower_of_an_idle_leader_lags_from_when_the_group_began() -> None:
    partition = leading(log_of(("a", 1)), (1, 2))
    fetch(partition, 2, 1, 1)
    assert partition.leading is not None
    contact = partition.leading.replicas[2].contact
    contact.last_fetch_ms = 50_000
    partition.publish([part(2, 0)], 50_000)
    contact.last_fetch_ms = 55_000
    partition.publish([part(2, 2, last=True)], 55_000)
    assert [partition.leading.change(at) is None for at in (50_001, 60_000, 60_001)] == [True, True, False]


class FullLog(MemoryLog):
    """Takes so many batches more."""

    room = 0

    def append_many(self, batches: Any) -> None:
        for one in batches:
            if self.room == 0:
                raise LogFull("no room")
            self.room -= 1
            self.append(one)


@pytest.mark.parametrize("room", range(4))
def test_what_a_full_disk_lets_in_decides_whether_the_group_is_open(room: int) -> None:
    log = FullLog(IDENTITY)
    log.room = room
    partition = lead_with(log)
    parts = [part(2, 0), part(2, 2), part(1, 4, last=True)]
    if room < 3:
        with pytest.raises(LogFull):
            partition.publish(parts, 0)
    else:
        partition.publish(parts, 0)
    assert log.end_offset == (0, 2, 4, 5)[room]
    error = partition.append(plain(), ACKS_ALL, 0).error
    assert error == (Code.QUOTA_EXCEEDED if room in (1, 2) else Code.NONE)


def test_a_fully_stored_group_is_not_open_although_the_disk_was_full_after_it() -> None:
    log = FullLog(IDENTITY)
    log.room = 1
    partition = lead_with(log)
    with pytest.raises(LogFull):
        partition.publish([part(1, 0, last=True), part(1, 0, version=8)], 0)
    assert partition.append(plain(), ACKS_ALL, 0) == (0, 1, 2)


# --------------------------------------------------------------------------------------------------------------- followers


@pytest.mark.parametrize("told", range(8))
@pytest.mark.parametrize("held", range(4))
def test_a_follower_with_half_a_group_shows_nothing_of_it(held: int, told: int) -> None:
    """The group is [1, 6); one more record ends at 7. The leader says that so much of it is committed, or once was."""
    follower = partition_of(log_of(("a", 1)), broker_id=2)
    follower.become(notice(1, 5, (1, 2, 3)), 0)
    batches = [part(2, 0), part(2, 2), part(1, 4, last=True), plain()]
    at = 1
    for one in batches:
        one.stamp(IDENTITY, at, 5)
        at = one.end_offset
    entry = FetchedEntry(IDENTITY, 5, 1, high_watermark=told, slices=sliced(*batches[: held + 1]))
    assert follower.following is not None
    _, high_watermark = follower.following.take(entry, 0)
    end = (3, 5, 6, 7)[held]
    assert follower.log.end_offset == end
    assert high_watermark == (min(told, 1) if min(told, end) < 6 else min(told, end))


@pytest.mark.parametrize("target", range(1, 6))
def test_the_old_leader_takes_back_what_the_new_one_has_cut(target: int) -> None:
    old = leading(log_of(("a", 1), ("b", 1)), (1, 2, 3))
    old.publish([part(2, 0), part(1, 2), part(1, 3)], 0)
    fetch(old, 2, 2, 1)
    fetch(old, 3, 2, 1)
    assert holds(old) == (6, 2)
    old.become(notice(2, 6, (1, 2, 3), partition_epoch=1), 0)
    assert old.high_watermark == 2
    assert old.following is not None
    entry = FetchedEntry(IDENTITY, 6, 6, diverging_epoch=5 if target > 2 else 1, diverging_end=target)
    outcome, high_watermark = old.following.take(entry, old.high_watermark)
    old.high_watermark = high_watermark
    assert outcome is Followed.TRUNCATED
    assert old.log.end_offset == (target if target != 3 else 2), "a batch that straddles the place goes whole"
    assert old.high_watermark == min(2, old.log.end_offset)


@pytest.mark.parametrize(("end", "expected"), [(8, 7), (7, 7), (6, 6), (5, 2), (3, 2), (2, 2), (1, 1)])
def test_a_leader_whose_log_ends_inside_a_group_takes_the_high_watermark_back_with_it(end: int, expected: int) -> None:
    """An unclean election: the group [2, 6) was committed, and of what the new leader has only a part is whole."""
    log = log_of(("a", 1), ("b", 1))
    append_group(log, 1, 2, 1, epoch=1)
    log.append(batch("z", 6, 1))
    follower = partition_of(log, broker_id=2, high_watermark=7)
    follower.become(notice(1, 5, (1, 2)), 0)
    assert follower.following is not None
    entry = FetchedEntry(IDENTITY, 5, 7, Code.OFFSET_OUT_OF_RANGE, start_offset=0, end_offset=end)
    _, high_watermark = follower.following.take(entry, 7)
    assert log.end_offset == min(end, 7)
    assert high_watermark == expected


@pytest.mark.parametrize(("target", "expected"), [(7, 7), (6, 6), (5, 2), (3, 2), (2, 2)])
def test_where_logs_part_inside_a_group_the_high_watermark_goes_back_to_where_it_begins(target: int, expected: int) -> None:
    """An unclean election too: what was committed here has not come whole to the new leader."""
    log = log_of(("a", 1), ("b", 1))
    append_group(log, 1, 2, 1, epoch=3)
    log.append(batch("z", 6, 3))
    follower = partition_of(log, broker_id=2, high_watermark=7)
    follower.become(notice(1, 5, (1, 2)), 0)
    assert follower.following is not None
    entry = FetchedEntry(IDENTITY, 5, 7, diverging_epoch=3, diverging_end=target)
    assert follower.following.take(entry, 7) == (Followed.TRUNCATED, expected)


def test_a_leader_that_cuts_makes_everybody_who_has_some_of_it_cut() -> None:
    """End to end between two copies: half of a group at a follower, which then leads."""
    leader = leading(log_of(("a", 1), ("b", 1)), (1, 2), epoch=5)
    leader.publish([part(2, 0), part(1, 2)], 0)
    second = partition_of(log_of(("a", 1), ("b", 1)), broker_id=2)
    second.become(notice(1, 5, (1, 2)), 0)
    assert second.following is not None
    (first, _) = stored_batches(leader.log, 2)
    second.following.take(FetchedEntry(IDENTITY, 5, 2, high_watermark=2, slices=sliced(first)), 2)
    assert second.log.end_offset == 4
    assert second.become(notice(2, 6, (1, 2), partition_epoch=1), 0) == 0
    assert second.log.end_offset == 2
    assert entries_of(second.log) == [(1, 0), (6, 2)]
    leader.become(notice(2, 6, (1, 2), partition_epoch=1), 0)
    assert leader.following is not None
    error, parted = fetch(second, 1, leader.log.end_offset, 5, epoch=6)
    assert (error, parted) == (0, (1, 2)), "that epoch never was here"
    leader.following.take(FetchedEntry(IDENTITY, 6, 5, diverging_epoch=1, diverging_end=2), leader.high_watermark)
    assert shown(leader.log) == shown(second.log) == [b"a", b"b"]
    assert entries_of(leader.log) == [(1, 0)]


def test_a_joiner_that_trims_into_a_group_has_nothing_below_its_start() -> None:
    """The leader's retention has taken the beginning of a group that was committed long ago."""
    log = MemoryLog(IDENTITY)
    append_group(log, 2, 2, 2)
    follower = partition_of(log, broker_id=2, high_watermark=6)
    follower.become(notice(1, 5, (1, 2)), 0)
    assert follower.following is not None
    last = batch("z", 6, 5)
    entry = FetchedEntry(IDENTITY, 5, 6, high_watermark=7, start_offset=4, slices=sliced(last))
    _, high_watermark = follower.following.take(entry, 6)
    assert (log.start_offset, log.end_offset, high_watermark) == (4, 7, 7)
    assert log.group_floor(6) == 6
    assert follower.become(notice(2, 6, (2,), partition_epoch=1), 0) == 0
    assert shown(log)[-1] == b"z"


# ------------------------------------------------------------------------------------------------------- the next leader


@pytest.mark.parametrize("marks", range(0, 7))
@pytest.mark.parametrize("sizes", [(2,), (2, 3), (1, 1, 1)])
def test_a_new_leader_cuts_an_open_group_before_its_epoch_begins(sizes: tuple[int, ...], marks: int) -> None:
    log = log_of(("a", 1), ("b", 1))
    append_group(log, *sizes, epoch=4, whole=False)
    partition = partition_of(log, high_watermark=marks)
    assert partition.high_watermark == min(marks, 2), "also where a checkpoint says otherwise"
    assert partition.become(notice(1, 5, (1, 2)), 0) == 0
    assert log.end_offset == 2
    assert partition.leading is not None
    assert (partition.leading.epoch_start, partition.leading.group_open) == (2, False)
    assert entries_of(log) == [(1, 0), (5, 2)]
    assert partition.append(plain("new"), ACKS_ALL, 0) == (0, 2, 3)


def test_a_group_that_ended_stays() -> None:
    log = log_of(("a", 1))
    append_group(log, 2, 3, epoch=4)
    partition = partition_of(log)
    assert partition.become(notice(1, 5, (1,)), 0) == 0
    assert holds(partition) == (6, 6)
    assert entries_of(log) == [(1, 0), (4, 1), (5, 6)]


def test_the_same_leader_in_a_new_epoch_cuts_too() -> None:
    partition = leading(log_of(("a", 1)), (1, 2))
    fetch(partition, 2, 1, 1)
    partition.publish([part(2, 0), part(2, 2)], 0)
    fetch(partition, 2, 3, 5)
    assert holds(partition) == (5, 1)
    partition.become(notice(1, 6, (1, 2), partition_epoch=1), 0)
    assert holds(partition) == (1, 1)
    assert entries_of(partition.log) == [(1, 0), (6, 1)]
    assert fetch(partition, 2, 3, 5, epoch=6) == (0, (1, 1))
    assert partition.append(plain(), ACKS_LEADER, 0) == (0, 1, 2)
    partition.publish([part(2, 0), part(2, 2, last=True)], 0)
    assert partition.log.end_offset == 6


def test_the_same_epoch_in_another_state_cuts_nothing() -> None:
    partition = leading(log_of(("a", 1)), (1, 2))
    partition.publish([part(2, 0)], 0)
    partition.become(notice(1, 5, (1,), partition_epoch=1), 0)
    partition.become(notice(1, 5, (1, 2), partition_epoch=2), 0)
    partition.publish([part(2, 2, last=True)], 0)
    assert partition.log.end_offset == 5


def test_a_follower_cuts_nothing_by_itself() -> None:
    """It may be the one whose copy is chosen, and it is not for it to say that the leader will not go on."""
    log = log_of(("a", 1))
    append_group(log, 2, epoch=4, whole=False)
    follower = partition_of(log, broker_id=2)
    for epoch in (5, 6):
        follower.become(notice(1, epoch, (1, 2), partition_epoch=epoch), 0)
        assert log.end_offset == 3


def test_chance_never_puts_a_high_watermark_into_a_group() -> None:
    """Leader and two followers, positions at random, against what the log says batch by batch."""
    chance = random.Random(11)
    for _ in range(60):
        partition = lead_with(log_of(("a", 4)))
        wholes, places = [0, 1], [0, 1]
        for version in range(chance.randrange(1, 6)):
            sizes = [chance.randrange(1, 4) for _ in range(chance.randrange(1, 5))]
            offset = 0
            for n, size in enumerate(sizes):
                end = n == len(sizes) - 1 and (version < 4 or chance.random() < 0.5)
                partition.publish([part(size, offset, version=version, last=end)], 0)
                offset += size
                places.append(partition.log.end_offset)
                if end:
                    wholes.append(partition.log.end_offset)
                for replica in (2, 3):
                    if chance.random() < 0.6:
                        place = chance.choice(places)
                        fetch(partition, replica, place, -1 if place == 0 else 4 if place == 1 else 5)
                assert partition.high_watermark in wholes
                assert partition.log.group_floor(places[-1]) == max(one for one in wholes if one <= places[-1])


# ----------------------------------------------------------------------------------------------------------------- damage


def file_log(fs: MemoryFs, *groups: tuple[int, ...], whole: bool = False) -> FileLog:
    (log,) = open_directory(fs).create([LogStart(IDENTITY, "t", notice(1, 1, (1,)).config)])
    assert isinstance(log, FileLog)
    plainly = batch("a+b", 0, 1)
    log.append(plainly)
    for sizes in groups:
        append_group(log, *sizes, epoch=1, whole=whole)
    return log


def spoil(fs: MemoryFs, log: FileLog, base: int, at: int) -> None:
    """Turn over a bit of a stored batch."""
    (path,) = (path for path in fs.paths() if path.endswith(".log"))
    position = sum(one.length for one in stored_batches(log) if one.base_offset < base)
    log.forget_tail()
    fs.content("/" + path)[position + at] ^= 1


@pytest.mark.parametrize("at", [0, 8, 30, 43, 47, 50, 100, 108, 110, -1])
def test_nothing_is_cut_by_a_batch_that_is_damaged(at: int) -> None:
    """Where the group begins is in what is damaged: cut there, committed records could go."""
    fs = MemoryFs()
    log = file_log(fs, (2, 2))
    last = stored_batches(log)[-1]
    spoil(fs, log, last.base_offset, at if at >= 0 else last.length - 1)
    partition = partition_of(log, high_watermark=2)  # type: ignore[arg-type]
    with pytest.raises(LogCorrupt):
        partition.become(notice(1, 5, (1, 2)), 0)
    assert (log.start_offset, log.end_offset) == (0, 6)


def test_a_group_that_cannot_be_read_holds_the_high_watermark_at_the_start() -> None:
    fs = SimulatedDisk(random.Random(1))
    log = file_log(fs, (2, 2), whole=True)
    log.append(batch("z", 6, 1))
    partition = partition_of(log)  # type: ignore[arg-type]
    partition.become(notice(1, 5, (1, 2)), 0)
    log.forget_tail()
    fs.arm("read_error", paths=".log")
    fetch(partition, 2, 4, 1)
    assert partition.high_watermark == 0
    fs.disarm()
    fetch(partition, 2, 4, 1)
    assert partition.high_watermark == 2
    fetch(partition, 2, 7, 1)
    assert partition.high_watermark == 7


def test_a_group_that_begins_below_the_high_watermark_is_never_cut() -> None:
    """Impossible, hence damage: whatever says so is wrong, and nothing is lost by it."""
    log = log_of(("a", 1), ("b", 1), ("c", 1))
    lying = part(2, 2)
    lying.stamp(IDENTITY, 3, 1)
    log.append(lying)
    partition = partition_of(log)
    partition.high_watermark = 3
    with pytest.raises(LogCorrupt, match="a group that begins at 1, below the high watermark"):
        partition.become(notice(1, 5, (1,)), 0)
    assert log.end_offset == 5


def test_a_repeated_mention_is_a_control_batch_that_is_no_open_group() -> None:
    partition = leading(log_of(("a", 1)), (1,))
    partition.publish([RecordBatch(encode_records(["m"], now_ms=0, **{**framing(WriterMark("w", 3)), "attributes": CONTROL_BIT}))], 0)
    assert holds(partition) == (2, 2)
    assert mark_of(stored_batches(partition.log)[-1]) == WriterMark("w", 3)


def test_fetched_groups_keep_their_marks() -> None:
    """What a follower stores is what its leader said, byte for byte."""
    log = MemoryLog(IDENTITY)
    made = append_group(log, 2, 2, key="k", version=5)
    follower = partition_of(MemoryLog(IDENTITY), broker_id=2)
    follower.become(notice(1, 5, (1, 2)), 0)
    assert follower.following is not None
    entry = fetched(5, 0)
    entry.slices = sliced(*made)
    entry.high_watermark = 4
    assert follower.following.take(entry, 0) == (Followed.APPENDED, 4)
    assert [one.to_bytes() for one in stored_batches(follower.log)] == [one.to_bytes() for one in made]
    known = follower.log.producers.writer(made[0].producer_id)
    assert known is not None
    assert [(w.base_sequence, w.base_offset, w.last_sequence) for w in known.recent] == [(5, 2, 4)]
