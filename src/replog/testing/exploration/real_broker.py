"""One broker of the exploration: a snapshot and one event give the next snapshot and what it sends. The real code runs in between.

Real here are `Partition` with all that it is made of, its log in memory, `Sessions` (which take a fetch and answer it),
`Fetching` (which asks) and `Proposals` (which wish for another ISR). Each serves one step and is built for it; what has to
outlive the step is in the snapshot. Left to this module are the few lines of `Broker` between them:

- a follower hears only the answer to its last question (the broker compares request numbers; here, who asks anew is
  told nothing by what was asked before: see `real_cluster`);
- a proposal is sent again, unchanged, until the partition has left the state of waiting for it.

A step depends on nothing but its arguments, so `real_cluster` runs each only once.
"""

from __future__ import annotations

from typing import Any

from attrs import evolve, frozen

from replog.broker.fetching import Fetching
from replog.broker.outsiders import forget_lives
from replog.broker.proposals import Proposals
from replog.broker.sessions import Sessions
from replog.errors import UsageError
from replog.messages import AlterIsrResult, Fetch, FetchedEntry, FetchEntry
from replog.model import ACKS_LEADER
from replog.partition.isr import PendingExpand, PendingShrink
from replog.partition.partition import Partition
from replog.ports import Ids, Outbox
from replog.records import RecordBatch
from replog.testing.exploration.real_snapshot import (
    IDENTITY,
    LIMITS,
    NOW_MS,
    TOPIC,
    Frozen,
    Setting,
    body,
    entries_of,
    freeze,
    freeze_log,
    slice_of,
    thaw,
    thaw_log,
    thaw_state,
    view_of,
)

__all__ = [
    "ANSWER",
    "APPEND",
    "ASK",
    "DECISION",
    "FETCH",
    "HEAR",
    "LAG",
    "NOTICE",
    "PROPOSAL",
    "PROPOSE",
    "BrokerState",
    "Brokers",
    "went_back",
]

FETCH, ANSWER, PROPOSAL, DECISION, NOTICE, ASK, APPEND, LAG, PROPOSE, HEAR = range(10)
"""What happens to a broker; the first four are messages as well."""


@frozen
class BrokerState:
    """One broker, its process running or not; all ints and tuples of such."""

    alive: int
    incarnation: int
    """Which process it is, the first is 0."""
    broker_epoch: int
    """As this process was last registered."""
    welcome: int
    """Whether it has applied the complete notice of that registration."""
    lossy: int
    """1: has lost records, and reports it with each registration, until it is let in."""
    view: Frozen
    """What it knows of each broker: (broker epoch, fenced), or ()."""
    copy: Frozen
    """Its partition, as `freeze` makes it; of a process that is gone the log alone, as `freeze_log` makes it."""
    wish: Frozen
    """Its proposal as sent, while it waits for the decision: (leader epoch, partition epoch, members, recovering)."""

    @property
    def log(self) -> Frozen:
        """Its log, as `freeze_log` makes it."""
        return self.copy[7] if self.alive else self.copy

    def flat(self) -> Frozen:
        """Everything, to tell states apart."""
        return self.alive, self.incarnation, self.broker_epoch, self.welcome, self.lossy, self.view, self.copy, self.wish


Step = tuple[BrokerState, Frozen, str]
"""The broker afterwards, the messages it sends, and what is wrong with it (empty: nothing)."""


class _NoIds(Ids):
    """Nothing here is drawn by lot."""

    def token(self) -> bytes:
        return bytes(16)

    def number(self) -> int:
        return 0

    def jitter(self) -> float:
        return 0.5


class Brokers:
    """The steps of brokers in one setting."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting

    # ----------------------------------------------------------------------------------------------------- life and death

    def started(self, broker_id: int, log: Frozen, *, incarnation: int, broker_epoch: int, lossy: int) -> BrokerState:
        """A process begins with what the disk holds; it knows nobody, and serves nothing until it is told to."""
        partition = Partition(IDENTITY, TOPIC, thaw_log(log, self._setting.config), broker_id=broker_id, limits=LIMITS, brokers={})
        return BrokerState(1, incarnation, broker_epoch, 0, lossy, (), freeze(partition), ())

    def stopped(self, broker: BrokerState, *, power: bool) -> BrokerState:
        """The process is killed; with `power`, what it never flushed is gone as well."""
        log = thaw_log(broker.log, self._setting.config)
        lost = power and self._setting.config.flush != "ack"
        kept = freeze_log(log.revived(log.flushed_end if power else log.end_offset))
        return evolve(broker, alive=0, welcome=0, lossy=1 if lost else broker.lossy, view=(), copy=kept, wish=())

    # -------------------------------------------------------------------------------------------------------------- events

    def step(self, broker_id: int, broker: BrokerState, event: Frozen) -> Step:
        """What an event does to a broker whose process runs."""
        brokers = view_of(broker.view)
        partition = thaw(broker.copy, broker_id, brokers, self._setting)
        outbox = Outbox()
        now_ms = NOW_MS
        proposal = None if partition.leading is None else partition.leading.isr
        wish, view, sent = broker.wish, broker.view, ()
        before = broker.copy
        try:
            match event[0]:
                case 4:  # NOTICE
                    partition.become(self._setting.notice(event[1]), now_ms)
                case 0:  # FETCH
                    sent = self._fetched(partition, event, outbox)
                case 1:  # ANSWER
                    partition.take(_entry(event))
                case 5:  # ASK
                    sent = self._ask(partition, broker, outbox)
                case 6:  # APPEND
                    partition.append(RecordBatch(body(event[1])), ACKS_LEADER, now_ms)
                case 7:  # LAG
                    now_ms += LIMITS.replica_lag_ms_max + 1
                case 8:  # PROPOSE
                    sent = self._propose(partition, broker, outbox)
                    if sent:
                        wish = sent[0][3:7]
                        assert partition.leading is not None
                        proposal = partition.leading.isr
                case 3:  # DECISION
                    assert isinstance(proposal, PendingExpand | PendingShrink)
                    state = thaw_state(event[3]) if event[3] else None
                    partition.answered(proposal, AlterIsrResult(IDENTITY, event[2], state), now_ms)
                case _:  # HEAR
                    view = event[1]
                    self._hear(partition, brokers, view)
            partition.check()
        except (AssertionError, UsageError) as problem:  # a log refuses a batch that is not the next one
            return broker, (), f"S7: {problem}"
        if partition.leading is None or partition.leading.isr is not proposal:
            wish = ()
        after = freeze(partition, now_ms)
        welcome = 1 if event[0] == NOTICE else broker.welcome
        found = evolve(broker, welcome=welcome, view=view, copy=after, wish=wish)
        return found, sent, went_back(broker_id, before, after)

    def _fetched(self, partition: Partition, event: Frozen, outbox: Outbox) -> Frozen:
        """A follower's fetch, (FETCH, to, from, broker epoch, leader epoch, offset, last epoch, current): acknowledged and answered."""
        _, _, follower, broker_epoch, leader_epoch, offset, last_epoch, current = event
        sessions = Sessions(outbox, {IDENTITY: partition}, LIMITS, moved=_nothing, failed=_nothing, full=_nothing, event=_nothing)
        replica = None if partition.leading is None else partition.leading.replicas.get(follower)
        if replica is not None and replica.contact.last_fetch_ms:
            sessions._contacts[follower] = replica.contact
        entry = FetchEntry(IDENTITY, leader_epoch, offset, last_epoch, self._setting.answer_bytes)
        sessions.on_fetch(follower, Fetch(1, follower, broker_epoch, 0, 0, 0, 1, LIMITS.fetch_bytes_max, [entry]), NOW_MS)
        sessions.answer_waiting(NOW_MS)
        partition.sessions = ()
        if not current:
            return ()
        ((_, fetched),) = outbox.messages
        (found,) = fetched.entries
        entries = tuple(one for piece in found.slices for one in entries_of(piece.view()))
        ends = (found.high_watermark, found.start_offset, found.end_offset, found.diverging_epoch, found.diverging_end)
        return ((ANSWER, follower, found.leader_epoch, found.offset, int(found.error), *ends, entries),)

    def _ask(self, partition: Partition, broker: BrokerState, outbox: Outbox) -> Frozen:
        fetching = Fetching(partition.broker_id, outbox, LIMITS, _NoIds())
        fetching.broker_epoch = broker.broker_epoch
        fetching.follow(partition)
        fetching.send_due(NOW_MS)
        ((leader, fetch),) = outbox.messages
        (entry,) = fetch.entries
        return ((FETCH, leader, partition.broker_id, fetch.broker_epoch, entry.leader_epoch, entry.offset, entry.last_epoch, 1),)

    def _propose(self, partition: Partition, broker: BrokerState, outbox: Outbox) -> Frozen:
        proposals = Proposals(partition.broker_id, outbox, LIMITS)
        proposals.broker_epoch = broker.broker_epoch
        proposals.controller = 0
        proposals.consider(partition)
        proposals.send_due(NOW_MS)
        if not outbox.messages:
            return ()
        ((_, message),) = outbox.messages
        (entry,) = message.entries
        wish = (entry.leader_epoch, entry.partition_epoch, tuple(entry.isr), int(entry.recovering))
        return (proposal_of(partition.broker_id, message.broker_epoch, wish),)

    def _hear(self, partition: Partition, brokers: dict[int, Any], view: Frozen) -> None:
        """A delta of the controller: what an earlier life of a broker acknowledged says nothing any more (as `Broker` does it)."""
        known = dict(brokers)
        brokers.clear()
        brokers.update(view_of(view))
        forget_lives([partition], known, brokers, NOW_MS)


def proposal_of(broker_id: int, broker_epoch: int, wish: Frozen) -> Frozen:
    """The message that carries a wish."""
    return (PROPOSAL, broker_id, broker_epoch, *wish, 1)


def _entry(event: Frozen) -> FetchedEntry:
    _, _, leader_epoch, offset, error, high_watermark, start, end, diverging_epoch, diverging_end, entries = event
    slices = [slice_of(offset, entries)] if entries else []
    return FetchedEntry(IDENTITY, leader_epoch, offset, error, high_watermark, start, end, diverging_epoch, diverging_end, slices)


def _nothing(*_: Any, **__: Any) -> None:
    """Nobody waits for a high watermark here."""


def went_back(broker_id: int, before: Frozen, after: Frozen) -> str:
    """What must never go back within the life of a process: epochs (S6), and a leader's high watermark (S8)."""
    if after[1] < before[1] or after[2] < before[2]:
        return f"S6: broker {broker_id} goes from epochs {before[1:3]} to {after[1:3]}"
    if before[6] and after[6] and before[1] == after[1] and after[4] < before[4]:
        return f"S8: leader {broker_id} goes from high watermark {before[4]} to {after[4]}"
    return ""
