"""Histories of logs that an election has parted: who is found to have read which line, and what is held against that."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve
from tests.simulation.checks.situations import UNCLEAN, copy_of, entry, holds, ledger, parted, violates

from replog.testing.history.checker import check
from replog.testing.history.recorder import History
from replog.testing.simulator.forks import part
from replog.testing.simulator.ledger import NEVER_SEEN
from replog.testing.simulator.lineages import split

pytestmark = pytest.mark.simulation

KEY = "t/0"


def told(history: History, process: str, values: list[str], base: int) -> None:
    send = history.invoke_send(process, KEY, values)
    send.ok(base)


def read(history: History, process: str, first: int, values: list[str], *, watermark: int, final: bool = False) -> None:
    poll = history.invoke_poll(process, KEY, first, final=final)
    poll.ok(list(enumerate(values, first)), watermark)


def judged(second: str, *, assigned: bool, lost: str = "b") -> Any:
    """"b" was confirmed and read at 1, an election lost it, and "c" was stored there; who had read "b" goes on as it is told."""
    history, (book, _) = History(stale_reads=True), parted(held=1, end=2)
    told(history, "w", ["a"], 0)
    told(history, "w", ["b"], 1)
    read(history, "r", 0, ["a", "b"], watermark=2)
    told(history, "x", ["c", "d"], 1)
    if assigned:
        history.assign("r", KEY, 1)
    read(history, "r", 1 if assigned else 2, ["c", "d"] if assigned else ["d"], watermark=3)
    read(history, "last", 0, ["a", second, "d"], watermark=3, final=True)
    book.entries = [entry(0), entry(7, epoch=4), entry(8, epoch=4)]
    split(history, KEY, book, [{1: lost.encode()}], {1: b"c", 2: b"d"})
    return check(history)


def test_a_reader_is_moved_to_another_log_and_not_told() -> None:
    holds(judged, "c", assigned=True)
    assert judged("c", assigned=True).ok
    violates("history", judged, "c", assigned=False)


def test_where_a_leader_said_something_again_nobody_can_have_read_a_record() -> None:
    """Else the read of a record that an election lost would be one of the log of now, where it is passed over by everybody."""
    history, (book, _) = History(stale_reads=True), parted(held=1, end=2)
    told(history, "w", ["a"], 0)
    told(history, "w", ["b"], 1)
    read(history, "r", 0, ["a", "b"], watermark=2)
    told(history, "x", ["d"], 2)
    history.control(KEY, 1)
    last = history.invoke_poll("last", KEY, 0, final=True)
    last.ok([(0, "a"), (2, "d")], 3)
    book.entries = [entry(0), entry(7, epoch=4)._replace(is_control=True), entry(8, epoch=4)]
    split(history, KEY, book, [{1: b"b"}], {0: b"a", 2: b"d"})
    assert check(history).ok


@pytest.mark.parametrize(("is_control", "counts"), [(True, {}), (False, {"poll-skip": 1})])
def test_who_went_over_what_was_said_again_has_not_passed_over_a_record_of_now(is_control: bool, counts: dict[str, int]) -> None:
    """An election lost what was said again at 1, and "c" was stored there; where a record was lost the reader should have read that."""
    history, (book, _) = History(stale_reads=True), parted(held=1, end=2)
    told(history, "w", ["a"], 0)
    read(history, "r", 0, ["a"], watermark=2)
    history.invoke_poll("r", KEY, 1, final=False).ok([], 2)
    history.invoke_poll("r", KEY, 2, final=False).ok([], 2)
    history.control(KEY, 1)
    told(history, "x", ["c"], 1)
    read(history, "last", 0, ["a", "c"], watermark=2, final=True)
    (fork,) = book.forks
    fork.entries = [fork.entries[0]._replace(is_control=is_control)]
    book.entries = [entry(0), entry(7, epoch=4)]
    split(history, KEY, book, [{}], {1: b"c"})
    assert check(history).counts == counts


@pytest.mark.parametrize(("watermark", "epoch"), [(9, None), (2, 4)])
def test_who_is_told_of_the_log_of_now_has_passed_over_its_record(watermark: int, epoch: int | None) -> None:
    history, (book, _) = History(stale_reads=True), parted(held=1, end=2)
    told(history, "w", ["a"], 0)
    read(history, "r", 0, ["a"], watermark=2)
    history.control(KEY, 1)
    told(history, "x", ["c"], 1)
    for position in (1, 2):
        history.invoke_poll("r", KEY, position, final=False).ok([], watermark, epoch)
    read(history, "last", 0, ["a", "c"], watermark=2, final=True)
    (fork,) = book.forks
    fork.entries = [fork.entries[0]._replace(is_control=True)]
    book.entries = [entry(0), entry(7, epoch=4)]
    split(history, KEY, book, [{}], {1: b"c"})
    assert check(history).counts == {"poll-skip": 1}


def test_a_log_may_part_within_what_was_confirmed_at_once() -> None:
    history, (book, _) = History(stale_reads=True), parted(held=1, end=2)
    told(history, "w", ["a", "b"], 0)
    told(history, "x", ["c"], 1)
    read(history, "last", 0, ["a", "c"], watermark=2, final=True)
    book.entries = [entry(0), entry(7, epoch=4)]
    split(history, KEY, book, [{1: b"b"}], {1: b"c"})
    assert check(history).ok


def test_what_is_confirmed_and_not_forgiven_is_missed() -> None:
    history, (book, _) = History(stale_reads=True), parted(held=1, end=2)
    told(history, "w", ["a"], 0)
    told(history, "w", ["b"], 1)
    told(history, "x", ["c"], 1)
    read(history, "last", 0, ["a"], watermark=1, final=True)
    book.entries = [entry(0)]
    split(history, KEY, book, [{1: b"b"}], {})
    assert check(history).counts == {"unseen": 1}  # "c", which was confirmed by the new leader


def test_a_history_of_a_log_that_never_parted_stays_as_it_is() -> None:
    history = History()
    told(history, "w", ["a"], 0)
    split(history, KEY, ledger(), [], {})
    assert [(send.key, send.outcome) for send in history.sends] == [(KEY, "ok")]


def answered(history: History, process: str, position: int, records: list[tuple[int, str]], watermark: int = 2, epoch: int = 3) -> None:
    history.invoke_poll(process, KEY, position).ok(records, watermark, epoch)


@pytest.mark.parametrize(("epoch", "counts"), [(3, {}), (4, {"lost-write": 1})])
def test_a_leadership_tells_of_its_own_line(epoch: int, counts: dict[str, int]) -> None:
    """"b", which the election lost, is shown by the old leader, as it may be, or by the new one."""
    history, (book, _) = History(stale_reads=True), parted(held=1, end=2)
    for process, value, base in (("w", "a", 0), ("w", "b", 1), ("x", "c", 1)):
        told(history, process, [value], base)
    answered(history, "r", 0, [(0, "a"), (1, "b")], epoch=epoch)
    read(history, "last", 0, ["a", "c"], watermark=2, final=True)
    book.entries = [entry(0), entry(7, epoch=4)]
    if epoch == 3:
        split(history, KEY, book, [{1: b"b"}], {1: b"c"})
        assert check(history).counts == counts
    else:
        violates("history", split, history, KEY, book, [{1: b"b"}], {1: b"c"})


@pytest.mark.parametrize("later", [False, True])
def test_who_is_told_by_one_line_has_skipped_its_record_whatever_is_in_another(later: bool) -> None:
    """In the line of epochs 4 and 5 nobody finds anything at 1; who is answered in epoch 3 is to find "b" there."""
    history, (book, _) = History(stale_reads=True), parted(held=1, end=2)
    for process, value, base in (("w", "a", 0), ("w", "b", 1), ("x", "c", 1)):
        told(history, process, [value], base)
    answered(history, "seer", 0, [(0, "a"), (1, "b")])
    answered(history, "r", 0, [(0, "a")])
    answered(history, "r", 2, [])
    lost: list[dict[int, bytes | None]] = [{1: b"b"}]
    if later:
        history.control(KEY, 1)
        book.entries = [entry(0), entry(7, epoch=4)._replace(is_control=True)]
        book.state = evolve(UNCLEAN, leader=2, leader_epoch=6, isr=(2,))
        part(book, copy_of(2, [entry(0)]), [])
        lost.append({})
    read(history, "last", 0, ["a", "c"], watermark=2, final=True)
    book.entries = [entry(0), entry(8, epoch=6 if later else 4)]
    split(history, KEY, book, lost, {1: b"c"})
    assert check(history).counts == {"poll-skip": 1}


@pytest.mark.parametrize("is_known", [True, False])
def test_a_reader_follows_the_line_that_has_what_it_has_read(is_known: bool) -> None:
    """What is in the place of "b" now was trimmed in the event in which it was committed: it could be anything, "b" for one."""
    history, (book, _) = History(stale_reads=True), parted(held=1, end=2)
    told(history, "w", ["a"], 0)
    told(history, "w", ["b"], 1)
    read(history, "r", 0, ["a", "b"], watermark=2)
    history.trim(KEY, 2)
    told(history, "x", ["c"], 1)
    told(history, "x", ["d"], 2)
    read(history, "last", 2, ["d"], watermark=3, final=True)
    book.entries = [entry(0), entry(7, epoch=4) if is_known else NEVER_SEEN, entry(8, epoch=4)]
    split(history, KEY, book, [{1: b"b"}], {1: b"c", 2: b"d"} if is_known else {2: b"d"})
    assert check(history).ok


def test_a_reader_may_have_been_given_what_a_damaged_disk_hides() -> None:
    history, (book, _) = History(stale_reads=True), parted(held=1, end=2)
    for process, value, base in (("w", "a", 0), ("w", "b", 1), ("x", "c", 1), ("x", "d", 2)):
        told(history, process, [value], base)
    read(history, "last", 0, ["a", "c", "d"], watermark=3, final=True)
    book.entries, book.hidden = [entry(0), entry(7, epoch=4)], 3
    split(history, KEY, book, [{1: b"b"}], {1: b"c"})
    assert check(history).ok
    book.hidden = 0
    violates("history", split, history, KEY, book, [{1: b"b"}], {1: b"c"})


@pytest.mark.parametrize("lost", [[], ["b"]])
def test_whoever_reads_a_fork_finds_what_all_lines_have_in_its_order(lost: list[str]) -> None:
    history, (book, _) = History(stale_reads=True), parted(held=3, end=4)
    for process, value, base in (("w", "a", 0), ("w", "a1", 1), ("w", "a2", 2), ("w", "b", 3), ("x", "c", 3)):
        told(history, process, [value], base)
    read(history, "r", 0, ["a2", "a", "a1", *lost], watermark=4)
    read(history, "last", 0, ["a", "a1", "a2", "c"], watermark=4, final=True)
    book.entries = [entry(0), entry(1), entry(2), entry(7, epoch=4)]
    split(history, KEY, book, [{3: b"b"}], {3: b"c"})
    assert check(history).counts["inconsistent-offsets"] >= 2


@pytest.mark.parametrize(
    ("how", "is_control", "counts"),
    [
        ("within an answer", True, {}),
        ("beside an answer that was lost", True, {}),
        ("and reads nothing more", True, {}),
        ("and reads nothing more", False, {"poll-skip": 1}),
    ],
)
def test_who_goes_over_what_was_said_again_has_skipped_nothing(how: str, is_control: bool, counts: dict[str, int]) -> None:
    """At 1 the line of "b" has what nobody reads; that of "c" and "d" has a record there."""
    history, (book, _) = History(stale_reads=True), parted(held=1, end=3)
    told(history, "w", ["a"], 0)
    told(history, "w", ["b"], 2)
    told(history, "x", ["c", "d"], 1)
    within = how == "within an answer"
    history.invoke_poll("r", KEY, 0).ok([(0, "a"), (2, "b")] if within else [(0, "a")])
    if not within:
        history.invoke_poll("r", KEY, 1).info()
        history.invoke_poll("r", KEY, 2).ok([(2, "b")] if how == "beside an answer that was lost" else [])
    history.control(KEY, 1)
    read(history, "last", 0, ["a", "c", "d"], watermark=3, final=True)
    (fork,) = book.forks
    fork.entries = [fork.entries[0]._replace(is_control=is_control), fork.entries[1]]
    book.entries = [entry(0), entry(7, epoch=4), entry(8, epoch=4)]
    split(history, KEY, book, [{2: b"b"}], {1: b"c", 2: b"d"})
    assert check(history).counts == counts


@pytest.mark.parametrize("is_hidden", [False, True])
def test_who_goes_over_what_a_disk_hid_has_skipped_nothing(is_hidden: bool) -> None:
    history, (book, _) = History(stale_reads=True), parted(held=1, end=2)
    told(history, "w", ["a"], 0)
    told(history, "x", ["c"], 1)
    history.control(KEY, 1)
    read(history, "r", 0, ["a"], watermark=2)
    history.invoke_poll("r", KEY, 2).ok([], 2)
    read(history, "last", 0, ["a", "c"], watermark=2, final=True)
    (fork,) = book.forks
    fork.entries = [NEVER_SEEN] if is_hidden else fork.entries
    book.entries = [entry(0), entry(7, epoch=4)]
    split(history, KEY, book, [{}], {1: b"c"})
    assert check(history).counts == ({} if is_hidden else {"poll-skip": 1})


@pytest.mark.parametrize("is_control", [True, False])
def test_a_fork_has_nothing_to_read_where_it_says_so_itself(is_control: bool) -> None:
    """And not where another line does: its record there, which nobody was told of, is to be read by who reads on behind it."""
    history, (book, _) = History(stale_reads=True), parted(held=1, end=3)
    told(history, "w", ["a"], 0)
    history.invoke_send("w", KEY, ["b"]).info()
    told(history, "x", ["e"], 2)
    history.control(KEY, 1)
    history.invoke_poll("r", KEY, 0).ok([(0, "a"), (2, "e")], 3, 3)
    read(history, "last", 0, ["a"], watermark=2, final=True)
    (fork,) = book.forks
    fork.entries = [fork.entries[0]._replace(is_control=is_control), fork.entries[1]]
    book.entries = [entry(0), entry(7, epoch=4)._replace(is_control=True)]
    split(history, KEY, book, [{2: b"e"} if is_control else {1: b"b", 2: b"e"}], {})
    assert check(history).counts == ({} if is_control else {"offset-gap": 1})


@pytest.mark.parametrize("is_control", [True, False])
def test_who_goes_over_something_within_an_answer_is_not_in_a_line_that_has_a_record_there(is_control: bool) -> None:
    """What it read behind that nobody else knows."""
    history, (book, _) = History(stale_reads=True), parted(held=1, end=3)
    told(history, "w", ["a"], 0)
    history.invoke_send("w", KEY, ["b"]).info()
    told(history, "x", ["c"], 1)
    history.invoke_poll("r", KEY, 0).ok([(0, "a"), (2, "b")])
    history.control(KEY, 1)
    read(history, "last", 0, ["a", "c"], watermark=2, final=True)
    (fork,) = book.forks
    fork.entries = [fork.entries[0]._replace(is_control=is_control), NEVER_SEEN]
    book.entries = [entry(0), entry(7, epoch=4), NEVER_SEEN]
    split(history, KEY, book, [{}], {1: b"c"})
    assert (check(history).counts == {}) is is_control
