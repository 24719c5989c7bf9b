"""Epochs only grow, one process leads each, and what an old one says changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from replog.messages import (
    AlterIsrAnswer,
    Fetch,
    Fetched,
    FetchEntry,
    Flushed,
    FlushedEntry,
    LeaderAndIsr,
    Registered,
    ReplicaStates,
    StopReplica,
    UpdateMetadata,
)
from replog.model import Address, PartitionId, PartitionState
from replog.partition.partition import Partition
from replog.testing.simulator.invariants.base import Copies, Invariant
from replog.testing.simulator.ledger import Copy, Ledger

if TYPE_CHECKING:
    from replog.testing.simulator.node import Node

__all__ = ["EpochsNeverGoBack", "LeadersNeverGoBack", "OldMessagesChangeNothing", "OneLeaderPerEpoch"]


_ABOUT_PARTITIONS = frozenset(
    {AlterIsrAnswer, Fetch, Fetched, Flushed, LeaderAndIsr, Registered, ReplicaStates, StopReplica, UpdateMetadata}
)


class OneLeaderPerEpoch(Invariant):
    """One process leads a leader epoch, once: a restart costs an epoch."""

    name = "S5"
    source = "KIP-101; seed V3, M13"
    protocol = ("I7", "I13")

    def led(self, ledger: Ledger, copy: Copy, partition: Partition) -> None:
        """The first one to lead it is the only one."""
        mine = (copy.broker, copy.life)
        other = ledger.leaders.setdefault(partition.leader_epoch, mine)
        if other != mine:
            self.fail(ledger, f"epoch {partition.leader_epoch} is led by (broker, life) {other} and by {mine}")


class EpochsNeverGoBack(Invariant):
    """Controller, leader, partition and broker epochs only grow: on a broker, in the store, and nobody makes one up."""

    name = "S6"
    source = "KIP-320, KIP-380, KIP-497; KAFKA-6082"
    protocol = ("I13",)

    def changed(self, ledger: Ledger, copy: Copy, partition: Partition) -> None:
        """Within one life; the next one starts with nothing. So does a copy that was not served for a while, because it could not be put
        away or a controller could not read its topic, until it has taken a state again.
        """
        if partition.leader_epoch < 0:
            return
        if partition.leader_epoch < copy.leader_epoch or partition.partition_epoch < copy.partition_epoch:
            seen = (copy.leader_epoch, copy.partition_epoch)
            self.fail(ledger, f"broker {copy.broker} goes from epochs {seen} to {(partition.leader_epoch, partition.partition_epoch)}")

    def stored(self, ledger: Ledger, copies: Copies, before: PartitionState | None) -> None:
        """In the store."""
        state = ledger.state
        assert state is not None
        if before is not None and (state.leader_epoch < before.leader_epoch or state.controller_epoch < before.controller_epoch):
            self.fail(ledger, f"the store goes from {before} to {state}")

    def epoch(self, what: str, before: int, after: int) -> None:
        """Of the controller, or of a broker, whose every registration has a new one."""
        if after < before or (after == before and what.startswith("broker")):
            self.broken(f"the epoch of {what} goes from {before} to {after}")

    def registered(self, broker: int, broker_epoch: int, stored: int) -> None:
        """The store knows a broker epoch first."""
        if broker_epoch > stored:
            self.broken(f"broker {broker} believes in epoch {broker_epoch}, which the store never gave")


class LeadersNeverGoBack(Invariant):
    """The high watermark of a leader never goes back within an epoch."""

    name = "S8"
    source = "KIP-101; KAFKA-4215"
    protocol = ("I11",)

    def changed(self, ledger: Ledger, copy: Copy, partition: Partition) -> None:
        """Against the last look, if that was the same leadership."""
        same = partition.leading is not None and copy.led == (copy.life, partition.leader_epoch)
        if same and partition.high_watermark < copy.high_watermark:
            self.fail(ledger, f"leader {copy.broker} goes from HW {copy.high_watermark} to {partition.high_watermark}")


class OldMessagesChangeNothing(Invariant):
    """A message of an older controller, broker or leader epoch changes nothing of what it is about.

    What may not change is noted before the message is handled, and compared afterwards.
    """

    name = "S14"
    source = "KIP-320, KIP-380, KIP-570; V3 C; M06, KAFKA-9491"
    protocol = ("I13", "I15")

    def __init__(self) -> None:
        self._lives: dict[int, tuple[int, int, int]] = {}
        """Broker -> (life, its broker epoch, newest controller epoch that commanded it)."""
        self._told: tuple[str, dict[PartitionId, Any]] | None = None
        """What is being handled, and how partitions were before it; None if it may change anything."""
        self._grown: set[PartitionId] = set()
        """Of them, those whose leader has appended meanwhile what nobody sent just now."""

    def received(self, node: Node, sender: Address, message: Any) -> None:
        """Note what must stay as it is."""
        if type(message) not in _ABOUT_PARTITIONS or node.broker is None:
            return
        kind = type(message)
        partitions = node.broker.partitions
        if kind is Registered:
            life, known, controller_epoch = self._life(node)
            self._lives[node.broker_id] = (life, max(known, message.broker_epoch), controller_epoch)
            return
        stale: list[PartitionId] = []
        if kind is Fetched:
            stale = [e.partition for e in message.entries if (p := partitions.get(e.partition)) and e.leader_epoch < p.leader_epoch]
        elif kind in (Fetch, Flushed):
            if message.replica >= 0:
                follower = message.replica, message.broker_epoch
                stale = [e.partition for e in message.entries if (p := partitions.get(e.partition)) and _is_late(e, *follower, p)]
        elif kind is AlterIsrAnswer:
            known_here = [(e.state, p) for e in message.entries if (p := partitions.get(e.partition)) and e.state is not None]
            stale = [p.identity for state, p in known_here if _is_older(state, p)]
        else:
            stale = self._commanded(node, message)
        if stale:
            self._told = (f"{kind.__name__} from {sender}", {identity: _state(partitions.get(identity)) for identity in stale})

    def _life(self, node: Node) -> tuple[int, int, int]:
        life = self._lives.get(node.broker_id)
        return life if life is not None and life[0] == node.life else (node.life, -1, -1)

    def _commanded(self, node: Node, message: Any) -> list[PartitionId]:
        """Which partitions a command may not touch: all of them, or those of which the broker knows something newer."""
        assert node.broker is not None
        partitions = node.broker.partitions
        life, broker_epoch, controller_epoch = self._life(node)
        if message.broker_epoch < broker_epoch or message.controller_epoch < controller_epoch:
            return list(partitions)
        if broker_epoch >= 0:
            self._lives[node.broker_id] = (life, broker_epoch, message.controller_epoch)
        if isinstance(message, LeaderAndIsr):
            return [e.partition for e in message.entries if (p := partitions.get(e.partition)) is not None and _is_older(e.state, p)]
        if isinstance(message, StopReplica):
            return [e.partition for e in message.entries if (p := partitions.get(e.partition)) and -1 <= e.leader_epoch < p.leader_epoch]
        return []

    def changed(self, ledger: Ledger, copy: Copy, partition: Partition) -> None:
        """A leader appends by itself: the next slice of a publication, or what a writer had done. It bears a mark."""
        if self._told is not None and partition.leading is not None and copy.entries and copy.entries[-1].into >= 0:
            self._grown.add(ledger.identity)

    def handled(self, node: Node) -> None:
        """Compare."""
        if self._told is None:
            return
        (what, before), self._told = self._told, None
        grown, self._grown = self._grown, set()
        broker = node.broker
        assert broker is not None
        for identity, state in before.items():
            partition = broker.partitions.get(identity)
            after = _state(partition)
            if identity in grown and state is not None and after is not None:
                state, after = (_but_for_growth(one) for one in (state, after))
            if after != state and (partition is None or not partition.failed):  # a disk fails when it likes
                self.broken(f"broker {node.broker_id}, partition {identity!r}: {what} is old, and changes {state} to {after}")


def _is_late(entry: FetchEntry | FlushedEntry, replica_id: int, broker_epoch: int, partition: Partition) -> bool:
    """Whether a follower says this of an earlier leadership, or in an earlier life than its leader has heard from."""
    leading = partition.leading
    replica = None if leading is None else leading.replicas.get(replica_id)
    return entry.leader_epoch < partition.leader_epoch or (replica is not None and broker_epoch < replica.broker_epoch)


def _is_older(state: PartitionState, partition: Partition) -> bool:
    return state.leader_epoch < partition.leader_epoch or state.partition_epoch < partition.partition_epoch


def _but_for_growth(state: Any) -> Any:
    return (*state[:_WATERMARK], *state[_END + 1 :])


_WATERMARK, _END = 3, 4
"""Where they are in a state."""


def _state(partition: Partition | None) -> Any:
    """All of a partition that messages change; not how a proposal stands, which leaders change by themselves."""
    if partition is None:
        return None
    log, leading = partition.log, partition.leading
    progress = None
    if leading is not None:
        progress = (leading.isr.isr, tuple((r.broker_id, r.broker_epoch, r.end_offset, r.position) for r in leading.replicas.values()))
    return (
        partition.leader,
        partition.leader_epoch,
        partition.partition_epoch,
        partition.high_watermark,
        log.end_offset,
        getattr(log, "generation", 0),
        progress,
    )
