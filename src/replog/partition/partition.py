"""A partition on one broker: leader, follower or idle; the one place where its commands, appends and reads meet.

>>> from replog.config import BrokerConfig, TopicConfig
>>> from replog.log.memory import MemoryLog
>>> from replog.messages import FetchEntry, PartitionNotice
>>> from replog.model import ACKS_ALL, Assignment, BrokerInfo, PartitionId, PartitionState
>>> from replog.partition.replica import Contact
>>> from replog.records import Record, RecordBatch, encode_records
>>> identity = PartitionId(bytes(16), 0, 0)
>>> brokers = {n: BrokerInfo(n, broker_epoch=n) for n in (1, 2)}
>>> partition = Partition(identity, "orders", MemoryLog(identity), broker_id=1, limits=BrokerConfig(), brokers=brokers)
>>> state = PartitionState(leader=1, leader_epoch=0, isr=(1, 2))
>>> notice = PartitionNotice(identity, "orders", state, Assignment((1, 2)), TopicConfig(min_isr=2))
>>> partition.become(notice, now_ms=0)
0
>>> batch = RecordBatch(encode_records([Record("hello")], now_ms=0))
>>> partition.append(batch, ACKS_ALL, now_ms=0)
Appended(error=0, base_offset=0, end_offset=1)
>>> partition.high_watermark                                    # broker 2 has not fetched it yet
0
>>> partition.acknowledge(2, 2, FetchEntry(identity, 0, 1, 0, 1000), Contact(), now_ms=5)
(0, None)
>>> partition.high_watermark                                    # its next fetch offset is its acknowledgement
1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from replog.config import BrokerConfig, TopicConfig
from replog.errors import Code, LogCorrupt
from replog.marks import version_of
from replog.messages import AlterIsrResult, FetchedEntry, FetchEntry, PartitionNotice
from replog.model import ACKS_ALL, Assignment, BrokerInfo, PartitionId, PartitionState
from replog.partition.following import Followed, Following, whole_below
from replog.partition.isr import IsrChange
from replog.partition.leading import Leading
from replog.partition.repeating import are_said, first_said, mentions
from replog.partition.replica import Contact
from replog.partition.sequences import judge_sequence, judge_version, start_of
from replog.ports import EpochEnd, FlushToken, Log, Slice
from replog.records import GROUP_OPEN_BIT, RecordBatch

__all__ = ["Appended", "Partition"]


class Appended(NamedTuple):
    """What became of an append: with error 0 it is in the leader's log (or was already, for a duplicate) at these offsets."""

    error: int
    base_offset: int = -1
    end_offset: int = -1


class Partition:
    """One copy of one partition and its role. Not thread-safe: its broker calls it, and nobody else."""

    __slots__ = (
        "assignment",
        "broker_id",
        "brokers",
        "config",
        "failed",
        "following",
        "high_watermark",
        "identity",
        "in_sync",
        "leader",
        "leader_epoch",
        "leading",
        "limits",
        "log",
        "partition_epoch",
        "readers",
        "roomless",
        "sessions",
        "topic",
        "waiting",
    )

    def __init__(
        self,
        identity: PartitionId,
        topic: str,
        log: Log,
        *,
        broker_id: int,
        limits: BrokerConfig,
        brokers: Mapping[int, BrokerInfo],
        high_watermark: int = 0,
    ) -> None:
        """An idle copy. `high_watermark` is the last checkpoint: advisory, hence clamped to what the log holds (P-50)."""
        self.identity = identity
        self.topic = topic
        self.log = log
        self.broker_id = broker_id
        self.limits = limits
        self.brokers = brokers
        self.high_watermark = whole_below(log, min(max(high_watermark, log.start_offset), log.end_offset))
        self.config: TopicConfig = log.config
        self.assignment: Assignment | None = None
        self.leader: int | None = None
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.in_sync = False
        """Whether the newest notice had this copy in the ISR."""
        self.leading: Leading | None = None
        self.following: Following | None = None
        self.failed: str | None = None
        """Why this copy takes no part any more (an I/O error); None while it does."""
        self.roomless = False
        """A full disk keeps this copy from what it has to cut before it leads: idle until there is room, or until another copy leads."""
        self.sessions: Any = ()
        """Fetch sessions of followers that wait for news of this partition, in the order of coming; kept by the broker."""
        self.readers: Any = ()
        """The same of clients, of whom there may be very many."""
        self.waiting: Any = None
        """Appends that wait for the high watermark; kept by the broker."""

    # ------------------------------------------------------------------------------------------------------- commands

    def become(self, notice: PartitionNotice, now_ms: int) -> int:
        """Take the state the controller has stored. Returns an error code; an older state changes nothing (M06, P-62).

        Roles follow from epochs, not from what this copy believes it is: a grown leader epoch always starts a new
        leadership or followership, even under the same leader (S15, S16, KAFKA-7164). Raises what `Log.truncate_to` raises; after LogFull
        this copy is idle, and the same state again is another try.
        """
        error = self.refusal(notice)
        if error:
            return error
        state = notice.state
        grew = state.leader_epoch > self.leader_epoch
        self.config = self.log.config = notice.config
        self.assignment = notice.assignment
        self.leader = state.leader
        self.in_sync = self.broker_id in state.isr
        self.leader_epoch = state.leader_epoch
        newer = state.partition_epoch > self.partition_epoch
        self.partition_epoch = state.partition_epoch
        if not self._is_leader(notice):
            self.leading = None
            if self.roomless and state.leader is None:
                self._cut_unfinished()  # first: it may be the only one to elect, and would have no room again, and again
            self.roomless = False
            if grew or self.following is None or self.following.leader != state.leader:
                self.following = Following(state.leader, state.leader_epoch, self.log, self.limits)
        elif grew or self.leading is None:
            self._lead(state, notice, now_ms)
        elif newer:
            self.leading.update(state, notice.assignment, notice.config)
            self._advance(now_ms)
        elif (notice.config, notice.assignment) != (self.leading.config, self.leading.assignment):
            self.leading.reconfigure(state, notice.assignment, notice.config)
            self._advance(now_ms)
        return Code.NONE

    def stand_down(self, notice: PartitionNotice) -> bool:
        """Take the epochs of a notice for which there is no room now, and nothing else of it: this copy leads and follows nothing until the
        notice comes again. False, and nothing has changed, if that is no later leader epoch: within one nobody else can have been elected,
        and whoever stops leading it cannot begin again (M13).
        """
        state = notice.state
        if self.failed is not None or state.leader_epoch <= self.leader_epoch:
            return False
        self.leader, self.leader_epoch, self.partition_epoch = state.leader, state.leader_epoch, state.partition_epoch
        self.in_sync = self.broker_id in state.isr
        self.leading = self.following = None
        return True

    def refusal(self, notice: PartitionNotice) -> int:
        """Why `become` would refuse this notice; 0 if it would not."""
        state = notice.state
        if self.failed is not None:
            return Code.STORAGE_ERROR
        if state.leader_epoch < self.leader_epoch:
            return Code.FENCED_LEADER_EPOCH
        grew = state.leader_epoch > self.leader_epoch
        if state.partition_epoch < self.partition_epoch and not grew:  # it counts anew in a node that was removed and put back by hand
            return Code.INVALID_UPDATE_VERSION
        if self._is_leader(notice) and self.leading is None and not self._may_lead(state):
            return Code.FENCED_LEADER_EPOCH
        return Code.NONE

    def _is_leader(self, notice: PartitionNotice) -> bool:
        return notice.state.leader == self.broker_id and self.broker_id in notice.assignment.replicas

    def _may_lead(self, state: PartitionState) -> bool:
        """A restart must cost a leader epoch: a log that already has records of this epoch led it in an earlier life (M13)."""
        return self.log.last_epoch < state.leader_epoch

    def _lead(self, state: PartitionState, notice: PartitionNotice, now_ms: int) -> None:
        self.leading = self.following = None
        self._cut_unfinished()
        self.leading = Leading(
            self.broker_id,
            self.log,
            state=state,
            assignment=notice.assignment,
            config=notice.config,
            limits=self.limits,
            brokers=self.brokers,
            high_watermark=self.high_watermark,
            now_ms=now_ms,
        )
        self._advance(now_ms)

    def _cut_unfinished(self) -> None:
        """What a publication left unfinished has not been committed, and nobody will finish it: cut before the epoch begins, for within an
        epoch a leader never cuts."""
        whole = self.log.group_floor(self.log.end_offset)
        if whole < self.high_watermark:
            raise LogCorrupt(f"{self!r}: a group that begins at {whole}, below the high watermark")
        if whole < self.log.end_offset:
            self.roomless = True
            self.log.truncate_to(whole)
        self.roomless = False

    def fail(self, reason: str) -> None:
        """An I/O error ended this copy: it leads and follows nothing until its broker is started again (P-54)."""
        self.failed = reason
        self.leading = None
        self.following = None

    @property
    def role(self) -> str:
        """"leader", "follower" or "idle"."""
        return "leader" if self.leading is not None else "follower" if self.following is not None else "idle"

    # --------------------------------------------------------------------------------------------------------- leader

    def check_epoch(self, leader_epoch: int) -> int:
        """Fence both ways (KIP-320): an older epoch is refused as fenced, a newer one because this copy has yet to hear of it.

        -1 is a client that does not know the epoch.
        """
        if leader_epoch in (self.leader_epoch, -1):
            return Code.NONE
        return Code.FENCED_LEADER_EPOCH if leader_epoch < self.leader_epoch else Code.UNKNOWN_LEADER_EPOCH

    def append(self, batch: RecordBatch, acks: int, now_ms: int) -> Appended:
        """Append a producer's batch, whose body has been checked, as leader. Raises what `Log.append` raises.

        One that bears the mark of a writer is appended once per version.
        """
        leading = self.leading
        if leading is None:
            return Appended(Code.STORAGE_ERROR if self.failed else Code.NOT_LEADER_OR_FOLLOWER)
        if acks == ACKS_ALL and not leading.has_enough_replicas:
            return Appended(Code.NOT_ENOUGH_REPLICAS)
        if leading.group_open:
            return Appended(Code.QUOTA_EXCEEDED)  # nothing comes between the batches of a group
        log = self.log
        if batch.extension_bytes:
            if (known := self.published(batch.producer_id, version_of(batch))) is not None:
                return known
        elif batch.producer_id >= 0:
            error, original = judge_sequence(log, batch)
            if original is not None:
                return Appended(Code.NONE, original.base_offset, original.base_offset + batch.count)
            if error:
                return Appended(error)
        base = log.end_offset
        batch.stamp(self.identity, base, self.leader_epoch)
        log.append(batch)
        leading.appended(base, now_ms)
        if not leading.counted and not leading.durable:
            self._advance(now_ms)
        return Appended(Code.NONE, base, base + batch.count)

    def knows(self, batch: RecordBatch) -> bool:
        """Whether the work of a marked batch is here, or later work of its writer."""
        return judge_version(self.log, batch.producer_id, version_of(batch)) is not None

    def published(self, writer: int, version: int) -> Appended | None:
        """Where this work of a writer is, if it is here, as its leader; None if it is new."""
        written = judge_version(self.log, writer, version)
        if written is None:
            return None
        base = start_of(self.log, written) if written.base_sequence == version else -1  # of a later version
        return Appended(Code.NONE, base, written.last_sequence)

    def publish(self, batches: Sequence[RecordBatch], now_ms: int) -> None:
        """Append the next batches of a group, as leader. Raises what `Log.append_many` raises; a prefix of them may be stored then."""
        leading, log = self.leading, self.log
        assert leading is not None
        base = end = log.end_offset
        for batch in batches:
            batch.stamp(self.identity, end, self.leader_epoch)
            end += batch.count
        try:
            log.append_many(batches)
        finally:
            stored = [batch for batch in batches if batch.end_offset <= log.end_offset]
            if stored:
                leading.published(base, is_last=not stored[-1].attributes & GROUP_OPEN_BIT)
                leading.appended(base, now_ms)
        if not leading.counted and not leading.durable:
            self._advance(now_ms)

    def retain(self, wall_ms: int, now_ms: int) -> bool:
        """Apply retention. False if it has to wait, because a writer's last work would be forgotten: the leader says it again first, and
        goes on once that is committed; its followers trim with it. Raises what `Log.retain` and `Log.append_many` raise, and LogCorrupt.
        """
        log, leading = self.log, self.leading
        start = log.retained_start(wall_ms, self.high_watermark)
        # What is below the start already (an unclean election can leave it so) nobody can say again.
        known = log.producers.marked_outside(start, self.high_watermark)
        outside = [writer for writer in known if writer.recent[-1].base_offset >= log.start_offset]
        if not outside:
            log.retain(wall_ms, self.high_watermark)
        elif are_said(outside, start):
            log.trim_to(outside[0].recent[-1].base_offset)  # so much stays, however old
            return True
        else:
            log.retain(wall_ms, first_said(outside, self.high_watermark))  # so much forgets nobody, and takes no room to say
            if leading is not None and not leading.group_open and (again := mentions(log, outside, start)):
                self.publish(again, now_ms)
        return not outside

    def acknowledge(
        self, replica_id: int, broker_epoch: int, entry: FetchEntry, contact: Contact, now_ms: int
    ) -> tuple[int, EpochEnd | None]:
        """A follower's fetch has come: check it, and count it as its acknowledgement. See `Leading.acknowledge`."""
        leading = self.leading
        if leading is None:
            return (self.check_epoch(entry.leader_epoch) or Code.NOT_LEADER_OR_FOLLOWER), None
        if entry.leader_epoch != self.leader_epoch:
            return (self.check_epoch(entry.leader_epoch) or Code.UNKNOWN_LEADER_EPOCH), None
        answer = leading.acknowledge(replica_id, broker_epoch, entry, contact, now_ms)
        if answer[0] == 0 and answer[1] is None:
            self._advance(now_ms)
        return answer

    def acknowledge_flush(self, replica_id: int, broker_epoch: int, leader_epoch: int, flushed_end: int, now_ms: int) -> None:
        """A follower's flushed end has come (flush="ack")."""
        if (
            self.leading is not None
            and leader_epoch == self.leader_epoch
            and self.leading.acknowledge_flush(replica_id, broker_epoch, flushed_end, now_ms)
        ):
            self._advance(now_ms)

    def flushed(self, token: FlushToken, now_ms: int) -> None:
        """A flush of the own log has run. Raises LogDamaged if it failed, LogFull if it is to be tried again later."""
        self.log.flushed(token)
        if self.leading is not None and self.leading.durable:
            self._advance(now_ms)

    def look_again(self, now_ms: int) -> None:
        """Move the high watermark if what held it has ended without a message about this partition: by time, or with a broker.

        A replica that was about to join holds it, and nobody else may come to move it: who waits for it appends nothing.
        """
        if self.leading is not None:
            self._advance(now_ms)

    def _advance(self, now_ms: int) -> None:
        leading = self.leading
        assert leading is not None
        if leading.advance(now_ms):
            self.high_watermark = leading.high_watermark
            if leading.high_watermark == self.log.end_offset:
                self.log.forget_tail()

    def answered(self, proposal: IsrChange, result: AlterIsrResult, now_ms: int) -> bool:
        """The controller's answer to an ISR proposal of this leadership; True if the ISR may have changed."""
        leading = self.leading
        if leading is None or not leading.answered(proposal, result, now_ms):
            return False
        self.partition_epoch = leading.partition_epoch
        self._advance(now_ms)  # a smaller ISR may commit at once (KAFKA-13091)
        return True

    # ---------------------------------------------------------------------------------------------------------- reads

    def read_as_leader(self, offset: int, max_bytes: int) -> list[Slice]:
        """For a follower: up to the end of the log."""
        return self.log.read(offset, self.log.end_offset, max_bytes)

    def check_read(self, offset: int) -> int:
        """Whether a client may ask for `offset`: between HW and LEO there is nothing yet, beyond the LEO nothing at all (P-48)."""
        if self.leading is None and self.following is None:
            return Code.STORAGE_ERROR if self.failed else Code.REPLICA_NOT_AVAILABLE
        if offset < self.log.start_offset:
            return Code.OFFSET_OUT_OF_RANGE
        if offset > self.log.end_offset:
            return Code.OFFSET_OUT_OF_RANGE if self.leading is not None else Code.OFFSET_NOT_AVAILABLE
        return Code.NONE

    def read_committed(self, offset: int, max_bytes: int) -> tuple[list[Slice], int]:
        """For a client: below the high watermark, which is read once (KAFKA-9807, P-108). Returns (slices, that watermark)."""
        limit = self.high_watermark
        return (self.log.read(offset, limit, max_bytes) if offset < limit else []), limit

    def latest_offset(self) -> int | None:
        """The high watermark, once it is known to cover what earlier leaders committed (LESO); None until then (P-48)."""
        leading = self.leading
        if leading is None or self.high_watermark < leading.epoch_start:
            return None
        return self.high_watermark

    # ------------------------------------------------------------------------------------------------------- follower

    def take(self, entry: FetchedEntry) -> Followed:
        """Apply the leader's answer. Raises what `Log.append_many` raises."""
        if self.following is None:
            return Followed.DROPPED
        try:
            outcome, self.high_watermark = self.following.take(entry, self.high_watermark)
        finally:
            if self.high_watermark < self.log.start_offset:  # trimmed with the leader; then a full disk refused the records
                self.high_watermark = self.log.start_offset
        return outcome

    # ---------------------------------------------------------------------------------------------------------- checks

    def check(self) -> None:
        """The invariants of one copy (S7, S10); called by tests and the simulator after every step."""
        log = self.log
        assert log.start_offset <= self.high_watermark <= log.end_offset, f"{self}: start <= HW <= LEO"
        assert log.flushed_end <= log.end_offset, f"{self}: flushed end <= LEO"
        entries = log.epochs.entries()
        assert all(a.epoch < b.epoch and a.start < b.start for a, b in pairwise(entries)), f"{self}: epochs {entries}"
        assert self.leading is None or self.following is None, f"{self}: two roles"
        if self.leading is not None:
            assert self.leader == self.broker_id
            assert self.leading.high_watermark == self.high_watermark
            assert self.broker_id in self.leading.isr.maximal_isr, f"{self}: leader outside its ISR {self.leading.isr}"

    def __repr__(self) -> str:
        log = self.log
        return (
            f"Partition({self.topic}-{self.identity.partition} on {self.broker_id}: {self.role}, epoch {self.leader_epoch}, "
            f"[{log.start_offset}, {log.end_offset}), HW {self.high_watermark})"
        )
