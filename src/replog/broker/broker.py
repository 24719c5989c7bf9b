"""The broker: every partition on one node. One `on_<message>` each; what happens between them is in the modules beside it.

Told a message and the time, it answers by filling its outbox. It starts with no partition state but its logs: until the
controller's first notice it leads and follows nothing (V3 E would let it lead by what it remembers: S21).
"""

from __future__ import annotations

from typing import Any

from replog.broker.appending import Appending
from replog.broker.commands import TOPIC_DELETED, Commands
from replog.broker.durability import FlushReports, flushed_aside
from replog.broker.fetching import Fetching
from replog.broker.forwarding import Forwarding
from replog.broker.leaving import Leaving
from replog.broker.offsets import Offsets
from replog.broker.outsiders import forget_lives, no_longer_held
from replog.broker.proposals import Proposals
from replog.broker.reports import Reports
from replog.broker.routing import Routing
from replog.broker.sessions import Sessions
from replog.broker.upkeep import Upkeep
from replog.broker.waiting import WaitingAppends
from replog.config import BrokerConfig
from replog.errors import Code, LogCorrupt, LogDamaged, LogFull
from replog.features import FEATURE_LEVEL_MIN
from replog.messages import (
    Admin,
    AdminAnswer,
    AlterIsrAnswer,
    ControlledShutdownAnswer,
    Disconnected,
    Fetch,
    Fetched,
    FetchedEntry,
    FlushAll,
    Flushed,
    LeaderAndIsr,
    Leave,
    ListOffsets,
    Metadata,
    OffsetsForLeaderEpoch,
    PartitionNotice,
    Produce,
    Publish,
    Registered,
    ReplicaStates,
    ReplicaStatesAnswer,
    Stage,
    StopEntry,
    StopReplica,
    Unreached,
    Unsent,
    UpdateMetadata,
)
from replog.model import Address, PartitionId
from replog.partition.following import Followed
from replog.partition.partition import Partition
from replog.partition.self_checks import SelfChecks
from replog.ports import Event, FlushDone, Ids, LogDirectory, Outbox

__all__ = ["Broker"]


class Broker:
    """An actor. Everything it owns is reached from its driver's thread only."""

    def __init__(self, broker_id: int, directory: LogDirectory, *, config: BrokerConfig, ids: Ids) -> None:
        self.broker_id = broker_id
        self.directory = directory
        self.config = config
        self.feature_level = FEATURE_LEVEL_MIN
        """Of the cluster, as membership has told it last: what may be written."""
        self.outbox = Outbox()
        self.partitions: dict[PartitionId, Partition] = {}
        self.routing = Routing()
        self._commands = Commands(directory, lambda why: self._fail(None, why))
        self._waiting = WaitingAppends(self.outbox, config.waiting_appends_max)
        self._sessions = Sessions(
            self.outbox, self.partitions, config, moved=self._moved, failed=self._fail, event=self._event,
            full=lambda *what: self._appending.unreadable(*what),
        )  # fmt: skip
        self._fetching = Fetching(broker_id, self.outbox, config, ids)
        self._proposals = Proposals(broker_id, self.outbox, config)
        self.upkeep = Upkeep(directory, self.partitions, config)
        """Its driver saves by it before a clean stop, and sees what is left to flush."""
        self._offsets = Offsets(self.partitions, self.routing, failed=self._fail, full=lambda *what: self._appending.unreadable(*what))
        self._appending = Appending(
            self.outbox, self.partitions, directory.staging, config, waiting=self._waiting, upkeep=self.upkeep, sessions=self._sessions,
            unknown=self._offsets.unknown, moved=self._moved, failed=self._fail, event=self._event,
        )  # fmt: skip
        self._publishing = self._appending.publishing
        self._forwarding = Forwarding(self.outbox, self.partitions, self.routing, config)
        self.leaving = Leaving(broker_id, self.outbox, self._commands)
        self._reports = Reports(broker_id, self.outbox, self._commands, self.partitions)
        self._metadata_asked = False
        self._flush_reports = FlushReports(broker_id, self.outbox, config)
        self._handlers: dict[type, Any] = {
            Produce: self._appending.on_produce,
            Stage: self._publishing.on_stage,
            Publish: self._publishing.on_publish,
            Fetch: self._sessions.on_fetch,
            Fetched: self.on_fetched,
            Flushed: self.on_flushed,
            FlushDone: self.on_flush_done,
            ListOffsets: self.on_list_offsets,
            OffsetsForLeaderEpoch: self.on_offsets_for_leader_epoch,
            Metadata: self.on_metadata,
            LeaderAndIsr: self.on_leader_and_isr,
            StopReplica: self.on_stop_replica,
            UpdateMetadata: self.on_update_metadata,
            AlterIsrAnswer: self.on_alter_isr_answer,
            ReplicaStates: self.on_replica_states,
            Admin: self.on_admin,
            AdminAnswer: self.on_admin_answer,
            ControlledShutdownAnswer: self.leaving.on_answer,
            Leave: self.leaving.on_leave,
            FlushAll: self.upkeep.on_flush_all,
            Registered: self.on_registered,
            Disconnected: self.on_disconnected,
            Unreached: self._forwarding.on_unreached,
            Unsent: self._sessions.on_unsent,
        }
        self._checks = SelfChecks(broker_id, self.partitions, self.outbox, self._handlers) if config.self_checks else None

    @property
    def broker_epoch(self) -> int:
        """Of this life, once registered; -1 before."""
        return self._commands.broker_epoch

    def receive(self, sender: Address, message: Any, now_ms: int) -> None:
        """Handle one message. One that no broker understands is dropped and reported."""
        handler = self._handlers.get(type(message))
        if handler is None:
            self._event("unexpected_message", sender=str(sender), message=type(message).__name__)
            return
        handler(sender, message, now_ms)

    def tick(self, now_ms: int, wall_ms: int) -> None:
        """End of a poll: answer what became ready, ask for more, run the timers that are due."""
        upkeep = self.upkeep
        upkeep.told(now_ms, wall_ms)
        due = self._publishing.due_ms
        if due is not None and now_ms >= due:
            self._publishing.run(now_ms)
        parked = self._sessions.parked
        due = parked.due_ms
        if parked.has_told or (due is not None and now_ms >= due):
            self._sessions.answer_waiting(now_ms)
        if now_ms >= upkeep.next_ms:
            self._timers(now_ms)
        if upkeep.unflushed or now_ms >= upkeep.flush_due.next_ms:
            self.outbox.flushes += upkeep.flushes(now_ms)
        due = self._fetching.due_ms
        if due is not None and now_ms >= due:
            self._fetching.send_due(now_ms)
        if self._flush_reports.owed or now_ms >= self._flush_reports.again.next_ms:
            self._flush_reports.send(now_ms, self.broker_epoch)
        due = self._proposals.due_ms
        if due is not None and now_ms >= due:
            self._proposals.send_due(now_ms)
        if self._checks is not None:
            self._checks.run()

    def _timers(self, now_ms: int) -> None:
        if now_ms >= self.upkeep.sweep_ms:
            for expire in (self._waiting.expire, self._publishing.expire, self._appending.tell_due):
                expire(now_ms)
        if now_ms >= self.upkeep.lag_check_ms:
            for partition in self.upkeep.lagging(now_ms):
                self._proposals.consider(partition)
        if self.upkeep.heartbeat_due(now_ms):
            self._look_at_outsiders(now_ms)
            self._metadata_asked = False  # an answer that has not come by now is lost
            self._reports.heartbeat()
            self._commands.age(now_ms)
            self.leaving.ask()
        try:
            for partition in self.upkeep.run(now_ms):
                self._sessions.committed(partition)
        except LogFull as problem:
            self._event("directory_full", problem=str(problem))
        except LogDamaged as problem:
            self._fail(None, str(problem))
        while self.upkeep.repeated:
            self._appending.grown(self.upkeep.repeated.pop(), -1, now_ms)
        while self.upkeep.damaged:
            self._fail(*self.upkeep.damaged.pop())

    def deadline_ms(self) -> int | None:
        """When `tick` is needed next even if no message comes."""
        due = min(self.upkeep.deadline_ms(), self._flush_reports.again.next_ms)
        for at in (self._sessions.parked.due_ms, self._fetching.due_ms, self._proposals.due_ms, self._publishing.due_ms):
            if at is not None and at < due:
                due = at
        return due

    def _moved(self, partition: Partition, before: int, now_ms: int) -> None:
        """A partition may have moved: the one place where a new high watermark is made known."""
        if partition.high_watermark != before:
            self._waiting.wake(partition)
            self._sessions.committed(partition)
            self.upkeep.committed(partition)
        leading = partition.leading
        if leading is not None:
            if self._publishing.due_ms is not None:
                self._publishing.look_again(partition.identity, now_ms)
            if leading.candidates:
                self._proposals.consider(partition)

    # ---------------------------------------------------------------------------------------------------------- fetch

    def on_fetched(self, sender: Address, message: Fetched, now_ms: int) -> None:
        """A leader's answer: apply each entry, then ask on."""
        fetching = self._fetching
        fetcher = fetching.session_of(message, sender)
        if fetcher is None or not fetching.answered(fetcher, message, now_ms):
            return
        for entry in message.entries:
            partition = self.partitions.get(entry.partition)
            if partition is not None and not fetching.is_late(entry.partition, message):
                self._take(partition, entry, now_ms)
            for piece in entry.slices:
                piece.release()
        fetching.send_due(now_ms)

    def _take(self, partition: Partition, entry: FetchedEntry, now_ms: int) -> None:
        before, end = partition.high_watermark, partition.log.end_offset
        try:
            outcome = partition.take(entry)
        except LogFull as problem:
            self._appending.tell_full(partition, problem, now_ms)
            outcome = Followed.RETRY
        except (LogDamaged, LogCorrupt) as problem:
            return self._fail(partition, str(problem))
        if outcome is Followed.APPENDED or partition.log.end_offset > end:
            self.upkeep.appended(partition)
        if partition.high_watermark != before:
            self.upkeep.committed(partition)
            self._sessions.committed(partition)
        if outcome is Followed.TRUNCATED:
            self.upkeep.lowered(partition)
        self._flush_reports.owe(partition)
        self._fetching.took(partition, entry, outcome, now_ms)

    def on_flushed(self, sender: Address, message: Flushed, now_ms: int) -> None:
        """A follower's flushed ends (flush="ack")."""
        for entry in message.entries:
            partition = self.partitions.get(entry.partition)
            if partition is not None:
                before = partition.high_watermark
                partition.acknowledge_flush(message.replica, message.broker_epoch, entry.leader_epoch, entry.flushed_end, now_ms)
                self._moved(partition, before, now_ms)

    def on_flush_done(self, sender: Address, message: FlushDone, now_ms: int) -> None:
        """A flush has run. One that failed is final for the whole directory: no retry, no further acknowledgement (R14)."""
        token = message.token
        partition, log = self.partitions.get(token.identity), self.upkeep.flush_done(token)
        if partition is None or partition.failed or partition.log is not log:
            if flushed_aside(log, token):
                self._fail(None, f"a flush failed: {token.error}")
            return
        before = partition.high_watermark
        try:
            partition.flushed(token, now_ms)
        except LogFull as problem:
            self._appending.tell_full(partition, problem, now_ms)
            self.upkeep.flush_later(partition, now_ms)
            return
        except LogDamaged as problem:
            return self._fail(None, str(problem))
        self.upkeep.recovered(partition)  # the flush may have been of what was cut meanwhile
        self._moved(partition, before, now_ms)
        self._waiting.wake(partition)
        self._flush_reports.owe(partition)

    # --------------------------------------------------------------------------------------------------------- offsets

    def on_list_offsets(self, sender: Address, message: ListOffsets, now_ms: int) -> None:
        """Earliest, latest, or by time."""
        self.outbox.messages.append((sender, self._offsets.list(message)))

    def on_offsets_for_leader_epoch(self, sender: Address, message: OffsetsForLeaderEpoch, now_ms: int) -> None:
        """Where an epoch ends in the leader's log: a reader's check after a leader change (KIP-320)."""
        self.outbox.messages.append((sender, self._offsets.ends(message)))

    # ------------------------------------------------------------------------------------------------------- commands

    def on_leader_and_isr(self, sender: Address, message: LeaderAndIsr, now_ms: int) -> None:
        """The controller's word on who leads and who follows."""
        reply = self._commands.on_leader_and_isr(
            message, lambda notice: self._become(notice, now_ms), self._refusal, lambda notice: self._stand_down(notice, now_ms)
        )
        reply.broker_id = self.broker_id
        self._controller_known()
        if message.complete and not reply.error:
            for identity in reply.strays if not message.is_partial else ():
                self._idle(identity)
        self.outbox.messages.append((sender, reply))

    def _refusal(self, notice: PartitionNotice) -> int:
        partition = self.partitions.get(notice.partition)
        return Code.NONE if partition is None else partition.refusal(notice)

    def _become(self, notice: PartitionNotice, now_ms: int) -> int:
        identity = notice.partition
        partition = self.partitions.get(identity)
        if partition is None:
            log = self.directory.get(identity)
            assert log is not None, "made before it is given to anybody"
            partition = self.partitions[identity] = Partition(
                identity, notice.topic, log, broker_id=self.broker_id, limits=self.config, brokers=self.routing.brokers,
                high_watermark=self.directory.high_watermarks.get(identity, 0),
            )  # fmt: skip
            if self._reports.left.get(identity) is log:
                self._fail(partition, self._reports.directory_failed)
        before, epoch, end = partition.high_watermark, partition.leader_epoch, partition.log.end_offset
        try:
            error = partition.become(notice, now_ms)
        except LogFull as problem:  # it is to come again: nothing is lost, and others may lead meanwhile (R14)
            self._appending.tell_full(partition, problem, now_ms)
            self._unserved(partition)
            self._publishing.look_again(identity, now_ms)
            return Code.LOG_DIRECTORY_FULL
        except (LogDamaged, LogCorrupt) as problem:
            self._fail(partition, str(problem))
            return Code.STORAGE_ERROR
        finally:
            if partition.log.end_offset < end:
                self.upkeep.lowered(partition)
        if error:
            return error
        self.upkeep.recovered(partition)
        if partition.leading is not None:
            self._fetching.drop(identity)
            self.upkeep.leads(partition)
            self._proposals.consider(partition)
        elif partition.leader_epoch > epoch or partition.following is not None:
            self._fetching.follow(partition)
            self._flush_reports.owe(partition)
        self._waiting.wake(partition)
        self._publishing.look_again(identity, now_ms)
        if partition.leader_epoch > epoch:
            self._sessions.changed(partition)
        self._moved(partition, before, now_ms)
        return Code.NONE

    def _stand_down(self, notice: PartitionNotice, now_ms: int) -> None:
        partition = self.partitions.get(notice.partition)
        if partition is not None and partition.stand_down(notice):
            self._unserved(partition)
            self._publishing.look_again(partition.identity, now_ms)

    def on_stop_replica(self, sender: Address, message: StopReplica, now_ms: int) -> None:
        """Stop, and if asked put away, local copies."""
        reply = self._commands.on_stop_replica(message, self._stop, self._put_away)
        reply.broker_id = self.broker_id
        self._controller_known()
        self.outbox.messages.append((sender, reply))

    def _stop(self, entry: StopEntry) -> int:
        partition = self.partitions.get(entry.partition)
        if partition is not None and entry.leader_epoch != TOPIC_DELETED and entry.leader_epoch < partition.leader_epoch:
            return Code.FENCED_LEADER_EPOCH
        self._idle(entry.partition)
        return Code.NONE

    def _put_away(self, identities: list[PartitionId]) -> int:
        try:
            self.directory.quarantine_each(identities, self.upkeep.wall_ms)
        except (LogFull, LogDamaged) as problem:
            if isinstance(problem, LogDamaged):
                self._fail(None, str(problem))
            return Code.STORAGE_ERROR
        finally:
            for identity in identities:
                self._idle(identity)  # one that has failed is forgotten with its log
        return Code.NONE

    def _idle(self, identity: PartitionId) -> None:
        """Serve this copy no longer; its data stays where it is. One that has failed is known as such for as long as that is so: whoever
        names it again must not get the same log as a new copy.
        """
        partition = self.partitions.get(identity)
        if partition is None or (partition.failed and self.directory.get(identity) is partition.log):
            return
        del self.partitions[identity]
        self._fetching.drop(identity)
        self._flush_reports.forget(identity)
        partition.leading = partition.following = None
        self._waiting.wake(partition)
        self._sessions.dropped(partition)
        self.upkeep.forget(identity)

    def on_replica_states(self, sender: Address, message: ReplicaStates, now_ms: int) -> None:
        """How far copies here reach: the controller chooses among a last-known set by it (KIP-966)."""
        if self._commands.fence(message.controller_id, message.controller_epoch, message.broker_epoch):
            return
        self._controller_known()
        states = self._offsets.states(message.partitions, self.directory, self._reports.left)
        self.outbox.messages.append((sender, ReplicaStatesAnswer(self.broker_id, self.broker_epoch, message.request, states)))

    def on_alter_isr_answer(self, sender: Address, message: AlterIsrAnswer, now_ms: int) -> None:
        """What the controller decided about proposals of this broker."""
        for partition in self._proposals.answered(message, now_ms):
            self.upkeep.leads(partition)
            self._waiting.wake(partition)
            self._sessions.committed(partition)
            self._moved(partition, -1, now_ms)

    # ------------------------------------------------------------------------------------------------ cluster, clients

    def on_update_metadata(self, sender: Address, message: UpdateMetadata, now_ms: int) -> None:
        """The controller's delta. Brokers that are gone, or registered again, lose what that life had acknowledged (P-28)."""
        if self._commands.fence(message.controller_id, message.controller_epoch, message.broker_epoch):
            return
        self._controller_known()
        known = dict(self.routing.brokers)
        if not self.routing.merge(message.view):
            return self._ask_metadata()
        self._metadata_asked = False
        forget_lives(self.partitions.values(), known, self.routing.brokers, now_ms)
        try:
            self.upkeep.look_at(self.routing.brokers.get(self.broker_id), self.broker_epoch)
        except LogFull as problem:
            self._event("directory_full", problem=str(problem))
        except LogDamaged as problem:
            self._fail(None, str(problem))
        if message.view.brokers or known.keys() != self.routing.brokers.keys():
            self._look_at_outsiders(now_ms)
            for partition in self.upkeep.with_outsiders():
                self._proposals.consider(partition)

    def _look_at_outsiders(self, now_ms: int) -> None:
        for partition, before in no_longer_held(self.upkeep.with_outsiders(), now_ms):
            self._moved(partition, before, now_ms)

    def _ask_metadata(self) -> None:
        if not self._metadata_asked and self._commands.controller is not None:
            self._metadata_asked = True
            ask = Metadata(-1, self.routing.controller_epoch, self.routing.version)
            self.outbox.messages.append((("controller", self._commands.controller), ask))

    def on_metadata(self, sender: Address, message: Metadata, now_ms: int) -> None:
        """A client asks what it is missing."""
        missing = self._forwarding.missing.look(message.sought, self._commands, now_ms)
        self.outbox.messages.append((sender, self.routing.answer(message, missing)))

    def on_admin(self, sender: Address, message: Admin, now_ms: int) -> None:
        """Pass a wish on to the controller; its answer comes back through here."""
        self._forwarding.forward(sender, message, self._commands, now_ms)

    def on_admin_answer(self, sender: Address, message: AdminAnswer, now_ms: int) -> None:
        """The controller's answer to a wish that was passed on."""
        self._forwarding.answered(message, self.broker_epoch, now_ms)

    def on_registered(self, sender: Address, message: Registered, now_ms: int) -> None:
        """Membership has registered this broker (or lost its session: -1), or the cluster has another feature level."""
        self.feature_level = message.feature_level
        if message.broker_epoch < 0 or message.broker_epoch == self.broker_epoch:
            return
        self._commands.registered(message.broker_epoch)
        self._fetching.registered(message.broker_epoch)
        self._proposals.registered(message.broker_epoch)

    def on_disconnected(self, sender: Address, message: Disconnected, now_ms: int) -> None:
        """A hint of the driver: nobody is there now."""
        self._forwarding.disconnected(message)
        self._sessions.disconnected(message.address)
        self._fetching.disconnected(message.address, now_ms)

    def _controller_known(self) -> None:
        controller = self._commands.controller
        self._proposals.controller_changed(None if controller is None else ("controller", controller), self._commands.controller_epoch)

    # ------------------------------------------------------------------------------------------------------- failures

    def _fail(self, partition: Partition | None, reason: str) -> None:
        """This copy takes no part any more; None: no copy does, after a failed flush (R14); people hear of that, copies or not."""
        if partition is None and self._reports.lost(self.directory, reason):
            self._event("directory_failed", reason=reason)
        failed = [one for one in (self.partitions.values() if partition is None else [partition]) if not one.failed]
        for one in failed:
            one.fail(reason)
            self._unserved(one)
            self.upkeep.forget(one.identity)
            self._event("replica_failed", partition=repr(one), reason=reason)
        if failed:
            self._reports.failed([one.identity for one in failed], reason)

    def _unserved(self, partition: Partition) -> None:
        """This copy leads and follows nothing now: whoever waits for it hears that."""
        self._fetching.drop(partition.identity)
        self._waiting.wake(partition)
        self._sessions.changed(partition)

    def _event(self, name: str, **fields: Any) -> None:
        self.outbox.events.append(Event(name, {"broker": self.broker_id, **fields}))
