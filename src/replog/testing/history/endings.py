"""The end of a history: what was confirmed or read is still there when everything is read once more."""

from __future__ import annotations

from replog.testing.history.events import NEVER, Poll, Send
from replog.testing.history.evidence import Evidence
from replog.testing.history.report import Report

__all__ = ["judge_end"]


def judge_end(evidence: Evidence, report: Report) -> None:
    """unseen: known records at or above the end that final polls found. What they passed below it is a skip or a lost write."""
    report.note("unread", sum(value not in evidence.lost for value in evidence.unread.values()))
    finals = [poll for poll in evidence.polls if poll.final]
    if not finals:
        return
    covered = _covered(evidence, finals)
    if covered is None:
        report.note("uncovered")
        return
    end, since = covered
    start = evidence.start(NEVER)
    for send in evidence.sends:
        if send.outcome == "ok" and send.acks == "all" and send.completed < since:
            _confirmed(evidence, send, start, end, report)
    for offset in sorted(offset for offset in evidence.seen if offset >= end):
        poll = evidence.reader[offset]
        if poll.completed < since and offset >= start:
            value = evidence.seen[offset]
            read = f"{value!r} at offset {offset} was read by {poll.process} {poll.span()}"
            report.add("unseen", evidence.key, f"{read}; the log ends at {end} in the final polls")


def _confirmed(evidence: Evidence, send: Send, start: int, end: int, report: Report) -> None:
    base = evidence.claim(send)
    for number, value in enumerate(send.values):
        if value in evidence.place or value in evidence.lost:
            continue
        # Without an offset it may as well have been below the start of the log.
        if start == 0 if base is None else base + number >= max(start, end):
            where = "" if base is None else f" at offset {base + number}"
            text = f"{value!r} was confirmed to {send.process}{where} {send.span()}; the final polls, up to {end}, did not read it"
            report.add("unseen", evidence.key, text)


def _covered(evidence: Evidence, finals: list[Poll]) -> tuple[int, int] | None:
    """Where the log ends, and the rank at which the poll that says so began; None if final polls leave something out."""
    spans = []
    for poll in finals:
        first = poll.position if poll.position is not None else poll.records[0][0] if poll.records else None
        if first is not None:
            spans.append((first, max((offset for offset, _ in poll.records), default=first - 1) + 1, poll))
    spans.sort(key=lambda span: (span[0], span[1], span[2].invoked))
    end, since = evidence.start(NEVER), NEVER
    told = -1
    proven = False
    for first, last, poll in spans:
        if first > end:
            return None
        if last > end or (last == end and not poll.records):
            proven = proven and last == end
            end = last
            since = poll.invoked
        told = max(told, -1 if poll.high_watermark is None else poll.high_watermark)
        proven = proven or (not poll.records and last == end) or poll.high_watermark == end
    return (end, since) if proven and told <= end else None
