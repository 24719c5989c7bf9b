"""The controller as a script plays it: keeps the states it has stored, sends them when told, collects proposals, answers them."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from replog.config import TopicConfig
from replog.controller.isr_change import change_isr
from replog.errors import Code, UsageError
from replog.messages import (
    AlterIsr,
    AlterIsrAnswer,
    AlterIsrEntry,
    AlterIsrResult,
    ClusterView,
    LeaderAndIsr,
    PartitionNotice,
    PartitionView,
    TopicView,
    UpdateMetadata,
)
from replog.model import Assignment, BrokerInfo, PartitionId, PartitionState
from replog.testing.scenario.names import Command, Names, broker_id, broker_ids

__all__ = ["Script"]

ACK_TIMEOUT_MS = 3_000


class Script:
    """What the store would hold, and what the controller would have heard."""

    def __init__(self, names: Names, config: TopicConfig, replicas: tuple[int, ...]) -> None:
        self.names = names
        self.config = config
        self.controller_id = 0
        self.controller_epoch = 1
        self.registered: dict[int, BrokerInfo] = {}
        self.states: dict[PartitionId, PartitionState] = {}
        self.assignments: dict[PartitionId, Assignment] = {}
        self.notices: dict[int, PartitionNotice] = {}
        """Every notice ever made, by its number: any of them may be delivered late, or twice."""
        self.proposals: dict[int, list[AlterIsr]] = {}
        """By sender, oldest first; answered ones stay: an answer may come twice."""
        self._replicas = replicas
        self._version = 0
        self._notice = -1

    # --------------------------------------------------------------------------------------------------------- storing

    def store(self, identity: PartitionId, command: Command) -> int:
        """`leader=A epoch=1 isr=A,B pe=1 elr=C replicas=A,B,C [recovering]`: what is not said stays. Returns the notice's number."""
        was = self.states.get(identity) or PartitionState(None, 0, (), partition_epoch=-1)
        leader = command.take("leader", "")
        state = PartitionState(
            leader=(None if leader == "none" else broker_id(leader)) if leader else was.leader,
            leader_epoch=command.number("epoch", was.leader_epoch),
            isr=broker_ids(command.keys.pop("isr")) if "isr" in command.keys else was.isr,
            elr=broker_ids(command.keys.pop("elr")) if "elr" in command.keys else was.elr,
            recovering=command.flag("recovering"),
            controller_epoch=self.controller_epoch,
            partition_epoch=command.number("pe", was.partition_epoch + 1),
        )
        replicas = self.assignment(identity).replicas
        if "replicas" in command.keys:
            replicas = broker_ids(command.keys.pop("replicas"))
        min_isr = command.number("min_isr", self.config.min_isr or 1)
        self.config = evolve(self.config, min_isr=min_isr)
        self.assignments[identity] = Assignment(replicas, identity.creation)
        return self._keep(identity, state)

    def _keep(self, identity: PartitionId, state: PartitionState) -> int:
        self.states[identity] = state
        number = self.next_notice()
        topic = self.names.text(identity).split("-")[0].rstrip("'")
        self.notices[number] = PartitionNotice(identity, topic, state, self.assignment(identity), self.config)
        return number

    def next_notice(self) -> int:
        """Commands are numbered in the order they are made, whoever they are for."""
        self._notice += 1
        return self._notice

    def assignment(self, identity: PartitionId) -> Assignment:
        """Who should hold copies: everyone, until a state has said otherwise."""
        return self.assignments.get(identity) or Assignment(self._replicas, identity.creation)

    # --------------------------------------------------------------------------------------------------------- telling

    def notice(self, number: int, to: int, *, complete: tuple[PartitionId, ...] | None = None, life: int | None = None) -> LeaderAndIsr:
        """A notice as a message for one life of one broker; `complete` adds the newest state of these partitions."""
        entries = [self.notices[number]]
        for identity in complete or ():
            if identity != entries[0].partition:
                newest = max(n for n, notice in self.notices.items() if notice.partition == identity)
                entries.append(self.notices[newest])
        epoch = self.registered[to].broker_epoch if life is None else life
        head = (self.controller_id, self.controller_epoch, epoch, number)
        return LeaderAndIsr(*head, complete is not None, ACK_TIMEOUT_MS, entries, as_of=number)

    def view(self, to: int) -> UpdateMetadata:
        """The complete view, as of now."""
        self._version += 1
        topics: dict[bytes, list[PartitionView]] = {}
        for identity, s in sorted(self.states.items()):
            replicas = self.assignment(identity).replicas
            topics.setdefault(identity.topic_id, []).append(
                PartitionView(identity.partition, identity.creation, s.leader, s.leader_epoch, s.isr, s.elr, replicas, s.partition_epoch)
            )
        listed = [TopicView(t.rstrip(b"\0").decode("ascii", "replace"), t, self.config, tuple(p)) for t, p in sorted(topics.items())]
        brokers = [self.registered[b] for b in sorted(self.registered)]
        view = ClusterView(self.controller_epoch, self._version, -1, self.controller_id, brokers, listed)
        return UpdateMetadata(self.controller_id, self.controller_epoch, self.registered[to].broker_epoch, view)

    # ------------------------------------------------------------------------------------------------------- proposals

    def heard(self, message: Any) -> None:
        """What brokers say: proposals are kept, the rest has been told already."""
        if isinstance(message, AlterIsr):
            self.proposals.setdefault(message.broker_id, []).append(message)

    def proposal(self, sender: int, number: int) -> AlterIsr:
        """The newest proposal of a broker, or the `number`-th."""
        heard = self.proposals.get(sender, [])
        if not heard or not -len(heard) <= number < len(heard):
            raise UsageError(f"the script has heard {len(heard)} proposals from there")
        return heard[number]

    def answer(self, proposal: AlterIsr, error: int, *, top: int = Code.NONE) -> AlterIsrAnswer:
        """Answer as told. With "ok" the proposal is stored first, unless it is already."""
        if top:
            return AlterIsrAnswer(proposal.request, top, [])
        results = []
        for entry in proposal.entries:
            if error == Code.NONE:
                self._accept(entry)
            results.append(AlterIsrResult(entry.partition, error, self.states.get(entry.partition)))
        return AlterIsrAnswer(proposal.request, Code.NONE, results)

    def judge(self, proposal: AlterIsr) -> AlterIsrAnswer:
        """Answer as the controller's own rules say, from what is stored here."""
        results = []
        for entry in proposal.entries:
            known = self.states.get(entry.partition)
            if known is None:
                results.append(AlterIsrResult(entry.partition, Code.UNKNOWN_TOPIC_ID))
                continue
            replicas = self.assignment(entry.partition).replicas
            min_isr = min(self.config.min_isr or 1, len(replicas))
            error, _ = change_isr(entry, proposal.broker_id, known, replicas=replicas, min_isr=min_isr, brokers=self.registered)
            if not error:
                self._accept(entry)
            results.append(AlterIsrResult(entry.partition, error, self.states[entry.partition]))
        return AlterIsrAnswer(proposal.request, Code.NONE, results)

    def _accept(self, entry: AlterIsrEntry) -> None:
        known = self.states[entry.partition]
        isr = tuple(b for b, _ in entry.isr)
        if entry.partition_epoch == known.partition_epoch:
            state = evolve(known, isr=isr, recovering=entry.recovering, partition_epoch=known.partition_epoch + 1)
            self._keep(entry.partition, state)
