"""`decide(event)` says what to store and tell; `apply(step)` takes it once it is stored. No input, no output, no clock.

Every decision is made from the cluster as it is now, never from memory of an earlier decision: an event may be decided
twice (after a conflict, after an unknown outcome, by the next controller) and comes to the same end.
"""

from __future__ import annotations

from itertools import islice

from attrs import evolve

from replog.config import BrokerConfig
from replog.controller import admin, admitting, balance, explaining, moves, reassign, restored, rows, shutdown, silence, topics, wishes
from replog.controller.changes import (
    BrokerGone,
    BrokerSet,
    Change,
    Due,
    LossNoted,
    ProposalRefused,
    ReplicaBroken,
    RoomSet,
    Settled,
    StateSet,
    Topic,
)
from replog.controller.cluster import Cluster
from replog.controller.decision import Ask, Decision, Piece, Step, pack
from replog.controller.election import Choice, Loss, choose, initial, lost, recover
from replog.controller.events import (
    AdminAsked,
    BalanceDue,
    BrokerAcknowledged,
    BrokersSeen,
    CopiesGone,
    DeletionsSeen,
    DrainingEnded,
    Event,
    FinishDeletion,
    IsrProposed,
    LastKnownAnswered,
    LaterStateClaimed,
    MovesDue,
    Recheck,
    RejectionsSeen,
    ReplicasLost,
    ReplicasServed,
    RoomChanged,
    ShutdownAsked,
    SilenceChanged,
    TopicsSeen,
    WishesSeen,
)
from replog.controller.isr_change import change_isr
from replog.errors import Code
from replog.messages import AdminAnswer, AlterIsrAnswer, AlterIsrEntry, AlterIsrResult
from replog.metadata import judgements, layout
from replog.model import Address, PartitionId, PartitionState
from replog.ports import Check, Create, Op, Put
from replog.ports import Event as Told

__all__ = ["Controller"]


class Controller:
    """The decision maker of one controller epoch."""

    def __init__(self, *, controller_epoch: int, epoch_version: int, config: BrokerConfig) -> None:
        self.cluster = Cluster()
        self.controller_epoch = controller_epoch
        self.config = config
        self.guard = Check(layout.CONTROLLER_EPOCH, epoch_version)
        """In every transaction: nothing is stored once another controller has been elected (KAFKA-6082, P-61)."""
        self.waiters: dict[bytes, list[tuple[Address, AdminAnswer]]] = {}
        """Who is told when a topic is gone."""
        self.led_since: dict[PartitionId, int] = {}
        """Since when (wall clock) a partition has been in its leader epoch, where this term has seen it begin: for people."""
        self.broker_id = -1
        """Whose controller it is."""
        self.since_ms = 0
        """When it took office (wall clock), for people; 0: not known."""
        self.wall_ms = 0
        """The time of day, for what people read; as of the last tick."""
        self.view_version = 0
        """Of the newest view of the cluster that brokers are told."""

    def decide(self, event: Event) -> Decision:
        """What to do about an event. Changes nothing of the cluster."""
        match event:
            case Recheck():
                return self._recheck()
            case IsrProposed():
                return self._isr_proposed(event)
            case LaterStateClaimed():
                return restored.later_state_claimed(self, event)
            case BrokersSeen():
                return self._brokers_seen(event)
            case BrokerAcknowledged():
                return admitting.broker_acknowledged(self, event)
            case ReplicasLost():
                return self._replicas_lost(event)
            case ReplicasServed():
                return self._replicas_served(event)
            case RoomChanged():
                return self._room_changed(event)
            case LastKnownAnswered():
                return self._last_known_answered(event)
            case TopicsSeen():
                return topics.topics_seen(self, event)
            case DeletionsSeen():
                return topics.deletions_seen(self, event)
            case AdminAsked():
                return admin.admin_asked(self, event)
            case WishesSeen():
                return rows.wishes_seen(self, event)
            case RejectionsSeen():
                return wishes.rejections_seen(self, event)
            case FinishDeletion():
                return topics.finish_deletion(self, event)
            case MovesDue():
                return reassign.moves_due(self, event)
            case CopiesGone():
                return topics.copies_gone(self, event)
            case ShutdownAsked():
                return shutdown.shutdown_asked(self, event)
            case BalanceDue():
                return balance.balance_due(self, event)
            case SilenceChanged():
                return silence.silence_changed(self, event)
            case DrainingEnded():
                return shutdown.draining_ended(self, event)

    def apply(self, step: Step) -> None:
        """Take a step that was committed."""
        for change in step.changes:
            explaining.note(self, change)
            self.cluster.apply(change)

    # ---- partitions

    def _recheck(self) -> Decision:
        """One slice of the partitions that are due."""
        cluster = self.cluster
        todo = tuple(islice(cluster.due, self.config.slice_partitions_max))
        pieces: list[Piece] = []
        asks: list[Ask] = []
        same: list[PartitionId] = []
        arrived: dict[PartitionId, PartitionState] = {}
        for partition in todo:
            choice = self.choose(partition)
            state = choice.state or cluster.states.get(partition)
            if (first := self._first(partition, choice)) is not None:
                piece = self.store_state(partition, cluster.topics[partition.topic_id], first)
                pieces.append(evolve(piece, changes=(*piece.changes, Settled((partition,)), Due((partition,)))))
            elif state is not None and not choice.ask and choice.loss is None and reassign.completes(cluster, partition, state):
                if len(arrived) < reassign.MOVES_MAX:  # else it stays due
                    arrived[partition] = state
            elif choice.state is None and choice.ask:
                asks.append(Ask(partition, cluster.states[partition].leader_epoch, choice.ask, choice.awaited))
            elif choice.state is None:
                same.append(partition)
            else:
                piece = self.store_state(partition, cluster.topics[partition.topic_id], choice.state, choice.loss)
                settled = () if choice.ask else (Settled((partition,)),)
                pieces.append(evolve(piece, changes=(*piece.changes, *settled)))
        pieces += reassign.completions(self, arrived)[0]  # they stay due: there may be more to decide
        if pieces:  # nobody is asked if one of them is not stored: those stay due, and have their turn by themselves
            asks.clear()
        same += [ask.partition for ask in asks]
        steps = pack(self.guard, pieces)
        if same:
            steps = (*steps, Step(changes=(Settled(tuple(same)),)))
        return Decision(steps, asks=tuple(asks), after=(MovesDue(),) if arrived else ())

    def _first(self, partition: PartitionId, choice: Choice) -> PartitionState | None:
        """What to store by itself, where the store has refused it together with more: with the record of a loss, or the end of a move.

        It says who is complete. Whoever waits for that to be stored may be the one that makes an unclean election needless.
        """
        known = self.cluster.states.get(partition)
        if known is None or not self.cluster.parked.get(partition):
            return None
        state = choice.state if choice.loss is None else self.choose(partition, cleanly=True).state
        if state is None or evolve(state, leader_epoch=known.leader_epoch) == known:
            return None
        return state if choice.loss is not None or reassign.completes(self.cluster, partition, state) else None

    def choose(self, partition: PartitionId, *, cleanly: bool = False) -> Choice:
        """What the partition should be now; a topic that is being deleted is left alone, and a state that somebody has removed."""
        cluster = self.cluster
        topic = cluster.topic_of(partition)
        if topic is None or partition.topic_id in cluster.deletions or partition in cluster.vanished:
            return Choice()
        state = cluster.states.get(partition)
        live = cluster.live(partition)
        replicas = moves.in_order_of_trust(topic.assignments[partition.partition])
        if state is None:
            return Choice(initial(replicas, live, cluster.leaving()))
        choice = choose(
            state,
            replicas=replicas,
            min_isr=cluster.min_isr(partition),
            live=live,
            lossy=cluster.lossy(partition),
            leaving=cluster.leaving(),
            roomless=cluster.roomless(partition),
            unclean=topic.config.unclean_leader_election and not cleanly,
            joining=moves.joining(topic.assignments[partition.partition]),
            emptied=cluster.emptied(partition),
            broken=cluster.broken_of(partition),
        )
        after = choice.state or state
        if partition in cluster.parked and after.leader is not None and after.leader_epoch == state.leader_epoch:
            # It may have gone and come back meanwhile: no life leads an epoch in which an earlier one may have written.
            return evolve(choice, state=evolve(after, leader_epoch=state.leader_epoch + 1))
        return choice

    def store_state(self, partition: PartitionId, topic: Topic, state: PartitionState, loss: Loss | None = None) -> Piece:
        """Write a partition's state over the one that is known; where none is known, only if there is none (S35)."""
        path = layout.partition_state_path(topic.topic, partition.partition)
        known = self.cluster.states.get(partition)
        epoch = 0 if known is None else known.partition_epoch + 1
        min_isr = state.min_isr or self.cluster.min_isr_of(topic, partition.partition)
        state = evolve(state, controller_epoch=self.controller_epoch, partition_epoch=epoch, min_isr=min_isr)
        value = layout.encode_partition_state(state)
        ops: list[Op] = [Create(path, value) if known is None else Put(path, value, known.partition_epoch)]
        changes: list[Change] = [StateSet(partition, state)]
        told: list[Told] = []
        if loss is not None:
            self._record_loss(partition, topic.topic, state, loss, ops, changes, told)
        return Piece(tuple(ops), tuple(changes), tuple(told))

    def _record_loss(
        self,
        partition: PartitionId,
        topic: str,
        state: PartitionState,
        loss: Loss,
        ops: list[Op],
        changes: list[Change],
        told: list[Told],
    ) -> None:
        """A decision that may lose records says so, in the same transaction."""
        path = judgements.loss_path(partition.topic_id, partition.partition)
        candidates = tuple(judgements.Candidate(*candidate) for candidate in loss.candidates)
        record = judgements.LossRecord(topic, loss.kind, loss.leader, state.leader_epoch, candidates, loss.missing)
        value = judgements.encode_loss(record)
        version = self.cluster.losses.get(path)
        ops.append(Create(path, value) if version is None else Put(path, value, version))
        changes.append(LossNoted(path, 0 if version is None else version + 1, record))
        fields = {"topic": topic, "partition": partition.partition, "kind": loss.kind, "leader": loss.leader}
        fields |= {"candidates": loss.candidates, "missing": loss.missing, "recorded_at": path, "lost": lost(loss)}
        told.append(Told("records_may_be_lost", fields))

    def _last_known_answered(self, event: LastKnownAnswered) -> Decision:
        cluster = self.cluster
        state = cluster.states.get(event.partition)
        live = cluster.live(event.partition)
        if state is None or event.partition.topic_id in cluster.deletions or state.leader_epoch != event.leader_epoch:
            return Decision()
        if state.leader is not None or state.isr or state.elr or not all(r in live for r in state.last_known):
            return Decision()
        asked = self.choose(event.partition)
        answers = {broker: (epoch, end) for broker, epoch, end in event.answers if broker in asked.ask}
        if not asked.ask or not answers.keys() >= set(asked.awaited) or not set(event.asked) >= set(asked.ask):
            return Decision()  # somebody has come since, and is being asked; or has gone, and is waited for
        topic = cluster.topics[event.partition.topic_id]
        choice = recover(state, answers, cluster.replicas(event.partition), cluster.min_isr_in(state, event.partition))
        assert choice.state is not None
        return Decision(pack(self.guard, [self.store_state(event.partition, topic, choice.state, choice.loss)]))

    # ---- proposals

    def _isr_proposed(self, event: IsrProposed) -> Decision:
        """Each entry is judged by itself; what is accepted goes into one transaction, as long as it fits.

        A refusal lets the leader commit without those it wished for. It is remembered before it is told: a copy of the same
        request may come later, when its reason is gone, with the same partition epoch.
        """
        proposal = event.proposal
        sender = self.cluster.brokers.get(proposal.broker_id)
        if sender is None or sender.info.broker_epoch != proposal.broker_epoch:
            return Decision(answers=((event.sender, AlterIsrAnswer(proposal.request, Code.STALE_BROKER_EPOCH, [])),))
        results: list[AlterIsrResult] = []
        pieces: list[Piece] = []
        doubt: list[PartitionId] = []
        after: list[Event] = []
        refused: list[Change] = []
        seen: set[PartitionId] = set()
        arrived: dict[PartitionId, PartitionState] = {}
        for entry in proposal.entries:
            code, state = self._judge(entry, proposal.broker_id, seen)
            if code == Code.NOT_CONTROLLER:
                doubt.append(entry.partition)
                after.append(LaterStateClaimed(proposal.broker_id, entry.partition, entry.leader_epoch, entry.partition_epoch))
            if code == Code.INELIGIBLE_REPLICA:
                refused.append(ProposalRefused(entry.partition, entry.partition_epoch, entry.proposal))
            if code == Code.NONE and state is not None and state != self.cluster.states[entry.partition]:
                if len(arrived) < reassign.MOVES_MAX and reassign.completes(self.cluster, entry.partition, state):
                    arrived[entry.partition] = state
                else:
                    pieces.append(self._change_of(entry.partition, state))
                state = evolve(state, controller_epoch=self.controller_epoch, partition_epoch=state.partition_epoch + 1)
            results.append(AlterIsrResult(entry.partition, code, state))
        more, ends = reassign.completions(self, arrived)
        pieces += more
        for result in results:
            if result.partition in ends and result.state is not None:
                self._moved(result, ends[result.partition])
        answer = AlterIsrAnswer(proposal.request, Code.NONE, results)
        steps = (*pack(self.guard, pieces), *([Step(changes=tuple(refused))] if refused else []))
        after += [MovesDue()] if arrived else []
        return Decision(steps, answers=((event.sender, answer),), doubt=tuple(doubt), after=tuple(after))

    def _change_of(self, partition: PartitionId, state: PartitionState) -> Piece:
        """A proposal that was accepted. Looked at again: one that completes a move, if too many do at once, or lets a leader leave."""
        piece = self.store_state(partition, self.cluster.topics[partition.topic_id], state)
        again = reassign.completes(self.cluster, partition, state) or state.leader in self.cluster.leaving()
        due = (Due((partition,)),) if again else ()
        return evolve(piece, changes=(*piece.changes, *due))

    def _moved(self, result: AlterIsrResult, state: PartitionState) -> None:
        """What a leader is told whose proposal has completed a move: the state it has brought about, another leader's perhaps."""
        assert result.state is not None
        if state.leader != result.state.leader:
            result.error = Code.NEW_LEADER_ELECTED
        result.state = evolve(state, controller_epoch=self.controller_epoch, partition_epoch=result.state.partition_epoch)

    def _judge(self, entry: AlterIsrEntry, sender: int, seen: set[PartitionId]) -> tuple[int, PartitionState | None]:
        cluster = self.cluster
        partition = entry.partition
        topic = cluster.topics.get(partition.topic_id)
        if topic is None or partition.topic_id in cluster.deletions:
            return Code.UNKNOWN_TOPIC_ID, None
        if partition.partition not in topic.assignments:
            return Code.UNKNOWN_TOPIC_OR_PARTITION, None
        if cluster.topic_of(partition) is None:
            return Code.INCONSISTENT_TOPIC_ID, None
        state = cluster.states.get(partition)
        if state is None:
            return Code.UNKNOWN_TOPIC_OR_PARTITION, None
        if partition in seen:
            return Code.INVALID_REQUEST, state  # two wishes for one partition in one request
        seen.add(partition)
        replicas, min_isr = cluster.replicas(partition), cluster.min_isr_in(state, partition)
        code, changed = change_isr(entry, sender, state, replicas=replicas, min_isr=min_isr, brokers=cluster.live(partition))
        if code == Code.NONE and cluster.is_refused(partition, entry.partition_epoch, entry.proposal):
            return Code.INELIGIBLE_REPLICA, state
        return code, changed

    # ---- brokers

    def _brokers_seen(self, event: BrokersSeen) -> Decision:
        """Who came, who went, who came back as another incarnation; their partitions become due, nobody else's."""
        cluster = self.cluster
        seen = {broker.info.broker_id: broker for broker in event.brokers}
        changes: list[Change] = []
        told: list[Told] = []
        for broker_id in sorted(cluster.brokers.keys() | seen.keys()):
            known, now = cluster.brokers.get(broker_id), seen.get(broker_id)
            if known is not None and now is not None and known.info.broker_epoch == now.info.broker_epoch:
                continue
            changes.append(BrokerGone(broker_id) if now is None else BrokerSet(now))
            due = tuple(p for p in cluster.on_broker(broker_id) if cluster.concerns(p, broker_id))
            changes.append(Due(due))
            told.append(Told("broker_gone" if now is None else "broker_registered", {"broker": broker_id, "partitions": len(due)}))
        ended = tuple(DrainingEnded(b) for b in shutdown.ended(cluster, event))
        return Decision((Step(changes=tuple(changes), told=tuple(told)),) if changes else (), after=ended)

    def leaderless(self, partition: PartitionId) -> bool:
        """Whether nobody leads the partition now."""
        state = self.cluster.states.get(partition)
        return state is None or state.leader is None

    def _replicas_lost(self, event: ReplicasLost) -> Decision:
        """A disk failed: for these partitions the broker is as good as dead, and what it holds is not to be trusted."""
        cluster = self.cluster
        broker = cluster.brokers.get(event.broker_id)
        if broker is None or broker.info.broker_epoch != event.broker_epoch:
            return Decision()
        held = cluster.on_broker(event.broker_id)
        if event.partitions:
            named = set(event.partitions)
            held = [p for p in held if p in named]
        held = [p for p in held if not cluster.is_broken(p, event.broker_id)]  # brokers repeat it with every heartbeat
        if not held:
            return Decision()
        broken = [ReplicaBroken(p, event.broker_id, event.broker_epoch) for p in held]
        due = Due(tuple(p for p in held if cluster.concerns(p, event.broker_id)))
        told = Told("replicas_failed", {"broker": event.broker_id, "reason": event.reason, "partitions": len(held)})
        return Decision((Step(changes=(*broken, due), told=(told,)),))

    def _replicas_served(self, event: ReplicasServed) -> Decision:
        """A failed copy refuses every notice (P-54): what has failed was put away, and what is there now may be let in."""
        cluster, broker_id = self.cluster, event.broker_id
        broker = cluster.brokers.get(broker_id)
        if broker is None or broker.info.broker_epoch != event.broker_epoch:
            return Decision()
        anew = [p for p in event.partitions if cluster.is_broken(p, broker_id)]
        if not anew:
            return Decision()
        due = Due(tuple(p for p in anew if self.leaderless(p)))
        told = Told("replicas_made_anew", {"broker": broker_id, "partitions": len(anew)})
        return Decision((Step(changes=(*(ReplicaBroken(p, broker_id, -1) for p in anew), due), told=(told,)),))

    def _room_changed(self, event: RoomChanged) -> Decision:
        """A full disk heals (R14): meanwhile others lead what this broker could not make, and it is let in again afterwards."""
        cluster, broker_id, epoch = self.cluster, event.broker_id, event.broker_epoch
        broker = cluster.brokers.get(broker_id)
        if broker is None or broker.info.broker_epoch != epoch:
            return Decision()
        news = [(p, has_room) for p, has_room in event.partitions if cluster.is_roomless(p, broker_id) == has_room and cluster.topic_of(p)]
        if not news:
            return Decision()
        changes = [RoomSet(p, broker_id, epoch, has_room) for p, has_room in news]
        due = tuple(p for p, has_room in news if (self.leaderless(p) if has_room else cluster.concerns(p, broker_id)))
        told = Told("room_changed", {"broker": broker_id, "made": sum(r for _, r in news), "roomless": sum(not r for _, r in news)})
        return Decision((Step(changes=(*changes, Due(due)), told=(told,)),))
