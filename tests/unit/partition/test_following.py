"""What a follower does with an answer."""

from __future__ import annotations

import pytest
from tests.unit.partition.copies import IDENTITY, LIMITS, batch, fetch, fetched, leading, log_of

from replog.errors import Code, LogCorrupt, LogFull, ReplogError
from replog.log.memory import MemoryLog
from replog.messages import FetchedEntry
from replog.model import PartitionId
from replog.partition.following import Followed, Following, whole_below
from replog.ports import MemorySlice
from replog.records import RecordBatch


def following(log: MemoryLog) -> Following:
    return Following(2, 5, log, LIMITS)


def test_it_appends_as_stored_and_takes_the_high_watermark_up_to_its_end() -> None:
    log = log_of(("a", 1))
    follower = following(log)
    assert follower.take(fetched(5, 1, ("b", 1), ("c+d", 5), high_watermark=9), 0) == (Followed.APPENDED, 4)
    assert log.end_offset == 4
    assert log.epochs.entries() == ((1, 0), (5, 2))
    assert follower.agrees


@pytest.mark.parametrize("entry", [fetched(4, 1, ("b", 1)), fetched(6, 1, ("b", 1)), fetched(5, 0, ("x", 1)), fetched(5, 2, ("c", 1))])
def test_an_answer_to_another_question_has_no_effect(entry: FetchedEntry) -> None:
    log = log_of(("a", 1))
    assert following(log).take(entry, 1) == (Followed.DROPPED, 1)
    assert log.end_offset == 1


def test_divergence_comes_before_everything_else() -> None:
    log = log_of(("a", 1), ("b", 1))
    follower = following(log)
    entry = fetched(5, 2, ("z", 5), high_watermark=2, diverging_epoch=1, diverging_end=1)
    assert follower.take(entry, 0) == (Followed.TRUNCATED, 0)
    assert log.end_offset == 1
    assert not follower.agrees


def test_the_high_watermark_is_never_beyond_the_cut() -> None:
    log = log_of(("a", 1), ("b", 1))
    assert following(log).take(fetched(5, 2, diverging_epoch=1, diverging_end=1), 2) == (Followed.TRUNCATED, 1)


@pytest.mark.parametrize(
    ("log", "diverging", "end"),
    [
        (log_of(("a", 1), ("b", 1), ("c", 1)), (1, 2), 2),
        (log_of(("a", 1), ("b", 2), ("c", 2)), (1, 2), 1),  # it lacks the leader's epoch at that place
        (log_of(("a", 1), ("b", 3)), (2, 2), 1),  # the largest below: cut to its end, ask again
        (log_of(("a", 3), ("b", 3)), (2, 2), 0),  # nothing at or below
        (log_of(("a", 1)), (1, 9), 1),
    ],
)
def test_where_it_cuts(log: MemoryLog, diverging: tuple[int, int], end: int) -> None:
    following(log).take(fetched(5, log.end_offset, diverging_epoch=diverging[0], diverging_end=diverging[1]), 0)
    assert log.end_offset == end


def test_the_high_watermark_of_an_older_answer_does_not_move_it_back() -> None:
    assert following(log_of(("a", 1), ("b", 1))).take(fetched(5, 2, high_watermark=1), 2) == (Followed.KEPT_UP, 2)


@pytest.mark.parametrize("problem", [LogCorrupt("the disk does not say"), LogFull("no descriptors")])
def test_a_high_watermark_that_the_disk_cannot_place_now_is_asked_for_again(problem: ReplogError) -> None:
    """The leader tells what is new, once: what came while the disk could not be read would be known here when it appends next."""

    class Unreadable(MemoryLog):
        fails = True

        def group_floor(self, offset: int) -> int:
            if self.fails:
                raise problem
            return super().group_floor(offset)

    log = log_of(("a", 1), ("b", 1), kind=Unreadable)
    follower = following(log)
    assert follower.take(fetched(5, 2, high_watermark=2), 1) == (Followed.RETRY, 1)
    assert follower.take(fetched(5, 2, ("c", 5), high_watermark=2), 1) == (Followed.APPENDED, 1)  # is asked again at once
    assert whole_below(log, 2) == 0
    Unreadable.fails = False
    assert whole_below(log, 2) == 2
    assert follower.take(fetched(5, 3, high_watermark=3), 1) == (Followed.KEPT_UP, 3)


def test_the_leaders_start_trims_up_to_the_high_watermark() -> None:
    log = log_of(("a", 1), ("b", 1), ("c", 1))
    following(log).take(fetched(5, 3, high_watermark=2, start_offset=3), 0)
    assert log.start_offset == 2


@pytest.mark.parametrize(
    ("end", "watermark"),
    [(2, 0), (3, 1), (3, 3)],
)
def test_what_the_leader_has_trimmed_cannot_be_compared_and_goes(end: int, watermark: int) -> None:
    """The leader's table begins at its start: it says the logs part there, and cannot know that they part before."""
    log = log_of(*[("lost", 1)] * end)
    to = following(log)
    answer = fetched(5, end, diverging_epoch=1, diverging_end=2, start_offset=2, high_watermark=3)
    assert to.take(answer, watermark) == (Followed.TRUNCATED, 2)
    assert (log.start_offset, log.end_offset, log.last_epoch, to.agrees) == (2, 2, -1, False)
    assert to.take(fetched(5, 2, ("kept", 4), start_offset=2, high_watermark=3), 2) == (Followed.APPENDED, 3)
    assert (log.start_offset, log.end_offset) == (2, 3)


@pytest.mark.parametrize("trimmed", range(7))
@pytest.mark.parametrize("leaders", [(1,) * 6, (1, 1, 1, 3, 3, 3), (1, 1, 1, 1, 3, 3), (1, 1, 2, 2, 2, 3), (3,) * 6, (1, 1)])
@pytest.mark.parametrize("mine", [(1,) * 4, (1, 1, 2, 2), (1, 1, 1, 4)])
def test_a_copy_of_which_all_has_expired_finds_where_the_logs_part(mine: tuple[int, ...], leaders: tuple[int, ...], trimmed: int) -> None:
    """Every question gets further: in the end it has what the leader has, and nothing from in front of where they part."""
    leader = leading(log_of(*[("x", epoch) for epoch in leaders]), (1,), epoch=5)
    leader.log.trim_to(trimmed)
    log = log_of(*[("x", epoch) for epoch in mine])
    log.trim_to(len(mine))
    follower, is_prefix = Following(1, 5, log, LIMITS), mine == leaders[: len(mine)]
    for _ in range(8):
        error, diverging = fetch(leader, 2, log.end_offset, log.last_epoch)
        more = {} if diverging is None else {"diverging_epoch": diverging.epoch, "diverging_end": diverging.end}
        slices = [] if error or diverging else leader.read_as_leader(log.end_offset, 1 << 20)
        ends = {"start_offset": leader.log.start_offset, "end_offset": leader.log.end_offset}
        follower.take(FetchedEntry(IDENTITY, 5, log.end_offset, error, 0, slices=slices, **ends, **more), 0)
    assert follower.agrees
    assert log.end_offset == leader.log.end_offset
    assert log.start_offset <= max(leader.log.start_offset, len(mine) if is_prefix else 0)


@pytest.mark.parametrize("start", [0, 2])
def test_an_empty_copy_that_cannot_be_compared_begins_where_the_leader_does(start: int) -> None:
    log = log_of(start=5)
    to = following(log)
    assert to.take(fetched(5, 5, diverging_epoch=5, diverging_end=start, start_offset=start), 5) == (Followed.TRUNCATED, start)
    assert (log.start_offset, log.end_offset, to.agrees) == (start, start, False)


def test_the_leaders_start_goes_before_anything_is_appended() -> None:
    log = log_of(("kept", 1), ("kept", 1))
    seen: list[tuple[int, int]] = []
    append = log.append_many
    log.append_many = lambda batches: (seen.append((log.start_offset, log.end_offset)), append(batches))[1]  # type: ignore[method-assign]
    assert following(log).take(fetched(5, 2, ("kept", 4), start_offset=2, high_watermark=3), 0) == (Followed.APPENDED, 3)
    assert seen == [(2, 2)]
    assert (log.start_offset, log.end_offset) == (2, 3)


# P-16: out of range, three ways.
@pytest.mark.parametrize(
    ("start", "records", "answer", "outcome", "ends", "watermark"),
    [
        (0, 4, (0, 3), Followed.TRUNCATED, (0, 3), 2),  # (a) beyond the leader's end
        (0, 4, (6, 9), Followed.TRUNCATED, (6, 6), 6),  # (b) before the leader's start: everything restarts there
        (0, 4, (1, 9), Followed.RETRY, (0, 4), 2),  # (c) in range by now: keep everything
        (7, 0, (0, 3), Followed.TRUNCATED, (3, 3), 3),  # all of it lies beyond the leader's end
    ],
)
def test_out_of_range(
    start: int, records: int, answer: tuple[int, int], outcome: Followed, ends: tuple[int, int], watermark: int
) -> None:
    log = log_of(*[("x", 1)] * records, start=start)
    entry = FetchedEntry(IDENTITY, 5, log.end_offset, Code.OFFSET_OUT_OF_RANGE, 0, *answer)
    assert following(log).take(entry, max(2, start)) == (outcome, watermark)
    assert (log.start_offset, log.end_offset) == ends


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (Code.FENCED_LEADER_EPOCH, Followed.WAIT),
        (Code.UNKNOWN_LEADER_EPOCH, Followed.RETRY),
        (Code.NOT_LEADER_OR_FOLLOWER, Followed.RETRY),
        (Code.UNKNOWN_TOPIC_ID, Followed.RETRY),
        (Code.OFFSET_OUT_OF_RANGE, Followed.RETRY),  # without the leader's ends it proves nothing
        (Code.STORAGE_ERROR, Followed.RETRY),
    ],
)
def test_refusals(error: int, outcome: Followed) -> None:
    log = log_of(("a", 1))
    assert following(log).take(FetchedEntry(IDENTITY, 5, 1, error), 1) == (outcome, 1)
    assert log.end_offset == 1


def entry_with(data: bytes) -> FetchedEntry:
    return FetchedEntry(IDENTITY, 5, 1, high_watermark=9, slices=[MemorySlice(1, 2, data)])


GOOD = batch("b", 1, 1).to_bytes()


@pytest.mark.parametrize(
    "data",
    [
        GOOD[:-1],
        GOOD[:-1] + bytes([GOOD[-1] ^ 1]),
        batch("b", 2, 1).to_bytes(),  # not the offset that was asked for
        batch("b", 1, 6).to_bytes(),  # of an epoch that its leader does not have
        batch("b", 1, 0).to_bytes(),  # of an older epoch than what is before it
        b"",
    ],
)
def test_bytes_that_do_not_fit_are_not_appended(data: bytes) -> None:
    log = log_of(("a", 1))
    outcome, watermark = following(log).take(entry_with(data), 0)
    assert outcome in (Followed.RETRY, Followed.APPENDED)
    assert (log.end_offset, watermark) == (1, 1)


def test_what_came_whole_before_the_fault_is_kept() -> None:
    log = log_of(("a", 1))
    second = batch("c", 2, 1).to_bytes()
    assert following(log).take(entry_with(GOOD + second[:-3]), 0) == (Followed.RETRY, 2)
    assert log.end_offset == 2


def test_epochs_do_not_go_back_within_an_answer_either() -> None:
    log = log_of(("a", 1))
    data = batch("b", 1, 3).to_bytes() + batch("c", 2, 2).to_bytes()
    assert following(log).take(entry_with(data), 0) == (Followed.RETRY, 2)
    assert log.epochs.entries() == ((1, 0), (3, 1))


def answer_of(leader: MemoryLog, offset: int) -> FetchedEntry:
    """An answer within one process: the leader's own batches."""
    return FetchedEntry(leader.identity, 5, offset, slices=leader.read(offset, leader.end_offset, 1 << 20))


def test_batches_that_never_left_the_process_are_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    leader, log = log_of(("a", 1), ("b+c", 5)), log_of()
    monkeypatch.setattr(RecordBatch, "parse", lambda *_, **__: pytest.fail("verified when they came in"))
    assert following(log).take(answer_of(leader, 0), 0) == (Followed.APPENDED, 0)
    assert [(b.base_offset, b.count) for b in answer_of(leader, 0).slices[0].batches] == [(0, 1), (1, 2)]
    assert log.end_offset == 3
    assert log.epochs.entries() == leader.epochs.entries()


def test_they_must_belong_here_all_the_same() -> None:
    ahead = log_of(("a", 1), ("b", 6))
    log = log_of()
    assert following(log).take(answer_of(ahead, 0), 0) == (Followed.RETRY, 0)
    assert log.end_offset == 1, "an epoch above the leader's"
    elsewhere = answer_of(log_of(("a", 1), ("b", 1)), 0)
    elsewhere.offset = 1
    assert following(log).take(elsewhere, 0) == (Followed.RETRY, 0)
    assert log.end_offset == 1, "another offset"
    other = MemoryLog(PartitionId(b"other".ljust(16, b"\0"), 0, 0))
    stray = batch("x", 0, 1)
    stray.stamp(other.identity, 0, 1)
    other.append(stray)
    log = log_of()
    assert following(log).take(answer_of(other, 0), 0) == (Followed.RETRY, 0)
    assert log.end_offset == 0, "another log"
