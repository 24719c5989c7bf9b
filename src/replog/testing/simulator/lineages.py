"""The history of a partition whose elections may have lost something: each line of records that was ever committed is judged by itself.

An election that may lose records parts the log in two (`forks`). A reader follows one of them, until it is told that what it has read is
gone; one that is shown records of two of them without that has been shown other bytes for an offset.
"""

from __future__ import annotations

from copy import copy
from typing import Final

from replog.testing.history.events import NEVER, Mark, Poll
from replog.testing.history.recorder import History
from replog.testing.simulator.clients import text_of
from replog.testing.simulator.forks import Fork
from replog.testing.simulator.ledger import Ledger, Violation

__all__ = ["lineages", "split"]

_MAIN: Final = -1
"""What has come of it in the end."""

Lineage = dict[int, str]
"""Offset -> value, from where the lines part on, as far as they are known."""


def lineages(lost: list[Lineage], ends: list[int], last: Lineage) -> dict[int, Lineage]:
    """By number of the fork, and `last`, in which it all ended, by _MAIN. `ends` says where each fork parts from what came next."""
    found, line = {_MAIN: last}, last
    for number in range(len(lost) - 1, -1, -1):
        line = {offset: value for offset, value in line.items() if offset < ends[number]} | lost[number]
        found[number] = line
    return found


def _controls(ledger: Ledger) -> dict[int, set[int]]:
    """Of each line the offsets at which no reader finds anything: nobody has sent what is there."""
    offsets = {at for at, entry in enumerate(ledger.entries) if entry.is_control}
    found = {_MAIN: offsets}
    for number, fork in reversed(list(enumerate(ledger.forks))):
        offsets = {at for at in offsets if at < fork.end} | {at for at, entry in enumerate(fork.entries, fork.end) if entry.is_control}
        found[number] = offsets
    return found


def split(history: History, key: str, ledger: Ledger, lost: list[dict[int, bytes | None]], last: dict[int, bytes | None]) -> None:
    """Give each fork a key of its own, with the reads of those who followed it, and what was confirmed there and is not in the next one.

    Raises Violation if somebody was moved from one to another without being told.
    """
    if not ledger.forks:
        return
    forks = [{offset: text_of(value) for offset, value in found.items()} for found in lost]
    lines = lineages(forks, [fork.end for fork in ledger.forks], {offset: text_of(value) for offset, value in last.items()})
    controls = _controls(ledger)
    ends = {_MAIN: ledger.end, **{number: fork.reach for number, fork in enumerate(ledger.forks)}}
    segments: dict[str, tuple[set[int], list[Poll]]] = {}
    followed: list[tuple[set[int], list[Poll]]] = []
    for poll in sorted((one for one in history.polls if one.key == key), key=lambda one: one.invoked):
        if poll.fresh or poll.process not in segments:
            segments[poll.process] = set(lines), []
            followed.append(segments[poll.process])
        possible, polls = segments[poll.process]
        if polls and (contested := {at for at in _passed(polls[-1], poll) if any(at in lines[n] for n in possible)}):
            through = {n for n in possible if contested <= controls[n] and (n == _MAIN or not _is_after(polls[-1], ledger.forks[n]))}
            possible &= through or possible
        polls.append(poll)
        if poll.outcome == "ok":
            known = set(possible)
            possible -= {
                n
                for n, line in lines.items()
                if any(at >= ends[n] or at in controls[n] or line.get(at, value) != value for at, value in poll.records)
            }
            if not possible:
                where = f"{poll.process} of {key} at {poll.position}"
                raise Violation("history", f"{where} reads on in another log than {sorted(known)}, and was not told: {poll.records}")
    keys = {number: key if number == _MAIN else f"{key} until epoch {ledger.forks[number].since}" for number in lines}
    for possible, polls in followed:
        for poll in polls:
            poll.key = keys[_MAIN if _MAIN in possible else max(possible)]
    _part(history, key, [(keys[number], lines[number], fork) for number, fork in enumerate(ledger.forks)])


def _passed(before: Poll, poll: Poll) -> set[int]:
    """Offsets at which a reader has found nothing, and gone on: in the line that it followed nobody has sent what was there."""
    if before.outcome != "ok" or before.position is None or poll.position is None:
        return set()
    return set(range(before.position, poll.position)).difference(at for at, _ in before.records)


def _is_after(poll: Poll, fork: Fork) -> bool:
    """Whether an answer tells of more than there ever was in a fork."""
    return (poll.epoch is not None and poll.epoch >= fork.since) or (poll.high_watermark or 0) > fork.reach


def _part(history: History, key: str, forks: list[tuple[str, Lineage, Fork]]) -> None:
    """Whatever was sent may be in each of them; what was confirmed in one is confirmed there."""
    for send in [one for one in history.sends if one.key == key]:
        base, gone = send.base_offset, False
        for name, line, fork in forks:
            mine = copy(send)
            mine.key = name
            places = [] if base is None else list(enumerate(send.values, base))
            lost = [(offset, value) for offset, value in places if offset >= fork.end]  # a log may part within what was sent at once
            here = bool(lost) and all(line.get(offset) == value for offset, value in lost)
            if send.outcome == "ok" and not here:
                mine.outcome, mine.base_offset, mine.completed, mine.ended = "info", None, NEVER, NEVER
            gone = gone or here or any(fork.is_unseen(offset) for offset, _ in places)
            history.sends.append(mine)
        if gone and send.outcome == "ok" and send.acks == "all":
            send.outcome, send.base_offset, send.completed, send.ended = "info", None, NEVER, NEVER
    history.sends.sort(key=lambda send: send.invoked)
    for mark in [one for one in history.marks if one.key == key and one.f in ("trim", "control")]:
        for name, _, _ in forks:
            history.marks.append(Mark(mark.rank, mark.time, mark.process, mark.f, name, mark.value))
