"""What every log and log directory must do, as tests: subclass, say how directories are opened, and run them.

::

    class TestMyLogs(LogContract):
        @pytest.fixture
        def lives(self, tmp_path):
            return MyLives(tmp_path)         # see `Lives`
"""

from __future__ import annotations

import pytest

from replog.config import TopicConfig
from replog.errors import UsageError
from replog.ports import Log, LogDirectory, Writer
from replog.testing.log_directory_contract import LogDirectoryContract
from replog.testing.log_flush_contract import LogFlushContract
from replog.testing.log_samples import (
    FIRST,
    TOPIC_ID,
    Ending,
    Lives,
    append,
    append_group,
    batch_of,
    entries_of,
    flush,
    refuses_what_is_not_next,
    shown,
    stored_batches,
)

__all__ = [
    "TOPIC_ID",
    "Ending",
    "Lives",
    "LogContract",
    "append",
    "append_group",
    "batch_of",
    "entries_of",
    "flush",
    "shown",
    "stored_batches",
]

_GROUPS = {0: 0, 2: 2, 5: 2, 7: 2, 8: 8, 9: 9, 10: 9, 13: 13, 15: 15, 17: 15, 19: 15}
"""Where batches of `_with_groups` begin -> where what is whole below that ends."""


def _with_groups(log: Log) -> None:
    """Plain batches, groups of several batches, marked work of one batch, and a group that has yet to end."""
    append(log, 2)
    append_group(log, 3, 2, 1, key="a", version=7)
    append(log, 1, epoch=1)
    append_group(log, 1, 3, key="b", epoch=1)
    append_group(log, 2, key="a", version=8, epoch=2)
    append_group(log, 2, 2, key="c", epoch=2, whole=False)


def _recent(log: Log, producer_id: int) -> list[Writer]:
    """What is remembered of a writer."""
    writer = log.producers.writer(producer_id)
    return [] if writer is None else list(writer.recent)


def _floors(log: Log) -> dict[int, int]:
    """By every place between two batches, asked from both ends: an answer is the same whatever was asked before."""
    places = [batch.base_offset for batch in stored_batches(log)] + [log.end_offset]
    found = {place: log.group_floor(place) for place in places}
    assert {place: log.group_floor(place) for place in reversed(places)} == found
    return found


class LogContract(LogDirectoryContract, LogFlushContract):
    """The contract of `Log`, and of the directory it lives in."""

    # --------------------------------------------------------------------------------------------- append and read

    def test_an_empty_log(self, log: Log) -> None:
        assert (log.start_offset, log.end_offset, log.flushed_end, log.size_bytes) == (0, 0, 0, 0)
        assert log.identity == FIRST
        assert log.read(0, 10, 1_000) == []
        assert log.epochs.latest is None
        assert len(log.producers) == 0
        assert log.flush() is None
        assert log.offset_for_time(0) is None

    def test_offsets_are_dense_and_bytes_come_back_as_stored(self, log: Log) -> None:
        batches = [append(log, 3), append(log, 1), append(log, 2)]
        assert log.end_offset == 6
        assert [b.to_bytes() for b in stored_batches(log)] == [b.to_bytes() for b in batches]
        assert log.size_bytes == sum(b.length for b in batches)

    def test_a_read_begins_with_the_batch_that_holds_the_offset(self, log: Log) -> None:
        for _ in range(20):
            append(log, 3)
        for _ in range(2):
            for offset in range(60):
                assert stored_batches(log, offset)[0].base_offset == offset // 3 * 3
            log.forget_tail()  # once more, of what is stored

    def test_a_read_ends_at_a_batch_below_its_limit(self, log: Log) -> None:
        for _ in range(20):
            append(log, 3)
        for _ in range(2):
            for limit in range(61):
                batches = stored_batches(log, 0, limit)
                assert [b.base_offset for b in batches] == list(range(0, limit // 3 * 3, 3))
            assert stored_batches(log, 59, 1_000)[-1].end_offset == 60
            assert log.read(60, 1_000, 1 << 20) == []
            log.forget_tail()  # once more, of what is stored

    def test_a_read_stays_below_its_size_but_one_batch_goes_through(self, log: Log) -> None:
        sizes = [append(log, n % 4 + 1).length for n in range(20)]
        for _ in range(2):
            for count in range(1, 20):
                room = sum(sizes[:count])
                assert len(stored_batches(log, 0, max_bytes=room)) == count
                assert len(stored_batches(log, 0, max_bytes=room - 1)) == max(1, count - 1)
            assert len(stored_batches(log, 0, max_bytes=0)) == 1
            log.forget_tail()  # once more, of what is stored

    def test_the_tail_is_read_like_everything_else(self, log: Log) -> None:
        append(log, 2)
        last = append(log, 2)
        for _ in range(2):
            assert [b.to_bytes() for b in stored_batches(log, 2)] == [last.to_bytes()]
            assert stored_batches(log, 2, 3) == []
            log.forget_tail()

    def test_many_batches_are_appended_at_once(self, log: Log) -> None:
        batches, offset = [], 0
        for number in range(50):
            batch = batch_of(number % 3 + 1, at_ms=number)
            batch.stamp(FIRST, offset, number // 20)
            offset = batch.end_offset
            batches.append(batch)
        log.append_many(batches)
        assert log.end_offset == offset
        everything: list[bytes] = []
        at = 0
        while at < log.end_offset:
            found = stored_batches(log, at)
            everything += [b.to_bytes() for b in found]
            at = found[-1].end_offset
        assert everything == [b.to_bytes() for b in batches]
        assert [epoch for epoch, _ in entries_of(log)] == [0, 1, 2]

    def test_a_batch_in_the_wrong_place_is_refused(self, log: Log) -> None:
        append(log, 2, epoch=3)
        refuses_what_is_not_next(log, 2, 3)
        assert [b.end_offset for b in stored_batches(log)] == [2]

    def test_slices_are_released_any_number_of_times(self, log: Log) -> None:
        append(log, 2)
        log.forget_tail()
        (part,) = log.read(0, 2, 1_000)
        part.release()
        part.release()

    def test_a_slice_shows_its_bytes_or_nothing_after_a_truncation(self, log: Log) -> None:
        batches = [append(log, 2) for _ in range(3)]
        log.forget_tail()
        (kept,) = log.read(0, 2, 1 << 20)
        (cut,) = log.read(4, 6, 1 << 20)
        log.truncate_to(4)
        append(log, ["other"] * 2, epoch=1)
        assert bytes(kept.view()) == batches[0].to_bytes()
        assert bytes(cut.view()) in (b"", batches[2].to_bytes())
        kept.release()
        cut.release()

    def test_a_slice_outlives_retention_and_closing(self, log: Log) -> None:
        batches = [append(log, 2) for _ in range(30)]
        log.forget_tail()
        parts = log.read(0, 60, batches[0].length)
        assert log.trim_to(50) == 50
        log.close()
        assert bytes(parts[0].view()) == batches[0].to_bytes()
        parts[0].release()

    def test_records_are_found_by_time(self, log: Log) -> None:
        for at_ms in (100, 300, 200, 400, 400, 500, 450, 700):
            append(log, 2, at_ms=at_ms)
        expected = {0: (0, 100), 100: (0, 100), 101: (2, 300), 300: (2, 300), 301: (6, 400), 500: (10, 500), 501: (14, 700)}
        for at_ms, found in expected.items():
            assert log.offset_for_time(at_ms) == found
        assert log.offset_for_time(701) is None
        log.trim_to(8)
        assert log.offset_for_time(0) == (8, 400)
        log.trim_to(16)
        assert (log.offset_for_time(0), log.size_bytes) == (None, 0)
        append(log, 2, at_ms=500)
        append(log, 2, at_ms=400)
        log.truncate_to(log.trim_to(18))  # what is below the start is still in its segment
        assert log.offset_for_time(0) is None

    # ---------------------------------------------------------------------------------------- epochs and producers

    def test_epochs_follow_the_batches(self, log: Log) -> None:
        append(log, 2, epoch=0)
        append(log, 2, epoch=0)
        append(log, 1, epoch=3)
        assert entries_of(log) == [(0, 0), (3, 4)]
        assert log.epochs.end_offset_for(0, log.end_offset) == (0, 4)
        assert log.epochs.end_offset_for(1, log.end_offset) == (0, 4)
        assert log.epochs.end_offset_for(3, log.end_offset) == (3, 5)
        assert log.epochs.end_offset_for(4, log.end_offset) is None

    def test_an_epoch_is_entered_before_its_first_batch(self, log: Log) -> None:
        append(log, 2, epoch=0)
        log.enter_epoch(4)
        assert entries_of(log) == [(0, 0), (4, 2)]
        log.enter_epoch(5)  # nothing was written in epoch 4: it never was
        assert entries_of(log) == [(0, 0), (5, 2)]
        append(log, 1, epoch=5)
        for epoch in (4, -1, 1 << 31, 10**5_000):
            with pytest.raises(UsageError, match=r"epoch is 5 \(.*\) to 2147483647, not (4|-1|2147483648|\(a number of 16610 bits\))$"):
                log.enter_epoch(epoch)
        assert entries_of(log) == [(0, 0), (5, 2)]

    def test_the_last_five_batches_of_a_producer_are_known(self, log: Log) -> None:
        for number in range(7):
            append(log, 2, producer=(9, 1, 2 * number), at_ms=number)
        producer = log.producers.get(9)
        assert producer is not None
        assert producer.producer_epoch == 1
        assert [(w.base_sequence, w.last_sequence, w.base_offset) for w in producer.recent] == [
            (2 * n, 2 * n + 1, 2 * n) for n in range(2, 7)
        ]
        append(log, 2, producer=(9, 2, 0))
        producer = log.producers.get(9)
        assert producer is not None
        assert [w.base_sequence for w in producer.recent] == [0]
        assert log.producers.get(8) is None

    def test_the_last_batch_of_marked_work_is_known_under_its_version(self, log: Log) -> None:
        _with_groups(log)
        mine = {batch.base_offset: batch.producer_id for batch in stored_batches(log) if batch.extension}
        writer = log.producers.writer(mine[2])
        assert writer is not None
        assert writer.producer_epoch == -1
        assert [(w.base_sequence, w.base_offset, w.last_sequence) for w in writer.recent] == [(7, 7, 8), (8, 13, 15)]
        assert log.producers.writer(mine[15]) is None, "its group has yet to end"

    # ------------------------------------------------------------------------------------------------------ groups

    def test_what_is_whole_below_each_place(self, log: Log) -> None:
        _with_groups(log)
        assert _floors(log) == _GROUPS
        append_group(log, 1, key="c", epoch=2)  # another group in itself, whatever came before
        assert log.group_floor(20) == 20

    def test_a_log_without_groups_is_whole_everywhere(self, log: Log) -> None:
        for number in range(6):
            append(log, 2, producer=(4, 0, 2 * number))
        append_group(log, 3)
        assert _floors(log) == {place: place for place in (0, 2, 4, 6, 8, 10, 12, 15)}
        assert log.group_floor(0) == 0

    @pytest.mark.parametrize("place", sorted(_GROUPS))
    def test_truncation_into_a_group_leaves_it_open(self, log: Log, place: int) -> None:
        _with_groups(log)
        log.truncate_to(place)
        assert _floors(log) == {at: floor for at, floor in _GROUPS.items() if at <= place}
        log.truncate_to(log.group_floor(place))
        append(log, 1, epoch=3)
        append_group(log, 1, 1, key="d", epoch=3, whole=False)
        end = _GROUPS[place]
        assert _floors(log) == {**{at: at for at in (end, end + 1)}, end + 2: end + 1, end + 3: end + 1} | {
            at: floor for at, floor in _GROUPS.items() if at <= end
        }

    @pytest.mark.parametrize("place", sorted(_GROUPS))
    def test_trimming_into_a_group_leaves_nothing_below_the_start(self, log: Log, place: int) -> None:
        _with_groups(log)
        start = log.trim_to(place)
        assert start == place
        assert _floors(log) == {at: max(floor, start) for at, floor in _GROUPS.items() if at >= start}

    def test_a_reset_log_has_no_groups(self, log: Log) -> None:
        _with_groups(log)
        log.reset_to(4)
        for number in range(4):
            assert log.group_floor(4 + number) == 4 + number
            append(log, 1, epoch=3)

    @pytest.mark.parametrize("how", ["clean", "process", "power"])
    @pytest.mark.parametrize("end", [8, 10, 17, 19])
    def test_another_life_knows_the_groups(self, lives: Lives, directory: LogDirectory, log: Log, how: Ending, end: int) -> None:
        _with_groups(log)
        log.truncate_to(end)
        flush(log)
        mine = {batch.producer_id for batch in stored_batches(log) if batch.extension}
        writers = {one: _recent(log, one) for one in mine}
        for _ in range(2):
            lives.end(how)
            found = lives.open().get(FIRST)
            assert found is not None
            assert _floors(found) == {at: floor for at, floor in _GROUPS.items() if at <= end}
            assert {one: _recent(found, one) for one in mine} == writers
            assert len(found.producers) == len([one for one in writers.values() if one])

    @pytest.mark.parametrize("place", sorted(_GROUPS))
    def test_the_table_of_writers_is_cut_back_with_the_log(self, log: Log, place: int) -> None:
        _with_groups(log)
        mine = {batch.base_offset: batch.producer_id for batch in stored_batches(log) if batch.extension}
        log.truncate_to(place)
        expected = {2: [base for base in (7, 13) if base < place], 9: [base for base in (10,) if base < place], 15: []}
        for base, bases in expected.items():
            writer = log.producers.writer(mine[base])
            assert ([] if writer is None else [w.base_offset for w in writer.recent]) == bases

    # ----------------------------------------------------------------------------------------------- taking away

    @pytest.mark.parametrize("offset", range(0, 31))
    def test_truncation(self, log: Log, offset: int) -> None:
        for number in range(10):
            append(log, 3, epoch=number // 3, producer=(5, 0, 3 * number))
        generation_token = log.flush()
        log.truncate_to(offset)
        end = offset // 3 * 3 if offset < 30 else 30
        assert log.end_offset == end
        assert entries_of(log) == [(epoch, 9 * epoch) for epoch in range(4) if 9 * epoch < offset and 9 * epoch < 30]
        assert shown(log) == [b"value 0", b"value 1", b"value 2"] * (end // 3)
        producer = log.producers.get(5)
        written = range(0, end, 3)
        assert ([] if producer is None else [w.base_offset for w in producer.recent]) == list(written)[-5:]
        assert generation_token is not None
        log.flushed(generation_token.run())
        assert log.flushed_end == (30 if end == 30 else 0)
        append(log, 1, epoch=7)
        assert log.end_offset == end + 1
        assert stored_batches(log, end)[-1].leader_epoch == 7

    def test_truncation_at_the_end_still_drops_an_empty_epoch(self, log: Log) -> None:
        append(log, 2)
        log.enter_epoch(3)
        log.truncate_to(2)
        assert entries_of(log) == [(0, 0)]
        append(log, 1, epoch=1)
        assert entries_of(log) == [(0, 0), (1, 2)]

    def test_trimming_keeps_whole_batches_and_the_epoch_in_force(self, log: Log) -> None:
        for number in range(10):
            append(log, 3, epoch=number // 3)
        assert log.trim_to(13) == 12
        assert log.start_offset == 12
        assert entries_of(log) == [(1, 12), (2, 18), (3, 27)]
        assert log.trim_to(5) == 12
        assert len(shown(log)) == 18
        assert log.trim_to(1_000) == 30
        assert shown(log) == []
        assert entries_of(log) == [(3, 30)]
        append(log, 1, epoch=3)
        assert shown(log) == [b"value 0"]

    def test_trimming_frees_segments(self, log: Log) -> None:
        size = sum(append(log, 3).length for _ in range(20))
        log.trim_to(57)
        assert log.size_bytes < size / 2

    def test_a_reset_log_begins_elsewhere(self, log: Log) -> None:
        for number in range(10):
            append(log, 3, epoch=number // 3, producer=(5, 0, 3 * number))
        log.reset_to(1_000)
        assert (log.start_offset, log.end_offset, log.flushed_end, log.size_bytes) == (1_000, 1_000, 1_000, 0)
        assert entries_of(log) == []
        assert len(log.producers) == 0
        append(log, 2, epoch=9)
        assert log.end_offset == 1_002
        assert entries_of(log) == [(9, 1_000)]
        log.reset_to(40)
        assert (log.start_offset, log.end_offset) == (40, 40)
        log.truncate_to(20)
        assert (log.start_offset, log.end_offset) == (20, 20)

    def test_a_reset_log_says_that_it_does_not_know_every_producer(self, log: Log) -> None:
        """In this life, not only in the next one: who wrote below its start is no new producer."""
        append(log, 2, producer=(5, 0, 0))
        assert not log.producers.forgetful
        for cut, offset in ((log.reset_to, 1_000), (log.reset_to, 40), (log.truncate_to, 20)):  # the last one: to below its start
            cut(offset)
            assert log.producers.forgetful
            append(log, 2, producer=(6, 0, 0))
            assert log.producers.forgetful

    @pytest.mark.parametrize("how", ["clean", "process", "power"])
    def test_a_log_of_which_all_has_expired_knows_the_epoch_of_its_last_record(
        self, lives: Lives, directory: LogDirectory, log: Log, how: Ending
    ) -> None:
        for number in range(10):
            append(log, 3, epoch=number // 3, at_ms=number)
        flush(log)
        log.config = TopicConfig(retention_ms=100)
        assert log.retain(1_000, 30) == 30
        log.enter_epoch(7)
        for _ in range(2):
            lives.end(how)
            found = lives.open().get(FIRST)
            assert found is not None
            assert (found.start_offset, found.end_offset, found.last_epoch) == (30, 30, 3)
            assert entries_of(found) == [(3, 30)]
            append(found, 2, epoch=8)
            assert entries_of(found) == [(8, 30)]
            found.truncate_to(30)
            assert (entries_of(found), found.last_epoch) == ([(3, 30)], 3)

    def test_an_empty_log_forgets_one_epoch_at_a_time(self, log: Log) -> None:
        """Its leader has said that the logs part there: to ask with the same epoch again would never end."""
        append(log, 2, epoch=2)
        log.trim_to(2)
        log.enter_epoch(7)
        for entries, last in (([(2, 2)], 2), ([], -1), ([], -1)):
            log.truncate_to(2)
            assert (entries_of(log), log.last_epoch) == (entries, last)
        append(log, 1, epoch=1)
        assert entries_of(log) == [(1, 2)]

    def test_retention_by_size(self, log: Log) -> None:
        for _ in range(40):
            append(log, 2)
        size = log.size_bytes
        log.config = TopicConfig(segment_bytes=600, retention_bytes=size // 2)
        start = log.retain(0, 30)
        assert 0 < start <= 30
        start = log.retain(0, 80)
        assert start > 30
        assert size // 2 <= log.size_bytes < size // 2 + 1_200
        assert shown(log)

    def test_retention_by_age_goes_up_to_the_last_segment(self, log: Log) -> None:
        log.config = TopicConfig(segment_bytes=600, retention_ms=100)
        for number in range(40):
            append(log, 2, at_ms=10 * number)
        assert log.retain(90, 80) == 0
        assert 0 < log.retain(300, 80) < 80
        assert log.retain(1_000, 70) < 80
        assert log.retain(1_000, 80) == 80
        assert (log.start_offset, log.end_offset, log.size_bytes) == (80, 80, 0)
        append(log, 1)
        assert shown(log) == [b"value 0"]

    def test_retention_is_off_unless_asked_for(self, log: Log) -> None:
        for number in range(40):
            append(log, 2, at_ms=number)
        assert log.retain(10**15, 80) == 0

    def test_silent_producers_expire(self, log: Log) -> None:
        """By the clock, from one look to another; the times of their records do not count."""
        append(log, producer=(1, 0, 0), at_ms=10**12)
        log.retain(1_000, 0)
        append(log, producer=(2, 0, 0), at_ms=0)
        log.retain(24 * 3_600_000 + 999, 0)
        assert log.producers.get(1) is not None
        log.retain(24 * 3_600_000 + 1_000, 0)
        assert log.producers.get(1) is None
        assert log.producers.get(2) is not None
        assert log.producers.forgetful
