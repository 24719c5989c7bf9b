"""Rules about one copy, and about any two."""

from __future__ import annotations

import pytest
from tests.simulation.checks.situations import PID, copy_of, entry, frame, header, holds, ledger, partition, violates

from replog.errors import LogCorrupt
from replog.log.memory import MemoryLog
from replog.model import PartitionId
from replog.ports import Slice
from replog.records import FRONT_BYTES, BadBatch, RecordBatch, read_header
from replog.slices import MemorySlice
from replog.testing.simulator.invariants import EpochTablesFollow, FollowersBelieveCommitted, LogsAreDense, LogsMatch, OffsetsAreInOrder
from replog.testing.simulator.ledger import NEVER_SEEN, Copy, Ledger, header_at


def test_s7_offsets_out_of_order() -> None:
    rule, leader = OffsetsAreInOrder(), partition()
    holds(rule.changed, ledger(), copy_of(1, []), leader)
    leader.high_watermark = 1
    violates("S7", rule.changed, ledger(), copy_of(1, []), leader)  # its leadership knows another one
    follower = partition(2, log=filled(3))
    holds(rule.changed, ledger(), copy_of(2, []), follower)
    for broken in ("high_watermark", "flushed_end", "start_offset"):
        follower = partition(2, log=filled(3))
        setattr(follower if broken == "high_watermark" else follower.log, broken, 4)
        violates("S7", rule.changed, ledger(), copy_of(2, []), follower)


def test_s7_two_roles() -> None:
    leader = partition()
    leader.following = partition(2).following
    violates("S7", OffsetsAreInOrder().changed, ledger(), copy_of(1, []), leader)
    leader.following, leader.leader = None, 2
    violates("S7", OffsetsAreInOrder().changed, ledger(), copy_of(1, []), leader)


def test_s9_a_follower_believes_in_other_entries() -> None:
    rule, follower = FollowersBelieveCommitted(), partition(broker=2)
    follower.high_watermark = 1
    holds(rule.changed, ledger(), copy_of(2, [entry(0), entry(9)]), follower)
    follower.high_watermark = 2
    violates("S9", rule.changed, ledger(), copy_of(2, [entry(0), entry(9)]), follower)
    follower.high_watermark = 4
    violates("S9", rule.changed, ledger(), copy_of(2, [entry(n) for n in range(4)]), follower)


def test_s9_one_place_holds_two_batches() -> None:
    rule, book = LogsMatch(), ledger()
    holds(rule.batch, book, Copy(1), header(0, 3, value=b"x"))
    holds(rule.batch, book, Copy(2), header(0, 3, value=b"x"))
    holds(rule.batch, book, Copy(3), header(0, 4, value=b"y"))
    violates("S9", rule.batch, book, Copy(3), header(0, 3, value=b"y"))
    holds(rule.batch, Ledger(PID), Copy(3), header(0, 3, value=b"y"))


def test_s9_one_batch_has_two_pasts() -> None:
    rule, book = LogsMatch(), ledger()
    holds(rule.batch, book, copy_of(1, [], first=1), header(1, 3))  # what was before is gone there
    holds(rule.batch, book, copy_of(2, [entry(0, epoch=2)]), header(1, 3))
    holds(rule.batch, book, copy_of(3, [entry(0, epoch=2)]), header(1, 3))
    violates("S9", rule.batch, book, copy_of(3, [entry(0, epoch=1)]), header(1, 3))


def test_s9_what_was_below_the_start_of_a_log_is_no_past() -> None:
    rule, book = LogsMatch(), ledger()
    holds(rule.batch, book, copy_of(2, [entry(0, epoch=2)]), header(1, 3))
    trimmed = copy_of(3, [entry(0, epoch=1)])
    trimmed.start = 1
    holds(rule.batch, book, trimmed, header(1, 3))
    holds(EpochTablesFollow().batch, book, trimmed, header(1, 0))
    trimmed.start = 0
    violates("S9", rule.batch, book, trimmed, header(1, 3))


def filled(count: int, *epochs: int) -> MemoryLog:
    """A log of some batches."""
    log = MemoryLog(PID)
    for n in range(count):
        log.append(stamped(n, epochs[n] if epochs else 2))
    return log


def stamped(base: int, epoch: int) -> RecordBatch:
    """One batch, ready to be appended."""
    return RecordBatch.parse(frame(base, epoch))


def test_s10_an_epoch_goes_back_in_a_log() -> None:
    rule, copy = EpochTablesFollow(), Copy(1)
    copy.take(frame(0, epoch=5))
    holds(rule.batch, ledger(), copy, header(1, epoch=5))
    violates("S10", rule.batch, ledger(), copy, header(1, epoch=4))


def test_s10_the_table_is_not_what_the_batches_say() -> None:
    rule, book = EpochTablesFollow(), ledger()
    follower, copy = partition(2, log=filled(3, 1, 1, 2)), Copy(2)
    copy.follow(follower.log)
    holds(rule.changed, book, copy, follower)
    follower.log.enter_epoch(3)  # has no record yet
    holds(rule.changed, book, copy, follower)
    follower.log.last_epoch = 2
    violates("S10", rule.changed, book, copy, follower)
    for wrong in ([(1, 0), (2, 1)], [(1, 0)], [(1, 0), (2, 2), (3, 2)]):
        follower = partition(2, log=filled(3, 1, 1, 2))
        copy.follow(follower.log)
        follower.log.epochs = type(follower.log.epochs)(wrong)
        latest = follower.log.epochs.latest
        assert latest is not None
        follower.log.last_epoch = latest.epoch
        violates("S10", rule.changed, book, copy, follower)


def test_s10_a_trimmed_table_begins_where_the_log_does() -> None:
    rule, log, copy = EpochTablesFollow(), filled(4, 1, 1, 2, 2), Copy(2)
    follower = partition(2, log=log)
    copy.follow(log)
    for start in (1, 2, 3, 4):
        log.trim_to(start)
        assert copy.follow(log) is None
        holds(rule.changed, ledger(), copy, follower)
    assert (copy.first, copy.start, copy.end) == (0, 4, 4)


def test_s16_a_log_has_a_gap() -> None:
    rule, copy = LogsAreDense(), Copy(1)
    holds(rule.batch, ledger(), copy, header(0, epoch=3))
    violates("S16", rule.batch, ledger(), copy, header(1, epoch=3))
    violates("S16", rule.batch, ledger(), copy, header(0, epoch=3, identity=PartitionId(bytes(16), 1, 0)))


def test_s16_a_log_gives_back_less_than_it_has() -> None:
    for log in (Shorter(PID), Silent(PID)):
        log.append(stamped(0, 3))
        holds(Copy(1).follow, log)
        log.end_offset = 2
        violates("S16", Copy(1).follow, log)
        copy = Copy(1)
        copy.suspect = True
        copy.follow(log)
        assert copy.unreadable


class Shorter(MemoryLog):
    """Its end is beyond its last batch, which it gives back again."""


class Silent(MemoryLog):
    """Its end is beyond its last batch, and it says nothing about that."""

    def read(self, offset: int, limit: int, max_bytes: int) -> list[Slice]:
        return super().read(offset, limit, max_bytes) if offset < 1 else []


def test_an_error_of_the_disk_is_nobodys_fault_and_passes() -> None:
    log, copy = Failing(PID), Copy(1)
    log.append(stamped(0, 3))
    copy.follow(log)
    assert copy.unreadable
    log.error = None
    copy.follow(log)
    assert (copy.end, copy.unreadable) == (1, False)
    corrupt = Failing(PID)
    corrupt.error = LogCorrupt("bytes that are not a batch")
    corrupt.append(stamped(0, 3))
    violates("S16", Copy(1).follow, corrupt)  # nobody has touched its disk


def test_what_cannot_be_read_on_is_tried_by_one_batch_and_not_by_all_behind_it() -> None:
    """Each look at a copy is such a try: a log of thousands of segments behind a spoiled batch would be read whole each time."""
    log, copy = Spoiled(PID), Copy(1)
    for base in range(50):
        log.append(stamped(base, 3))
    copy.suspect = True
    for tries, spoils in enumerate((True, True, True, False)):
        log.spoils = spoils
        given, log.given = log.given, 0
        copy.follow(log)
        assert copy.unreadable == spoils
        assert tries < 2 or given == 1
    assert (copy.end, log.given) == (50, 1 + 49)


class Spoiled(MemoryLog):
    """Its first batch has other bytes on the disk."""

    spoils = True
    given = 0
    """Batches that were handed out."""

    def read(self, offset: int, limit: int, max_bytes: int) -> list[Slice]:
        found = super().read(offset, limit, max_bytes)
        self.given += sum(piece.end_offset - piece.base_offset for piece in found)
        if self.spoils and offset == 0:
            return [MemorySlice(0, 1, bytes(200)), *found]
        return found


class Failing(MemoryLog):
    """It cannot be read."""

    error: Exception | None = OSError(5, "the disk fails")

    def read(self, offset: int, limit: int, max_bytes: int) -> list[Slice]:
        if self.error is not None:
            raise self.error
        return super().read(offset, limit, max_bytes)


def test_a_mirror_starts_where_a_log_was_reset_to() -> None:
    log, copy = filled(3), Copy(1)
    copy.follow(log)
    log.reset_to(10)
    assert copy.follow(log) is None
    assert (copy.first, copy.end) == (10, 10)
    log.append(stamped(10, 4))
    log.append(stamped(11, 4))
    copy.follow(log)
    log.truncate_to(11)
    assert copy.follow(log) == 11


def test_a_mirror_whose_log_was_reset_below_its_start() -> None:
    log, copy = MemoryLog(PID, start_offset=10), Copy(1)
    for base in range(10, 20):
        log.append(stamped(base, 3))
    copy.follow(log)
    log.reset_to(3)
    log.append(stamped(3, 3))
    assert copy.follow(log) == 10  # all that there was is gone
    assert (copy.first, copy.end) == (3, 4)


def test_what_lies_below_the_start_of_a_log_is_compared_with_nothing() -> None:
    """A follower's log may part from the leader's below the leader's start: it trims that with the same answer."""
    copy, book = copy_of(2, [entry(0, 2), entry(1, 2), entry(2)]), ledger(3)
    assert copy.mismatch(book, 3) is not None
    copy.start = 1
    assert copy.mismatch(book, 3) is not None
    copy.start = 2
    assert copy.mismatch(book, 3) is None


def test_what_was_gone_before_anybody_could_look_is_compared_with_nothing() -> None:
    """A leader may commit a record and drop it by age in one turn: a follower still has it."""
    copy, book = copy_of(2, [entry(0, 2), entry(1), entry(2, 2)]), ledger(3)
    book.entries[0] = NEVER_SEEN
    assert copy.mismatch(book, 2) is None
    assert "at committed offset 2" in str(copy.mismatch(book, 3))
    book.entries[2] = NEVER_SEEN
    assert copy.mismatch(book, 3) is None
    book.entries.append(entry(3))
    assert "lacks committed offset 3" in str(copy.mismatch(book, 4))


def test_a_suspect_copy_is_believed_only_as_far_as_its_checksums_match() -> None:
    copy, bad = Copy(1), bytearray(frame(0, 3))
    bad[-1] ^= 1
    copy.take(memoryview(bad))  # headers are intact: nobody else would look further
    copy = Copy(1)
    copy.suspect = True
    with pytest.raises(BadBatch):
        copy.take(memoryview(bad))
    with pytest.raises(BadBatch):
        copy.take(frame(1, 3))


def test_a_count_of_records_that_a_turned_bit_has_made_huge_is_not_believed() -> None:
    turned = bytearray(frame(0, 3))
    turned[FRONT_BYTES + 11] ^= 0x40  # of the count, which the checksum of the payload covers
    assert read_header(turned).count == 1 + (1 << 30)
    with pytest.raises(BadBatch, match="a bit of it was turned over"):
        header_at(memoryview(turned), 0)
