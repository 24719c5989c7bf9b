"""The invariants of one run, each a small class that says when it looks and at what. All raise `Violation`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from replog.messages import Fetched, Produced
from replog.model import ACKS_ALL, Address, PartitionState
from replog.partition.partition import Partition
from replog.records import RecordBatch, read_header
from replog.testing.simulator.ledger import Copy, Ledger, Violation

__all__ = ["INVARIANTS", "Asked", "CandidatesAreComplete", "Invariant"]

Copies = Mapping[int, Copy]


class Invariant:
    """A rule that holds after every event. The methods are the occasions to look; most rules look on one or two."""

    name = ""

    def changed(self, ledger: Ledger, copy: Copy, partition: Partition) -> None:
        """A live copy, its mirror already up to date, differs in something from when it was looked at last."""

    def led(self, ledger: Ledger, copy: Copy, partition: Partition) -> None:
        """A copy has begun to lead an epoch."""

    def committed(self, ledger: Ledger, copies: Copies, copy: Copy, partition: Partition) -> None:
        """A leader's high watermark has moved."""

    def stored(self, ledger: Ledger, copies: Copies, before: PartitionState | None) -> None:
        """The store has another state of the partition."""

    def sent(self, ledger: Ledger, partition: Partition, to: Address, message: Any, asked: Mapping[int, Asked]) -> None:
        """A broker answers a client about one partition. `message` is the entry, `asked` what the client had asked for."""

    def fail(self, ledger: Ledger, why: str) -> None:
        """Report a violation."""
        raise Violation(self.name, f"partition {ledger.identity.partition}: {why}")


class Asked:
    """One entry of a Produce, as a client sent it."""

    __slots__ = ("acks", "count", "ledger", "payload_crc", "producer_epoch", "producer_id", "sequence")

    def __init__(self, ledger: Ledger, acks: int, body: bytes) -> None:
        batch = RecordBatch(body)
        self.ledger = ledger
        self.acks = acks
        self.count = batch.count
        self.payload_crc = batch.payload_crc
        self.producer_id = batch.producer_id
        self.producer_epoch = batch.producer_epoch
        self.sequence = batch.base_sequence


class CommittedNeverChanges(Invariant):
    """What one leader has committed, no other may have committed differently."""

    name = "S1"

    def committed(self, ledger: Ledger, copies: Copies, copy: Copy, partition: Partition) -> None:
        """Compare what is known, then take in what is new."""
        watermark = partition.high_watermark
        why = copy.mismatch(ledger, min(watermark, ledger.end))
        if why is not None:
            self.fail(ledger, why)
        if watermark > ledger.end:
            ledger.entries += copy.entries[ledger.end : watermark]


class LeadersAreComplete(Invariant):
    """A replica that begins to lead the stored epoch holds everything committed (leader completeness)."""

    name = "S2"

    def led(self, ledger: Ledger, copy: Copy, partition: Partition) -> None:
        """Only the newest leader counts: an older one has been replaced already and will find out."""
        if ledger.state is not None and ledger.state.leader_epoch == partition.leader_epoch:
            why = copy.mismatch(ledger, ledger.end)
            if why is not None:
                self.fail(ledger, f"the leader of epoch {partition.leader_epoch}: {why}")


class CandidatesAreComplete(Invariant):
    """Every member of the stored ISR and ELR holds everything committed, or is known to have lost it."""

    name = "S3"

    def committed(self, ledger: Ledger, copies: Copies, copy: Copy, partition: Partition) -> None:
        """More has been committed."""
        self._check(ledger, copies)

    def stored(self, ledger: Ledger, copies: Copies, before: PartitionState | None) -> None:
        """Other candidates."""
        self._check(ledger, copies)

    def changed(self, ledger: Ledger, copy: Copy, partition: Partition) -> None:
        """The copy itself may have been cut."""
        state = ledger.state
        if state is not None and copy.matched < ledger.end and copy.broker in (*state.isr, *state.elr):
            self._check(ledger, {copy.broker: copy})

    def _check(self, ledger: Ledger, copies: Copies) -> None:
        state = ledger.state
        if state is None:
            return
        for broker in (*state.isr, *state.elr):
            copy = copies.get(broker)
            if copy is not None and not copy.lossy:
                why = copy.mismatch(ledger, ledger.end)
                if why is not None:
                    self.fail(ledger, f"ISR {state.isr}, ELR {state.elr} of epoch {state.leader_epoch}: {why}")


class EnoughAreCounted(Invariant):
    """The high watermark counts at least the stored ISR, and never moves below min ISR (KIP-497)."""

    name = "S4"

    def committed(self, ledger: Ledger, copies: Copies, copy: Copy, partition: Partition) -> None:
        """Only of the leader of the stored epoch: the ISR of a later epoch is not this leader's business."""
        leading, state = partition.leading, ledger.state
        assert leading is not None
        if len(leading.isr.isr) < ledger.min_isr:
            self.fail(ledger, f"broker {copy.broker} commits with ISR {leading.isr.isr} below min ISR {ledger.min_isr}")
        if state is not None and state.leader_epoch == partition.leader_epoch:
            counted = {copy.broker, *(replica.broker_id for replica in leading.counted)}
            if not counted.issuperset(state.isr):
                self.fail(ledger, f"broker {copy.broker} counts {sorted(counted)}, the stored ISR is {state.isr}")


class OneLeaderPerEpoch(Invariant):
    """One process leads a leader epoch, once: a restart costs an epoch."""

    name = "S5"

    def led(self, ledger: Ledger, copy: Copy, partition: Partition) -> None:
        """The first one to lead it is the only one."""
        mine = (copy.broker, copy.life)
        other = ledger.leaders.setdefault(partition.leader_epoch, mine)
        if other != mine:
            self.fail(ledger, f"epoch {partition.leader_epoch} is led by (broker, life) {other} and by {mine}")


class EpochsNeverGoBack(Invariant):
    """Leader epochs and partition epochs only grow, on a broker and in the store."""

    name = "S6"

    def changed(self, ledger: Ledger, copy: Copy, partition: Partition) -> None:
        """Within one life; the next one starts with nothing."""
        if partition.leader_epoch < copy.leader_epoch or partition.partition_epoch < copy.partition_epoch:
            seen = (copy.leader_epoch, copy.partition_epoch)
            self.fail(ledger, f"broker {copy.broker} goes from epochs {seen} to {(partition.leader_epoch, partition.partition_epoch)}")

    def stored(self, ledger: Ledger, copies: Copies, before: PartitionState | None) -> None:
        """In the store."""
        state = ledger.state
        assert state is not None
        if before is not None and (state.leader_epoch < before.leader_epoch or state.controller_epoch < before.controller_epoch):
            self.fail(ledger, f"the store goes from {before} to {state}")


class OffsetsAreInOrder(Invariant):
    """start <= HW <= LEO, flushed end <= LEO, epochs strictly increasing, one role, the leader in its own ISR."""

    name = "S7"

    def changed(self, ledger: Ledger, copy: Copy, partition: Partition) -> None:
        """What the partition itself asserts."""
        try:
            partition.check()
        except AssertionError as problem:
            self.fail(ledger, str(problem))


class LeadersNeverGoBack(Invariant):
    """The high watermark of a leader never goes back within an epoch."""

    name = "S8"

    def changed(self, ledger: Ledger, copy: Copy, partition: Partition) -> None:
        """Against the last look, if that was the same leadership."""
        same = partition.leading is not None and copy.led == (copy.life, partition.leader_epoch)
        if same and partition.high_watermark < copy.high_watermark:
            self.fail(ledger, f"leader {copy.broker} goes from HW {copy.high_watermark} to {partition.high_watermark}")


class LogsMatch(Invariant):
    """Below its own high watermark every copy equals every other: all equal the ledger."""

    name = "S9"

    def changed(self, ledger: Ledger, copy: Copy, partition: Partition) -> None:
        """A leader's watermark is what defines the ledger: that is S1."""
        if partition.leading is None:
            if partition.high_watermark > ledger.end:
                self.fail(ledger, f"follower {copy.broker} has HW {partition.high_watermark}, nobody committed beyond {ledger.end}")
            why = copy.mismatch(ledger, partition.high_watermark)
            if why is not None:
                self.fail(ledger, f"follower with HW {partition.high_watermark}: {why}")


class AcknowledgedIsCommitted(Invariant):
    """acks=all is answered with success only below the high watermark, and for the very records that were sent."""

    name = "S12"

    def sent(self, ledger: Ledger, partition: Partition, to: Address, message: Any, asked: Mapping[int, Asked]) -> None:
        """Look at the answers of success."""
        if not isinstance(message, Produced):
            return
        for entry in message.entries:
            question = asked.get(entry.request)
            if entry.error or question is None or question.ledger is not ledger or question.acks != ACKS_ALL:
                continue
            base, end = entry.base_offset, entry.base_offset + question.count
            if end > partition.high_watermark or end > ledger.end:
                self.fail(ledger, f"broker {partition.broker_id} confirms [{base}, {end}) with HW {partition.high_watermark}")
            for n, found in enumerate(ledger.entries[base:end]):
                mine = (question.producer_id, question.producer_epoch, question.sequence + n, question.payload_crc)
                if (found.producer_id, found.producer_epoch, found.sequence, found.payload_crc) != mine:
                    self.fail(ledger, f"broker {partition.broker_id} confirms other records at {base + n} than were sent")


class ReadersSeeCommitted(Invariant):
    """No answer to a client holds a record at or above the high watermark."""

    name = "S13"

    def sent(self, ledger: Ledger, partition: Partition, to: Address, message: Any, asked: Mapping[int, Asked]) -> None:
        """Look at every batch of a fetch answer."""
        if not isinstance(message, Fetched):
            return
        for entry in message.entries:
            if entry.partition != ledger.identity:
                continue
            if entry.high_watermark > ledger.end:
                self.fail(ledger, f"broker {partition.broker_id} tells a client HW {entry.high_watermark}, committed is {ledger.end}")
            for piece in entry.slices:
                view, at = piece.view(), 0
                while at < len(view):
                    header = read_header(view, at)
                    if header.end_offset > ledger.end or ledger.entries[header.base_offset].header_crc != header.header_crc:
                        self.fail(ledger, f"broker {partition.broker_id} shows a client uncommitted offset {header.base_offset}")
                    at += header.length


class StatesAreSound(Invariant):
    """A stored state follows from the one before by one step: version, ISR, ELR, leader."""

    name = "S15"

    def stored(self, ledger: Ledger, copies: Copies, before: PartitionState | None) -> None:
        """Compare with the state before."""
        state = ledger.state
        assert state is not None
        if state.partition_epoch != (0 if before is None else before.partition_epoch + 1):
            self.fail(ledger, f"partition epoch {state.partition_epoch} after {before}")
        if not set(state.isr) <= set(ledger.replicas) or not set(state.elr) <= set(ledger.replicas):
            self.fail(ledger, f"ISR {state.isr} and ELR {state.elr} of replicas {ledger.replicas}")
        if set(state.isr) & set(state.elr) or (state.leader is not None and state.leader not in state.isr):
            self.fail(ledger, f"leader {state.leader}, ISR {state.isr}, ELR {state.elr}")
        if before is None or state.leader == before.leader:
            return
        if state.leader_epoch != before.leader_epoch + 1:
            self.fail(ledger, f"leader {before.leader} of epoch {before.leader_epoch}, then {state.leader} of {state.leader_epoch}")
        if state.leader is not None and not state.recovering and state.leader not in (*before.isr, *before.elr):
            self.fail(ledger, f"leader {state.leader} was in neither ISR {before.isr} nor ELR {before.elr}")


class NothingTwice(Invariant):
    """Each sequence of a producer is committed once, and in order."""

    name = "S17"

    def __init__(self) -> None:
        self._seen: dict[Ledger, int] = {}

    def committed(self, ledger: Ledger, copies: Copies, copy: Copy, partition: Partition) -> None:
        """Look at what has been committed since the last time."""
        for offset in range(self._seen.get(ledger, 0), ledger.end):
            entry = ledger.entries[offset]
            if entry.producer_id < 0:
                continue
            writer = (entry.producer_id, entry.producer_epoch)
            expected = ledger.sequences.get(writer, 0)
            if entry.sequence != expected:
                self.fail(ledger, f"offset {offset} has sequence {entry.sequence} of producer epoch {writer[1]}, expected is {expected}")
            ledger.sequences[writer] = entry.sequence + 1
        self._seen[ledger] = ledger.end


INVARIANTS: tuple[type[Invariant], ...] = (
    OffsetsAreInOrder,
    EpochsNeverGoBack,
    OneLeaderPerEpoch,
    LeadersAreComplete,
    LeadersNeverGoBack,
    EnoughAreCounted,
    CommittedNeverChanges,
    NothingTwice,
    LogsMatch,
    CandidatesAreComplete,
    AcknowledgedIsCommitted,
    ReadersSeeCommitted,
    StatesAreSound,
)
"""In the order they look: S1 extends the ledger, and whatever compares with it comes after."""
