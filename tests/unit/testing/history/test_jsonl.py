"""Histories as files, histories put together, and the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from replog.errors import UsageError
from replog.testing.history import BadHistory, History, check
from replog.testing.history.__main__ import main
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
    ],
)
def test_what_is_no_history_is_refused_by_line(events: list[object], complaint: str, tmp_path: Path) -> None:
    file = tmp_path / "history"
    file.write_text("".join((event if isinstance(event, str) else json.dumps(event)) + "\n" for event in events))
    with pytest.raises(BadHistory) as refused:
        History.from_jsonl(file)
    assert str(refused.value).startswith(complaint)


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


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad, none = (str(tmp_path / name) for name in ("good", "bad", "none"))
    good_history(1).to_jsonl(good)
    history = good_history(2)
    history.invoke_poll("r", "t@1/0", 1_000).ok([(1_000, "nobody's")])
    history.to_jsonl(bad)
    Path(none).write_text("{}\n")
    assert main([good]) == 0
    assert "no errors" in capsys.readouterr().out
    assert main([bad]) == 1
    assert "phantom-read: 1" in capsys.readouterr().out
    assert main([bad, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["counts"]["phantom-read"] == 1
    assert main([none]) == 2
    assert capsys.readouterr().err == "line 1: 'type' is missing\n"
    assert main(["--good", "3"]) == 0
    assert "3 good histories" in capsys.readouterr().out
    assert main(["--measure", "50"]) == 0
    assert "100 operations: no errors" in capsys.readouterr().out
