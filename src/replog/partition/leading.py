"""What a partition does while it leads: who follows, who is in sync, and what is committed."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Final

from replog.config import BrokerConfig, TopicConfig
from replog.errors import Code
from replog.messages import AlterIsrResult, FetchEntry
from replog.model import Assignment, BrokerInfo, PartitionState
from replog.partition.following import whole_below
from replog.partition.isr import CommitPolicy, Committed, InSyncCommit, IsrChange, IsrState, PendingExpand, PendingShrink, refusal_to_join
from replog.partition.replica import NEVER, UNKNOWN, Contact, Replica
from replog.ports import EpochEnd, Log

__all__ = ["NOT_APPLIED", "SLICES_AHEAD", "Leading"]

SLICES_AHEAD: Final = 4
"""So many slices of groups are appended before those who are in sync have the first of them."""

NOT_APPLIED: Final = (Code.INELIGIBLE_REPLICA, Code.OPERATION_NOT_ATTEMPTED)
"""Errors that prove a proposal was not stored and never will be: the only ones that let the leader take it back (PROTOCOL 4.3)."""
_NOBODY: Final[Mapping[int, int]] = {}
_IN_SYNC: Final = InSyncCommit()
"""It has no state, so that all partitions have the same one; and the same place of a group in a log that is empty."""
_NO_GROUP: Final = (0, 0)
_SUPERSEDED: Final = (
    Code.FENCED_LEADER_EPOCH,
    Code.INVALID_UPDATE_VERSION,
    Code.UNKNOWN_TOPIC_ID,
    Code.UNKNOWN_TOPIC_OR_PARTITION,
    Code.INVALID_REQUEST,
    Code.NEW_LEADER_ELECTED,
)
"""Errors after which only newer metadata helps: the proposal stays pending until that comes."""


class Leading:
    """One leadership: from one leader epoch to the next. Follower positions of an earlier one are never carried over (M08)."""

    __slots__ = (
        "assignment",
        "brokers",
        "candidates",
        "config",
        "counted",
        "durable",
        "effective_min_isr",
        "eligible",
        "epoch_start",
        "group_open",
        "has_enough_replicas",
        "high_watermark",
        "isr",
        "leader_epoch",
        "leader_id",
        "limits",
        "log",
        "newest_group",
        "partition_epoch",
        "policy",
        "recovering",
        "refused",
        "replicas",
        "retry_at_ms",
        "slices",
    )

    def __init__(
        self,
        leader_id: int,
        log: Log,
        *,
        state: PartitionState,
        assignment: Assignment,
        config: TopicConfig,
        limits: BrokerConfig,
        brokers: Mapping[int, BrokerInfo],
        high_watermark: int,
        now_ms: int,
        policy: CommitPolicy | None = None,
    ) -> None:
        """Take over at the end of `log`: the epoch enters its table before the first write (KAFKA-7415)."""
        self.leader_id = leader_id
        self.log = log
        self.leader_epoch = state.leader_epoch
        self.limits = limits
        self.brokers = brokers
        self.policy = policy or _IN_SYNC
        self.epoch_start = log.end_offset
        self.group_open = False
        """Whether the last batch is one of a group that has yet to end."""
        self.newest_group = (log.end_offset, log.end_offset) if log.end_offset else _NO_GROUP
        """Where the last group that was published here begins, and how far it has come: so that no acknowledgement has to read the log."""
        self.slices: tuple[int, ...] = ()
        """Where the last slices of that group, and of those before it, end."""
        self.high_watermark = high_watermark
        self.durable = config.flush == "ack"
        self.retry_at_ms = 0
        self.refused = _NOBODY
        """Those who were not let in, and where each one was then, the last one last. The controller may know that a copy is broken."""
        self.replicas: dict[int, Replica] = {}
        for broker_id in assignment.replicas:
            if broker_id != leader_id:
                # Members of the ISR get a full lag time to show up, others none (PROTOCOL 4.8).
                since = now_ms if broker_id in state.isr else now_ms - limits.replica_lag_ms_max - 1
                self.replicas[broker_id] = Replica(broker_id, since)
        log.enter_epoch(state.leader_epoch)
        self.update(state, assignment, config)

    def update(self, state: PartitionState, assignment: Assignment, config: TopicConfig) -> None:
        """The store has moved on within this leader epoch: whatever was proposed is decided now."""
        self._configure(state, assignment, config)
        self.partition_epoch = state.partition_epoch
        self.eligible = state.elr
        self.recovering = state.recovering
        self._settle(Committed(state.isr))

    def reconfigure(self, state: PartitionState, assignment: Assignment, config: TopicConfig) -> None:
        """Another configuration under the same partition epoch: that says nothing about what was proposed, which stays pending (4.3).

        Unless it was to let in a broker that is no replica any more: the answer that brought this epoch was faster than its
        notice. Every other assignment has another partition epoch, so that such a proposal can never be granted.
        """
        self._configure(state, assignment, config)
        isr = self.isr
        if isinstance(isr, PendingExpand) and not set(isr.joining) <= set(assignment.replicas):
            isr = Committed(isr.isr)
        self._settle(isr)

    def _configure(self, state: PartitionState, assignment: Assignment, config: TopicConfig) -> None:
        for broker_id in assignment.replicas:
            if broker_id != self.leader_id and broker_id not in self.replicas:
                self.replicas[broker_id] = Replica(broker_id, NEVER)
        for broker_id in [b for b in self.replicas if b not in assignment.replicas]:
            del self.replicas[broker_id]
        self.assignment = assignment
        self.config = config
        was_durable, self.durable = self.durable, config.flush == "ack"
        if self.durable != was_durable:
            for replica in self.replicas.values():
                if not replica.flushes:  # it fetched so far, and has yet to say how far its disk has come; or need not say it
                    replica.position = UNKNOWN if self.durable else replica.end_offset
        assert config.min_isr is not None, "min_isr is resolved when a topic is created"
        self.effective_min_isr = state.min_isr or min(config.min_isr, len(assignment.replicas))

    def _settle(self, isr: IsrState) -> None:
        """Enter an ISR state: who counts for the high watermark follows from it alone."""
        self.isr = isr
        self.has_enough_replicas = len(isr.isr) >= self.effective_min_isr
        """Whether acks=all may be promised: the committed ISR is not below min ISR."""
        maximal = isr.maximal_isr
        if isinstance(isr, Committed):
            self._refuse_no_more(isr.isr)
        self.counted = tuple([replica for broker_id, replica in self.replicas.items() if broker_id in maximal])
        self.candidates = tuple([replica for broker_id, replica in self.replicas.items() if broker_id not in maximal])

    def _refuse_no_more(self, brokers: Container[int]) -> None:
        if self.refused:
            self.refused = {b: end for b, end in self.refused.items() if b not in brokers}

    # ------------------------------------------------------------------------------------------------ acknowledgement

    def published(self, start: int, *, is_last: bool) -> None:
        """The log has grown by batches of a group, from `start` on; `is_last`: up to its end."""
        self.slices = (*self.slices, self.log.end_offset)[-SLICES_AHEAD:]
        self.newest_group = (self.newest_group[0] if self.group_open else start, self.log.end_offset)
        self.group_open = not is_last

    def followers_keep_up(self, now_ms: int) -> bool:
        """Whether more may be published: not more than SLICES_AHEAD slices, of one group or of several, before followers that count have
        them.

        Else large publications would put them out of the ISR. Who is not in sync, or has lagged for so long that it will leave, holds
        nothing; nor does who has all of it, and has yet to say how far its disk has come: without another append it never will.
        """
        if len(self.slices) < SLICES_AHEAD:
            return True
        end, high_watermark = self.log.end_offset, self.high_watermark
        return all(
            one.position >= self.slices[0] or one.is_equal(end, high_watermark) or self._lags(one, now_ms) for one in self.counted
        )

    def appended(self, old_end: int, now_ms: int) -> None:
        """The leader's log grows beyond `old_end`: followers that were equal no longer are."""
        for replica in self.counted:
            if replica.is_equal(old_end, self.high_watermark):
                replica.left_behind(now_ms)
        for replica in self.candidates:  # who has yet to flush what was committed without it was not equal: it would hold the watermark
            if replica.position == old_end:
                replica.left_behind(now_ms)

    def acknowledge(
        self, replica_id: int, broker_epoch: int, entry: FetchEntry, contact: Contact, now_ms: int
    ) -> tuple[int, EpochEnd | None]:
        """Take a follower's fetch as its acknowledgement of everything below its offset.

        Returns (error code, where the logs part or None). Neither an error nor a divergence leaves any trace: an offset
        of another history must never count (KAFKA-13141, P-10); whoever is not assigned is nobody (P-111).
        """
        replica = self.replicas.get(replica_id)
        if replica is None:
            return Code.UNKNOWN_LEADER_EPOCH, None
        known = self.brokers.get(replica_id)
        if broker_epoch < replica.broker_epoch or (known is not None and broker_epoch < known.broker_epoch):
            return Code.STALE_BROKER_EPOCH, None
        log = self.log
        offset = entry.offset
        leader_end = log.end_offset
        if offset < log.start_offset or (offset > leader_end and entry.last_epoch < 0):
            return Code.OFFSET_OUT_OF_RANGE, None
        if entry.last_epoch < 0 and offset > log.start_offset and not self._is_complete(replica_id):
            return Code.NONE, EpochEnd(self.leader_epoch, log.start_offset)  # it held records once, and nobody can say which
        if entry.last_epoch >= 0 and (entry.last_epoch != log.last_epoch or offset > leader_end):
            parted = log.epochs.end_offset_for(entry.last_epoch, leader_end)
            if parted is None:
                return Code.OFFSET_OUT_OF_RANGE, None
            if parted.epoch < entry.last_epoch or parted.end < offset or 0 < parted.end <= log.start_offset:
                return Code.NONE, parted  # also when the epochs up to its offset are gone here: then nothing of it can be compared
        if replica.broker_epoch < 0:
            replica.broker_epoch = broker_epoch  # its first fetch here: a member of the ISR keeps the time it was given
        elif broker_epoch > replica.broker_epoch:
            replica.restarted(broker_epoch)
        replica.contact = contact
        replica.end_offset = offset
        if entry.flushes and not (replica.flushes or self.durable):
            replica.position = UNKNOWN  # from now on what it has stored counts for nothing after a power cut
        replica.flushes = entry.flushes
        if not (entry.flushes or self.durable):
            replica.reached(offset, leader_end, now_ms)
        return Code.NONE, None

    def _is_complete(self, broker_id: int) -> bool:
        """In sync or eligible: it has everything that is committed. What it has trimmed is part of that; it must not fall back below."""
        return broker_id in self.isr.maximal_isr or broker_id in self.eligible

    def acknowledge_flush(self, replica_id: int, broker_epoch: int, flushed_end: int, now_ms: int) -> bool:
        """A follower has flushed up to here (flush="ack"). False if that says nothing about this leadership."""
        replica = self.replicas.get(replica_id)
        if replica is None or replica.broker_epoch != broker_epoch or replica.end_offset == UNKNOWN:
            return False
        # Never beyond what it acknowledged by fetching in this epoch: only that is known to be a prefix of this log.
        position = max(replica.position, min(flushed_end, replica.end_offset))
        if self.durable or replica.flushes:
            replica.flushed(position, self.log.end_offset, now_ms)
        return True

    def forget_life(self, broker_id: int, broker_epoch: int, now_ms: int, *, ended: bool = False) -> None:
        """This life of a broker has begun: what an earlier one acknowledged says nothing any more (P-28). `ended`: it is over, too."""
        replica = self.replicas.get(broker_id)
        if replica is not None and UNKNOWN < replica.broker_epoch < broker_epoch:
            replica.restarted(broker_epoch)
        elif replica is not None and ended and replica.broker_epoch == broker_epoch:
            replica.gone(self.log.end_offset, self.high_watermark, now_ms)

    # ------------------------------------------------------------------------------------------------- high watermark

    def advance(self, now_ms: int) -> bool:
        """Move the high watermark as far as the rules allow; True if it moved.

        It stands still while the committed ISR is below min ISR (KAFKA-15583), and never moves back. Replicas that are
        about to join hold it too: otherwise a lone leader outruns a follower for ever (PROTOCOL 4.4).
        """
        if not self.has_enough_replicas:
            return False
        log = self.log
        end = log.flushed_end if self.durable else log.end_offset
        target = self.policy.high_watermark(end, self.counted)
        if target <= self.high_watermark:
            return False
        for replica in self.candidates:
            if replica.position < target and self._is_joining(replica, now_ms):
                target = replica.position
        if target > self.high_watermark:
            target = self._whole(target)
        if target <= self.high_watermark:
            return False
        self.high_watermark = target
        return True

    def _whole(self, target: int) -> int:
        """Readers see a group whole or not at all: where the one begins that `target` is inside of, else `target`."""
        start, end = self.newest_group
        if target > start and (self.group_open or target < end):
            return start
        return target if target >= start else whole_below(self.log, target)

    def _is_joining(self, replica: Replica, now_ms: int) -> bool:
        """Caught up by time and eligible: a fenced or leaving broker must hold nobody up (KAFKA-15021), nor one that was not let in
        and has not come any further since."""
        if self.refused.get(replica.broker_id, UNKNOWN) == replica.end_offset != UNKNOWN:
            return False
        broker = self.brokers.get(replica.broker_id)
        if broker is None or broker.fenced or broker.draining or broker.broker_epoch != replica.broker_epoch:
            return False
        return replica.position != UNKNOWN and now_ms - replica.caught_up_ms <= self.limits.replica_lag_ms_max

    # ------------------------------------------------------------------------------------------------------ proposals

    def change(self, now_ms: int) -> IsrChange | None:
        """The change of the ISR this leader would like to propose now: one at a time, only when something differs (S7, S8)."""
        if not isinstance(self.isr, Committed) or now_ms < self.retry_at_ms:
            return None
        isr = self.isr.isr
        if self.recovering:
            return PendingShrink(isr, tuple(b for b in isr if b != self.leader_id), recovered=True)
        leaving = tuple(r.broker_id for r in self.counted if self._lags(r, now_ms))
        if leaving:
            return PendingShrink(isr, leaving)
        joining = tuple(r.broker_id for r in self.candidates if self.refusal(r, now_ms) is None)
        if len(joining) > 1 and not self.refused.keys().isdisjoint(joining):
            # One of them may be why the others were refused: each by itself, who was refused last comes last.
            order = list(self.refused)
            joining = (min(joining, key=lambda b: order.index(b) if b in self.refused else -1),)
        return PendingExpand(isr, joining) if joining else None

    def _lags(self, replica: Replica, now_ms: int) -> bool:
        return replica.lags(self.log.end_offset, self.high_watermark, now_ms, self.limits.replica_lag_ms_max)

    def refusal(self, replica: Replica, now_ms: int) -> str | None:
        """Why this replica may not join the ISR now; None if it may."""
        why = refusal_to_join(replica, self.brokers, high_watermark=self.high_watermark, epoch_start=self.epoch_start)
        # Nor does who would have to leave at once: a slow one would come and go with each of its fetches. With a frozen high
        # watermark, the bounds say nothing about speed at all (KAFKA-19996).
        if why is None and self._lags(replica, now_ms):
            return f"it has lagged for more than {self.limits.replica_lag_ms_max} ms"
        return why

    def propose(self, change: IsrChange) -> None:
        """The change is about to be sent: from now on the maximal ISR counts."""
        assert isinstance(self.isr, Committed), "one proposal in flight"
        self._settle(change)

    def answered(self, proposal: IsrChange, result: AlterIsrResult, now_ms: int) -> bool:
        """Take the controller's answer to `proposal`; True if the ISR may have changed. Late answers change nothing."""
        if self.isr is not proposal:
            return False
        state = result.state
        newer = state is not None and state.leader_epoch == self.leader_epoch and state.leader == self.leader_id
        if result.error in NOT_APPLIED:
            if not newer:
                return False  # to a proposal of an earlier life, whose numbers were the same
            self.retry_at_ms = now_ms + self.limits.retry_backoff_ms_max  # do not spin (KIP-841, P-27)
            if isinstance(proposal, PendingExpand):
                self._refuse_no_more(proposal.joining)
                self.refused = {**self.refused, **{b: self.replicas[b].end_offset for b in proposal.joining if b in self.replicas}}
            self._settle(Committed(proposal.isr))
            return True
        if result.error == Code.NONE:
            if state is None or not newer or state.partition_epoch < self.partition_epoch:
                return False
        elif result.error in _SUPERSEDED:
            if state is None or not newer or state.partition_epoch <= self.partition_epoch:
                return False  # stay pending until newer metadata comes
        else:
            return False  # the sender tries the same proposal again
        self.update(state, self.assignment, self.config)
        return True

    @property
    def followers_equal(self) -> bool:
        """Every replica that counts has what the leader has: nothing can lag until the next append."""
        end = self.log.end_offset
        return all(replica.is_equal(end, self.high_watermark) for replica in self.counted)
