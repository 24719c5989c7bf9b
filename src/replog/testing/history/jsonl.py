"""Histories as JSON lines. What is not one is refused with the number of its line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from replog.testing.history.events import BadHistory, Poll, Send, Settings
from replog.testing.history.recorder import History

__all__ = ["read", "write"]

_LINES_AT_ONCE: Final = 2_000
"""Lines that are decoded together: one array of them is decoded faster than each alone."""

_TIME_MAX: Final = sys.float_info.max
_ENDS: Final = frozenset({"ok", "info", "fail"})
_Event = dict[str, Any]


def write(history: History, path: str | Path) -> None:
    """Write a history to a file."""
    events: list[tuple[int, int, _Event]] = []
    calls: list[Send | Poll] = [*history.sends, *history.polls]
    for number, call in enumerate(calls):
        f = "send" if isinstance(call, Send) else "poll"
        told: _Event = {"process": call.process, "f": f, "key": call.key, "op": number}
        events.append((call.invoked, number, {"time": call.started, "type": "invoke", **told, **_asked(call)}))
        if call.outcome != "open":
            ended = {"time": call.ended, "type": call.outcome, **told}
            events.append((call.completed, number, {**ended, **_answered(call)} if call.outcome == "ok" else ended))
    for mark in history.marks:
        event = {"time": mark.time, "type": "ok", "process": mark.process, "f": mark.f, "key": mark.key, "value": mark.value}
        events.append((mark.rank, -1, event))
    events.sort(key=lambda event: event[:2])
    settings = {"type": "settings", "idempotent": history.settings.idempotent, "stale_reads": history.settings.stale_reads}
    if history.clocked is not None:
        settings["clock"] = history.clocked
    with open(path, "w", encoding="utf-8") as file:
        file.write(json.dumps(settings) + "\n")
        for _, _, event in events:
            file.write(json.dumps(event, separators=(",", ":")) + "\n")


def _asked(call: Send | Poll) -> _Event:
    if isinstance(call, Send):
        return {"value": list(call.values), **({} if call.acks == "all" else {"acks": call.acks})}
    return {"value": call.position, **({"final": True} if call.final else {})}


def _answered(call: Send | Poll) -> _Event:
    if isinstance(call, Send):
        return {"value": call.base_offset}
    told: _Event = {"value": [list(record) for record in call.records], "high_watermark": call.high_watermark}
    return told if call.epoch is None else {**told, "epoch": call.epoch}


def read(path: str | Path) -> History:
    """Read a history from a file. BadHistory names the first line that does not belong in one."""
    reading = _Reading()
    reading.history.source = str(path)
    for number, event in _events(path):
        try:
            reading.take(number, event)
        except (KeyError, TypeError, ValueError) as problem:
            what = f"{problem.args[0]!r} is missing" if isinstance(problem, KeyError) else str(problem)
            raise BadHistory(f"line {number}: {what}") from problem
    return reading.history


def _events(path: str | Path) -> Iterator[tuple[int, _Event]]:
    with open(path, "rb") as file:  # bytes: what is no UTF-8 has a line, too
        done = 0
        while lines := file.readlines(_LINES_AT_ONCE * 128):
            try:
                events = json.loads("[" + b",".join(lines).decode() + "]")
                together = len(events) == len(lines)
            except (ValueError, RecursionError):
                together = False
            if together:
                yield from enumerate(events, done + 1)
            else:
                yield from _one_by_one(lines, done)
            done += len(lines)


def _one_by_one(lines: list[bytes], done: int) -> Iterator[tuple[int, _Event]]:
    for number, line in enumerate(lines, done + 1):
        if line.strip():
            try:
                event = json.loads(line.decode())
            except ValueError as problem:
                raise BadHistory(f"line {number}: no JSON: {problem}") from problem
            except RecursionError as problem:
                raise BadHistory(f"line {number}: lists or objects within each other, too deep to be read") from problem
            yield number, event


class _Reading:
    """A history as far as it was read."""

    def __init__(self) -> None:
        self._now: float = 0
        self.history = History(clock=self._time)
        self.history.clocked = None  # unless the settings say
        self._open: dict[tuple[str, int | None], tuple[Send | Poll, int]] = {}

    def _time(self) -> float:
        return self._now

    def take(self, number: int, event: _Event) -> None:
        """One more event. KeyError, TypeError and ValueError say what is wrong with it."""
        if not isinstance(event, dict):
            raise TypeError("an event is an object")
        kind = event["type"]
        if kind == "settings":
            self._settings(number, event)
            return
        time = event["time"]
        if type(time) not in (int, float) or not abs(time) <= _TIME_MAX:  # NaN is neither below nor above anything
            raise ValueError(f"time is {time!r}, no finite number")
        if time < self._now:
            raise ValueError(f"time is {time!r}, after {self._now!r}")
        self._now = time
        f, process = event["f"], event["process"]
        if not isinstance(process, str):
            raise TypeError(f"process is {process!r}, not a string")
        if f in ("send", "poll"):
            if kind == "invoke":
                self._begin(number, event, process, f)
            elif kind in _ENDS:
                self._end(event, process, f, kind)
            else:
                raise ValueError(f"type is {kind!r}")
        elif f in ("assign", "crash", "trim", "control"):
            if kind != "ok":
                raise ValueError(f"{f} is one event, of type ok, not {kind!r}")
            self._mark(event, process, f)
        else:
            raise ValueError(f"f is {f!r}")

    def _settings(self, number: int, event: _Event) -> None:
        if number != 1:
            raise ValueError("settings stand in the first line")
        told = {name: value for name, value in event.items() if name != "type"}
        for name, value in told.items():
            if name not in ("idempotent", "stale_reads", "clock") or not isinstance(value, bool):
                raise ValueError(f"no such setting: {name} = {value!r}")
        self.history.clocked = told.pop("clock", None)
        self.history.settings = Settings(**told)

    def _begin(self, number: int, event: _Event, process: str, f: str) -> None:
        key, value = event["key"], event["value"]
        if not isinstance(key, str):
            raise TypeError(f"key is {key!r}, not a string")
        name = process, event.get("op")
        if name in self._open:
            since = self._open[name][1]
            raise ValueError(f"{process} begins a call, and that of line {since} has not ended; to have both, give each an `op`")
        call: Send | Poll
        if f == "send":
            acks = event.get("acks", "all")
            if acks not in ("all", 0, 1):
                raise ValueError(f"acks is {acks!r}")
            values = value if isinstance(value, list) else [value]
            if not values or not all(type(one) in (str, int) for one in values):
                raise TypeError(f"value is {value!r}; a send has strings or integers")
            call = self.history.invoke_send(process, key, values, acks)
        else:
            call = self.history.invoke_poll(process, key, _offset(value, "value"), final=event.get("final", False) is True)
        self._open[name] = call, number

    def _end(self, event: _Event, process: str, f: str, kind: str) -> None:
        call, _ = self._open.pop((process, event.get("op")), (None, 0))
        if call is None or isinstance(call, Send) != (f == "send"):
            raise ValueError(f"{process} has no {f} under way")
        if event.get("key", call.key) != call.key:
            raise ValueError(f"key is {event['key']!r}; it began with {call.key!r}")
        if kind != "ok":
            end: Callable[[], None] = call.info if kind == "info" else call.fail
            end()
        elif isinstance(call, Send):
            call.ok(_offset(event["value"], "value", lowest=-1))
        else:
            records = event["value"]
            if not isinstance(records, list):
                raise TypeError(f"value is {records!r}; a poll has a list of [offset, value]")
            for record in records:
                if not isinstance(record, list) or len(record) != 2 or type(record[0]) is not int or type(record[1]) not in (int, str):
                    raise TypeError(f"{record!r} is no [offset, value]")
            high_watermark = _offset(event.get("high_watermark"), "high_watermark")
            call.ok(records, high_watermark, _offset(event.get("epoch"), "epoch"))

    def _mark(self, event: _Event, process: str, f: str) -> None:
        if f == "crash":
            for name in [name for name in self._open if name[0] == process]:
                del self._open[name]
            self.history.crash(process)
            return
        key, value = event["key"], _offset(event.get("value"), "value")
        if not isinstance(key, str):
            raise TypeError(f"key is {key!r}, not a string")
        if f == "assign":
            self.history.assign(process, key, value)
        elif value is None:
            raise TypeError("value is missing: where the log may start, or where there is no record")
        elif f == "control":
            self.history.control(key, value, process)
        else:
            self.history.trim(key, value, process)


def _offset(value: Any, name: str, lowest: int = 0) -> int | None:
    if value is None or (type(value) is int and value >= lowest):
        return value
    raise TypeError(f"{name} is {value!r}, no offset")
