"""Marks of what a run has seen: rare situations that must turn up sometimes, or the simulator does not look where bugs live."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from replog.errors import error_name
from replog.messages import AdminAnswer, AlterIsrAnswer, Fetched, LeaderAndIsrAnswer, Produced, Published
from replog.model import PartitionState
from replog.testing.simulator.kinds import KINDS

if TYPE_CHECKING:
    from replog.testing.simulator.ledger import Ledger

__all__ = ["EXPECTED", "Marks"]

EXPECTED: Final = (
    "a balanced placement is asked for",
    "a broker is drained while faults happen",
    "a broker is stopped while its logs are flushed for that",
    "a broker leaves before it may",
    "a broker leaves when it may",
    "a broker starts with loss corrupt",
    "a broker starts with loss none",
    "a broker starts with loss power",
    "a broker starts with loss process",
    "a broker starts with loss replaced",
    "a close raises what failed",
    "a consumer begins where it was told to",
    "a consumer catches up once all is healed",
    "a consumer finds that retention has taken its position",
    "a copy in the rack is read",
    "a copy is truncated",
    "a copy is truncated above the committed end",
    "a copy is truncated to nothing",
    "a driver dies between the publications of two partitions",
    "a flush finds open batches",
    "a flush raises what failed",
    "a group that has not come whole is cut",
    "a leader says again what a writer had done",
    "a leader that was named is elected while faults happen",
    "a leader that was named is not elected",
    "a leftover attempt appends",
    "a leftover driver begins",
    "a log gets another segment during an fsync",
    "a log is appended to during an fsync",
    "a log is cut during an fsync",
    "a log starts later than before",
    "a machine is replaced that could not know",
    "a machine loses power during an fsync",
    "a new partition is spread over racks",
    "a partition loses its leader and gets none",
    "a partition without a leader gets one",
    "a preferred leader is elected while faults happen",
    "a preferred leader is not elected",
    "a process is killed during an fsync",
    "a producer is closed with open batches",
    "a producer is put back to an image of it",
    "a producer that was put back is refused",
    "a producer waits for room",
    "a publication finds later work than its own",
    "a rack has two copies of a new partition",
    "a read fails with OffsetOutOfRange",
    "a reader is told that its records are gone",
    "a reassignment is asked for while faults happen",
    "a reassignment is cancelled while faults happen",
    "a reassignment is refused",
    "a record joins an open batch",
    "a replica stays eligible outside the ISR",
    "a request finds nobody there",
    "a request leaves a silent leader for the new one",
    "a time has no record yet",
    "a time is told its record",
    "a topic is created while faults happen",
    "a topic is deleted while faults happen",
    "a topic that was sought is not made",
    "a topic that was sought is one too many",
    "a topic that was sought is used",
    "a version is replayed",
    "a wish for an election is written into the store",
    "add_partitions is granted while faults happen",
    "alter_topic is granted while faults happen",
    "an attempt finds later work than its own",
    "an election loses what was committed",
    "an election may have lost something",
    "an eligible replica outside the ISR is elected",
    "an unclean election",
    "an unclean election is asked for and done",
    "an unclean election is not needed",
    "an unclean election is refused",
    "brokers are cut off",
    "brokers go away once all have recovered",
    "brokers stay out of the recovery",
    "create_topic is granted while faults happen",
    *(f"fault {kind}" for kind in sorted(KINDS)),
    "nobody may stay out",
    "remove_partitions is granted while faults happen",
    "retention leaves nothing of a log",
    "the ISR changes both ways at once",
    "the ISR grows",
    "the ISR is large enough again",
    "the ISR shrinks",
    "the ISR shrinks to one",
    "the earliest offset is told and read",
    "the latest offset is told",
    "the lead passes on",
    "the recovering state ends",
    "the same leader gets a new epoch",
    "what is put aside is done already",
    "what was put aside is gone",
    "work is appended once",
    "work is published",
)
"""What must be the case sometimes (RELIABILITY R09). Refusals and events are marks as well, under names that are made where they happen."""


class Marks:
    """Name -> how often it was hit in one run. A name is a short sentence: what was the case."""

    def __init__(self) -> None:
        self.hits: dict[str, int] = {}

    def hit(self, name: str) -> None:
        """It was the case, once more."""
        self.hits[name] = self.hits.get(name, 0) + 1

    def sent(self, message: Any) -> None:
        """Refusals that travel: each error branch that somebody hears of."""
        look = _ANSWERS.get(type(message))
        if look is not None:
            for code in look(message):
                if code:
                    self.hit(f"{type(message).__name__} says {error_name(code)}")

    def stored(self, before: PartitionState | None, state: PartitionState) -> None:
        """The store has another state of a partition."""
        if before is None:
            return
        was, now = set(before.isr), set(state.isr)
        if now < was:
            self.hit("the ISR shrinks")
        elif now > was:
            self.hit("the ISR grows")
        elif now != was:
            self.hit("the ISR changes both ways at once")
        if len(now) == 1 < len(was):
            self.hit("the ISR shrinks to one")
        if state.leader != before.leader:
            self._led(before, state)
        elif state.leader_epoch != before.leader_epoch:
            self.hit("the same leader gets a new epoch")
        if state.elr and not before.elr:
            self.hit("a replica stays eligible outside the ISR")
        if before.elr and not state.elr:
            self.hit("the ISR is large enough again")
        if state.recovering and not before.recovering:
            self.hit("an election may have lost something")
        if before.recovering and not state.recovering:
            self.hit("the recovering state ends")

    def parted(self, kind: str, lost: int) -> None:
        """An election may have lost something: so many records that were committed."""
        if kind == "unclean":
            self.hit("an unclean election")
        if lost:
            self.hit("an election loses what was committed")

    def cut(self, ledger: Ledger, offset: int, *, was_open: bool) -> None:
        """A copy loses everything from an offset on; `was_open`: what it ended with was a part of a group."""
        self.hit("a copy is truncated")
        if offset > ledger.end:
            self.hit("a copy is truncated above the committed end")
        if offset == 0:
            self.hit("a copy is truncated to nothing")
        if was_open:
            self.hit("a group that has not come whole is cut")

    def _led(self, before: PartitionState, state: PartitionState) -> None:
        if state.leader is None:
            self.hit("a partition loses its leader and gets none")
        elif before.leader is None:
            self.hit("a partition without a leader gets one")
        elif state.leader in before.elr:
            self.hit("an eligible replica outside the ISR is elected")
        else:
            self.hit("the lead passes on")


def _codes(message: Any) -> list[int]:
    return [message.error, *(entry.error for entry in message.entries)]


_ANSWERS: Final[dict[type, Callable[[Any], list[int]]]] = {
    Produced: lambda message: [entry.error for entry in message.entries],
    Published: lambda message: [message.error],
    Fetched: _codes,
    AlterIsrAnswer: _codes,
    LeaderAndIsrAnswer: lambda message: [message.error],
    AdminAnswer: lambda message: [message.error],
}
