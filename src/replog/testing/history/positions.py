"""How readers move: never back, never over anything, never past the high watermark."""

from __future__ import annotations

from bisect import bisect_left

from attrs import frozen

from replog.testing.history.events import Poll
from replog.testing.history.evidence import Evidence
from replog.testing.history.report import Report

__all__ = ["follow"]


@frozen
class _Hole:
    """Offsets [start, end) that a reader passed over."""

    start: int
    end: int
    poll: Poll
    inside: bool
    """Of one answer, behind a record of it: retention does not explain that."""


class _Reader:
    """Where a process stands: the end of its last answer, and when that came."""

    __slots__ = ("completed", "end")

    def __init__(self) -> None:
        self.end: int | None = None
        self.completed = 0


def follow(evidence: Evidence, polls: list[Poll], report: Report) -> None:
    """Judge the polls of one partition (all of them, as they began)."""
    readers: dict[str, _Reader] = {}
    holes: list[_Hole] = []
    for poll in polls:
        reader = readers.get(poll.process)
        if reader is None or poll.fresh:
            reader = readers[poll.process] = _Reader()
        if poll.outcome != "ok":
            continue  # it gave nothing, and the position stayed
        at = poll.position
        # Of two polls under way together the second was not asked to follow on the first.
        if reader.end is not None and reader.completed < poll.invoked:
            if at is None:
                at = reader.end
            elif at < reader.end:
                moved = f"{poll.process} asked for offset {at} {poll.span()}, after it had read up to offset {reader.end - 1}"
                report.add("nonmonotonic-poll", evidence.key, moved)
            elif at > reader.end:
                holes.append(_Hole(reader.end, at, poll, False))
        end = _inside(evidence, poll, at, holes, report)
        together = reader.end is not None and reader.completed >= poll.invoked
        reader.end = max(reader.end or 0, end or 0) if together else end
        reader.completed = max(reader.completed, poll.completed)
    if holes:
        _judge(evidence, holes, report)


def _inside(evidence: Evidence, poll: Poll, at: int | None, holes: list[_Hole], report: Report) -> int | None:
    """Judge one answer that is to start at `at`; returns where the next one should."""
    found = len(holes)
    back: tuple[int, int] | None = None
    end = at
    for offset, _ in poll.records:
        if offset != end:
            if end is not None and offset < end:
                back = back or (offset, end)
                continue
            if end is not None:
                holes.append(_Hole(end, offset, poll, offset != poll.records[0][0]))
            end = offset
        end += 1
    if back is not None:
        del holes[found:]
        text = f"{poll.process} was given offset {back[0]} {poll.span()} where {back[1]} was next"
        report.add("nonmonotonic-poll", evidence.key, text)
    high_watermark = poll.high_watermark
    if high_watermark is not None and poll.records and end is not None and end > high_watermark:
        above = [offset for offset, _ in poll.records if offset >= high_watermark]
        if above:
            text = f"{poll.process} was given offset {above[0]} {poll.span()} with a high watermark of {high_watermark}"
            report.add("uncommitted-read", evidence.key, text)
    return end


def _judge(evidence: Evidence, holes: list[_Hole], report: Report) -> None:
    """A hole is a skip if somebody read what is in it, a lost write if somebody was only told of it, else a gap."""
    seen = sorted(evidence.seen)
    unread = sorted(evidence.unread)
    for hole in holes:
        start = hole.start if hole.inside else max(hole.start, evidence.start(hole.poll.completed))
        if start >= hole.end:
            continue
        passed = f"{hole.poll.process} went from offset {hole.start} to {hole.end} {hole.poll.span()}"
        first = bisect_left(seen, start)
        if first < len(seen) and seen[first] < hole.end:
            offset = seen[first]
            reader = evidence.reader[offset]
            known = f"{evidence.seen[offset]!r} at offset {offset} was read by {reader.process} {reader.span()}"
            report.add("poll-skip", evidence.key, f"{passed}; {known}")
            continue
        told = unread[bisect_left(unread, start) : bisect_left(unread, hole.end)]
        for offset in told:
            value = evidence.unread[offset]
            if value not in evidence.lost:
                evidence.lost.add(value)
                send = evidence.sender[value]
                text = f"{send.process} was told {send.span()} that {value!r} is at offset {offset}; {passed}, and nobody ever read it"
                report.add("lost-write", evidence.key, text)
        if not told and not evidence.controls.issuperset(range(start, hole.end)):
            report.add("offset-gap", evidence.key, f"{passed}; nobody knows a record in between")
