"""A state in the store that is older than what a leader was told: somebody has put it back, and this controller never saw the one before.

A leader that proposes a change of a later state than this controller knows puts the controller in doubt (P-66): it reads the state and its
own seat again. If it holds the seat and the store says the same, the leader knows what is no longer on record, and nobody who leads or
follows it would hear anything any more, because all that follows from the store seems old to them. A leader epoch above theirs ends that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve

from replog.controller.decision import Decision, pack
from replog.controller.events import LaterStateClaimed

if TYPE_CHECKING:
    from replog.controller.controller import Controller

__all__ = ["later_state_claimed"]


def later_state_claimed(controller: Controller, event: LaterStateClaimed) -> Decision:
    """The stored state under a new leader epoch: led by whoever led later than that, if it is in the ISR."""
    cluster, partition = controller.cluster, event.partition
    state, topic = cluster.states.get(partition), cluster.topic_of(partition)
    if state is None or topic is None or partition.topic_id in cluster.deletions:
        return Decision()
    if (event.leader_epoch, event.partition_epoch) <= (state.leader_epoch, state.partition_epoch):
        return Decision()
    leader = event.broker_id if event.broker_id in state.isr else state.leader
    after = evolve(state, leader=leader, leader_epoch=max(event.leader_epoch, state.leader_epoch) + 1)
    return Decision(pack(controller.guard, [controller.store_state(partition, topic, after)]))
