"""The history of a partition whose elections may have lost something: each line of records that was ever committed is judged by itself.

An election that may lose records parts the log in two (`forks`); who reads which of them is found out by what they were shown (`lines`).
"""

from __future__ import annotations

from copy import copy

from replog.testing.history.events import NEVER, Mark
from replog.testing.history.recorder import History
from replog.testing.simulator.clients import text_of
from replog.testing.simulator.ledger import Ledger
from replog.testing.simulator.lines import MAIN, Lines, Reader

__all__ = ["split"]


def split(history: History, key: str, ledger: Ledger, lost: list[dict[int, bytes | None]], last: dict[int, bytes | None]) -> None:
    """Give each fork a key of its own, with the reads of those who followed it, and what was confirmed there and is not in the next one.

    Raises Violation if somebody was moved from one to another without being told.
    """
    if not ledger.forks:
        return
    forks = [{offset: text_of(value) for offset, value in found.items()} for found in lost]
    lines = Lines(ledger, forks, {offset: text_of(value) for offset, value in last.items()})
    readers: dict[str, Reader] = {}
    begun: list[Reader] = []
    for poll in sorted((one for one in history.polls if one.key == key), key=lambda one: one.invoked):
        if poll.fresh or poll.process not in readers:
            readers[poll.process] = Reader(lines)
            begun.append(readers[poll.process])
        readers[poll.process].take(poll)
    keys = {MAIN: key, **{number: f"{key} until epoch {fork.since}" for number, fork in enumerate(ledger.forks)}}
    for reader in begun:
        line = reader.line
        for poll in reader.polls:
            poll.key = keys[line]
    _part(history, key, ledger, lines, keys)


def _part(history: History, key: str, ledger: Ledger, lines: Lines, keys: dict[int, str]) -> None:
    """Whatever was sent may be in each of them; what was confirmed in one, or in what all have in common, is confirmed there."""
    common = min(fork.end for fork in ledger.forks)
    for send in [one for one in history.sends if one.key == key]:
        base, gone = send.base_offset, False
        places = [] if base is None else list(enumerate(send.values, base))
        for number, fork in enumerate(ledger.forks):
            line, mine = lines.values[number], copy(send)
            mine.key = keys[number]
            lost = [(offset, value) for offset, value in places if offset >= fork.end]  # a log may part within what was sent at once
            here = bool(lost) and all(line.get(offset) == value for offset, value in lost)
            whole = bool(places) and all(offset < common or line.get(offset) == value for offset, value in places)
            if send.outcome == "ok" and not whole:
                mine.outcome, mine.base_offset, mine.completed, mine.ended = "info", None, NEVER, NEVER
            gone = gone or here or any(fork.is_unseen(offset) for offset, _ in places)
            history.sends.append(mine)
        if gone and send.outcome == "ok" and send.acks == "all":
            send.outcome, send.base_offset, send.completed, send.ended = "info", None, NEVER, NEVER
    history.sends.sort(key=lambda send: send.invoked)
    for mark in [one for one in history.marks if one.key == key and one.f in ("trim", "control")]:
        for number in range(len(ledger.forks)):
            if mark.f == "trim" or mark.value is None or lines.is_nothing({mark.value}, number):
                history.marks.append(Mark(mark.rank, mark.time, mark.process, mark.f, keys[number], mark.value))
