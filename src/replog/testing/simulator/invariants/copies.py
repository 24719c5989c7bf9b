"""What holds within one copy, and between any two: offsets, epochs, matching logs."""

from __future__ import annotations

from replog.partition.partition import Partition
from replog.records import BatchHeader
from replog.testing.simulator.invariants.base import Invariant
from replog.testing.simulator.ledger import Copy, Ledger

__all__ = [
    "EpochTablesFollow",
    "FollowersBelieveCommitted",
    "LogsAreDense",
    "LogsMatch",
    "OffsetsAreInOrder",
]


class OffsetsAreInOrder(Invariant):
    """start <= HW <= LEO, flushed end <= LEO, one role, the leader in its own ISR."""

    name = "S7"
    source = "Kafka UnifiedLog and Partition; KAFKA-9491"
    protocol = ("I10", "I8")

    def changed(self, ledger: Ledger, copy: Copy, partition: Partition) -> None:
        """One copy by itself."""
        log, leading = partition.log, partition.leading
        if not log.start_offset <= partition.high_watermark <= log.end_offset or log.flushed_end > log.end_offset:
            ends = f"start {log.start_offset}, HW {partition.high_watermark}, flushed {log.flushed_end}, end {log.end_offset}"
            self.fail(ledger, f"broker {copy.broker} has {ends}")
        if leading is not None:
            if partition.following is not None or partition.leader != partition.broker_id:
                self.fail(ledger, f"broker {copy.broker} leads, and also follows {partition.leader}")
            if partition.broker_id not in leading.isr.isr or leading.high_watermark != partition.high_watermark:
                seen = f"ISR {leading.isr.isr}, HW {leading.high_watermark}"
                self.fail(ledger, f"leader {copy.broker} with HW {partition.high_watermark} has {seen}")


class FollowersBelieveCommitted(Invariant):
    """Below its own high watermark every copy equals every other: all equal the ledger.

    Not those that have not heard of an election yet that may have lost something, or not compared their log with that of its leader.
    """

    name = "S9"
    source = "KafkaReplication.tla; KAFKA-14704"
    protocol = ("I1", "I16")

    def changed(self, ledger: Ledger, copy: Copy, partition: Partition) -> None:
        """A leader's watermark is what defines the ledger: that is S1."""
        if partition.leading is None and copy.agreed >= ledger.since:
            if copy.led == (copy.life, partition.leader_epoch):  # it led until this event, in which it may have moved once more
                ledger.hidden = max(ledger.hidden, partition.high_watermark)
            if partition.high_watermark > ledger.reach and not _is_of_a_fork(ledger, copy, partition.high_watermark):
                self.fail(ledger, f"follower {copy.broker} has HW {partition.high_watermark}, nobody committed beyond {ledger.reach}")
            why = copy.mismatch(ledger, min(partition.high_watermark, ledger.end))
            if why is not None:
                self.fail(ledger, f"follower with HW {partition.high_watermark}: {why}")


def _is_of_a_fork(ledger: Ledger, copy: Copy, watermark: int) -> bool:
    """Whether a leader of before has committed up to there what this copy has: it believes that still, as the leader of now has it, too."""
    return any(
        watermark <= fork.reach and copy.entries[fork.end - copy.first : watermark - copy.first] == fork.entries[: watermark - fork.end]
        for fork in ledger.forks
        if copy.first <= fork.end
    )


class LogsMatch(Invariant):
    """Where two copies have a batch of the same epoch at the same offset, they are equal from the beginning up to it.

    By induction: each (epoch, offset) stands for one batch and one predecessor, on whatever copy it is seen. Committed or
    not: whoever leads an epoch writes each of its offsets once.
    """

    name = "S9"
    source = "Raft, log matching; KIP-101"
    protocol = ("I1", "I2")

    def __init__(self) -> None:
        self._known: dict[Ledger, dict[tuple[int, int], tuple[int, int]]] = {}
        """(epoch, base offset) -> (crc of the header, epoch of the batch before; -1 if there is none or nobody knows)."""

    def batch(self, ledger: Ledger, copy: Copy, header: BatchHeader) -> None:
        """Compare with what is known of this place in this epoch."""
        # What lies below the start of the log is gone, and need not have been what others had there.
        before = copy.entries[-1].leader_epoch if copy.entries and copy.end > copy.start else -1
        known = self._known.setdefault(ledger, {})
        place = (header.leader_epoch, header.base_offset)
        mine = (header.header_crc, before)
        other = known.setdefault(place, mine)
        if other == mine:
            return
        where = f"offset {place[1]} of epoch {place[0]}"
        if other[0] != mine[0]:
            self.fail(ledger, f"broker {copy.broker} has other bytes at {where} than a copy seen before")
        if other[1] < 0:
            known[place] = mine
        elif before >= 0:
            self.fail(ledger, f"on broker {copy.broker} {where} follows epoch {before}, on a copy seen before epoch {other[1]}")


class EpochTablesFollow(Invariant):
    """Leader epochs never fall along a log, and the epoch table says what the batches say.

    A leader enters its epoch before it has a record of it: the last entry may stand at the very end.
    """

    name = "S10"
    source = "KIP-101, KIP-279; KAFKA-7415, KAFKA-10706"
    protocol = ("I12",)

    def batch(self, ledger: Ledger, copy: Copy, header: BatchHeader) -> None:
        """One batch after the other."""
        if copy.epochs and copy.end > copy.start and header.leader_epoch < copy.epochs[-1][0]:
            self.fail(ledger, f"broker {copy.broker}: epoch {header.leader_epoch} at {copy.end} follows {copy.epochs[-1][0]}")

    def changed(self, ledger: Ledger, copy: Copy, partition: Partition) -> None:
        """Only what the log still holds: a trimmed table begins where the log does."""
        if copy.unreadable:
            return
        log, start = partition.log, copy.start
        table = [(entry.epoch, entry.start) for entry in log.epochs.entries()]
        latest = table[-1][0] if table else -1
        if latest != log.last_epoch:
            self.fail(ledger, f"broker {copy.broker} has epoch {log.last_epoch} at hand, its table ends with {latest}")
        if table and table[-1][1] == log.end_offset:
            entered = table.pop()[0]
            if copy.epochs and entered < copy.epochs[-1][0]:
                self.fail(ledger, f"broker {copy.broker} has entered epoch {entered} after {copy.epochs[-1]}")
        if table != copy.epochs:
            held = [(epoch, max(at, start)) for n, (epoch, at) in enumerate(copy.epochs) if self._reaches(copy, n) > start]
            if table != held:
                self.fail(ledger, f"broker {copy.broker} has the epoch table {table}, its batches from {start} on say {held}")

    @staticmethod
    def _reaches(copy: Copy, n: int) -> int:
        """Where the n-th epoch of a mirror ends."""
        return copy.epochs[n + 1][1] if n + 1 < len(copy.epochs) else copy.end


class LogsAreDense(Invariant):
    """Offsets have no gaps: each batch begins where the one before ends, the first where the log starts."""

    name = "S16"
    source = "Kafka log format; V3 F"
    protocol = ("I1",)

    def batch(self, ledger: Ledger, copy: Copy, header: BatchHeader) -> None:
        """One batch after the other, and of this log (KIP-516)."""
        if header.base_offset != copy.end:
            self.fail(ledger, f"broker {copy.broker}: a batch at {header.base_offset} where {copy.end} is expected")
        if header.identity != ledger.identity:
            self.fail(ledger, f"broker {copy.broker}: a batch of log {header.identity!r} at {header.base_offset}")
