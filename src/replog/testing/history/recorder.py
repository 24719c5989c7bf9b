"""Recording a history while it happens, and putting histories of several processes together."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Literal, TypeVar

from attrs import fields

from replog.errors import UsageError
from replog.testing.history.events import Acks, BadHistory, Mark, Poll, Send, Settings, Value

__all__ = ["History"]

_Op = TypeVar("_Op", Send, Poll)


class History:
    """Calls in the order in which they started. One recorder may serve all clients of a process, threads included.

        history = History()
        op = history.invoke_send("writer 1", key_of("orders", topic_id, 0), ["a", "b"])
        ...                     # call the log
        op.ok(base_offset)      # or op.info(), op.fail()

    `clock` gives the time that people are shown; without one it is the number of the event, and the history cannot be merged with
    others. The order of events is always the order of the calls of this object, never the clock's.
    """

    def __init__(self, *, idempotent: bool = True, stale_reads: bool = False, clock: Callable[[], float] | None = None) -> None:
        self.settings = Settings(idempotent, stale_reads)
        self.clocked: bool | None = clock is not None
        """Whether its times are those of a clock, or numbers of events. None: it was read from a file that does not say."""
        self.source = ""
        """The file it was read from; empty if it was not."""
        self.sends: list[Send] = []
        self.polls: list[Poll] = []
        self.marks: list[Mark] = []
        self._clock = clock
        self._rank: Callable[[], int] = count(1).__next__
        self._reading: dict[str, set[str]] = {}  # process -> keys of which it has a position

    def invoke_send(self, process: str, key: str, values: Sequence[Value], acks: Acks = "all") -> Send:
        """A process starts to append a batch. `values` is kept, not copied. Raises UsageError for one text: it would be a record for each
        letter."""
        if isinstance(values, str | bytes | bytearray | memoryview):
            raise UsageError(f"values is {values!r}; it must be a list, of one value for each record")
        send = Send(self._rank, self._clock, process, key, values, acks)
        self.sends.append(send)
        return send

    def invoke_poll(self, process: str, key: str, position: int | None, *, final: bool = False) -> Poll:
        """A process starts to read from `position`."""
        reading = self._reading.get(process)
        if reading is None:
            reading = self._reading[process] = set()
        fresh = key not in reading
        if fresh:
            reading.add(key)
        poll = Poll(self._rank, self._clock, process, key, position, final, fresh)
        self.polls.append(poll)
        return poll

    def assign(self, process: str, key: str, position: int | None = None) -> None:
        """A process will go on reading `key` from elsewhere."""
        self._reading.get(process, set()).discard(key)
        self._mark(process, "assign", key, position)

    def crash(self, process: str) -> None:
        """A process died and forgot its positions; what it had under way stays open."""
        self._reading.pop(process, None)
        self._mark(process, "crash", "", None)

    def trim(self, key: str, start: int, process: str = "retention") -> None:
        """The log may start at `start` from now on. To be called before it does."""
        self._mark(process, "trim", key, start)

    def control(self, key: str, offset: int, process: str = "broker") -> None:
        """No record is at `offset`, but something of a broker's own. To be called before anybody can read past it."""
        self._mark(process, "control", key, offset)

    def _mark(self, process: str, f: Literal["assign", "crash", "trim", "control"], key: str, value: int | None) -> None:
        rank = self._rank()
        self.marks.append(Mark(rank, rank if self._clock is None else self._clock(), process, f, key, value))

    def operations(self) -> int:
        """How many calls it holds."""
        return len(self.sends) + len(self.polls)

    def to_jsonl(self, path: str | Path) -> None:
        """Write it as JSON lines (see `replog.testing.history.events`)."""
        from replog.testing.history import jsonl

        jsonl.write(self, path)

    @classmethod
    def from_jsonl(cls, path: str | Path) -> History:
        """Read JSON lines. BadHistory, naming the line, if they are none; OSError if there is no such file."""
        from replog.testing.history import jsonl

        return jsonl.read(path)

    @classmethod
    def merge(cls, histories: Iterable[History]) -> History:
        """One history of several that were recorded apart, at the same time, by clocks that agree.

        Only times compare: two calls are taken as one after the other if one ended at an earlier time than the other began,
        and as concurrent at equal times. BadHistory, naming what clashes, if one was recorded without a clock, if their settings
        differ, or if two of them hold calls of one process: it belongs to one history.
        """
        parts = list(histories)
        _must_agree(parts)
        times = {op.started for part in parts for op in (*part.sends, *part.polls)} | {m.time for part in parts for m in part.marks}
        times |= {op.ended for part in parts for op in (*part.sends, *part.polls)}
        number = {time: 2 * index for index, time in enumerate(sorted(times))}
        whole = cls()
        whole.clocked = _all_clocked(parts)
        for part in parts:
            whole.settings = part.settings
            whole.sends += [_at(op, number) for op in part.sends]
            whole.polls += [_at(op, number) for op in part.polls]
            for mark in part.marks:
                whole.marks.append(Mark(number[mark.time], mark.time, mark.process, mark.f, mark.key, mark.value))
            for process, keys in part._reading.items():
                whole._reading.setdefault(process, set()).update(keys)
        whole.sends.sort(key=lambda op: op.invoked)
        whole.polls.sort(key=lambda op: op.invoked)
        whole.marks.sort(key=lambda mark: mark.rank)
        whole._rank = count(2 * len(times) + 2).__next__
        return whole


def _must_agree(parts: Sequence[History]) -> None:
    """BadHistory if these were not recorded apart at the same time, or may seem to contradict each other because of how they were."""
    names = [part.source or f"history {number}" for number, part in enumerate(parts, 1)]
    owners: dict[str, str] = {}
    for name, part in zip(names, parts, strict=True):
        if part.clocked is False and len(parts) > 1 and (part.operations() or part.marks):
            raise BadHistory(f"{name} was recorded without a clock: its times are numbers of events, and mean nothing to others")
        for setting in fields(Settings):
            mine, first = (getattr(one.settings, setting.name) for one in (part, parts[0]))
            if mine != first:
                raise BadHistory(f"{names[0]} has the setting {setting.name} = {first}, {name} has {mine}: they cannot be judged as one")
        for process in sorted({call.process for call in (*part.sends, *part.polls)}):  # marks may be another's: a crash is
            if process in owners:
                raise BadHistory(f"{owners[process]} and {name} both hold calls of process {process!r}, which belongs to one history")
            owners[process] = name


def _all_clocked(parts: Sequence[History]) -> bool | None:
    """Whether the times of histories that agree are those of a clock; None if one does not say."""
    said = {part.clocked for part in parts if part.operations() or part.marks} or {True}
    return None if None in said else False not in said


def _at(op: _Op, number: dict[float, int]) -> _Op:
    moved = copy.copy(op)
    moved.invoked = number[op.started]
    if op.outcome != "open":
        moved.completed = number[op.ended] + 1
    return moved
