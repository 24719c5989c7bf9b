"""What a history says about one partition: who sent which value, and which offsets readers found it at.

Readers are believed before acknowledgements: a confirmed offset counts unless a reader contradicts it. One broken answer should
make one error, so what is found to be wrong here is kept out of the rules that come after.
"""

from __future__ import annotations

from replog.testing.history.events import BadHistory, Poll, Send, Value
from replog.testing.history.recorder import History
from replog.testing.history.report import Report

__all__ = ["Evidence", "gather"]


class Evidence:
    """One partition."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.sends: list[Send] = []
        """In the order in which they began."""
        self.polls: list[Poll] = []
        """Those that were answered, in the order of their answers."""
        self.sender: dict[Value, Send] = {}
        self.seen: dict[int, Value] = {}
        """Offset -> the value that was first read there."""
        self.reader: dict[int, Poll] = {}
        """Offset -> who first read it."""
        self.place: dict[Value, int] = {}
        """Value -> the lowest offset at which it was read."""
        self.disputed: set[int] = set()
        """Offsets at which readers disagree."""
        self.unread: dict[int, Value] = {}
        """Offset -> the value that was confirmed there for good, where nobody read anything."""
        self.void: set[Send] = set()
        """Sends whose confirmed offset is contradicted, or was never right."""
        self.early: set[Send] = set()
        """Sends whose values were read before they began."""
        self.lost: set[Value] = set()
        """Reported as lost."""
        self.trims: list[tuple[int, int]] = []
        """(rank, start from then on), in order."""

        self.controls: set[int] = set()
        """Offsets without a record."""

    def start(self, rank: int) -> int:
        """Where the log may start for an answer that came at `rank`."""
        return max((start for since, start in self.trims if since < rank), default=0)

    def claim(self, send: Send) -> int | None:
        """The offset that a confirmation promised for good, unless it is void."""
        return None if send.outcome != "ok" or send.acks != "all" or send in self.void else send.base_offset

    def read(self, report: Report, *, idempotent: bool) -> None:
        """Take in what readers found: inconsistent offsets, duplicates, values that must not be there."""
        seen, reader, place = self.seen, self.reader, self.place
        again: list[tuple[Value, int, int]] = []
        for poll in self.polls:
            for offset, value in poll.records:
                known = seen.get(offset)
                if known == value:
                    continue
                if known is not None:
                    place.setdefault(value, offset)
                    self._dispute(report, poll, offset, value)
                    continue
                first = place.setdefault(value, offset)
                seen[offset] = value
                reader[offset] = poll
                if first != offset:
                    again.append((value, first, offset))
                    place[value] = min(first, offset)
                else:
                    self._origin(report, poll, offset, value)
        for value, first, offset in again:
            if offset in self.disputed or first in self.disputed:
                continue
            if idempotent:
                other, poll = self.reader[first], self.reader[offset]
                text = f"{value!r} is at offset {first} (read by {other.process} {other.span()})"
                report.add("duplicate", self.key, f"{text} and at offset {offset} (read by {poll.process} {poll.span()})")
            else:
                report.note("duplicate")

    def _dispute(self, report: Report, poll: Poll, offset: int, value: Value) -> None:
        self.disputed.add(offset)
        other = self.reader[offset]
        text = f"offset {offset} holds {self.seen[offset]!r} (read by {other.process} {other.span()})"
        report.add("inconsistent-offsets", self.key, f"{text} and {value!r} (read by {poll.process} {poll.span()})")

    def _origin(self, report: Report, poll: Poll, offset: int, value: Value) -> None:
        """Readers are taken in the order of their answers: if the first one could have read a value, all could."""
        send = self.sender.get(value)
        if send is not None and send.outcome != "fail" and send.invoked < poll.completed:
            return
        read = f"{value!r} at offset {offset} was read by {poll.process} {poll.span()}"
        if send is None:
            report.add("phantom-read", self.key, f"{read}; nobody sent it")
        elif send.outcome == "fail":
            report.add("aborted-read", self.key, f"{read}; {send.process} was told {send.span()} that it was not written")
        else:
            self.early.add(send)
            report.add("phantom-read", self.key, f"{read}; {send.process} sent it later, {send.span()}")

    def confirm(self, report: Report, *, idempotent: bool) -> None:
        """Compare what was confirmed for good with what readers found."""
        place, seen = self.place, self.seen
        for send in self.sends:
            base = self.claim(send)
            if base is None:
                continue
            for offset, value in enumerate(send.values, base):
                at = place.get(value)
                if at == offset:
                    continue
                there = seen.get(offset)
                if there is None and at is None:
                    other = self.unread.setdefault(offset, value)
                    if other != value:
                        self.void.add(send)
                        first = self.sender[other]
                        text = f"offset {offset} was confirmed for {other!r} (to {first.process} {first.span()})"
                        report.add("inconsistent-offsets", self.key, f"{text} and for {value!r} (to {send.process} {send.span()})")
                elif there != value:
                    self._contradicted(report, send, offset, value, idempotent=idempotent)

    def _contradicted(self, report: Report, send: Send, offset: int, value: Value, *, idempotent: bool) -> None:
        at, there = self.place.get(value), self.seen.get(offset)
        told = f"{send.process} was told {send.span()} that {value!r} is at offset {offset}"
        if there is None:
            assert at is not None
            if not idempotent:
                report.note("duplicate")
            else:
                self.void.add(send)
                report.add("duplicate", self.key, f"{told}; {self.reader[at].process} read it at offset {at}")
            return
        self.void.add(send)
        reader = self.reader[offset]
        found = f"{reader.process} read {there!r} there {reader.span()}"
        if at is None:
            self.lost.add(value)
            report.add("lost-write", self.key, f"{told}; {found}, and nobody ever read {value!r}")
        else:
            report.add("inconsistent-offsets", self.key, f"{told}; {found}, and {value!r} is at offset {at}")


def gather(history: History) -> dict[str, Evidence]:
    """The evidence of every partition, not yet judged."""
    found: dict[str, Evidence] = {}
    for send in history.sends:
        evidence = found.get(send.key)
        if evidence is None:
            evidence = found[send.key] = Evidence(send.key)
        evidence.sends.append(send)
        for value in send.values:
            if evidence.sender.setdefault(value, send) is not send:
                raise BadHistory(f"{value!r} is sent to {send.key} twice; the second time by {send.process} {send.span()}")
        if len(send.values) > 1 and len(set(send.values)) < len(send.values):
            raise BadHistory(f"{send.process} sends a value to {send.key} twice {send.span()}")
    for poll in history.polls:
        if poll.outcome == "ok":
            evidence = found.get(poll.key)
            if evidence is None:
                evidence = found[poll.key] = Evidence(poll.key)
            evidence.polls.append(poll)
    for mark in history.marks:
        if mark.f == "trim" and mark.value is not None:
            found.setdefault(mark.key, Evidence(mark.key)).trims.append((mark.rank, mark.value))
        elif mark.f == "control" and mark.value is not None:
            found.setdefault(mark.key, Evidence(mark.key)).controls.add(mark.value)
    for evidence in found.values():
        evidence.sends.sort(key=lambda send: send.invoked)
        evidence.polls.sort(key=lambda poll: poll.completed)
    return found
