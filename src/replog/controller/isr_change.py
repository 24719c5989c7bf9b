"""May a leader change its ISR like this? The checks of KIP-497, KIP-704, KIP-841 and KIP-903, in Kafka's order.

The order matters: a proposal from the future must be answered NOT_CONTROLLER before anything else is judged, because
then it is this controller that is out of date.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import evolve

from replog.controller.election import with_isr
from replog.errors import Code
from replog.messages import AlterIsrEntry
from replog.model import BrokerInfo, PartitionState

__all__ = ["change_isr"]


def change_isr(
    entry: AlterIsrEntry,
    sender: int,
    state: PartitionState,
    *,
    replicas: Sequence[int],
    min_isr: int,
    brokers: Mapping[int, BrokerInfo],
) -> tuple[int, PartitionState]:
    """(0, the new state) or (error code, the state as it is). `brokers`: those registered, whose disk holds this replica well."""
    code = _refusal(entry, sender, state, replicas, brokers)
    if code != Code.NONE:
        return code, state
    isr = [broker for broker, _ in entry.isr]
    wanted = tuple(r for r in replicas if r in isr)
    if wanted == tuple(r for r in replicas if r in state.isr):
        return Code.NONE, evolve(state, recovering=entry.recovering)
    return Code.NONE, evolve(with_isr(state, wanted, replicas=replicas, min_isr=min_isr), recovering=entry.recovering)


def _refusal(
    entry: AlterIsrEntry, sender: int, state: PartitionState, replicas: Sequence[int], brokers: Mapping[int, BrokerInfo]
) -> int:
    if entry.leader_epoch > state.leader_epoch or entry.partition_epoch > state.partition_epoch:
        return Code.NOT_CONTROLLER
    if entry.leader_epoch < state.leader_epoch:
        return Code.FENCED_LEADER_EPOCH
    if sender != state.leader:
        return Code.INVALID_REQUEST
    if entry.partition_epoch < state.partition_epoch:
        return Code.INVALID_UPDATE_VERSION
    isr = [broker for broker, _ in entry.isr]
    if len(set(isr)) != len(isr) or any(broker not in replicas for broker in isr):
        return Code.INVALID_REQUEST
    if state.leader not in isr:
        return Code.INVALID_REQUEST
    if entry.recovering and (len(isr) > 1 or not state.recovering):
        return Code.INVALID_REQUEST
    if all(_eligible(broker, epoch, state, brokers) for broker, epoch in entry.isr):
        return Code.NONE
    return Code.INELIGIBLE_REPLICA


def _eligible(broker: int, epoch: int, state: PartitionState, brokers: Mapping[int, BrokerInfo]) -> bool:
    """Registered, unfenced, of the same life as its fetches, and not draining unless it is a member (KIP-841, KIP-903).

    Draining members stay until they can be replaced: by those that this lets in.
    """
    info = brokers.get(broker)
    if info is None or info.fenced or (info.draining and broker not in state.isr):
        return False
    if epoch == -1:
        return broker in state.isr  # a member from which no fetch came yet: if it died, the partition epoch has moved
    return epoch == info.broker_epoch
