"""Every kind of error on the smallest history that has it, and on nothing else that the checker could name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from replog.testing.history import History, check
from replog.testing.history.report import EXPLAINED_MAX, KINDS

K = "t@1/0"
Bad = Callable[[], History]


def send(history: History, values: str, base: int | None, process: str = "w", acks: str = "all") -> None:
    """Letters that were confirmed; each is a record."""
    history.invoke_send(process, K, list(values), acks=1 if acks == "1" else "all").ok(base)


def poll(
    history: History,
    position: int | None,
    values: str,
    high_watermark: int | None = None,
    process: str = "r",
    *,
    final: bool = False,
    epoch: int | None = None,
) -> None:
    """Letters that were read from a position on; a dot is an offset that was left out."""
    first = position or 0
    records = [(offset, value) for offset, value in enumerate(values, first) if value != "."]
    history.invoke_poll(process, K, position, final=final).ok(records, high_watermark, epoch)


def lost_write_replaced() -> History:
    history = History()
    send(history, "a", 0)
    send(history, "b", 1)
    history.invoke_send("w", K, ["c"]).info()
    poll(history, 0, "ac")
    return history


def lost_write_passed() -> History:
    history = History()
    send(history, "abc", 0)
    poll(history, 0, "a.c")
    return history


def inconsistent_reads() -> History:
    history = History()
    history.invoke_send("w", K, ["a"]).info()
    history.invoke_send("w", K, ["b"]).info()
    poll(history, 0, "a")
    poll(history, 0, "b", process="s")
    return history


def inconsistent_confirmation() -> History:
    history = History()
    send(history, "ab", 0, "v")
    send(history, "c", 1, "w")
    poll(history, 0, "abc")
    return history


def inconsistent_confirmations() -> History:
    history = History()
    one, other = history.invoke_send("v", K, ["a"]), history.invoke_send("w", K, ["b"])
    one.ok(3)
    other.ok(3)
    return history


def inconsistent_and_one_further() -> History:
    history = History()
    history.invoke_send("w", K, ["a", "b"]).info()
    poll(history, 3, "b", process="s")
    poll(history, 3, "ab")
    return history


def duplicate_read() -> History:
    history = History()
    send(history, "a", 0)
    poll(history, 0, "aa")
    return history


def duplicate_confirmed_elsewhere() -> History:
    history = History()
    send(history, "a", 0)
    send(history, "b", 4)
    poll(history, 0, "ab")
    return history


def aborted_read() -> History:
    history = History()
    send(history, "a", 0)
    history.invoke_send("w", K, ["b"]).fail()
    poll(history, 0, "ab")
    return history


def phantom_read() -> History:
    history = History()
    send(history, "a", 0)
    poll(history, 0, "ax")
    return history


def phantom_from_another_key() -> History:
    history = History()
    send(history, "a", 0)
    history.invoke_send("w", "t@2/0", ["b"]).ok(0)
    poll(history, 0, "ab")
    return history


def phantom_before_it_was_sent() -> History:
    history = History()
    poll(history, 5, "a")
    history.invoke_send("w", K, ["a"])
    return history


def nonmonotonic_between_polls() -> History:
    history = History()
    send(history, "abcd", 0)
    poll(history, 0, "abc")
    poll(history, 1, "bcd")
    return history


def nonmonotonic_inside() -> History:
    history = History()
    send(history, "abcd", 0)
    history.invoke_poll("r", K, 0).ok([(0, "a"), (2, "c"), (1, "b"), (3, "d")])
    return history


def nonmonotonic_start() -> History:
    history = History()
    send(history, "abcd", 0)
    history.invoke_poll("r", K, 2).ok([(1, "b"), (2, "c")])
    return history


def nonmonotonic_without_positions() -> History:
    history = History()
    send(history, "abcd", 0)
    history.invoke_poll("r", K, None).ok([(0, "a"), (1, "b")])
    history.invoke_poll("r", K, None).ok([(1, "b"), (2, "c")])
    return history


def skip_inside() -> History:
    history = History()
    send(history, "abc", 0)
    poll(history, 0, "abc")
    poll(history, 0, "a.c", process="s")
    return history


def skip_at_the_start() -> History:
    history = History()
    send(history, "abc", 0)
    poll(history, 0, "abc")
    poll(history, 0, "..c", process="s")
    return history


def skip_between_polls() -> History:
    history = History()
    send(history, "abcd", 0)
    poll(history, 0, "abcd")
    poll(history, 0, "a", process="s")
    poll(history, 3, "d", process="s")
    return history


def nonmonotonic_send() -> History:
    history = History()
    send(history, "a", 2)
    send(history, "b", 1)
    return history


def nonmonotonic_send_under_way_together() -> History:
    history = History()
    one, other = history.invoke_send("w", K, ["a"]), history.invoke_send("w", K, ["b"])
    one.ok(1)
    other.ok(0)
    return history


def nonmonotonic_within_a_send() -> History:
    history = History()
    history.invoke_send("w", K, ["a", "b"]).info()
    poll(history, 0, "ba")
    return history


def nonmonotonic_as_read() -> History:
    history = History()
    send(history, "a", 1, acks="1")
    send(history, "b", None)
    poll(history, 0, "ba")
    return history


def unseen() -> History:
    history = History()
    send(history, "abc", 0)
    poll(history, 0, "ab", 2, final=True)
    return history


def unseen_without_an_offset() -> History:
    history = History()
    send(history, "a", None)
    poll(history, 0, "", final=True)
    return history


def unseen_although_it_was_read() -> History:
    history = History()
    history.invoke_send("w", K, ["a"]).info()
    history.invoke_send("w", K, ["b"]).info()
    poll(history, 0, "ab")
    poll(history, 0, "a", process="s", final=True)
    poll(history, 1, "", process="s", final=True)
    return history


def gap_inside() -> History:
    history = History()
    send(history, "a", 0)
    send(history, "b", 2)
    poll(history, 0, "a.b")
    return history


def gap_between_polls() -> History:
    history = History()
    send(history, "ab", 0)
    history.invoke_send("w", K, ["c"]).info()
    poll(history, 0, "ab")
    poll(history, 4, "c")
    return history


def watermark_of_another_reader() -> History:
    history = History()
    poll(history, 0, "", 5)
    poll(history, 0, "", 4, process="s")
    return history


def watermark_within_an_epoch() -> History:
    history = History(stale_reads=True)
    poll(history, 0, "", 5, epoch=3)
    poll(history, 0, "", 9, epoch=4)
    poll(history, 0, "", 4, process="s", epoch=3)
    return history


def watermark_of_a_new_leader() -> History:
    history = History()
    poll(history, 0, "", 5, epoch=3)
    poll(history, 0, "", 4, process="s", epoch=4)
    return history


def watermark_of_one_reader() -> History:
    history = History(stale_reads=True)
    poll(history, 0, "", 5)
    poll(history, 0, "", 4)
    return history


def uncommitted_read() -> History:
    history = History()
    send(history, "ab", 0)
    poll(history, 0, "ab", 1)
    return history


def realtime_order() -> History:
    history = History()
    send(history, "a", 2, "v")
    send(history, "b", 1, "w")
    return history


def realtime_order_by_reading() -> History:
    history = History()
    history.invoke_send("v", K, ["a"]).info()
    poll(history, 2, "a")
    send(history, "b", 1, "w")
    return history


def realtime_order_of_a_first_copy() -> History:
    history = History(idempotent=False)
    send(history, "a", 7, "v")
    history.invoke_send("w", K, ["b"]).info()
    poll(history, 9, "b")
    poll(history, 5, "b", process="s")
    return history


def spurious_zero_read_elsewhere() -> History:
    history = History()
    send(history, "a", 0)
    send(history, "b", 0)
    poll(history, 0, "ab")
    return history


def spurious_zero_after_others() -> History:
    history = History()
    send(history, "a", 5)
    send(history, "b", 0)
    return history


def spurious_zero_after_reading() -> History:
    history = History()
    history.invoke_send("v", K, ["a"]).info()
    poll(history, 3, "a")
    send(history, "b", 0)
    return history


def spurious_minus_one() -> History:
    history = History()
    send(history, "a", -1, acks="1")
    return history


BAD: list[tuple[str, Bad]] = [
    ("lost-write", lost_write_replaced),
    ("lost-write", lost_write_passed),
    ("inconsistent-offsets", inconsistent_reads),
    ("inconsistent-offsets", inconsistent_confirmation),
    ("inconsistent-offsets", inconsistent_confirmations),
    ("inconsistent-offsets", inconsistent_and_one_further),
    ("duplicate", duplicate_read),
    ("duplicate", duplicate_confirmed_elsewhere),
    ("aborted-read", aborted_read),
    ("phantom-read", phantom_read),
    ("phantom-read", phantom_from_another_key),
    ("phantom-read", phantom_before_it_was_sent),
    ("nonmonotonic-poll", nonmonotonic_between_polls),
    ("nonmonotonic-poll", nonmonotonic_inside),
    ("nonmonotonic-poll", nonmonotonic_start),
    ("nonmonotonic-poll", nonmonotonic_without_positions),
    ("poll-skip", skip_inside),
    ("poll-skip", skip_at_the_start),
    ("poll-skip", skip_between_polls),
    ("nonmonotonic-send", nonmonotonic_send),
    ("nonmonotonic-send", nonmonotonic_send_under_way_together),
    ("nonmonotonic-send", nonmonotonic_within_a_send),
    ("nonmonotonic-send", nonmonotonic_as_read),
    ("unseen", unseen),
    ("unseen", unseen_without_an_offset),
    ("unseen", unseen_although_it_was_read),
    ("offset-gap", gap_inside),
    ("offset-gap", gap_between_polls),
    ("hw-regress", watermark_of_another_reader),
    ("hw-regress", watermark_within_an_epoch),
    ("hw-regress", watermark_of_a_new_leader),
    ("hw-regress", watermark_of_one_reader),
    ("uncommitted-read", uncommitted_read),
    ("realtime-order", realtime_order),
    ("realtime-order", realtime_order_by_reading),
    ("realtime-order", realtime_order_of_a_first_copy),
    ("spurious-zero", spurious_zero_read_elsewhere),
    ("spurious-zero", spurious_zero_after_others),
    ("spurious-zero", spurious_zero_after_reading),
    ("spurious-zero", spurious_minus_one),
]


@pytest.mark.parametrize(("kind", "bad"), BAD, ids=[bad.__name__ for _, bad in BAD])
def test_is_found_as_what_it_is(kind: str, bad: Bad) -> None:
    report = check(bad())
    assert set(report.counts) == {kind}, str(report)
    assert K in str(report)
    assert not report.ok


def test_every_kind_has_a_bad_history() -> None:
    assert {kind for kind, _ in BAD} == set(KINDS)
    assert len(KINDS) == 14


def late_ack_of_acks_1() -> History:
    history = History()
    send(history, "a", 0, acks="1")
    send(history, "b", 0)
    poll(history, 0, "b", 1, final=True)
    return history


def earlier_attempt_of_acks_1() -> History:
    """An earlier leader had stored it without an answer, and leads again when the one that confirmed it was lost."""
    history = History()
    history.invoke_send("v", K, ["a"]).info()
    send(history, "b", 0, acks="1")
    poll(history, 0, "ab", 2, final=True)
    return history


def second_copies() -> History:
    history = History(idempotent=False)
    send(history, "a", 0)
    poll(history, 0, "aa")
    return history


def under_way_together() -> History:
    history = History(idempotent=False)
    one, other = history.invoke_send("w", K, ["a"]), history.invoke_send("w", K, ["b"])
    one.ok(1)
    other.ok(0)
    return history


def reader_of_the_end() -> History:
    history = History()
    send(history, "abcd", 0)
    poll(history, 3, "d")
    return history


def reader_that_seeks() -> History:
    history = History()
    send(history, "abcd", 0)
    poll(history, 3, "d")
    history.assign("r", K, 1)
    poll(history, 1, "b")
    return history


def reader_that_crashes() -> History:
    history = History()
    send(history, "abcd", 0)
    poll(history, 3, "d")
    history.crash("r")
    poll(history, 1, "b")
    return history


def reader_after_a_timeout() -> History:
    history = History()
    send(history, "abcd", 0)
    poll(history, 0, "a")
    history.invoke_poll("r", K, 1).info()
    poll(history, 1, "bcd")
    return history


def reads_under_way_together() -> History:
    history = History()
    send(history, "abcd", 0)
    one, other = history.invoke_poll("r", K, 0), history.invoke_poll("r", K, 2)
    other.ok([(2, "c"), (3, "d")])
    one.ok([(0, "a"), (1, "b")])
    poll(history, 4, "")
    return history


def reads_of_the_same_under_way_together() -> History:
    history = History()
    send(history, "abcd", 0)
    poll(history, 0, "")
    one, other = history.invoke_poll("r", K, 0), history.invoke_poll("r", K, 0)
    one.ok([(0, "a"), (1, "b")])
    other.ok([(0, "a")])
    poll(history, 2, "cd")
    return history


def second_copy_of_acks_1() -> History:
    history = History(idempotent=False)
    send(history, "a", 5, "v", acks="1")
    send(history, "b", 8, "w")
    poll(history, 8, "ba")
    return history


def retention() -> History:
    history = History()
    send(history, "abcd", 0)
    poll(history, 0, "a")
    history.trim(K, 3)
    poll(history, 3, "d")
    poll(history, 3, "d", 4, process="s", final=True)
    return history


def final_polls_that_stop_early() -> History:
    history = History()
    send(history, "abcd", 0)
    poll(history, 0, "ab", 4, final=True)
    return history


def confirmed_after_the_final_polls() -> History:
    history = History()
    late = history.invoke_send("w", K, ["a"])
    poll(history, 0, "", 0, final=True)
    late.ok(0)
    return history


def deposed_leader() -> History:
    history = History()
    poll(history, 0, "", 5, epoch=4)
    poll(history, 0, "", 4, process="s", epoch=3)
    return history


def new_leader() -> History:
    history = History(stale_reads=True)
    poll(history, 0, "", 5, epoch=3)
    poll(history, 0, "", 4, process="s", epoch=4)
    return history


def lost_with_its_leader() -> History:
    """Confirmed by one leader alone: the next one begins below, and nobody ever read the first."""
    history = History()
    history.invoke_send("w", K, ["a"]).ok(0)
    history.invoke_send("w", K, ["b"], acks=1).ok(5)
    history.invoke_send("w", K, ["c"]).ok(1)
    poll(history, 0, "ac", 2, final=True)
    return history


def lost_and_stored_again() -> History:
    """As before, and a copy of what was lost, which the network had held up, arrives after all."""
    history = History()
    history.invoke_send("w", K, ["a"]).ok(0)
    history.invoke_send("v", K, ["b"], acks=1).ok(1)
    history.invoke_send("w", K, ["c"]).ok(1)
    poll(history, 0, "acb", 3, final=True)
    return history


def concurrent_sends() -> History:
    history = History()
    one, other = history.invoke_send("v", K, ["a"]), history.invoke_send("w", K, ["b"])
    one.ok(1)
    other.ok(0)
    return history


def late_effect_of_a_timeout() -> History:
    history = History()
    history.invoke_send("w", K, ["a"]).info()
    send(history, "b", 0)
    poll(history, 0, "ba")
    return history


def others_in_between() -> History:
    history = History()
    history.invoke_send("v", K, ["a", "b"]).info()
    history.invoke_send("w", K, ["c"]).info()
    poll(history, 0, "acb")
    return history


GOOD: list[tuple[Bad, dict[str, int]]] = [
    (late_ack_of_acks_1, {}),
    (earlier_attempt_of_acks_1, {}),
    (second_copies, {"duplicate": 1}),
    (under_way_together, {"unread": 2}),
    (reader_of_the_end, {"unread": 3}),
    (reader_that_seeks, {"unread": 2}),
    (reader_that_crashes, {"unread": 2}),
    (reader_after_a_timeout, {}),
    (reads_under_way_together, {}),
    (reads_of_the_same_under_way_together, {}),
    (second_copy_of_acks_1, {}),
    (retention, {"unread": 2}),
    (final_polls_that_stop_early, {"unread": 2, "uncovered": 1}),
    (confirmed_after_the_final_polls, {"unread": 1}),
    (deposed_leader, {}),
    (new_leader, {}),
    (lost_with_its_leader, {}),
    (lost_and_stored_again, {}),
    (concurrent_sends, {"unread": 2}),
    (late_effect_of_a_timeout, {}),
    (others_in_between, {"int-send-skip": 1}),
]


@pytest.mark.parametrize(("good", "notes"), GOOD, ids=[good.__name__ for good, _ in GOOD])
def test_what_is_legal_is_no_error(good: Bad, notes: dict[str, int]) -> None:
    report = check(good())
    assert report.ok, str(report)
    assert report.notes == notes


def test_retention_excuses_only_what_came_after_it() -> None:
    history = History()
    send(history, "abcd", 0)
    poll(history, 0, "abcd")
    poll(history, 0, "a", process="s")
    poll(history, 3, "d", process="s")
    history.trim(K, 3)
    assert check(history).counts == {"poll-skip": 1}


@pytest.mark.parametrize(("controls", "gaps"), [((), 1), ((1,), 1), ((1, 2), 0), ((0, 1, 2, 3), 0), ((2, 3), 1)])
def test_where_a_broker_has_written_there_is_no_record(controls: tuple[int, ...], gaps: int, tmp_path: Path) -> None:
    history = History()
    send(history, "a", 0)
    send(history, "b", 3)
    for offset in controls:
        history.control(K, offset)
    history.control("another", 1)
    history.control("another", 2)
    history.invoke_poll("c", K, 0, final=True).ok([(0, "a"), (3, "b")], 4)
    history.to_jsonl(tmp_path / "history")
    for one in (history, History.from_jsonl(tmp_path / "history")):
        assert check(one).counts.get("offset-gap", 0) == gaps


def test_a_report_names_offsets_processes_and_times() -> None:
    now = iter(range(100, 200, 10))
    history = History(clock=lambda: next(now))
    send(history, "ab", 0)
    poll(history, 0, "a.")
    poll(history, 2, "")
    report = check(history)
    text = "w was told at 100-110 that 'b' is at offset 1; r went from offset 1 to 2 at 140-150, and nobody ever read it"
    assert [str(error) for error in report.errors] == [f"lost-write {K}: {text}"]
    assert str(report).splitlines()[0] == "3 operations: 1 errors"
    assert report.to_json()["counts"] == {"lost-write": 1}


def test_many_errors_are_counted_and_some_explained() -> None:
    history = History()
    for number in range(EXPLAINED_MAX + 5):
        history.invoke_poll(f"r{number}", K, number).ok([(number, f"nobody's {number}")])
    report = check(history)
    assert report.counts == {"phantom-read": EXPLAINED_MAX + 5}
    assert len(report.errors) == EXPLAINED_MAX
    assert "and 5 more" in str(report)
