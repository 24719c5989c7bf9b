"""Another configuration for a topic that there is.

The topic's node is the record, in one transaction. What follows for its partitions follows from there: each is decided again, and
one whose state reckons with another min ISR gets a new one (KAFKA-16540); its leader hears of both together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen

from replog.config import TopicConfig
from replog.controller import nodes
from replog.controller.changes import Due, Topic, TopicSet
from replog.controller.cluster import Cluster
from replog.controller.decision import Decision, Piece, pack
from replog.controller.drafts import resolved
from replog.controller.events import AdminAsked
from replog.controller.refusal import Refusal, named, standing, stored_and_gone
from replog.errors import Code, UsageError
from replog.messages import AdminAnswer
from replog.model import PartitionId
from replog.ports import Event as Told

if TYPE_CHECKING:
    from replog.controller.controller import Controller

__all__ = ["alter_topic"]


@frozen
class Altered:
    """What was stored."""

    topic_id: bytes
    config: dict[str, Any]


def alter_topic(controller: Controller, event: AdminAsked) -> Decision:
    """`config` has the keys to change; None puts one back to its default. The others stay as they are."""
    request = event.request
    if isinstance(event.progress, Altered):
        gone = stored_and_gone(controller.cluster, evolve(event, progress=event.progress.topic_id), {"config": event.progress.config})
        if gone is not None:
            return gone
    topic = standing(controller.cluster, named(request.arguments))
    wanted = request.arguments.get("config")
    if not isinstance(wanted, Mapping) or not wanted:
        raise Refusal(Code.INVALID_CONFIG, f"config is a mapping of keys to change to their new values, not {wanted!r}")
    try:
        wanted = TopicConfig.named({str(key): value for key, value in wanted.items()})
    except UsageError as error:
        raise Refusal(Code.INVALID_CONFIG, str(error)) from error
    changed = {**topic.config.to_mapping(), **wanted}
    factor = min(len(a.original or a.replicas) for a in topic.assignments.values())
    if "min_isr" not in wanted:
        factor = max(factor, topic.config.min_isr or 1)  # moves may have left fewer replicas than it says
    try:
        config = resolved({key: value for key, value in changed.items() if value is not None}, factor)
    except (UsageError, TypeError) as error:
        raise Refusal(Code.INVALID_CONFIG, str(error)) from error
    answers = ((event.sender, AdminAnswer(request.request, Code.NONE, result={"config": config.to_mapping()}, origin=request.origin)),)
    if event.progress is not None or config == topic.config:
        return Decision(answers=answers)
    _check_in_sync(controller.cluster, topic, config)
    altered = evolve(topic, config=config, version=topic.version + 1)
    told = Told("topic_altered", {"topic": topic.topic, "keys": ", ".join(sorted(wanted))})
    due = Due(tuple(_affected(controller.cluster, topic, config)))
    # Answered once the states have followed; not compared again, or two who wish for different values would undo each other's for ever.
    after = (evolve(event, progress=Altered(topic.topic_id, config.to_mapping())),)
    return Decision(pack(controller.guard, [Piece((nodes.put(altered),), (TopicSet(altered), due), (told,))]), after=after)


def _affected(cluster: Cluster, topic: Topic, config: TopicConfig) -> Iterator[PartitionId]:
    """Partitions that may be decided otherwise: all with another min ISR; those without a leader, where unclean elections are allowed."""
    for partition in topic.identities():
        state = cluster.states.get(partition)
        is_waiting = config.unclean_leader_election and state is not None and state.leader is None
        if config.min_isr != topic.config.min_isr or is_waiting:
            yield partition


def _check_in_sync(cluster: Cluster, topic: Topic, config: TopicConfig) -> None:
    """Raise Refusal if a larger min_isr would stop a partition that takes appends now."""
    new, old = config.min_isr or 1, topic.config.min_isr or 1
    for partition in topic.identities() if new > old else ():
        state = cluster.states.get(partition)
        if state is not None and state.leader is not None and old <= len(state.isr) < new:
            in_sync = f"partition {partition.partition} of {topic.topic!r} has {len(state.isr)} in sync (brokers {list(state.isr)})"
            raise Refusal(Code.INVALID_CONFIG, f"min_isr is {new}, and {in_sync}: acks=all would be refused there")
