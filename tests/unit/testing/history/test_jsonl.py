"""Histories as files, and histories put together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from replog.errors import UsageError
from replog.testing.history import BadHistory, History, check
from replog.testing.history.events import key_of
from replog.testing.history.samples import good_history


@pytest.mark.parametrize("seed", range(25))
def test_written_and_read_it_is_the_same(seed: int, tmp_path: Path) -> None:
    history = good_history(seed)
    history.to_jsonl(tmp_path / "one")
    again = History.from_jsonl(tmp_path / "one")
    assert again.settings == history.settings
    for calls, copies in ((history.sends, again.sends), (history.polls, again.polls)):
        assert len(calls) == len(copies)
        for call, other in zip(calls, copies, strict=True):
            assert (call.invoked, call.completed, call.outcome) == (other.invoked, other.completed, other.outcome)
    assert check(again) == check(history)
    again.to_jsonl(tmp_path / "two")
    assert (tmp_path / "two").read_bytes() == (tmp_path / "one").read_bytes()


BEGUN = {"time": 1, "process": "w", "type": "invoke", "f": "send", "key": "k", "value": ["a"]}
POLLED = {"time": 1, "process": "r", "type": "invoke", "f": "poll", "key": "k", "value": 0}


@pytest.mark.parametrize(
    ("events", "complaint"),
    [
        (["{"], "line 1: no JSON"),
        ([BEGUN, "3, 4"], "line 2: no JSON"),
        ([BEGUN, "3"], "line 2: an event is an object"),
        ([{"time": 1}], "line 1: 'type' is missing"),
        ([{**BEGUN, "time": None}], "line 1: time is None"),
        ([BEGUN, {**POLLED, "time": 0}], "line 2: time is 0, after 1"),
        ([BEGUN, {**POLLED, "time": float("nan")}, {**BEGUN, "time": 0}], "line 2: time is nan, no finite number"),
        ([{**BEGUN, "time": float("inf")}], "line 1: time is inf, no finite number"),
        ([{**BEGUN, "time": float("-inf")}], "line 1: time is -inf, no finite number"),
        ([{**BEGUN, "time": 10**400}], "line 1: time is 1000"),
        ([{**BEGUN, "time": True}], "line 1: time is True, no finite number"),
        ([BEGUN, "[" * 100_000 + "]" * 100_000], "line 2: lists or objects within each other, too deep"),
        ([BEGUN, '{"time": 1, "process": ' + '[{"a":' * 50_000], "line 2: lists or objects within each other, too deep"),
        ([{**BEGUN, "f": "write"}], "line 1: f is 'write'"),
        ([{**BEGUN, "type": "begin"}], "line 1: type is 'begin'"),
        ([{**BEGUN, "process": 3}], "line 1: process is 3"),
        ([{**BEGUN, "key": ["k"]}], "line 1: key is"),
        ([{**BEGUN, "value": []}], "line 1: value is"),
        ([{**BEGUN, "value": [True]}], "line 1: value is"),
        ([{**BEGUN, "acks": 2}], "line 1: acks is 2"),
        ([BEGUN, BEGUN], "line 2: w begins a call, and that of line 1 has not ended"),
        ([{**BEGUN, "type": "ok", "value": 0}], "line 1: w has no send under way"),
        ([BEGUN, {**BEGUN, "type": "ok", "f": "poll", "value": []}], "line 2: w has no poll under way"),
        ([BEGUN, {**BEGUN, "type": "ok", "key": "l", "value": 0}], "line 2: key is 'l'; it began with 'k'"),
        ([BEGUN, {**BEGUN, "type": "ok", "value": -2}], "line 2: value is -2"),
        ([{**POLLED, "value": "0"}], "line 1: value is '0'"),
        ([POLLED, {**POLLED, "type": "ok", "value": "a"}], "line 2: value is 'a'"),
        ([POLLED, {**POLLED, "type": "ok", "value": [[0]]}], "line 2: [0] is no [offset, value]"),
        ([POLLED, {**POLLED, "type": "ok", "value": [["0", "a"]]}], "line 2: ['0', 'a'] is no [offset, value]"),
        ([POLLED, {**POLLED, "type": "ok", "value": [], "high_watermark": "5"}], "line 2: high_watermark is '5'"),
        ([{**POLLED, "f": "crash"}], "line 1: crash is one event"),
        ([{**POLLED, "f": "trim", "type": "ok", "value": None}], "line 1: value is missing"),
        ([{**POLLED, "f": "control", "type": "ok", "value": None}], "line 1: value is missing"),
        ([{**POLLED, "f": "control", "type": "info", "value": 1}], "line 1: control is one event"),
        ([BEGUN, {"type": "settings"}], "line 2: settings stand in the first line"),
        ([{"type": "settings", "strict": True}], "line 1: no such setting: strict = True"),
        ([{"type": "settings", "idempotent": 1}], "line 1: no such setting: idempotent = 1"),
        ([{"type": "settings", "clock": "utc"}], "line 1: no such setting: clock = 'utc'"),
    ],
)
def test_what_is_no_history_is_refused_by_line(events: list[object], complaint: str, tmp_path: Path) -> None:
    file = tmp_path / "history"
    file.write_text("".join((event if isinstance(event, str) else json.dumps(event)) + "\n" for event in events))
    with pytest.raises(BadHistory) as refused:
        History.from_jsonl(file)
    assert str(refused.value).startswith(complaint)


def test_what_is_no_utf_8_is_refused_by_line(tmp_path: Path) -> None:
    file = tmp_path / "history"
    file.write_bytes(json.dumps(BEGUN).encode() + b"\n" + json.dumps(POLLED).encode().replace(b'"r"', b'"\xff"') + b"\n")
    with pytest.raises(BadHistory, match="line 2: no JSON: 'utf-8' codec can't decode byte 0xff"):
        History.from_jsonl(file)


def test_written_by_hand(tmp_path: Path) -> None:
    file = tmp_path / "history"
    lines = [
        BEGUN,
        {**BEGUN, "type": "ok", "value": 0},
        {**BEGUN, "value": 7},
        {**BEGUN, "type": "info"},
        POLLED,
        {**POLLED, "type": "ok", "value": [[0, "a"], [1, 7]]},
        {**POLLED, "time": 2.5},
        {"time": 3, "process": "r", "type": "ok", "f": "crash"},
        {**POLLED, "time": 4},
    ]
    file.write_text("\n".join(json.dumps(line) for line in lines) + "\n\n")
    history = History.from_jsonl(file)
    assert [(send.values, send.base_offset, send.outcome) for send in history.sends] == [(["a"], 0, "ok"), ([7], None, "info")]
    assert [(poll.outcome, poll.fresh, poll.started) for poll in history.polls] == [
        ("ok", True, 1),
        ("open", False, 2.5),
        ("open", True, 4),
    ]
    assert check(history).ok


def test_a_value_is_sent_once() -> None:
    history = History()
    history.invoke_send("v", "k", ["a"]).info()
    history.invoke_send("w", "l", ["a"]).info()
    assert check(history).ok
    history.invoke_send("w", "k", ["a"])
    with pytest.raises(BadHistory, match="'a' is sent to k twice; the second time by w at 5"):
        check(history)
    history = History()
    history.invoke_send("v", "k", ["a", "b", "a"])
    with pytest.raises(BadHistory, match="v sends a value to k twice"):
        check(history)


def test_a_call_ends_once() -> None:
    send = History().invoke_send("w", "k", ["a"])
    send.info()
    with pytest.raises(UsageError, match="info, then ok"):
        send.ok(0)


def test_a_topic_that_is_created_again_is_another_key() -> None:
    assert key_of("t", b"\x01\xff", 3) == "t@01ff/3" != key_of("t", "other", 3)


class Clock:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def two_processes(end: float, begin: float) -> list[History]:
    """One ends its send at a time, and another, recorded apart, begins one with a lower offset."""
    clock = Clock()
    one, other = History(clock=clock), History(clock=clock)
    send = one.invoke_send("v", "k", ["a"])
    clock.now = end
    send.ok(2)
    clock.now = begin
    send = other.invoke_send("w", "k", ["b"])
    clock.now = 50
    send.ok(1)
    return [one, other]


def test_merged_histories_are_ordered_by_time() -> None:
    assert check(History.merge(two_processes(10, 11))).counts == {"realtime-order": 1}
    assert check(History.merge(reversed(two_processes(10, 11)))).counts == {"realtime-order": 1}
    assert check(History.merge(two_processes(10, 9))).ok


def test_at_equal_times_merged_calls_are_concurrent() -> None:
    assert check(History.merge(two_processes(10, 10))).ok


def test_a_process_keeps_its_order_when_merged() -> None:
    clock = Clock()
    one = History(clock=clock)
    one.invoke_send("v", "k", ["a"]).ok(2)
    one.invoke_send("v", "k", ["b"]).ok(1)
    assert check(History.merge([History(), one])).counts == {"nonmonotonic-send": 1}


def test_merged_good_histories_pass() -> None:
    for seed in range(40):
        history = good_history(seed)
        report = check(History.merge([history]))
        assert report.ok, f"seed {seed}: {report}"
        assert report.operations == history.operations()


def apart(path: Path, process: str, now: float, **settings: bool) -> History:
    """One send and its end, written to a file and read again."""
    history = History(clock=lambda: now, **settings)
    history.invoke_send(process, "k", [f"of {process} at {now}"]).ok()
    history.to_jsonl(path)
    return History.from_jsonl(path)


def test_a_history_without_a_clock_cannot_be_merged(tmp_path: Path) -> None:
    """Its times are numbers of events: by those of two, what went on side by side came one after the other."""
    one, other = History(), History()
    one.invoke_send("v", "k", ["a"]).ok(2)
    other.invoke_poll("r", "l", 0).ok([])
    other.invoke_send("w", "k", ["b"]).ok(1)
    for without in ([one, other], [History(clock=Clock()), one], [other, History(clock=Clock())]):
        with pytest.raises(BadHistory, match=r"history \d was recorded without a clock: its times are numbers of events"):
            History.merge(without)
    one.to_jsonl(tmp_path / "one")
    read = History.from_jsonl(tmp_path / "one")
    with pytest.raises(BadHistory, match="one was recorded without a clock"):
        History.merge([apart(tmp_path / "other", "w", 5), read])
    alone = History.merge([read])
    assert check(alone).ok
    alone.to_jsonl(tmp_path / "again")
    with pytest.raises(BadHistory, match="again was recorded without a clock"):
        History.merge([apart(tmp_path / "other", "w", 5), History.from_jsonl(tmp_path / "again")])


def test_a_trim_without_a_clock_cannot_be_merged_either() -> None:
    trimmed = History()
    trimmed.trim("k", 3)
    with pytest.raises(BadHistory, match="history 2 was recorded without a clock"):
        History.merge([History(clock=Clock()), trimmed])


def test_a_file_that_does_not_say_whether_there_was_a_clock_can_be_merged(tmp_path: Path) -> None:
    """Others write such, and so did we, before."""
    file = tmp_path / "old"
    begun = {**BEGUN, "time": 10}
    told = {**begun, "type": "ok", "value": 2}
    file.write_text("\n".join(json.dumps(line) for line in ({"type": "settings", "idempotent": True, "stale_reads": False}, begun, told)))
    old = History.from_jsonl(file)
    clock = Clock()
    clock.now = 11
    other = History(clock=clock)
    other.invoke_send("v", "k", ["b"]).ok(1)
    whole = History.merge([old, other])
    assert check(whole).counts == {"realtime-order": 1}
    whole.to_jsonl(tmp_path / "whole")
    assert json.loads((tmp_path / "whole").read_text().split("\n")[0]) == {"type": "settings", "idempotent": True, "stale_reads": False}
    History.merge([other]).to_jsonl(tmp_path / "other")
    assert json.loads((tmp_path / "other").read_text().split("\n")[0])["clock"] is True


def test_a_process_belongs_to_one_history() -> None:
    """Two that are called alike would have sent out of order."""
    clock = Clock()
    one, other = History(clock=clock), History(clock=clock)
    one.invoke_send("w", "k", ["a"]).ok(2)
    clock.now = 1
    other.invoke_send("w", "k", ["b"]).ok(1)
    with pytest.raises(BadHistory, match="history 1 and history 2 both hold calls of process 'w', which belongs to one history"):
        History.merge([one, other])


def test_marks_may_be_in_the_history_of_another_process() -> None:
    """Who is killed does not tell, and every history trims under one name if it gives none."""
    clock = Clock()
    one, other = History(clock=clock), History(clock=clock)
    one.invoke_poll("r", "k", 0).ok([])
    one.trim("k", 1)
    other.trim("l", 1)
    other.crash("r")
    other.invoke_send("w", "k", ["a"]).ok(0)
    whole = History.merge([one, other])
    assert [(mark.f, mark.process) for mark in whole.marks] == [("trim", "retention"), ("trim", "retention"), ("crash", "r")]
    assert check(whole).ok


@pytest.mark.parametrize("setting", ["idempotent", "stale_reads"])
def test_histories_of_different_settings_cannot_be_merged(setting: str, tmp_path: Path) -> None:
    clash = f"one has the setting {setting} = False, .*other has True: they cannot be judged as one"
    parts = [apart(tmp_path / "one", "v", 1, **{setting: False}), apart(tmp_path / "other", "w", 1, **{setting: True})]
    with pytest.raises(BadHistory, match=clash):
        History.merge(parts)
