"""No false alarm on random good histories, and no mutation of one that goes unnoticed."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable

import pytest

from replog.testing.history import History, check
from replog.testing.history.events import Poll
from replog.testing.history.samples import good_history, long_history

SEEDS = range(300)


@pytest.fixture(scope="module")
def histories() -> list[History]:
    """Some hundred, made once. Not to be changed."""
    return [good_history(seed) for seed in SEEDS]


def test_good_histories_pass(histories: list[History]) -> None:
    notes: dict[str, int] = {}
    for seed, history in enumerate(histories):
        report = check(history)
        assert report.ok, f"seed {seed}: {report}"
        for note, number in report.notes.items():
            notes[note] = notes.get(note, 0) + number
    # That they passed means something only if the hard cases are in them.
    assert notes["duplicate"] > 1_000
    assert notes["unread"] > 1_000
    assert notes["int-send-skip"] > 0


def test_good_histories_hold_what_is_hard(histories: list[History]) -> None:
    sends = [send for history in histories for send in history.sends]
    polls = [poll for history in histories for poll in history.polls]
    assert {(send.acks, send.outcome) for send in sends} >= {
        (acks, outcome) for acks in ("all", 1) for outcome in ("ok", "info", "fail", "open")
    }
    assert {send.outcome for send in sends if send.acks == 0} == {"ok"}
    assert {poll.outcome for poll in polls} == {"ok", "info", "fail", "open"}
    assert {mark.f for history in histories for mark in history.marks} == {"assign", "crash", "trim"}
    values = {(number, value) for number, history in enumerate(histories) for poll in history.polls for _, value in poll.records}
    late = [(n, send) for n, history in enumerate(histories) for send in history.sends if send.outcome == "info"]
    assert sum((n, send.values[0]) in values for n, send in late) > 20
    assert sum((n, send.values[0]) not in values for n, send in late) > 20
    deposed = 0
    for history in histories:
        newest: dict[str, int] = {}
        for poll in sorted((p for p in history.polls if p.epoch is not None), key=lambda p: p.completed):
            deposed += (poll.epoch or 0) < newest.get(poll.key, 0)
            newest[poll.key] = max(newest.get(poll.key, 0), poll.epoch or 0)
    assert deposed > 100


def test_the_same_seed_gives_the_same_history() -> None:
    def told(history: History) -> list[object]:
        return [(call.invoked, call.completed, call.process, call.key, call.outcome) for call in (*history.sends, *history.polls)]

    assert told(good_history(7)) == told(good_history(7)) != told(good_history(8))


def test_a_long_history_passes() -> None:
    report = check(long_history(2_000))
    assert (report.operations, report.counts, report.notes) == (4_000, {}, {})


Mutation = Callable[[History, random.Random], set[str] | None]


def _some(history: History, chance: random.Random, least: int, *, again: bool = False) -> Poll | None:
    """An answer with at least so many records; `again`: with one that is read elsewhere as well."""
    times: dict[tuple[str, int], int] = {}
    for poll in history.polls:
        for offset, _ in poll.records:
            times[poll.key, offset] = times.get((poll.key, offset), 0) + 1
    found = [
        poll
        for poll in history.polls
        if len(poll.records) >= least and (not again or all(times[poll.key, offset] > 1 for offset, _ in poll.records))
    ]
    return chance.choice(found) if found else None


def swap(history: History, chance: random.Random) -> set[str] | None:
    """Two records of one answer change places, offsets and all."""
    poll = _some(history, chance, 2)
    if poll is None:
        return None
    records = list(poll.records)
    records[0], records[1] = records[1], records[0]
    poll.records = records
    return {"nonmonotonic-poll"}


def swap_values(history: History, chance: random.Random) -> set[str] | None:
    """One reader finds two values at each other's offsets."""
    poll = _some(history, chance, 2, again=True)
    if poll is None:
        return None
    (one, a), (other, b), *rest = poll.records
    if a == b:
        return None
    poll.records = [(one, b), (other, a), *rest]
    return {"inconsistent-offsets"}


def drop(history: History, chance: random.Random) -> set[str] | None:
    """A record in the middle of an answer is missing."""
    poll = _some(history, chance, 3)
    if poll is None:
        return None
    poll.records = [poll.records[0], *poll.records[2:]]
    return {"poll-skip", "lost-write", "offset-gap"}


def duplicate(history: History, chance: random.Random) -> set[str] | None:
    """A record is there once more, behind everything else."""
    poll = _some(history, chance, 1)
    if poll is None or not history.settings.idempotent:
        return None
    end = max(offset for other in history.polls if other.key == poll.key for offset, _ in other.records) + 1
    history.invoke_poll("late", poll.key, end).ok([(end, poll.records[0][1])])
    return {"duplicate"}


def rewrite(history: History, chance: random.Random) -> set[str] | None:
    """A record changes in one answer."""
    poll = _some(history, chance, 1)
    if poll is None:
        return None
    poll.records = [(poll.records[0][0], "rewritten"), *poll.records[1:]]
    return {"phantom-read", "inconsistent-offsets"}


def fail(history: History, chance: random.Random) -> set[str] | None:
    """A send whose records were read is said to have failed."""
    read = {(poll.key, value) for poll in history.polls for _, value in poll.records}
    sends = [send for send in history.sends if (send.key, send.values[0]) in read]
    if not sends:
        return None
    chance.choice(sends).outcome = "fail"
    return {"aborted-read"}


def forget(history: History, chance: random.Random) -> set[str] | None:
    """The log of a key is empty in the end."""
    poll = _some(history, chance, 1)
    trimmed = {mark.key for mark in history.marks if mark.f == "trim"}
    if poll is None or poll.key in trimmed or all(p.final for p in history.polls if p.key == poll.key and p.records):
        return None
    history.polls = [other for other in history.polls if other.key != poll.key or not other.final]
    history.invoke_poll("last of all", poll.key, 0, final=True).ok([], None)
    return {"unseen"}


def lower(history: History, chance: random.Random) -> set[str] | None:
    """An answer at the end shows a low high watermark."""
    poll = _some(history, chance, 1)
    if poll is None or not poll.high_watermark:
        return None
    poll.high_watermark = poll.records[-1][0]
    return {"uncommitted-read"}


def regress(history: History, chance: random.Random) -> set[str] | None:
    """One more reader sees less than everybody saw."""
    poll = _some(history, chance, 1)
    if poll is None or poll.high_watermark is None or poll.outcome != "ok":
        return None
    history.invoke_poll(poll.process, poll.key, None).ok([], poll.high_watermark - 1, poll.epoch)
    return {"hw-regress"}


def late(history: History, chance: random.Random) -> set[str] | None:
    """A confirmed send is said to have begun after everything else."""
    sends = [send for send in history.sends if send.outcome == "ok" and send.base_offset and send.acks == "all"]
    others = {key: sum(send.key == key for send in sends) for key in sorted({send.key for send in sends})}
    sends = [send for send in sends if others[send.key] > 1]
    if not sends:
        return None
    send = min(sends, key=lambda send: (send.key, send.base_offset))
    end = copy.copy(history.invoke_send("late", send.key, []))
    history.sends.pop()
    send.invoked, send.completed = end.invoked, end.invoked + 1
    return {"realtime-order", "nonmonotonic-send", "phantom-read"}


MUTATIONS: list[Mutation] = [swap, swap_values, drop, duplicate, rewrite, fail, forget, lower, regress, late]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_a_mutation_is_found(mutation: Mutation) -> None:
    applied = 0
    for seed in range(60):
        history = good_history(seed)
        expected = mutation(history, random.Random(f"mutation {seed}"))
        if expected is not None:
            applied += 1
            report = check(history)
            assert expected & set(report.counts), f"seed {seed}: {report}"
    assert applied >= 15
