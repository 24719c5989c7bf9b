"""The order of sends: what was over before another began has the lower offset. One sweep over the ends of all calls."""

from __future__ import annotations

from itertools import pairwise

from replog.testing.history.events import Poll, Send
from replog.testing.history.evidence import Evidence
from replog.testing.history.report import Report

__all__ = ["judge_order", "void_spurious"]

_Last = tuple[int, Send]


def void_spurious(evidence: Evidence, report: Report, *, idempotent: bool) -> None:
    """Offsets -1 and 0 that were handed out for want of the right one. They count for nothing from here on."""
    suspects = []
    for send in evidence.sends:
        if send.base_offset is not None and send.base_offset <= 0 and send.acks != 0 and send.values:
            suspects.append(send)
    if not suspects:
        return
    told = min((send.completed for send in evidence.sends if evidence.claim(send) is not None), default=None)
    read = min((poll.completed for poll in evidence.polls if poll.records), default=None)
    zero = evidence.seen.get(0)
    for send in suspects:
        value = send.values[0]
        at = evidence.place.get(value)
        why = ""
        if send.base_offset != 0:
            why = "no record has that offset"
        elif zero == value:
            continue
        elif at is not None and send.acks == "all" and (idempotent or zero is not None):
            # Else what is read elsewhere may be another copy of it: one sent twice, or one that an earlier leader had when the one
            # that confirmed it was lost.
            why = f"it was read at offset {at}"
        elif send.acks == "all" and told is not None and told < send.invoked:
            why = "another record had been confirmed before"
        elif send.acks == "all" and read is not None and read < send.invoked:
            why = "another record had been read before"
        if why:
            evidence.void.add(send)
            text = f"{send.process} was told {send.span()} that {value!r} is at offset {send.base_offset}; {why}"
            report.add("spurious-zero", evidence.key, text)


def _extent(evidence: Evidence, send: Send) -> tuple[int, int] | None:
    """First and last offset of a send, as confirmed for good or as read; None if nobody knows."""
    if send in evidence.early:
        return None
    base = evidence.claim(send)
    if base is not None and (send.acks == "all" or evidence.place.get(send.values[0]) == base):
        return base, base + len(send.values) - 1  # else the leader that confirmed it may have lost it, and its offset to another
    place = evidence.place
    if len(send.values) == 1:
        at = place.get(send.values[0])
        return None if at is None else (at, at)
    offsets = [place[value] for value in send.values if value in place]
    return (min(offsets), max(offsets)) if offsets else None


def judge_order(evidence: Evidence, report: Report, *, idempotent: bool) -> None:
    """realtime-order, nonmonotonic-send, and notes of sends whose records are apart."""
    extents = []
    confirmed: list[tuple[int, int, Send]] = []
    for send in evidence.sends:
        extent = _extent(evidence, send)
        extents.append(extent)
        if extent is None or send.outcome != "ok" or send.acks == 0:
            continue
        if send.acks != "all" and extent[0] != send.base_offset:
            continue  # the leader that confirmed it has lost it; what was read is a copy that came later
        if idempotent or evidence.claim(send) is not None:
            confirmed.append((send.completed, extent[1], send))
        elif send.base_offset is not None and send not in evidence.void:
            # What was read may be a second copy, and nobody may have read the first.
            confirmed.append((send.completed, min(extent[0], send.base_offset), send))
    confirmed.sort(key=lambda item: item[0])
    sweep = _Sweep(evidence, confirmed, report, idempotent)
    for send, extent in zip(evidence.sends, extents, strict=True):
        if extent is not None:
            sweep.begin(send, extent)
        if len(send.values) > 1:
            _within(evidence, send, report, idempotent)


class _Sweep:
    """Walks through the beginnings of sends, with everything that was over by then."""

    def __init__(self, evidence: Evidence, confirmed: list[tuple[int, int, Send]], report: Report, idempotent: bool) -> None:
        self._evidence = evidence
        self._report = report
        self._idempotent = idempotent
        self._confirmed = confirmed
        self._over = 0
        self._answered = 0
        self._highest: _Last | None = None
        self._of_process: dict[str, _Last] = {}
        self._begun: dict[str, _Last] = {}
        """Of each process, the highest that began before and was confirmed, sooner or later."""
        self._read = -1
        self._reader: Poll | None = None

    def begin(self, send: Send, extent: tuple[int, int]) -> None:
        """A send begins: everything that is over must be below it."""
        self._advance(send.invoked)
        first, last = extent
        own = self._of_process.get(send.process)
        if self._idempotent and send.outcome == "ok" and send.acks != 0:
            begun = self._begun.get(send.process)
            if begun is not None and (own is None or begun[0] > own[0]):
                own = begun
            if begun is None or last > begun[0]:
                self._begun[send.process] = last, send
        highest = self._highest
        if self._read >= first or (own is not None and own[0] >= first) or (highest is not None and highest[0] >= first):
            self._blame(send, first, own, highest)

    def _blame(self, send: Send, first: int, own: _Last | None, highest: _Last | None) -> None:
        key, report = self._evidence.key, self._report
        what = f"{send.values[0]!r} of {send.process} {send.span()} is at offset {first}"
        if own is not None and own[0] >= first:
            report.add("nonmonotonic-send", key, f"{what}; {_told(own)}, and it sent that before")
        elif highest is not None and highest[0] >= first:
            report.add("realtime-order", key, f"{what}; {_told(highest)}, and that was over before")
        elif self._reader is not None:
            reader = self._reader
            report.add("realtime-order", key, f"{what}; {reader.process} had read offset {self._read} before, {reader.span()}")

    def _advance(self, rank: int) -> None:
        confirmed, over = self._confirmed, self._over
        while over < len(confirmed) and confirmed[over][0] < rank:
            _, last, send = confirmed[over]
            over += 1
            self._count(last, send)
        self._over = over
        polls, answered = self._evidence.polls, self._answered
        while answered < len(polls) and polls[answered].completed < rank:
            poll = polls[answered]
            answered += 1
            if poll.records and poll.records[-1][0] > self._read:
                self._read, self._reader = poll.records[-1][0], poll
        self._answered = answered

    def _count(self, last: int, send: Send) -> None:
        process = send.process
        own = self._of_process.get(process)
        if own is None or last > own[0]:
            self._of_process[process] = last, send
        if self._highest is None or last > self._highest[0]:
            self._highest = last, send


def _told(last: _Last) -> str:
    offset, send = last
    return f"{send.values[-1]!r} of {send.process} {send.span()} is at offset {offset}"


def _within(evidence: Evidence, send: Send, report: Report, idempotent: bool) -> None:
    """The records of one send: in order (of several copies, parts of each may have been read); others in between are legal."""
    offsets = [evidence.place[value] for value in send.values if value in evidence.place]
    for before, after in pairwise(offsets):
        if idempotent and after < before:
            text = f"{evidence.seen.get(after)!r} of {send.process} {send.span()} is at offset {after}, after a record at {before}"
            report.add("nonmonotonic-send", evidence.key, text)
            return
    if len(offsets) == len(send.values) and offsets[-1] - offsets[0] >= len(offsets):
        report.note("int-send-skip")
