"""Letting lives of brokers in: once whatever follows from the end of the one before has been stored, and not while that cannot be seen.

A life that was let in reports no more what it has lost, and leads what the store says it leads. So one that may have lost something of what
cannot be read waits. One that has lost nothing is let in early, and that is stored with it: what turns out to be led by it, as an earlier
life led it, gets another leader epoch first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve

from replog.controller import topics
from replog.controller.changes import Admitted, BrokerAdmitted, Due
from replog.controller.decision import Decision, Piece, Step, pack
from replog.controller.events import BrokerAcknowledged, CopiesGone, Event
from replog.controller.writing import written
from replog.metadata import judgements
from replog.model import PartitionId, PartitionState
from replog.ports import Event as Told

if TYPE_CHECKING:
    from replog.controller.cluster import Cluster
    from replog.controller.controller import Controller

__all__ = ["broker_acknowledged", "is_kept_out", "is_led_early", "is_to_wait"]


def broker_acknowledged(controller: Controller, event: BrokerAcknowledged) -> Decision:
    """The broker knows its partitions: let its incarnation in, and elect it wherever only it was missing."""
    cluster, broker_id = controller.cluster, event.broker_id
    broker = cluster.brokers.get(broker_id)
    if broker is None or broker.info.broker_epoch != event.broker_epoch:
        return Decision()
    is_new, is_early = not cluster.is_admitted(broker_id), _is_early(cluster, broker_id)
    if is_new and any(_counts_in_vain(cluster, partition, broker_id) for partition in cluster.due):
        return Decision(after=(event,))  # once they have been decided
    again = evolve(event, strays=(), removals=())
    steps: list[Step] = []
    later: tuple[Event, ...] = ()
    if is_to_wait(cluster, broker_id):
        later = (again,)
    elif is_new:
        steps += pack(controller.guard, [_admit(controller, broker_id, is_early=is_early)])
        later = (again,) if is_early else later
    elif cluster.admitted[broker_id].is_early and (is_early or cluster.due):
        later = (again,)
    elif cluster.admitted[broker_id].is_early:  # everything can be seen, and has been decided
        steps += pack(controller.guard, [_admit(controller, broker_id, is_early=False)])
    else:  # admitted by a commit whose outcome nobody heard: what follows from it is still to be done
        due = tuple(p for p in cluster.on_broker(broker_id) if controller.leaderless(p))
        steps += [Step(changes=(Due(due),))] if due else []
    stops, stray_topics, told = topics.strays(cluster, broker_id, event.strays)
    if stops or told:
        steps.append(Step(stops=stops, told=told))
    gone = [CopiesGone(broker_id, t) for t in event.removals if t in cluster.removed and t not in stray_topics]
    return Decision(tuple(steps), after=tuple(gone), later=later)


def _admit(controller: Controller, broker_id: int, *, is_early: bool) -> Piece:
    cluster = controller.cluster
    broker, is_new = cluster.brokers[broker_id], not cluster.is_admitted(broker_id)
    path = judgements.admitted_path(broker_id)
    known = cluster.admitted.get(broker_id)
    admission = judgements.Admission(broker.info.broker_epoch, broker.incarnation, broker.info.directory_id, is_early)
    value = judgements.encode_admission(admission)
    op, version, ended = written(cluster, path, value, None if known is None else known.version)
    admitted = Admitted(admission.broker_epoch, admission.incarnation, admission.directory_id, version, is_early)
    due = tuple(p for p in cluster.on_broker(broker_id) if controller.leaderless(p))
    told = Told("broker_admitted", {"broker": broker_id, "broker_epoch": admission.broker_epoch})
    return Piece((op,), (BrokerAdmitted(broker_id, admitted), *ended, Due(due)), (told,) if is_new else ())


# -------------------------------------------------------------------------------------------------------- who has to wait


def is_to_wait(cluster: Cluster, broker_id: int) -> bool:
    """Whether the store refuses a state that follows from the end of the broker's last life: let in, it would go on from there.

    Or whether a state cannot be read that is about what it has lost: let in, it reports that no more.
    """
    if cluster.is_admitted(broker_id):
        return False
    if is_kept_out(cluster, broker_id):
        return True
    for partition, is_refused in cluster.parked.items():
        if _goes_on(cluster, partition, broker_id) if is_refused else broker_id in cluster.lossy(partition):
            return True
    return False


def is_kept_out(cluster: Cluster, broker_id: int) -> bool:
    """Whether the broker may have lost what cannot be decided now, because the store does not give out what says so."""
    broker, hidden = cluster.brokers.get(broker_id), cluster.hidden
    if broker is None or cluster.is_admitted(broker_id):
        return False
    if broker_id in hidden.admissions or (hidden.others and broker_id not in cluster.admitted):
        return True
    is_named = bool(hidden.topics) and any(_is_unknown(cluster, partition.topic_id) for partition in broker.lossy)
    return bool(hidden.topics) and broker.has_lost(cluster.admitted.get(broker_id), is_named=is_named)


def _is_unknown(cluster: Cluster, topic_id: bytes) -> bool:
    return topic_id not in cluster.topics and topic_id not in cluster.removed


def _goes_on(cluster: Cluster, partition: PartitionId, broker_id: int) -> bool:
    """Whether the broker counts as complete in what is stored, and should not: of the ELR it may, unless it has lost records."""
    state = cluster.states.get(partition)
    return state is not None and (broker_id in (state.leader, *state.isr) or _counts_in_vain(cluster, partition, broker_id))


def _counts_in_vain(cluster: Cluster, partition: PartitionId, broker_id: int) -> bool:
    """Whether the broker counts as complete in what is known, or as one that was, and has lost records."""
    state = cluster.states.get(partition)
    counts = state is not None and broker_id in (state.leader, *state.isr, *state.elr)
    return (counts and broker_id in cluster.lossy(partition)) or cluster.is_to_note(partition, broker_id)


# -------------------------------------------------------------------------------------------------------- who came early


def _is_early(cluster: Cluster, broker_id: int) -> bool:
    """Whether a broker that is let in now may be the leader of something that cannot be read, or not be stored anew, as an earlier life of
    it was."""
    return bool(cluster.hidden.topics) or any(_may_lead(cluster, partition, broker_id) for partition in cluster.parked)


def _may_lead(cluster: Cluster, partition: PartitionId, broker_id: int) -> bool:
    state = cluster.states.get(partition)
    return state is None or state.leader == broker_id


def is_led_early(cluster: Cluster, state: PartitionState | None) -> bool:
    """Whether the leader was let in before anybody could see that an earlier life of it leads the partition."""
    admitted = None if state is None or state.leader is None else cluster.admitted.get(state.leader)
    return admitted is not None and admitted.is_early
