"""What is committed stays: in the ledger, on leaders, on whoever may lead next."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import Any

from replog.model import PartitionState
from replog.partition.partition import Partition
from replog.testing.simulator.invariants.base import Copies, Invariant
from replog.testing.simulator.ledger import NEVER_SEEN, Copy, Ledger

__all__ = [
    "CandidatesAreComplete",
    "CandidatesAreDurable",
    "CandidatesAreNeverCut",
    "CommittedNeverChanges",
    "EnoughAreCounted",
    "LeadersAreComplete",
    "NothingTwice",
]


class CommittedNeverChanges(Invariant):
    """What one leader has committed, no other may have committed differently."""

    name = "S1"
    source = "KafkaReplication.tla WeakIsr; KIP-101"
    protocol = ("I5",)

    def committed(self, ledger: Ledger, copies: Copies, copy: Copy, partition: Partition) -> None:
        """Compare what is known, then take in what is new."""
        watermark = partition.high_watermark
        why = copy.mismatch(ledger, min(watermark, ledger.end))
        if why is not None:
            self.fail(ledger, why)
        if watermark > ledger.end:
            if copy.first > watermark:
                self.fail(ledger, f"broker {copy.broker} has trimmed to {copy.first} what was never committed: {watermark}")
            others = _that_follow(copy, copies, partition)
            for source in (copy, *others):
                if source.end > ledger.end >= source.first and source.mismatch(ledger, ledger.end) is None:
                    ledger.entries += source.entries[ledger.end - source.first : watermark - source.first]
            if copy.first > ledger.end and not others:  # committed and trimmed in one event, with nobody else to have it
                ledger.entries += [NEVER_SEEN] * (copy.first - ledger.end) + copy.entries[: watermark - copy.first]
            ledger.hidden = watermark


def _that_follow(leader: Copy, copies: Copies, partition: Partition) -> list[Copy]:
    """Who has what a leader has committed, if its own disk does not give it back: not those with more than that in its place."""
    isr = () if partition.leading is None else partition.leading.isr.maximal_isr
    return [copies[broker] for broker in sorted(isr) if broker in copies and broker != leader.broker]


class LeadersAreComplete(Invariant):
    """A replica that begins to lead the stored epoch holds everything committed (leader completeness)."""

    name = "S2"
    source = "KafkaReplication.tla StrongIsr; KIP-966"
    protocol = ("I4",)

    def led(self, ledger: Ledger, copy: Copy, partition: Partition) -> None:
        """Only the newest leader counts: an older one has been replaced already and will find out."""
        if ledger.state is not None and ledger.state.leader_epoch == partition.leader_epoch:
            why = copy.mismatch(ledger, ledger.end)
            if why is not None:
                self.fail(ledger, f"the leader of epoch {partition.leader_epoch}: {why}")


def _candidates(ledger: Ledger, copies: Copies) -> Iterator[tuple[PartitionState, Copy]]:
    """The copies in the stored ISR and ELR that are not known to have lost anything, each with that state."""
    state = ledger.state
    for broker in () if state is None else (*state.isr, *state.elr):
        copy = copies.get(broker)
        if state is not None and copy is not None and not copy.lossy:
            yield state, copy


class CandidatesAreComplete(Invariant):
    """Every member of the stored ISR and ELR holds everything committed, or is known to have lost it."""

    name = "S3"
    source = "KafkaReplication.tla StrongIsr; KIP-966"
    protocol = ("I3",)

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
        for state, copy in _candidates(ledger, copies):
            why = copy.mismatch(ledger, ledger.end)
            if why is not None:
                self.fail(ledger, f"ISR {state.isr}, ELR {state.elr} of epoch {state.leader_epoch}: {why}")


class CandidatesAreDurable(Invariant):
    """Under flush="ack", what is committed is on the disk of every member of the stored ISR and ELR."""

    name = "S3"
    source = "design, section 5: an append counts once it is flushed; Redpanda on fsync and acks=all"
    protocol = ("I3", "I18")

    def __init__(self) -> None:
        self._proven: dict[Ledger, int] = {}
        """How far was committed since an election that may have lost something: its leader may not have flushed what it had of before."""

    def parted(self, ledger: Ledger) -> None:
        """It is flushed before more is committed."""
        self._proven[ledger] = 0

    def committed(self, ledger: Ledger, copies: Copies, copy: Copy, partition: Partition) -> None:
        """More has been committed."""
        if ledger in self._proven:
            self._proven[ledger] = max(self._proven[ledger], partition.high_watermark)
        if ledger.durable:
            self._check(ledger, copies)

    def stored(self, ledger: Ledger, copies: Copies, before: PartitionState | None) -> None:
        """Other candidates. After every complete copy was lost who reaches furthest may be one that was never asked to have flushed."""
        state = ledger.state
        if state is not None and state.recovering and (before is None or before.leader_epoch != state.leader_epoch):
            self._proven[ledger] = 0
        if ledger.durable:
            self._check(ledger, copies)

    def _check(self, ledger: Ledger, copies: Copies) -> None:
        end = min(ledger.end, self._proven.get(ledger, ledger.end))
        for state, copy in _candidates(ledger, copies):
            if not copy.unreadable and copy.durable < end:
                who = f"broker {copy.broker} of ISR {state.isr}, ELR {state.elr}"
                self.fail(ledger, f"{who} has flushed {copy.durable}, committed is {end}")


class CandidatesAreNeverCut(Invariant):
    """No member of the stored ISR cuts its log below what is committed, not even to fetch it again."""

    name = "S11"
    source = "KIP-101, KIP-279; KAFKA-10706"
    protocol = ("I2", "I3")

    def cut(self, ledger: Ledger, copy: Copy, offset: int) -> None:
        """Compare with the ledger."""
        state = ledger.state
        if state is not None and copy.broker in state.isr and not copy.lossy and offset < ledger.end:
            self.fail(ledger, f"broker {copy.broker} of ISR {state.isr} is cut to {offset}, committed is {ledger.end}")


class EnoughAreCounted(Invariant):
    """The high watermark counts at least the stored ISR, and never moves below min ISR."""

    name = "S4"
    source = "KIP-497, AsyncIsr.tla ValidHighWatermark; KAFKA-15583"
    protocol = ("I6", "I18")

    def committed(self, ledger: Ledger, copies: Copies, copy: Copy, partition: Partition) -> None:
        """Only of the leader of the stored epoch: the ISR of a later epoch is not this leader's business. Nor is it a commit of its own
        what it knew as a follower, from one whose copy failed in the step in which that committed."""
        leading, state = partition.leading, ledger.state
        assert leading is not None
        if partition.high_watermark <= copy.high_watermark:
            return
        min_isr = ledger.min_isrs.get(leading.partition_epoch, ledger.min_isr)
        if len(leading.isr.isr) < min_isr:
            self.fail(ledger, f"broker {copy.broker} commits with ISR {leading.isr.isr} below min ISR {min_isr}")
        if state is not None and state.leader_epoch == partition.leader_epoch:
            counted = {copy.broker, *(replica.broker_id for replica in leading.counted)}
            if not counted.issuperset(state.isr):
                self.fail(ledger, f"broker {copy.broker} counts {sorted(counted)}, the stored ISR is {state.isr}")


class NothingTwice(Invariant):
    """Each sequence of a producer is committed once, and in order, as far as logs remember.

    A log that has removed records, or forgotten producers, takes a producer it does not know as new: it cannot know what
    came before, so there may be a gap, or again what retention had removed, or what a producer did that it forgot (KIP-98).
    """

    name = "S17"
    source = "KIP-98, KIP-360"
    protocol = ("I19",)

    def __init__(self) -> None:
        self._seen: dict[Ledger, int] = {}
        self._forgetful: set[Ledger] = set()
        self._known: dict[Copy, tuple[tuple[int, int], int, frozenset[int]]] = {}
        """Of each copy: which log it was (life, generation), where that ended, and which producers it knew."""
        self._forgotten: dict[Ledger, set[int]] = {}
        """Producers that some log has forgotten, although nothing of it was cut."""
        self._offsets: dict[Ledger, dict[tuple[int, int, int], int]] = {}
        """(producer, its epoch, sequence) -> where it was committed last."""

    def changed(self, ledger: Ledger, copy: Copy, partition: Partition) -> None:
        """Whether producers may be forgotten."""
        log = partition.log
        if log.start_offset > 0 or log.producers.forgetful:
            self._forgetful.add(ledger)
        self._look_for_forgotten(ledger, copy, log)

    def _look_for_forgotten(self, ledger: Ledger, copy: Copy, log: Any) -> None:
        which = (copy.life, log.generation)
        now = frozenset(log.producers._producers or ())
        was, end, known = self._known.get(copy, (which, copy.end, now))
        if was == which and end <= copy.end:
            made_room = takewhile(lambda one: one[0] >= end, reversed(log.producers._evicted or ()))  # it may be there again
            gone = (known - now).union(producer.producer_id for _, producer in made_room)
            if gone:
                self._forgotten.setdefault(ledger, set()).update(gone)
        self._known[copy] = which, copy.end, now

    def parted(self, ledger: Ledger) -> None:
        """Of each producer what comes next is what follows on that which is left."""
        self._seen[ledger] = end = min(ledger.forks[-1].end, self._seen.get(ledger, 0))
        ledger.sequences = {
            (one.producer_id, one.producer_epoch): one.sequence + 1
            for one in ledger.entries[:end]
            if one.producer_id >= 0 and one.into < 0
        }
        self._offsets[ledger] = {key: offset for key, offset in self._offsets.get(ledger, {}).items() if offset < end}

    def committed(self, ledger: Ledger, copies: Copies, copy: Copy, partition: Partition) -> None:
        """Look at what has been committed since the last time."""
        offsets = self._offsets.setdefault(ledger, {})
        for offset in range(self._seen.get(ledger, 0), ledger.end):
            entry = ledger.entries[offset]
            if entry.producer_id < 0 or entry.into >= 0:
                continue
            writer = (entry.producer_id, entry.producer_epoch)
            expected = ledger.sequences.get(writer, 0)
            if entry.sequence != expected:
                removed = offsets.get((*writer, entry.sequence), -1) < copy.start
                forgotten = ledger in self._forgetful and (removed or writer[0] in self._forgotten.get(ledger, ()))
                if not forgotten:
                    what = f"sequence {entry.sequence} of producer epoch {writer[1]}, expected is {expected}"
                    self.fail(ledger, f"offset {offset} has {what}")
            ledger.sequences[writer] = entry.sequence + 1
            offsets[*writer, entry.sequence] = offset
        self._seen[ledger] = ledger.end
