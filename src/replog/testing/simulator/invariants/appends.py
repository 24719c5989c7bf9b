"""What an append promises that waits for the leader alone, or for nobody: there may be less of it, but nothing else."""

from __future__ import annotations

from replog.messages import ProducedEntry
from replog.model import ACKS_LEADER
from replog.partition.partition import Partition
from replog.testing.simulator.invariants.base import Asked, Copies, Invariant
from replog.testing.simulator.ledger import NEVER_SEEN, Copy, Entry, Ledger

__all__ = ["AnsweredIsStored", "NothingIsInvented"]

_Mark = tuple[int, int, int, int]
"""Producer, its epoch, sequence, crc of the payload: what a broker does not change of a record."""


def _mark(entry: Entry) -> _Mark:
    return entry.producer_id, entry.producer_epoch, entry.sequence, entry.payload_crc


def _marks(asked: Asked) -> list[_Mark]:
    """Of each record that was sent."""
    first = asked.sequence
    return [
        (asked.producer_id, asked.producer_epoch, first + n if first >= 0 else -1, asked.payload_crc) for n in range(asked.count)
    ]


class AnsweredIsStored(Invariant):
    """acks=1 is answered with the offsets at which the leader holds the very records that were sent.

    An election may take them away, and give their offsets to others. Nothing else may: what is committed there under the
    same leader epoch is what was answered.
    """

    name = "S12"
    source = "Kafka acks=1; Jepsen on Redpanda 21.10.1, inconsistent offsets"
    protocol = ("I18",)

    def __init__(self) -> None:
        self._leaders: dict[tuple[Ledger, int], Copy] = {}
        self._answered: dict[Ledger, dict[int, tuple[int, _Mark]]] = {}
        """Offset -> (leader epoch of the answer, what was sent), above what is committed."""
        self._seen: dict[Ledger, int] = {}

    def led(self, ledger: Ledger, copy: Copy, partition: Partition) -> None:
        """Its answers are compared with this copy."""
        self._leaders[ledger, copy.broker] = copy

    def produced(self, ledger: Ledger, partition: Partition | None, entry: ProducedEntry, asked: Asked) -> None:
        """One answer of success; of who leads no more nobody knows what became of the log in the same event."""
        if asked.acks != ACKS_LEADER or partition is None or partition.leading is None:
            return
        copy = self._leaders.get((ledger, partition.broker_id))
        if copy is None or copy.unreadable:
            return
        answered = self._answered.setdefault(ledger, {})
        for offset, mark in enumerate(_marks(asked), entry.base_offset):
            if copy.first <= offset < copy.end:
                found = copy.entries[offset - copy.first]
                if _mark(found) != mark:
                    self.fail(ledger, f"leader {copy.broker} answers acks=1 with offset {offset}, where it holds other records")
            elif offset >= copy.end or offset < 0:
                self.fail(ledger, f"leader {copy.broker} answers acks=1 with offset {offset}, its log ends at {copy.end}")
            if offset >= ledger.end:
                answered[offset] = partition.leader_epoch, mark

    def parted(self, ledger: Ledger) -> None:
        """What comes next is compared again."""
        self._seen[ledger] = min(ledger.forks[-1].end, self._seen.get(ledger, 0))

    def committed(self, ledger: Ledger, copies: Copies, copy: Copy, partition: Partition) -> None:
        """Compare what has been committed since the last time with what was answered."""
        answered = self._answered.get(ledger)
        for offset in range(self._seen.get(ledger, 0), ledger.end) if answered else ():
            assert answered is not None
            epoch, mark = answered.pop(offset, (-1, ()))
            entry = ledger.entries[offset]
            if mark and entry is not NEVER_SEEN and _mark(entry) != mark and partition.leader_epoch <= epoch:
                self.fail(ledger, f"offset {offset} was answered in epoch {epoch}, which commits other records there")
        self._seen[ledger] = ledger.end


class NothingIsInvented(Invariant):
    """Whatever is committed was sent, with those very bytes, by that producer, with that sequence: whatever its acks."""

    name = "S17"
    source = "Jepsen kafka workload, aborted and phantom reads; KIP-98"
    protocol = ("I19", "I21")

    def __init__(self) -> None:
        self._sent: dict[Ledger, set[_Mark]] = {}
        self._seen: dict[Ledger, int] = {}

    def asked(self, asked: Asked) -> None:
        """It may be stored from now on, by whoever got it."""
        self._sent.setdefault(asked.ledger, set()).update(_marks(asked))

    def parted(self, ledger: Ledger) -> None:
        """What comes next is looked at again."""
        self._seen[ledger] = min(ledger.forks[-1].end, self._seen.get(ledger, 0))

    def committed(self, ledger: Ledger, copies: Copies, copy: Copy, partition: Partition) -> None:
        """Look at what has been committed since the last time."""
        sent = self._sent.get(ledger, set())
        for offset in range(self._seen.get(ledger, 0), ledger.end):
            entry = ledger.entries[offset]
            if entry is not NEVER_SEEN and not entry.is_control and _mark(entry) not in sent:
                self.fail(ledger, f"nobody sent what is committed at {offset}: {entry}")
        self._seen[ledger] = ledger.end
