"""Why a partition is as it is, in sentences for people: from the same facts that decisions are made from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from replog.config import check_partition_number
from replog.controller import moves
from replog.controller.changes import Change, StateGone, StateSet, TopicGone
from replog.controller.cluster import Cluster
from replog.controller.decision import Decision, answered
from replog.controller.election import whom_to_await
from replog.controller.elections import why_away
from replog.controller.events import AdminAsked
from replog.controller.refusal import Refusal, named, standing
from replog.errors import Code, UsageError
from replog.metadata import judgements, layout
from replog.metadata.judgements import LossRecord
from replog.model import Assignment, PartitionId, PartitionState

if TYPE_CHECKING:
    from replog.controller.controller import Controller

__all__ = ["explain", "note"]

_BEHIND = "it has yet to catch up with the leader"
_PERHAPS_BEHIND = "it is live, but may miss records that were committed"


def note(controller: Controller, change: Change) -> None:
    """A change is about to be applied: remember since when a partition has been led as it is, as far as this term knows."""
    match change:
        case StateSet(partition, state):
            known = controller.cluster.states.get(partition)
            made_now = known is None and state.leader_epoch == 0 and state.controller_epoch == controller.controller_epoch
            if made_now or (known is not None and known.leader_epoch != state.leader_epoch):
                controller.led_since[partition] = controller.wall_ms
        case StateGone(partition):
            controller.led_since.pop(partition, None)
        case TopicGone(topic_id) if topic_id in controller.cluster.topics:
            for partition in controller.cluster.topics[topic_id].identities():
                controller.led_since.pop(partition, None)
        case _:
            pass


def explain(controller: Controller, event: AdminAsked) -> Decision:
    """`name`, `partition`: sentences, and the facts of them as plain values."""
    cluster, request = controller.cluster, event.request
    topic = standing(cluster, named(request.arguments))
    try:
        number = check_partition_number(request.arguments.get("partition"))
    except UsageError as error:
        raise Refusal(Code.INVALID_REQUEST, str(error)) from error
    if number not in topic.assignments:
        text = f"topic {topic.topic!r} has no partition {number}; it has {len(topic.assignments)}"
        raise Refusal(Code.UNKNOWN_TOPIC_OR_PARTITION, text)
    partition, name = topic.identity(number), f"{topic.topic}-{number}"
    assignment, state = topic.assignments[number], cluster.states.get(partition)
    result: dict[str, Any] = {"sentences": [], "leader": None, "since_ms": controller.led_since.get(partition) or None, "missing": {}}
    if state is None:
        reasons = _reasons(cluster, partition, assignment.replicas)
        result["sentences"] = [
            f"{name} has never had a leader: none of its replicas has been live yet.",
            *_remedy(cluster, partition, assignment.replicas, "or"),
            *_each(reasons, None),
        ]
    else:
        outside = [r for r in assignment.replicas if r not in state.isr]
        reasons = _reasons(cluster, partition, outside)
        result |= {"leader": state.leader, "leader_epoch": state.leader_epoch, "isr": list(state.isr), "elr": list(state.elr)}
        result["sentences"] = list(_sentences(controller, partition, name, state, assignment, reasons))
    result["missing"] = {str(broker): why for broker, why in reasons.items()}  # "": ask the leader
    return answered(event, result)


def _sentences(
    controller: Controller, partition: PartitionId, name: str, state: PartitionState, assignment: Assignment, reasons: dict[int, str]
) -> Iterator[str]:
    cluster = controller.cluster
    if state.leader is None:
        yield f"Nobody leads {name}, in epoch {state.leader_epoch}: nothing can be appended or read."
        yield from _waiting(cluster, partition, name, state, assignment)
    else:
        yield f"Broker {state.leader} leads {name}, in epoch {state.leader_epoch}."
        yield from _in_sync(cluster, partition, state, assignment)
    yield from _each(reasons, state.leader, state.elr)
    if state.recovering and state.leader is not None:
        yield f"Broker {state.leader} was elected although records may be missing there: until it has recovered nobody joins the ISR."
    if partition in cluster.due:
        yield "Something about it has just changed: it is about to be decided again."
    yield from _moving(cluster, partition, state, assignment)
    yield from _lost(cluster.loss_records.get(judgements.loss_path(partition.topic_id, partition.partition)))


def _in_sync(cluster: Cluster, partition: PartitionId, state: PartitionState, assignment: Assignment) -> Iterator[str]:
    min_isr = cluster.min_isr_in(state, partition)
    count, lacking = len(state.isr), min_isr - len(state.isr)
    yield f"In sync {_are(state.isr)}: {count} of {len(assignment.replicas)} replicas; min_isr is {min_isr}."
    if lacking > 0:
        more = "1 more replica is" if lacking == 1 else f"{lacking} more replicas are"
        yield f"Those are too few: acks=all is refused and nothing is committed until {more} in sync."
        outside = [r for r in assignment.replicas if r not in state.isr]
        yield from _remedy(cluster, partition, outside, "or" if lacking == 1 else "and")
    leaving = cluster.leaving()
    if state.leader in leaving:
        yield f"Broker {state.leader} is draining, and leads because nobody else is in sync: it is replaced as soon as somebody is."
    first = assignment.replicas[0]
    if first != state.leader and first in state.isr and first not in leaving:
        yield f"The preferred leader, broker {first}, is in sync: electing it moves the leadership there at no cost."


def _waiting(cluster: Cluster, partition: PartitionId, name: str, state: PartitionState, assignment: Assignment) -> Iterator[str]:
    """Whom a partition without a leader waits for, and what a person can do."""
    live = cluster.live(partition)
    joining, broken = moves.joining(assignment), cluster.broken_of(partition)
    intact = [r for r in cluster.replicas(partition) if r not in joining and r not in broken]
    begun = {*cluster.emptied(partition), *state.anew}
    awaited = whom_to_await(state, intact, begun)
    if state.isr or state.elr:
        yield f"It waits for {_or((*state.isr, *state.elr))}: who is eligible (ELR) holds everything that was committed."
        yield from _remedy(cluster, partition, (*state.isr, *state.elr), "or")
    elif awaited and all(r in live for r in awaited):
        yield f"No replica is known to be complete: {_are(awaited)} being asked how far they reach, and who has most will lead."
    elif awaited:
        away = [r for r in awaited if r not in live]
        who = _or(state.last_known, "and")
        yield f"No replica is known to be complete. The last that were are {who}; it waits until all are live, to take the longest log."
        if more := [r for r in awaited if r not in state.last_known]:
            anew = [r for r in state.last_known if r in begun]
            hope = f"{_or(more, 'and')} may hold more now, so it waits for all"
            yield f"Of them {_or(anew, 'and')} began anew, in an empty folder or cut at damage: {hope}."
        yield from _remedy(cluster, partition, away, "and")
    else:
        yield "No replica is known to be complete, or to have been the last that was."
    others = [r for r in cluster.replicas(partition) if r in live and r not in state.elr]
    if others:
        yield f"If they are gone for good: an unclean election of {name} takes {_or(others)}, and loses the records that are not there."


def _remedy(cluster: Cluster, partition: PartitionId, awaited: Sequence[int], word: str) -> Iterator[str]:
    """What brings those back that are waited for. Who is fenced or behind comes by itself, or it is said below why not."""
    gone = [b for b in awaited if b not in cluster.brokers]
    broken, roomless = cluster.broken_of(partition), [b for b in cluster.roomless(partition) if b in awaited]
    failed = [b for b in awaited if b in broken]
    steps = [
        f"start {_or(gone, word)}" if gone else "",
        f"repair the disk of {_or(failed, word)} and start {'it' if len(failed) == 1 else 'them'} again" if failed else "",
        f"make room on the disk of {_or(roomless, word)}" if roomless else "",
    ]
    text = f", {word} ".join(filter(None, steps))
    if text:
        yield f"{text[0].upper()}{text[1:]}."


def _reasons(cluster: Cluster, partition: PartitionId, brokers: Sequence[int]) -> dict[int, str]:
    """Why these replicas are not in sync; "" where only the leader knows."""
    lossy = set(cluster.lossy(partition))
    reasons = {}
    for broker_id in brokers:
        why = why_away(cluster, partition, broker_id)
        reasons[broker_id] = f"{why}, and it has lost records of this partition" if why and broker_id in lossy else why
    return reasons


def _each(reasons: dict[int, str], leader: int | None, elr: Sequence[int] = ()) -> Iterator[str]:
    for broker_id, why in reasons.items():
        complete = " It is eligible all the same (ELR): it holds everything that was committed." if broker_id in elr else ""
        why = why or (_PERHAPS_BEHIND if leader is None else _BEHIND)
        yield f"Broker {broker_id} is not in sync: {why}.{complete}"


def _moving(cluster: Cluster, partition: PartitionId, state: PartitionState, assignment: Assignment) -> Iterator[str]:
    if not moves.is_moving(assignment):
        return
    original = assignment.original
    if cluster.is_wish_hidden(partition):
        path = layout.reassigned_path(cluster.topics[partition.topic_id].topic, partition.partition)
        yield f"What is wished of it at {path} cannot be read: its move does not end until that can be."
    then = f"then the copies on {_list(assignment.removing) or 'nobody'} go"
    if cluster.is_cancelled(partition):
        yield f"It was being moved, and that was cancelled: it goes back to brokers {_list(original)}."
        away, needed = [r for r in original if r not in state.isr], cluster.min_isr(partition)
        if moves.is_returning(assignment) and away:
            enough = "all of these" if needed == len(original) else f"{needed} of these {len(original)}"
            yield f"That is done when {enough} are in sync, and {_or(away, 'and')} {'is' if len(away) == 1 else 'are'} not; {then}."
        return
    way = f"being moved from brokers {_list(original)} to {_list(moves.target_of(assignment))}"
    if moves.is_returning(assignment):
        way = f"being moved back to brokers {_list(moves.target_of(assignment))}"
    new = f" (new: broker{'' if len(assignment.adding) == 1 else 's'} {_list(assignment.adding)})" if assignment.adding else ""
    yield f"It is {way}: that is done when all of them are in sync{new}; {then}."


def _lost(record: LossRecord | None) -> Iterator[str]:
    if record is None:
        return
    how = "although others may have held more" if record.kind == "unclean" else "with the longest log of those that were there"
    away = f"; away: {_or(record.missing, 'and')}" if record.missing else ""
    ends = ", ".join(f"broker {c.broker} to {c.end_offset}" for c in record.candidates if c.end_offset >= 0)
    yield (
        f"Records may have been lost in epoch {record.leader_epoch}: broker {record.leader} was elected {how}"
        f"{f' ({ends})' if ends else ''}{away}."
    )


def _list(brokers: Sequence[int]) -> str:
    return ", ".join(map(str, brokers))


def _are(brokers: Sequence[int]) -> str:
    if not brokers:
        return "is nobody"
    return f"is broker {brokers[0]}" if len(brokers) == 1 else f"are brokers {_list(brokers)}"


def _or(brokers: Sequence[int], word: str = "or") -> str:
    if len(brokers) == 1:
        return f"broker {brokers[0]}"
    return f"brokers {_list(brokers[:-1])} {word} {brokers[-1]}"
